"""Remember by which difference of the two clocks entries were written, so that setting the clock changes no expiry.

    written: expires_at (monotonic) + offset ──> ms since 1970 on disk ──> read back: - the same offset

When entries expire is on disk by the clock on the wall, as only that goes on from one start to the next. If it is set
while the node runs, messages that are read back would expire at another time than those that stayed in memory.

What is found at a start was written by another clock, as far as anybody knows. An entry that arrived after the time of
the start has had a clock that was ahead by that much at least: it has as long to live as when it was written, and no
longer. The time of no other entry says anything about it, for the clock may have been set at any time between them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

JUMP_MS: Final = 1000.0  # the clock was set, if it is off by more; less is how clocks are kept right


class WallOffsets:
    """The milliseconds between monotonic time and that since 1970, by the number of the first entry that has them."""

    __slots__ = ("_firsts", "_new_from", "_offsets", "latest_ms", "started_ms")

    def __init__(self, offset_ms: float, started_ms: float) -> None:
        """`offset_ms` holds for all entries that there are at the start, which is at `started_ms` since 1970."""
        self.started_ms = started_ms
        self._new_from = 0  # the number of the first entry since the start
        self._firsts = array("Q", [0])
        self._offsets = array("d", [offset_ms])
        self.latest_ms = offset_ms  # for entries that are written now

    def clock_was_set(self, offset_ms: float, number: int) -> None:
        """Use another offset for entries from `number` on."""
        self._firsts.append(number)
        self._offsets.append(offset_ms)
        self.latest_ms = offset_ms

    def recovered(self, number: int) -> None:
        """Take entries from `number` on for new ones. Called when all that there were have been found."""
        self._new_from = number

    def of(self, number: int, arrived_ms: int) -> float:
        """Return the offset by which an entry was written that arrived at this time."""
        offset_ms = self._offsets[bisect_right(self._firsts, number) - 1]
        return offset_ms if number >= self._new_from else offset_ms + self.ahead_ms(arrived_ms)

    def ahead_ms(self, arrived_ms: int) -> float:
        """Return by how much the clock of an entry from before the start was ahead of that of the start, at least."""
        return max(0.0, arrived_ms - self.started_ms)

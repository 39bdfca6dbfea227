"""Remember by which difference of the two clocks entries were written, so that setting the clock changes no expiry.

    written: expires_at (monotonic) + offset ──> ms since 1970 on disk ──> read back: - the same offset

When entries expire is on disk by the clock on the wall, as only that goes on from one start to the next. If it is set
while the node runs, messages that are read back would expire at another time than those that stayed in memory.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from typing import Final

JUMP_MS: Final = 1000.0  # the clock was set, if it is off by more; less is how clocks are kept right


class WallOffsets:
    """The milliseconds between monotonic time and that since 1970, by the number of the first entry that has them."""

    __slots__ = ("_firsts", "_offsets", "latest_ms")

    def __init__(self, offset_ms: float) -> None:
        """`offset_ms` holds for all entries that there are at the start."""
        self._firsts = array("Q", [0])
        self._offsets = array("d", [offset_ms])
        self.latest_ms = offset_ms  # for entries that are written now

    def clock_was_set(self, offset_ms: float, number: int) -> None:
        """Use another offset for entries from `number` on."""
        self._firsts.append(number)
        self._offsets.append(offset_ms)
        self.latest_ms = offset_ms

    def of(self, number: int) -> float:
        """Return the offset by which an entry was written."""
        return self._offsets[bisect_right(self._firsts, number) - 1]

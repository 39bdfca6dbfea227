"""Keep when entries arrived, by their numbers: a sample of the time for each commit, fewer where they become too many.

Numbers rise with time through all queues, and entries keep them, so two short columns are enough for all that wait.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.durable.store.chunk import Columns

SAMPLES_MAX: Final = 1 << 16  # 1 MiB
HIGHEST: Final = 1 << 63  # above all numbers


class ArrivalTimes:
    """The times, in ms since 1970. A time that is told may be too early by `step_ms` at most, and never is too late.

    `oldest` returns the lowest number that may still be asked for.
    """

    def __init__(self, oldest: Callable[[], int], samples_max: int = SAMPLES_MAX) -> None:
        self.step_ms = 1
        self._oldest = oldest
        self._samples_max = samples_max
        self._numbers = array("q")  # of the first entry of each sample
        self._times = array("q")

    def note(self, number: int, ms: int) -> None:
        """Take note that the entry with this number, the highest so far, arrived at `ms`."""
        times = self._times
        if times and 0 <= ms - times[-1] < self.step_ms:
            return
        if len(times) >= self._samples_max:
            self._thin()
        self._numbers.append(number)
        self._times.append(ms)

    def note_chunk(self, columns: Columns) -> None:
        """Take note of the entries of a chunk that is found at a start."""
        if columns.arrivals is None:
            self.note(columns.numbers[0], columns.arrived)
            return
        for number, ms in zip(columns.numbers, columns.arrivals, strict=True):
            self.note(number, ms)

    def of(self, number: int) -> int | None:
        """Return when an entry arrived; None for a number from before the first that was noted."""
        at = bisect_right(self._numbers, number) - 1
        return None if at < 0 else self._times[at]

    def after(self, ms: int) -> int:
        """Return the number before which all entries arrived by `ms`, as far as is known; `HIGHEST` if all did."""
        at = bisect_right(self._times, ms)
        return self._numbers[at] if at < len(self._numbers) else HIGHEST

    def _thin(self) -> None:
        """Drop what is not asked for any more, and every second sample if that is too little."""
        at = max(0, bisect_right(self._numbers, self._oldest()) - 1)
        self._numbers, self._times = self._numbers[at:], self._times[at:]
        if len(self._times) > self._samples_max // 2:
            self._numbers, self._times = self._numbers[::2], self._times[::2]
            self.step_ms *= 2

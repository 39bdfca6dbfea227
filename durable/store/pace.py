"""Tell whether a disk is so quick that the caller of a commit may wait for it itself."""

from __future__ import annotations

from typing import Final

QUICK_S: Final = 0.000_5  # for a commit to get to the redo log, on average
WEIGHT: Final = 1 / 16  # of the last commit in the average
STALL_S: Final = 0.01  # a commit that the caller has waited for is not to take longer,
STALLED: Final = 1024  # or so many others pass before it waits for one again


class Pace:
    """The speed of the last commits."""

    __slots__ = ("_average_s", "_passing")

    def __init__(self) -> None:
        self._average_s = 2 * QUICK_S  # it is to show that it is quick
        self._passing = 0  # commits that the caller does not wait for

    @property
    def is_quick(self) -> bool:
        return self._average_s <= QUICK_S and not self._passing

    def took(self, seconds: float, by_caller: bool) -> None:
        """Note the time of a commit, and whether its caller has waited for it."""
        self._average_s += (seconds - self._average_s) * WEIGHT
        if by_caller and seconds > STALL_S:
            self._passing = STALLED
        elif self._passing:
            self._passing -= 1

    def trust(self) -> None:
        """Believe that the disk is quick, as simulations do."""
        self._average_s, self._passing = 0.0, 0

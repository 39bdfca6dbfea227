"""Tell whether a disk is so quick that the caller of a commit may wait for it itself."""

from __future__ import annotations

from typing import Final

QUICK_S: Final = 0.000_5  # for a commit to get to the redo log
QUICK_MIN: Final = 64  # commits in a row that were as quick, before the caller may wait for one
HICCUP: Final = 16  # times as many, after one that the caller waited for was not


class Pace:
    """The speed of the last commits."""

    __slots__ = ("_in_row",)

    def __init__(self) -> None:
        self._in_row = 0  # quick commits; negative: so many are to pass by first

    @property
    def is_quick(self) -> bool:
        return self._in_row >= QUICK_MIN

    def took(self, seconds: float, by_caller: bool) -> None:
        """Note the time of a commit, and whether its caller has waited for it."""
        if seconds <= QUICK_S:
            self._in_row += 1
        elif by_caller:
            self._in_row = -HICCUP * QUICK_MIN
        else:
            self._in_row = min(0, self._in_row)

    def trust(self) -> None:
        """Believe that the disk is quick, as simulations do."""
        self._in_row = QUICK_MIN

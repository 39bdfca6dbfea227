"""Tell of commits whether they come one by one: of a publisher that waits for each, while nothing else goes on.

Nothing is won then by writing them in another thread, while more would be gathered: nothing more comes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.broker import Publisher

ROW: Final = 8  # commits in a row of one publisher, before it is believed to wait for each
FEW: Final = 8  # messages of such a commit, at most, and copies that the batch made in all
BATCHES: Final = 4  # from one of these commits to the next, at most: others have little to do


class OneByOne:
    """The last commits that publishers waited for."""

    __slots__ = ("_lone", "_row", "batches")

    def __init__(self) -> None:
        self._lone = 0  # the identity of the only publisher that waited for the last commit
        self._row = 0  # commits that only this one waited for
        self.batches = 0  # that have ended since the last one; the journal counts them

    def is_next(self, waiting: Mapping[Publisher, int], entries: int, work: int) -> bool:
        """Return whether the next commit is one of them: these publishers wait for it, and it has so many new entries.
        Of a commit that no publisher waits for it is not asked.

        `work` is what its batch has done, as the broker counts it.
        """
        lone = id(next(iter(waiting))) if len(waiting) == 1 else 0
        batches, self.batches = self.batches, 0
        is_such = lone and lone == self._lone and entries <= FEW and batches <= BATCHES and work <= FEW
        self._row = self._row + 1 if is_such else 0
        self._lone = lone
        return self._row > ROW

"""Entries on disk that could not be read are counted by holder, and may be read again: they stay in the store.

a page is read ── some entries are missing ──> note ── pages to read again ──> remove
                                                    └─ purged, deleted ─────> take
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Generic, TypeVar

from leveret.durability import Page

H = TypeVar("H")  # a holder


class UnreadableEntries(Generic[H]):
    """The entries of all holders that could not be read. `changed` is called when there are some, or none any more."""

    def __init__(self, changed: Callable[[int], None]) -> None:
        self.count = 0
        self._changed = changed
        self._pages: dict[H, list[Page]] = {}

    def note(self, holder: H, page: Page) -> None:
        """Count the entries of a page that could not be read."""
        self._pages.setdefault(holder, []).append(page)
        self._count(len(page))

    def of(self, holder: H) -> int:
        """Return how many entries of a holder could not be read."""
        return sum(len(page) for page in self._pages.get(holder, ()))

    def pages(self, holder: H) -> Sequence[Page]:
        """Return pages with all of them."""
        return tuple(self._pages.get(holder, ()))

    def holders(self) -> Iterator[H]:
        """Yield the holders that have any."""
        yield from list(self._pages)

    def remove(self, holder: H, page: Page) -> bool:
        """Remove a page that was read again. Return False if it is not there any more, as its entries were dropped."""
        pages = self._pages.get(holder, [])
        if page not in pages:
            return False
        pages.remove(page)
        if not pages:
            del self._pages[holder]
        self._count(-len(page))
        return True

    def take(self, holder: H) -> Sequence[Page]:
        """Remove all pages of a holder, and return them."""
        pages = self._pages.pop(holder, [])
        self._count(-sum(len(page) for page in pages))
        return pages

    def _count(self, more: int) -> None:
        before, self.count = self.count, self.count + more
        if not before or not self.count:
            self._changed(self.count)

"""A lane keeps the waiting messages of one priority in order, in memory or on disk.

    returned    a heap of messages that came back; they may belong anywhere
    fresh       the head, in order of arrival
    pages       the messages after `fresh`, on disk only
    arrivals    the messages after the pages; without pages, the same deque as `fresh`

Messages are taken from the head. As long as there are pages, the head may be on disk: a caller that cannot wait has it
read at once (`load`), others come back when it has been read. A queue that is being searched has `SearchedLane`s
instead (`searched_lane.py`), which cursors can go through.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush, merge
from itertools import chain
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.queues.backlog import PAGE_MESSAGES, POSITION, first_run, last_run

if TYPE_CHECKING:
    from leveret.durability import Page
    from leveret.queues.backlog import Backlog

AHEAD_MIN: Final = 128  # messages left in the head when the next page is requested; more if that was late
RETURNED_MAX: Final = PAGE_MESSAGES  # messages that came back and stay in memory, however short it is


class Pages:
    """The pages that a lane has on disk, oldest first; there is at least one."""

    __slots__ = ("ahead", "backlog", "on_disk")

    def __init__(self, backlog: Backlog, page: Page) -> None:
        self.backlog = backlog
        self.on_disk = deque([page])
        self.ahead = AHEAD_MIN  # messages left in the head when the next page is requested

    def add(self, page: Page) -> None:
        """Append a page. Small neighbours are joined."""
        if (joined := self.backlog.joined(self.on_disk[-1], page)) is None:
            self.on_disk.append(page)
        else:
            self.on_disk[-1] = joined


@mypyc_attr(allow_interpreted_subclasses=True)
class Lane:
    """The waiting messages of one priority, oldest first."""

    __slots__ = ("arrivals", "fresh", "pages", "returned")

    def __init__(self) -> None:
        self.fresh: deque[Delivery] = deque()
        self.arrivals = self.fresh  # new messages are appended here
        self.pages: Pages | None = None
        self.returned: list[Delivery] = []  # heap by position

    def __bool__(self) -> bool:
        return bool(self.fresh or self.returned or self.pages)

    def __iter__(self) -> Iterator[Delivery]:
        if self.pages is None:
            return merge(sorted(self.returned), list(self.fresh))  # `fresh` is in order, and may be long
        look = self.pages.backlog.look
        away = chain.from_iterable(look(page) for page in list(self.pages.on_disk))
        return merge(sorted(self.returned), chain(list(self.fresh), away, list(self.arrivals)))

    def head(self) -> Delivery:
        """Return the first message, which must be at hand."""
        if self.returned and not (self.fresh and self.fresh[0].position < self.returned[0].position):
            return self.returned[0]
        return self.fresh[0]

    def take(self) -> Delivery:
        """Take the first message, which must be at hand."""
        if self.returned and not (self.fresh and self.fresh[0].position < self.returned[0].position):
            return heappop(self.returned)
        return self.fresh.popleft()

    def take_at(self, position: int) -> Delivery | None:
        """Take the message at this position, if it is in memory."""
        for at, delivery in enumerate(self.returned):
            if delivery.position == position:
                del self.returned[at]
                heapify(self.returned)
                return delivery
        for pile in (self.fresh, self.arrivals):
            at = bisect_left(pile, position, key=POSITION)
            if at < len(pile) and pile[at].position == position:
                delivery = pile[at]
                del pile[at]
                return delivery
        return None

    def take_stored(self, positions: Sequence[int]) -> list[Delivery]:
        """Take the messages at these positions, which ascend, off the pages. The rest of each page stays on disk."""
        if self.pages is None:
            return []
        taken: list[Delivery] = []
        left: deque[Page] = deque()
        for page in self.pages.on_disk:
            at = bisect_left(positions, page.position)
            if at == len(positions) or positions[at] > page.last:
                left.append(page)
                continue
            found, rest = self.pages.backlog.take_from(page, frozenset(positions))
            taken += found
            if rest is not None:
                left.append(rest)
        self.pages.on_disk = left
        if not left:
            self._close()
        return taken

    def weed(self, is_dead: Callable[[Delivery], bool]) -> None:
        """Remove all messages in memory for which `is_dead` is true."""
        self.returned = [each for each in self.returned if not is_dead(each)]
        heapify(self.returned)
        for pile in {id(pile): pile for pile in (self.fresh, self.arrivals)}.values():
            alive = [each for each in pile if not is_dead(each)]
            pile.clear()
            pile.extend(alive)

    def put_back(self, delivery: Delivery) -> None:
        """Return a message to its position."""
        heappush(self.returned, delivery)

    def emptied(self) -> Iterable[deque[Delivery] | list[Delivery]]:
        """Empty the lane and return the messages in memory, in no order; those on disk are settled."""
        piles: list[deque[Delivery] | list[Delivery]] = [self.fresh, self.returned]
        if self.pages is not None:
            piles.append(self.arrivals)
            self.pages.backlog.settle(self.pages.on_disk)
            self.pages = None
        self.fresh = self.arrivals = deque()
        self.returned = []
        return piles

    def marked(self) -> Iterator[tuple[int, int]]:
        """Yield the store number and the count of failed attempts of each message that was delivered before."""
        if self.pages is None:
            return marked((*self.returned, *self.fresh), ())
        return marked((*self.returned, *self.fresh, *self.arrivals), self.pages.on_disk)

    # What is on disk.

    def away(self) -> Iterable[Page]:
        """Return the pages that are on disk only, in order."""
        return () if self.pages is None else self.pages.on_disk

    def at_hand(self) -> bool:
        """Return whether the first message is in memory; True if there is none."""
        pages, returned = self.pages, self.returned
        return (
            pages is None
            or bool(self.fresh)
            or bool(returned and returned[0].position < pages.on_disk[0].position)
        )

    def due_at(self) -> float:
        """Return when the first message expires. One that is due on disk is requested; NEVER until it has been read."""
        if self.pages is None or self.at_hand():
            return self.head().expires_at
        if (due := self.pages.on_disk[0].due) > self.pages.backlog.now:
            return due
        self.ask()
        return NEVER

    def page_at_head(self) -> Page | None:
        """Return the first page, if the head is on disk."""
        return None if self.pages is None or self.at_hand() else self.pages.on_disk[0]

    def drop_page(self) -> None:
        """Settle the first page without reading it."""
        assert self.pages is not None, "there is a page"
        self.pages.backlog.settle([self.pages.on_disk.popleft()])
        if not self.pages.on_disk:
            self._close()

    def load(self) -> None:
        """Read the first page at once."""
        assert self.pages is not None, "there is something to load"
        self._take_in(self.pages.backlog.read(self.pages.on_disk[0]))

    def ask(self) -> None:
        """Request the first page. The queue is touched when it has been read."""
        assert self.pages is not None, "there is something to ask for"
        self.pages.backlog.read_soon(self.pages.on_disk[0], self._take_in)

    def look_ahead(self, wanting: bool) -> None:
        """Request the next page if the head runs low. `wanting`: it had too few messages just now."""
        pages = self.pages
        assert pages is not None, "there is something ahead"
        if wanting:
            pages.ahead = len(pages.on_disk[0])
        if wanting or len(self.fresh) < pages.ahead:
            self.ask()

    def _take_in(self, deliveries: list[Delivery]) -> None:
        """Add the messages of the first page, which has been read, to the head."""
        assert self.pages is not None, "it is asked for as long as it is there"
        self.pages.on_disk.popleft()
        self.fresh.extend(deliveries)
        if not self.pages.on_disk:
            self._close()

    def _close(self) -> None:
        """Join the head and the arrivals, as no pages are left."""
        self.pages = None
        self.arrivals.extendleft(reversed(self.fresh))
        self.fresh = self.arrivals

    def page_out(self, backlog: Backlog, keep: int) -> bool:
        """Put a page of the last messages on disk; the first `keep` stay. Return False if nothing can go."""
        if len(self.returned) > RETURNED_MAX:
            self._line_up()
        if self.pages is None:
            return self._open(backlog, keep)
        if self.arrivals:
            run = first_run(self.arrivals)
            if (page := backlog.put_away(run)) is not None:
                self.pages.add(page)
                return True
            self.arrivals.extendleft(reversed(run))
            backlog.have_written(self.arrivals)
        return self._shorten(backlog, keep)

    def _line_up(self) -> None:
        """Move messages that came back and belong before the first page into the head, which can be paged out."""
        end = None if self.pages is None else self.pages.on_disk[0].position
        before = sorted((each for each in self.returned if end is None or each.position < end), key=POSITION)
        if not before:
            return
        if self.fresh and self.fresh[0].position < before[-1].position:
            if len(self.fresh) > RETURNED_MAX:
                return  # merging them would take too long
            before = [*merge(before, self.fresh)]
            self.fresh.clear()
        self.returned = [] if end is None else [each for each in self.returned if each.position > end]
        heapify(self.returned)
        self.fresh.extendleft(reversed(before))

    def _open(self, backlog: Backlog, keep: int) -> bool:
        if len(self.fresh) <= keep:
            return False
        head = deque([self.fresh.popleft() for _ in range(keep)])
        run = first_run(self.fresh)
        if (page := backlog.put_away(run)) is None:
            backlog.have_written(chain(run, self.fresh))
            self.fresh.extendleft(reversed(run))
            self.fresh.extendleft(reversed(head))
            return False
        self.fresh = head
        self.pages = Pages(backlog, page)
        return True

    def _shorten(self, backlog: Backlog, keep: int) -> bool:
        """Put the end of the head on disk, as the new first page."""
        pages = self.pages
        if pages is None or len(self.fresh) <= keep:
            return False
        run = last_run(self.fresh, keep)
        if (page := backlog.put_away(run)) is None:
            backlog.have_written(run)
            self.fresh.extend(run)
            return False
        backlog.give_up(pages.on_disk[0])
        pages.on_disk.appendleft(page)
        pages.ahead = min(pages.ahead, keep)
        return True

    def add_page(self, backlog: Backlog, page: Page) -> None:
        """Append a page that was found on disk when the node started."""
        if self.pages is None:
            self.pages = Pages(backlog, page)
            self.arrivals = deque()
        else:
            self.pages.add(page)


def marked(deliveries: Iterable[Delivery], pages: Iterable[Page]) -> Iterator[tuple[int, int]]:
    """Yield the store number and the count of failed attempts of those messages that were delivered before."""
    for delivery in deliveries:
        if delivery.redelivered and delivery.stored > 0:
            yield delivery.stored, delivery.attempts
    for page in pages:
        if page.redelivered:
            yield from ((number, page.marks.get(number, 0)) for number in page.numbers)
        else:
            yield from page.marks.items()

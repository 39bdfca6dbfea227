"""Waiting messages of one priority: everything keeps its place, in memory or on disk.

    returned    what came back, a heap; it may belong anywhere
    fresh       the head, in order of arrival
    pages       what follows, on disk only
    arrivals    what follows that; where there are no pages, the head itself

A lane is taken from at its head. As long as it has pages, the head may be on disk: who cannot wait has it read at once
(`load`), others come back when it is there. As long as somebody searches a queue, it has `SearchedLane`s, which can
also be gone through by cursors.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush, merge
from itertools import chain
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from broker_core.clock import NEVER
from broker_core.delivery import Delivery
from broker_core.queues.on_disk import PAGE_MESSAGES, POSITION, first_run, last_run

if TYPE_CHECKING:
    from broker_core.queues.on_disk import Backlog
    from broker_core.store.contract import Page

AHEAD_MIN: Final = (
    128  # messages left in the head when the next page is asked for, unless that was too late before
)
RETURNED_MAX: Final = PAGE_MESSAGES  # that came back, and stay in memory however little there is of it


class Pages:
    """What a lane has on disk, oldest first. There are none of it without a page."""

    __slots__ = ("ahead", "backlog", "on_disk")

    def __init__(self, backlog: Backlog, page: Page) -> None:
        self.backlog = backlog
        self.on_disk = deque([page])
        self.ahead = AHEAD_MIN  # messages in the head with which the next page is asked for

    def add(self, page: Page) -> None:
        """At the end; small ones become one."""
        if (joined := self.backlog.joined(self.on_disk[-1], page)) is None:
            self.on_disk.append(page)
        else:
            self.on_disk[-1] = joined


@mypyc_attr(allow_interpreted_subclasses=True)
class Lane:
    """Waiting messages of one priority, oldest first."""

    __slots__ = ("arrivals", "fresh", "pages", "returned")

    def __init__(self) -> None:
        self.fresh: deque[Delivery] = deque()
        self.arrivals = self.fresh  # what arrives is appended here
        self.pages: Pages | None = None
        self.returned: list[Delivery] = []  # heap by position

    def __bool__(self) -> bool:
        return bool(self.fresh or self.returned or self.pages)

    def __iter__(self) -> Iterator[Delivery]:
        if self.pages is None:
            return merge(sorted(self.returned), list(self.fresh))  # the latter is in order, and may be long
        look = self.pages.backlog.look
        away = chain.from_iterable(look(page) for page in list(self.pages.on_disk))
        return merge(sorted(self.returned), chain(list(self.fresh), away, list(self.arrivals)))

    def head(self) -> Delivery:
        """What comes first. It must be at hand."""
        if self.returned and not (self.fresh and self.fresh[0].position < self.returned[0].position):
            return self.returned[0]
        return self.fresh[0]

    def take(self) -> Delivery:
        """Take what comes first. It must be at hand."""
        if self.returned and not (self.fresh and self.fresh[0].position < self.returned[0].position):
            return heappop(self.returned)
        return self.fresh.popleft()

    def take_at(self, position: int) -> Delivery | None:
        """Take what has this place, if it is in memory."""
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

    def weed(self, is_dead: Callable[[Delivery], bool]) -> None:
        """Take out what is dead, wherever it stands in memory."""
        self.returned = [each for each in self.returned if not is_dead(each)]
        heapify(self.returned)
        for pile in {id(pile): pile for pile in (self.fresh, self.arrivals)}.values():
            alive = [each for each in pile if not is_dead(each)]
            pile.clear()
            pile.extend(alive)

    def put_back(self, delivery: Delivery) -> None:
        heappush(self.returned, delivery)

    def emptied(self) -> Iterable[deque[Delivery] | list[Delivery]]:
        """Everything that was in it, in no order; what is on disk is settled."""
        piles: list[deque[Delivery] | list[Delivery]] = [self.fresh, self.returned]
        if self.pages is not None:
            piles.append(self.arrivals)
            self.pages.backlog.settle(self.pages.on_disk)
            self.pages = None
        self.fresh = self.arrivals = deque()
        self.returned = []
        return piles

    def marked(self) -> Iterator[tuple[int, int]]:
        """Numbers in the store of what was delivered before, and how often that failed."""
        if self.pages is None:
            return marked((*self.returned, *self.fresh), ())
        return marked((*self.returned, *self.fresh, *self.arrivals), self.pages.on_disk)

    # What is on disk.

    def at_hand(self) -> bool:
        """Whether what comes first is in memory, if there is anything."""
        pages, returned = self.pages, self.returned
        return (
            pages is None
            or bool(self.fresh)
            or bool(returned and returned[0].position < pages.on_disk[0].position)
        )

    def due_at(self) -> float:
        """When what comes first expires. If it is due on disk, it is asked for, and never expires until it has come."""
        if self.pages is None or self.at_hand():
            return self.head().expires_at
        if (due := self.pages.on_disk[0].due) > self.pages.backlog.now:
            return due
        self.ask()
        return NEVER

    def page_at_head(self) -> Page | None:
        """What comes first, if it is on disk."""
        return None if self.pages is None or self.at_hand() else self.pages.on_disk[0]

    def drop_page(self) -> None:
        """Settle the page at the head unread."""
        assert self.pages is not None, "there is a page"
        self.pages.backlog.settle([self.pages.on_disk.popleft()])
        if not self.pages.on_disk:
            self._close()

    def load(self) -> None:
        """Have the first page read at once."""
        assert self.pages is not None, "there is something to load"
        self._take_in(self.pages.backlog.read(self.pages.on_disk[0]))

    def ask(self) -> None:
        """Have the first page read. The queue is touched when it has come."""
        assert self.pages is not None, "there is something to ask for"
        self.pages.backlog.read_soon(self.pages.on_disk[0], self._take_in)

    def look_ahead(self, wanting: bool) -> None:
        """Ask for the next page if the head runs low. `wanting`: there was too little in it just now."""
        pages = self.pages
        assert pages is not None, "there is something ahead"
        if wanting:
            pages.ahead = len(pages.on_disk[0])
        if wanting or len(self.fresh) < pages.ahead:
            self.ask()

    def _take_in(self, deliveries: list[Delivery]) -> None:
        """The first page has been read."""
        assert self.pages is not None, "it is asked for as long as it is there"
        self.pages.on_disk.popleft()
        self.fresh.extend(deliveries)
        if not self.pages.on_disk:
            self._close()

    def _close(self) -> None:
        """There are no pages any more."""
        self.pages = None
        self.arrivals.extendleft(reversed(self.fresh))
        self.fresh = self.arrivals

    def page_out(self, backlog: Backlog, keep: int) -> bool:
        """Put a page's worth of what comes last on disk; the first `keep` messages stay. False: there is nothing."""
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
        """Much has come back: what belongs before all that is on disk stands in the head again, and can go there."""
        end = None if self.pages is None else self.pages.on_disk[0].position
        before = sorted((each for each in self.returned if end is None or each.position < end), key=POSITION)
        if not before:
            return
        if self.fresh and self.fresh[0].position < before[-1].position:
            if len(self.fresh) > RETURNED_MAX:
                return  # to mix them would take too long
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
        """Put the end of the head on disk, before the other pages."""
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
        """Found on disk when the node started: it follows what is there already."""
        if self.pages is None:
            self.pages = Pages(backlog, page)
            self.arrivals = deque()
        else:
            self.pages.add(page)


def marked(deliveries: Iterable[Delivery], pages: Iterable[Page]) -> Iterator[tuple[int, int]]:
    """Numbers in the store of those that were delivered before, and how often that failed."""
    for delivery in deliveries:
        if delivery.redelivered and delivery.stored > 0:
            yield delivery.stored, delivery.attempts
    for page in pages:
        if page.redelivered:
            yield from ((number, page.marks.get(number, 0)) for number in page.numbers)
        else:
            yield from page.marks.items()

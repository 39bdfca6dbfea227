"""Waiting messages of a queue are paged out to disk, and read back when they are wanted.

    in memory ── put_away ──> page ── read, read_soon ──> in memory

A page consists of messages that the store has already, so that paging out only drops them from memory. The lane keeps
the order of the pages (`lane.py`); the backlog counts the messages in pages, which the queue's own counts include.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.clock import NEVER
from leveret.delivery import Delivery, read_back
from leveret.durability import Page

if TYPE_CHECKING:
    from collections import deque

    from leveret.durability import Durability, Stored
    from leveret.queues.laned_queue import LanedQueue

PAGE_MESSAGES: Final = 4096
PAGE_OCTETS: Final = 1 << 20  # bytes of bodies and properties; the last message may exceed it
JOINED_MAX: Final = 256  # messages of a page to which others may be joined, so that joining stays cheap
WRITTEN_MESSAGES: Final = 4 * PAGE_MESSAGES  # transient messages that are written at once
WRITTEN_OCTETS: Final = 8 * PAGE_OCTETS
ASKED_MAX: Final = 2  # pages of one queue that may be requested at a time

POSITION: Final = attrgetter("position")

Then: TypeAlias = Callable[[list[Delivery]], None]


class Backlog:
    """The pages of one queue, in all its lanes. It is created with the first page."""

    __slots__ = ("_asked", "_journal", "_queue", "messages", "octets")

    def __init__(self, queue: LanedQueue, journal: Durability) -> None:
        self._queue = queue
        self._journal = journal
        self.messages = 0
        self.octets = 0  # of their bodies
        self._asked: dict[Page, Then] = {}  # pages that are being read, and the callback of each

    @property
    def waits(self) -> bool:
        """Return whether a page is being read."""
        return bool(self._asked)

    @property
    def now(self) -> float:
        return self._queue.settling.now

    # To the disk.

    def put_away(self, run: Sequence[Delivery]) -> Page | None:
        """Make a page of these messages, which are in order; None if some are not written yet (`have_written`)."""
        numbers = [delivery.stored for delivery in run]
        if min(numbers) <= 0 or max(numbers) > self._journal.written:
            return None
        page = page_of(run, numbers)
        self.add(page)
        return page

    def have_written(self, deliveries: Iterable[Delivery]) -> None:
        """Have the first transient ones of these messages written, so that a later `put_away` succeeds."""
        volatile: list[Delivery] = []
        octets = 0
        for delivery in deliveries:
            if not delivery.stored:
                volatile.append(delivery)
                octets += delivery.message.size + len(delivery.message.properties)
                if octets >= WRITTEN_OCTETS or len(volatile) == WRITTEN_MESSAGES:
                    break
        if volatile:
            self._journal.page_out(volatile)

    def add(self, page: Page) -> None:
        """Count a page whose messages are on disk only."""
        self.messages += len(page)
        self.octets += page.octets

    def joined(self, first: Page, second: Page) -> Page | None:
        """Join two adjacent pages; None if that is not worthwhile, or one of them is being read."""
        if (
            len(first) > JOINED_MAX
            or len(first) + len(second) > PAGE_MESSAGES
            or first.octets + second.octets > PAGE_OCTETS
            or first in self._asked
            or second in self._asked
        ):
            return None
        return join(first, second)

    # Back again.

    def read(self, page: Page) -> list[Delivery]:
        """Read a page at once, and return its messages in order. The page ceases to exist."""
        self._asked.pop(page, None)
        return self._taken_in(page, self._journal.fetch(self._queue, page))

    def read_soon(self, page: Page, then: Then) -> None:
        """Have a thread read a page; `then` gets its messages, unless it was read or given up meanwhile.

        Does nothing if too many pages are being read: the queue is touched after each one, and asks again.
        """
        if page not in self._asked and len(self._asked) < ASKED_MAX:
            self._asked[page] = then
            self._journal.fetch_soon(self._queue, page, partial(self._arrived, page))

    def look(self, page: Page) -> list[Delivery]:
        """Return the messages of a page, which stays on disk, in order."""
        return sorted(self._made(page, self._journal.fetch(self._queue, page)), key=POSITION)

    def take_from(self, page: Page, positions: Container[int]) -> tuple[list[Delivery], Page | None]:
        """Read a page at once, and take the messages at some positions off it. Return these, and what is left of it."""
        taken = [each for each in self.look(page) if each.position in positions]
        if not taken:
            return [], page
        self._asked.pop(page, None)
        self._gone(page)
        numbers = {each.stored for each in taken}
        left = [number for number in page.numbers if number not in numbers]
        if not left:
            return taken, None
        rest = Page(
            in_order(left),
            page.position,
            page.last,
            page.octets - sum([each.message.size for each in taken]),
            page.expiring - sum([each.expires_at != NEVER for each in taken]),
            page.redelivered,
            {number: tries for number, tries in page.marks.items() if number not in numbers},
            page.due,
        )
        self.add(rest)
        return taken, rest

    def give_up(self, page: Page) -> None:
        """Drop the request for a page."""
        self._asked.pop(page, None)

    def settle(self, pages: Iterable[Page]) -> None:
        """Settle all messages of these pages without reading them."""
        for page in pages:
            self._asked.pop(page, None)
            self._journal.settle_numbers(page.numbers)
            self._gone(page)

    def _made(self, page: Page, stored: list[Stored]) -> list[Delivery]:
        return read_back(self._queue, page, stored)

    def _arrived(self, page: Page, stored: list[Stored]) -> None:
        then = self._asked.pop(page, None)
        if then is not None:
            then(self._taken_in(page, stored))
        self._queue.touch()

    def _taken_in(self, page: Page, stored: list[Stored]) -> list[Delivery]:
        """Return the messages of a page that ceases to exist. Those that could not be read wait for another reading."""
        deliveries = self._made(page, stored)
        self._gone(page)
        if len(stored) < len(page):
            self._journal.missed(self._queue, page, stored)
            self._count_off(page, deliveries)
        deliveries.sort(key=POSITION)  # store numbers follow arrival, but for messages that were stored later
        return deliveries

    def _gone(self, page: Page) -> None:
        self.messages -= len(page)
        self.octets -= page.octets

    def _count_off(self, page: Page, deliveries: list[Delivery]) -> None:
        """Count off the messages of a page that cannot be read."""
        octets = page.octets - sum([delivery.message.size for delivery in deliveries])
        expiring = page.expiring - sum([delivery.expires_at != NEVER for delivery in deliveries])
        self._queue.removed(len(page) - len(deliveries), octets, expiring)


# Runs of messages.


def first_run(pile: deque[Delivery]) -> list[Delivery]:
    """Take up to a page of messages off the left end, in order."""
    run: list[Delivery] = []
    octets = 0
    while pile and octets < PAGE_OCTETS and len(run) < PAGE_MESSAGES:
        run.append(delivery := pile.popleft())
        octets += delivery.message.size + len(delivery.message.properties)
    return run


def last_run(pile: deque[Delivery], keep: int) -> list[Delivery]:
    """Take up to a page of messages off the right end, in order; `keep` stay."""
    run: list[Delivery] = []
    octets = 0
    for _ in range(min(len(pile) - keep, PAGE_MESSAGES)):
        run.append(delivery := pile.pop())
        octets += delivery.message.size + len(delivery.message.properties)
        if octets >= PAGE_OCTETS:
            break
    run.reverse()
    return run


def page_of(run: Sequence[Delivery], numbers: list[int]) -> Page:
    """Return a page of these messages, which are stored under these numbers."""
    octets = sum([delivery.message.size for delivery in run])
    expiring = sum([delivery.expires_at != NEVER for delivery in run])
    again = [delivery for delivery in run if delivery.redelivered]
    whole = len(again) == len(run)
    marks = {each.stored: each.attempts for each in again if each.attempts or not whole}
    first, last = run[0], run[-1]
    return Page(
        in_order(numbers), first.position, last.position, octets, expiring, whole, marks, first.expires_at
    )


def in_order(numbers: list[int]) -> Sequence[int]:
    """Sort numbers, and return them compactly: as a range if they are equidistant, which most are."""
    numbers.sort()
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    regular = range(numbers[0], numbers[-1] + 1, step)
    return regular if len(regular) == len(numbers) and numbers == [*regular] else array("Q", numbers)


def join(first: Page, second: Page) -> Page:
    """Return two adjacent pages as one."""
    marks = dict(first.marks)
    marks.update(second.marks)
    redelivered = first.redelivered and second.redelivered
    if not redelivered:
        for page in (first, second):
            if page.redelivered:
                marks.update({number: page.marks.get(number, 0) for number in page.numbers})
    return Page(
        in_order([*first.numbers, *second.numbers]),
        first.position,
        second.last,
        first.octets + second.octets,
        first.expiring + second.expiring,
        redelivered,
        marks,
        first.due,
    )

"""What of a queue's waiting messages is on disk only: how they get there, and how they come back.

    in memory ── put_away ──> page ── read, read_soon ──> in memory

A page is made of messages that the store has already, so that to put it away is to forget them. Where a page belongs
is the lane's business (`lane.py`); the backlog counts what is away, for the queue, whose own counts include it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from broker_core.clock import NEVER
from broker_core.delivery import Delivery, read_back
from broker_core.store.contract import Page

if TYPE_CHECKING:
    from collections import deque

    from broker_core.durability.contract import Durability, Stored
    from broker_core.queues.work_queue import WorkQueue

PAGE_MESSAGES: Final = 4096
PAGE_OCTETS: Final = 1 << 20  # of bodies and properties, and one message
JOINED_MAX: Final = 256  # messages of a page that more are added to; so to add one stays cheap
WRITTEN_MESSAGES: Final = 4 * PAGE_MESSAGES  # that are not to outlive the node, written at once
WRITTEN_OCTETS: Final = 8 * PAGE_OCTETS
ASKED_MAX: Final = 2  # pages of one queue that are being read

POSITION: Final = attrgetter("position")

Then: TypeAlias = Callable[[list[Delivery]], None]


class Backlog:
    """The pages of one queue, in all its lanes. There is one from the first page on."""

    __slots__ = ("_asked", "_journal", "_queue", "messages", "octets")

    def __init__(self, queue: WorkQueue, journal: Durability) -> None:
        self._queue = queue
        self._journal = journal
        self.messages = 0
        self.octets = 0  # of their bodies
        self._asked: dict[Page, Then] = {}  # pages that are being read, and who waits for each

    @property
    def waits(self) -> bool:
        """Whether a page is being read."""
        return bool(self._asked)

    @property
    def now(self) -> float:
        return self._queue.virtual_host.broker.now

    # To the disk.

    def put_away(self, run: Sequence[Delivery]) -> Page | None:
        """A page of these, which are in order. None: some are not written yet (`have_written`)."""
        numbers = [delivery.stored for delivery in run]
        if min(numbers) <= 0 or max(numbers) > self._journal.written:
            return None
        page = page_of(run, numbers)
        self.add(page)
        return page

    def have_written(self, deliveries: Iterable[Delivery]) -> None:
        """Some of these could not be put away: the first of those that were not to be stored are, for another time."""
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
        """It is on disk only."""
        self.messages += len(page)
        self.octets += page.octets

    def joined(self, first: Page, second: Page) -> Page | None:
        """Two neighbours as one page. None: that is not worth while, or one of them is being read."""
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
        """What is left of a page, in order, at once. It is no page any more."""
        self._asked.pop(page, None)
        return self._taken_in(page, self._made(page, self._journal.fetch(self._queue, page)))

    def read_soon(self, page: Page, then: Then) -> None:
        """Have it read by a thread; `then` gets what is left of it, unless it was read or given up meanwhile.

        When there is too much to read already, nothing happens: the queue is touched whenever something has come.
        """
        if page not in self._asked and len(self._asked) < ASKED_MAX:
            self._asked[page] = then
            self._journal.fetch_soon(self._queue, page, partial(self._arrived, page))

    def look(self, page: Page) -> list[Delivery]:
        """What is in a page, which stays where it is."""
        return sorted(self._made(page, self._journal.fetch(self._queue, page)), key=POSITION)

    def give_up(self, page: Page) -> None:
        """Nobody waits for it any more."""
        self._asked.pop(page, None)

    def settle(self, pages: Iterable[Page]) -> None:
        """What these have is settled unread."""
        for page in pages:
            self._asked.pop(page, None)
            self._journal.settle_numbers(page.numbers)
            self._gone(page)

    def _made(self, page: Page, stored: list[Stored]) -> list[Delivery]:
        return read_back(self._queue, page, stored)

    def _arrived(self, page: Page, stored: list[Stored]) -> None:
        then = self._asked.pop(page, None)
        if then is not None:
            then(self._taken_in(page, self._made(page, stored)))
        self._queue.touch()

    def _taken_in(self, page: Page, deliveries: list[Delivery]) -> list[Delivery]:
        self._gone(page)
        if len(deliveries) < len(page):
            self._count_off(page, deliveries)
        deliveries.sort(key=POSITION)  # numbers follow arrival, but for those that were stored later
        return deliveries

    def _gone(self, page: Page) -> None:
        self.messages -= len(page)
        self.octets -= page.octets

    def _count_off(self, page: Page, deliveries: list[Delivery]) -> None:
        """Some of it cannot be read: it does not wait any more."""
        octets = page.octets - sum([delivery.message.size for delivery in deliveries])
        expiring = page.expiring - sum([delivery.expires_at != NEVER for delivery in deliveries])
        self._queue.removed(len(page) - len(deliveries), octets, expiring)


# Runs of messages.


def first_run(pile: deque[Delivery]) -> list[Delivery]:
    """A page's worth off the left end, in order."""
    run: list[Delivery] = []
    octets = 0
    while pile and octets < PAGE_OCTETS and len(run) < PAGE_MESSAGES:
        run.append(delivery := pile.popleft())
        octets += delivery.message.size + len(delivery.message.properties)
    return run


def last_run(pile: deque[Delivery], keep: int) -> list[Delivery]:
    """A page's worth off the right end, in order; `keep` stay."""
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
    """A page of these, which are stored under these numbers."""
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
    """Numbers in the least room: most of those that stand together were given at regular intervals."""
    numbers.sort()
    step = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    regular = range(numbers[0], numbers[-1] + 1, step)
    return regular if len(regular) == len(numbers) and numbers == [*regular] else array("Q", numbers)


def join(first: Page, second: Page) -> Page:
    """Two pages that follow each other as one."""
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

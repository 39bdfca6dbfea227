"""A schedule keeps the messages of one queue that wait for a time before they are ready.

    put ──> scheduled ──due──> the queue's lanes, at the place where the message arrived
                └─ expired before it is due ──> dead

A heap has the messages by the time when something happens to them: they are due, or expire before that. One timer is
set to the first. Messages that are put off again after a failed delivery and those that were published for later are
treated alike. Nothing that waits here is a ready message: it is not delivered, browsed or counted as one, but limits of
length count it.

A durable message is an entry of its queue in the store like any other, and its due time is in a mark
(`broker_core/mark.py`), which is in the same commit. When memory is short, messages that the store has are dropped from
memory; what stays takes about 200 bytes for each, and a thread reads them when they are due. After a start all are on
disk only.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from leveret.clock import NEVER
from leveret.delivery import Delivery, read_back
from leveret.durability import PENDING, Page
from leveret.mark import mark_of
from leveret.queues.delays import due_ms_of
from leveret.queues.discarded_messages import PAUSE_S
from leveret.queues.queue import EXPIRED
from leveret.queues.scheduled import Scheduled, ScheduledMessages

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.durability import Stored, WaitingRow
    from leveret.message import Message
    from leveret.queues.laned_queue import LanedQueue

PORTION: Final = 4096  # messages that become ready at once: 10 ms
READ_OCTETS: Final = 1 << 20  # bytes of bodies that are read at once; the last message may exceed it
STALE_MIN: Final = 64  # entries of the heap that are not worth removing


class ScheduledDelivery(Scheduled):
    """A message of this queue that waits for a time. Without `delivery`, it is on disk only."""

    __slots__ = ("delivery",)

    def __init__(
        self,
        position: int,
        size: int,
        due: float,
        expires_at: float,
        attempts: int,
        redelivered: bool,
        number: int = 0,
        delivery: Delivery | None = None,
    ) -> None:
        super().__init__(position, size, due, expires_at, attempts, redelivered, number)
        self.delivery = delivery


class Schedule(ScheduledMessages):
    """The messages of one queue that wait for a time. It is created with the first one."""

    __slots__ = (
        "_heap",
        "_items",
        "_loaded",
        "_queue",
        "_reading",
        "_timer",
        "away",
        "away_octets",
    )

    def __init__(self, queue: LanedQueue) -> None:
        super().__init__()
        self._queue = queue
        self._heap: list[ScheduledDelivery] = []  # may have entries that are not in `_items` any more
        self._items: dict[int, ScheduledDelivery] = {}  # by position
        # those with a delivery, in order of arrival, and some without
        self._loaded: deque[ScheduledDelivery] = deque()
        self._timer: Timer | None = None
        self._reading = False  # a thread reads some that are due
        self.away = 0  # messages that are on disk only
        self.away_octets = 0

    def __len__(self) -> int:
        return len(self._items)

    # Arrival.

    def put(self, delivery: Delivery, due: float) -> None:
        """Let a message wait until `due` (monotonic seconds), also after the node has ended meanwhile."""
        size, expires_at = delivery.message.size, delivery.expires_at
        item = ScheduledDelivery(
            delivery.position, size, due, expires_at, delivery.attempts, delivery.redelivered, 0, delivery
        )
        if len(self._loaded) > 2 * len(self._items) + STALE_MIN:
            self._loaded = deque(each for each in self._loaded if each.delivery is not None)
        self._loaded.append(item)
        self._add(item)
        self._record(delivery, self._wall_ms(due))
        self._watch()

    def restore(self, rows: Sequence[WaitingRow]) -> None:
        """Take back messages that waited when the node ended. They are on disk only."""
        for number, position, size, due, expires_at, attempts, redelivered in rows:
            self._add(ScheduledDelivery(position, size, due, expires_at, attempts, redelivered, number))
            self.away += 1
            self.away_octets += size
        self._watch()

    def _add(self, item: ScheduledDelivery) -> None:
        self._items[item.position] = item
        heappush(self._heap, item)
        self.octets += item.size

    def _record(self, delivery: Delivery, due_ms: int) -> None:
        if delivery.stored and self._queue.journal is not None:
            mark = mark_of(delivery.attempts, not delivery.redelivered, due_ms)
            self._queue.journal.waits(delivery, mark)

    def _wall_ms(self, due: float) -> int:
        """Return a monotonic time in ms since 1970, rounded up so that no message is due too early after a start."""
        clock = self._queue.settling.clock
        return int((clock.wall() - clock.now() + due) * 1000) + 1

    # Looking.

    def first(self, count: int) -> list[Scheduled]:
        """Return the messages that are due, or expire, first. It takes a look at some of the heap only."""
        heap = self._heap
        found: list[Scheduled] = []
        # entries whose parents have been looked at, with their places
        border = [(heap[0], 0)] if heap else []
        while border and len(found) < count:
            item, at = heappop(border)
            if self._items.get(item.position) is item:
                found.append(item)
            for child in range(2 * at + 1, min(2 * at + 3, len(heap))):
                heappush(border, (heap[child], child))
        return found

    @property
    def next_due(self) -> float:
        """Return when the first message is due or expires, in monotonic seconds; NEVER if none waits."""
        item = self._head()
        return NEVER if item is None else item.wakes_at

    def _head(self) -> ScheduledDelivery | None:
        """Return the first of the heap that still waits."""
        heap = self._heap
        while heap:
            if self._items.get(heap[0].position) is heap[0]:
                return heap[0]
            heappop(heap)
        return None

    def marked(self) -> Iterator[tuple[int, int]]:
        """Yield store number and mark of each stored message. Called when the node ends."""
        for item in self._items.values():
            delivery = item.delivery
            number = item.number if delivery is None else delivery.stored
            if number > 0:
                due_ms = 0 if item.is_early else self._marked_ms(item, number)
                yield number, mark_of(item.attempts, not item.redelivered, due_ms)

    def _marked_ms(self, item: ScheduledDelivery, number: int) -> int:
        """Return when a message is due, in ms since 1970: one that was never delivered by the clock of its arrival."""
        journal = self._queue.journal
        if item.redelivered or journal is None:
            return self._wall_ms(item.due)
        return int(item.due * 1000 + journal.offset_ms_of(number)) + 1

    # Departure.

    def drop(self, positions: Iterable[int]) -> int:
        """Drop the messages at these positions, and return how many there were."""
        dropped: list[Delivery] = []
        numbers = array("Q")
        before = len(self._items)
        for position in positions:
            if (item := self._removed(position)) is None:
                continue
            if item.delivery is not None:
                dropped.append(item.delivery)
                item.delivery = None
            else:
                numbers.append(item.number)
        self._settle(dropped, numbers)
        return before - len(self._items)

    def hasten(self, positions: Iterable[int]) -> int:
        """Make the messages at these positions due now, and return how many there were."""
        count = 0
        now = self._queue.settling.now
        for position in positions:
            item = self._items.get(position)
            if item is None or item.is_early:
                continue
            early = ScheduledDelivery(
                position, item.size, now, item.expires_at, item.attempts, item.redelivered, item.number, item.delivery
            )  # fmt: skip
            early.is_early = True
            if early.delivery is not None:
                item.delivery = None
                self._loaded.append(early)
            self._items[position] = early
            heappush(self._heap, early)
            count += 1
        self._watch()
        return count

    def positions(self) -> list[int]:
        return list(self._items)

    def purge(self) -> int:
        """Drop all messages, and return how many there were."""
        count = len(self._items)
        pile = [item.delivery for item in self._items.values() if item.delivery is not None]
        numbers = array("Q", [item.number for item in self._items.values() if item.delivery is None])
        self._items.clear()
        self._heap.clear()
        self._loaded.clear()
        self.octets = self.away = self.away_octets = 0
        self._settle(pile, numbers)
        self._queue.settling.discarded.add(pile, self._queue.settling.now)
        return count

    def take_all(self) -> list[Delivery]:
        """Take all messages, in the order in which they are due. Those on disk are read at once."""
        found = self.look()
        self._items.clear()
        self._heap.clear()
        self._loaded.clear()
        self.octets = self.away = self.away_octets = 0
        return found

    def look(self) -> list[Delivery]:
        """Return all messages, in the order in which they are due. They stay; those on disk are read at once."""
        items = sorted(self._items.values())
        away = [item for item in items if item.delivery is None]
        read: dict[int, Delivery] = {}
        for begin in range(0, len(away), PORTION):
            page = self._page_of(away[begin : begin + PORTION])
            assert self._queue.journal is not None, "what is on disk has a journal"
            stored = self._queue.journal.fetch(self._queue, page)
            read.update({each.position: each for each in read_back(self._queue, page, stored)})
        found = [read.get(item.position) if item.delivery is None else item.delivery for item in items]
        return [delivery for delivery in found if delivery is not None]

    def items(self) -> Iterable[ScheduledDelivery]:
        return self._items.values()

    def asks_for_head(self) -> bool:
        """Return whether the message that is due first has to come from another machine first. It is brought then."""
        item = self._head()
        return item is not None and self.asks_for((item,))

    def asks_for(self, items: Iterable[ScheduledDelivery]) -> bool:
        """Return whether some of these have to come from another machine first. They are brought then."""
        away = [item.number for item in items if item.delivery is None]
        journal = self._queue.journal
        return bool(away) and journal is not None and journal.brings(range(min(away), max(away) + 1))

    def drop_first(self) -> Delivery | None:
        """Take the message that is due first, to be dropped; None if none waits. One on disk is read at once."""
        item = self._head()
        if item is None:
            return None
        delivery = item.delivery
        if delivery is None:
            assert self._queue.journal is not None, "what is on disk has a journal"
            page = self._page_of([item])
            stored = self._queue.journal.fetch(self._queue, page)
            delivery = next(iter(read_back(self._queue, page, stored)), None)
            if delivery is None:
                self._queue.journal.missed(self._queue, page, stored)
        self._removed(item.position)
        item.delivery = None
        return delivery if delivery is not None else self.drop_first()

    def _removed(self, position: int) -> ScheduledDelivery | None:
        """Remove and count off the message at a position, if there is one."""
        item = self._items.pop(position, None)
        if item is not None:
            self.octets -= item.size
            if item.delivery is None:
                self.away -= 1
                self.away_octets -= item.size
            if len(self._heap) > 2 * len(self._items) + STALE_MIN:
                self._heap = [each for each in self._heap if self._items.get(each.position) is each]
                heapify(self._heap)
        return item

    def _settle(self, dropped: Iterable[Delivery], numbers: array[int]) -> None:
        if self._queue.awaited or self._queue.overfull is not None:
            self._queue.touch()  # there is more room
        self._queue.forget(dropped)
        if numbers and self._queue.journal is not None:
            self._queue.journal.settle_numbers(sorted(numbers))

    # Time.

    def _watch(self) -> None:
        """Set the timer to the first message, unless a thread is reading: that ends with another look."""
        timer, timers = self._timer, self._queue.settling.timers
        earliest = NEVER if self._reading else self.next_due
        if timer is not None and not timer.cancelled and timer.at <= earliest:
            return  # it will look again when it fires
        timers.cancel(timer)
        self._timer = None if earliest == NEVER else timers.at(earliest, self._wake)

    def _wake(self, now: float) -> None:
        """Let the messages that are due join the queue, a portion at a time so as not to block the broker."""
        self._timer = None
        if self._reading:
            return
        away: list[ScheduledDelivery] = []
        octets = 0
        for _ in range(PORTION):
            item = self._head()
            if item is None or item.wakes_at > now or octets >= READ_OCTETS:
                break
            heappop(self._heap)
            if item.delivery is None:
                away.append(item)  # it stays in `_items` until it has been read
                octets += item.size
            else:
                self._removed(item.position)
                self._join(item, item.delivery, now)
                item.delivery = None
        if away:
            self._read(away)
        elif self.next_due <= now:
            self._timer = self._queue.settling.timers.at(now + PAUSE_S, self._wake)
        else:
            self._watch()

    def _join(self, item: ScheduledDelivery, delivery: Delivery, now: float) -> None:
        """Let a message join the ready ones of its queue, or die if it has expired."""
        if item.expires_at <= now:
            self._queue.die(delivery, EXPIRED)
            return
        if item.is_early:
            self._record(delivery, 0)
        self._queue.due(delivery)

    def _read(self, items: list[ScheduledDelivery]) -> None:
        """Have a thread read messages that are due."""
        journal = self._queue.journal
        assert journal is not None, "what is on disk has a journal"
        page = self._page_of(items)
        self._reading = True

        def arrived(stored: list[Stored]) -> None:
            self._reading = False
            now = self._queue.settling.now
            found = {each.position: each for each in read_back(self._queue, page, stored)}
            for item in items:
                if self._items.get(item.position) is not item:
                    continue  # it was dropped, or made due, meanwhile
                self._removed(item.position)
                if (delivery := found.get(item.position)) is not None:
                    self._join(item, delivery, now)
            if len(found) < len(items):
                journal.missed(self._queue, page, stored)
            self._watch()
            self._queue.touch()

        journal.fetch_soon(self._queue, page, arrived)

    def _page_of(self, items: Sequence[ScheduledDelivery]) -> Page:
        """Return a page of these messages, which are on disk."""
        numbers = array("Q", sorted([item.number for item in items]))
        marks = {item.number: item.attempts for item in items if item.redelivered}
        return Page(numbers, items[0].position, items[-1].position, 0, marks=marks)

    # Memory.

    def page_out(self, most: int) -> bool:
        """Drop up to `most` messages from memory that the store has. Return False if there are none now.

        Transient ones are written first, so that a later call finds them.
        """
        journal, loaded = self._queue.journal, self._loaded
        written = -1 if journal is None else journal.written
        late: list[ScheduledDelivery] = []
        gone = 0
        for _ in range(min(most, len(loaded))):
            item = loaded.pop()
            delivery = item.delivery
            if delivery is None or delivery.seen_by:
                continue  # the marks of consumers are in memory only
            if not 0 < delivery.stored <= written:
                late.append(item)
                continue
            item.number, item.delivery = delivery.stored, None
            self.away += 1
            self.away_octets += item.size
            gone += 1
        loaded.extendleft(late)
        if not gone and late:
            self._queue.books().have_written([each.delivery for each in late if each.delivery is not None])
        return gone > 0

    def end(self) -> None:
        """Cancel the timer, as the queue is deleted."""
        self._queue.settling.timers.cancel(self._timer)


# Arrival of messages that were published for later.


def due_of(queue: LanedQueue, message: Message) -> float:
    """Return when a message is ready that arrives now, in monotonic seconds; in the past if it is ready at once."""
    clock = queue.settling.clock
    wall_ms = clock.wall() * 1000
    due_ms = message.facts.due_ms or due_ms_of(message.header, wall_ms)
    return clock.now() + (due_ms - wall_ms) / 1000


def is_for_later(queue: LanedQueue, message: Message) -> bool:
    """Return whether a message that arrives now would have to wait for a time."""
    return due_of(queue, message) > queue.settling.now


def put_off(queue: LanedQueue, message: Message) -> bool:
    """Take in a message that is for later. Return False, with nothing done, if it is ready at once."""
    due = due_of(queue, message)
    if due <= queue.settling.now:
        return False
    delivery = Delivery(message, queue, queue.position, queue.end_of(message))
    queue.go_on_from(queue.position + 1)
    if queue.journal is not None and message.facts.durable and queue.number:
        delivery.stored = PENDING
        queue.journal.arrivals.append(delivery)
    if queue.entering is not None:
        queue.entering.entered(delivery)
    if message.notes is not None and message.notes.is_repeat:
        delivery.redelivered = True
    queue.scheduled().put(delivery, due)
    queue.count_scheduled()
    return True

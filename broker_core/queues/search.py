"""A work queue searched: consumers with selectors, and those who browse, go through its lanes with cursors.

    lane    m1  m2  --  m4  m5  m6      -- was taken from the middle
             ^           ^          ^
             the front   b wants m4  c has come to the end

Whoever takes what comes first takes at the front. Everybody else has a cursor in each lane, so that he meets each
message once, however long the queue is and however often he is served; what comes back when he has passed its place,
he meets again. Who has no credit costs nothing: his cursor stays where it is.

To test a message takes microseconds, so a long search is done in portions, with others between them; and what is on
disk has to be read. Who has not come to the end is `searching`. A message that has expired is passed by; it dies when
it comes to the front.

Who browses sees a message once. It is marked with that when it goes to a consumer after it was seen, for it may come
back; as long as it stands where it is, the cursor knows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from broker_core.delivery import Consumer, Delivery
from broker_core.outbox import OVERHEAD
from broker_core.queues.deferred_free import PAUSE_S
from broker_core.queues.queue import Queue
from broker_core.queues.searchable_level import Cursor, SearchedLane

if TYPE_CHECKING:
    from broker_core.clock import Timer
    from broker_core.message import Message
    from broker_core.queues.round_robin import Ring
    from broker_core.queues.work_queue import WorkQueue

TESTS: Final = 500  # of messages in one queue, before others have their turn: 2 to 8 ms
SLOTS: Final = 500  # waiting messages that are put into slots, and back, in the time of one copy of a message
TEST_OCTETS: Final = 64  # of properties that are read in the time of one test, at the worst


class Search:
    """One for a queue, as long as somebody seeks in it."""

    __slots__ = ("_fronts", "_lanes", "_portions", "_queue", "_seekers")

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        queue.open_lanes()
        self._lanes = [SearchedLane(lane) for lane in queue.lanes]
        self._fronts = [lane.front for lane in self._lanes]
        self._seekers: dict[Consumer, list[Cursor]] = {}  # their cursors, lane by lane
        self._portions = Portions(queue)
        queue.lanes = list(self._lanes)
        queue.virtual_host.broker.work += queue.ready // SLOTS

    def add(self, consumer: Consumer) -> None:
        mark = object() if consumer.browses else None
        self._seekers[consumer] = [lane.enter(mark) for lane in self._lanes]

    def remove(self, consumer: Consumer) -> None:
        """Forget a consumer, if it seeks here. With the last one the search ends."""
        if (cursors := self._seekers.pop(consumer, None)) is None:
            return
        for lane, cursor in zip(self._lanes, cursors, strict=True):
            lane.leave(cursor)
        if not self._seekers:
            self.end()

    def end(self) -> None:
        """The queue is served without a search again."""
        self._portions.end()
        self._queue.lanes = [lane.plain() for lane in self._lanes]
        self._queue.search = None

    def browsers(self) -> Iterable[Consumer]:
        return (consumer for consumer in self._seekers if consumer.browses)

    # Serving.

    def serve(self, ring: Ring) -> None:
        """Give the consumers of one priority, in turn, what there is for each of them."""
        content: list[Consumer] = []  # there is nothing more for them now
        unfinished: list[Consumer] = []
        try:
            while (consumer := ring.first) is not None:
                room = consumer.room()
                quota = min(consumer.credit, consumer.window.credit)
                if room <= 0 or quota <= 0:
                    ring.shift()
                    consumer.able = False
                elif deliveries := self._find(consumer, quota if consumer is ring.last else 1, room):
                    ring.turn()
                    (self._queue.show if consumer.browses else self._queue.give)(consumer, deliveries)
                else:
                    ring.shift()
                    (unfinished if consumer.searching else content).append(consumer)
        finally:
            for each in unfinished[1:] + unfinished[:1] + content:  # the first of them has used up the time
                ring.add(each)
        if unfinished and self._portions.used_up:
            self._portions.go_on_later()

    def fetch(self, consumer: Consumer) -> Delivery | None:
        """One message for somebody who comes once, and waits for the disk if need be."""
        self.add(consumer)
        while not (found := self._find(consumer, 1, 1)) and consumer.searching:
            for lane, cursor in self._in_order(self._seekers[consumer]):
                if lane.lacks(cursor):
                    lane.load_for(cursor)
                    break
        self.remove(consumer)
        return found[0] if found else None

    def _find(self, consumer: Consumer, quota: int, room: int) -> list[Delivery]:
        consumer.searching = False
        if (cursors := self._seekers.get(consumer)) is None:
            found = self.take(quota, room)
            consumer.searching = not found and any(not lane.at_hand() for lane in self._lanes)
            return found
        found = []
        for lane, cursor in self._in_order(cursors):
            while len(found) < quota and room > 0:
                if (delivery := self._next(consumer, lane, cursor)) is None:
                    break
                if consumer.browses:
                    lane.pass_by(cursor, delivery)
                else:
                    lane.take_out(cursor, delivery)
                    self._queue.left(delivery)
                found.append(delivery)
                room -= delivery.message.size + len(delivery.message.properties) + OVERHEAD
        return found

    def _next(self, consumer: Consumer, lane: SearchedLane, cursor: Cursor) -> Delivery | None:
        """The next message that a seeker wants; None at the lane's end, and when it has to come back for more."""
        now = self._queue.virtual_host.broker.now
        while not consumer.searching:
            if (delivery := lane.peek(cursor)) is None:
                if lane.lacks(cursor):
                    lane.seek(cursor)
                    consumer.searching = True
                break
            if delivery.expires_at >= now and cursor.mark not in delivery.seen_by:
                if consumer.selector is None:
                    return delivery
                if not self._portions.may_test(delivery.message):
                    consumer.searching = True
                    break
                if consumer.selector.matches(delivery.message):
                    return delivery
            lane.pass_by(cursor, delivery)
        return None

    def take(self, quota: int, room: int) -> list[Delivery]:
        """Up to `quota` messages from the front, of no more than `room` octets and one message."""
        now = self._queue.virtual_host.broker.now
        taken: list[Delivery] = []
        for lane, front in self._in_order(self._fronts):
            while len(taken) < quota and room > 0 and (delivery := lane.peek(front)) is not None:
                lane.take_out(front, delivery)
                if delivery.expires_at < now:
                    self._queue.expire(delivery)
                    continue
                self._queue.left(delivery)
                taken.append(delivery)
                room -= delivery.message.size + len(delivery.message.properties) + OVERHEAD
            if len(taken) < quota and room > 0 and lane.lacks(front):
                lane.seek(front)
                break  # what comes after it has to wait
        return taken

    def _in_order(self, cursors: list[Cursor]) -> Iterator[tuple[SearchedLane, Cursor]]:
        """Highest priority first."""
        return zip(reversed(self._lanes), reversed(cursors), strict=True)


class Portions:
    """How many messages of one queue are tested before others have their turn."""

    __slots__ = ("_left", "_left_at", "_queue", "_timer")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._left = 0  # tests, of those that may be made at one time
        self._left_at = -1.0
        self._timer: Timer | None = None

    def may_test(self, message: Message) -> bool:
        """Whether there is time to test one more. It stands still within a batch of the broker's."""
        now = self._queue.virtual_host.broker.now
        if self._left_at != now:
            self._left_at, self._left = now, TESTS
        if self._left <= 0:
            return False
        self._left -= 1 + len(message.properties) // TEST_OCTETS
        return True

    @property
    def used_up(self) -> bool:
        """Whether somebody was told that there is no more time in this batch."""
        return self._left <= 0 and self._left_at == self._queue.virtual_host.broker.now

    def go_on_later(self) -> None:
        """Somebody's search is unfinished: the queue will dispatch again."""
        if self._timer is None or self._timer.cancelled:
            broker = self._queue.virtual_host.broker
            self._timer = broker.timers.at(broker.now + PAUSE_S, self._go_on)

    def _go_on(self, now: float) -> None:
        self._queue.touch()

    def end(self) -> None:
        self._queue.virtual_host.broker.timers.cancel(self._timer)


def takes_now(consumer: Consumer, message: Message) -> bool:
    """Whether a consumer that has been served would take one more message, and at once."""
    return (
        consumer.room() > 0
        and min(consumer.credit, consumer.window.credit) > 0
        and not (consumer.browses or consumer.searching)
        and (consumer.selector is None or consumer.selector.matches(message))
    )

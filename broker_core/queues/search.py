"""A search serves consumers with selectors, and those that browse, by cursors through the lanes of a work queue.

    lane    m1  m2  --  m4  m5  m6      -- was taken from the middle
             ^           ^          ^
             the front   b wants m4  c is at the end

A consumer that takes messages in order takes them at the front. Every other consumer has a cursor in each lane, so that
it meets each message once, however long the queue is and however often it is served; it meets a message again that
comes back after the cursor passed its place. A consumer without credit costs nothing: its cursor stays where it is.

Testing a message takes microseconds, so a long search is done in portions, between which the broker does other work;
and messages on disk have to be read first. A consumer that has not reached the end is `searching`. Cursors pass by an
expired message; it dies when it comes to the front.

A browser sees each message once. As long as a message stays in its slot, the cursor's position tells whether it was
seen; a message that goes to a consumer is marked as seen, as it may come back.

A consumer that must not have some messages again (`avoid`) takes what it gets by cursors, too, which pass by these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from leveret.delivery import Consumer, Delivery
from leveret.outbox import OVERHEAD
from leveret.queues.discarded_messages import PAUSE_S
from leveret.queues.queue import Queue
from leveret.queues.searched_lane import Cursor, SearchedLane

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.message import Message
    from leveret.queues.round_robin import RoundRobin
    from leveret.queues.work_queue import WorkQueue

TESTS: Final = 500  # messages of one queue that are tested in one batch: 2 to 8 ms
SLOTS: Final = 500  # waiting messages that are put into slots, and back, in the time of copying one
TEST_OCTETS: Final = 64  # bytes of properties that are read in the time of one test, at the worst


class Search:
    """The search of a queue, which exists as long as a consumer has a cursor in it."""

    __slots__ = ("_fronts", "_lanes", "_portions", "_queue", "_seekers")

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        queue.open_lanes()
        self._lanes = [SearchedLane(lane) for lane in queue.lanes]
        self._fronts = [lane.front for lane in self._lanes]
        self._seekers: dict[Consumer, list[Cursor]] = {}  # their cursors, lane by lane
        self._portions = Portions(queue)
        queue.lanes = list(self._lanes)
        queue.settling.work += queue.ready // SLOTS

    def add(self, consumer: Consumer) -> None:
        """Give a consumer a cursor in each lane, at the beginning."""
        mark = object() if consumer.browses else None
        self._seekers[consumer] = [lane.enter(mark) for lane in self._lanes]

    def remove(self, consumer: Consumer) -> None:
        """Remove the cursors of a consumer, if it has any here. The search ends with the last consumer."""
        if (cursors := self._seekers.pop(consumer, None)) is None:
            return
        for lane, cursor in zip(self._lanes, cursors, strict=True):
            lane.leave(cursor)
        if not self._seekers:
            self.end()

    def avoid(self, delivery: Delivery, consumer: Consumer) -> None:
        """Pass by a delivery, which is about to come back, at the cursors of its consumer: only others may have it."""
        if consumer not in self._seekers:
            self.add(consumer)
        cursors = self._seekers[consumer]
        mark = cursors[0].avoids or object()
        for cursor in cursors:
            cursor.avoids = mark
        delivery.seen_by += (mark,)

    def end(self) -> None:
        """End the search: the queue gets plain lanes again."""
        self._portions.end()
        self._queue.lanes = [lane.plain() for lane in self._lanes]
        self._queue.search = None

    def browsers(self) -> Iterable[Consumer]:
        return (consumer for consumer in self._seekers if consumer.browses)

    # Serving.

    def serve(self, ring: RoundRobin) -> None:
        """Deliver to the consumers of one priority, in turn, the messages that suit each."""
        content: list[Consumer] = []  # consumers for which there is nothing more now
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
                    if consumer.browses:
                        self._queue.show(consumer, deliveries)
                    else:
                        self._queue.give(consumer, deliveries)
                else:
                    ring.shift()
                    (unfinished if consumer.searching else content).append(consumer)
        finally:
            for each in unfinished[1:] + unfinished[:1] + content:  # the first one has used up the time
                ring.add(each)
        if unfinished and self._portions.used_up:
            self._portions.go_on_later()

    def fetch(self, consumer: Consumer) -> Delivery | None:
        """Fetch one message for a consumer that is not attached, reading from disk at once if need be."""
        self.add(consumer)
        while not (found := self._find(consumer, 1, 1)) and consumer.searching:
            for lane, cursor in self._in_order(self._seekers[consumer]):
                if cursor.lacks:
                    lane.load_for(cursor)
                    break
        self.remove(consumer)
        return found[0] if found else None

    def next_for(self, consumer: Consumer) -> Delivery | None:
        """Take out the next message that suits a consumer that is in no ring; None: there is none, or the search goes
        on later, for which the queue is dispatched again."""
        found = self._find(consumer, 1, 1)
        if consumer.searching and self._portions.used_up:
            self._portions.go_on_later()
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
        """Return the next message that suits a consumer; None at the lane's end, or if the search goes on later."""
        now = self._queue.settling.now
        while not consumer.searching:
            if (delivery := lane.peek(cursor)) is None:
                if cursor.lacks:
                    lane.seek(cursor)
                    consumer.searching = True
                break
            if delivery.expires_at >= now and cursor.avoids not in delivery.seen_by:
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
        """Take up to `quota` messages from the front, of no more than `room` bytes and one message."""
        now = self._queue.settling.now
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
            if len(taken) < quota and room > 0 and front.lacks:
                lane.seek(front)
                break  # later lanes have to wait
        return taken

    def _in_order(self, cursors: list[Cursor]) -> Iterator[tuple[SearchedLane, Cursor]]:
        """Yield each lane with its cursor, the highest priority first."""
        return zip(reversed(self._lanes), reversed(cursors), strict=True)


class Portions:
    """A limit on the messages of one queue that are tested in one batch of the broker."""

    __slots__ = ("_left", "_left_at", "_queue", "_timer")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self._left = 0  # tests that are left in the batch
        self._left_at = -1.0
        self._timer: Timer | None = None

    def may_test(self, message: Message) -> bool:
        """Return whether a message may be tested in this batch, and count it. `now` is constant within a batch."""
        now = self._queue.settling.now
        if self._left_at != now:
            self._left_at, self._left = now, TESTS
        if self._left <= 0:
            return False
        self._left -= 1 + len(message.properties) // TEST_OCTETS
        return True

    @property
    def used_up(self) -> bool:
        """Return whether a search was interrupted in this batch."""
        return self._left <= 0 and self._left_at == self._queue.settling.now

    def go_on_later(self) -> None:
        """Have the queue dispatch again soon, to finish a search."""
        if self._timer is None or self._timer.cancelled:
            self._timer = self._queue.settling.later(PAUSE_S, self._go_on)

    def _go_on(self, now: float) -> None:
        self._queue.touch()

    def end(self) -> None:
        self._queue.settling.timers.cancel(self._timer)


def takes_now(consumer: Consumer, message: Message) -> bool:
    """Return whether a consumer that has just been served would take this message, too, at once."""
    return (
        consumer.room() > 0
        and min(consumer.credit, consumer.window.credit) > 0
        and not (consumer.browses or consumer.searching)
        and (consumer.selector is None or consumer.selector.matches(message))
    )

"""A queue with message groups: messages that say the same in one header go to one consumer at a time, in order.

    waiting   a1 a2 b1 a3 c1 b2        a consumer has a1: a2 and a3 are for it alone,
                                       others pass them by, and have b1 or c1 meanwhile

A group belongs to whoever has something of it that is not answered. When all of that is settled or given back, the
group is free, and goes to whoever comes to its next message first. Messages without the header are one group, too.

All consumers are seekers here (`search.py`): each has a cursor, and passes by what belongs to others. When a group is
free, those who have passed by something of it go back to there. So that nobody goes through a long queue for nothing, a
cursor that has passed by `LOOK_AHEAD` messages waits until it may go back, or as many have left the queue.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from broker_core.delivery import Consumer, Delivery, Window
from broker_core.message import said_in
from broker_core.queues.search import Search
from broker_core.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from broker_core.message import Message
    from broker_core.queues.round_robin import Ring
    from broker_core.queues.searchable_level import Cursor, SearchedLane

LOOK_AHEAD: Final = 2_000  # messages of others that a cursor passes by: 2 ms
NAMES_MAX: Final = 100_000  # waiting messages of which the group is remembered


class HeldGroup:
    """What one consumer, or whoever fetches, has of a group."""

    __slots__ = ("by", "count")

    def __init__(self, by: object) -> None:
        self.by = by
        self.count = 0  # messages that are not answered


class Fetch(Consumer):
    """Who comes for one message."""

    __slots__ = ()

    def room(self) -> int:
        return 1

    def deliver(self, deliveries: list[Delivery]) -> None:
        """It is not given anything: it takes."""

    def cancelled(self) -> None:
        """It is not attached."""


class GroupedQueue(WorkQueue):
    """A work queue that keeps groups together."""

    __slots__ = ("_claims", "_held", "_names", "gone")
    all_seek: ClassVar[bool] = True

    def set_up(self) -> None:
        self._held: dict[str, HeldGroup] = {}  # groups that are not free
        self._claims: dict[Delivery, str] = {}  # what is not answered, and its group
        self._names: dict[int, str] = {}  # groups of messages that were looked at, by position
        self.gone = 0  # messages that have left the lanes

    def new_search(self) -> Search:
        return GroupedSearch(self)

    # Whose a group is.

    def group_of(self, delivery: Delivery) -> str:
        name = self._names.get(delivery.position)
        if name is None:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            name = self._names[delivery.position] = said_in(delivery.message, self.limits.group_key or "")
        return name

    def may_have(self, taker: object, group: str) -> bool:
        held = self._held.get(group)
        return held is None or held.by is taker

    def claim(self, taker: object, delivery: Delivery, group: str) -> None:
        """It is given to somebody who has to answer."""
        held = self._held.get(group)
        if held is None:
            held = self._held[group] = HeldGroup(taker)
        held.count += 1
        self._claims[delivery] = group

    def _answered(self, delivery: Delivery) -> None:
        group = self._claims.pop(delivery, None)
        if group is None:
            return
        held = self._held[group]
        held.count -= 1
        if not held.count:
            del self._held[group]
            if isinstance(self.search, GroupedSearch):
                self.search.freed(group)
            self.touch()

    # Departure and return.

    def left(self, delivery: Delivery) -> None:
        super().left(delivery)
        self._names.pop(delivery.position, None)
        self.gone += 1

    def accept(self, delivery: Delivery) -> None:
        super().accept(delivery)
        self._answered(delivery)

    def accept_run(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.accept(delivery)

    def release(self, delivery: Delivery, failed: bool = True, redelivered: bool = True) -> None:
        super().release(delivery, failed, redelivered)
        self._answered(delivery)

    def reject(self, delivery: Delivery) -> None:
        super().reject(delivery)
        self._answered(delivery)

    def acquire(self, position: int) -> Delivery | None:
        delivery = super().acquire(position)
        if delivery is None:
            return None
        group = said_in(delivery.message, self.limits.group_key or "")
        if group not in self._held:
            self.claim(delivery, delivery, group)
            return delivery
        self.give_back_unseen(delivery)
        return None

    def take_one(self, settled: bool) -> Delivery | None:
        """The first of a group that is free."""
        self.used_at = self.virtual_host.broker.now
        if self.search is None:
            self.search = self.new_search()
        delivery = self.search.fetch(Fetch(self, settled, 1, Window()))
        return None if delivery is None else self.hand_out(delivery, settled)

    def can_deliver_now(self, message: Message) -> bool:
        group = said_in(message, self.limits.group_key or "")
        return group not in self._held and super().can_deliver_now(message)

    def purge(self) -> int:
        self._names.clear()
        self.gone += LOOK_AHEAD
        return super().purge()


class GroupedSearch(Search):
    """A search in which seekers pass by what is others'."""

    __slots__ = ("_groups", "_missed", "_passed", "_stuck")

    def __init__(self, queue: GroupedQueue) -> None:
        super().__init__(queue)
        self._groups = queue
        # By group, who has passed by something of it: his lane, and the first position.
        self._missed: dict[str, dict[Cursor, tuple[SearchedLane, int]]] = {}
        self._passed: dict[Cursor, int] = {}  # how many messages, since he went back
        # Who has passed by enough, in which lane, and how many messages had left the queue then.
        self._stuck: dict[Cursor, tuple[SearchedLane, int]] = {}

    def remove(self, consumer: Consumer) -> None:
        for cursor in self._seekers.get(consumer, ()):
            self._passed.pop(cursor, None)
            self._stuck.pop(cursor, None)
            for missed in self._missed.values():
                missed.pop(cursor, None)
        super().remove(consumer)

    def serve(self, ring: Ring) -> None:
        super().serve(ring)
        gone = self._groups.gone
        rested = [(cursor, lane) for cursor, (lane, then) in self._stuck.items() if gone >= then + LOOK_AHEAD]
        for cursor, lane in rested:
            self._go_back(lane, cursor, 0)
            self._groups.touch()

    def _next(self, consumer: Consumer, lane: SearchedLane, cursor: Cursor) -> Delivery | None:
        if consumer.browses:
            return super()._next(consumer, lane, cursor)
        for delivery in self._met(consumer, lane, cursor):
            group = self._groups.group_of(delivery)
            if self._groups.may_have(consumer, group):
                if not consumer.settled:
                    self._groups.claim(consumer, delivery, group)
                return delivery
            self._miss(lane, cursor, delivery, group)
        return None

    def _met(self, consumer: Consumer, lane: SearchedLane, cursor: Cursor) -> Iterator[Delivery]:
        """What a consumer would take, were it not for groups, as far as it looks."""
        while cursor not in self._stuck:
            delivery = super()._next(consumer, lane, cursor)
            if delivery is None:
                return
            yield delivery

    def _miss(self, lane: SearchedLane, cursor: Cursor, delivery: Delivery, group: str) -> None:
        missed = self._missed.setdefault(group, {})
        first = missed.get(cursor)
        if first is None or delivery.position < first[1]:
            missed[cursor] = lane, delivery.position
        lane.pass_by(cursor, delivery)
        passed = self._passed[cursor] = self._passed.get(cursor, 0) + 1
        if passed >= LOOK_AHEAD:
            self._stuck[cursor] = lane, self._groups.gone

    def freed(self, group: str) -> None:
        """Nobody has anything of it any more: it is for all who have passed by."""
        for cursor, (lane, position) in self._missed.pop(group, {}).items():
            self._go_back(lane, cursor, position)

    def _go_back(self, lane: SearchedLane, cursor: Cursor, position: int) -> None:
        self._passed.pop(cursor, None)
        self._stuck.pop(cursor, None)
        lane.go_back(cursor, position)

"""A queue with message groups gives messages with the same value in one header to one consumer at a time, in order.

    waiting   a1 a2 b1 a3 c1 b2        a consumer has a1: a2 and a3 are for it alone,
                                       others pass them by, and get b1 or c1 meanwhile

A group belongs to the consumer that has unanswered messages of it. When all of them are settled or given back, the
group is free, and goes to the consumer that meets its next message first. Messages without the header are one group.
A message that waits for a time (`schedule.py`) does not hold its group: those behind it go on meanwhile.

All consumers have cursors here (`search.py`), and pass by messages of groups that others hold. When a group becomes
free, the cursors that have passed by its messages go back to the first of them. So that none goes through a long queue
in vain, a cursor that has passed by `LOOK_AHEAD` messages waits until it may go back, or as many have left the queue.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.delivery import Consumer, Delivery, Window
from leveret.errors import NotAtHand
from leveret.message import said_in
from leveret.queues.queue import BY_BACKOFF
from leveret.queues.search import Search
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.message import Message
    from leveret.queues.round_robin import RoundRobin
    from leveret.queues.searched_lane import Cursor, SearchedLane

LOOK_AHEAD: Final = 2_000  # messages of other consumers' groups that a cursor passes by: 2 ms
NAMES_MAX: Final = 100_000  # waiting messages whose group is cached


class HeldGroup:
    """The holder of a group, and the number of its unanswered messages."""

    __slots__ = ("by", "count")

    def __init__(self, by: object) -> None:
        self.by = by
        self.count = 0  # messages that are not answered


class Fetch(Consumer):
    """A consumer that stands for one fetch (basic.get), and is never attached."""

    __slots__ = ()

    def room(self) -> int:
        return 1

    def deliver(self, deliveries: list[Delivery]) -> None:
        """Do nothing: a fetch takes its message itself."""

    def cancelled(self) -> None:
        """Do nothing: a fetch is not attached."""


class MessageGroupQueue(WorkQueue):
    """A work queue whose message groups each go to one consumer at a time."""

    __slots__ = ("_claims", "_held", "_names", "gone")
    all_seek: ClassVar[bool] = True
    may_lack: ClassVar[bool] = False

    def set_up(self) -> None:
        self._held: dict[str, HeldGroup] = {}  # groups that are not free
        self._claims: dict[int, str] = {}  # the groups of unanswered messages by position
        self._names: dict[int, str] = {}  # cache: the groups of waiting messages by position
        self.gone = 0  # messages that have left the lanes

    def new_search(self) -> Search:
        return MessageGroupSearch(self)

    # The holders of groups.

    def group_of(self, delivery: Delivery) -> str:
        """Return the group of a waiting message."""
        name = self._names.get(delivery.position)
        if name is None:
            if len(self._names) >= NAMES_MAX:
                self._names.clear()
            name = self._names[delivery.position] = said_in(delivery.message, self.limits.group_key or "")
        return name

    def may_have(self, taker: object, group: str) -> bool:
        """Return whether a group is free, or held by `taker`."""
        held = self._held.get(group)
        return held is None or held.by is taker

    def claim(self, taker: object, delivery: Delivery, group: str) -> None:
        """Assign a group to `taker`, which gets this delivery of it and has to answer it."""
        held = self._held.get(group)
        if held is None:
            held = self._held[group] = HeldGroup(taker)
        held.count += 1
        self._claims[delivery.position] = group

    def _answered(self, delivery: Delivery) -> None:
        group = self._claims.pop(delivery.position, None)
        if group is None:
            return
        held = self._held[group]
        held.count -= 1
        if not held.count:
            del self._held[group]
            if isinstance(self.search, MessageGroupSearch):
                self.search.freed(group)
            self.touch()

    # What a guest or a client has since before a restart holds its group: messages behind it stay behind it.

    def set_one_aside(self, delivery: Delivery) -> None:
        super().set_one_aside(delivery)
        self._claim_again(delivery)

    def take_stored(self, positions: Sequence[int]) -> list[Delivery]:
        taken = super().take_stored(positions)
        for delivery in taken:
            self._claim_again(delivery)
        return taken

    def _claim_again(self, delivery: Delivery) -> None:
        """Hold the group of a message that was not answered before a restart; others of it wait until it is."""
        self.claim(self, delivery, said_in(delivery.message, self.limits.group_key or ""))

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

    def release(
        self, delivery: Delivery, failed: bool = True, redelivered: bool = True, until: float = BY_BACKOFF
    ) -> None:
        super().release(delivery, failed, redelivered, until)
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

    def head_is_away(self) -> bool:
        # A fetch passes by messages of groups that others hold.
        return self.returning > 0 or self.asks_for_first(LOOK_AHEAD + 1)

    def take_one(self, settled: bool) -> Delivery | None:
        """Fetch the first message whose group is free."""
        self.used_at = self.settling.now
        if self.head_is_away():
            raise NotAtHand
        delivery = self.searched().fetch(Fetch(self, settled, 1, Window()))
        if delivery is not None:
            return self.hand_out(delivery, settled)
        if self.head_is_away():
            raise NotAtHand
        return None

    def can_deliver_now(self, message: Message) -> bool:
        group = said_in(message, self.limits.group_key or "")
        return group not in self._held and super().can_deliver_now(message)

    def purge(self) -> int:
        self._names.clear()
        self.gone += LOOK_AHEAD
        return super().purge()


class MessageGroupSearch(Search):
    """A search whose cursors pass by messages of groups that other consumers hold."""

    __slots__ = ("_groups", "_missed", "_passed", "_stuck")

    def __init__(self, queue: MessageGroupQueue) -> None:
        super().__init__(queue)
        self._groups = queue
        # For each group, the cursors that have passed by its messages, with lane and first position.
        self._missed: dict[str, dict[Cursor, tuple[SearchedLane, int]]] = {}
        self._passed: dict[Cursor, int] = {}  # how many messages each has passed by since it went back
        # Cursors that have passed by `LOOK_AHEAD` messages, with their lane and `gone` at that time.
        self._stuck: dict[Cursor, tuple[SearchedLane, int]] = {}

    def remove(self, consumer: Consumer) -> None:
        for cursor in self._seekers.get(consumer, ()):
            self._passed.pop(cursor, None)
            self._stuck.pop(cursor, None)
            for missed in self._missed.values():
                missed.pop(cursor, None)
        super().remove(consumer)

    def serve(self, ring: RoundRobin) -> None:
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
        """Yield the messages that suit a consumer, whatever their group, until its cursor has to wait."""
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
        """Let the cursors that have passed by messages of a group, which is free now, go back to the first of them."""
        for cursor, (lane, position) in self._missed.pop(group, {}).items():
            self._go_back(lane, cursor, position)

    def _go_back(self, lane: SearchedLane, cursor: Cursor, position: int) -> None:
        self._passed.pop(cursor, None)
        self._stuck.pop(cursor, None)
        lane.go_back(cursor, position)

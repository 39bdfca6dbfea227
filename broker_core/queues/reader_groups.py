"""Groups of readers of a stream, of which one at a time is active: it goes on where the one before it was.

    x-stream-group = "billing"      an argument of each of the consumers

    group ── members[partition mod members] ──> active ── gives up ──> its answers are awaited ──> the next one goes on

In a plain stream the member that has been there longest is active. In a partition of a super stream it is the one whose
number is the partition's modulo the number of members, so that each of them has its share, and activity moves when a
member comes or goes.

A group has a place: the offset that it gets next. The next member begins only after everything that the one before was
given has been answered or given back. What a member gives back, or leaves behind when it goes, moves the place back to
the oldest of these, so that the group gets that message again and all behind it. A member that has not answered in time
gives up its activity, and gets it again when no other is left. So messages reach the group in order,
at least once, and two members never have messages of one stream at a time.

The group ends with its last member, and a new one begins at the offset that its first member asks for.

Source: RabbitMQ's documentation of streams, "Single Active Consumer", and its coordinator's choice for partitions.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.arguments.checks import text, whole
from leveret.errors import PreconditionFailed
from leveret.values import type_name

if TYPE_CHECKING:
    from leveret.delivery import Consumer, Delivery
    from leveret.queues.stream import StreamQueue
    from leveret.values import Table

GROUP: Final = "x-stream-group"  # argument of consumers
NAME_MAX: Final = 255  # bytes
SUPER: Final = "x-super-stream"  # argument of the exchange of a super stream
ORDER: Final = "x-stream-partition-order"  # argument of its bindings


class ReaderGroup:
    """One group of readers of one stream."""

    __slots__ = ("_is_placed", "_owed", "active", "members", "name", "place", "serves_active")

    def __init__(self, name: str) -> None:
        self.name = name
        self.members: dict[Consumer, None] = {}  # in the order of their coming
        self.active: Consumer | None = None
        self.serves_active = False  # it may be given messages: nothing is owed by others
        self.place = 0  # the next offset, while no member is served
        self._is_placed = False
        self._owed: dict[Consumer, int] = {}  # how many deliveries each has not answered

    @property
    def is_over(self) -> bool:
        return not self.members and not self._owed

    @property
    def may_begin(self) -> bool:
        """Return whether the active member can be served from `place` on."""
        others = len(self._owed) - (self.active in self._owed)
        return self.active is not None and self._is_placed and not self.serves_active and not others

    def begin_at(self, offset: int) -> None:
        """Note where the group begins, unless it has begun."""
        if not self._is_placed:
            self.place, self._is_placed = offset, True

    def given(self, consumer: Consumer, count: int) -> None:
        self._owed[consumer] = self._owed.get(consumer, 0) + count

    def answered(self, consumer: Consumer) -> None:
        """Note that a delivery to this consumer has been answered."""
        self._owed[consumer] -= 1
        if not self._owed[consumer]:
            del self._owed[consumer]

    def elect(self, partition: int) -> Consumer | None:
        """Return the member that is to be active; of those that answer in time, while there are any."""
        first = min([member.late_at for member in self.members], default=0.0)
        members = [member for member in self.members if member.late_at == first]
        return members[partition % len(members)] if members else None


class ReaderGroups:
    """The groups of readers of one stream. It is created with the first of them."""

    __slots__ = ("_owed", "_queue", "by_name", "group_of")

    def __init__(self, queue: StreamQueue) -> None:
        self._queue = queue
        self.by_name: dict[str, ReaderGroup] = {}
        self.group_of: dict[Consumer, ReaderGroup] = {}
        self._owed: dict[Delivery, ReaderGroup] = {}  # deliveries that members have not answered

    def join(self, consumer: Consumer, name: str, start: int | None, since: float | None) -> None:
        """Put a reader into a group, which begins where this one asks for if it is the first."""
        group = self.by_name.get(name)
        if group is None:
            group = self.by_name[name] = ReaderGroup(name)
            if start is not None:
                group.begin_at(start)
            elif since is not None:
                self._queue.log.offset_since(since, partial(self._placed, group))
        group.members[consumer] = None
        self.group_of[consumer] = group
        self._elect(group)

    def _placed(self, group: ReaderGroup, offset: int) -> None:
        group.begin_at(offset)
        self._go_on(group)

    def leave(self, consumer: Consumer, cursor: int) -> None:
        """Have a reader leave its group, if it is in one. `cursor`: the offset that it would have got next."""
        if (group := self.group_of.pop(consumer, None)) is None:
            return
        del group.members[consumer]
        if group.active is consumer:
            self._stop_serving(group, cursor)
            group.active = None
        if group.is_over:
            del self.by_name[group.name]
        else:
            self._elect(group)

    def _stop_serving(self, group: ReaderGroup, cursor: int) -> None:
        if group.serves_active:
            group.place, group.serves_active = cursor, False

    def _elect(self, group: ReaderGroup) -> None:
        """Make the member active that is to be, and have it begin as soon as nothing is owed by another."""
        chosen, before = group.elect(partition_of(self._queue)), group.active
        if chosen is not before:
            if before is not None:
                self._stop_serving(group, self._queue.cursors[before])
                self._queue.out_of_line(before)
                before.able = False
                before.passed_over()
            group.active = chosen
            if chosen is not None:
                chosen.elected()
        self._go_on(group)

    def _go_on(self, group: ReaderGroup) -> None:
        if group.active is not None and group.may_begin:
            group.serves_active = True
            self._queue.cursors[group.active] = group.place
            self._queue.offer(group.active)

    def timed_out(self, consumer: Consumer) -> None:
        """Have another member of a reader's group be active, if there is one: this one has not answered in time."""
        if (group := self.group_of.get(consumer)) is not None:
            self._elect(group)

    def is_active(self, consumer: Consumer) -> bool:
        """Return whether a reader is the active member of its group, or in none."""
        group = self.group_of.get(consumer)
        return group is None or group.active is consumer

    def serves(self, consumer: Consumer) -> bool:
        group = self.group_of.get(consumer)
        return group is None or (group.active is consumer and group.serves_active)

    def note_given(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        if (group := self.group_of.get(consumer)) is not None:
            group.given(consumer, len(deliveries))
            self._owed.update(dict.fromkeys(deliveries, group))

    def answered(self, delivery: Delivery, comes_back: bool = False) -> None:
        group, consumer = self._owed.pop(delivery, None), delivery.consumer
        if group is None or consumer is None:
            return
        group.answered(consumer)
        if comes_back:
            self._go_back(group, delivery.position)
        if group.is_over:
            self.by_name.pop(group.name, None)
        else:
            self._go_on(group)

    def _go_back(self, group: ReaderGroup, offset: int) -> None:
        """Have a group get the message at an offset again, and those behind it."""
        active = group.active
        if active is None or not group.serves_active:
            group.place = min(group.place, offset)
        elif offset < self._queue.cursors[active]:
            self._queue.cursors[active] = offset
            self._queue.out_of_line(active)
            active.able = False
            self._queue.offer(active)


def group_name(arguments: Table, described: str) -> str | None:
    """Return the group that a consumer asks for; None if it asks for none. Raises PreconditionFailed."""
    if GROUP not in arguments:
        return None
    name = text(arguments[GROUP])
    if name is None:
        raise PreconditionFailed(
            f"invalid arg '{GROUP}' for {described}: it is of type {type_name(arguments[GROUP])}"
        )
    if not 0 < len(name.encode("utf-8", "surrogateescape")) <= NAME_MAX:
        raise PreconditionFailed(f"invalid arg '{GROUP}' for {described}: a name has 1 to {NAME_MAX} bytes")
    return name


def partition_of(queue: StreamQueue) -> int:
    """Return the place of a stream in its super stream, from 0 on; 0 if it belongs to none."""
    for binding in queue.virtual_host.bindings_to(queue):
        if binding.source.arguments.get(SUPER) is True:
            return max(0, whole(binding.arguments.get(ORDER)) or 0)
    return 0

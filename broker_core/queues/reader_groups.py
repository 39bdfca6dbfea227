"""Groups of readers of a stream, of which one at a time is active: it goes on where the one before it was.

    x-stream-group = "billing"      an argument of each of the consumers

    group ── members[partition mod members] ──> active ── gives up ──> its answers are awaited ──> the next one goes on

In a plain stream the member that has been there longest is active. In a partition of a super stream it is the one whose
number is the partition's modulo the number of members, so that each of them has its share, and activity moves when a
member comes or goes.

A group has a place: the offset that it gets next. The next member begins only after everything that the one before was
given has been answered or given back. What a member gives back, or leaves behind when it goes, moves the place back to
the oldest of these, so that the group gets that message again and all behind it. So messages reach the group in order,
at least once, and two members never have messages of one stream at a time.

The group ends with its last member, and a new one begins at the offset that its first member asks for.

Source: RabbitMQ's documentation of streams, "Single Active Consumer", and its coordinator's choice for partitions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.arguments.checks import text, whole
from leveret.errors import PreconditionFailed
from leveret.values import type_name

if TYPE_CHECKING:
    from leveret.delivery import Consumer
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
        """Return the member that is to be active."""
        members = list(self.members)
        return members[partition % len(members)] if members else None


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

"""A queue that numbers what enters it: each message has a running number in a header of the queue's choice.

    arrives   a    b    c    d           a ring of two     c n=3   d n=4       who read a last sees that b is gone

The number is the message's position in the queue, from 1 on, so it costs no more than to write it into the headers.
What comes back keeps its number. If the queue is durable, its notes say in each commit that has new messages how far it
is: positions of messages that are long gone are known to nobody else after a start.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_core.limits import QueueLimits, whole
from broker_core.queues.fair_share import FairQueue
from broker_core.queues.last_value import LastValueQueue
from broker_core.queues.message_groups import GroupedQueue
from broker_core.queues.overflow import refuses, turned_away
from broker_core.queues.work_queue import WorkQueue
from broker_core.values import Int64

if TYPE_CHECKING:
    from broker_core.message import Message

NUMBERED: Final = "numbered"  # in the notes: the last number that was given


class NumberedQueue(WorkQueue):
    """A work queue that numbers."""

    __slots__ = ()

    def apply(self, limits: QueueLimits) -> None:
        super().apply(limits)
        self.go_on_from(whole(self.notes.get(NUMBERED)) or 0)

    def push(self, message: Message) -> bool:
        if self.watched and refuses(self, message):
            return turned_away(self, message)
        self.touch()  # for the notes
        number = Int64(self.position + 1)
        return super().push(message.saying({self.limits.sequence_header or "": number}))

    def takes_of(self, messages: list[Message]) -> int:
        return 0  # each has a number of its own

    def push_run(self, messages: list[Message]) -> int:
        return 0

    def dispatch(self) -> None:
        if self.number and not self.touched:  # the batch is over: this is said once for all of it
            self.virtual_host.note(self, {**self.notes, NUMBERED: self.position})
        super().dispatch()


class NumberedFairQueue(NumberedQueue, FairQueue):
    """The same where levels of priority share."""

    __slots__ = ()


class NumberedGroupedQueue(NumberedQueue, GroupedQueue):
    """The same with message groups."""

    __slots__ = ()


class NumberedLastValueQueue(NumberedQueue, LastValueQueue):
    """The same for last values: numbers are left out where messages were replaced."""

    __slots__ = ()


NUMBERING: Final[dict[type[WorkQueue], type[NumberedQueue]]] = {
    WorkQueue: NumberedQueue,
    FairQueue: NumberedFairQueue,
    GroupedQueue: NumberedGroupedQueue,
    LastValueQueue: NumberedLastValueQueue,
}
"""What numbers, besides being what it is."""


def work_queue_kind(limits: QueueLimits) -> type[WorkQueue]:
    """Which of them keeps to these limits."""
    kind = WorkQueue
    if limits.last_value_key is not None:
        kind = LastValueQueue
    elif limits.group_key is not None:
        kind = GroupedQueue
    elif limits.fair_share:
        kind = FairQueue
    return kind if limits.sequence_header is None else NUMBERING[kind]

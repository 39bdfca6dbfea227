"""A sequenced queue writes a running number into a header of each message that enters it.

    arrive   a   b   c   d      at most two wait   c n=3   d n=4      a reader that had a (n=1) sees that b is gone

The number is the message's position in the queue, from 1 on, so it costs only the writing of the header. A message that
comes back keeps its number. The last number of a durable queue is kept in its notes, in each commit that has new
messages: after a restart nothing else tells the positions of messages that are gone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.arguments.checks import whole
from leveret.limits import QueueLimits
from leveret.queues.fair_share import FairQueue
from leveret.queues.last_value import LastValueQueue
from leveret.queues.message_groups import MessageGroupQueue
from leveret.queues.overflow import refuses, turned_away
from leveret.queues.work_queue import WorkQueue
from leveret.values import Int64

if TYPE_CHECKING:
    from leveret.message import Message

NUMBERED: Final = "numbered"  # a key of the queue's notes: the last number that was assigned


class SequencedQueue(WorkQueue):
    """A work queue that numbers its messages."""

    __slots__ = ()

    def apply(self, limits: QueueLimits) -> None:
        super().apply(limits)
        self.go_on_from(whole(self.notes.get(NUMBERED)) or 0)

    def push(self, message: Message) -> bool:
        if self.watched and refuses(self, message):
            return turned_away(self, message)
        self.touch()  # so that `dispatch` writes the notes
        number = Int64(self.position + 1)
        return super().push(message.saying({self.limits.sequence_header or "": number}))

    def takes_of(self, messages: list[Message]) -> int:
        return 0  # each has a number of its own

    def push_run(self, messages: list[Message]) -> int:
        return 0

    def dispatch(self) -> None:
        if self.number and not self.touched:  # the batch is over: the notes are written once for all of it
            self.virtual_host.note(self, {**self.notes, NUMBERED: self.position})
        super().dispatch()


class SequencedFairQueue(SequencedQueue, FairQueue):
    """A fair-share queue that numbers its messages."""

    __slots__ = ()


class SequencedMessageGroupQueue(SequencedQueue, MessageGroupQueue):
    """A queue with message groups that numbers its messages."""

    __slots__ = ()


class SequencedLastValueQueue(SequencedQueue, LastValueQueue):
    """A last-value queue that numbers its messages. Numbers are missing where messages were replaced."""

    __slots__ = ()


NUMBERING: Final[dict[type[WorkQueue], type[SequencedQueue]]] = {
    WorkQueue: SequencedQueue,
    FairQueue: SequencedFairQueue,
    MessageGroupQueue: SequencedMessageGroupQueue,
    LastValueQueue: SequencedLastValueQueue,
}
"""The numbering variant of each kind of work queue."""


def work_queue_kind(limits: QueueLimits) -> type[WorkQueue]:
    """Return the kind of work queue that these limits ask for."""
    kind = WorkQueue
    if limits.last_value_key is not None:
        kind = LastValueQueue
    elif limits.group_key is not None:
        kind = MessageGroupQueue
    elif limits.fair_share:
        kind = FairQueue
    return kind if limits.sequence_header is None else NUMBERING[kind]

"""Queues that take every message, and do something about their length: on disk only, or publishers wait.

    flow-to-disk             in memory | limit | on disk only, put there in portions, soon after they came
    producer-flow-control    push over the limit ──> Broker.overfull ──> the front-end that published is not read from
                             down to the resume limit ──> Client.resumed ──> it is read from again

Both are overflow policies of Qpid's Java broker, whose documentation ("Controlling Queue Size", and its appendix on the
arguments of queue declarations) says what they are for; its resume limit is 80 percent, too. Publishers wait by their
connections, since the protocols have no other way that all clients keep to; nothing is refused, so that what one read
has brought may be above the limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.limits import FLOW_RESUME_PERCENT, Overflow
from leveret.queues.discarded_messages import PAUSE_S, PORTION
from leveret.settling import Overlong

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.queues.laned_queue import LanedQueue

PRODUCER_FLOW_CONTROL: Final = Overflow.PRODUCER_FLOW_CONTROL
FLOW_TO_DISK: Final = Overflow.FLOW_TO_DISK

SOON_S: Final = 0.05  # from the first message over the limit to the writing of what is over it
FLOWING: Final = (Overflow.FLOW_TO_DISK, Overflow.PRODUCER_FLOW_CONTROL)


class Overfull(Overlong):
    """The measures of one queue that is over its limit: a timer to write, or publishers that wait."""

    __slots__ = ("_queue", "_timer")

    def __init__(self, queue: LanedQueue) -> None:
        super().__init__()
        self._queue = queue
        self._timer: Timer | None = None  # to put messages on disk

    def look(self) -> None:
        """Called when the queue's length or its limits have changed."""
        queue = self._queue
        if self.clients and not (queue.limits.overflow is PRODUCER_FLOW_CONTROL and is_long(queue)):
            self.release()
        if queue.limits.overflow is FLOW_TO_DISK and self._timer is None and lacks_disk(queue):
            if queue.settling.journal is not None:
                self._timer = queue.settling.later(SOON_S, self._put_away)

    def release(self) -> None:
        """Let all publishers go on."""
        clients, self.clients = self.clients, {}
        for client in clients:
            client.released(self)

    def end(self) -> None:
        """Called when the queue is deleted."""
        self._queue.settling.timers.cancel(self._timer)
        self.release()

    def _put_away(self, now: float) -> None:
        """Put what is over the limit on disk only, a portion at a time; what is not written yet follows later."""
        self._timer = None
        queue, settling = self._queue, self._queue.settling
        if queue.limits.overflow is not FLOW_TO_DISK:
            return
        keep, before, gone = kept_of(queue), in_memory(queue), True
        while gone and lacks_disk(queue) and before - in_memory(queue) < PORTION:
            gone = queue.page_out(keep)
        journal = settling.journal
        is_writing = journal is not None and (journal.dirty or journal.durable < journal.open - 1)
        if lacks_disk(queue) and (gone or is_writing):
            self._timer = settling.timers.at(now + (PAUSE_S if gone else SOON_S), self._put_away)


def look_at(queue: LanedQueue) -> None:
    """Called at the end of a dispatch, if a queue has one of these ways of overflow."""
    if queue.overfull is None and queue.over_limit():
        queue.overfull = Overfull(queue)
    if queue.overfull is None:
        return
    if queue.limits.overflow is PRODUCER_FLOW_CONTROL and queue.over_limit():
        queue.settling.overfull[queue.overfull] = None
    queue.overfull.look()


def is_long(queue: LanedQueue) -> bool:
    """Return whether a queue is above the length at which its publishers go on."""
    limits = queue.limits
    resume = limits.flow_resume_percent
    percent = 100 - (FLOW_RESUME_PERCENT if resume is None else resume)
    longest, largest = limits.max_length or 0, limits.max_bytes or 0
    return queue.over_limit(-(-longest * percent // 100), -(-largest * percent // 100))


def in_memory(queue: LanedQueue) -> int:
    """Return how many waiting messages are in memory."""
    return queue.ready if queue.backlog is None else queue.ready - queue.backlog.messages


def lacks_disk(queue: LanedQueue) -> bool:
    """Return whether more messages are in memory than the limit allows."""
    if queue.backlog is None:
        return queue.over_limit()
    return queue.over_limit(-queue.backlog.messages, -queue.backlog.octets)


def kept_of(queue: LanedQueue) -> int:
    """Return how many messages at the head stay in memory: as many as the limit allows, by their average size."""
    limits, kept = queue.limits, queue.ready
    if limits.max_length is not None:
        kept = min(kept, limits.max_length)
    if limits.max_bytes is not None and queue.ready_bytes:
        kept = min(kept, limits.max_bytes * queue.ready // queue.ready_bytes)
    return kept // max(1, len(queue.lanes))

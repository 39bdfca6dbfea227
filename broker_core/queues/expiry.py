"""Messages that wait too long expire: one timer for each queue is set to the first expiry at its heads (S080)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.clock import NEVER
from leveret.queues.discarded_messages import PAUSE_S, DiscardPortion

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.queues.laned_queue import LanedQueue


class Expiry:
    """The expiry timer of one queue. A message behind the head expires when it comes to the head."""

    __slots__ = ("_queue", "_timer")

    def __init__(self, queue: LanedQueue) -> None:
        self._queue = queue
        self._timer: Timer | None = None

    def watch(self) -> None:
        """Set the timer to the first expiry, after the messages at the heads may have changed."""
        queue, timer = self._queue, self._timer
        earliest = min((lane.due_at() for lane in queue.lanes if lane), default=NEVER)
        now, timers = queue.settling.now, queue.settling.timers
        if timer is not None and not timer.cancelled and timer.at <= max(earliest, now + PAUSE_S):
            return  # it will look again when it fires
        timers.cancel(timer)
        self._timer = None if earliest == NEVER else timers.at(earliest, self._expire)

    def _expire(self, now: float) -> None:
        """Let the messages die that are due, a portion at a time so as not to block the broker."""
        queue = self._queue
        self._timer = None
        portion = DiscardPortion(queue.settling.clock, queue.limits.dead_letter_exchange is not None)
        for lane in queue.lanes:
            while lane and lane.due_at() <= now:
                if portion.is_over():
                    self._timer = queue.settling.timers.at(now + PAUSE_S, self._expire)
                    return
                queue.expire(lane.take())
        queue.touch()

    def end(self) -> None:
        """Cancel the timer, as the queue is deleted."""
        self._queue.settling.timers.cancel(self._timer)

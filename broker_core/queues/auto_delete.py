"""Unused queues are deleted after a while, by two rules.

x-expires             the queue had no consumers, fetches or declarations for so long (S081)
x-auto-delete-delay   the last consumer or the owner of an auto-delete queue left, and none came for so long; without
                      a delay the queue is deleted at once (S068)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.queues.laned_queue import LanedQueue

log: Final = logging.getLogger("leveret.broker")


class AutoDelete:
    """The timers after which one queue is deleted."""

    __slots__ = ("_destroyed", "_expires", "_queue", "_unused")

    def __init__(self, queue: LanedQueue) -> None:
        self._queue = queue
        self._expires: Timer | None = None
        self._unused: Timer | None = None
        self._destroyed: Timer | None = None

    def watch(self) -> None:
        """Start or restart the timer of x-expires, according to the queue's present limits."""
        queue = self._queue
        timers = queue.settling.timers
        timers.cancel(self._expires)
        self._expires = None
        if queue.limits.expires_ms is not None and not queue.deleted:
            self._expires = timers.at(queue.used_at + queue.limits.expires_ms / 1000, self._maybe_expired)

    def _maybe_expired(self, now: float) -> None:
        queue = self._queue
        assert queue.limits.expires_ms is not None
        if queue.in_use or queue.is_searched:
            queue.used_at = now
        if now >= queue.used_at + queue.limits.expires_ms / 1000:
            queue.virtual_host.delete_queue(queue)
        else:
            self.watch()

    def left(self) -> None:
        """Delete an auto-delete queue that its last consumer or owner has left, at once or after its delay."""
        queue = self._queue
        if delay_ms := queue.limits.auto_delete_delay_ms:
            queue.settling.timers.cancel(self._unused)
            self._unused = queue.settling.later(delay_ms / 1000, self._is_over)
        else:
            queue.virtual_host.delete_queue(queue)

    def returned(self) -> None:
        """Stop the delay: the queue has a consumer or an owner again."""
        if self._unused is not None:
            self._queue.settling.timers.cancel(self._unused)
            self._unused = None

    def destroy(self) -> None:
        """Delete a queue over its limit (self-destruct). This waits for a timer, as a publish is under way."""
        if self._destroyed is None:
            self._destroyed = self._queue.settling.later(0.0, self._destroy)

    def _destroy(self, now: float) -> None:
        log.warning("%s is deleted: it is over its limit, with overflow self-destruct", self._queue.described)
        self._queue.virtual_host.delete_queue(self._queue)

    def _is_over(self, now: float) -> None:
        self._unused = None
        if self._queue.auto_delete and not self._queue.consumers:
            self._queue.virtual_host.delete_queue(self._queue)

    def end(self) -> None:
        """Cancel the timers, as the queue is deleted."""
        timers = self._queue.settling.timers
        timers.cancel(self._expires)
        timers.cancel(self._destroyed)
        self.returned()

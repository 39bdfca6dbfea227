"""When nobody uses a queue any more: it goes after a while, by two rules.

x-expires             nobody has used it at all for so long: no consumers, fetches, declarations (S081)
x-auto-delete-delay   its last consumer, or the client that owned it, has left, and nobody came back for so long;
                      without a delay an auto-delete queue goes at once (S068)
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_core.clock import Timer
    from broker_core.queues.work_queue import WorkQueue

log: Final = logging.getLogger("leveret.broker")


class Disuse:
    """What one queue waits for before it goes."""

    __slots__ = ("_destroyed", "_expires", "_queue", "_unused")

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self._expires: Timer | None = None
        self._unused: Timer | None = None
        self._destroyed: Timer | None = None

    def watch(self) -> None:
        """Delete the queue when nobody has used it for as long as its limits say now."""
        queue = self._queue
        timers = queue.virtual_host.broker.timers
        timers.cancel(self._expires)
        self._expires = None
        if queue.limits.expires_ms is not None and not queue.deleted:
            self._expires = timers.at(queue.used_at + queue.limits.expires_ms / 1000, self._maybe_expired)

    def _maybe_expired(self, now: float) -> None:
        queue = self._queue
        assert queue.limits.expires_ms is not None
        if queue.in_use or queue.search is not None:
            queue.used_at = now
        if now >= queue.used_at + queue.limits.expires_ms / 1000:
            queue.virtual_host.delete_queue(queue)
        else:
            self.watch()

    def left(self) -> None:
        """Nobody consumes from an auto-delete queue any more: it goes, or begins to wait for that."""
        queue = self._queue
        if delay_ms := queue.limits.auto_delete_delay_ms:
            broker = queue.virtual_host.broker
            broker.timers.cancel(self._unused)
            self._unused = broker.timers.at(broker.now + delay_ms / 1000, self._is_over)
        else:
            queue.virtual_host.delete_queue(queue)

    def returned(self) -> None:
        """Somebody has come in time."""
        if self._unused is not None:
            self._queue.virtual_host.broker.timers.cancel(self._unused)
            self._unused = None

    def destroy(self) -> None:
        """It is fuller than it may be, and goes for that: soon, for somebody is publishing to it."""
        if self._destroyed is None:
            broker = self._queue.virtual_host.broker
            self._destroyed = broker.timers.at(broker.now, self._destroy)

    def _destroy(self, now: float) -> None:
        log.warning("%s has destroyed itself: there was more in it than it may hold", self._queue.described)
        self._queue.virtual_host.delete_queue(self._queue)

    def _is_over(self, now: float) -> None:
        self._unused = None
        if self._queue.auto_delete and not self._queue.consumers:
            self._queue.virtual_host.delete_queue(self._queue)

    def end(self) -> None:
        """The queue is gone."""
        timers = self._queue.virtual_host.broker.timers
        timers.cancel(self._expires)
        timers.cancel(self._destroyed)
        self.returned()

"""The watch over a peer that takes nothing of what waits for it: after some time its connection is ended."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.server.node.transport import Transport

log: Final = logging.getLogger("leveret.connection")


class SendWatch:
    """Counts the time since the operating system took the last bytes of one connection, while there are more."""

    __slots__ = ("_progress_at", "_timer", "_transport")

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._progress_at = 0.0
        self._timer: Timer | None = None

    def begin(self) -> None:
        """Called when bytes are left that the operating system did not take at once."""
        self.progressed()
        self._watch()

    def progressed(self) -> None:
        """Called when it has taken some."""
        self._progress_at = self._transport.node.broker.clock.now()

    def end(self) -> None:
        """Called when nothing is left."""
        self._transport.node.broker.timers.cancel(self._timer)
        self._timer = None

    def _watch(self) -> None:
        node = self._transport.node
        if timeout_s := node.config.limits.send_timeout_s:
            self._timer = node.broker.timers.at(self._progress_at + timeout_s, self._look)

    def _look(self, now: float) -> None:
        transport = self._transport
        front, timeout_s = transport.front, transport.node.config.limits.send_timeout_s
        if front is not None and (front.blocked or front.throttled or transport.node.suspended):
            self._progress_at = now
        if not timeout_s or now < self._progress_at + timeout_s:
            self._watch()
            return
        waiting = transport.outbox.size
        log.warning(
            "%s: ended, it took nothing of %d bytes for %s s", transport.peer.name, waiting, timeout_s
        )
        transport.reset()

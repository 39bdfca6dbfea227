"""The acknowledgement time-out of a session (like X028): it requeues late deliveries, or ends the session.

The peer is not told of what was requeued: accepts of ids that a session does not hold are passed over anyway. The
credit comes back when the peer completes the transfer, as always. message.acquire of transfers that the session holds
renews them, and its result names those that it still holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.config.compat import TimeoutResponse
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.contract import SessionError
from leveret.protocols.shared.broker.ack_timeouts import AckTimeouts, is_exclusive, is_late, late_text, report

if TYPE_CHECKING:
    from leveret.protocols.amqp010.broker.session import ServedSession


class Timeouts(AckTimeouts):
    """A watch over the unaccepted deliveries of a session."""

    __slots__ = ("_session",)

    def __init__(self, session: ServedSession) -> None:
        super().__init__(session.broker.timers)
        self._session: ServedSession | None = session

    def end(self) -> None:
        self.stop()
        self._session = None

    def check(self, now: float) -> None:
        session = self._session
        if session is None:
            return
        held = session.unsettled.table
        late = {id: delivery for id, delivery in held.items() if is_late(delivery, now)}
        name = session.name.decode("utf-8", "replace")
        requeues = session.broker.compat.consumer_timeout_response is TimeoutResponse.REQUEUE
        if late and not (requeues and not any(is_exclusive(each) for each in late.values())):
            text = late_text(f"session '{name}'", next(iter(late.values())).allowed_s)
            session.fail_soon(SessionError(c.ERROR_CODE_PRECONDITION_FAILED, text))
            return
        report(late.values(), session.client.name, f"session '{name}'")
        for id, delivery in late.items():
            held.pop(id)
            delivery.queue.release(delivery)
        for delivery in held.values():
            self.watch(delivery)

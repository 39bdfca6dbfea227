"""The time a link has for its outcomes (the like of X028): unsettled deliveries in, the end of the link out.

One timer stands on the delivery that will be too old first. It is set when something is delivered and not moved when
that is settled: once it runs, it looks again. So an outcome in time costs nothing, and a batch one comparison.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from broker_core.delivery import Delivery
from protocols.amqp10.codec import performatives as p
from protocols.amqp10.codec.errors import AmqpError

if TYPE_CHECKING:
    from broker_core.clock import Timer
    from protocols.amqp10.broker.consuming import LinkConsumer


class Timeouts:
    """Watches the unsettled deliveries of one link."""

    __slots__ = ("_consumer", "_timer")

    def __init__(self, consumer: LinkConsumer) -> None:
        self._consumer = consumer
        self._timer: Timer | None = None

    def watch(self, delivery: Delivery) -> None:
        """This has been delivered just now, and maybe others with it."""
        allowed = self._allowed_s()
        if allowed is None:
            return
        due, timer = delivery.given_at + allowed, self._timer
        if timer is None or due < timer.at:
            self.stop()
            self._timer = self._consumer.session.broker.timers.at(due, self._check)

    def stop(self) -> None:
        self._consumer.session.broker.timers.cancel(self._timer)
        self._timer = None

    def _allowed_s(self) -> float | None:
        """Seconds: the receiver's own word, else its queue's; None: all the time in the world."""
        consumer = self._consumer
        if consumer.timeout_s is not None:
            return consumer.timeout_s or None
        timeout_ms = consumer.queue.limits.consumer_timeout_ms
        return None if timeout_ms is None else timeout_ms / 1000

    def _check(self, now: float) -> None:
        self._timer = None
        link = self._consumer.link
        oldest = next(chain(link.unsettled.values(), link.unsent), None)
        if oldest is None:
            return
        assert isinstance(oldest, Delivery)
        allowed = self._allowed_s()
        if allowed is not None and oldest.given_at + allowed <= now:
            link.detach(self._error(allowed))
        else:
            self.watch(oldest)

    def _error(self, allowed_s: float) -> AmqpError:
        text = (
            f"delivery acknowledgement on link '{self._consumer.link.name}' timed out. "
            f"Timeout value used: {round(allowed_s * 1000)} ms. "
            "This timeout value can be configured, see consumer_timeout_ms"
        )
        return AmqpError(p.PRECONDITION_FAILED, text)

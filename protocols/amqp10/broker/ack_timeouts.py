"""The acknowledgement time-out of a link (like X028), which ends the link after a late outcome."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from broker_core.delivery import Delivery
from protocols.amqp10.codec import performatives as p
from protocols.amqp10.codec.errors import AmqpError
from protocols.shared.broker.ack_timeouts import AckTimeouts, late_text

if TYPE_CHECKING:
    from protocols.amqp10.broker.consuming import LinkConsumer


class Timeouts(AckTimeouts):
    """A watch over the unsettled deliveries of a link."""

    __slots__ = ("_consumer",)

    def __init__(self, consumer: LinkConsumer) -> None:
        super().__init__(consumer.session.broker.timers)
        self._consumer = consumer

    def allowed_s(self, delivery: Delivery) -> float | None:
        consumer = self._consumer
        if consumer.timeout_s is not None:
            return consumer.timeout_s or None
        timeout_ms = consumer.queue.limits.consumer_timeout_ms
        return None if timeout_ms is None else timeout_ms / 1000

    def check(self, now: float) -> None:
        link = self._consumer.link
        oldest = next(chain(link.unsettled.values(), link.unsent), None)
        if oldest is None:
            return
        assert isinstance(oldest, Delivery)
        if self.is_late(oldest, now):
            text = late_text(f"link '{link.name}'", self.allowed_s(oldest))
            link.detach(AmqpError(p.PRECONDITION_FAILED, text))
        else:
            self.watch(oldest)

"""The acknowledgement time-out of a channel (X028), which ends a late consumer or the channel."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.config.compat import TimeoutResponse
from broker_core.delivery import Delivery
from protocols.amqp091.broker.consumer import ChannelConsumer
from protocols.amqp091.codec import methods as m
from protocols.amqp091.codec.wire import AmqpError
from protocols.shared.broker.ack_timeouts import AckTimeouts, late_text

if TYPE_CHECKING:
    from protocols.amqp091.broker.channel import Channel


class Timeouts(AckTimeouts):
    """A watch over the unanswered deliveries of a channel."""

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel.broker.timers)
        self._channel = channel

    def allowed_s(self, delivery: Delivery) -> float | None:
        consumer = delivery.consumer
        if isinstance(consumer, ChannelConsumer) and consumer.timeout_s is not None:
            return consumer.timeout_s or None
        timeout_ms = delivery.queue.limits.consumer_timeout_ms
        return None if timeout_ms is None else timeout_ms / 1000

    def check(self, now: float) -> None:
        unsettled = self._channel.unsettled
        late = [delivery for delivery in unsettled.values() if self.is_late(delivery, now)]
        if late and not self._cancelled_all(late):
            self._channel.connection.wire.fail_channel(self._channel.number, self._error(late[0]))
        for delivery in unsettled.values():
            self.watch(delivery)

    def _cancelled_all(self, late: list[Delivery]) -> bool:
        """Cancel the late consumers instead of the channel, if the profile and the client allow that. Returns False if
        they do not, or if not every late delivery has such a consumer."""
        if self._channel.broker.compat.consumer_timeout_response is not TimeoutResponse.NOTIFY_CONSUMER:
            return False
        holders = dict.fromkeys(delivery.consumer for delivery in late)
        consumers = [each for each in holders if isinstance(each, ChannelConsumer) and each.attached]
        told = self._channel.connection.wire.has_capability("consumer_cancel_notify")
        if not told or len(consumers) < len(holders):
            return False
        for consumer in consumers:
            self._channel.cancel_late(consumer)
        return True

    def _error(self, late: Delivery) -> AmqpError:
        text = late_text(f"channel {self._channel.number}", self.allowed_s(late))
        return AmqpError(m.PRECONDITION_FAILED, text)

"""The time a channel has for its answers (X028): unanswered deliveries in, the end of a consumer or the channel out.

One timer stands on the delivery that will be too old first. It is set when something is delivered and not moved when
that is answered: once it runs, it looks again. So an answer in time costs nothing, and a delivery one comparison.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.config.compat import TimeoutResponse
from broker_core.delivery import Delivery
from protocols.amqp091.broker.consumer import ChannelConsumer
from protocols.amqp091.codec import methods as m
from protocols.amqp091.codec.wire import AmqpError

if TYPE_CHECKING:
    from broker_core.clock import Timer
    from protocols.amqp091.broker.channel import Channel


class Timeouts:
    """Watches the unanswered deliveries of one channel."""

    __slots__ = ("_channel", "_timer")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._timer: Timer | None = None

    def watch(self, delivery: Delivery) -> None:
        """This has been delivered just now, and maybe others with it to the same consumer."""
        allowed = allowed_s(delivery)
        if allowed is None:
            return
        due, timer = delivery.given_at + allowed, self._timer
        if timer is None or due < timer.at:
            self.stop()
            self._timer = self._channel.broker.timers.at(due, self._check)

    def stop(self) -> None:
        self._channel.broker.timers.cancel(self._timer)
        self._timer = None

    def _check(self, now: float) -> None:
        self._timer = None
        unsettled = self._channel.unsettled
        late = [delivery for delivery in unsettled.values() if is_late(delivery, now)]
        if late and not self._cancelled_all(late):
            self._channel.connection.wire.fail_channel(self._channel.number, self._error(late[0]))
        for delivery in unsettled.values():
            self.watch(delivery)

    def _cancelled_all(self, late: list[Delivery]) -> bool:
        """Where the profile and the client have it so, late consumers end and not the channel. False: not so."""
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
        text = (
            f"delivery acknowledgement on channel {self._channel.number} timed out. "
            f"Timeout value used: {round((allowed_s(late) or 0) * 1000)} ms. "
            "This timeout value can be configured, see consumer_timeout_ms"
        )
        return AmqpError(m.PRECONDITION_FAILED, text)


def is_late(delivery: Delivery, now: float) -> bool:
    allowed = allowed_s(delivery)
    return allowed is not None and delivery.given_at + allowed <= now


def allowed_s(delivery: Delivery) -> float | None:
    """Seconds: the consumer's own word, else its queue's; None: all the time in the world."""
    consumer = delivery.consumer
    if isinstance(consumer, ChannelConsumer) and consumer.timeout_s is not None:
        return consumer.timeout_s or None
    timeout_ms = delivery.queue.limits.consumer_timeout_ms
    return None if timeout_ms is None else timeout_ms / 1000

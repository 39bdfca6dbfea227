"""The acknowledgement time-out of a channel (X028): late deliveries are requeued, or consumers or the channel ended.

A tag that was taken back stays known as late, so that its answer is no error. Until then it uses up its consumer's
prefetch, as it does for the client: a worker that hangs gets no further messages to be late with.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from leveret.config.compat import TimeoutResponse
from leveret.delivery import Consumer, Delivery
from leveret.protocols.amqp091.broker.consumer import ChannelConsumer
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import AmqpError
from leveret.protocols.shared.broker.ack_timeouts import AckTimeouts, is_exclusive, is_late, late_text, report

if TYPE_CHECKING:
    from leveret.protocols.amqp091.broker.channel import Channel

CLOSE_CHANNEL: Final = TimeoutResponse.CLOSE_CHANNEL
NOTIFY_CONSUMER: Final = TimeoutResponse.NOTIFY_CONSUMER

LATE_MAX: Final = 65_536  # late tags of a channel without an answer; with more, the channel is closed


class LateTags:
    """The tags of deliveries that were taken back and are not answered yet."""

    __slots__ = ("_heap", "by_tag")

    def __init__(self) -> None:
        self.by_tag: dict[int, Consumer | None] = {}  # each with the consumer whose credit it uses up, if any
        self._heap: list[int] = []  # of these tags, and some that were answered

    def add(self, tag: int, consumer: Consumer | None) -> None:
        if tag not in self.by_tag:
            heappush(self._heap, tag)
        self.by_tag[tag] = consumer

    def answered(self, tag: int, multiple: bool) -> list[Consumer]:
        """Forget a tag, or all up to this one. Return the consumers that get a credit back, one for each."""
        if not multiple:
            found = [self.by_tag.pop(tag)]
        else:
            found = []
            while self._heap and self._heap[0] <= tag:
                found.append(self.by_tag.pop(heappop(self._heap), None))
        if len(self._heap) > 2 * len(self.by_tag) + 64:
            self._heap = list(self.by_tag)
            heapify(self._heap)
        return [consumer for consumer in found if consumer is not None]

    def charged(self) -> int:
        """Return how many of them use up credit."""
        return sum(consumer is not None for consumer in self.by_tag.values())


class Timeouts(AckTimeouts):
    """A watch over the unanswered deliveries of a channel."""

    __slots__ = ("_channel",)

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel.broker.timers)
        self._channel: Channel | None = channel

    def end(self) -> None:
        self.stop()
        self._channel = None

    def check(self, now: float) -> None:
        channel = self._channel
        if channel is None:
            return
        unsettled = channel.unsettled
        late = {tag: delivery for tag, delivery in unsettled.items() if is_late(delivery, now)}
        if late and not self._answered(channel, late):
            text = late_text(f"channel {channel.number}", next(iter(late.values())).allowed_s)
            error = AmqpError(m.PRECONDITION_FAILED, text)
            channel.connection.wire.fail_channel(channel.number, error)
        for delivery in channel.unsettled.values():
            self.watch(delivery)

    def _answered(self, channel: Channel, late: dict[int, Delivery]) -> bool:
        """Return False if the channel is to be closed."""
        response = channel.broker.compat.consumer_timeout_response
        if response is CLOSE_CHANNEL:
            return False
        deliveries = list(late.values())
        if response is NOTIFY_CONSUMER:
            return self._cancelled_all(channel, deliveries)
        if len(late) + len(channel.late.by_tag) > LATE_MAX:
            return False
        if not self._cancelled_all(channel, [each for each in deliveries if is_exclusive(each)]):
            return False
        left = {tag: delivery for tag, delivery in late.items() if tag in channel.unsettled}
        report(left.values(), channel.client.name, f"channel {channel.number}")
        channel.take_back(left)
        return True

    def _cancelled_all(self, channel: Channel, late: list[Delivery]) -> bool:
        """Cancel the late consumers instead of the channel, if the client allows that. Returns False if it does not, or
        if not every late delivery has such a consumer."""
        holders = dict.fromkeys(delivery.consumer for delivery in late)
        consumers = [each for each in holders if isinstance(each, ChannelConsumer) and each.attached]
        told = channel.connection.wire.has_capability("consumer_cancel_notify")
        if (consumers and not told) or len(consumers) < len(holders):
            return False
        for consumer in consumers:
            channel.cancel_late(consumer)
        return True

"""A consumer of a 0-9-1 channel, which turns deliveries into basic.deliver frames in the connection's outbox.

Most messages look like the one before, but for tag, properties and body. The bytes between these are kept in pieces for
as long as their sizes are the same, and a whole batch is joined once. A large body is not copied.
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, Final

from leveret.delivery import UNLIMITED, Consumer, Delivery, Held, Window
from leveret.message import Message
from leveret.observability.connection_stats import ConsumerFacts
from leveret.protocols.amqp091.broker.encoding import ENCODING, cut, rendered
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.queues.queue import Queue
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.protocols.amqp091.broker.channel import Channel

log: Final = logging.getLogger("leveret.amqp091")

PAUSED: Final = 0
ONE: Final = 1  # byte of room: a single message is taken, however large
LOW: Final = [bytes((low,)) for low in range(256)]  # the last byte of a delivery tag
TAG: Final = Struct(">Q")
SIZE: Final = Struct(">I")
UNLIKE: Final = -1  # no body has this size


class ChannelConsumer(Consumer):
    """The consumer of a basic.consume."""

    __slots__ = (
        "_after",
        "_before",
        "_exchange",
        "_header",
        "_key",
        "_not_redelivered",
        "_prefix",
        "_properties_size",
        "_size",
        "_start",
        "_tail",
        "_target",
        "channel",
        "last_tag",
        "octets",
        "prefetch",
        "prefetch_octets",
        "tag",
    )

    def __init__(
        self,
        channel: Channel,
        queue: Queue,
        tag: str,
        no_ack: bool,
        prefetch: int,
        priority: int,
        exclusive: bool,
        arguments: Table,
    ) -> None:
        if no_ack:  # prefetch is for consumers that acknowledge
            credit, window = UNLIMITED, Window()
        else:
            credit, window = prefetch or UNLIMITED, channel.window
        super().__init__(queue, no_ack, credit, window, priority, exclusive, arguments)
        self.channel = channel
        self.tag = tag
        self.prefetch = 0 if no_ack else prefetch
        self.prefetch_octets = 0  # in bytes; 0 is no limit
        self.octets = 0  # of its unsettled deliveries, if the channel is `sized`
        self.last_tag = 0  # of the deliveries to this consumer
        self._prefix = wire.deliver_prefix(tag)
        self._tail = wire.END + wire.FRAME_START.pack(m.FRAME_BODY, channel.number, 0)[: -SIZE.size]
        # The parts of the last message, because most messages look alike.
        self._exchange = self._key = ""
        self._properties_size = self._size = UNLIKE  # the size is that of the body
        self._target = self._start = self._not_redelivered = b""
        self._header = b""  # the beginning of a header frame with properties of that size
        self._before = self._after = (
            b""  # around the properties; empty if the message is not joined with others
        )

    @property
    def suspended(self) -> bool:
        return not self.channel.flowing

    def facts(self) -> ConsumerFacts:
        channel = self.channel
        return ConsumerFacts(
            tag=self.tag, connection=channel.client.name, channel=channel.number, prefetch=self.prefetch
        )

    def unanswered(self) -> Held:
        return self.channel.unsettled

    def room(self) -> int:
        channel = self.channel
        room = channel.outbox.room() if channel.flowing else PAUSED
        if self.settled and channel.global_qos and channel.window.credit <= 0:
            # It uses none of the channel's prefetch, but waits while others have used it up; replies pass no limiter.
            return room if self is channel.reply_consumer else PAUSED
        if room > 0 and (self.bounds or channel.sized) and not self.settled:
            return ONE if self.may_take_more() and channel.fits(self) else PAUSED
        return room

    def deliver(self, deliveries: list[Delivery]) -> None:
        channel = self.channel
        if channel.sized and not self.settled:
            channel.weigh(deliveries, 1)
        out = channel.outbox.open()
        tag = channel.last_tag
        sent = deliveries
        pieces: list[bytes] = []  # to be joined; each message's last byte comes with the next message
        octets, head_of, head = 0, -1, b""
        for delivery in deliveries:
            message = delivery.message
            properties, body = message.properties, message.body
            if message.notes is not None or delivery.attempts or message.encoding is not ENCODING:
                try:
                    properties, body = rendered(message, delivery.counted_attempts)
                except Exception:  # the fault of another protocol's encoding: deliver the others
                    self._refuse(delivery)
                    sent = [each for each in sent if each is not delivery]
                    continue
            tag += 1
            if (
                message.key is not self._key
                or message.exchange is not self._exchange
                or len(properties) != self._properties_size
                or len(body) != self._size
            ):
                start = self._start
                self._fit(message, len(properties), len(body))
                if self._start is not start:
                    head_of = -1
            if not self._before:
                octets += end_of(pieces, out)
                method = self._prefix + wire.DELIVERY.pack(tag, delivery.redelivered) + self._target
                octets += wire.append_content(
                    out, channel.number, method, properties, body, channel.frame_max
                )
                continue
            if tag >> 8 != head_of:
                head_of = tag >> 8
                head = wire.END + self._start + TAG.pack(tag)[:7]
            pieces.append(head)
            pieces.append(LOW[tag & 255])
            pieces.append(self._before if not delivery.redelivered else b"\x01" + self._before[1:])
            pieces.append(properties)
            pieces.append(self._after)
            pieces.append(body)
        octets += end_of(pieces, out)
        if self.settled:
            channel.delivered_settled += len(sent)
        else:
            channel.unsettled.add_all(channel.last_tag + 1, sent)
        channel.last_tag = self.last_tag = tag
        channel.outbox.wrote(octets)
        if not self.settled:
            channel.timeouts.watch(deliveries[0])

    def _refuse(self, delivery: Delivery) -> None:
        """Reject a message whose properties cannot be read, or it would be redelivered for ever."""
        log.exception("cannot deliver a message of %s to '%s'", delivery.queue.described, self.tag)
        if not self.settled:
            self.credit += 1
            self.window.credit += 1
            delivery.reject()

    def _fit(self, message: Message, properties_size: int, size: int) -> None:
        """Build the bytes around the tag, the properties and the body of this message, as far as those of the last one
        differ. Of large ones nothing is kept."""
        number = self.channel.number
        exchange, key = message.exchange, message.key
        if exchange != self._exchange or key != self._key or self._start == b"":
            size_before = len(self._target)
            self._target = wire.deliver_target(cut(exchange), cut(key))
            if len(self._target) != size_before:
                method_size = len(self._prefix) + wire.DELIVERY.size + len(self._target)
                self._start = wire.FRAME_START.pack(m.FRAME_METHOD, number, method_size) + self._prefix
            self._not_redelivered = b"\x00" + self._target + wire.END
        if properties_size != self._properties_size:
            self._header = wire.header_start(number, properties_size, 0)[: -SIZE.size]
        self._exchange, self._key = exchange, key
        self._properties_size, self._size = properties_size, size
        if properties_size > wire.REPEATED_MAX or not wire.is_small(size, self.channel.frame_max):
            self._before = b""
            return
        octets = SIZE.pack(size)
        self._before = self._not_redelivered + self._header + octets
        self._after = self._tail + octets

    def cancelled(self) -> None:
        self.channel.consumer_cancelled(self)

    def end_as_slow(self, why: str) -> None:
        self.channel.end_slow(self, why)


def end_of(pieces: list[bytes], out: list[bytes]) -> int:
    """Join the pieces, without the frame end in front of the first message and with that of the last. Return the
    size."""
    if not pieces:
        return 0
    pieces[0] = pieces[0][1:]
    pieces.append(wire.END)
    joined = b"".join(pieces)
    pieces.clear()
    out.append(joined)
    return len(joined)

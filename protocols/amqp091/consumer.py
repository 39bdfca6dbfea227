"""A consumer of a 0-9-1 channel: deliveries become basic.deliver frames in the connection's outbox."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from broker_core.delivery import UNLIMITED, Consumer, Delivery, Window
from broker_core.message import Message
from broker_core.queue import Queue
from broker_core.values import Table
from broker_core.watching.facts import ConsumerFacts
from protocols.amqp091 import wire
from protocols.amqp091.encoding import ENCODING, cut, rendered

if TYPE_CHECKING:
    from protocols.amqp091.channel import Channel

log: Final = logging.getLogger("leveret.amqp091")

PAUSED: Final = 0


class ChannelConsumer(Consumer):
    """One basic.consume."""

    __slots__ = (
        "_exchange",
        "_key",
        "_prefix",
        "_target",
        "channel",
        "last_tag",
        "prefetch",
        "tag",
        "timeout_s",
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
        if no_ack:  # prefetch is for those who answer
            credit, window = UNLIMITED, Window()
        else:
            credit, window = prefetch or UNLIMITED, channel.window
        super().__init__(queue, no_ack, credit, window, priority, exclusive, arguments)
        self.channel = channel
        self.tag = tag
        self.prefetch = 0 if no_ack else prefetch
        self.last_tag = 0  # of the deliveries it got
        self.timeout_s: float | None = None  # to acknowledge in, if the consumer asked for its own
        self._prefix = wire.deliver_prefix(tag)
        self._exchange = self._key = ""
        self._target = wire.deliver_target("", "")  # of the last message: most look alike

    @property
    def suspended(self) -> bool:
        return not self.channel.flowing

    def facts(self) -> ConsumerFacts:
        channel = self.channel
        return ConsumerFacts(
            tag=self.tag, connection=channel.client.name, channel=channel.number, prefetch=self.prefetch
        )

    def room(self) -> int:
        channel = self.channel
        return channel.outbox.room() if channel.flowing else PAUSED

    def deliver(self, deliveries: list[Delivery]) -> None:
        channel = self.channel
        out = channel.outbox.open()
        tag = channel.last_tag
        unsettled = None if self.settled else channel.unsettled
        pack = wire.DELIVERY.pack
        size = 0
        for delivery in deliveries:
            message = delivery.message
            properties, body = message.properties, message.body
            if message.notes is not None or delivery.attempts or message.encoding is not ENCODING:
                try:
                    properties, body = rendered(message, delivery.counted_attempts)
                except Exception:  # another protocol's encoding is at fault: others still get their messages
                    self._refuse(delivery)
                    continue
            tag += 1
            if unsettled is not None:
                unsettled[tag] = delivery
            if message.exchange != self._exchange or message.key != self._key:
                self._aim(message)
            method = self._prefix + pack(tag, delivery.redelivered) + self._target
            size += wire.append_content(out, channel.number, method, properties, body, channel.frame_max)
        if unsettled is None:
            channel.delivered_settled += tag - channel.last_tag
        channel.last_tag = self.last_tag = tag
        channel.outbox.wrote(size)
        if unsettled is not None:
            channel.timeouts.watch(deliveries[0])

    def _refuse(self, delivery: Delivery) -> None:
        """A message whose properties cannot be read is rejected, or it would come back for ever."""
        log.exception("cannot deliver a message of %s to '%s'", delivery.queue.described, self.tag)
        if not self.settled:
            self.credit += 1
            self.window.credit += 1
            delivery.reject()

    def _aim(self, message: Message) -> None:
        self._exchange, self._key = message.exchange, message.key
        self._target = wire.deliver_target(cut(message.exchange), cut(message.key))

    def cancelled(self) -> None:
        self.channel.consumer_cancelled(self)

"""The handler of messages and acks on the channels of a 0-9-1 connection.

It is the hot path, and apart from the adapter so that it can be compiled.
"""

from __future__ import annotations

from leveret.broker import WORK_MAX, Broker
from leveret.errors import Failure
from leveret.protocols.amqp091.broker.channel import Channel
from leveret.protocols.amqp091.broker.errors import reply
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.machine.connection import Connection
from leveret.protocols.amqp091.machine.contract import Run, Traffic


class TrafficHandler(Traffic):
    """A dispatcher of messages and acks to the adapter's channels."""

    __slots__ = ("_broker", "_channels", "wire")

    def __init__(self, broker: Broker, channels: dict[int, Channel]) -> None:
        self._broker = broker
        self._channels = channels
        self.wire: Connection | None = None  # set before any input

    def on_publish(self, channel: int, publish: bytes, properties: bytes, body: bytes) -> None:
        try:
            self._channels[channel].publishing.publish(publish, properties, body)
        except Failure as failure:
            raise reply(failure, m.BasicPublish.class_id, m.BasicPublish.method_id) from None
        if self._broker.work > WORK_MAX:
            self._halt()

    def on_begun(self, channel: int, publish: bytes) -> None:
        try:
            self._channels[channel].publishing.check(publish)
        except Failure as failure:
            raise reply(failure, m.BasicPublish.class_id, m.BasicPublish.method_id) from None

    def on_run(self, channel: int, run: Run, first: int) -> int:
        taken = self._channels[channel].publishing.publish_run(run, first)
        if self._broker.work > WORK_MAX:
            self._halt()
        return taken

    def on_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        try:
            acked = self._channels[channel]
            acked.ack(acked.tags(delivery_tag, multiple))
        except Failure as failure:
            raise reply(failure, m.BasicAck.class_id, m.BasicAck.method_id) from None

    def on_acks(self, channel: int, tags: list[int]) -> None:
        try:
            self._channels[channel].ack(tags)
        except Failure as failure:
            raise reply(failure, m.BasicAck.class_id, m.BasicAck.method_id) from None

    def _halt(self) -> None:
        """Halt, to give other connections a turn."""
        assert self.wire is not None, "it was set"
        self.wire.halted = True

"""Messages of other protocols on their way to 0-9-1 consumers: converted through neutral properties."""

from __future__ import annotations

import logging

import pytest

from broker_core.message import Encoding, Facts, Message
from broker_core.values import Properties, Table
from protocols.amqp091 import methods as m
from tests.amqp091.peer import World


class Neutral(Encoding):
    """An encoding whose bytes do not matter."""

    name = "neutral"

    def __init__(self, properties: Properties | None) -> None:
        self.properties = properties
        self.reads = 0

    def headers(self, properties: bytes) -> Table:
        return self.read(properties).headers or {}

    def read(self, properties: bytes) -> Properties:
        self.reads += 1
        if self.properties is None:
            raise ValueError("a mistake in another protocol")
        return self.properties

    def write(self, properties: Properties) -> bytes:
        return b""


def publish(world: World, encoding: Encoding, body: bytes) -> None:
    world.broker.publish(world.host.default_exchange, Message(encoding, "", "q", b"", body, Facts()))
    world.settle()


def test_properties_arrive_under_their_names() -> None:
    world = World()
    channel = world.channel()
    channel.declare("q")
    said = Properties(content_type="text/plain", headers={"n": 1}, durable=True, ttl_ms=5000, message_id="m1")
    publish(world, Neutral(said), b"hello")
    content = channel.get("q")
    assert content is not None
    assert content.body == b"hello"
    properties = content.properties
    assert (properties.content_type, properties.headers, properties.message_id) == (
        "text/plain",
        {"n": 1},
        "m1",
    )
    assert (properties.delivery_mode, properties.expiration) == (2, "5000")


def test_one_conversion_serves_all_consumers() -> None:
    world = World()
    encoding = Neutral(Properties(message_id="m1"))
    channels = [world.channel() for _ in range(3)]
    for number, channel in enumerate(channels):
        channel.declare(f"q{number}")
        channel.call(m.QueueBind(f"q{number}", "amq.fanout"))
        channel.consume(f"q{number}")
    exchange = world.host.exchanges["amq.fanout"]
    world.broker.publish(exchange, Message(encoding, "amq.fanout", "", b"", b"x", Facts()))
    world.settle()
    assert [len(channel.deliveries()) for channel in channels] == [1, 1, 1]
    assert encoding.reads == 1


@pytest.mark.parametrize("shared", [False, True])
def test_a_message_that_cannot_be_converted_is_rejected_and_the_others_arrive(
    shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = World()
    channel = world.channel()
    channel.declare("dead")
    channel.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    channel.prefetch(2, of_channel=shared)
    channel.consume("q")
    with caplog.at_level(logging.ERROR):
        publish(world, Neutral(None), b"bad")
        publish(world, Neutral(Properties()), b"good")
        publish(world, Neutral(Properties()), b"better")
    delivered = channel.deliveries()
    assert [content.body for content in delivered] == [b"good", b"better"]
    assert [content.method.delivery_tag for content in delivered] == [1, 2]
    assert world.queue("dead").ready == 1
    assert world.queue("q").unsettled == 2
    assert "cannot deliver" in caplog.text

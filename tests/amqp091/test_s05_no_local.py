"""No-local over AMQP 0-9-1: profile `spec` serves it; else it is ignored, as by RabbitMQ, and that is told once."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from tests.amqp091.peer import ClientChannel, channel_of
from tests.harness.bench import ClientBench

SPEC = '[compat]\nprofile = "spec"'


def consumed(channel: ClientChannel) -> ClientChannel:
    channel.consume("q", "c", no_local=True, no_ack=True)
    return channel


def bodies(channel: ClientChannel) -> list[bytes]:
    return [content.body for content in channel.deliveries()]


def test_a_consumer_does_not_get_what_its_connection_publishes_and_others_do() -> None:
    bench = ClientBench(SPEC)
    mine, other = channel_of(bench), channel_of(bench)
    mine.declare("q")
    mine.publish("", "q", b"before")
    consumed(mine)
    second = mine.peer.channel(2)  # of the same connection
    for number in range(3):
        second.publish("", "q", b"mine %d" % number)
        other.publish("", "q", b"other %d" % number)
    assert bodies(mine) == [b"other 0", b"other 1", b"other 2"]
    assert bench.host.queues["q"].ready == 4
    other.consume("q")
    assert bodies(other) == [b"before", b"mine 0", b"mine 1", b"mine 2"]


def test_what_comes_back_is_still_local() -> None:
    bench = ClientBench(SPEC)
    mine, other = channel_of(bench), channel_of(bench)
    mine.declare("q")
    consumed(mine)
    mine.publish("", "q", b"mine")
    other.consume("q")
    (got,) = other.deliveries()
    assert got.body == b"mine"
    other.peer.drop()
    bench.settle()
    assert bodies(mine) == []
    assert bench.host.queues["q"].ready == 1


def test_a_stream_does_not_know_connections() -> None:
    channel = channel_of(ClientBench(SPEC))
    channel.declare("q", durable=True, arguments={"x-queue-type": "stream"})
    channel.prefetch(1)
    text = channel.peer.closed_with(channel.number, m.BasicConsume("q", "c", no_local=True))
    assert text == "540 NOT_IMPLEMENTED - no-local not supported by stream queue 'q' in vhost '/'"


@pytest.mark.parametrize("profile", ["default", "rabbitmq-3.13", "rabbitmq-4"])
def test_elsewhere_it_is_ignored_and_that_is_told_once(profile: str) -> None:
    bench = ClientBench(f'[compat]\nprofile = "{profile}"\ntransient_queues = "allow"')
    told: list[str] = []
    bench.broker.notices.tell = told.append
    for name in ("q", "again"):
        channel = channel_of(bench)
        channel.declare("q")
        channel.consume("q", name, no_local=True, no_ack=True)
        channel.publish("", "q", b"mine")
        assert bodies(channel) == [b"mine"]
        channel.call(m.BasicCancel(name))
    assert told == [
        "consumer of queue 'q' in vhost '/': no-local has no effect, unless the row no_local of [compat] is true"
    ]

"""Profile `spec` over real sockets: what AMQP 0-9-1 has and RabbitMQ refuses, with pika."""

from __future__ import annotations

import pika
import pytest
from pika import exceptions
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.conftest import RunningNode, Start
from tests.interop.test_pika_blocking import connecting

pytestmark = pytest.mark.interop

SPEC = 'compat.profile = "spec"'


@pytest.fixture
def node(node_with: Start) -> RunningNode:
    return node_with(SPEC)


@pytest.fixture
def channel(node: RunningNode):
    for connect in connecting(node):
        yield connect().channel()


def taken(channel: BlockingChannel, queue: str = "q") -> list[tuple[bytes, bool, str]]:
    """What comes to consumers within half a second without a message: body, redelivered, consumer tag."""
    found = []
    for method, _, body in channel.consume(queue, inactivity_timeout=0.5):
        if method is None:
            break
        found.append((body, method.redelivered, method.consumer_tag))
    return found


def test_s101_a_prefetch_in_bytes_limits_what_is_sent_in_advance(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    for size in (40, 50, 20):
        channel.basic_publish("", "q", bytes(size))
    channel.basic_qos(prefetch_size=100)
    assert [len(body) for body, _, _ in taken(channel)] == [40, 50]


def test_s111_recover_without_requeue_sends_messages_to_their_consumer_again(
    channel: BlockingChannel,
) -> None:
    channel.queue_declare("q")
    for body in (b"a", b"b"):
        channel.basic_publish("", "q", body)
    (*_, (_, redelivered, tag)) = taken(channel)
    assert not redelivered
    channel.basic_recover(requeue=False)
    assert taken(channel) == [(b"a", True, tag), (b"b", True, tag)]


def test_s114_s082_s036_priorities_overflow_and_the_default_exchange(channel: BlockingChannel) -> None:
    channel.queue_declare("q", arguments={"x-max-length": 1})
    channel.queue_bind("q", "", "also-q")
    for priority in (4, 5):
        properties = pika.BasicProperties(priority=priority, delivery_mode=2)
        channel.basic_publish("", "also-q", b"%d" % priority, properties)
    assert [channel.basic_get("q", auto_ack=True)[2] for _ in range(2)] == [b"5", b"4"]


def test_s042_names_are_the_specifications(channel: BlockingChannel) -> None:
    with pytest.raises(exceptions.ChannelClosedByBroker, match="is not one of up to 127 letters") as closed:
        channel.queue_declare("a queue")
    assert closed.value.reply_code == 406


def test_what_durable_queues_have_survives_a_restart(node: RunningNode, tmp_path, node_with: Start) -> None:
    settings = f'{SPEC}\nnode.data_dir = "{tmp_path}"'
    for attempt in range(2):
        durable = node_with(settings)
        for connect in connecting(durable):
            channel = connect().channel()
            if attempt == 0:
                channel.confirm_delivery()
                channel.queue_declare("q", durable=True, arguments={"x-max-length": 1})
                channel.queue_bind("q", "", "also-q")
                for priority in (0, 9, 4):
                    properties = pika.BasicProperties(priority=priority, delivery_mode=2)
                    channel.basic_publish("", "also-q", b"%d" % priority, properties)
            else:
                channel.basic_publish("", "also-q", b"5", pika.BasicProperties(priority=5, delivery_mode=2))
                found = [channel.basic_get("q", auto_ack=True)[2] for _ in range(4)]
                assert found == [b"9", b"5", b"0", b"4"]
        durable.stop()

"""Exchange types that come as plug-ins, as pika uses them, and their bindings after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.interop.conftest import RunningNode, Start

pytestmark = pytest.mark.interop


@contextmanager
def channel_of(node: RunningNode) -> Iterator[BlockingChannel]:
    """A channel that confirms, of a connection of its own."""
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def test_a_local_random_exchange_gives_each_request_to_one_of_its_queues(node_with: Start, tmp_path: Path):
    node = node_with(f'[node]\ndata_dir = "{tmp_path}/data"\n')
    with channel_of(node) as channel:
        channel.exchange_declare("rpc", "x-local-random", durable=True)
        for name in ("a", "b"):
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "rpc", routing_key="")
        channel.queue_declare("replicated", durable=True, arguments={"x-queue-type": "quorum"})
        with pytest.raises(ChannelClosedByBroker) as refused:
            channel.queue_bind("replicated", "rpc", routing_key="")
    assert refused.value.args == (
        406,
        "PRECONDITION_FAILED - Queue type rabbit_quorum_queue not valid for this exchange type",
    )
    node.stop()
    node.start()
    with channel_of(node) as channel:
        for _ in range(40):
            channel.basic_publish("rpc", "whatever", b"request", mandatory=True)
        with pytest.raises(ChannelClosedByBroker, match="Non empty binding 'key' key not permitted"):
            channel.queue_bind("a", "rpc", routing_key="key")
    assert node.ready("a") + node.ready("b") == 40
    assert 0 < node.ready("a") < 40
    assert node.ready("replicated") == 0


def test_a_super_stream_is_made_and_read_over_amqp(node_with: Start, tmp_path: Path):
    """Related messages stay in one partition, whose offsets begin where the client said, also after a restart."""
    node = node_with(f'[node]\ndata_dir = "{tmp_path}/data"\n')
    arguments = {"x-queue-type": "stream", "x-stream-initial-offset": 500}
    with channel_of(node) as channel:
        channel.exchange_declare("events", "x-super-stream", durable=True, arguments={"x-super-stream": True})
        for number in range(3):
            channel.queue_declare(f"events-{number}", durable=True, arguments=arguments)
            order = {"x-stream-partition-order": number}
            channel.queue_bind(f"events-{number}", "events", routing_key=str(number), arguments=order)
    node.stop()
    node.start()
    with channel_of(node) as channel:
        for number in range(60):
            channel.basic_publish("events", f"customer {number % 20}", b"%d" % number, mandatory=True)
        channel.basic_qos(prefetch_count=100)
        found: dict[int, int] = {}
        for partition in range(3):
            count = node.ready(f"events-{partition}")
            for offset in range(500, 500 + count):
                arguments = {"x-stream-offset": offset}
                method, properties, body = next(channel.consume(f"events-{partition}", arguments=arguments))
                assert properties.headers["x-stream-offset"] == offset
                found[int(body)] = partition
                channel.basic_ack(method.delivery_tag)
                channel.cancel()
    assert sorted(found) == list(range(60))
    assert all(found[number] == found[number % 20] for number in found)
    assert len(set(found.values())) == 3

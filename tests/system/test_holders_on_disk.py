"""Streams and delayed messages over real sockets, on a real disk, before and after the node."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from leveret import ThreadedNode, embedded

pytestmark = pytest.mark.system

PERSISTENT = pika.BasicProperties(delivery_mode=2, priority=3, headers={"n": 1})


def node(folder: Path) -> ThreadedNode:
    return ThreadedNode(embedded({"node": {"data_dir": str(folder)}}))


def channel_to(node: ThreadedNode) -> tuple[pika.BlockingConnection, BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    channel = connection.channel()
    channel.confirm_delivery()
    return connection, channel


def test_a_stream_is_read_on_where_it_was_left(tmp_path: Path):
    with node(tmp_path) as before:
        connection, channel = channel_to(before)
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        for body in (b"a", b"b"):
            channel.basic_publish("", "s", body, PERSISTENT)
        connection.close()
    with node(tmp_path) as after:
        connection, channel = channel_to(after)
        channel.basic_publish("", "s", b"c")
        channel.basic_qos(prefetch_count=10)
        seen = []
        for method, properties, body in channel.consume("s", arguments={"x-stream-offset": 1}):
            seen.append((properties.headers["x-stream-offset"], body, properties.priority))
            channel.basic_ack(method.delivery_tag)
            if len(seen) == 2:
                break
        assert seen == [(1, b"b", 3), (2, b"c", None)]
        connection.close()


def test_a_delayed_message_comes_after_a_restart_and_once(tmp_path: Path):
    later = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 1})
    much_later = pika.BasicProperties(delivery_mode=2, headers={"x-delay": 3_600_000})
    with node(tmp_path) as before:
        connection, channel = channel_to(before)
        channel.exchange_declare(
            "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
        )
        channel.basic_publish("later", "", b"tomorrow", much_later)
        connection.close()
    with node(tmp_path) as after:
        connection, channel = channel_to(after)
        channel.queue_declare("q", durable=True)
        channel.queue_bind("q", "later")
        channel.basic_publish("later", "", b"soon", later)
        method, properties, body = next(channel.consume("q"))
        assert (body, properties.headers, method.redelivered) == (b"soon", {"x-delay": 1}, False)
        exchange = after.node.broker.virtual_host("/").exchanges["later"]
        held = after.call(lambda: [held.message.body for held in exchange.holding.held])
        assert held == [b"tomorrow"]
        connection.close()

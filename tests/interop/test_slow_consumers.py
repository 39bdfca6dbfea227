"""Slow consumers over real sockets: pika is cancelled, proton detached, a session of 0-10 ended; all is in the API."""

from __future__ import annotations

import pika
import pytest
from proton.utils import LinkDetached

from tests.interop.conftest import RunningNode, Start, wait_until
from tests.interop.proton_peer import connect
from tests.interop.test_binding_selectors import HTTP, asked

pytestmark = pytest.mark.interop

ARGUMENTS = {"x-slow-consumer-threshold": 60, "x-slow-consumer-check-period": 100}


@pytest.fixture
def node(node_with: Start) -> RunningNode:
    return node_with(HTTP)


def declared(node: RunningNode, **arguments: object) -> pika.BlockingConnection:
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
    channel = connection.channel()
    channel.queue_declare("q", arguments={**ARGUMENTS, **arguments})
    for _ in range(5):
        channel.basic_publish("", "q", b"m")
    return connection


def test_a_slow_consumer_is_marked_where_operators_look(node: RunningNode) -> None:
    connection = declared(node)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    channel.basic_consume("q", lambda *_: None)

    def is_marked() -> bool:
        connection.process_data_events()
        consumers = asked(node, "GET", "/api/consumers")
        assert isinstance(consumers, list)
        return consumers[0]["slow"] is True

    wait_until(is_marked, "the consumer is found to be slow")
    assert channel.is_open
    connection.close()


def test_pika_is_cancelled(node: RunningNode) -> None:
    connection = declared(node, **{"x-slow-consumer-policy": "close"})
    channel = connection.channel()
    channel.basic_qos(prefetch_count=1)
    ended: list[object] = []
    channel.add_on_cancel_callback(ended.append)
    channel.basic_consume("q", lambda *_: None)

    def is_ended() -> bool:
        connection.process_data_events(0.02)
        return bool(ended)

    wait_until(is_ended, "the consumer is cancelled")
    assert node.ready("q") == 5
    assert channel.is_open
    connection.close()


def test_proton_is_detached(node: RunningNode) -> None:
    declared(node, **{"x-slow-consumer-policy": "close"}).close()
    connection = connect(node)
    receiver = connection.create_receiver("/queues/q", credit=1)
    assert receiver.receive(timeout=30).body == b"m"
    with pytest.raises(LinkDetached, match=r"amqp:link:detach-forced.*took 0 messages"):
        connection.wait(lambda: False, timeout=30)
    connection.create_receiver("/queues/q", name="again", credit=1)  # the connection and its session go on
    connection.close()
    wait_until(lambda: node.ready("q") == 5, "all messages are back")

"""Clients over real sockets whose messages have ids: each is delivered once, whatever protocol it comes by."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pika
import proton
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.conftest import RunningNode, Start
from tests.interop.proton_peer import connect

pytestmark = pytest.mark.interop

SWITCH: Final = {"x-message-deduplication": True}
ID: Final = "x-deduplication-header"


@pytest.fixture
def node(node_with: Start, tmp_path: Path) -> RunningNode:
    return node_with(f'[node]\ndata_dir = "{tmp_path}/data"\n')


@contextmanager
def channel_of(node: RunningNode) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        yield connection.channel()


def publish(channel: BlockingChannel, exchange: str, id_: object, body: bytes, key: str = "") -> None:
    properties = pika.BasicProperties(delivery_mode=2, headers={ID: id_})
    channel.basic_publish(exchange, key, body, properties, mandatory=True)


def drained(channel: BlockingChannel, queue: str) -> list[bytes]:
    found: list[bytes] = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def declare(channel: BlockingChannel) -> None:
    channel.exchange_declare("x", "topic", durable=True, arguments={**SWITCH, "x-cache-size": 1000})
    channel.queue_declare("q", durable=True)
    channel.queue_bind("q", "x", "#")


def send_by_proton(node: RunningNode, address: str, *messages: proton.Message) -> None:
    connection = connect(node)
    sender = connection.create_sender(address)
    for message in messages:
        sender.send(message)  # which waits for the outcome, and raises if it is not `accepted`
    connection.close()


def test_a_message_is_delivered_once_by_whatever_protocol_it_comes(node: RunningNode) -> None:
    with channel_of(node) as channel:
        declare(channel)
        channel.confirm_delivery()
        for _ in range(2):
            publish(channel, "x", "order-1", b"one")
            publish(channel, "x", 7, b"seven")
        again = proton.Message(body=b"again", durable=True, properties={ID: "order-1"})
        noted = proton.Message(body=b"noted", durable=True, annotations={proton.symbol(ID): "order-2"})
        seven = proton.Message(body=b"again", durable=True, properties={ID: proton.ulong(7)})
        send_by_proton(node, "/exchanges/x/k", again, noted, noted, seven)
        publish(channel, "x", "order-2", b"again")
        assert len(drained(channel, "q")) == 3


def test_ids_are_known_after_a_restart(node: RunningNode) -> None:
    with channel_of(node) as channel:
        declare(channel)
        channel.confirm_delivery()
        publish(channel, "x", "a", b"a")
        channel.queue_declare("present", durable=True, arguments=SWITCH)
        publish(channel, "", "p", b"p", "present")
    node.stop()
    node.start()
    with channel_of(node) as channel:
        channel.confirm_delivery()
        for _ in range(2):
            publish(channel, "x", "a", b"again")
            publish(channel, "x", "b", b"b")
            publish(channel, "", "p", b"again", "present")
        assert (drained(channel, "q"), drained(channel, "present")) == ([b"a", b"b"], [b"p"])
        publish(channel, "", "p", b"new", "present")
        assert drained(channel, "present") == [b"new"]


def test_transactions_of_a_client_leave_ids_only_when_they_are_committed(node: RunningNode) -> None:
    with channel_of(node) as channel:
        declare(channel)
        channel.tx_select()
        publish(channel, "x", "a", b"rolled back")
        channel.tx_rollback()
        for _ in range(2):
            publish(channel, "x", "a", b"a")
        channel.tx_commit()
    with channel_of(node) as channel:
        assert drained(channel, "q") == [b"a"]


def test_the_type_of_the_plugin_is_there_and_needs_a_size(node: RunningNode) -> None:
    with channel_of(node) as channel:
        channel.exchange_declare(
            "d", "x-message-deduplication", arguments={"x-cache-size": 5, "x-cache-ttl": 60_000}
        )
        channel.queue_declare("q")
        channel.queue_bind("q", "d", "any")
        channel.confirm_delivery()
        for _ in range(3):
            publish(channel, "d", "a", b"a", "other")
        assert drained(channel, "q") == [b"a"]
    with channel_of(node) as channel:
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            channel.exchange_declare("e", "x-message-deduplication")
        assert refused.value.reply_code == 406

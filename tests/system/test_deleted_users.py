"""The connections of a user that is deleted are closed, in every AMQP, and say why; those of others go on."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pika.exceptions
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from leveret import ThreadedNode
from leveret.config.config import parse

pytestmark = pytest.mark.system

CONFIG = {"listeners": [{"address": "127.0.0.1:0"}], "http": {"enabled": False}}
WHY = "user 'ann' was deleted"


@pytest.fixture
def node() -> Iterator[ThreadedNode]:
    def put() -> None:
        access = running.node.broker.access
        access.add_user("ann", "secret")
        access.set_permissions("ann", "/", ".*", ".*", ".*")

    with ThreadedNode(parse(CONFIG)) as running:
        running.call(put)
        yield running


def delete(node: ThreadedNode) -> None:
    node.call(lambda: node.node.broker.access.delete_user("ann"))


def parameters(node: ThreadedNode, user: str, password: str) -> pika.ConnectionParameters:
    return pika.ConnectionParameters(
        "127.0.0.1", node.port, credentials=pika.PlainCredentials(user, password)
    )


def test_connections_of_0_9_1(node: ThreadedNode) -> None:
    other = pika.BlockingConnection(parameters(node, "guest", "guest"))
    connection = pika.BlockingConnection(parameters(node, "ann", "secret"))
    channel = connection.channel()
    channel.queue_declare("mine", exclusive=True)
    delete(node)
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        channel.queue_declare("mine", exclusive=True)
    assert (closed.value.reply_code, WHY in closed.value.reply_text) == (320, True)
    other.channel().queue_declare("mine", exclusive=True)
    other.close()


def test_connections_of_1_0(node: ThreadedNode) -> None:
    connection = BlockingConnection(f"amqp://ann:secret@127.0.0.1:{node.port}")
    node.call(lambda: node.node.broker.virtual_hosts["/"].declare_queue("q"))
    receiver = connection.create_receiver("/queues/q")
    delete(node)
    with pytest.raises(ConnectionException, match=WHY):
        receiver.receive(timeout=30)

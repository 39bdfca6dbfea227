"""Direct replies over AMQP 1.0, and between it and 0-9-1: proton and pika as requesters and responders."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import unquote

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from proton import Link, Message, Terminus, symbol
from proton.reactor import LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached

from tests.interop.conftest import RunningNode
from tests.interop.proton_peer import connect, data

pytestmark = pytest.mark.interop

REQUESTS = "/queues/requests"
PREFIX = "/queues/amq.rabbitmq.reply-to."


class Volatile(LinkOption):
    """Asks for direct replies, as RabbitMQ's documentation says."""

    def __init__(self, settled: bool = True) -> None:
        self.settled = settled

    def apply(self, link: Link) -> None:
        link.source.capabilities.put_object(symbol("rabbitmq:volatile-queue"))
        link.source.expiry_policy = Terminus.EXPIRE_WITH_LINK
        link.snd_settle_mode = Link.SND_SETTLED if self.settled else Link.SND_UNSETTLED


@pytest.fixture
def requester(node: RunningNode) -> Iterator[BlockingConnection]:
    node.declare("requests")
    connection = connect(node)
    yield connection
    connection.close()


@pytest.fixture
def responder(node: RunningNode) -> Iterator[BlockingConnection]:
    connection = connect(node)
    yield connection
    connection.close()


@pytest.fixture
def channel(node: RunningNode) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        yield connection.channel()


def replies_of(requester: BlockingConnection) -> tuple[BlockingReceiver, str]:
    replies = requester.create_receiver(None, credit=10, dynamic=True, options=[Volatile()])
    address = replies.link.remote_source.address
    assert address.startswith(PREFIX)
    told = replies.link.remote_source.capabilities
    told.rewind()
    told.next()
    assert "rabbitmq:volatile-queue" in str(told.get_object())
    return replies, address


def request(requester: BlockingConnection, address: str) -> None:
    asked = data(b"ping")
    asked.id, asked.reply_to = "1", address
    requester.create_sender(REQUESTS).send(asked)


def taken(responder: BlockingConnection) -> Message:
    receiver = responder.create_receiver(REQUESTS)
    message = receiver.receive()
    receiver.accept()
    receiver.close()
    return message


@pytest.mark.parametrize("anonymous", [True, False])
def test_a_request_is_answered_without_a_queue(
    node: RunningNode, requester: BlockingConnection, responder: BlockingConnection, anonymous: bool
):
    replies, address = replies_of(requester)
    assert node.queue_names() == ["requests"]
    request(requester, address)
    asked = taken(responder)
    assert asked.reply_to == address
    answer = data(b"pong")
    answer.correlation_id = asked.id
    if anonymous:
        answer.address = address
    responder.create_sender(None if anonymous else address).send(answer)  # accepted at once
    found = replies.receive()
    assert (bytes(found.body), found.correlation_id) == (b"pong", "1")


def test_a_requester_over_1_0_is_answered_over_0_9_1(requester: BlockingConnection, channel: BlockingChannel):
    replies, address = replies_of(requester)
    request(requester, address)
    _, properties, body = channel.basic_get("requests", auto_ack=True)
    assert (properties.reply_to, body) == (unquote(address.removeprefix("/queues/")), b"ping")
    assert channel.queue_declare(properties.reply_to, passive=True).method.consumer_count == 1
    channel.basic_publish("", properties.reply_to, b"pong")
    assert bytes(replies.receive().body) == b"pong"


def test_a_requester_over_0_9_1_is_answered_over_1_0(
    node: RunningNode, responder: BlockingConnection, channel: BlockingChannel
):
    node.declare("requests")
    found: list[bytes] = []
    channel.basic_consume("amq.rabbitmq.reply-to", lambda *got: found.append(got[-1]), auto_ack=True)
    channel.basic_publish("", "requests", b"ping", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))
    asked = taken(responder)
    assert asked.reply_to.startswith(PREFIX)
    answer = data(b"pong")
    answer.address = asked.reply_to
    responder.create_sender(None).send(answer)
    while not found:
        channel.connection.process_data_events(time_limit=1)
    assert found == [b"pong"]


def test_a_reply_without_credit_is_dropped_and_a_gone_requester_is_not_found(
    requester: BlockingConnection, responder: BlockingConnection
):
    replies = requester.create_receiver(None, credit=0, dynamic=True, options=[Volatile()])
    address = replies.link.remote_source.address
    sender = responder.create_sender(address)
    sender.send(data(b"dropped"))
    replies.flow(1)
    requester.create_sender(REQUESTS).send(data(b"so that the credit is there"))
    sender.send(data(b"taken"))
    assert bytes(replies.receive().body) == b"taken"
    replies.close()
    with pytest.raises(LinkDetached, match=r"no queue"):
        responder.create_sender(address, name="again")


def test_replies_have_to_be_taken_settled(requester: BlockingConnection):
    with pytest.raises(LinkDetached, match="rabbitmq:volatile-queue needs snd-settle-mode settled"):
        requester.create_receiver(None, dynamic=True, options=[Volatile(settled=False)])

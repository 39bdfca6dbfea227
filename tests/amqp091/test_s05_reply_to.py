"""Direct reply-to (§5 of the acceptance list): answers without a queue to declare."""

from __future__ import annotations

import re

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.amqp091.peer import channel_of
from tests.harness.bench import ClientBench

from .endings import Step, close_channel, lose_connection
from .peer import ClientChannel

REPLY_TO = "amq.rabbitmq.reply-to"
ASKING = BasicProperties(reply_to=REPLY_TO, correlation_id="7")


def asking(bench: ClientBench | None = None) -> ClientChannel:
    """A channel that waits for replies."""
    channel = channel_of(bench)
    channel.consume(REPLY_TO, "replies", no_ack=True)
    return channel


def test_s093_a_reply_needs_somebody_who_waits_for_it() -> None:
    channel = channel_of()
    channel.publish("", "q", b"", ASKING)
    assert channel.refusal() == "406 PRECONDITION_FAILED - fast reply consumer does not exist"


def test_s093_not_after_the_consumer_was_cancelled() -> None:
    channel = asking()
    channel.does(m.BasicCancel("replies"))
    channel.publish("", "q", b"", ASKING)
    assert channel.refusal() == "406 PRECONDITION_FAILED - fast reply consumer does not exist"


def test_s094_replies_are_not_acknowledged() -> None:
    text = "406 PRECONDITION_FAILED - reply consumer cannot acknowledge"
    assert channel_of().closed_with(m.BasicConsume(REPLY_TO)) == text


def test_s094_a_channel_has_one_reply_consumer() -> None:
    text = "406 PRECONDITION_FAILED - reply consumer already set"
    assert asking().closed_with(m.BasicConsume(REPLY_TO, no_ack=True)) == text


def test_s094_another_after_the_first_has_gone() -> None:
    channel = asking()
    channel.does(m.BasicCancel("replies"))
    assert channel.consume(REPLY_TO, "again", no_ack=True) == "again"


def test_s094_a_round_trip_between_two_connections() -> None:
    bench = ClientBench()
    server = channel_of(bench)
    server.declare("q")
    server.consume("q", no_ack=True)
    clients = [asking(bench), asking(bench)]
    for number, client in enumerate(clients):
        client.publish("", "q", str(number).encode(), ASKING)
    for request in server.deliveries():
        address = request.properties.reply_to
        assert address.startswith(f"{REPLY_TO}.")
        assert re.fullmatch(re.escape(REPLY_TO) + r"\.[\w-]{22}\.[A-Za-z0-9+/]{22}==", address)
        answer = BasicProperties(correlation_id=request.properties.correlation_id)
        server.publish("", address, b"re: " + request.body, answer, mandatory=True)
    assert server.all() == []
    for number, client in enumerate(clients):
        [reply] = client.deliveries()
        assert reply.body == f"re: {number}".encode()
        assert reply.properties.correlation_id == "7"
        assert reply.method.consumer_tag == "replies"
        assert reply.method.routing_key.startswith(f"{REPLY_TO}.")


def address_of(client: ClientChannel) -> str:
    server = channel_of(client.peer.bench)
    server.declare("requests")
    client.publish("", "requests", b"", ASKING)
    request = server.get("requests")
    assert request is not None
    return str(request.properties.reply_to)


def test_s094_the_address_stays_the_same_and_everything_else_is_kept() -> None:
    client = asking()
    assert address_of(client) == address_of(client)
    server = client.peer.channel(2)
    properties = BasicProperties(
        "text/plain", headers={"a": [1, None]}, reply_to=REPLY_TO, message_id="1", app_id="x"
    )
    client.publish("", "requests", b"", properties)
    request = server.get("requests")
    assert request is not None
    properties.reply_to = address_of(client)
    assert request.raw_properties == properties.encode()


def cancel(client: ClientChannel) -> None:
    client.does(m.BasicCancel("replies"))


@pytest.mark.parametrize("end", [lose_connection, close_channel, cancel])
def test_s094_a_reply_that_comes_too_late_is_unroutable(end: Step) -> None:
    client = asking()
    address = address_of(client)
    server = channel_of(client.peer.bench)
    end(client)
    server.publish("", address, b"late", mandatory=True)
    [returned] = server.all()
    assert returned.method == m.BasicReturn(312, "NO_ROUTE", "", address)
    assert server.peer.bench.host.hidden_queues == {}


def test_s094_a_server_can_ask_whether_somebody_still_waits() -> None:
    client = asking()
    address = address_of(client)
    server = channel_of(client.peer.bench)
    assert server.does(m.QueueDeclare(address, passive=True)) == m.QueueDeclareOk(address, 0, 1)
    cancel(client)
    text = f"404 NOT_FOUND - no queue '{address}' in vhost '/'"
    assert server.closed_with(m.QueueDeclare(address, passive=True)) == text


def test_s094_nobody_else_can_take_the_replies() -> None:
    client = asking()
    address = address_of(client)
    other = channel_of(client.peer.bench)
    for method in (m.BasicConsume(address), m.BasicGet(address), m.QueuePurge(address)):
        assert other.refused(method) == f"404 NOT_FOUND - no queue '{address}' in vhost '/'"


@pytest.mark.parametrize("method", [m.QueueBind, m.QueueUnbind])
def test_x024_a_reply_address_cannot_be_bound(method: type[m.QueueBind | m.QueueUnbind]) -> None:
    client = asking()
    for name in (REPLY_TO, address_of(client)):
        text = client.peer.channel(2).closed_with(method(name, "amq.direct", "k"))
        assert text == "403 ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue"

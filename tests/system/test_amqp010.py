"""AMQP 0-10 over real sockets: beside the other protocols on one port, where it is switched on."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from proton import Message
from proton.utils import BlockingConnection as ProtonConnection

from leveret import ThreadedNode, embedded
from leveret.protocols.amqp010.broker.sessions import Sessions
from leveret.protocols.amqp010.codec import commands as c
from tests.amqp010.client import ClientSession, ConnectionEnded, ids
from tests.amqp010.over_socket import SocketClient

pytestmark = pytest.mark.system

MIB = 1 << 20


def started(**settings: object) -> ThreadedNode:
    return ThreadedNode(embedded({"protocols": {"amqp010": {"enabled": True, **settings}}}))


@pytest.fixture
def node() -> Iterator[ThreadedNode]:
    with started() as node:
        yield node


@pytest.fixture
def client(node: ThreadedNode) -> Iterator[SocketClient]:
    with connected(node) as client:
        yield client.open()


def connected(node: ThreadedNode) -> SocketClient:
    return SocketClient(f"{node.host}:{node.port}")


def test_a_node_serves_it_where_it_is_switched_on(client: SocketClient) -> None:
    session = client.attach()
    session.declare("q")
    session.publish("q", b"hello")
    inbox = session.subscribe("q")
    message = inbox.get()
    assert message.body == b"hello"
    session.accept(message.id)
    result = session.call(c.QueueQuery("q"))
    assert isinstance(result, c.QueueQueryResult)
    assert (result.message_count or 0, result.subscriber_count) == (0, 1)
    session.detach()
    client.close()


def test_it_is_switched_off_otherwise() -> None:
    with ThreadedNode() as node, connected(node) as client:
        client.send_bytes(b"AMQP\x01\x01\x00\x0a")
        client.until(lambda: bool(client.header), "header")
        assert client.header == b"AMQP\x03\x01\x00\x00"


def test_three_protocols_share_a_port_and_a_queue(node: ThreadedNode, client: SocketClient) -> None:
    """A message goes from each to the next, and comes back as it was."""
    session = client.attach()
    session.declare("first")
    session.declare("second")
    session.declare("third")
    session.publish("first", b"around", properties=c.MessageProperties(content_type="text/plain"))
    session.sync()
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        _, properties, body = channel.basic_get("first", auto_ack=True)
        assert properties.content_type == "text/plain"
        channel.basic_publish("", "second", body, properties)
    proton = ProtonConnection(node.url.replace("/%2F", ""), allowed_mechs="PLAIN", timeout=60)
    receiver = proton.create_receiver("/queues/second")
    received = receiver.receive()
    receiver.accept()
    again = Message(received.body, content_type="text/plain")
    again.inferred = received.inferred
    proton.create_sender("/queues/third").send(again)
    message = session.subscribe("third").get()
    proton.close()
    assert (message.body, message.properties.content_type) == (b"around", "text/plain")


@pytest.mark.parametrize("frame_max", [4096, 65535])
def test_long_messages_go_in_many_frames(node: ThreadedNode, frame_max: int) -> None:
    body = bytes(range(256)) * 4096 * 3
    with connected(node) as client:
        session = client.open(frame_max=frame_max).attach()
        session.declare("q")
        session.publish("q", body, accept_mode=c.ACCEPT_MODE_EXPLICIT)
        message = session.subscribe("q").get()
        assert len(message.body) == 3 * MIB
        assert message.body == body


def test_many_messages_under_way_at_once(client: SocketClient) -> None:
    count = 5000
    session = client.attach()
    session.declare("q")
    inbox = session.subscribe("q", accept_mode=c.ACCEPT_MODE_NONE)
    for n in range(count):
        session.publish("q", b"%d" % n)
    session.sync()
    assert [inbox.get().body for _ in range(count)] == [b"%d" % n for n in range(count)]


def test_two_sessions_of_one_connection_have_their_own_order(client: SocketClient) -> None:
    one, other = client.attach("one"), client.attach("other")
    one.declare("q")
    inbox = other.subscribe("q")
    one.publish("q", b"from one")
    one.sync()
    assert inbox.get().body == b"from one"
    assert other.completed.ranges == [(0, 3)]


def test_a_session_goes_on_over_another_connection(node: ThreadedNode) -> None:
    """What was under way when the first one broke comes again, and what was exclusive still is."""
    with connected(node) as first:
        session = first.open().attach("mine")
        session.control(c.SessionRequestTimeout(60))
        session.declare("q", exclusive=True)
        session.publish("q", b"once")
        session.subscribe("q", "d", messages=10)
        session.inboxes["d"].get()
    with connected(node) as second:
        second.open()
        again = second.sessions[1] = ClientSession(second, 1, b"mine")
        again.next_id, again.inboxes = session.next_id, session.inboxes
        again.control(c.SessionAttach(b"mine", True))
        again.until(lambda: again.attached, "attached")
        again.control(c.SessionExpected(ids(session.next_incoming), None))
        again.point()
        again.publish("q", b"twice")
        again.sync()
        assert again.inboxes["d"].get().body == b"twice"


def test_a_session_without_a_timeout_ends_with_its_connection(node: ThreadedNode) -> None:
    with connected(node) as client:
        client.open().attach("mine").declare("q", exclusive=True, auto_delete=True)
    with connected(node) as client:
        assert client.open().attach("mine", force=True).call(c.QueueQuery("q")) == c.QueueQueryResult()


def test_nothing_stays_of_those_who_have_left(node: ThreadedNode) -> None:
    for _ in range(5):
        with connected(node) as client:
            client.open().attach("mine")
            client.close()
            client.until(lambda: client.at_end, "end")
    host = node.node.broker.virtual_hosts["/"]
    assert node.call(lambda: (len(host.guest(Sessions)), host.connections)) == (0, 0)


def test_a_node_that_stops_says_goodbye() -> None:
    with started() as node, connected(node) as client:
        client.open().attach()
        node.stop()
        client.until(lambda: client.closed is not None, "close")
        assert client.closed is not None
        assert client.closed.reply_code == c.CLOSE_CODE_CONNECTION_FORCED


def test_a_wrong_password_is_told_before_the_node_leaves(node: ThreadedNode) -> None:
    with connected(node) as client, pytest.raises(ConnectionEnded) as ended:
        client.open(password="wrong")
    assert ended.value.close is not None
    assert "Login was refused" in ended.value.close.reply_text

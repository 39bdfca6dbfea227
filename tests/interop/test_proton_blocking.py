"""Qpid Proton's BlockingConnection: AMQP 1.0 as a plain Python program speaks it."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from threading import Thread

import proton
import pytest
from proton import ConnectionException, Delivery, Link, Message, Terminus
from proton.reactor import AtMostOnce, Container, Copy, DurableSubscription, LinkOption, Selector
from proton.utils import (
    BlockingConnection,
    BlockingReceiver,
    ConnectionClosed,
    LinkDetached,
    SendException,
    SyncRequestResponse,
)

from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, wait_until
from tests.interop.proton_peer import Capability, connect, data

pytestmark = pytest.mark.interop

EVERYTHING = (
    *("id", "user_id", "subject", "reply_to", "correlation_id", "content_type", "content_encoding"),
    *("expiry_time", "creation_time", "group_id", "group_sequence", "reply_to_group_id"),
    *("priority", "durable", "properties", "body"),
)
MIB = 1 << 20
SMALL_FRAMES = 4096  # octets, so that large messages take many


@pytest.fixture
def connection(node: RunningNode) -> Iterator[BlockingConnection]:
    connection = connect(node)
    yield connection
    connection.close()


def bodies(receiver: BlockingReceiver, count: int) -> list[bytes]:
    """The next messages, accepted one by one."""
    found = []
    for _ in range(count):
        message = receiver.receive()
        found.append(bytes(message.body))  # a view into the message: it has to outlive that
        receiver.accept()
    return found


# Getting in.


def test_the_broker_introduces_itself(connection: BlockingConnection):
    assert connection.conn.remote_properties["product"] == "Leveret"
    assert connection.conn.remote_container
    assert "ANONYMOUS-RELAY" in list(connection.conn.remote_offered_capabilities or [])


def test_anonymous_logs_in_as_guest(node: RunningNode):
    node.declare("q")
    connection = connect(node, user=None, password=None, allowed_mechs="ANONYMOUS")
    assert connection.create_sender("/queues/q").send(data(b"hello")).remote_state == Delivery.ACCEPTED
    connection.close()


def test_a_wrong_password_is_refused(node: RunningNode):
    with pytest.raises(proton.ConnectionException, match="Authentication failed"):
        connect(node, password="wrong")
    assert node.clients() == 0


def test_a_missing_virtual_host_is_refused(node: RunningNode):
    with pytest.raises(ConnectionException, match="disconnected"):  # without a close, as RabbitMQ does
        connect(node, virtual_host="vhost:missing")


def test_a_missing_virtual_host_is_told_where_that_is_configured(node_with: Start):
    node = node_with('compat.refused_open = "close"')
    with pytest.raises(ConnectionClosed, match="virtual host 'missing' does not exist") as caught:
        connect(node, virtual_host="vhost:missing")
    assert caught.value.condition == "amqp:unauthorized-access"


def test_any_host_name_means_the_default_virtual_host(node: RunningNode):
    node.declare("q")
    connection = connect(node, virtual_host="broker.example")
    connection.create_sender("/queues/q").send(data(b"hello"))
    connection.close()
    assert node.ready("q") == 1


# Outcomes.


def test_what_is_sent_is_received(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    sender, receiver = connection.create_sender("/queues/q"), connection.create_receiver("/queues/q")
    assert sender.send(data(b"hello")).remote_state == Delivery.ACCEPTED
    assert bodies(receiver, 1) == [b"hello"]
    receiver.close()
    assert (node.ready("q"), node.unsettled("q")) == (0, 0)


def test_messages_come_in_order(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    sender = connection.create_sender("/queues/q")
    expected = [str(number).encode() for number in range(200)]
    for body in expected:
        sender.send(data(body))
    assert bodies(connection.create_receiver("/queues/q", credit=10), 200) == expected


@pytest.mark.parametrize(
    ("settle", "again", "dead"),
    [
        (lambda receiver: receiver.release(delivered=False), True, 0),
        (lambda receiver: receiver.release(delivered=True), True, 0),
        (lambda receiver: receiver.reject(), False, 1),
        (lambda receiver: receiver.accept(), False, 0),
    ],
    ids=["released", "modified", "rejected", "accepted"],
)
def test_a_receiver_says_what_becomes_of_a_message(
    node: RunningNode,
    connection: BlockingConnection,
    settle: Callable[[BlockingReceiver], None],
    again: bool,
    dead: int,
):
    node.declare("dead")
    node.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    connection.create_sender("/queues/q").send(data(b"hello"))
    receiver = connection.create_receiver("/queues/q")
    assert receiver.receive().first_acquirer
    settle(receiver)
    if again:
        message = receiver.receive()
        assert (message.body, message.first_acquirer, message.delivery_count) == (b"hello", False, 0)
    receiver.close()
    assert (node.ready("q"), node.unsettled("q")) == (1 if again else 0, 0)
    assert node.ready("dead") == dead


def test_a_dead_letter_tells_why(node: RunningNode, connection: BlockingConnection):
    node.declare("dead")
    node.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    connection.create_sender("/queues/q").send(data(b"hello"))
    receiver = connection.create_receiver("/queues/q")
    receiver.receive()
    receiver.reject()
    message = connection.create_receiver("/queues/dead").receive()
    (death,) = message.annotations["x-opt-deaths"]
    assert (death["queue"], death["reason"], death["count"]) == ("q", "rejected", 1)
    assert message.annotations["x-first-death-queue"] == "q"


def test_an_unroutable_message_is_released(connection: BlockingConnection):
    sender = connection.create_sender("/exchanges/amq.direct/nobody")
    with pytest.raises(SendException) as caught:
        sender.send(data(b"hello"))
    assert caught.value.state == Delivery.RELEASED


def test_a_full_queue_rejects_and_says_so(node: RunningNode, connection: BlockingConnection):
    node.declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    sender = connection.create_sender("/queues/q")
    sender.send(data(b"one"))
    delivery = sender.send(data(b"two"), error_states=[])
    assert delivery.remote_state == Delivery.REJECTED
    condition = delivery.remote.condition
    assert condition.name == "amqp:resource-limit-exceeded"
    assert condition.description == "queue 'q' exceeded maximum length"


def test_a_message_without_a_priority_has_4(node: RunningNode, connection: BlockingConnection):
    node.declare("p", arguments={"x-max-priority": 10})
    sender = connection.create_sender("/queues/p")
    for name, fields in {
        b"3": {"priority": 3},
        b"none": {},
        b"5": {"priority": 5},
        b"0": {"priority": 0},
    }.items():
        sender.send(Message(body=name, inferred=True, **fields))
    assert bodies(connection.create_receiver("/queues/p"), 4) == [b"5", b"none", b"3", b"0"]


def test_the_time_to_live_that_is_left_is_told(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    connection.create_sender("/queues/q").send(Message(body=b"x", inferred=True, ttl=60))
    receiver = connection.create_receiver("/queues/q")

    def left_s() -> float:
        message = receiver.receive()
        receiver.release()
        return float(message.ttl)

    first = left_s()
    assert 0 < first <= 60
    wait_until(lambda: left_s() < first, "less time to be left")


def test_a_message_is_gone_at_its_absolute_expiry_time(node: RunningNode, connection: BlockingConnection):
    node.declare("dead")
    node.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    sender = connection.create_sender("/queues/q")
    now_s = time.time()
    for name, at_s in {b"past": now_s - 10, b"soon": now_s + 0.5, b"later": now_s + 3600}.items():
        sender.send(Message(body=name, inferred=True, expiry_time=at_s))
    wait_until(lambda: node.ready("dead") == 2, "two of them to expire")
    assert bodies(connection.create_receiver("/queues/dead"), 2) == [b"past", b"soon"]
    assert bodies(connection.create_receiver("/queues/q"), 1) == [b"later"]


def test_what_is_sent_settled_is_kept(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    sender = connection.create_sender("/queues/q", options=AtMostOnce())
    for number in range(1000):
        sender.send(data(str(number).encode()))
    sender.close()
    assert node.ready("q") == 1000


def test_what_is_received_settled_is_gone(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    connection.create_sender("/queues/q").send(data(b"hello"))
    receiver = connection.create_receiver("/queues/q", options=AtMostOnce())
    message = receiver.receive()
    assert message.body == b"hello"
    assert (node.ready("q"), node.unsettled("q")) == (0, 0)


# Addresses.


def test_a_routing_key_may_be_percent_encoded(node: RunningNode, connection: BlockingConnection):
    queue = node.declare("a/b ✋")
    node.call(lambda: bind(node, "amq.direct", queue, "key/1 2"))
    connection.create_sender("/exchanges/amq.direct/key%2F1%202").send(data(b"routed"))
    assert bodies(connection.create_receiver("/queues/a%2fb%20%E2%9C%8B"), 1) == [b"routed"]


def bind(node: RunningNode, exchange: str, queue: str, key: str) -> None:
    host = node.node.broker.virtual_hosts["/"]
    host.bind(host.exchange(exchange), host.queue(queue), key)


def test_without_a_target_each_message_says_where_to(node: RunningNode, connection: BlockingConnection):
    for name in ("one", "two"):
        node.declare(name)
    sender = connection.create_sender(None)
    for name in ("one", "two", "two"):
        sender.send(Message(address=f"/queues/{name}", body=name))
    assert (node.ready("one"), node.ready("two")) == (1, 2)
    delivery = sender.send(Message(body="nowhere"), error_states=[])
    assert delivery.remote.condition.name == "amqp:precondition-failed"


@pytest.mark.parametrize(
    ("kind", "address", "condition", "text"),
    [
        ("sender", "/queues/missing", "amqp:not-found", "no queue 'missing' in vhost '/'"),
        ("receiver", "/queues/missing", "amqp:not-found", "no queue 'missing' in vhost '/'"),
        ("sender", "/exchanges/missing/key", "amqp:not-found", "no exchange 'missing' in vhost '/'"),
        ("sender", "/exchanges/", "amqp:invalid-field", "bad_address_string"),
        ("receiver", "/exchanges/amq.topic/a", "amqp:invalid-field", "Attach refused"),
        ("sender", "q", "amqp:invalid-field", "amqp_address_v1_not_permitted"),
        ("receiver", "/queues/%zz", "amqp:invalid-field", "bad_address"),
    ],
)
def test_a_refused_address_says_why(
    connection: BlockingConnection, kind: str, address: str, condition: str, text: str
):
    create = connection.create_sender if kind == "sender" else connection.create_receiver
    with pytest.raises(LinkDetached) as caught:
        create(address)
    assert caught.value.condition == condition
    assert text in str(caught.value)


def test_addresses_of_version_1(node_with: Start):
    connection = connect(node_with("[protocols.amqp10.addresses]\nv1 = true"))
    receiver = connection.create_receiver("/topic/a.#")
    connection.create_sender("/topic/a.b").send(data(b"by topic"))
    assert bodies(receiver, 1) == [b"by topic"]
    connection.create_sender("/queue/made").send(data(b"by queue"))
    assert bodies(connection.create_receiver("made"), 1) == [b"by queue"]
    connection.close()


def test_a_deleted_queue_detaches_its_links(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    receiver = connection.create_receiver("/queues/q")
    node.delete("q")
    with pytest.raises(LinkDetached) as caught:
        receiver.receive()
    assert caught.value.condition == "amqp:resource-deleted"


# Links that come and go.


def test_a_link_may_be_closed_and_opened_again(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    for number in range(3):
        sender = connection.create_sender("/queues/q", name="same")
        sender.send(data(str(number).encode()))
        sender.close()
        receiver = connection.create_receiver("/queues/q", name="same too")
        assert bodies(receiver, 1) == [str(number).encode()]
        receiver.close()


def test_a_closed_receiver_gives_back_what_it_has(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    sender = connection.create_sender("/queues/q")
    for number in range(3):
        sender.send(data(str(number).encode()))
    receiver = connection.create_receiver("/queues/q", credit=3)
    receiver.receive()
    receiver.close()
    wait_until(lambda: node.ready("q") == 3, "all are back")
    assert bodies(connection.create_receiver("/queues/q"), 3) == [b"0", b"1", b"2"]


def test_a_durable_subscription_is_kept(node_with: Start):
    node = node_with("[protocols.amqp10.addresses]\nv1 = true")

    def subscribed() -> tuple[BlockingConnection, BlockingReceiver]:
        container = Container()
        container.container_id = "reader"
        connection = connect(node, container=container)
        options = DurableSubscription()
        return connection, connection.create_receiver("/topic/news.#", name="news", options=options)

    connection, _ = subscribed()
    connection.close()
    connection = connect(node)
    connection.create_sender("/topic/news.today").send(data(b"kept"))
    connection.close()
    connection, receiver = subscribed()
    assert bodies(receiver, 1) == [b"kept"]
    receiver.close()
    connection.close()
    assert node.queue_names() == []


# Receivers of other kinds.


def test_a_browsing_receiver_takes_nothing(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    sender = connection.create_sender("/queues/q")
    for number in range(3):
        sender.send(data(str(number).encode()))
    for _ in range(2):
        browser = connection.create_receiver("/queues/q", credit=3, options=Copy())
        assert bodies(browser, 3) == [b"0", b"1", b"2"]
        browser.close()
    assert bodies(connection.create_receiver("/queues/q"), 3) == [b"0", b"1", b"2"]


def test_a_selector_takes_what_it_wants(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    sender = connection.create_sender("/queues/q")
    for number in range(6):
        colour = "red" if number % 2 else "blue"
        sender.send(Message(body=number, properties={"colour": colour, "size": number}))
    red = connection.create_receiver("/queues/q", credit=9, options=Selector("colour = 'red' AND size > 1"))
    assert [red.receive().body, red.receive().body] == [3, 5]
    with pytest.raises(proton.Timeout):
        red.receive(timeout=0.1)
    assert node.ready("q") == 4


def test_a_selector_that_makes_no_sense_is_refused(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    with pytest.raises(LinkDetached) as caught:
        connection.create_receiver("/queues/q", options=Selector("colour = = 'red'"))
    assert caught.value.condition == "amqp:invalid-field"


def test_a_request_is_answered_through_a_queue_of_the_moment(node: RunningNode):
    node.declare("questions")
    client, server = connect(node), connect(node)
    answers = client.create_receiver(None, dynamic=True, options=Capability())
    reply_to = answers.link.remote_source.address
    assert reply_to.startswith("/queues/amq.dyn")
    client.create_sender("/queues/questions").send(
        Message(body="2 + 2", reply_to=reply_to, correlation_id="one", id="question")
    )
    questions = server.create_receiver("/queues/questions")
    question = questions.receive()
    server.create_sender(None).send(
        Message(address=question.reply_to, correlation_id=question.correlation_id, body="4")
    )
    questions.accept()
    answer = answers.receive()
    assert (answer.body, answer.correlation_id) == ("4", "one")
    answers.accept()
    answers.close()
    wait_until(lambda: node.queue_names() == ["questions"], "the queue of the moment is gone")
    client.close()
    server.close()


# Messages of every kind.


@pytest.mark.parametrize("size", [0, 1, 4000, 100_000, 10 * MIB])
def test_bodies_of_any_size_come_back(node: RunningNode, size: int):
    node.declare("q")
    connection = connect(node, max_frame_size=SMALL_FRAMES)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    connection.create_sender("/queues/q").send(data(body))
    assert bodies(connection.create_receiver("/queues/q"), 1) == [body]
    connection.close()


def test_a_message_keeps_everything_it_says(node: RunningNode, connection: BlockingConnection):
    node.declare("q")
    sent = Message(
        id=b"binary id",
        user_id=b"guest",
        subject="subject",
        reply_to="/queues/q",
        correlation_id=proton.ulong(7),
        content_type="text/plain",
        content_encoding="gzip",
        expiry_time=2_000_000_000,
        creation_time=1_000_000_000,
        group_id="group",
        group_sequence=3,
        reply_to_group_id="other",
        ttl=60,
        priority=7,
        durable=True,
        properties={"text": "✋", "number": proton.int32(-3), "none": None, "octets": b"\xff"},
        annotations={proton.symbol("x-note"): ["a", {"b": proton.decimal64(5)}]},
        body={"list": [1, 2.5, True, None], "char": proton.char("c"), "at": proton.timestamp(1000)},
    )
    connection.create_sender("/queues/q").send(sent)
    got = connection.create_receiver("/queues/q").receive()
    for name in EVERYTHING:
        assert getattr(got, name) == getattr(sent, name), name
    assert got.annotations["x-note"] == sent.annotations["x-note"]
    assert (got.annotations["x-exchange"], got.annotations["x-routing-key"]) == ("", "q")
    assert 0 < got.ttl <= 60


def test_s002_a_client_without_sasl_is_anonymous(node: RunningNode):
    connection = BlockingConnection(f"127.0.0.1:{node.port}", sasl_enabled=False)
    with pytest.raises(LinkDetached, match="no queue 'nowhere'"):
        connection.create_sender("/queues/nowhere")
    assert node.call(lambda: [client.user.name for client in node.node.broker.clients]) == ["guest"]
    connection.close()


# A connection that is cut.


class Lasting(LinkOption):
    """Asks that unsettled deliveries stay with the receiver's source."""

    def apply(self, link: Link) -> None:
        link.source.expiry_policy = Terminus.EXPIRE_WITH_CONNECTION
        link.source.timeout = 60


def worker(node: RunningNode) -> tuple[BlockingConnection, list[tuple[object, bool]]]:
    """A receiver that settles nothing: its connection, and the bodies of two messages, and if it is their first."""
    container = Container()
    container.container_id = "proton"
    connection = connect(node, container=container)
    receiver = connection.create_receiver("/queues/q", credit=2, name="worker", options=Lasting())
    found = [receiver.receive(timeout=TIMEOUT_S) for _ in range(2)]
    return connection, [(each.body, bool(each.first_acquirer)) for each in found]


def test_what_a_lost_receiver_had_not_settled_waits_for_it_alone(node: RunningNode):
    """Proton tells nothing of deliveries when it attaches again: they are requeued then, and not before."""
    node.declare("q")
    writer = connect(node)
    sender = writer.create_sender("/queues/q")
    for body in "ab":
        sender.send(Message(body=body))
    connection, found = worker(node)
    assert found == [("a", True), ("b", True)]
    with socket.socket(fileno=os.dup(connection.conn.transport._selectable.fileno())) as cut:
        cut.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: not node.consumers("q"), "the connection is lost")
    assert (node.ready("q"), node.unsettled("q")) == (0, 2)
    again, found = worker(node)
    assert found == [("a", False), ("b", False)]
    again.close()
    writer.close()


def test_names_of_queues_and_exchanges_are_addresses_where_a_setting_permits_that(node_with: Start):
    """As with the brokers of Apache Qpid."""
    node = node_with("[protocols.amqp10.addresses]\nnodes = true\n")
    node.declare("q")
    connection = connect(node)
    news = connection.create_receiver("amq.topic/k.1")
    connection.create_sender("amq.topic/k.1").send(data(b"news"))
    connection.create_sender("q").send(data(b"work"))
    assert bodies(news, 1) == [b"news"]
    assert bodies(connection.create_receiver("q"), 1) == [b"work"]
    with pytest.raises(LinkDetached, match="no queue or exchange 'missing/k'"):
        connection.create_sender("missing/k")
    connection.close()


def test_proton_s_own_requests_have_a_dynamic_source_without_capabilities(node: RunningNode):
    node.declare("requests")
    requests, answering = SyncRequestResponse(connect(node), "/queues/requests"), connect(node)
    taken = answering.create_receiver("/queues/requests", credit=1)
    answers = answering.create_sender(None)

    def answer() -> None:
        request = taken.receive(timeout=TIMEOUT_S)
        taken.accept()
        reply = Message(address=request.reply_to, correlation_id=request.correlation_id, body="pong")
        answers.send(reply)

    server = Thread(target=answer)
    server.start()
    assert requests.call(Message(body="ping")).body == "pong"
    server.join(TIMEOUT_S)

"""A node says that something has been done when it is on disk: every kind of answer, and what becomes of it.

The store is one in memory whose commits land when a test says so."""

from __future__ import annotations

import socket

import pytest

from leveret import ThreadedNode, embedded
from leveret.durable.store.memory import MemoryStore
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, Method, method_frame
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from leveret.server.node import transport
from leveret.server.node.transport import GOODBYE_S
from tests.amqp091.peer import ClientChannel
from tests.amqp10.controller import Control, in_tx
from tests.amqp10.parts import data
from tests.amqp10.peer import SECOND
from tests.amqp10.test_s14_management import Pair

from .remote import Slow

pytestmark = pytest.mark.system

PERSISTENT = BasicProperties(delivery_mode=2)
TRANSIENT = BasicProperties(delivery_mode=1)
PUT = (
    b"PUT /api/queues/%2F/web HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    b"Authorization: Basic Z3Vlc3Q6Z3Vlc3Q=\r\nContent-Length: 16\r\n\r\n" + b'{"durable":true}'
)


@pytest.fixture
def channel(slow: Slow) -> ClientChannel:
    """With a durable queue `q`, and one that is not, `fleeting`."""
    channel = slow.channel()
    slow.without_waiting(lambda: channel.declare("q", durable=True))
    channel.declare("fleeting")
    return channel


# What waits.


def test_s119_a_confirm_comes_when_the_message_is_on_disk(slow: Slow, channel: ClientChannel):
    channel.confirms()
    channel.publish("", "q", b"x", PERSISTENT)
    assert channel.all() == []
    slow.land()
    assert channel.all() == [m.BasicAck(1, False)]


def test_s119_what_is_not_kept_is_confirmed_at_once(slow: Slow, channel: ClientChannel):
    """Even while a commit of others is under way."""
    slow.channel().publish("", "q", b"x", PERSISTENT)
    assert slow.store.flying is not None
    channel.confirms()
    channel.publish("", "q", b"x", TRANSIENT)
    channel.publish("", "fleeting", b"x", TRANSIENT)
    assert channel.all() == [m.BasicAck(1, False), m.BasicAck(2, False)]


DECLARATIONS: list[Method] = [
    m.QueueDeclare("new", durable=True),
    m.ExchangeDeclare("new", "fanout", durable=True),
    m.QueueBind("q", "amq.topic", "new.#"),
    m.QueueDelete("q"),
]


@pytest.mark.parametrize("method", DECLARATIONS, ids=lambda method: method.name)
def test_a_declaration_is_answered_when_it_is_on_disk(slow: Slow, channel: ClientChannel, method: Method):
    assert channel.call(method) is None
    slow.land()
    answer = channel.next()
    assert isinstance(answer, Method)
    assert answer.name == f"{method.name}-ok"


@pytest.mark.parametrize("durable", [False, True])
def test_what_is_not_kept_is_declared_at_once(slow: Slow, channel: ClientChannel, durable: bool):
    """So is what was there before."""
    if durable:
        channel.declare("q", durable=True)
    else:
        channel.declare("new")
    assert slow.store.flying is None


def test_x029_commit_ok_comes_when_the_transaction_is_on_disk(slow: Slow, channel: ClientChannel):
    """S033: it never pends. What follows is worked through at once, and answered after it."""
    channel.does(m.TxSelect())
    channel.publish("", "q", b"x", PERSISTENT)
    channel.send(m.TxCommit())
    channel.send(m.QueueDeclare("q", passive=True))
    assert channel.all() == []
    slow.land()
    assert channel.all() == [m.TxCommitOk(), m.QueueDeclareOk("q", 1, 0)]


def test_x029_a_commit_of_acks_waits_as_well(slow: Slow, channel: ClientChannel):
    slow.without_waiting(lambda: channel.publish("", "q", b"x", PERSISTENT))
    assert channel.get("q", no_ack=False) is not None
    channel.does(m.TxSelect())
    channel.send(m.BasicAck(1, False))
    channel.send(m.TxCommit())
    assert channel.all() == []
    slow.land()
    assert channel.all() == [m.TxCommitOk()]


def test_s226_a_message_is_accepted_when_it_is_on_disk(slow: Slow, channel: ClientChannel):
    sender = slow.session().sender("/queues/q")
    number = sender.send(p.Header(durable=True), data(b"x"))
    assert slow.session().sender("/queues/q").publish(data(b"x")) == p.Accepted()
    assert sender.outcome(number) is None
    slow.land()
    assert sender.outcome(number) == p.Accepted()


def test_s175_a_discharge_is_accepted_when_it_is_on_disk(slow: Slow, channel: ClientChannel):
    session = slow.session()
    control, sender = Control(session), session.sender("/queues/q")
    tx = control.declare()
    assert sender.publish(p.Header(durable=True), data(b"x"), state=in_tx(tx)) == in_tx(tx, p.Accepted())
    assert control.commit(tx) is None
    number = session.next_delivery - 1
    slow.land()
    assert control.link.outcome(number) == p.Accepted()


def test_s218_an_attach_that_declares_a_durable_queue_is_answered_when_that_is_on_disk():
    store = MemoryStore(held=True)
    addresses = {"protocols": {"amqp10": {"addresses": {"v1": True}}}}
    with ThreadedNode(embedded(addresses), store=store) as node, Slow(node, store) as slow:
        session = slow.session()
        sender = session.ask_sender(
            p.Target(address="/queue/new", durable=p.TERMINUS_DURABILITY_CONFIGURATION)
        )
        assert sender.attached is None
        slow.land()
        session.peer.read()
        assert sender.attached is not None
        assert sender.detached is None


def test_a_management_request_is_answered_when_what_it_did_is_on_disk(slow: Slow):
    pair = Pair(slow.session())
    pair.send("PUT", "/queues/new", {})
    assert pair.responses.get() is None
    slow.land()
    response = pair.responses.get()
    assert response is not None
    assert response.properties.subject == "201"


def test_to_drain_does_not_wait(slow: Slow, channel: ClientChannel):
    """S180."""
    receiver = slow.session().receiver("/queues/fleeting", credit=5)
    channel.publish("", "q", b"x", PERSISTENT)
    assert slow.store.flying is not None
    receiver.want(5, drain=True)
    assert receiver.drained


# What becomes of it.


def test_others_are_answered_meanwhile(slow: Slow, channel: ClientChannel):
    assert channel.call(m.QueueDeclare("new", durable=True)) is None
    assert slow.channel().declare("new", durable=True).queue == "new"
    slow.land()
    assert not slow.node.node.feeds.delayed  # who has been answered is nobody's burden


def test_each_answer_waits_for_its_own_commit(slow: Slow, channel: ClientChannel):
    """Or one that always asks for more would never be answered."""
    for name in ("a", "b", "c"):
        channel.send(m.QueueDeclare(name, durable=True))
    assert channel.all() == []
    slow.land()
    assert channel.all() == [m.QueueDeclareOk("a", 0, 0)]
    channel.send(m.QueueDeclare("d", durable=True))
    slow.land()
    assert channel.all() == [m.QueueDeclareOk("b", 0, 0), m.QueueDeclareOk("c", 0, 0)]
    slow.land()
    assert channel.all() == [m.QueueDeclareOk("d", 0, 0)]


def test_all_in_one_read_is_on_disk_before_any_of_it_is_answered(slow: Slow, channel: ClientChannel):
    declarations = [m.QueueDeclare(name, durable=True).encode() for name in ("a", "b")]
    channel.peer.send_bytes(b"".join(method_frame(1, each) for each in declarations))
    slow.land()
    assert channel.all() == []
    slow.land()
    assert channel.all() == [m.QueueDeclareOk("a", 0, 0), m.QueueDeclareOk("b", 0, 0)]


def test_an_answer_does_not_wait_for_more_than_there_is(slow: Slow, channel: ClientChannel):
    """What follows in the same read has begun another commit, of nothing."""
    declaration, more = m.QueueDeclare("new", durable=True).encode(), m.BasicQos(0, 1, False).encode()
    channel.peer.send_bytes(method_frame(1, declaration) + method_frame(1, more))
    slow.land()
    assert channel.all() == [m.QueueDeclareOk("new", 0, 0), m.BasicQosOk()]


def test_a_sender_that_comes_back_is_answered_at_once_if_all_is_on_disk(slow: Slow, channel: ClientChannel):
    session = slow.session()
    target = p.Target(address="/queues/q", expiry_policy=Symbol(p.TERMINUS_EXPIRY_POLICY_NEVER), timeout=0)
    sender = session.sender(target, name="s", rcv_settle_mode=SECOND)
    slow.without_waiting(lambda: sender.send(p.Header(durable=True), data(b"x"), tag=b"one"))
    sender.detach(closed=False)
    again = session.sender(target, name="s", rcv_settle_mode=SECOND, unsettled={b"one": None})
    assert list(again.attached.unsettled or ()) == [b"one"]


def test_deliveries_wait_behind_an_answer_and_are_not_more_than_the_outbox_may_have(slow: Slow):
    settings = {"limits": {"outbox_size_max": 10_000}}
    store = MemoryStore(held=True)
    with ThreadedNode(embedded(settings), store=store) as node, Slow(node, store) as slow:
        consumer, publisher = slow.channel(), slow.channel()
        consumer.declare("q")
        consumer.consume("q", "t", no_ack=True)
        assert consumer.call(m.QueueDeclare("new", durable=True)) is None
        for _ in range(20):
            publisher.publish("", "q", bytes(2000))
        assert consumer.all() == []
        assert 10 <= slow.call(lambda: slow.broker.virtual_host("/").queues["q"].ready) < 20
        slow.land()
        assert len(consumer.all()) == 21


def test_a_client_that_leaves_still_gets_its_answers(slow: Slow, channel: ClientChannel):
    peer = channel.peer
    channel.send(m.QueueDeclare("new", durable=True))
    peer.send(0, m.ConnectionClose(200, "bye", 0, 0))
    assert peer.all() == []
    slow.land_all()
    assert peer.all() == [m.QueueDeclareOk("new", 0, 0), m.ConnectionCloseOk()]
    peer.socket.settimeout(GOODBYE_S / 2)
    assert peer.socket.recv(1) == b""  # and the end, at once


def test_an_answer_is_given_however_long_the_disk_takes_after_a_client_has_said_goodbye(
    monkeypatch: pytest.MonkeyPatch,
):
    """The peer's time to take its last bytes, here none, begins when they are true."""
    monkeypatch.setattr(transport, "GOODBYE_S", 0.0)
    store = MemoryStore(held=True)
    config = embedded({"http": {"enabled": True, "address": "127.0.0.1:0"}})
    with ThreadedNode(config, store=store) as node, Slow(node, store) as slow:
        channel = slow.channel()
        channel.send(m.QueueDeclare("new", durable=True))
        channel.peer.send(0, m.ConnectionClose(200, "bye", 0, 0))
        web = socket.create_connection((node.host, int(node.node.addresses[-1].rpartition(":")[2])))
        web.sendall(PUT)
        slow.settle()
        assert channel.peer.all() == []
        slow.land_all()
        assert channel.peer.all() == [m.QueueDeclareOk("new", 0, 0), m.ConnectionCloseOk()]
        assert slow.received(web).startswith(b"HTTP/1.1 201 ")
        web.close()


def test_a_node_that_stops_still_gives_its_answers(slow: Slow, channel: ClientChannel):
    channel.send(m.QueueDeclare("new", durable=True))
    slow.call(lambda: slow.node.node.admin.close_connections("that was all"))
    assert channel.peer.all() == []
    slow.land_all()
    answer, close = channel.peer.all()
    assert answer == m.QueueDeclareOk("new", 0, 0)
    assert isinstance(close, m.ConnectionClose)
    channel.peer.send(0, m.ConnectionCloseOk())


def test_a_client_that_has_gone_does_not_keep_anybody(slow: Slow, channel: ClientChannel):
    channel.confirms()
    channel.publish("", "q", b"x", PERSISTENT)
    channel.send(m.QueueDeclare("new", durable=True))
    channel.peer.socket.close()
    slow.settle()
    slow.land_all()
    assert slow.channel().declare("new", durable=True).queue == "new"

"""A node says that something has been done when it is on disk: every kind of answer, and what becomes of it.

The store is one in memory whose commits land when a test says so.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from broker_core import ThreadedNode, embedded
from broker_core.broker import Broker
from broker_core.store import journal as journals
from broker_core.store.contract import NoSpaceError, StoreError
from broker_core.store.journal import Journal
from broker_core.store.memory import MemoryStore
from protocols.amqp091 import methods as m
from protocols.amqp091.wire import BasicProperties, Method, method_frame
from protocols.amqp10 import performatives as p
from tests.amqp091.peer import ClientChannel
from tests.amqp10.controller import Control, in_tx
from tests.amqp10.peer import data
from tests.amqp10.test_s14_management import Pair

from .remote import Remote

pytestmark = pytest.mark.system

PERSISTENT = BasicProperties(delivery_mode=2)
TRANSIENT = BasicProperties(delivery_mode=1)


class Slow(Remote):
    """A node whose disk does what a test says."""

    def __init__(self, node: ThreadedNode, store: MemoryStore) -> None:
        super().__init__(node)
        self.store = store
        self.journal.patience_s = 0.0  # what is to be on disk is on its way at once

    def land(self) -> None:
        """The commit in flight is on disk; the next one is in flight then."""
        self.call(self.store.land)

    def land_all(self) -> None:
        while self.store.flying is not None:
            self.land()

    def fail(self, error: NoSpaceError | StoreError) -> None:
        self.call(lambda: self.store.fail(error))

    def without_waiting(self, act: Callable[[], object]) -> None:
        """With a disk that is fast meanwhile."""
        self.store.held = False
        act()
        self.store.held = True

    @property
    def broker(self) -> Broker:
        return self.node.node.broker

    @property
    def journal(self) -> Journal:
        assert self.broker.journal is not None
        return self.broker.journal


@pytest.fixture
def slow() -> Iterator[Slow]:
    store = MemoryStore(held=True)
    with ThreadedNode(store=store) as node, Slow(node, store) as slow:
        yield slow
        with suppress(RuntimeError):  # it has been stopped
            slow.land_all()


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
    other = slow.channel()
    other.publish("", "q", b"x", PERSISTENT)
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
    fleeting = slow.session().sender("/queues/q")
    assert fleeting.publish(data(b"x")) == p.Accepted()
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
    other = slow.channel()
    assert other.declare("new", durable=True).queue == "new"


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


def test_a_node_that_stops_still_gives_its_answers(slow: Slow, channel: ClientChannel):
    channel.send(m.QueueDeclare("new", durable=True))
    slow.call(lambda: slow.node.node.close_connections("that was all"))
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


# A disk that cannot keep up.


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "BEHIND_OCTETS", 10_000)


def flood(channel: ClientChannel, number: int) -> None:
    """So many reads with a message each, of which the disk takes only a few at a time."""
    for _ in range(number):
        channel.publish("", "q", bytes(4000), PERSISTENT)


def arrived(slow: Slow) -> int:
    return slow.call(lambda: slow.broker.virtual_host("/").queues["q"].published)


@pytest.mark.usefixtures("small")
def test_who_is_too_fast_for_the_disk_is_not_read_from(slow: Slow, channel: ClientChannel):
    """Others are; and no alarm is raised."""
    flood(channel, 10)
    assert arrived(slow) == 3
    assert slow.broker.alarms.reason is None
    assert slow.channel().declare("other").queue == "other"
    slow.land_all()
    assert arrived(slow) == 10


@pytest.mark.usefixtures("small")
def test_who_is_too_fast_hears_that_the_node_stops(slow: Slow, channel: ClientChannel):
    flood(channel, 10)
    slow.node.stop()
    assert any(isinstance(what, m.ConnectionClose) for what in unread(channel))


def unread(channel: ClientChannel) -> list[object]:
    """What comes from a node that has ended."""
    channel.peer.world = Gone()
    return channel.peer.all()


class Gone:
    """In the place of a Remote whose node has ended."""

    def received(self, connection: object) -> bytes:
        try:
            return connection.recv(1 << 20)
        except ConnectionResetError:
            return b""

    def settle(self) -> None:
        """Nothing will come."""


@pytest.mark.usefixtures("small")
def test_an_alarm_takes_the_place_of_waiting_for_the_disk(slow: Slow, channel: ClientChannel):
    """S157: whoever is held back by an alarm is told; who only was too fast has to be read from for that."""
    flood(channel, 10)
    slow.call(lambda: slow.broker.alarms.set("low on disk"))
    assert m.ConnectionBlocked("low on disk") in channel.peer.all(0)
    slow.land_all()
    slow.call(lambda: slow.broker.alarms.clear("low on disk"))
    assert m.ConnectionUnblocked() in channel.peer.all(0)
    slow.land_all()
    assert arrived(slow) == 10


# A disk that is full.


def test_without_room_publishers_are_held_back_until_there_is_some(
    slow: Slow, channel: ClientChannel, monkeypatch: pytest.MonkeyPatch
):
    """S157, S158. Nothing is confirmed that was not kept."""
    monkeypatch.setattr(journals, "RETRY_S", 0.01)
    channel.confirms()
    channel.publish("", "q", b"x", PERSISTENT)
    slow.fail(NoSpaceError("the disk is full"))
    channel.publish("", "q", b"x", PERSISTENT)
    assert channel.all() == []
    assert channel.peer.all(0) == [m.ConnectionBlocked("low on disk")]
    while slow.store.flying is None:
        slow.settle()
    slow.land_all()
    assert channel.peer.all(0) == [m.ConnectionUnblocked()]
    assert channel.all() == [m.BasicAck(1, False), m.BasicAck(2, False)]


# A disk that is broken.


def test_a_store_that_fails_ends_the_node_and_nothing_more_is_confirmed(caplog: pytest.LogCaptureFixture):
    store = MemoryStore(held=True)
    node = ThreadedNode(store=store)
    node.start()
    with Slow(node, store) as slow:
        channel, declaring = slow.channel(), slow.channel()
        slow.without_waiting(lambda: channel.declare("q", durable=True))
        sender = slow.session().sender("/queues/q")
        channel.confirms()
        channel.publish("", "q", b"x", PERSISTENT)
        declaring.send(m.QueueDeclare("new", durable=True))
        number = sender.send(p.Header(durable=True), data(b"x"))
        with caplog.at_level(logging.CRITICAL, "leveret.node"):
            node.call(lambda: store.fail(StoreError("the disk is broken")))
            with pytest.raises(StoreError, match="the disk is broken"):
                node.stop()
        assert "the disk is broken" in caplog.text
        for each in (channel, declaring):
            [close] = unread(each)
            assert isinstance(close, m.ConnectionClose)
            assert "the store has failed" in close.reply_text
        sender.peer.world = Gone()
        assert sender.outcome(number) is None
        assert sender.peer.closed is not None
    assert not store.reopened().was_clean


def test_a_store_that_fails_ends_a_block_that_waits():
    store = MemoryStore(held=True)
    node = ThreadedNode(store=store)
    node.start()
    with Slow(node, store) as slow:
        slow.channel().send(m.QueueDeclare("new", durable=True))
        node.call(lambda: store.fail(StoreError("broken")))
        assert isinstance(node._ended.exception(timeout=20), StoreError)
    with pytest.raises(StoreError):
        node.stop()


def test_a_mistake_of_ours_in_what_the_store_reports_ends_the_node(
    slow: Slow, channel: ClientChannel, caplog: pytest.LogCaptureFixture
):
    """Nobody knows what is on disk then."""

    def stumble() -> None:
        raise RuntimeError("a planted mistake")

    slow.journal.on_durable = stumble
    channel.publish("", "q", b"x", PERSISTENT)
    slow.node.call(slow.store.land)
    with pytest.raises(StoreError):
        slow.node.stop()
    assert "a planted mistake" in caplog.text


def test_a_last_commit_that_fails_is_told(slow: Slow, channel: ClientChannel):
    slow.store.held = False
    slow.store.close(None)
    with pytest.raises(StoreError):
        slow.node.stop()


# The node's own affairs.


def test_a_node_with_a_store_lets_its_threads_have_their_turn():
    before = sys.getswitchinterval()
    with ThreadedNode(store=MemoryStore()):
        assert sys.getswitchinterval() == pytest.approx(1e-4)
    assert sys.getswitchinterval() == before


def test_everything_unanswered_is_back_in_its_queue_when_the_store_is_closed(
    slow: Slow, channel: ClientChannel
):
    """And is known to have been delivered (S110)."""
    slow.store.held = False
    for body in (b"1", b"2", b"3"):
        channel.publish("", "q", body, PERSISTENT)
    assert channel.get("q", no_ack=False) is not None
    slow.node.stop()
    store = slow.store.reopened()
    assert store.was_clean
    with ThreadedNode(store=store) as node, Remote(node) as remote:
        again = remote.channel()
        found = [again.get("q") for _ in range(3)]
        assert [(each.body, each.method.redelivered) for each in found] == [
            (b"1", True),
            (b"2", False),
            (b"3", False),
        ]

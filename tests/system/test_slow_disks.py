"""Disks that are slow, full or broken, under a node: who waits for them, who is told, and how the node ends."""

from __future__ import annotations

import logging
import socket
import sys
from pathlib import Path

import pytest
import trio
import trio.testing

from leveret import Node, ThreadedNode, embedded
from leveret.durable import recovery
from leveret.durable.store.contract import NoSpaceError, StoreError
from leveret.durable.store.memory import MemoryStore
from leveret.durable.store.sqlite import SqliteStore
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, append_content
from leveret.protocols.amqp10.codec import performatives as p
from leveret.server.node import persistence
from leveret.server.node.transport import GOODBYE_S
from leveret.server.plugin_loader import BadPlugin
from tests.amqp091.peer import ClientChannel
from tests.amqp10.parts import data

from .remote import Gone, Remote, Slow

pytestmark = pytest.mark.system

PERSISTENT = BasicProperties(delivery_mode=2)


@pytest.fixture
def channel(slow: Slow) -> ClientChannel:
    """With a durable queue `q`."""
    channel = slow.channel()
    slow.without_waiting(lambda: channel.declare("q", durable=True))
    return channel


async def at_rest(node: Node) -> None:
    await trio.testing.wait_all_tasks_blocked()


def test_what_the_disk_has_done_is_told_at_once(slow: Slow, channel: ClientChannel):
    """Whatever else happens: nothing does here."""
    channel.confirms()
    channel.publish("", "q", b"x", PERSISTENT)
    slow.store.land()
    slow.node.wait(at_rest)
    assert channel.peer.socket.recv(100, socket.MSG_DONTWAIT)


# A disk that cannot keep up.


@pytest.fixture
def small(slow: Slow) -> None:
    slow.journal.behind_octets = 10_000


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


def test_who_is_too_fast_waits_until_the_disk_has_caught_up(slow: Slow, channel: ClientChannel):
    slow.journal.behind_octets = 300
    channel.publish("", "q", bytes(50), PERSISTENT)
    arguments, content = m.BasicPublish("", "q").encode(), []
    for _ in range(4):
        append_content(content, 1, arguments, PERSISTENT.encode(), bytes(50), 131_072)
    channel.peer.send_bytes(b"".join(content))  # one read, and one commit
    channel.publish("", "q", bytes(50), PERSISTENT)
    slow.land()
    assert arrived(slow) == 5  # four of them are under way now
    slow.land()
    assert arrived(slow) == 6


@pytest.mark.usefixtures("small")
def test_who_is_too_fast_hears_that_he_has_to_go_and_is_heard(slow: Slow, channel: ClientChannel):
    flood(channel, 10)
    slow.call(lambda: slow.node.node.admin.close_connections("that was all"))
    [close] = channel.peer.all()
    assert isinstance(close, m.ConnectionClose)
    channel.peer.send(0, m.ConnectionCloseOk())
    channel.peer.socket.settimeout(GOODBYE_S / 2)
    assert channel.peer.socket.recv(1) == b""


def unread(channel: ClientChannel) -> list[object]:
    """What comes from a node that has ended."""
    channel.peer.bench = Gone()
    return channel.peer.all()


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


@pytest.mark.usefixtures("small")
def test_during_an_alarm_who_was_too_fast_is_still_heard(slow: Slow, channel: ClientChannel):
    """S162: AMQP 1.0 takes away the window; anything else goes on."""
    sender = slow.session().sender("/queues/q")
    slow.call(lambda: slow.broker.alarms.set("low on disk"))
    for _ in range(5):
        sender.send(p.Header(durable=True), data(bytes(4000)))
    assert slow.journal.behind
    assert sender.peer.begin().begun is not None


# A disk that is full.


def test_without_room_publishers_are_held_back_until_there_is_some(slow: Slow, channel: ClientChannel):
    """S157, S158. Nothing is confirmed that was not kept."""
    slow.journal.retry_s = 0.01
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
        sender.peer.bench = Gone()
        assert sender.outcome(number) is None
        assert sender.peer.closed is not None
    assert not store.reopened().was_clean


def test_who_was_leaving_when_the_store_failed_is_not_detained():
    store = MemoryStore(held=True)
    node = ThreadedNode(store=store, closing_s=30)
    node.start()
    with Slow(node, store) as slow:
        channel = slow.channel()
        channel.send(m.QueueDeclare("new", durable=True))
        channel.peer.send(0, m.ConnectionClose(200, "bye", 0, 0))
        node.call(lambda: store.fail(StoreError("broken")))
        channel.peer.socket.settimeout(GOODBYE_S / 2)
        assert channel.peer.socket.recv(100) == b""
        channel.peer.socket.close()
        with pytest.raises(StoreError):
            node.stop()


def test_a_store_that_fails_ends_a_block_that_waits():
    store = MemoryStore(held=True)
    node = ThreadedNode(store=store)
    node.start()
    with Slow(node, store) as slow:
        slow.channel().send(m.QueueDeclare("new", durable=True))
        node.call(lambda: store.fail(StoreError("broken")))
        assert isinstance(node._ended.exception(timeout=60), StoreError)
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


def test_a_node_that_fails_for_another_reason_leaves_its_store_as_it_is(tmp_path: Path):
    """Whatever is on disk is there, and others may have the folder."""

    async def stumble() -> None:
        raise RuntimeError("a planted mistake")

    async def main() -> None:
        async with Node(embedded({"node": {"data_dir": str(tmp_path)}})) as node:
            node.start(stumble)
            await node.run()

    with pytest.raises(ExceptionGroup):
        trio.run(main)
    store = SqliteStore(tmp_path)
    assert not store.was_clean
    store.close(None)


def test_a_node_that_cannot_start_closes_the_store_that_it_was_given(tmp_path: Path):
    (tmp_path / "bad.py").write_text("1 / 0")
    config = embedded({"plugins": {"folders": [str(tmp_path)]}})
    with pytest.raises(BadPlugin):
        ThreadedNode(config, store=SqliteStore(tmp_path / "data")).start()
    store = SqliteStore(tmp_path / "data")
    assert store.was_clean
    store.close(None)


# The node's own affairs.


def test_a_node_with_a_store_lets_its_threads_have_their_turn():
    before = sys.getswitchinterval()
    with ThreadedNode(store=MemoryStore()):
        assert sys.getswitchinterval() == pytest.approx(1e-4)
    assert sys.getswitchinterval() == before


def test_a_long_recovery_tells_how_far_it_is(
    slow: Slow, channel: ClientChannel, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(recovery, "PORTION", 1)
    slow.store.held = False
    channel.publish("", "q", b"x", PERSISTENT)
    slow.node.stop()
    for long_s, told in ((60.0, False), (0.0, True)):
        monkeypatch.setattr(persistence, "PROGRESS_S", long_s)
        with caplog.at_level(logging.INFO, "leveret.store"), ThreadedNode(store=slow.store.reopened()):
            pass
        assert ("recovering: 1 message so far" in caplog.text) is told
        assert "recovered 1 durable queue with 1 message in" in caplog.text


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

"""Confirms that wait for the disk: only up to a mark, each number once, in order, and nobody else is told."""

from __future__ import annotations

from typing import Final

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.amqp091.peer import channel_of, with_queue
from tests.core.slow_disk import SlowDisk
from tests.harness.bench import ClientBench

from .peer import ClientChannel

PERSISTENT = BasicProperties(delivery_mode=2)
TRANSIENT = BasicProperties(delivery_mode=1)
NO_ROOM = {"x-max-length": 0, "x-overflow": "reject-publish"}


class Slow:
    """A bench with a slow disk, and a channel that confirms there."""

    def __init__(self) -> None:
        self.bench = ClientBench()
        self.channel = channel_of(self.bench)
        self.channel.declare("q", durable=True)
        self.channel.declare("full", durable=True, arguments=NO_ROOM)
        self.disk = SlowDisk(self.bench.broker)
        self.channel.confirms()

    def publish(self, *keys: str, properties: BasicProperties = PERSISTENT) -> None:
        """All in one read."""
        for key in keys:
            self.channel.publish("", key, b"x", properties, settle=False)
        self.bench.settle()

    def land(self, count: int = 1) -> list[object]:
        """What comes when the next commits are on disk."""
        self.disk.land(count)
        return self.channel.all()


def test_s119_a_persistent_message_is_confirmed_when_it_is_on_disk() -> None:
    slow = Slow()
    slow.publish("q")
    assert slow.channel.all() == []
    assert slow.land() == [m.BasicAck(1, False)]


def test_s119_what_need_not_be_on_disk_is_confirmed_at_once() -> None:
    """A transient message; a persistent one that no queue has; one that a full queue has refused."""
    slow = Slow()
    slow.publish("q", "q", properties=TRANSIENT)
    slow.publish("nowhere", "full")
    assert slow.channel.all() == [m.BasicAck(2, True), m.BasicAck(3, False), m.BasicNack(4, False, False)]
    assert not slow.disk.commits


def test_s119_what_was_published_before_confirm_mode_does_not_keep_anybody_waiting() -> None:
    bench = ClientBench()
    channel = with_queue(bench, durable=True)
    disk = SlowDisk(bench.broker)
    channel.publish("", "q", b"x", PERSISTENT)
    channel.confirms()
    channel.publish("", "q", b"x", TRANSIENT)
    assert channel.all() == [m.BasicAck(1, False)]
    assert not disk.commits


def test_s120_confirms_are_in_order_whatever_need_not_wait() -> None:
    slow = Slow()
    slow.publish("q", "q")
    slow.publish("q", "full", properties=TRANSIENT)
    slow.publish("q")
    assert slow.channel.all() == []
    assert slow.land() == [m.BasicAck(2, True)]
    assert slow.land() == [m.BasicAck(3, False), m.BasicNack(4, False, False)]
    assert slow.land() == [m.BasicAck(5, False)]


def test_s120_what_is_published_while_the_disk_works_is_not_confirmed_by_that() -> None:
    slow = Slow()
    slow.publish("q", "full", "q")
    slow.publish("q", "full")
    assert slow.land() == [m.BasicAck(1, False), m.BasicNack(2, False, False), m.BasicAck(3, False)]
    slow.publish("q")
    assert slow.land(2) == [m.BasicAck(4, False), m.BasicNack(5, False, False), m.BasicAck(6, False)]


def test_s119_nobody_hears_of_what_a_closed_channel_has_published() -> None:
    """Least of all the next one of its number, which counts from 1."""
    slow = Slow()
    slow.publish("q", "full")
    slow.channel.does(m.ChannelClose(200, "bye", 0, 0))
    slow.channel.does(m.ChannelOpen())
    slow.channel.confirms()
    slow.publish("q", "q", "q")
    assert slow.land() == []
    assert slow.land() == [m.BasicAck(3, True)]


def test_s119_a_channel_that_fails_with_confirms_under_way_hears_nothing_more() -> None:
    slow = Slow()
    slow.publish("q")
    assert slow.channel.closed_with(m.QueueDeclare("missing", passive=True)).startswith("404")
    assert slow.land() == []


def test_s119_a_connection_that_is_closing_hears_nothing_more() -> None:
    slow = Slow()
    slow.publish("q", "full")
    peer = slow.channel.peer
    peer.front.shut_down("bye")
    assert isinstance(peer.next(0), m.ConnectionClose)
    slow.disk.land()
    assert peer.take_bytes() == b""


def test_a_connection_that_has_gone_is_told_nothing() -> None:
    slow = Slow()
    slow.publish("q", "full")
    peer = slow.channel.peer
    peer.drop()
    slow.disk.land()
    assert peer.take_bytes() == b""


# Any order.


@attrs.define
class Batch:
    """What a channel published between two settles."""

    kinds: list[str]
    commit: int = 0  # that it waits for; 0: none


@attrs.define
class Told:
    """A channel as it should be told."""

    client: ClientChannel
    open: list[str] = attrs.Factory(list)  # published since the last settle
    batches: list[Batch] = attrs.Factory(list)
    heard: list[str] = attrs.Factory(list)  # "ack" or "nack", by number

    def due(self, landed: int) -> list[str]:
        """What should have been heard by now: batches whose commits are on disk, in order."""
        kinds = [kind for batch in self.batches if batch.commit <= landed for kind in batch.kinds]
        return ["nack" if kind == "refused" else "ack" for kind in kinds]


KINDS: Final = {  # the queue, and how it is published
    "kept": ("q", PERSISTENT),
    "transient": ("q", TRANSIENT),
    "refused": ("full", PERSISTENT),
    "nowhere": ("nowhere", PERSISTENT),
}
publishes = st.lists(st.tuples(st.integers(0, 3), st.sampled_from(list(KINDS))), min_size=1, max_size=6)


class Marks(RuleBasedStateMachine):
    """Two connections with two channels each, and a disk of any speed."""

    @initialize()
    def begin(self) -> None:
        slow = Slow()
        self.bench, self.disk = slow.bench, slow.disk
        self.commits = self.landed = 0
        self.channels = [self._confirming(channel_of(self.bench)) for _ in range(2)]
        self.channels += [self._confirming(told.client.peer.channel(2)) for told in self.channels]

    def _confirming(self, client: ClientChannel) -> Told:
        client.confirms()
        return Told(client)

    @rule(publishes=publishes)
    def publish(self, publishes: list[tuple[int, str]]) -> None:
        self._publish(publishes)
        self._settle()

    def _publish(self, publishes: list[tuple[int, str]]) -> None:
        for at, kind in publishes:
            queue, properties = KINDS[kind]
            self.channels[at].client.publish("", queue, b"x", properties, settle=False)
            self.channels[at].open.append(kind)

    def _settle(self) -> None:
        """One commit is for all of a settle; who waits for one also waits with what could go at once."""
        self.bench.settle()
        waits = False
        for told in self.channels:
            if told.open:
                batch = Batch(told.open)
                outstanding = any(each.commit > self.landed for each in told.batches)
                if outstanding or "kept" in batch.kinds:
                    batch.commit, waits = self.commits + 1, True
                told.batches.append(batch)
                told.open = []
        self.commits += waits

    @rule(count=st.integers(1, 3))
    def land(self, count: int) -> None:
        self.disk.land(count)
        self.landed = min(self.landed + count, self.commits)

    @rule(at=st.integers(0, 3), last=publishes)
    def close_and_open_again(self, at: int, last: list[tuple[int, str]]) -> None:
        """What was published in the same read is not confirmed any more, but what it waits for is waited for."""
        self._publish(last)
        client = self.channels[at].client
        client.send(m.ChannelClose(200, "bye", 0, 0), settle=False)
        self._settle()
        client.all()
        client.does(m.ChannelOpen())
        self.channels[at] = self._confirming(client)

    @invariant()
    def each_is_told_what_is_due_once_and_in_order(self) -> None:
        for told in getattr(self, "channels", ()):
            for what in told.client.all():
                self._hear(told, what)
            assert told.heard == told.due(self.landed)

    def _hear(self, told: Told, what: object) -> None:
        assert isinstance(what, m.BasicAck | m.BasicNack), what
        first = len(told.heard) + 1
        assert what.delivery_tag > first if what.multiple else what.delivery_tag == first
        word = "ack" if isinstance(what, m.BasicAck) else "nack"
        told.heard += [word] * (what.delivery_tag + 1 - first)


TestMarks = Marks.TestCase

"""Alarms and flow control (§9 of the acceptance list): who is held back, how he is told, and who goes on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from leveret.alarms import DiskMonitor, MemoryMonitor
from leveret.clock import ManualClock
from leveret.config.config import parse
from leveret.exchanges.standard import STANDARD
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.server.node import assembly
from tests.amqp091.peer import channel_of, with_queue
from tests.harness.bench import ClientBench

from .peer import CAPABILITIES, ClientChannel, Peer

CHANNEL_FLOW = 'compat.flow_mechanism = "channel-flow"'
MEMORY, DISK = m.ConnectionBlocked("low on memory"), m.ConnectionBlocked("low on disk")
BOTH = m.ConnectionBlocked("low on memory & low on disk")


class Readings:
    """What a bench's monitors read: memory is low above 100 octets, disk below 50 MB."""

    def __init__(self) -> None:
        self.used = 0
        self.free = 50_000_000
        self.memory = MemoryMonitor("100B", used=lambda: self.used)
        self.disk = DiskMonitor(Path("anywhere"), free=lambda folder: self.free)

    def bench(self, toml: str = "") -> ClientBench:
        self.watcher = ClientBench(toml, monitors=(self.memory, self.disk))
        return self.watcher

    def change(self, **read: int) -> None:
        """What is read now, and the bench looks at it."""
        vars(self).update(read)
        self.watcher.watch()


def alarmed(toml: str = "") -> tuple[Readings, ClientBench]:
    """A bench that is low on memory, with the queue `q`."""
    readings = Readings()
    bench = readings.bench(toml)
    channel_of(bench).declare("q")
    readings.change(used=101)
    return readings, bench


def publish(channel: ClientChannel, *bodies: bytes) -> None:
    for body in bodies or (b"x",):
        channel.publish("", "q", body)


def ready(bench: ClientBench) -> int:
    return int(bench.queue("q").ready)


# When there is an alarm.


def test_s153_the_watermark_is_a_fraction_or_octets_and_0_is_off() -> None:
    assert parse("").memory_watermark == 0.4
    assert parse('[compat]\nprofile = "rabbitmq-4"').memory_watermark == 0.6
    assert parse('[memory]\nwatermark = "2GiB"').memory_watermark == 2 << 30
    readings, bench = alarmed()
    assert bench.broker.alarms.reason == "low on memory"
    readings.memory.set_watermark(0)
    bench.watch()
    assert bench.broker.alarms.reason is None


def test_s154_the_limit_is_logged_at_start(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "leveret"):
        assembly.broker(parse('[memory]\nwatermark = "2GiB"'), STANDARD, ManualClock())
    assert "Memory limit set to 2048 MiB. Publishers wait while the node uses more (memory.watermark)." in [
        record.getMessage() for record in caplog.records
    ]


def test_s155_half_a_message_is_a_publish_too() -> None:
    """Or bodies that never end would fill the memory on one channel after the other."""
    _, bench = alarmed()
    channel = channel_of(bench)
    out: list[bytes] = []
    wire.append_content(out, 1, m.BasicPublish("", "q").encode(), b"\0\0", bytes(100_000), 4096)
    whole = b"".join(out)
    channel.peer.send_bytes(whole[:50_000])
    assert channel.peer.next(0) == MEMORY
    assert channel.peer.front.blocked


def test_s159_little_disk_space_is_an_alarm_too() -> None:
    readings = Readings()
    bench = readings.bench()
    channel = with_queue(bench)
    bench.watch()
    publish(channel)
    readings.free -= 1
    bench.watch()
    publish(channel)
    assert channel.peer.all(0) == [DISK]
    assert parse("").disk.free_limit == 50_000_000


def test_s160_the_limit_is_no_hard_cap() -> None:
    readings, bench = alarmed()
    readings.used = 1_000_000
    channel = channel_of(bench)
    publish(channel)  # what has been read is taken
    assert ready(bench) == 1


# Blocking.


def test_s155_s156_a_connection_that_publishes_is_not_read_from_until_the_alarm_clears() -> None:
    readings, bench = alarmed()
    channel = channel_of(bench)
    publish(channel, b"1")
    assert channel.peer.front.blocked
    publish(channel, b"2")
    channel.send(m.QueueDeclare("new"))
    assert channel.all() == []
    assert ready(bench) == 1
    readings.change(used=100)
    assert not channel.peer.front.blocked
    assert channel.all() == [m.QueueDeclareOk("new", 0, 0)]
    assert channel.bodies("q") == [b"1", b"2"]


def test_s155_consumers_and_their_answers_go_on() -> None:
    readings = Readings()
    bench = readings.bench()
    publisher, consumer = channel_of(bench), channel_of(bench)
    consumer.declare("q")
    consumer.prefetch(1)
    consumer.consume("q")
    publish(publisher, *(str(number).encode() for number in range(5)))
    readings.change(used=101)
    publish(publisher, b"5")
    seen = []
    while deliveries := consumer.deliveries():
        seen += [delivery.body for delivery in deliveries]
        consumer.ack(deliveries[-1].method.delivery_tag)
    assert b"".join(seen) == b"012345"
    assert publisher.peer.front.blocked
    assert not consumer.peer.front.blocked
    assert consumer.declare("new")  # everything but publishing goes on


def test_s155_a_blocked_publisher_still_gets_confirms_and_deliveries() -> None:
    _, bench = alarmed()
    channel = channel_of(bench)
    channel.confirms()
    channel.consume("q", "t", no_ack=True)
    publish(channel)
    assert channel.peer.front.blocked
    delivered, ack = channel.all()
    assert (delivered.body, ack) == (b"x", m.BasicAck(1, False))


def test_s157_a_client_is_told_only_if_it_wants_to_know() -> None:
    _, bench = alarmed()
    told, untold = (
        channel_of(bench),
        channel_of(bench, capabilities={**CAPABILITIES, "connection.blocked": False}),
    )
    for channel in (told, untold):
        publish(channel)
        assert channel.peer.front.blocked
    assert told.peer.all(0) == [MEMORY]
    assert untold.peer.all(0) == []


def test_s157_it_is_told_once_it_publishes_and_not_before() -> None:
    readings = Readings()
    bench = readings.bench()
    before, after = channel_of(bench), channel_of(bench)
    before.declare("q")
    publish(before)
    readings.change(used=101)
    assert before.peer.all(0) == []  # it has published, but not during the alarm
    assert not before.peer.front.blocked
    publish(before)
    late = channel_of(bench)
    assert [peer.all(0) for peer in (before.peer, after.peer, late.peer)] == [[MEMORY], [], []]


def test_s157_reasons_are_joined() -> None:
    readings, bench = alarmed()
    readings.change(free=0)
    channel = channel_of(bench)
    publish(channel)
    assert channel.peer.all(0) == [BOTH]


def test_s157_another_reason_is_told_as_it_comes_and_goes() -> None:
    readings, bench = alarmed()
    channel = channel_of(bench)
    publish(channel)
    readings.change(free=0)
    readings.change(used=0)
    assert channel.peer.front.blocked
    assert channel.peer.all(0) == [MEMORY, BOTH, DISK]


def test_s158_unblocked_comes_when_the_last_alarm_clears() -> None:
    readings, bench = alarmed()
    readings.change(free=0)
    channel = channel_of(bench)
    idle = channel_of(bench)
    publish(channel)
    channel.peer.all(0)
    readings.change(used=0)
    assert m.ConnectionUnblocked() not in channel.peer.all(0)
    readings.change(free=50_000_000)
    assert channel.peer.all(0) == [m.ConnectionUnblocked()]
    assert idle.peer.all(0) == []
    publish(channel)
    assert channel.peer.all(0) == []


def test_s158_the_next_alarm_is_told_again() -> None:
    readings, bench = alarmed()
    channel = channel_of(bench)
    publish(channel)
    for used in (0, 101):
        readings.change(used=used)
    assert channel.peer.all(0) == [MEMORY, m.ConnectionUnblocked()]
    publish(channel)
    assert channel.peer.all(0) == [MEMORY]


def test_s158_what_was_held_back_may_be_held_back_again() -> None:
    readings, bench = alarmed()
    channel = channel_of(bench)
    publish(channel, b"1", b"2", b"3")
    assert ready(bench) == 1
    readings.change(used=0)
    assert ready(bench) == 3


def test_s161_a_limit_can_be_changed_while_the_node_runs() -> None:
    readings, bench = alarmed()
    channel = channel_of(bench)
    publish(channel)
    bench.config = reloaded(bench, '[memory]\nwatermark = "1GiB"')
    assert channel.peer.all(0) == [MEMORY, m.ConnectionUnblocked()]
    readings.used = 100 << 20
    bench.config = reloaded(bench, '[memory]\nwatermark = "64MiB"\n[disk]\nfree_limit = "60MB"')
    publish(channel)
    assert channel.peer.all(0) == [BOTH]


def reloaded(bench: ClientBench, toml: str) -> object:
    new = parse(toml)
    assembly.reload(bench.broker, bench.config, new)
    for peer in bench.peers:
        peer.read_on()
    return new


def test_x044_where_the_memory_is_unknown_a_gigabyte_is_assumed() -> None:
    monitor = MemoryMonitor(0.5, used=lambda: (512 << 20) + 1, total=lambda: None)
    bench = ClientBench(monitors=(monitor,))
    bench.watch()
    assert bench.broker.alarms.reason == "low on memory"
    monitor.set_watermark(1.5)
    bench.watch()
    assert bench.broker.alarms.reason is None
    assert monitor.warning() == "Unknown total memory size. Assuming memory size is 1024 MiB."


def beating() -> tuple[Readings, ClientBench, ClientChannel]:
    """A connection with heartbeats of 10 seconds, blocked."""
    readings, bench = alarmed()
    channel = Peer(bench).open(heartbeat=10).channel()
    publish(channel)
    return readings, bench, channel


def test_x045_the_silence_of_a_blocked_connection_means_nothing() -> None:
    _, bench, channel = beating()
    for _ in range(20):
        bench.advance(5)
    assert not channel.peer.front.closed
    channel.peer.read()
    assert channel.peer.heartbeats >= 9  # our own go on


def test_x045_afterwards_it_has_two_intervals() -> None:
    readings, bench, channel = beating()
    for _ in range(20):
        bench.advance(5)
    readings.change(used=0)
    for _ in range(4):
        bench.advance(5)
        assert not channel.peer.front.closed
    bench.advance(10)
    assert channel.peer.front.closed


# channel.flow.

STOP, GO = m.ChannelFlow(False), m.ChannelFlow(True)


@pytest.mark.parametrize("toml", [CHANNEL_FLOW, '[compat]\nprofile = "spec"'])
def test_s156_channels_that_publish_are_asked_to_stop_and_to_go_on(toml: str) -> None:
    readings = Readings()
    bench = readings.bench(toml)
    publisher = channel_of(bench)
    publisher.declare("q")
    idle = publisher.peer.channel(2)
    publish(publisher)
    readings.change(used=101)
    assert (publisher.all(), idle.all()) == ([STOP], [])
    publisher.send(m.ChannelFlowOk(False))
    assert not publisher.peer.front.blocked
    assert publisher.peer.all(0) == []
    readings.change(used=0)
    assert (publisher.all(), idle.all()) == ([GO], [])
    publisher.send(m.ChannelFlowOk(True))
    publish(publisher)
    assert publisher.all() == []


def test_s156_a_channel_that_begins_to_publish_during_the_alarm_is_asked_then() -> None:
    readings, bench = alarmed(CHANNEL_FLOW)
    channel = channel_of(bench)
    assert channel.all() == []
    publish(channel)
    assert channel.all() == [STOP]
    publish(channel)  # it does not listen
    assert channel.all() == []
    assert ready(bench) == 2
    readings.change(used=0)
    assert channel.all() == [GO]


def test_s156_a_second_reason_is_not_told_again() -> None:
    readings, bench = alarmed(CHANNEL_FLOW)
    channel = channel_of(bench)
    publish(channel)
    readings.change(free=0)
    readings.change(used=0)
    assert channel.all() == [STOP]
    readings.change(free=50_000_000)
    assert channel.all() == [GO]


def test_s156_consumers_go_on_in_this_way_too() -> None:
    readings = Readings()
    bench = readings.bench(CHANNEL_FLOW)
    consumer = channel_of(bench)
    consumer.declare("q")
    consumer.consume("q")
    publisher = channel_of(bench)
    publish(publisher)
    readings.change(used=101)
    publish(publisher)
    assert [delivery.body for delivery in consumer.deliveries()] == [b"x", b"x"]
    consumer.ack(2, multiple=True)
    assert consumer.all() == []

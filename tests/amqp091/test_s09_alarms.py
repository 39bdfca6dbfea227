"""Alarms and flow control (§9 of the acceptance list): who is held back, how he is told, and who goes on."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from broker_core.clock import ManualClock
from broker_core.config.load import parse
from broker_core.exchanges.standard import STANDARD
from broker_core.flow import DiskMonitor, MemoryMonitor
from broker_core.node import assembly
from protocols.amqp091.codec import methods as m
from protocols.amqp091.codec import wire

from .peer import CAPABILITIES, ClientChannel, Peer, World

CHANNEL_FLOW = '[flow]\nmechanism = "channel-flow"'
MEMORY, DISK = m.ConnectionBlocked("low on memory"), m.ConnectionBlocked("low on disk")
BOTH = m.ConnectionBlocked("low on memory & low on disk")


class Readings:
    """What a world's monitors read: memory is low above 100 octets, disk below 50 MB."""

    def __init__(self) -> None:
        self.used = 0
        self.free = 50_000_000
        self.memory = MemoryMonitor("100B", used=lambda: self.used)
        self.disk = DiskMonitor(Path("anywhere"), free=lambda folder: self.free)

    def world(self, toml: str = "") -> World:
        return World(toml, monitors=(self.memory, self.disk))


def alarmed(toml: str = "") -> tuple[Readings, World]:
    """A world that is low on memory, with the queue `q`."""
    readings = Readings()
    world = readings.world(toml)
    world.channel().declare("q")
    readings.used = 101
    world.watch()
    return readings, world


def publish(channel: ClientChannel, *bodies: bytes) -> None:
    for body in bodies or (b"x",):
        channel.publish("", "q", body)


def ready(world: World) -> int:
    return int(world.queue("q").ready)


# When there is an alarm.


def test_s153_the_watermark_is_a_fraction_or_octets_and_0_is_off() -> None:
    assert parse("").memory_watermark == 0.4
    assert parse('[compat]\nprofile = "rabbitmq-4"').memory_watermark == 0.6
    assert parse('[memory]\nwatermark = "2GiB"').memory_watermark == 2 << 30
    readings, world = alarmed()
    assert world.broker.alarms.reason == "low on memory"
    readings.memory.set_watermark(0)
    world.watch()
    assert world.broker.alarms.reason is None


def test_s154_the_limit_is_logged_at_start(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "leveret"):
        assembly.broker(parse('[memory]\nwatermark = "2GiB"'), STANDARD, ManualClock())
    assert "Memory limit set to 2048MB." in [record.getMessage() for record in caplog.records]


def test_s155_half_a_message_is_a_publish_too() -> None:
    """Or bodies that never end would fill the memory on one channel after the other."""
    _, world = alarmed()
    channel = world.channel()
    out: list[bytes] = []
    wire.append_content(out, 1, m.BasicPublish("", "q").encode(), b"\0\0", bytes(100_000), 4096)
    whole = b"".join(out)
    channel.peer.send_bytes(whole[:50_000])
    assert channel.peer.next(0) == MEMORY
    assert channel.peer.front.blocked


def test_s159_little_disk_space_is_an_alarm_too() -> None:
    readings = Readings()
    world = readings.world()
    channel = world.channel()
    channel.declare("q")
    world.watch()
    publish(channel)
    readings.free -= 1
    world.watch()
    publish(channel)
    assert channel.peer.all(0) == [DISK]
    assert parse("").disk.free_limit == 50_000_000


def test_s160_the_limit_is_no_hard_cap() -> None:
    readings, world = alarmed()
    readings.used = 1_000_000
    channel = world.channel()
    publish(channel)  # what has been read is taken
    assert ready(world) == 1


# Blocking.


def test_s155_s156_a_connection_that_publishes_is_not_read_from_until_the_alarm_clears() -> None:
    readings, world = alarmed()
    channel = world.channel()
    publish(channel, b"1")
    assert channel.peer.front.blocked
    publish(channel, b"2")
    channel.send(m.QueueDeclare("new"))
    assert channel.all() == []
    assert ready(world) == 1
    readings.used = 100
    world.watch()
    assert not channel.peer.front.blocked
    assert channel.all() == [m.QueueDeclareOk("new", 0, 0)]
    assert channel.bodies("q") == [b"1", b"2"]


def test_s155_consumers_and_their_answers_go_on() -> None:
    readings = Readings()
    world = readings.world()
    publisher, consumer = world.channel(), world.channel()
    consumer.declare("q")
    consumer.prefetch(1)
    consumer.consume("q")
    publish(publisher, *(str(number).encode() for number in range(5)))
    readings.used = 101
    world.watch()
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
    _, world = alarmed()
    channel = world.channel()
    channel.confirms()
    channel.consume("q", "t", no_ack=True)
    publish(channel)
    assert channel.peer.front.blocked
    delivered, ack = channel.all()
    assert (delivered.body, ack) == (b"x", m.BasicAck(1, False))


def test_s157_a_client_is_told_only_if_it_wants_to_know() -> None:
    _, world = alarmed()
    told, untold = world.channel(), world.channel(capabilities={**CAPABILITIES, "connection.blocked": False})
    for channel in (told, untold):
        publish(channel)
        assert channel.peer.front.blocked
    assert told.peer.all(0) == [MEMORY]
    assert untold.peer.all(0) == []


def test_s157_it_is_told_once_it_publishes_and_not_before() -> None:
    readings = Readings()
    world = readings.world()
    before, after = world.channel(), world.channel()
    before.declare("q")
    publish(before)
    readings.used = 101
    world.watch()
    assert before.peer.all(0) == []  # it has published, but not during the alarm
    assert not before.peer.front.blocked
    publish(before)
    late = world.channel()
    assert [peer.all(0) for peer in (before.peer, after.peer, late.peer)] == [[MEMORY], [], []]


def test_s157_reasons_are_joined() -> None:
    readings, world = alarmed()
    readings.free = 0
    world.watch()
    channel = world.channel()
    publish(channel)
    assert channel.peer.all(0) == [BOTH]


def test_s157_another_reason_is_told_as_it_comes_and_goes() -> None:
    readings, world = alarmed()
    channel = world.channel()
    publish(channel)
    readings.free = 0
    world.watch()
    readings.used = 0
    world.watch()
    assert channel.peer.front.blocked
    assert channel.peer.all(0) == [MEMORY, BOTH, DISK]


def test_s158_unblocked_comes_when_the_last_alarm_clears() -> None:
    readings, world = alarmed()
    readings.free = 0
    world.watch()
    channel = world.channel()
    idle = world.channel()
    publish(channel)
    channel.peer.all(0)
    readings.used = 0
    world.watch()
    assert m.ConnectionUnblocked() not in channel.peer.all(0)
    readings.free = 50_000_000
    world.watch()
    assert channel.peer.all(0) == [m.ConnectionUnblocked()]
    assert idle.peer.all(0) == []
    publish(channel)
    assert channel.peer.all(0) == []


def test_s158_the_next_alarm_is_told_again() -> None:
    readings, world = alarmed()
    channel = world.channel()
    publish(channel)
    for used in (0, 101):
        readings.used = used
        world.watch()
    assert channel.peer.all(0) == [MEMORY, m.ConnectionUnblocked()]
    publish(channel)
    assert channel.peer.all(0) == [MEMORY]


def test_s158_what_was_held_back_may_be_held_back_again() -> None:
    readings, world = alarmed()
    channel = world.channel()
    publish(channel, b"1", b"2", b"3")
    assert ready(world) == 1
    readings.used = 0
    world.watch()
    assert ready(world) == 3


def test_s161_a_limit_can_be_changed_while_the_node_runs() -> None:
    readings, world = alarmed()
    channel = world.channel()
    publish(channel)
    world.config = reloaded(world, '[memory]\nwatermark = "1GiB"')
    assert channel.peer.all(0) == [MEMORY, m.ConnectionUnblocked()]
    readings.used = 100 << 20
    world.config = reloaded(world, '[memory]\nwatermark = "64MiB"\n[disk]\nfree_limit = "60MB"')
    publish(channel)
    assert channel.peer.all(0) == [BOTH]


def reloaded(world: World, toml: str) -> object:
    new = parse(toml)
    assembly.reload(world.broker, world.config, new)
    for peer in world.peers:
        peer.read_on()
    return new


def test_x044_where_the_memory_is_unknown_a_gigabyte_is_assumed() -> None:
    monitor = MemoryMonitor(0.5, used=lambda: (512 << 20) + 1, total=lambda: None)
    world = World(monitors=(monitor,))
    world.watch()
    assert world.broker.alarms.reason == "low on memory"
    monitor.set_watermark(1.5)
    world.watch()
    assert world.broker.alarms.reason is None
    assert monitor.warning() == "Unknown total memory size. Assuming memory size is 1024MB."


def beating() -> tuple[Readings, World, ClientChannel]:
    """A connection with heartbeats of 10 seconds, blocked."""
    readings, world = alarmed()
    channel = Peer(world).open(heartbeat=10).channel()
    publish(channel)
    return readings, world, channel


def test_x045_the_silence_of_a_blocked_connection_means_nothing() -> None:
    _, world, channel = beating()
    for _ in range(20):
        world.advance(5)
    assert not channel.peer.front.closed
    channel.peer.read()
    assert channel.peer.heartbeats >= 9  # our own go on


def test_x045_afterwards_it_has_two_intervals() -> None:
    readings, world, channel = beating()
    for _ in range(20):
        world.advance(5)
    readings.used = 0
    world.watch()
    for _ in range(3):
        world.advance(5)
        assert not channel.peer.front.closed
    world.advance(5)
    assert channel.peer.front.closed


# channel.flow.

STOP, GO = m.ChannelFlow(False), m.ChannelFlow(True)


@pytest.mark.parametrize("toml", [CHANNEL_FLOW, '[compat]\nprofile = "spec"'])
def test_s156_channels_that_publish_are_asked_to_stop_and_to_go_on(toml: str) -> None:
    readings = Readings()
    world = readings.world(toml)
    publisher = world.channel()
    publisher.declare("q")
    idle = publisher.peer.channel(2)
    publish(publisher)
    readings.used = 101
    world.watch()
    assert (publisher.all(), idle.all()) == ([STOP], [])
    publisher.send(m.ChannelFlowOk(False))
    assert not publisher.peer.front.blocked
    assert publisher.peer.all(0) == []
    readings.used = 0
    world.watch()
    assert (publisher.all(), idle.all()) == ([GO], [])
    publisher.send(m.ChannelFlowOk(True))
    publish(publisher)
    assert publisher.all() == []


def test_s156_a_channel_that_begins_to_publish_during_the_alarm_is_asked_then() -> None:
    readings, world = alarmed(CHANNEL_FLOW)
    channel = world.channel()
    assert channel.all() == []
    publish(channel)
    assert channel.all() == [STOP]
    publish(channel)  # it does not listen
    assert channel.all() == []
    assert ready(world) == 2
    readings.used = 0
    world.watch()
    assert channel.all() == [GO]


def test_s156_a_second_reason_is_not_told_again() -> None:
    readings, world = alarmed(CHANNEL_FLOW)
    channel = world.channel()
    publish(channel)
    readings.free = 0
    world.watch()
    readings.used = 0
    world.watch()
    assert channel.all() == [STOP]
    readings.free = 50_000_000
    world.watch()
    assert channel.all() == [GO]


def test_s156_consumers_go_on_in_this_way_too() -> None:
    readings = Readings()
    world = readings.world(CHANNEL_FLOW)
    consumer = world.channel()
    consumer.declare("q")
    consumer.consume("q")
    publisher = world.channel()
    publish(publisher)
    readings.used = 101
    world.watch()
    publish(publisher)
    assert [delivery.body for delivery in consumer.deliveries()] == [b"x", b"x"]
    consumer.ack(2, multiple=True)
    assert consumer.all() == []

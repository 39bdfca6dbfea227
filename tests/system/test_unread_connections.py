"""Connections whose peers do not read, or say nothing: when they are ended, and that the peers notice."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from leveret import ThreadedNode, embedded
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import heartbeat_frame
from leveret.testing.driven_node import DrivenClock
from tests.amqp091.peer import ClientChannel

from .remote import Peer091, Remote

pytestmark = pytest.mark.system

LARGE = bytes(1 << 20)


class Timed(Remote):
    """A node whose time passes when told."""

    def __init__(self, node: ThreadedNode, clock: DrivenClock) -> None:
        super().__init__(node)
        self._clock = clock

    def advance(self, seconds: int) -> None:
        for _ in range(seconds):
            self.call(self._pass_second)

    def _pass_second(self) -> None:
        self._clock.lead_s += 1.0
        self.node.node.broker.tick()
        self.node.node.work()

    @property
    def connections(self) -> int:
        return self.call(lambda: len(self.node.node.transports))


@pytest.fixture
def timed() -> Iterator[Timed]:
    clock = DrivenClock()
    with (
        ThreadedNode(embedded({"limits": {"send_timeout_s": 15}}), clock=clock) as node,
        Timed(node, clock) as timed,
    ):
        yield timed


def read_to_the_end(connection: socket.socket) -> None:
    while connection.recv(1 << 16):
        pass


def unread(timed: Timed) -> ClientChannel:
    """A consumer that reads nothing of what is delivered to it, which is more than the system takes."""
    publisher, consumer = timed.channel(), timed.channel()
    consumer.declare("q")
    consumer.send(m.BasicConsume("q", "t", no_ack=True))
    for _ in range(20):
        publisher.publish("", "q", LARGE)
    timed.settle()
    assert timed.call(lambda: timed.node.node.sending) == 1
    return consumer


def test_a_consumer_that_does_not_read_is_ended_though_its_heartbeats_come(timed: Timed):
    consumer = unread(timed)
    for _ in range(14):
        timed.advance(1)
        consumer.peer.socket.sendall(heartbeat_frame())
    assert timed.connections == 2
    timed.advance(2)
    assert timed.connections == 1
    assert timed.channel().declare("q").consumer_count == 0
    with pytest.raises(ConnectionError):
        consumer.peer.socket.sendall(LARGE * 100)


def test_one_that_reads_a_little_is_not(timed: Timed):
    consumer = unread(timed)
    for _ in range(4):
        timed.advance(10)
        left = 8 << 20
        while left > 0 and (data := consumer.peer.socket.recv(left, socket.MSG_DONTWAIT)):
            left -= len(data)
            timed.settle()
            if left < 6 << 20:
                break
    assert timed.connections == 2


def test_one_that_an_alarm_has_stopped_is_not(timed: Timed):
    consumer = unread(timed)
    timed.call(lambda: timed.node.node.broker.alarms.set("low on memory"))
    consumer.publish("", "q", b"x")
    timed.advance(100)
    assert timed.connections == 2


def test_s013_a_silent_peer_is_reset(timed: Timed):
    peer = Peer091(timed).open(heartbeat=5)
    timed.advance(14)
    assert timed.connections == 1
    timed.advance(2)
    assert timed.connections == 0
    with pytest.raises(ConnectionResetError):
        read_to_the_end(peer.socket)

"""The price of a message that comes by itself, in Python calls: free of noise, and it only ever goes down."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec.packets import Publish
from tests.harness.bench import ClientBench
from tests.harness.call_count import calls
from tests.harness.plain import plain_only
from tests.mqtt.peer import Peer

MESSAGES = 50
PUBLISH = Publish("a/b", bytes(100), 1, packet_id=1).encode(4)
PLACE = 2 + 2 + len("a/b")  # of the packet identifier


class Line:
    """A publisher and a subscriber, each message of QoS 1 written, delivered and acknowledged by itself."""

    def __init__(self, lasts: bool) -> None:
        self.bench = ClientBench()
        self.publisher = Peer(self.bench, version=4).connect("publisher")
        self.subscriber = Peer(self.bench, version=4).connect("subscriber", clean=not lasts)
        self.subscriber.subscribe("a/#", qos=1)
        self._last = 0

    def say(self, peer: Peer, octets: bytes) -> None:
        peer.intake.receive(octets, self.bench.broker.tick())
        self.bench.broker.settle()

    def carry(self) -> None:
        """Carry a message to the subscriber, and its acknowledgement back."""
        self._last += 1
        packet_id = self._last.to_bytes(2, "big")
        self.say(self.publisher, PUBLISH[:PLACE] + packet_id + PUBLISH[PLACE + 2 :])
        (answer,) = self.publisher.outbox.take()
        assert answer == b"\x40\x02" + packet_id
        delivered = b"".join(self.subscriber.outbox.take())
        self.bench.ready.clear()
        self.say(self.subscriber, b"\x40\x02" + delivered[PLACE : PLACE + 2])


@plain_only
@pytest.mark.parametrize("lasts", [False, True])
def test_a_lone_message_of_qos_1_costs_few_python_calls(lasts: bool) -> None:
    line = Line(lasts)
    for _ in range(2):
        line.carry()
    counted = calls(lambda: [line.carry() for _ in range(MESSAGES)])
    session = line.subscriber.front.session
    assert session is not None
    assert session.accepted == MESSAGES + 2
    assert counted.total() / MESSAGES < 94.1, counted.most_common(100)


@plain_only
def test_an_acknowledgement_hashes_no_state() -> None:
    """The hash of an ordinary member of an enumeration is a call of plain Python, in a compiled node, too."""
    line = Line(False)
    line.carry()
    assert "Enum.__hash__" not in calls(line.carry)


@plain_only
def test_messages_of_many_publishers_and_topics_are_converted_once_for_each() -> None:
    """They alternate, so that each differs from the one before."""
    line = Line(False)
    publishers = [Peer(line.bench, version=4).connect(f"p{number}") for number in range(10)]
    packets = [Publish(f"a/{number}", b"x").encode(4) for number in range(3)]

    def carry() -> None:
        for packet in packets:
            for publisher in publishers:
                line.say(publisher, packet)

    carry()
    line.subscriber.outbox.take()
    counted = calls(carry)
    assert b"".join(line.subscriber.outbox.take()) == b"".join(each for each in packets for _ in publishers)
    assert counted["TrafficHandler.on_publish"] == 30
    assert counted["Shown.__init__"] == 0, counted

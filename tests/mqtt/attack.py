"""The states of an attacker over MQTT, what must hold after an attack, and the words of a good client to mutate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.protocols.mqtt.broker.sessions import sessions_of
from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import properties as of
from leveret.protocols.mqtt.codec.properties import Properties
from tests.harness.attack import SMALL, Attack, Neighbour, must_balance
from tests.harness.bench import ClientBench
from tests.mqtt.peer import Peer

PACKET_MAX: Final = 64 << 10
SETTINGS: Final = SMALL + (
    '[protocols.mqtt]\npacket_size_max = "64KiB"\nmechanisms = ["SCRAM-SHA-256", "PLAIN", "ANONYMOUS"]\n'
)


# States.


def half_a_connect(bench: ClientBench) -> Peer:
    peer = Peer(bench)
    peer.send_bytes(p.Connect(5, "attacker", user_name="guest", password=b"guest").encode()[:-4])
    return peer


def authenticating(bench: ClientBench) -> Peer:
    """It has been sent a challenge."""
    peer = Peer(bench)
    said = Properties(authentication_method="SCRAM-SHA-256", authentication_data=b"n,,n=guest,r=client")
    peer.send(p.Connect(5, "attacker", properties=said))
    return peer


def opened(bench: ClientBench) -> Peer:
    return Peer(bench).connect("attacker", topic_alias_maximum=3)


def opened_311(bench: ClientBench) -> Peer:
    return Peer(bench, 4).connect("attacker")


def receiving(bench: ClientBench, version: int = 5) -> Peer:
    """Messages of each quality are out, and wait; one has been released."""
    said = {"receive_maximum": 3} if version == 5 else {}
    peer = Peer(bench, version).connect("attacker", **said)
    peer.acknowledges = False
    peer.subscribe("a/#", qos=2)
    peer.subscribe("$share/g/a", qos=1)
    for qos in (0, 1, 2, 2, 1, 2):
        peer.send(p.Publish("a", b"x", qos, packet_id=40 + qos if qos else 0))
        peer.send(p.Ack(of.PUBREL, 42))
    released = [each for each in peer.messages() if each.qos == 2]
    peer.send(p.Ack(of.PUBREC, released[0].packet_id))
    return peer


def receiving_311(bench: ClientBench) -> Peer:
    return receiving(bench, 4)


def publishing(bench: ClientBench) -> Peer:
    """A message with QoS 2 is not released, and an alias stands for a topic."""
    peer = opened(bench)
    peer.publish("a", b"1", topic_alias=1)
    peer.send(p.Publish("a", b"2", 2, packet_id=7))
    return peer


def half_a_publish(bench: ClientBench) -> Peer:
    peer = opened(bench)
    peer.send_bytes(p.Publish("a", b"x" * 30_000, 1, packet_id=7).encode(5)[:20_000])
    return peer


def kept(bench: ClientBench) -> Peer:
    """Its session outlives it, and it has a will with a delay."""
    will = p.Will("a", b"gone", 1, True, Properties(will_delay_interval=5))
    peer = Peer(bench).connect("attacker", will=will, session_expiry_interval=50)
    peer.subscribe("a", "b/+", qos=2)
    peer.publish("a", b"kept", qos=1, retain=True)
    return peer


def ended(bench: ClientBench) -> Peer:
    peer = opened(bench)
    peer.send(p.Disconnect())
    return peer


STATES: Final[dict[str, Callable[[ClientBench], Peer]]] = {
    "before CONNECT": Peer,
    "half a CONNECT": half_a_connect,
    "authenticating": authenticating,
    "open": opened,
    "open, 3.1.1": opened_311,
    "receiving": receiving,
    "receiving, 3.1.1": receiving_311,
    "publishing": publishing,
    "half a PUBLISH": half_a_publish,
    "a session that is kept": kept,
    "ended": ended,
}


# The attack and what must hold after it.


class NeighbourMqtt(Neighbour):
    """Its messages come, and are acknowledged. It is another user: an attacker may say that it is the same client."""

    def enter(self, bench: ClientBench) -> None:
        bench.user("ann")
        self.peer = Peer(bench).connect("neighbour", user="ann", password=b"ann")
        self.peer.subscribe("neighbour", qos=2)

    def publish(self, body: bytes) -> None:
        answer = self.peer.publish("neighbour", body, qos=2)
        assert answer is not None
        assert (answer.kind, answer.reason_code) == (of.PUBCOMP, 0)
        assert body in self.peer.payloads()


def must_be_protocol(attacker: Peer) -> None:
    """What came back can be read by a client, which refuses what a server does not say; nothing comes after the end."""
    was_closed = attacker.front.closed
    wire = attacker.front.wire
    attacker.reader.version = wire.version or wire._reader.version or 4  # in which other versions are refused
    attacker.read()
    attacker.heard.clear()
    if was_closed:
        attacker.send_bytes(p.PingReq().encode(5) * 3)
        assert attacker.take_bytes() == b""


def must_be_bounded(attacker: Peer) -> None:
    """What is kept of a packet that has not come is no more than a packet may have."""
    assert attacker.front.wire._reader.waiting <= PACKET_MAX or attacker.front.closed


def must_have_gone(bench: ClientBench, neighbour: NeighbourMqtt) -> None:
    """The attacker has gone, and holds nothing."""
    assert list(sessions_of(bench.host)) == [neighbour.peer.front.session]
    for queue in bench.host.queues.values():
        assert queue.unsettled == 0
        assert queue.name.startswith("mqtt-subscription-neighbour")


attack: Final = Attack(
    SETTINGS, NeighbourMqtt, must_be_protocol, must_be_bounded, must_balance, must_have_gone
)


# A good client's words.


def transcript() -> tuple[bytes, ...]:
    """A bit of everything that a client can say, each packet by itself."""
    will = p.Will("gone", b"bye", 1, True, Properties(will_delay_interval=1, user_properties=(("a", "b"),)))
    said = Properties(
        session_expiry_interval=9, receive_maximum=5, topic_alias_maximum=2, maximum_packet_size=4000
    )
    message = Properties(1, 60, "text/plain", "answers", b"7", user_properties=(("a", "b"), ("a", "c")))
    subscriptions = (
        p.Subscription("a/+", 2, True, True, 1), p.Subscription("#", 1), p.Subscription("$share/g/a/#", 1),
    )  # fmt: skip
    packets: tuple[p.AnyPacket, ...] = (
        p.Connect(5, "good", True, 60, "guest", b"guest", will, said),
        p.Subscribe(1, subscriptions, Properties(subscription_identifiers=(9,))),
        p.Publish("a/b", b"zero", properties=Properties(topic_alias=1)),
        p.Publish("", b"alias", properties=Properties(topic_alias=1)),
        p.Publish("a/b", b"one", 1, True, False, 2, message),
        p.Publish("a/b", b"two", 2, False, False, 3),
        p.Publish("a/b", b"two", 2, False, True, 3),
        p.Ack(of.PUBREL, 3),
        p.Ack(of.PUBACK, 1),
        p.Ack(of.PUBREC, 2),
        p.Ack(of.PUBCOMP, 2, 0x92, Properties(reason_string="no")),
        p.Ack(of.PUBACK, 3, 0x80),
        p.PingReq(),
        p.Auth(
            0x19, Properties(authentication_method="SCRAM-SHA-256", authentication_data=b"n,,n=guest,r=c")
        ),
        p.Publish("a/b", b"", 0, True),
        p.Unsubscribe(4, ("a/+", "never")),
        p.Disconnect(0x04, Properties(session_expiry_interval=0)),
    )
    return tuple(packet.encode(5) for packet in packets)

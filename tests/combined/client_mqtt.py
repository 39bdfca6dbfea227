"""Clients of MQTT, which come back to their sessions, and take them over. Their messages are nobody else's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.protocols.mqtt.codec.packets import Ack, Publish, Subscribe, Subscription, Unsubscribe, Will
from leveret.protocols.mqtt.codec.properties import NONE, PUBACK, PUBCOMP, PUBREC, PUBREL, Properties
from tests.mqtt.peer import Peer

from .client import Client, Moves

if TYPE_CHECKING:
    from .place import Place

NAMES = 3  # of sessions
TOPICS = ("s/a", "s/b", "s/c/d")
FILTERS = ("s/#", "s/+", "s/a", "$share/g/s/#")


class ClientMqtt(Client):
    """One connection, of version 3.1.1 or 5."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        version = self.random.choice((4, 5))
        self.peer = Peer(place.bench, version)
        said: dict[str, object] = {}
        if version == 5:
            said["session_expiry_interval"] = self.random.choice((0, 1, 5, 1000))
            if self.chance(0.5):
                said["receive_maximum"] = self.random.choice((1, 3))
        will = (
            Will("s/will", b"w", self.random.choice((0, 1)), self.chance(0.5)) if self.chance(0.3) else None
        )
        name = f"client {self.random.randrange(NAMES)}"
        self.peer.connect(name, clean=self.chance(0.3), will=will, **said)
        self.unacked: list[Publish] = []

    def moves(self) -> Moves:
        return {
            self._publish: 20,
            self._answer: 20,
            self._subscribe: 6,
            self._unsubscribe: 2,
            self._disconnect: 2,
        }

    def _subscribe(self) -> None:
        subscription = Subscription(self.random.choice(FILTERS), self.random.choice((0, 1, 2)))
        self.peer.send(Subscribe(self.peer.next_id(), (subscription,), NONE))

    def _unsubscribe(self) -> None:
        self.peer.send(Unsubscribe(self.peer.next_id(), (self.random.choice(FILTERS),)))

    def _publish(self) -> None:
        for _ in range(self.random.choice((1, 3, 12))):
            if self.peer.front.closed:
                return
            qos = self.random.choice((0, 1, 1, 2))
            number = self.peer.next_id() if qos else 0
            expires = self.peer.version == 5 and self.chance(0.3)
            properties = Properties(message_expiry_interval=self.random.choice((1, 9))) if expires else NONE
            topic, payload = self.random.choice(TOPICS), self.random.choice((b"", b"message"))
            self.peer.send(
                Publish(topic, payload, qos, self.chance(0.3), False, number, properties), self.chance(0.5)
            )
            if qos == 2 and self.chance(0.7) and not self.peer.front.closed:
                self.peer.send(Ack(PUBREL, number), self.chance(0.5))
        self.place.bench.settle()

    def _answer(self) -> None:
        if not self.unacked:
            return
        publish = self.unacked.pop(self.random.randrange(len(self.unacked)))
        if publish.qos == 1:
            self.peer.send(Ack(PUBACK, publish.packet_id))
            return
        self.peer.send(Ack(PUBREC, publish.packet_id))
        if self.chance(0.8) and not self.peer.front.closed:
            self.peer.send(Ack(PUBCOMP, publish.packet_id))

    def _disconnect(self) -> None:
        self.peer.leave(self.random.choice((0, 4)) if self.peer.version == 5 else 0)
        self.is_over = True

    def hear(self) -> None:
        self.unacked += [each for each in self.peer.taken(Publish) if each.qos]
        self.peer.heard.clear()
        self.is_over = self.peer.front.closed or self.peer.disconnected is not None

    def leave(self) -> None:
        if self.peer in self.place.bench.peers:
            self.peer.drop()

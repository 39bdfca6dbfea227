"""An MQTT client in memory, with the project's own codec: packets in, packets out, against a real broker and no socket.

peer = Peer(bench).connect("me")              # 5; version=4 is 3.1.1. The CONNACK is peer.connected
peer.subscribe("a/#", qos=1)                  -> the reason codes
peer.publish("a/b", b"hello", qos=1)          -> the acknowledgement, PUBACK or PUBCOMP; None with QoS 0
peer.messages()                               -> what came since the last look, acknowledged
"""

from __future__ import annotations

from leveret.front_end import Peer as Address
from leveret.protocols.mqtt.broker.adapter import AdapterMqtt
from leveret.protocols.mqtt.codec.packets import (
    Ack,
    Auth,
    ConnAck,
    Connect,
    Disconnect,
    Publish,
    SubAck,
    Subscribe,
    Subscription,
    UnsubAck,
    Unsubscribe,
    Will,
)
from leveret.protocols.mqtt.codec.properties import NONE, PUBACK, PUBCOMP, PUBREC, PUBREL, Properties
from leveret.protocols.mqtt.codec.reader import AckRun, PublishRun, Reader
from tests.harness.bench import ClientBench
from tests.harness.peer import LOOPBACK, JoinedPeer


class Peer(JoinedPeer):
    """One connection, seen from the client."""

    adapter = AdapterMqtt

    def __init__(
        self, bench: ClientBench | None = None, version: int = 5, address: Address = LOOPBACK
    ) -> None:
        super().__init__(bench, address)
        self.version = version
        self.reader = Reader(from_client=False, version=version)
        self.heard: list[object] = []
        self.connected: ConnAck | None = None
        self.disconnected: Disconnect | None = None
        self.packet_id = 0
        self.aliases: dict[int, str] = {}
        self.acknowledges = True  # what `messages` returns

    def hear(self, data: bytes) -> None:
        self.reader.push(data)
        while (packet := self.reader.take()) is not None:
            if isinstance(packet, PublishRun):
                for each in packet.packets():
                    self._resolve(each)
                    self.heard.append(each)
            elif isinstance(packet, AckRun):
                self.heard += [Ack(packet.kind, each) for each in packet.packet_ids]
            else:
                if isinstance(packet, ConnAck):
                    self.connected = packet
                elif isinstance(packet, Disconnect):
                    self.disconnected = packet
                self.heard.append(packet)

    def _resolve(self, publish: Publish) -> None:
        alias = publish.properties.topic_alias
        if alias is not None:
            publish.topic = (
                self.aliases.setdefault(alias, publish.topic) if not publish.topic else publish.topic
            )
            self.aliases[alias] = publish.topic

    def send(self, packet: object, settle: bool = True) -> None:
        self.send_bytes(packet.encode(self.version), settle)  # type: ignore[attr-defined]

    def taken(self, *kinds: type) -> list:
        """The packets since the last look, in order; of these kinds only, the others stay."""
        self.read()
        found = [each for each in self.heard if not kinds or isinstance(each, kinds)]
        self.heard = [each for each in self.heard if kinds and not isinstance(each, kinds)]
        return found

    # Verbs.

    def connect(
        self,
        client_id: str = "me",
        clean: bool = True,
        user: str | None = "guest",
        password: bytes | None = b"guest",
        keep_alive: int = 0,
        will: Will | None = None,
        **said: object,
    ) -> Peer:
        properties = Properties(**said) if said else NONE  # type: ignore[arg-type]
        self.send(Connect(self.version, client_id, clean, keep_alive, user, password, will, properties))
        self.read()
        self.heard = [each for each in self.heard if not isinstance(each, ConnAck)]
        return self

    def next_id(self) -> int:
        self.packet_id += 1
        return self.packet_id

    def subscribe(
        self, *filters: str, qos: int = 0, identifier: int = 0, **options: object
    ) -> tuple[int, ...]:
        said = Properties(subscription_identifiers=(identifier,)) if identifier else NONE
        asked = tuple(Subscription(each, qos, **options) for each in filters)  # type: ignore[arg-type]
        self.send(Subscribe(self.next_id(), asked, said))
        (answer,) = self.taken(SubAck)
        return answer.reason_codes

    def unsubscribe(self, *filters: str) -> tuple[int, ...]:
        self.send(Unsubscribe(self.next_id(), filters))
        (answer,) = self.taken(UnsubAck)
        return answer.reason_codes

    def publish(
        self, topic: str, payload: bytes = b"", qos: int = 0, retain: bool = False, **said: object
    ) -> Ack | None:
        properties = Properties(**said) if said else NONE  # type: ignore[arg-type]
        packet_id = self.next_id() if qos else 0
        self.send(Publish(topic, payload, qos, retain, False, packet_id, properties))
        if not qos:
            return None
        answers = self.taken(Ack)
        if not answers:
            return None
        (answer,) = answers
        if qos == 2 and answer.reason_code < 0x80:
            assert answer.kind == PUBREC
            self.send(Ack(PUBREL, packet_id))
            (answer,) = self.taken(Ack)
            assert answer.kind == PUBCOMP
        return answer

    def messages(self) -> list[Publish]:
        """What has come since the last look; it is acknowledged, unless `acknowledges` is off."""
        found: list[Publish] = []
        while came := self.taken(Publish):
            found += came
            if self.acknowledges:
                for each in came:
                    self.acknowledge(each)
        return found

    def acknowledge(self, publish: Publish) -> None:
        if publish.qos == 1:
            self.send(Ack(PUBACK, publish.packet_id))
        elif publish.qos == 2:
            self.send(Ack(PUBREC, publish.packet_id))
            (release,) = self.taken(Ack)
            assert (release.kind, release.packet_id) == (PUBREL, publish.packet_id)
            self.send(Ack(PUBCOMP, publish.packet_id))

    def payloads(self) -> list[bytes]:
        return [each.payload for each in self.messages()]

    def auth(self, code: int, method: str, data: bytes) -> list[Auth]:
        self.send(Auth(code, Properties(authentication_method=method, authentication_data=data)))
        return self.taken(Auth)

    def leave(self, code: int = 0, **said: object) -> None:
        self.send(Disconnect(code, Properties(**said) if said else NONE))  # type: ignore[arg-type]
        self.drop()

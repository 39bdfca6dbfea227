"""What paho's client writes is read here as what it was told to send; its reading of ours is compared by fuzzing."""

from __future__ import annotations

import pytest
from paho.mqtt.client import CallbackAPIVersion, Client, MQTTv5, MQTTv311, SubscribeOptions
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties as PahoProperties
from paho.mqtt.reasoncodes import ReasonCode

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import properties as of
from leveret.protocols.mqtt.codec.properties import Properties
from leveret.protocols.mqtt.codec.reader import Reader
from tests.mqtt.test_packets import taken


class Nowhere:
    """What the client takes for its socket."""

    def close(self) -> None: ...


class Paho(Client):
    """A client of paho's that has no socket, and what it would send."""

    def __init__(self, version: int) -> None:
        super().__init__(CallbackAPIVersion.VERSION2, "me", protocol={4: MQTTv311, 5: MQTTv5}[version])
        self.said = b""
        self.version = version
        self._sock = Nowhere()

    def _packet_queue(self, command, packet, mid, qos, info=None):
        self.said += bytes(packet)
        return 0

    def read(self) -> list[p.AnyPacket]:
        reader = Reader(version=0 if self.said[0] >> 4 == of.CONNECT else self.version)
        reader.push(self.said)
        return taken(reader)


def properties_of(kind: int, **values: object) -> PahoProperties:
    made = PahoProperties(kind)
    for name, value in values.items():
        setattr(made, name, value)
    return made


@pytest.mark.parametrize("version", [4, 5])
def test_a_connect_with_a_will(version: int) -> None:
    client = Paho(version)
    client.username_pw_set("ann", "secret")
    will = properties_of(PacketTypes.WILLMESSAGE, WillDelayInterval=5, UserProperty=("a", "b"))
    client.will_set("gone/ann", b"bye", 1, True, will if version == 5 else None)
    client._clean_start = True
    client._connect_properties = (
        properties_of(PacketTypes.CONNECT, SessionExpiryInterval=60, ReceiveMaximum=10)
        if version == 5
        else None
    )
    client._send_connect(30)
    is_5 = version == 5
    will_properties = Properties(will_delay_interval=5, user_properties=(("a", "b"),)) if is_5 else of.NONE
    assert client.read() == [
        p.Connect(
            version,
            "me",
            True,
            30,
            "ann",
            b"secret",
            p.Will("gone/ann", b"bye", 1, True, will_properties),
            Properties(session_expiry_interval=60, receive_maximum=10) if is_5 else of.NONE,
        )
    ]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_publish(version: int, qos: int) -> None:
    client = Paho(version)
    some = properties_of(
        PacketTypes.PUBLISH,
        PayloadFormatIndicator=1,
        MessageExpiryInterval=7,
        ContentType="text/plain",
        ResponseTopic="answers",
        CorrelationData=b"\xff",
        TopicAlias=3,
        UserProperty=[("a", "1"), ("a", "2")],
    )
    mid = 9 if qos else 0
    client._send_publish(
        mid, b"caf\xc3\xa9/1", b"x" * 500, qos, True, bool(qos), None, some if version == 5 else None
    )
    properties = Properties(
        1, 7, "text/plain", "answers", b"\xff", topic_alias=3, user_properties=(("a", "1"), ("a", "2"))
    )
    assert client.read() == [
        p.Publish("café/1", b"x" * 500, qos, True, bool(qos), mid, properties if version == 5 else of.NONE)
    ]


@pytest.mark.parametrize("version", [4, 5])
def test_subscriptions_acknowledgements_and_the_end(version: int) -> None:
    client = Paho(version)
    is_5 = version == 5
    if is_5:
        options = SubscribeOptions(2, noLocal=True, retainAsPublished=True, retainHandling=1)
        identifier = properties_of(PacketTypes.SUBSCRIBE, SubscriptionIdentifier=300)
        client._send_subscribe(False, [(b"a/+", options)], identifier)
    else:
        client._send_subscribe(False, [(b"a/+", 2)], None)
    client._send_unsubscribe(False, [b"a/+"], None)
    client._send_puback(1)
    client._send_pubrec(2)
    client._send_pubrel(3)
    client._send_pubcomp(4)
    client._send_pingreq()
    client._send_disconnect(ReasonCode(PacketTypes.DISCONNECT, identifier=4) if is_5 else None, None)
    subscription = p.Subscription("a/+", 2, True, True, 1) if is_5 else p.Subscription("a/+", 2)
    assert client.read() == [
        p.Subscribe(1, (subscription,), Properties(subscription_identifiers=(300,)) if is_5 else of.NONE),
        p.Unsubscribe(2, ("a/+",)),
        p.Ack(of.PUBACK, 1),
        p.Ack(of.PUBREC, 2),
        p.Ack(of.PUBREL, 3),
        p.Ack(of.PUBCOMP, 4),
        p.PingReq(),
        p.Disconnect(4 if is_5 else 0),
    ]

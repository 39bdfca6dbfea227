"""Packets of MQTT with their bytes, written by hand from the specification."""

from __future__ import annotations

from typing import Final

import attrs

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import properties as of
from leveret.protocols.mqtt.codec.properties import Properties


@attrs.frozen
class Sample:
    """A packet, the version that it is sent in, and its bytes."""

    name: str
    packet: p.AnyPacket
    version: int
    octets: bytes
    from_client: bool = True


def sample(name: str, packet: p.AnyPacket, version: int, octets: str, from_client: bool = True) -> Sample:
    return Sample(name, packet, version, bytes.fromhex(octets), from_client)


SAMPLES: Final = (
    sample("connect", p.Connect(4, "c"), 4, "10 0d 0004 4d515454 04 02 0000 0001 63"),
    sample("connect in version 5", p.Connect(5, "c"), 5, "10 0e 0004 4d515454 05 02 0000 00 0001 63"),
    sample(
        "connect with everything",
        p.Connect(
            5,
            "c",
            False,
            60,
            "u",
            b"\xff",
            p.Will("w", b"gone", 1, True, Properties(will_delay_interval=5)),
            Properties(session_expiry_interval=10, receive_maximum=3, user_properties=(("a", "b"), ("a", "c"))),
        ),
        5,
        "10 39 0004 4d515454 05 ec 003c 16 11 0000000a 21 0003 26 0001 61 0001 62 26 0001 61 0001 63"
        " 0001 63 05 18 00000005 0001 77 0004 676f6e65 0001 75 0001 ff",
    ),
    sample("connack", p.ConnAck(), 4, "20 02 00 00", False),
    sample("connack of a refusal", p.ConnAck(0x87), 4, "20 02 00 05", False),
    sample(
        "connack in version 5",
        p.ConnAck(0, True, Properties(assigned_client_identifier="x", maximum_qos=1, server_keep_alive=9)),
        5,
        "20 0c 01 00 09 12 0001 78 13 0009 24 01",
        False,
    ),
    sample("publish", p.Publish("a/b", b"hi"), 4, "30 07 0003 612f62 6869"),
    sample("publish with QoS 1", p.Publish("a", b"", 1, True, True, 7), 4, "3b 05 0001 61 0007"),
    sample("publish in version 5", p.Publish("a", b"hi"), 5, "30 06 0001 61 00 6869"),
    sample(
        "publish with properties",
        p.Publish("", b"x", 2, packet_id=258, properties=Properties(payload_format_indicator=1, topic_alias=2)),
        5,
        "34 0b 0000 0102 05 01 01 23 0002 78",
    ),
    sample(
        "publish of a server",
        p.Publish("a", b"x", properties=Properties(subscription_identifiers=(1, 300))),
        5,
        "30 0a 0001 61 05 0b 01 0b ac02 78",
        False,
    ),
    sample("puback", p.Ack(of.PUBACK, 1), 4, "40 02 0001"),
    sample("pubrec with a reason code", p.Ack(of.PUBREC, 1, 0x97), 5, "50 03 0001 97"),
    sample("pubrel", p.Ack(of.PUBREL, 1), 5, "62 02 0001"),
    sample(
        "pubcomp with properties",
        p.Ack(of.PUBCOMP, 1, 0x92, Properties(reason_string="no")),
        5,
        "70 09 0001 92 05 1f 0002 6e6f",
    ),
    sample("subscribe", p.Subscribe(1, (p.Subscription("a/+", 1), p.Subscription("#"))), 4,
           "82 0c 0001 0003 612f2b 01 0001 23 00"),
    sample(
        "subscribe with options",
        p.Subscribe(1, (p.Subscription("a", 2, True, True, 2),), Properties(subscription_identifiers=(5,))),
        5,
        "82 09 0001 02 0b05 0001 61 2e",
    ),
    sample("suback", p.SubAck(1, (0, 1, 2, 0x80)), 4, "90 06 0001 00 01 02 80", False),
    sample("suback in version 5", p.SubAck(1, (0x8F,)), 5, "90 04 0001 00 8f", False),
    sample("unsubscribe", p.Unsubscribe(1, ("a", "b")), 4, "a2 08 0001 0001 61 0001 62"),
    sample("unsubscribe in version 5", p.Unsubscribe(1, ("a",)), 5, "a2 06 0001 00 0001 61"),
    sample("unsuback", p.UnsubAck(1), 4, "b0 02 0001", False),
    sample("unsuback in version 5", p.UnsubAck(1, (0, 0x11)), 5, "b0 05 0001 00 00 11", False),
    sample("pingreq", p.PingReq(), 4, "c0 00"),
    sample("pingresp", p.PingResp(), 5, "d0 00", False),
    sample("disconnect", p.Disconnect(), 4, "e0 00"),
    sample("disconnect with a reason code", p.Disconnect(0x04), 5, "e0 01 04"),
    sample(
        "disconnect with properties",
        p.Disconnect(0x9D, Properties(server_reference="s")),
        5,
        "e0 06 9d 04 1c 0001 73",
        False,
    ),
    sample("auth", p.Auth(), 5, "f0 00"),
    sample(
        "auth that continues",
        p.Auth(0x18, Properties(authentication_method="m", authentication_data=b"d")),
        5,
        "f0 0a 18 08 15 0001 6d 16 0001 64",
    ),
)  # fmt: skip

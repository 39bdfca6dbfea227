"""Packets of MQTT with their bytes, written by hand from the specification, and Hypothesis' idea of the same."""

from __future__ import annotations

from typing import Final

import attrs
from hypothesis import strategies as st

from leveret.protocols.mqtt.codec import packets as p
from leveret.protocols.mqtt.codec import properties as of
from leveret.protocols.mqtt.codec import reason_codes as codes
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
    sample("connect of a bridge", p.Connect(4, "c", is_bridge=True), 4, "10 0d 0004 4d515454 84 02 0000 0001 63"),
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


# Hypothesis' idea of the same.

TEXTS: Final = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=20)
LEVELS: Final = st.text(st.sampled_from("abc$é/ \ufeff"), max_size=8)
TOPICS: Final = LEVELS.filter(bool) | TEXTS.map(lambda text: text.replace("+", "").replace("#", "")).filter(
    bool
)
FILTERS: Final = (
    st.lists(LEVELS.map(lambda text: text.replace("$", "")) | st.just("+"), min_size=1, max_size=4)
    .map("/".join)
    .filter(bool)
    | st.just("#")
    | st.just("a/#")
)
SHORTS: Final = st.integers(0, 65535)
IDS: Final = st.integers(1, 65535)
QOS: Final = st.integers(0, 2)
BYTES: Final = st.binary(max_size=40)

VALUES: Final[dict[object, st.SearchStrategy[object]]] = {
    of.byte_at: st.integers(0, 1),
    of.two_bytes_at: IDS,
    of.four_bytes_at: st.integers(1, 2**32 - 1),
    of.string_at: TEXTS,
    of.binary_at: BYTES,
}


@st.composite
def properties_of(draw: st.DrawFn, kind: int, from_client: bool = True) -> Properties:
    """Any properties that a packet of this kind may have."""
    made: dict[str, object] = {}
    for _, name, read, kinds, _ in of.TABLE:
        if kind not in kinds or not draw(st.booleans()):
            continue
        if name == "user_properties":
            made[name] = tuple(draw(st.lists(st.tuples(TEXTS, TEXTS), max_size=3)))
        elif name == "subscription_identifiers":
            most = 1 if kind == of.SUBSCRIBE else 0 if from_client else 3
            made[name] = tuple(draw(st.lists(st.integers(1, 268_435_455), max_size=most)))
        elif name == "response_topic":
            made[name] = draw(TOPICS)
        else:
            made[name] = draw(VALUES[read])
    if "authentication_method" not in made:
        made.pop("authentication_data", None)
    if kind == of.DISCONNECT:
        made.pop("session_expiry_interval" if not from_client else "server_reference", None)
    return Properties(**made)  # type: ignore[arg-type]


@st.composite
def messages(draw: st.DrawFn, version: int, from_client: bool = True) -> p.Publish:
    qos = draw(QOS)
    properties = (
        draw(properties_of(of.PUBLISH, from_client)) if version == 5 and draw(st.booleans()) else of.NONE
    )
    topic = draw(st.just("") | TOPICS) if properties.topic_alias else draw(TOPICS)
    flags = draw(st.booleans()), bool(qos) and draw(st.booleans())
    return p.Publish(topic, draw(BYTES), qos, *flags, draw(IDS) if qos else 0, properties)


@st.composite
def wills(draw: st.DrawFn, version: int) -> p.Will:
    properties = draw(properties_of(of.WILL)) if version == 5 else of.NONE
    return p.Will(draw(TOPICS), draw(BYTES), draw(QOS), draw(st.booleans()), properties)


@st.composite
def connects(draw: st.DrawFn, version: int) -> p.Connect:
    name = draw(st.none() | TEXTS)
    password = draw(st.none() | BYTES) if version == 5 or name is not None else None
    properties = draw(properties_of(of.CONNECT)) if version == 5 else of.NONE
    will = draw(st.none() | wills(version))
    return p.Connect(
        version, draw(TEXTS), draw(st.booleans()), draw(SHORTS), name, password, will, properties
    )


@st.composite
def subscriptions(draw: st.DrawFn, version: int) -> p.Subscription:
    topic_filter, qos = draw(FILTERS), draw(QOS)
    if version == 4:
        return p.Subscription(topic_filter, qos)
    if draw(st.booleans()):
        return p.Subscription(f"$share/group/{topic_filter}", qos, False, draw(st.booleans()), draw(QOS))
    return p.Subscription(topic_filter, qos, draw(st.booleans()), draw(st.booleans()), draw(QOS))


@st.composite
def others(draw: st.DrawFn, version: int, from_client: bool) -> p.AnyPacket:
    """Any packet but CONNECT and PUBLISH that this side may send in this version."""
    kinds = (p.OF_CLIENTS if from_client else p.OF_SERVERS) - {of.CONNECT, of.PUBLISH}
    kinds -= {of.AUTH} if version == 4 else set()
    kinds -= {of.DISCONNECT} if version == 4 and not from_client else set()
    kind = draw(st.sampled_from(sorted(kinds)))
    properties = draw(properties_of(kind, from_client)) if version == 5 else of.NONE
    if kind == of.CONNACK:
        code = draw(st.sampled_from(sorted(codes.OF_CONNACK if version == 5 else p.REASONS_OF_RETURN_CODES)))
        return p.ConnAck(code, not code and draw(st.booleans()), properties)
    if kind in p.REASONS and kind < of.SUBSCRIBE:
        code = draw(st.sampled_from(sorted(p.REASONS[kind]))) if version == 5 else 0
        return p.Ack(kind, draw(IDS), code, properties)
    if kind == of.SUBSCRIBE:
        several = draw(st.lists(subscriptions(version), min_size=1, max_size=3))
        return p.Subscribe(draw(IDS), tuple(several), properties)
    if kind == of.SUBACK:
        allowed = codes.OF_SUBACK if version == 5 else codes.OF_SUBACK_311
        return p.SubAck(draw(IDS), tuple(draw(reasons(allowed))), properties)
    if kind == of.UNSUBSCRIBE:
        return p.Unsubscribe(draw(IDS), tuple(draw(st.lists(FILTERS, min_size=1, max_size=3))), properties)
    if kind == of.UNSUBACK:
        return p.UnsubAck(
            draw(IDS), tuple(draw(reasons(codes.OF_UNSUBACK))) if version == 5 else (), properties
        )
    if kind == of.DISCONNECT:
        allowed = codes.OF_CLIENTS_DISCONNECT if from_client else codes.OF_SERVERS_DISCONNECT
        return p.Disconnect(draw(st.sampled_from(sorted(allowed))) if version == 5 else 0, properties)
    if kind == of.AUTH:
        return p.Auth(draw(st.sampled_from(sorted(codes.OF_AUTH))), properties)
    return p.PingReq() if kind == of.PINGREQ else p.PingResp()


def reasons(allowed: frozenset[int]) -> st.SearchStrategy[list[int]]:
    return st.lists(st.sampled_from(sorted(allowed)), min_size=1, max_size=4)


def packets_of(version: int, from_client: bool) -> st.SearchStrategy[p.AnyPacket]:
    """Any packet but CONNECT that this side may send in this version."""
    return messages(version, from_client) | others(version, from_client)

"""Messages between AMQP 0-10 and the other two protocols, by the table: what is kept, what changes, what is lost."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret import values
from leveret.message import Message
from leveret.protocols.amqp010.broker import conversion
from leveret.protocols.amqp010.broker import encoding as encoding010
from leveret.protocols.amqp010.broker.core_values import neutral, wire
from leveret.protocols.amqp010.codec import types as t
from leveret.protocols.amqp010.codec.commands import DeliveryProperties, MessageProperties, ReplyTo
from leveret.protocols.amqp091.broker import encoding as encoding091
from leveret.protocols.amqp091.codec import wire as wire091
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldValue
from leveret.protocols.amqp10.broker import encoding as encoding10
from leveret.protocols.amqp10.broker.conversion import LOOKED_INTO_MAX
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described, Long, Symbol, Timestamp, UByte, ULong, value_at
from leveret.protocols.amqp10.codec.types import Value as Value10
from leveret.values import Properties
from tests.amqp10.messages import FOOTER, SEQUENCE, VALUE
from tests.amqp10.parts import Delivery, annotations, application_properties, data, message, section
from tests.core.fakes import lone

from .messages import Said, header_segments, headers
from .test_encoding import Seen, header

URN = "urn:uuid:00112233-4455-6677-8899-aabbccddeeff"
ID = UUID(URN)
HELLO = data(b"hello")
M, D = MessageProperties, DeliveryProperties


def of_010(*structs: t.Struct32 | M | D, body: bytes = b"hello") -> Message:
    octets = b"".join(struct.encode() for struct in structs)
    facts = encoding010.envelope_of(octets).facts
    return Message(encoding010.ENCODING, "x", "k", octets, body, facts)


def of_091(properties: BasicProperties, body: bytes = b"hello") -> Message:
    facts, raw = encoding091.project(properties.encode())
    return Message(encoding091.ENCODING, "x", "k", raw, body, facts)


def of_10(octets: bytes) -> Message:
    facts, properties, body, _, _ = encoding10.project(octets)
    return Message(encoding10.ENCODING, "x", "k", properties, body, facts)


def in_010(published: Message) -> Seen:
    octets, body = encoding010.rendered(published)
    assert body == b"hello"
    return Seen(octets)


def in_091(published: Message) -> BasicProperties:
    shown, body = encoding091.rendered(published)
    assert body == b"hello"
    return BasicProperties.decode(shown)


def in_10(published: Message) -> Delivery:
    pieces = encoding10.pieces(published, lone(published))
    return Delivery(0, b"", False, b"".join(pieces))


def reply(key: str | None = None, exchange: str | None = None) -> M:
    return M(reply_to=ReplyTo(exchange, key))


# The same in 0-9-1, both ways.

BOTH_WAYS: list[tuple[BasicProperties, M]] = [
    (BasicProperties(), M()),
    (BasicProperties(content_type="text/plain"), M(content_type="text/plain")),
    (BasicProperties(content_type="amqp/map"), M(content_type="amqp/map")),
    (BasicProperties(content_encoding="gzip"), M(content_encoding="gzip")),
    (BasicProperties(message_id=URN), M(message_id=ID)),
    (BasicProperties(message_id="m-1"), M(application_headers={"x-message-id": "m-1"})),
    (BasicProperties(message_id=URN.upper()), M(application_headers={"x-message-id": URN.upper()})),
    (BasicProperties(message_id=str(ID)), M(application_headers={"x-message-id": str(ID)})),
    (BasicProperties(correlation_id="c-1"), M(correlation_id=b"c-1")),
    (BasicProperties(correlation_id=""), M(correlation_id=b"")),
    (BasicProperties(correlation_id="caf\u00e9"), M(correlation_id="caf\u00e9".encode())),
    (BasicProperties(correlation_id="\udcff"), M(correlation_id=b"\xff")),
    (BasicProperties(correlation_id=URN), M(correlation_id=URN.encode())),
    (BasicProperties(reply_to="q"), reply("q")),
    (BasicProperties(reply_to="a b/\u00e9"), reply("a b/\u00e9")),
    (BasicProperties(reply_to="/exchanges/amq.direct/q"), reply("q", "amq.direct")),
    (BasicProperties(reply_to="/exchanges/a%2Fb/%C3%A9"), reply("\u00e9", "a/b")),
    (BasicProperties(reply_to="/queues/%2Fqueues%2Fq"), reply("/queues/q")),
    (BasicProperties(user_id="guest"), M(user_id=b"guest")),
    (BasicProperties(app_id="app"), M(app_id=b"app")),
    (BasicProperties(type="order"), M(application_headers={"x-jms-type": "order"})),
    (BasicProperties(headers={"a": 1, "x-b": "c"}), M(application_headers={"a": 1, "x-b": "c"})),
    (BasicProperties(headers={"qpid.subject": "news"}), M(application_headers={"qpid.subject": "news"})),
]
DELIVERY_BOTH_WAYS: list[tuple[BasicProperties, D]] = [
    (BasicProperties(), D()),
    (BasicProperties(delivery_mode=2), D(delivery_mode=2)),
    (BasicProperties(priority=0), D(priority=0)),
    (BasicProperties(priority=255), D(priority=255)),
    (BasicProperties(timestamp=5), D(timestamp=5)),
    (BasicProperties(timestamp=2**64 - 1), D(timestamp=2**64 - 1)),
]


@pytest.mark.parametrize(("basic", "said"), BOTH_WAYS)
def test_properties_of_0_9_1_in_0_10(basic: BasicProperties, said: M) -> None:
    assert in_010(of_091(basic)).message == said


@pytest.mark.parametrize(("basic", "said"), BOTH_WAYS)
def test_properties_of_0_10_in_0_9_1(basic: BasicProperties, said: M) -> None:
    assert in_091(of_010(said)) == basic


@pytest.mark.parametrize(("basic", "said"), DELIVERY_BOTH_WAYS)
def test_delivery_properties_of_0_9_1_in_0_10(basic: BasicProperties, said: D) -> None:
    said = D(**{**said.fields(), "exchange": "x", "routing_key": "k"})  # type: ignore[arg-type]
    assert in_010(of_091(basic)).delivery == said


@pytest.mark.parametrize(("basic", "said"), DELIVERY_BOTH_WAYS)
def test_delivery_properties_of_0_10_in_0_9_1(basic: BasicProperties, said: D) -> None:
    assert in_091(of_010(said)) == basic


def test_a_ttl_is_an_expiration_of_0_9_1_both_ways() -> None:
    assert in_091(of_010(D(ttl=5000))) == BasicProperties(expiration="5000")
    assert in_091(of_010(D(ttl=0))) == BasicProperties()
    octets, _ = encoding010.rendered(of_091(BasicProperties(expiration="5000")), ttl_left_ms=4000)
    assert Seen(octets).delivery.ttl == 4000


# Only one way.


@pytest.mark.parametrize(
    ("basic", "said"),
    [
        (BasicProperties(delivery_mode=1), M()),
        (BasicProperties(reply_to=""), M()),
        (BasicProperties(user_id=""), M(user_id=b"")),
        (BasicProperties(headers={}), M()),
        (
            BasicProperties(message_id="m", headers={"x-message-id": "n"}),
            M(application_headers={"x-message-id": "m"}),
        ),
        (BasicProperties(reserved="cluster"), M()),
        (BasicProperties(reply_to="/exchanges/x"), reply("", "x")),
    ],
)
def test_what_0_10_cannot_say_of_0_9_1(basic: BasicProperties, said: M) -> None:
    assert in_010(of_091(basic)).message == said


@pytest.mark.parametrize(
    ("said", "basic"),
    [
        (M(content_length=7), BasicProperties()),
        (M(user_id=b""), BasicProperties()),
        (M(reply_to=ReplyTo()), BasicProperties()),
        (reply("", "x"), BasicProperties(reply_to="/exchanges/x")),
        (M(correlation_id=b"c" * 256), BasicProperties(headers={"x-correlation-id": "c" * 256})),
        (M(app_id=b"a" * 256), BasicProperties()),
        (
            M(message_id=ID, application_headers={"x-message-id": "n"}),
            BasicProperties(message_id=URN, headers={"x-message-id": "n"}),
        ),
        (
            M(application_headers={"x-jms-type": 5}),
            BasicProperties(headers={"x-jms-type": wire091.LongLong(5)}),
        ),
    ],
)
def test_what_0_9_1_sees_otherwise_of_0_10(said: M, basic: BasicProperties) -> None:
    assert in_091(of_010(said)) == basic


def test_what_only_0_10_has_is_left_out() -> None:
    said = D(
        discard_unroutable=True, immediate=True, expiration=5, resume_id="r", resume_ttl=1, routing_key="k"
    )
    assert in_091(of_010(said, t.Struct32(0x04F1, b"odd"))) == BasicProperties()


def test_names_that_are_no_names_in_0_10_are_lost() -> None:
    basic = BasicProperties(headers={"n" * 255: 1, "b": Decimal("1.5")})
    assert in_010(of_091(basic)).headers == {"n" * 255: 1, "b": Decimal("1.5")}
    assert conversion.entries_of({"n" * 256: 1, "\u00e9" * 128: 1}) == {}


# Values of headers.

SCALARS: list[tuple[values.Value, t.Value]] = [
    (None, None),
    (True, True),
    (values.Int8(-1), t.Int8(-1)),
    (values.UInt8(1), t.UInt8(1)),
    (values.Int16(-1), t.Int16(-1)),
    (values.UInt16(1), t.UInt16(1)),
    (1, t.Int32(1)),
    (-(2**31), t.Int32(-(2**31))),
    (values.UInt32(1), t.UInt32(1)),
    (values.Int64(1), 1),
    (values.UInt64(2**64 - 1), t.UInt64(2**64 - 1)),
    (values.Float32(1.5), t.Float32(1.5)),
    (1.5, 1.5),
    (values.Timestamp(5), t.Datetime(5)),
    ("text", "text"),
    ("", ""),
    ("x" * 70_000, "x" * 70_000),
    (bytearray(b"\xff"), b"\xff"),
    (Decimal("1.25"), Decimal("1.25")),
    (ID, ID),
    ([1, [None]], [t.Int32(1), [None]]),
    ({"a": {"b": 1.5}}, {"a": {"b": 1.5}}),
]


def same(one: object, other: object) -> bool:
    """Equal, and of the same types."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[name], other[name]) for name in one)
    return type(one) is type(other) and one == other


@pytest.mark.parametrize(("value", "said"), SCALARS)
def test_values_of_headers_both_ways(value: values.Value, said: t.Value) -> None:
    assert same(wire(value), said)
    assert same(neutral(said), value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (b"longstr", b"longstr"),
        (2**40, 2**40),
        (2**63, 2**63),
        ((1, 2), [t.Int32(1), t.Int32(2)]),
        ([1, 2**70, 2], [t.Int32(1), t.Int32(2)]),
        ({"a": 2**70, "n" * 256: 1, "b": True}, {"b": True}),
    ],
)
def test_values_that_0_10_says_otherwise(value: values.Value, said: t.Value) -> None:
    assert same(wire(value), said)


@pytest.mark.parametrize(
    ("said", "value"),
    [
        (t.Char("x"), "x"),
        (t.CharUtf32("\u00e9"), "\u00e9"),
        (t.Str8("s"), "s"),
        (t.Str8Latin("s"), "s"),
        (t.Str16Latin("s"), "s"),
        (t.Str8Utf16("s"), "s"),
        (t.Str16Utf16("s"), "s"),
        ("stray \udce9", b"stray \xe9"),
        (t.Vbin8(b"v"), bytearray(b"v")),
        (t.Vbin32(b"v"), bytearray(b"v")),
        (t.Dec64("1.5"), Decimal("1.5")),
        (t.Array(0x31, [1, 2]), [values.Int64(1), values.Int64(2)]),
        ([1, t.Opaque(0xC1, b"12345"), None], [values.Int64(1), None]),
        ({"a": t.Struct32(0x0401, b""), "b": None}, {"b": None}),
    ],
)
def test_values_that_others_say_otherwise(said: t.Value, value: values.Value) -> None:
    assert same(neutral(said), value)


def test_values_that_one_side_has_not() -> None:
    for said in (t.Opaque(0xC1, b"12345"), t.Struct32(0x0401, b"")):
        with pytest.raises(ValueError, match="no other protocol"):
            neutral(said)
    for value in (2**70, Decimal("1e300")):
        with pytest.raises(ValueError):  # noqa: PT011 - in the words of the encoder
            wire(value)


def test_what_is_nested_too_deep_is_left_out_and_the_rest_can_be_read() -> None:
    value: values.Value = 1
    for _ in range(200):
        value = [value]
    entry = conversion.entries_of({"deep": value})["deep"]
    octets = b"\x00\x00\x00\x01\x04deep" + entry
    found, _ = t.map_at(len(octets).to_bytes(4, "big") + octets, 0, 4 + len(octets))
    assert isinstance(found["deep"], list)
    assert len(entry) < 64 * 9


@pytest.mark.parametrize(
    ("field", "said"),
    [
        (wire091.LongLong(1), 1),
        (1, t.Int32(1)),
        (wire091.UInt8(1), t.UInt8(1)),
        (wire091.ByteArray(b"\xff"), b"\xff"),
        (b"\xff", b"\xff"),
        (wire091.Timestamp(5), t.Datetime(5)),
        ([1, {"a": "b"}], [t.Int32(1), {"a": "b"}]),
    ],
)
def test_fields_of_0_9_1_in_0_10(field: FieldValue, said: t.Value) -> None:
    assert same(in_010(of_091(BasicProperties(headers={"a": field}))).headers["a"], said)


# 1.0.

IN_10: list[tuple[M, p.Properties]] = [
    (M(message_id=ID), p.Properties(message_id=ID)),
    (M(application_headers={"x-message-id": "m" * 300}), p.Properties(message_id="m" * 300)),
    (M(correlation_id=b"c-1"), p.Properties(correlation_id="c-1")),
    (M(correlation_id=b"\xff\xfe"), p.Properties(correlation_id=b"\xff\xfe")),
    (M(correlation_id=URN.encode()), p.Properties(correlation_id=ID)),
    (reply("a b"), p.Properties(reply_to="/queues/a%20b")),
    (reply("k", "amq.direct"), p.Properties(reply_to="/exchanges/amq.direct/k")),
    (reply("/queues/q"), p.Properties(reply_to="/queues/%2Fqueues%2Fq")),
    (M(user_id=b"guest"), p.Properties(user_id=b"guest")),
    (M(app_id=b"app"), p.Properties(group_id="app")),
    (M(content_type="amqp/map"), p.Properties(content_type=Symbol("amqp/map"))),
    (M(content_encoding="gzip"), p.Properties(content_encoding=Symbol("gzip"))),
]


@pytest.mark.parametrize(("said", "expected"), IN_10)
def test_properties_of_0_10_in_1_0(said: M, expected: p.Properties) -> None:
    delivery = in_10(of_010(said))
    assert delivery.properties == expected
    assert delivery.octets.endswith(HELLO)


@pytest.mark.parametrize(
    ("given_", "said"),
    [(expected, said) for said, expected in IN_10 if said != reply("/queues/q")]
    + [
        (p.Properties(message_id="m"), M(application_headers={"x-message-id": "m"})),
        (p.Properties(message_id=b"m"), M(application_headers={"x-message-id": b"m"})),
        (p.Properties(message_id=ULong(7)), M(application_headers={"x-message-id": t.UInt64(7)})),
        (p.Properties(correlation_id=ULong(7)), M(correlation_id=b"7")),
        (
            p.Properties(correlation_id="c" * 70_000),
            M(application_headers={"x-correlation-id": b"c" * 70_000}),
        ),
        (p.Properties(subject="news"), M(application_headers={"qpid.subject": "news"})),
        (p.Properties(to="/queues/q", reply_to_group_id="g"), M()),
        (p.Properties(reply_to="r" * 256), M()),
    ],
)
def test_properties_of_1_0_in_0_10(given_: p.Properties, said: M) -> None:
    assert in_010(of_10(message(given_, HELLO))).message == said


def test_ids_of_1_0_come_back_as_they_were() -> None:
    for message_id in ("m", b"m", ULong(7), ID):
        seen = in_010(of_10(message(p.Properties(message_id=message_id), HELLO)))
        read = conversion.read(header(seen.message))
        assert read.message_id == message_id
        assert not read.headers


def test_the_header_of_1_0_both_ways() -> None:
    said = D(delivery_mode=2, priority=7, timestamp=5)
    delivery = in_10(of_010(said))
    assert delivery.header == p.Header(durable=True, priority=7, first_acquirer=True)
    assert delivery.properties == p.Properties(creation_time=Timestamp(5000))
    back = in_010(of_10(message(p.Header(durable=True, priority=7), delivery.properties, HELLO))).delivery
    assert back == D(delivery_mode=2, priority=7, timestamp=5, exchange="x", routing_key="k")
    assert in_10(of_010(D(ttl=5000))).header == p.Header(durable=False, ttl=5000, first_acquirer=True)


def test_the_subject_is_a_header_of_0_10_and_the_subject_of_1_0() -> None:
    delivery = in_10(of_010(M(application_headers={"qpid.subject": "news", "a": 1})))
    assert delivery.properties.subject == "news"
    assert delivery.application_properties == {"qpid.subject": "news", "a": 1}
    both = message(p.Properties(subject="s"), application_properties({"qpid.subject": "t"}), HELLO)
    assert in_010(of_10(both)).headers == {"qpid.subject": "t"}


def test_a_subject_that_is_no_text_is_none_in_1_0() -> None:
    for subject in (5, "stray \udce9", [1]):
        delivery = in_10(of_010(M(content_type="a/b", application_headers={"qpid.subject": subject})))
        assert delivery.properties == p.Properties(content_type=Symbol("a/b"))


def test_headers_of_0_10_in_1_0_are_annotations_or_application_properties() -> None:
    said: dict[str, t.Value] = {"x-a": 1, "b": "two", "list": [1], "x-list": [1], "x-jms-type": "order"}
    delivery = in_10(of_010(M(application_headers=said)))
    assert delivery.application_properties == {"b": "two"}
    assert delivery.annotations == {
        "x-a": 1,
        "x-list": [1],
        "x-basic-type": "order",
        "x-exchange": "x",
        "x-routing-key": "k",
    }


def test_annotations_and_application_properties_of_1_0_are_headers_of_0_10() -> None:
    sections = annotations({"x-a": 1, "x-basic-type": "order"}), application_properties({"b": "two"})
    assert in_010(of_10(message(*sections, HELLO))).headers == {"x-a": 1, "x-jms-type": "order", "b": "two"}


# Bodies.

BODIES: list[tuple[str, bytes, Value10]] = [
    (
        "amqp/map",
        t.encode_map({"a": 1, "b": {"c": [b"octets", None]}}),
        {"a": Long(1), "b": {"c": [b"octets", None]}},
    ),
    ("amqp/map", t.encode_map({}), {}),
    (
        "amqp/map",
        t.encode_map({"u": ID, "f": 1.5, "t": True, "\u00e9": t.UInt8(1)}),
        {"u": ID, "f": 1.5, "t": True, "\u00e9": UByte(1)},
    ),
    ("amqp/list", t.encode_list([1, "two", [t.Datetime(5)]]), [Long(1), "two", [Timestamp(5000)]]),
    ("amqp/list", t.encode_list([]), []),
]


@pytest.mark.parametrize(("content_type", "body", "value"), BODIES)
def test_maps_and_lists_of_0_10_are_values_of_1_0(content_type: str, body: bytes, value: Value10) -> None:
    delivery = in_10(of_010(M(content_type=content_type, app_id=b"a"), body=body))
    octets = delivery.sections()[VALUE][0][0]
    found, _ = value_at(octets, 3, len(octets))
    assert found == value
    assert types_of(found) == types_of(value)
    assert delivery.properties == p.Properties(group_id="a")


@pytest.mark.parametrize(("content_type", "body", "value"), BODIES)
def test_maps_and_lists_of_1_0_are_content_types_of_0_10(
    content_type: str, body: bytes, value: Value10
) -> None:
    octets, shown = encoding010.rendered(of_10(message(p.Properties(group_id="a"), section(VALUE, value))))
    assert Seen(octets).message == M(content_type=content_type, app_id=b"a")
    read = t.map_at if content_type == "amqp/map" else t.list_at
    assert read(shown, 0, len(shown))[0] == read(body, 0, len(body))[0]


def types_of(value: object) -> object:
    """Names of maps are strings in bodies, and symbols in annotations only."""
    if isinstance(value, dict):
        return {name: (type(name), types_of(item)) for name, item in value.items()}
    if isinstance(value, list):
        return [types_of(item) for item in value]
    return type(value)


@pytest.mark.parametrize(
    ("content_type", "shown"), [(None, "text/plain"), ("application/json", "application/json")]
)
def test_a_text_of_1_0_is_its_octets_to_0_10(content_type: str | None, shown: str) -> None:
    said = p.Properties(content_type=None if content_type is None else Symbol(content_type))
    octets, body = encoding010.rendered(of_10(message(said, section(VALUE, "caf\u00e9"))))
    assert Seen(octets).message == M(content_type=shown)
    assert body == "caf\u00e9".encode()


@pytest.mark.parametrize(
    "body",
    [
        section(VALUE, 1),
        section(VALUE, b"octets"),
        section(VALUE, None),
        section(VALUE, {1: 2}),
        section(VALUE, {"n" * 256: 1}),
        section(VALUE, {"a": Timestamp(5001)}),
        section(VALUE, [Described(ULong(1), 2), 3]),
        section(VALUE, ["x" * LOOKED_INTO_MAX]),
        section(SEQUENCE, [1]),
    ],
)
def test_a_body_of_1_0_that_0_10_cannot_say_in_full_stays_encoded_and_says_so(body: bytes) -> None:
    octets, shown = encoding010.rendered(of_10(message(p.Properties(subject="s"), body)))
    assert shown == body
    assert Seen(octets).headers == {"x-jms-type": "amqp-1.0", "qpid.subject": "s"}
    again = in_10(of_010(Seen(octets).message, body=shown))
    assert again.octets.endswith(body)


def test_a_value_with_a_footer_is_its_value() -> None:
    body = section(VALUE, {"a": 1}) + section(FOOTER, {Symbol("x-f"): 1})
    _, shown = encoding010.rendered(of_10(body))
    assert t.map_at(shown, 0, len(shown))[0] == {"a": 1}


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("amqp/map", b""),
        ("amqp/map", b"no map"),
        ("amqp/map", t.encode_map({"a": 1}) + b"more"),
        ("amqp/map", t.encode_map({"a": t.Opaque(0xC1, b"12345")})),
        ("amqp/map", t.encode_map({"a": Decimal("1.5")})),
        ("amqp/map", t.encode_map({"a": "stray \udce9"})),
        ("amqp/list", t.encode_map({"a": 1})),
        ("amqp/list", t.encode_list(["x" * 60_000] * 3)),
        ("amqp/mapping", t.encode_map({"a": 1})),
        (None, t.encode_map({"a": 1})),
    ],
)
def test_a_body_of_0_10_that_1_0_cannot_say_in_full_is_octets(content_type: str | None, body: bytes) -> None:
    delivery = in_10(of_010(M(content_type=content_type), body=body))
    assert delivery.octets.endswith(data(body))
    assert delivery.properties.content_type == content_type


def test_a_map_of_0_10_is_octets_to_0_9_1() -> None:
    body = t.encode_map({"a": 1})
    shown, octets = encoding091.rendered(of_010(M(content_type="amqp/map"), body=body))
    assert BasicProperties.decode(shown) == BasicProperties(content_type="amqp/map")
    assert octets == body


@given(headers)
def test_any_map_comes_back_from_1_0_or_is_not_touched(said: dict[str, t.Value]) -> None:
    body = t.encode_map(said)
    delivery = in_10(of_010(M(content_type="amqp/map"), body=body))
    if VALUE not in delivery.sections():
        assert delivery.octets.endswith(data(body))
        return
    octets, shown = encoding010.rendered(of_10(delivery.octets))
    assert Seen(octets).message.content_type == "amqp/map"
    found, _ = t.map_at(shown, 0, len(shown))
    assert found == said
    assert list(found) == list(said)


# There and back.


def kept(properties: Properties) -> Properties:
    return conversion.read(conversion.write(properties))


@given(header_segments())
def test_what_the_table_promises_survives_neutral_and_back(said: Said) -> None:
    properties = conversion.read(said.octets)
    again = kept(properties)
    assert again == properties
    stray = {
        name: bytearray(value) for name, value in (properties.headers or {}).items() if type(value) is bytes
    }
    assert same(again.headers, properties.headers and {**properties.headers, **stray})  # no text any more


@given(header_segments())
def test_structs_made_of_neutral_properties_say_what_the_publisher_said(said: Said) -> None:
    delivery, message_ = said.delivery or D(), said.message or M()
    seen = Seen(conversion.write(conversion.read(said.octets)))
    for name in ("priority", "timestamp"):
        assert getattr(seen.delivery, name) == getattr(delivery, name)
    assert (seen.delivery.delivery_mode == 2) == (delivery.delivery_mode == 2)
    assert seen.delivery.ttl == (delivery.ttl or None)
    for name in ("message_id", "correlation_id", "content_type", "content_encoding", "app_id"):
        assert getattr(seen.message, name) == getattr(message_, name)
    assert (seen.message.user_id or None) == (message_.user_id or None)
    given_reply, seen_reply = message_.reply_to or ReplyTo(), seen.message.reply_to or ReplyTo()
    assert (seen_reply.exchange or "") == (given_reply.exchange or "")
    assert (seen_reply.routing_key or "") == (given_reply.routing_key or "")


texts = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(
    st.builds(
        BasicProperties,
        content_type=texts,
        content_encoding=texts,
        delivery_mode=st.sampled_from((None, 2)),
        priority=st.none() | st.integers(0, 255),
        correlation_id=texts | st.just(URN),
        reply_to=texts.filter(lambda text: text != ""),
        expiration=st.none() | st.integers(1, 10**9).map(str),
        message_id=texts | st.just(URN),
        timestamp=st.none() | st.integers(0, 2**64 - 1),
        type=texts,
        user_id=texts.filter(lambda text: text != ""),
        app_id=texts,
        headers=st.none() | st.dictionaries(st.text(max_size=8), st.integers(-9, 9), min_size=1, max_size=3),
    )
)
def test_any_message_of_0_9_1_comes_back_from_0_10_as_it_was(basic: BasicProperties) -> None:
    octets, _ = encoding010.rendered(of_091(basic), ttl_left_ms=int(basic.expiration or 0) or None)
    seen = Seen(octets)
    assert in_091(of_010(seen.message, seen.delivery)) == basic

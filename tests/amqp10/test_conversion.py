"""Messages between AMQP 0-9-1 and 1.0, by the table (S231, S232): what is kept, what changes, what is lost."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.message import Message
from leveret.protocols.amqp091.broker import encoding as encoding091
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable, FieldValue
from leveret.protocols.amqp10.broker import encoding as encoding10
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import types as t
from leveret.values import Properties
from tests.amqp091 import samples as samples091
from tests.core.fakes import lone

from . import messages, samples
from .messages import FOOTER, SEQUENCE, VALUE, Said
from .parts import Delivery, annotations, application_properties, data, message, section

UUID_TEXT = "urn:uuid:00112233-4455-6677-8899-aabbccddeeff"
HELLO = data(b"hello")


def in_10(properties: BasicProperties, body: bytes = b"hello") -> Delivery:
    """What a 1.0 consumer gets of a 0-9-1 message."""
    facts, raw = encoding091.project(properties.encode())
    published = Message(encoding091.ENCODING, "x", "k", raw, body, facts)
    pieces = encoding10.pieces(published, lone(published))
    return Delivery(0, b"", False, b"".join(pieces))


def in_091(octets: bytes) -> tuple[BasicProperties, bytes]:
    """What a 0-9-1 consumer gets of a 1.0 message."""
    facts, properties, body, _, _ = encoding10.project(octets)
    published = Message(encoding10.ENCODING, "x", "k", properties, body, facts)
    shown, body = encoding091.rendered(published)
    return BasicProperties.decode(shown), body


def same(one: object, other: object) -> bool:
    """Equal, and of the same types: UInt(1) == Long(1) to Python."""
    return typed(one) == typed(other)


def typed(value: object) -> object:
    if isinstance(value, list):
        return [typed(each) for each in value]
    if isinstance(value, dict):
        return {(type(name), name): typed(each) for name, each in value.items()}
    return type(value), value


# 0-9-1 to 1.0.

PROPERTIES: list[tuple[BasicProperties, p.Properties]] = [
    (BasicProperties(), p.Properties()),
    (BasicProperties(message_id="m"), p.Properties(message_id="m")),
    (BasicProperties(message_id=""), p.Properties(message_id="")),
    (BasicProperties(message_id=UUID_TEXT), p.Properties(message_id=UUID(UUID_TEXT))),
    (BasicProperties(message_id=UUID_TEXT.upper()), p.Properties(message_id=UUID_TEXT.upper())),
    (BasicProperties(message_id="urn:uuid:abc"), p.Properties(message_id="urn:uuid:abc")),
    (BasicProperties(message_id="caf\udce9"), p.Properties(message_id=b"caf\xe9")),
    (BasicProperties(correlation_id="c"), p.Properties(correlation_id="c")),
    (BasicProperties(correlation_id=UUID_TEXT), p.Properties(correlation_id=UUID(UUID_TEXT))),
    (BasicProperties(reply_to="a b/é"), p.Properties(reply_to="/queues/a%20b%2F%C3%A9")),
    (BasicProperties(reply_to="\udcff"), p.Properties(reply_to="/queues/%FF")),
    (BasicProperties(reply_to=""), p.Properties()),
    (BasicProperties(content_type="text/plain"), p.Properties(content_type=t.Symbol("text/plain"))),
    (BasicProperties(content_type="té"), p.Properties()),
    (BasicProperties(content_encoding="gzip"), p.Properties(content_encoding=t.Symbol("gzip"))),
    (BasicProperties(content_encoding="é"), p.Properties()),
    (BasicProperties(timestamp=5), p.Properties(creation_time=t.Timestamp(5000))),
    (BasicProperties(timestamp=2**63), p.Properties()),
    (BasicProperties(user_id="guest"), p.Properties(user_id=b"guest")),
    (BasicProperties(app_id="app"), p.Properties(group_id="app")),
    (BasicProperties(app_id="\udcff"), p.Properties()),
    (BasicProperties(reserved="c"), p.Properties()),
]


@pytest.mark.parametrize(("given_", "expected"), PROPERTIES)
def test_s231_properties_in_1_0(given_: BasicProperties, expected: p.Properties) -> None:
    delivery = in_10(given_)
    assert delivery.properties == expected
    assert (messages.PROPERTIES in delivery.sections()) == (expected != p.Properties())


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (BasicProperties(), p.Header(durable=False)),
        (BasicProperties(delivery_mode=1), p.Header(durable=False)),
        (BasicProperties(delivery_mode=2), p.Header(durable=True)),
        (BasicProperties(priority=0), p.Header(durable=False, priority=0)),
        (BasicProperties(priority=255), p.Header(durable=False, priority=255)),
        (BasicProperties(expiration="5000"), p.Header(durable=False, ttl=5000)),
        (BasicProperties(expiration="4294967295"), p.Header(durable=False, ttl=2**32 - 1)),
        (BasicProperties(expiration="4294967296"), p.Header(durable=False)),
    ],
)
def test_s231_the_header_in_1_0(given_: BasicProperties, expected: p.Header) -> None:
    expected.first_acquirer = True
    assert in_10(given_).header == expected


def test_s231_headers_that_begin_with_x_are_annotations_and_others_application_properties() -> None:
    said: FieldTable = {"x-a": 1, "b": "two", "X-c": True, "x-é": 4, "": 5}
    delivery = in_10(BasicProperties(headers=said, type="t"))
    assert delivery.application_properties == {"b": "two", "X-c": True, "x-é": 4, "": 5}
    assert delivery.annotations == {"x-a": 1, "x-basic-type": "t", "x-exchange": "x", "x-routing-key": "k"}
    assert all(type(name) is str for name in delivery.application_properties)
    assert all(type(name) is t.Symbol for name in delivery.annotations)


def test_s231_cc_is_an_annotation_and_bcc_nobodys_business() -> None:
    headers: FieldTable = {"CC": ["a", b"\xff", 1], "BCC": ["secret"]}
    delivery = in_10(BasicProperties(headers=headers))
    assert delivery.annotations["x-cc"] == ["a", b"\xff", 1]
    assert delivery.application_properties is None
    assert b"secret" not in delivery.octets


def test_s231_names_that_are_no_utf_8_are_lost() -> None:
    delivery = in_10(BasicProperties(headers={"x-\udcff": 1, "\udcff": 2, "a": 3}, type="\udcff"))
    assert delivery.application_properties == {"a": 3}
    assert sorted(delivery.annotations) == ["x-exchange", "x-routing-key"]


SCALARS: list[tuple[FieldValue, t.Value]] = [  # in both directions
    (None, None),
    (True, True),
    (wire.Int8(-1), t.Byte(-1)),
    (wire.UInt8(1), t.UByte(1)),
    (wire.Int16(-1), t.Short(-1)),
    (wire.UInt16(1), t.UShort(1)),
    (1, t.Int(1)),
    (wire.UInt32(1), t.UInt(1)),
    (wire.LongLong(1), t.Long(1)),
    (wire.Float32(1.5), t.Float32(1.5)),
    (1.5, 1.5),
    (wire.Timestamp(5), t.Timestamp(5000)),
    ("text", "text"),
    ("x" * 5000, "x" * 5000),
    ("a\0b", "a\0b"),
    (wire.ByteArray(b"\xff"), b"\xff"),
    (wire.ByteArray(b"text"), b"text"),
]
NESTED: list[tuple[FieldValue, t.Value]] = [
    ([], []),
    ([1, wire.UInt8(1), [None]], [t.Int(1), t.UByte(1), [None]]),
    ({"a": {"b": wire.Int8(1)}}, {t.Symbol("a"): {t.Symbol("b"): t.Byte(1)}}),
]
TO_10: list[tuple[FieldValue, t.Value]] = [
    (b"\xff", b"\xff"),
    ([1, Decimal("1.5"), 2], [t.Int(1), t.Int(2)]),
    ({"é": 1, "\udcff": 2}, {"é": t.Int(1)}),
    (wire.Timestamp(2**63), "lost"),
    (Decimal("1.5"), "lost"),
]


@pytest.mark.parametrize(("field", "expected"), SCALARS + NESTED + TO_10)
def test_x072_x073_fields_in_1_0(field: FieldValue, expected: t.Value) -> None:
    """Widths are kept; text is a string and other octets binary; tables are maps, arrays lists. Decimals go (S231)."""
    delivery = in_10(BasicProperties(headers={"x-a": field, "b": field}))
    found = delivery.annotations.get("x-a", "lost")
    assert same(found, expected)
    simple = not isinstance(expected, list | dict) and expected != "lost"
    assert (delivery.application_properties or {}) == ({"b": expected} if simple else {})
    if simple:
        assert same(delivery.application_properties["b"], expected)


def test_what_is_nested_as_deep_as_0_9_1_allows_can_be_read_again() -> None:
    deep: FieldValue = "x"
    for _ in range(wire.DEPTH_MAX - 1):
        deep = [deep]
    delivery = in_10(BasicProperties(headers={"x-deep": deep, "x-a": 1}))
    assert delivery.annotations["x-a"] == 1
    encoding10.project(delivery.octets)


# 1.0 to 0-9-1.


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (p.Properties(), BasicProperties()),
        (p.Properties(message_id="m"), BasicProperties(message_id="m")),
        (p.Properties(message_id=UUID(UUID_TEXT)), BasicProperties(message_id=UUID_TEXT)),
        (p.Properties(message_id=t.ULong(2**64 - 1)), BasicProperties(message_id="18446744073709551615")),
        (p.Properties(message_id=t.Long(123)), BasicProperties(message_id="123")),
        (p.Properties(message_id=b"m"), BasicProperties(headers={"x-message-id": wire.ByteArray(b"m")})),
        (p.Properties(message_id="m" * 256), BasicProperties(headers={"x-message-id": "m" * 256})),
        (p.Properties(correlation_id="m" * 256), BasicProperties(headers={"x-correlation-id": "m" * 256})),
        (p.Properties(correlation_id=t.ULong(0)), BasicProperties(correlation_id="0")),
        (p.Properties(to="/queues/q", subject="s"), BasicProperties()),
        (p.Properties(reply_to="/queues/a%20b%2F%C3%A9"), BasicProperties(reply_to="a b/é")),
        (p.Properties(reply_to="/queues/%FF"), BasicProperties(reply_to="\udcff")),
        (p.Properties(reply_to="/queues/%zz"), BasicProperties(reply_to="/queues/%zz")),
        (p.Properties(reply_to="/exchanges/x/k"), BasicProperties(reply_to="/exchanges/x/k")),
        (p.Properties(reply_to="r" * 256), BasicProperties()),
        (p.Properties(content_type="a/b", content_encoding="c"), BasicProperties("a/b", "c")),
        (p.Properties(content_type="a" * 256), BasicProperties()),
        (p.Properties(creation_time=t.Timestamp(5999)), BasicProperties(timestamp=5)),
        (p.Properties(creation_time=t.Timestamp(-1)), BasicProperties()),
        (p.Properties(absolute_expiry_time=t.Timestamp(1), group_sequence=1), BasicProperties()),
        (p.Properties(user_id=b"guest"), BasicProperties(user_id="guest")),
        (p.Properties(group_id="app", reply_to_group_id="r"), BasicProperties(app_id="app")),
        (p.Properties(group_id="g" * 256), BasicProperties()),
    ],
)
def test_s232_properties_in_0_9_1(given_: p.Properties, expected: BasicProperties) -> None:
    assert in_091(message(given_, HELLO)) == (expected, b"hello")


@pytest.mark.parametrize(
    ("given_", "expected"),
    [
        (p.Header(), BasicProperties()),
        (p.Header(durable=False), BasicProperties()),
        (p.Header(durable=True), BasicProperties(delivery_mode=2)),
        (p.Header(priority=t.UByte(255)), BasicProperties(priority=255)),
        (p.Header(ttl=t.UInt(0)), BasicProperties(expiration="0")),
        (p.Header(ttl=t.UInt(5000)), BasicProperties(expiration="5000")),
        (p.Header(first_acquirer=True, delivery_count=t.UInt(5)), BasicProperties()),
    ],
)
def test_s232_the_header_in_0_9_1(given_: p.Header, expected: BasicProperties) -> None:
    assert in_091(message(given_, HELLO))[0] == expected


def test_s232_application_properties_and_annotations_are_headers_but_for_the_brokers_own() -> None:
    notes = {
        "x-a": 1,
        "x-cc": ["cc"],
        "x-basic-type": "t",
        **dict.fromkeys(("x-basic-priority", "x-exchange", "x-routing-key", "x-death"), 2),
    }
    properties, _ = in_091(message(annotations(notes), application_properties({"b": 3, "k" * 256: 4}), HELLO))
    assert properties == BasicProperties(type="t", headers={"b": 3, "x-a": 1, "CC": ["cc"]})


def test_s232_an_annotation_wins_over_an_application_property_of_its_name() -> None:
    properties, _ = in_091(
        message(annotations({"x-a": "note"}), application_properties({"x-a": "property"}), HELLO)
    )
    assert properties.headers == {"x-a": "note"}


TO_091: list[tuple[t.Value, FieldValue]] = [
    (t.Symbol("s"), "s"),
    (t.Char("é"), "é"),
    (t.ULong(1), wire.LongLong(1)),
    (UUID(UUID_TEXT), UUID_TEXT),
    (t.Timestamp(5999), wire.Timestamp(5)),
    (t.Array(b"\x50", [t.UByte(1)]), [wire.UInt8(1)]),
    ({"a": 1, t.Symbol("b"): 2, t.UInt(1): 3, "k" * 256: 4}, {"a": 1, "b": 2}),
    ([t.Int(1), t.Decimal32(bytes(4)), t.Described(t.ULong(1), 2), t.ULong(2**63), t.Int(3)], [1, 3]),
    (t.Decimal32(bytes(4)), "lost"),
    (t.Decimal64(bytes(8)), "lost"),
    (t.Decimal128(bytes(16)), "lost"),
    (t.Described(t.ULong(1), "a"), "lost"),
    (t.ULong(2**63), "lost"),
    (t.Timestamp(-1), "lost"),
]


@pytest.mark.parametrize(
    ("value", "expected"), [(value, field) for field, value in SCALARS + NESTED] + TO_091
)
def test_s232_x073_values_in_0_9_1(value: t.Value, expected: FieldValue) -> None:
    for sections in (annotations({"x-a": value, "x-b": 1}), application_properties({"x-a": value, "x-b": 1})):
        properties, _ = in_091(message(sections, HELLO))
        headers = properties.headers
        assert headers is not None
        assert headers["x-b"] == 1
        assert same(headers.get("x-a", "lost"), expected)


BODIES: list[tuple[bytes, bytes, str | None]] = [
    (data(b"hello"), b"hello", None),
    (data(b""), b"", None),
    (data(b"hel") + data(b"") + data(b"lo"), b"hello", None),
    (data(b"hello") + section(FOOTER, {t.Symbol("x-f"): 1}), b"hello", None),
]
ENCODED = [
    section(VALUE, "text"),
    section(VALUE, b"octets"),
    section(VALUE, [1, {"a": None}]),
    section(SEQUENCE, [1]) + section(SEQUENCE, []),
    section(VALUE, 1) + section(FOOTER, {t.Symbol("x-f"): 1}),
]


@pytest.mark.parametrize(
    ("octets", "body", "type_"), BODIES + [(octets, octets, "amqp-1.0") for octets in ENCODED]
)
def test_s232_bodies_in_0_9_1(octets: bytes, body: bytes, type_: str | None) -> None:
    """Data sections are joined (compat: several, too); what is not data stays encoded."""
    said = annotations({"x-basic-type": "t"})
    assert in_091(octets) == (BasicProperties(type=type_), body)
    assert in_091(message(said, octets)) == (BasicProperties(type=type_ or "t"), body)


@pytest.mark.parametrize("octets", ENCODED)
def test_s231_a_body_that_0_9_1_was_shown_encoded_is_itself_again(octets: bytes) -> None:
    delivery = in_10(BasicProperties(type="amqp-1.0", message_id="m"), octets)
    assert delivery.octets.endswith(p.Properties(message_id="m").encode() + octets)
    assert "x-basic-type" not in delivery.annotations


@pytest.mark.parametrize("octets", [b"", b"text", section(VALUE, 1)[:-1], p.Properties().encode() + HELLO])
def test_s231_a_body_that_only_claims_to_be_sections_is_data(octets: bytes) -> None:
    delivery = in_10(BasicProperties(type="amqp-1.0"), octets)
    assert delivery.octets.endswith(data(octets))
    assert delivery.annotations["x-basic-type"] == "amqp-1.0"


def test_s232_headers_that_no_frame_can_hold_are_left_out() -> None:
    notes = {f"x-{number}": [t.ULong(0)] * 1000 for number in range(20)}
    properties, body = in_091(message(p.Header(durable=True), annotations(notes), HELLO))
    assert (properties, body) == (BasicProperties(delivery_mode=2), b"hello")


# There and back.


@given(messages.messages())
def test_any_message_of_1_0_can_be_shown_to_0_9_1_and_back(said: Said) -> None:
    properties, body = in_091(said.octets)
    again = in_10(properties, body)
    if properties.type == "amqp-1.0":
        assert again.octets.endswith(said.body + (said.footer or b""))
    else:
        assert again.body == body


@given(samples091.properties)
def test_any_message_of_0_9_1_can_be_shown_to_1_0_and_back(properties: BasicProperties) -> None:
    properties.expiration = None
    for name in ("CC", "BCC"):
        if properties.headers is not None:
            properties.headers.pop(name, None)
    delivery = in_10(properties, b"body")
    assert in_091(delivery.octets)[1] == b"body"


def texts(size_max: int = 60) -> st.SearchStrategy[str | None]:
    return st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=size_max)


ascii_texts = st.none() | samples.names
plain_names = st.text(max_size=20).filter(
    lambda name: not name.startswith("x-") and name not in ("CC", "BCC")
)
x_names = samples.names.map(lambda name: "x-" + name).filter(
    lambda name: (
        name not in ("x-cc", "x-exchange", "x-routing-key", "x-death")
        and name not in ("x-message-id", "x-correlation-id")
        and not name.startswith("x-basic-")
    )
)
fields: st.SearchStrategy[FieldValue] = st.one_of(
    st.sampled_from([field for field, _ in SCALARS]),
    st.integers(-(2**31), 2**31 - 1),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
)
nested_fields = st.recursive(
    fields,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(samples.names, inner, max_size=3),
    max_leaves=6,
)
sayable = st.builds(
    BasicProperties,
    content_type=ascii_texts,
    content_encoding=ascii_texts,
    headers=st.none()
    | st.builds(
        lambda plain, notes: {**plain, **notes},
        st.dictionaries(plain_names, fields, min_size=1, max_size=3),
        st.dictionaries(x_names, nested_fields, max_size=3),
    ),
    delivery_mode=st.sampled_from([None, 2]),
    priority=st.none() | st.integers(0, 255),
    correlation_id=texts() | st.uuids().map(lambda uuid: uuid.urn),
    reply_to=texts().filter(lambda text: text != ""),
    expiration=st.none() | st.integers(0, 2**32 - 1).map(str),
    message_id=texts() | st.uuids().map(lambda uuid: uuid.urn),
    timestamp=st.none() | st.integers(0, 2**50),
    type=texts(),
    user_id=texts(),
    app_id=texts(),
)


@given(sayable, st.binary(max_size=300))
def test_what_both_can_say_of_a_0_9_1_message_comes_back(properties: BasicProperties, body: bytes) -> None:
    again, body_again = in_091(in_10(properties, body).octets)
    assert (again, body_again) == (properties, body)
    assert wire.encode_table(again.headers or {}) == wire.encode_table(properties.headers or {})


values10: st.SearchStrategy[t.Value] = st.one_of(
    st.sampled_from([value for _, value in SCALARS]),
    *(samples.scalars[name] for name in ("byte", "ubyte", "short", "ushort", "int", "uint", "long")),
    *(samples.scalars[name] for name in ("float", "double", "binary", "string")),
)
record = st.builds(
    p.Properties,
    message_id=st.none()
    | st.uuids()
    | samples.text.filter(lambda text: len(text) < 60)
    | st.binary(max_size=300),
    user_id=st.none() | samples.names.map(str.encode),
    reply_to=st.none() | st.sampled_from(["/queues/q", "/queues/a%20b", "/queues/%C3%A9"]),
    correlation_id=st.none() | st.uuids() | st.text(st.characters(codec="ascii"), min_size=256, max_size=300),
    content_type=st.none() | samples.names.map(t.Symbol),
    content_encoding=st.none() | samples.names.map(t.Symbol),
    creation_time=st.none() | st.integers(0, 2**50).map(lambda seconds: t.Timestamp(1000 * seconds)),
    group_id=texts(),
)


@given(
    st.builds(p.Header, durable=st.just(True), priority=st.none() | st.integers(0, 255).map(t.UByte)),
    st.dictionaries(x_names, st.lists(values10, max_size=2) | values10, max_size=3),
    record,
    st.dictionaries(plain_names, values10, max_size=3),
    st.binary(max_size=300).map(data) | samples.values.map(lambda value: section(VALUE, value)),
)
def test_what_both_can_say_of_a_1_0_message_comes_back(
    header: p.Header,
    notes: dict[str, t.Value],
    properties: p.Properties,
    application: dict[str, t.Value],
    body: bytes,
) -> None:
    octets = message(header, annotations(notes), properties, application_properties(application), body)
    again = in_10(*in_091(octets))
    header.first_acquirer = True
    assert again.header == header
    expected = {**notes, "x-exchange": "x", "x-routing-key": "k"}
    assert same(sorted(again.annotations.items()), sorted((t.Symbol(k), v) for k, v in expected.items()))
    assert same(again.properties, properties)
    assert same(
        sorted((again.application_properties or {}).items(), key=repr), sorted(application.items(), key=repr)
    )
    assert again.octets.endswith(body)


# Headers for exchanges.


def test_headers_are_the_same_values_whatever_the_protocol() -> None:
    said = {"a": t.UInt(5), "b": t.Symbol("s"), "c": b"x", "d": t.Timestamp(5000), "e": True}
    facts, properties, *_ = encoding10.project(
        message(annotations({"x-n": t.Long(1)}), application_properties(said), HELLO)
    )
    found = encoding10.ENCODING.headers(properties)
    assert found == {"a": 5, "b": "s", "c": bytearray(b"x"), "d": 5, "e": True, "x-n": 1}
    assert found == encoding10.ENCODING.read(properties).headers
    assert facts.has_headers


def test_one_property_is_read_by_its_neutral_name() -> None:
    octets = p.Properties(
        message_id=t.ULong(5), creation_time=t.Timestamp(5999), reply_to="/queues/q"
    ).encode()
    read = encoding10.ENCODING.property
    assert (read(octets, "message_id"), read(octets, "timestamp"), read(octets, "reply_to")) == (5, 5, "q")
    assert read(octets, "correlation_id") is None
    assert type(read(octets, "message_id")) is int


def test_headers_from_elsewhere_are_added_as_annotations_and_the_bare_message_stays() -> None:
    _, properties, *_ = encoding10.project(
        message(p.Header(durable=True), annotations({"x-a": 1}), p.Properties(subject="s"), HELLO)
    )
    added = encoding10.ENCODING.with_headers(properties, {"x-b": "b", "c": 1, "x-d": Decimal("1.5")})
    assert added.endswith(p.Properties(subject="s").encode())
    assert encoding10.ENCODING.read(added) == Properties(durable=True, headers={"x-a": 1, "x-b": "b"})


def test_nothing_is_said_of_nothing() -> None:
    assert encoding10.ENCODING.write(Properties()) == b""
    assert encoding10.ENCODING.read(b"") == Properties()
    assert t.encode(None) == b"\x40"

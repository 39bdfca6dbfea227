"""Property bytes go through as they came, whatever a publisher says in them (A to A, byte for byte)."""

from __future__ import annotations

from struct import pack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.message import LOWEST
from leveret.protocols.amqp091.broker.encoding import ENCODING, plain_facts, project
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import (
    DEPTH_MAX,
    BasicProperties,
    ByteArray,
    Float32,
    LongLong,
    MalformedError,
    Timestamp,
    UInt8,
)
from leveret.values import described
from tests.amqp091.peer import channel_of, with_queue

from .peer import ClientChannel

NAMES = st.text(max_size=20).filter(lambda name: name not in ("CC", "BCC"))
OCTETS = st.binary(max_size=30)


def sized(octets: bytes) -> bytes:
    return pack(">I", len(octets)) + octets


def short(octets: bytes) -> bytes:
    return bytes([len(octets)]) + octets


def numbers(kind: bytes, size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size).map(lambda octets: kind + octets)


SINGLE = st.one_of(
    st.sampled_from([b"V", b"t\x00", b"t\x01"]),
    *(
        numbers(bytes([kind]), size)
        for kind, size in zip(b"bBsUuIiLlTfdD", (1, 1, 2, 2, 2, 4, 4, 8, 8, 8, 4, 8, 5), strict=True)
    ),
    st.sampled_from([b"S", b"x"]).flatmap(lambda kind: OCTETS.map(lambda octets: kind + sized(octets))),
)


def field(name: str, value: bytes) -> bytes:
    return short(name.encode("utf-8", "replace")[:255]) + value


FIELDS = st.recursive(
    SINGLE,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda values: b"A" + sized(b"".join(values))),
        st.lists(st.builds(field, NAMES, inner), max_size=3).map(
            lambda fields: b"F" + sized(b"".join(fields))
        ),
    ),
    max_leaves=8,
)
TABLES = st.lists(st.builds(field, NAMES, FIELDS), max_size=4).map(lambda fields: sized(b"".join(fields)))
SHORTS = st.binary(max_size=60).map(short)

# What each property may be, in the order of the wire. Those that the broker checks or acts on are left valid.
PROPERTIES: tuple[st.SearchStrategy[bytes], ...] = (
    SHORTS,  # content-type
    SHORTS,  # content-encoding
    TABLES,  # headers
    st.binary(min_size=1, max_size=1),  # delivery-mode
    st.binary(min_size=1, max_size=1),  # priority
    SHORTS,  # correlation-id
    SHORTS.filter(lambda value: value != short(b"amq.rabbitmq.reply-to")),
    st.integers(100_000, 315_360_000_000).map(lambda ms: short(str(ms).encode())),  # expiration
    SHORTS,  # message-id
    st.binary(min_size=8, max_size=8),  # timestamp
    SHORTS,  # type
    st.just(short(b"guest")),  # user-id
    SHORTS,  # app-id
    SHORTS,  # once cluster-id
)


@st.composite
def property_bytes(draw: st.DrawFn) -> bytes:
    given = draw(st.lists(st.integers(0, 13), unique=True).map(sorted))
    flags = sum(0x8000 >> at for at in given)
    return pack(">H", flags) + b"".join(draw(PROPERTIES[at]) for at in given)


def publish_raw(
    channel: ClientChannel, properties: bytes, exchange: str = "", mandatory: bool = False
) -> None:
    frames: list[bytes] = []
    method = m.BasicPublish(exchange, "q", mandatory).encode()
    wire.append_content(frames, channel.number, method, properties, b"body", 131_072)
    channel.peer.send_bytes(b"".join(frames))


@given(property_bytes())
def test_properties_are_delivered_fetched_and_returned_as_they_came(properties: bytes) -> None:
    channel = with_queue()
    channel.bind("q", "amq.match", arguments={"x-match": "all"})
    for exchange in ("", "amq.match"):
        publish_raw(channel, properties, exchange)
        fetched = channel.get("q")
        assert fetched is not None
        assert (fetched.raw_properties, fetched.body) == (properties, b"body")
    channel.consume("q", no_ack=True)
    publish_raw(channel, properties)
    [delivered] = channel.deliveries()
    assert delivered.raw_properties == properties
    publish_raw(channel, properties, "amq.direct", mandatory=True)
    [returned] = channel.all()
    assert returned.raw_properties == properties


SENT = st.tuples(
    st.sampled_from(["amq.topic", "amq.fanout"]),
    st.sampled_from(["", "a", "b", "ab", "a.long.key" * 20]),
    st.sampled_from([b"\x00\x00", b"\x00\x80\x01m", b"\x00\x80\x01n", b"\x80\x00\x04text"]),
    st.sampled_from([b"", b"x", b"y", b"xy", b"x" * 300, b"x" * 20_000]),
)


@given(st.lists(SENT, max_size=20), st.integers(240, 256), st.booleans())
def test_deliveries_in_one_batch_are_as_they_were_sent_whatever_differs(
    sent: list[tuple[str, str, bytes, bytes]], before: int, returned: bool
) -> None:
    channel = with_queue()
    for exchange, key in (("amq.topic", "#"), ("amq.fanout", "")):
        channel.bind("q", exchange, key)
    # More than the last byte of the tags changes on the way.
    channel.peer.front.channels[1].last_tag = before
    frames: list[bytes] = []
    for exchange, key, properties, body in sent:
        wire.append_content(frames, 1, m.BasicPublish(exchange, key).encode(), properties, body, 131_072)
    channel.peer.send_bytes(b"".join(frames))
    if returned and sent:
        channel.get("q", no_ack=False)
        channel.call(m.BasicRecover(True))
    channel.consume("q", "u")
    first = before + 1 + (returned and bool(sent))
    assert [(each.method, each.raw_properties, each.body) for each in channel.deliveries()] == [
        (m.BasicDeliver("u", first + at, returned and at == 0, exchange, key), properties, body)
        for at, (exchange, key, properties, body) in enumerate(sent)
    ]


@given(property_bytes())
def test_everything_that_dead_lettering_does_not_change_stays_as_it_was(properties: bytes) -> None:
    channel = with_queue()
    channel.declare("dying", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    frames: list[bytes] = []
    wire.append_content(frames, 1, m.BasicPublish("", "dying").encode(), properties, b"body", 131_072)
    channel.peer.send_bytes(b"".join(frames))
    channel.get("dying", no_ack=False)
    channel.reject(1)
    dead = channel.get("q")
    assert dead is not None
    before, after = wire.property_fields(properties), wire.property_fields(dead.raw_properties)
    headers_before = wire.table_fields(before.pop("headers", sized(b"")))
    headers_after = wire.table_fields(after.pop("headers"))
    before.pop("expiration", None)
    assert after == before
    assert [entry for entry in headers_after if not entry[0].startswith("x-")] == [
        entry for entry in headers_before if not entry[0].startswith("x-")
    ]


@pytest.mark.parametrize(
    "properties",
    [
        b"\x00\x02",  # a flag that basic does not have
        b"\x00\x01\x00\x00",  # a continuation
        b"\x80\x00",  # a property that is missing
        b"\x00\x00x",  # octets that nobody announced
        b"\x20\x00\x00\x00\x00\x05\x01aZ\x00\x00",  # an unknown type
        b"\x20\x00\x00\x00\x00\x09\x01aS\x00\x00\x00\xffab",  # a string longer than its table
    ],
)
def test_properties_that_cannot_be_read_are_a_syntax_error(properties: bytes) -> None:
    channel = channel_of()
    publish_raw(channel, properties)
    assert channel.peer.refusal().startswith("502 SYNTAX_ERROR - ")


TEXTS = st.none() | st.text(max_size=9)
OCTET = st.none() | st.integers(0, 255)
PLAIN = st.builds(
    BasicProperties,
    content_type=TEXTS,
    content_encoding=TEXTS,
    delivery_mode=OCTET,
    priority=OCTET,
    correlation_id=TEXTS,
    message_id=TEXTS,
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    type=TEXTS,
    app_id=TEXTS,
    reserved=TEXTS,
)


def evolved(properties: BasicProperties, **more: object) -> BasicProperties:
    return BasicProperties(**{**properties.fields(), **more})


def said(facts: object) -> list[object]:
    return [
        getattr(facts, name) for name in ("durable", "priority", "ttl_ms", "user_id", "reply_to", "cc", "bcc")
    ]


HEADER_NAMES = st.text(max_size=4) | st.sampled_from(["C", "CCC", "BC", "cc", "x-trace"])
NUMBERS = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(0, 255).map(UInt8),
    st.integers(-(2**63), 2**63 - 1).map(LongLong),
    st.floats(width=32).map(Float32),
    st.integers(0, 2**64 - 1).map(Timestamp),
    st.decimals(-1000, 1000, places=2),
)
VALUES = st.recursive(
    st.none() | NUMBERS | st.text(max_size=9) | st.binary(max_size=9) | st.binary(max_size=9).map(ByteArray),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(HEADER_NAMES | st.just("CC"), inner, max_size=3)
    ),
    max_leaves=9,
)
FULL = st.builds(
    evolved,
    PLAIN,
    headers=st.none()
    | st.dictionaries(HEADER_NAMES.filter(lambda name: name not in ("CC", "BCC")), VALUES, max_size=4),
    reply_to=TEXTS,
    expiration=st.none() | st.integers(0, 10**9).map(str),
    user_id=TEXTS,
)


@given(FULL)
def test_facts_are_read_off_without_decoding_unless_there_are_further_keys(given_: BasicProperties) -> None:
    facts = plain_facts(given_.encode())
    assert facts is not None
    ttl_ms = None if given_.expiration is None else int(given_.expiration)
    assert said(facts) == [
        given_.delivery_mode == 2,
        LOWEST if given_.priority == 0 else given_.priority or 0,
        ttl_ms,
        given_.user_id,
        given_.reply_to,
        (),
        (),
    ]
    assert facts.has_headers == bool(given_.headers)


@given(FULL.map(BasicProperties.encode), st.data())
def test_what_is_read_off_without_decoding_is_well_formed(octets: bytes, data: st.DataObject) -> None:
    """One octet changed, or the end cut off: whatever is no properties has no plain facts, and goes the long way."""
    at = data.draw(st.integers(0, len(octets) - 1))
    changed = octets[:at] + bytes([data.draw(st.integers(0, 255))]) + octets[at + 1 :]
    for each in (changed, octets[:at], octets + b"x"):
        try:
            facts = plain_facts(each)
        except PreconditionFailed:  # the expiration
            continue
        if facts is None:
            continue
        decoded = BasicProperties.decode(each)
        assert not {"CC", "BCC"} & set(decoded.headers or ())
        assert facts.has_headers == bool(decoded.headers)
        assert said(facts)[:2] == [
            decoded.delivery_mode == 2,
            LOWEST if decoded.priority == 0 else decoded.priority or 0,
        ]
        assert (facts.user_id, facts.reply_to) == (decoded.user_id, decoded.reply_to)
        assert facts.ttl_ms == (None if decoded.expiration is None else int(decoded.expiration))


@given(FULL, HEADER_NAMES)
def test_one_header_is_read_as_all_are(given_: BasicProperties, name: str) -> None:
    octets = given_.encode()
    headers = ENCODING.headers(octets)
    for each in (name, *headers):
        assert described(ENCODING.header(octets, each)) == described(headers.get(each))


@given(FULL.map(BasicProperties.encode), HEADER_NAMES, st.data())
def test_one_header_is_read_as_all_are_whatever_came(octets: bytes, name: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(octets) - 1))
    changed = octets[:at] + bytes([data.draw(st.integers(0, 255))]) + octets[at + 1 :]
    try:
        headers = ENCODING.headers(changed)
    except MalformedError:
        return
    for each in (name, *headers):
        assert described(ENCODING.header(changed, each)) == described(headers.get(each))


def test_of_two_headers_with_one_name_the_later_is_read() -> None:
    fields = b"\x01aS\x00\x00\x00\x01x" + b"\x01aS\x00\x00\x00\x01y"
    octets = b"\x20\x00" + len(fields).to_bytes(4, "big") + fields
    assert ENCODING.header(octets, "a") == ENCODING.headers(octets)["a"] == "y"


@pytest.mark.parametrize("depth", [DEPTH_MAX, DEPTH_MAX + 1])
def test_tables_are_skipped_as_deep_as_they_are_decoded(depth: int) -> None:
    table = b"\0\0\0\0"
    for _ in range(depth):
        field = b"\x01tF" + table
        table = len(field).to_bytes(4, "big") + field
    properties = b"\x20\x00" + table
    if depth > DEPTH_MAX:
        assert plain_facts(properties) is None
        with pytest.raises(MalformedError):
            BasicProperties.decode(properties)
    else:
        assert plain_facts(properties) is not None
        BasicProperties.decode(properties)


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_properties_with_further_keys_are_decoded(name: str) -> None:
    for headers in ({name: ["q"]}, {"a": 1, name: ["q"], "b": "x"}, {"a": [{}], name: None}):
        assert plain_facts(BasicProperties(headers=headers).encode()) is None
    assert plain_facts(BasicProperties(headers={"a": {name: ["q"]}}).encode()) is not None


def test_properties_that_say_everything_are_projected() -> None:
    facts, _ = project(
        BasicProperties(expiration="10", user_id="ann", reply_to="q", headers={"CC": ["k"]}).encode()
    )
    assert said(facts) == [False, 0, 10, "ann", "q", ("k",), ()]

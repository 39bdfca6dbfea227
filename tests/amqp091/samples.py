"""One table of samples for encoder and decoder, and Hypothesis' idea of tables and properties."""

from decimal import Decimal

from hypothesis import strategies as st

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire

# A value and the bytes that both stand for it and come of it.
VALUES: list[tuple[wire.FieldValue, bytes]] = [
    (True, b"t\x01"),
    (False, b"t\x00"),
    (0, b"I\x00\x00\x00\x00"),
    (-1, b"I\xff\xff\xff\xff"),
    (2**31 - 1, b"I\x7f\xff\xff\xff"),
    (-(2**31), b"I\x80\x00\x00\x00"),
    (wire.LongLong(2**31), b"l\x00\x00\x00\x00\x80\x00\x00\x00"),
    (wire.LongLong(-(2**63)), b"l\x80\x00\x00\x00\x00\x00\x00\x00"),
    (wire.LongLong(1), b"l\x00\x00\x00\x00\x00\x00\x00\x01"),
    (wire.Int8(-2), b"b\xfe"),
    (wire.UInt8(254), b"B\xfe"),
    (wire.Int16(-2), b"s\xff\xfe"),
    (wire.UInt16(65_534), b"u\xff\xfe"),
    (wire.UInt32(4_294_967_294), b"i\xff\xff\xff\xfe"),
    (wire.Float32(1.5), b"f\x3f\xc0\x00\x00"),
    (1.5, b"d\x3f\xf8\x00\x00\x00\x00\x00\x00"),
    (Decimal("3.14"), b"D\x02\x00\x00\x01\x3a"),
    (Decimal("-0.001"), b"D\x03\xff\xff\xff\xff"),
    (wire.Timestamp(1_700_000_000), b"T\x00\x00\x00\x00\x65\x53\xf1\x00"),
    ("", b"S\x00\x00\x00\x00"),
    ("hare", b"S\x00\x00\x00\x04hare"),
    ("Häsin", b"S\x00\x00\x00\x06H\xc3\xa4sin"),
    (b"\xff\xfe", b"S\x00\x00\x00\x02\xff\xfe"),
    (wire.ByteArray(b"abc"), b"x\x00\x00\x00\x03abc"),
    ([], b"A\x00\x00\x00\x00"),
    ([1, None, "a"], b"A\x00\x00\x00\x0cI\x00\x00\x00\x01VS\x00\x00\x00\x01a"),
    ({}, b"F\x00\x00\x00\x00"),
    ({"a": {"b": None}}, b"F\x00\x00\x00\x0a\x01aF\x00\x00\x00\x03\x01bV"),
    (None, b"V"),
]

# What other peers send and we say otherwise.
FOREIGN: list[tuple[wire.FieldValue, bytes]] = [
    (wire.Int16(-2), b"U\xff\xfe"),
    (wire.LongLong(-2), b"L\xff\xff\xff\xff\xff\xff\xff\xfe"),
    (True, b"t\x07"),
]

METHODS: list[tuple[wire.Method, bytes]] = [
    (m.ConnectionClose(320, "bye", 60, 40), b"\x00\x0a\x00\x32\x01\x40\x03bye\x00\x3c\x00\x28"),
    (m.ConnectionUpdateSecret(b"new", "old"), b"\x00\x0a\x00\x46\x00\x00\x00\x03new\x03old"),
    (m.ConnectionBlocked("low on memory"), b"\x00\x0a\x00\x3c\x0dlow on memory"),
    (m.ChannelOpen(), b"\x00\x14\x00\x0a\x00"),
    (m.ChannelFlow(True), b"\x00\x14\x00\x14\x01"),
    (m.AccessRequest("/data", active=True, read=True), b"\x00\x1e\x00\x0a\x05/data\x14"),
    (m.ExchangeUnbindOk(), b"\x00\x28\x00\x33"),
    (
        m.QueueDeclare("q", durable=True, no_wait=True, arguments={"x-max-length": 5}),
        b"\x00\x32\x00\x0a\x00\x00\x01q\x12\x00\x00\x00\x12\x0cx-max-lengthI\x00\x00\x00\x05",
    ),
    (m.QueueDeclareOk("q", 1, 2), b"\x00\x32\x00\x0b\x01q\x00\x00\x00\x01\x00\x00\x00\x02"),
    (m.BasicPublish("e", "k", mandatory=True), b"\x00\x3c\x00\x28\x00\x00\x01e\x01k\x01"),
    (
        m.BasicDeliver("tag", 2**63, True, "e", "k"),
        b"\x00\x3c\x00\x3c\x03tag\x80\x00\x00\x00\x00\x00\x00\x00\x01\x01e\x01k",
    ),
    (m.BasicNack(3, multiple=True, requeue=True), b"\x00\x3c\x00\x78\x00\x00\x00\x00\x00\x00\x00\x03\x03"),
    (m.BasicGet("caf\udce9"), b"\x00\x3c\x00\x46\x00\x00\x04caf\xe9\x00"),
    (m.TxSelect(), b"\x00\x5a\x00\x0a"),
    (m.ConfirmSelect(no_wait=True), b"\x00\x55\x00\x0a\x01"),
    (m.BasicQos(0, 10, True), b"\x00\x3c\x00\x0a\x00\x00\x00\x00\x00\x0a\x01"),
]

PROPERTIES: list[tuple[wire.BasicProperties, bytes]] = [
    (wire.BasicProperties(), b"\x00\x00"),
    (wire.BasicProperties(delivery_mode=2), b"\x10\x00\x02"),
    (wire.BasicProperties(content_type="a/b", headers={"n": None}), b"\xa0\x00\x03a/b\x00\x00\x00\x03\x01nV"),
    (
        wire.BasicProperties("t", "e", {}, 1, 2, "c", "r", "x", "m", 3, "y", "u", "a", "z"),
        b"\xff\xfc\x01t\x01e\x00\x00\x00\x00\x01\x02\x01c\x01r\x01x\x01m\x00\x00\x00\x00\x00\x00\x00\x03"
        b"\x01y\x01u\x01a\x01z",
    ),
]

shortstrs = st.binary(max_size=255).map(lambda octets: octets.decode("utf-8", "surrogateescape"))
octets = st.integers(0, 255)
decimals = st.builds(
    lambda unscaled, scale: Decimal(f"{unscaled}E-{scale}"), st.integers(-(2**31), 2**31 - 1), octets
)


def _is_no_text(octets: bytes) -> bool:
    try:
        octets.decode()
    except UnicodeDecodeError:
        return True
    return False


scalars: st.SearchStrategy[wire.FieldValue] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    decimals,
    st.integers(0, 2**64 - 1).map(wire.Timestamp),
    st.integers(-(2**63), 2**63 - 1).map(wire.LongLong),
    st.integers(-128, 127).map(wire.Int8),
    st.integers(0, 255).map(wire.UInt8),
    st.integers(-(2**15), 2**15 - 1).map(wire.Int16),
    st.integers(0, 2**16 - 1).map(wire.UInt16),
    st.integers(0, 2**32 - 1).map(wire.UInt32),
    st.floats(allow_nan=False, width=32).map(wire.Float32),
    st.text(),
    st.binary().filter(_is_no_text),
    st.binary().map(wire.ByteArray),
)
values: st.SearchStrategy[wire.FieldValue] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(shortstrs, inner, max_size=4),
    max_leaves=12,
)
tables = st.dictionaries(shortstrs, values, max_size=6)
maybe = st.none() | shortstrs
properties = st.builds(
    wire.BasicProperties,
    *(maybe, maybe, st.none() | tables, st.none() | octets, st.none() | octets, maybe, maybe, maybe, maybe),
    *(st.none() | st.integers(0, 2**64 - 1), maybe, maybe, maybe, maybe),
)

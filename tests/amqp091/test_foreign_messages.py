"""Messages of other protocols on their way to 0-9-1 consumers: converted through neutral properties."""

from __future__ import annotations

import logging
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given

from leveret import values
from leveret.message import Encoding, Facts, Message
from leveret.protocols.amqp091.broker.core_values import field_table, table
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable, FieldValue
from leveret.values import Id, Properties, Table, Value
from tests.amqp091 import samples
from tests.amqp091.peer import Content, channel_of, with_queue
from tests.harness.bench import ClientBench
from tests.harness.foreign import ForeignEncoding

UUID_TEXT = "urn:uuid:00112233-4455-6677-8899-aabbccddeeff"


class Wrapped(ForeignEncoding):
    """Bodies of this encoding have a wrapping that others must not see."""

    def convert(self, message: Message) -> tuple[Properties, bytes]:
        return self.read(message.properties), message.body.strip(b"<>")


def publish(bench: ClientBench, encoding: Encoding, body: bytes, key: str = "q") -> None:
    bench.broker.publish(bench.host.default_exchange, Message(encoding, "", key, b"", body, Facts()))
    bench.settle()


def fetched(properties: Properties) -> BasicProperties:
    """The properties as a 0-9-1 client gets them."""
    bench = ClientBench()
    channel = with_queue(bench)
    publish(bench, ForeignEncoding(properties), b"")
    content = channel.get("q")
    assert content is not None
    return content.properties


def test_properties_arrive_under_their_names() -> None:
    bench = ClientBench()
    channel = with_queue(bench)
    said = Properties(content_type="text/plain", headers={"n": 1}, durable=True, ttl_ms=5000, message_id="m1")
    publish(bench, ForeignEncoding(said), b"hello")
    content = channel.get("q")
    assert content is not None
    assert content.body == b"hello"
    properties = content.properties
    assert (properties.content_type, properties.headers, properties.message_id) == (
        "text/plain",
        {"n": 1},
        "m1",
    )
    assert (properties.delivery_mode, properties.expiration) == (2, "5000")


def test_one_conversion_serves_all_consumers() -> None:
    bench = ClientBench()
    encoding = ForeignEncoding(Properties(message_id="m1"))
    channels = [channel_of(bench) for _ in range(3)]
    for number, channel in enumerate(channels):
        channel.declare(f"q{number}")
        channel.call(m.QueueBind(f"q{number}", "amq.fanout"))
        channel.consume(f"q{number}")
    exchange = bench.host.exchanges["amq.fanout"]
    bench.broker.publish(exchange, Message(encoding, "amq.fanout", "", b"", b"x", Facts()))
    bench.settle()
    assert [len(channel.deliveries()) for channel in channels] == [1, 1, 1]
    assert encoding.reads == 1


@pytest.mark.parametrize("shared", [False, True])
def test_a_message_that_cannot_be_converted_is_rejected_and_the_others_arrive(
    shared: bool, caplog: pytest.LogCaptureFixture
) -> None:
    bench = ClientBench()
    channel = channel_of(bench)
    channel.declare("dead")
    channel.declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    channel.prefetch(2, of_channel=shared)
    channel.consume("q")
    with caplog.at_level(logging.ERROR):
        publish(bench, ForeignEncoding(None), b"bad")
        publish(bench, ForeignEncoding(Properties()), b"good")
        publish(bench, ForeignEncoding(Properties()), b"better")
    delivered = channel.deliveries()
    assert [content.body for content in delivered] == [b"good", b"better"]
    assert [content.method.delivery_tag for content in delivered] == [1, 2]
    assert bench.queue("dead").ready == 1
    assert bench.queue("q").unsettled == 2
    assert "cannot deliver" in caplog.text


@pytest.mark.parametrize("dead", [False, True])
def test_s232_a_body_is_shown_without_what_its_own_protocol_wraps_it_in(dead: bool) -> None:
    bench = ClientBench()
    channel = with_queue(bench)
    channel.declare("dying", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    for _ in range(2):
        publish(bench, Wrapped(Properties()), b"<hello>", "dying" if dead else "q")
        if dead:
            content = channel.get("dying", no_ack=False)
            assert isinstance(content, Content)
            assert content.body == b"hello"
            channel.reject(content.method.delivery_tag)
    fetched = channel.get("q")
    assert fetched is not None
    assert fetched.body == b"hello"
    channel.consume("q", no_ack=True)
    assert [content.body for content in channel.deliveries()] == [b"hello"]


@pytest.mark.parametrize(
    ("given", "said", "headers"),
    [
        ("m1", "m1", None),
        ("", "", None),
        ("m" * 255, "m" * 255, None),
        ("m" * 256, None, {"x-id": "m" * 256}),
        ("é" * 128, None, {"x-id": "é" * 128}),
        (b"m1", None, {"x-id": wire.ByteArray(b"m1")}),
        (2**64 - 1, "18446744073709551615", None),
        (UUID(UUID_TEXT), UUID_TEXT, None),
    ],
)
def test_s232_an_id_that_is_no_short_string_goes_into_a_header(
    given: Id, said: str | None, headers: FieldTable | None
) -> None:
    for name, header in (("message_id", "x-message-id"), ("correlation_id", "x-correlation-id")):
        properties = fetched(Properties(**{name: given}))
        assert getattr(properties, name) == said
        assert properties.headers == (headers and {header: headers["x-id"]})


def test_what_a_short_string_or_a_number_cannot_hold_is_left_out() -> None:
    long = "x" * 256
    properties = fetched(
        Properties(
            content_type=long,
            content_encoding=long,
            headers={"a": 1, long: 2},
            priority=256,
            reply_to=long,
            timestamp=-1,
            type=long,
            user_id=long,
            app_id=long,
        )
    )
    assert properties == BasicProperties(headers={"a": 1})


VALUES: list[tuple[Value, bytes]] = [
    (values.Int8(-1), b"b\xff"),
    (values.UInt8(1), b"B\x01"),
    (values.Int16(-1), b"s\xff\xff"),
    (values.UInt16(1), b"u\x00\x01"),
    (1, b"I\x00\x00\x00\x01"),
    (values.UInt32(1), b"i\x00\x00\x00\x01"),
    (values.Int64(1), b"l\x00\x00\x00\x00\x00\x00\x00\x01"),
    (2**31, b"l\x00\x00\x00\x00\x80\x00\x00\x00"),
    (values.Float32(1.5), b"f\x3f\xc0\x00\x00"),
    (1.5, b"d\x3f\xf8\x00\x00\x00\x00\x00\x00"),
    (values.Timestamp(1), b"T\x00\x00\x00\x00\x00\x00\x00\x01"),
    (Decimal("1.5"), b"D\x01\x00\x00\x00\x0f"),
    (True, b"t\x01"),
    (None, b"V"),
    ("text", b"S\x00\x00\x00\x04text"),
    (b"\xff", b"S\x00\x00\x00\x01\xff"),
    (bytearray(b"\xff"), b"x\x00\x00\x00\x01\xff"),
    ([values.UInt8(1), None], b"A\x00\x00\x00\x03B\x01V"),
    ({"a": values.UInt8(1)}, b"F\x00\x00\x00\x04\x01aB\x01"),
]
ONE_WAY: list[tuple[Value, bytes]] = [
    (values.UInt64(1), b"l\x00\x00\x00\x00\x00\x00\x00\x01"),
    (UUID(UUID_TEXT), b"S\x00\x00\x00\x2d" + UUID_TEXT.encode()),
    ((1,), b"A\x00\x00\x00\x05I\x00\x00\x00\x01"),
]


@pytest.mark.parametrize(("value", "octets"), VALUES + ONE_WAY)
def test_x073_every_neutral_value_has_a_field_type(value: Value, octets: bytes) -> None:
    raw = ENCODING.write(Properties(headers={"k": value}))
    assert raw == b"\x20\x00" + (len(octets) + 2).to_bytes(4, "big") + b"\x01k" + octets


@pytest.mark.parametrize(("value", "octets"), VALUES)
def test_x073_every_field_is_read_as_wide_as_it_is(value: Value, octets: bytes) -> None:
    raw = b"\x20\x00" + (len(octets) + 2).to_bytes(4, "big") + b"\x01k" + octets
    for headers in (ENCODING.headers(raw), ENCODING.read(raw).headers or {}):
        assert headers == {"k": value}
        assert type(headers["k"]) is (values.Int64 if value == 2**31 else type(value))


@given(samples.tables)
def test_x073_a_table_is_the_same_after_a_detour_through_neutral_values(fields: FieldTable) -> None:
    assert wire.encode_table(field_table(table(fields))) == wire.encode_table(fields)


def test_headers_that_no_frame_can_hold_are_left_out_and_the_rest_is_not() -> None:
    fits, large = "x" * 119_900, "x" * 120_000
    assert fetched(Properties(headers={"a": fits}, message_id="m")).headers == {"a": fits}
    assert fetched(Properties(headers={"a": large}, message_id="m")) == BasicProperties(message_id="m")
    raw = BasicProperties(headers={"a": fits}).encode()
    assert ENCODING.with_headers(raw, {"x-b": "x" * 200}) == raw


def nested(depth: int, innermost: Value) -> Value:
    for _ in range(depth):
        innermost = [innermost]
    return innermost


@pytest.mark.parametrize(
    "value",
    [
        *(values.UInt64(2**63), 2**63, -(2**63) - 1, values.Timestamp(-1), values.UInt8(256)),
        *(Decimal("NaN"), Decimal(2**31), "\ud800"),
    ],
)
def test_a_value_without_field_type_is_left_out_alone(value: Value) -> None:
    said: Table = {"a": 1, "bad": value, "list": [1, value, 2], "table": {"bad": value, "good": 3}}
    expected: FieldTable = {"a": 1, "list": [1, 2], "table": {"good": 3}}
    assert fetched(Properties(headers=said)).headers == expected


def test_what_is_nested_deeper_than_a_table_may_be_is_left_out() -> None:
    deepest = nested(wire.DEPTH_MAX - 1, "x")
    too_deep: FieldValue = []
    for _ in range(wire.DEPTH_MAX - 1):
        too_deep = [too_deep]
    headers = fetched(Properties(headers={"a": deepest, "b": nested(200, "x")})).headers
    assert headers == {"a": deepest, "b": too_deep}


def test_names_that_other_protocols_can_make_longer_are_cut() -> None:
    bench = ClientBench()
    channel = with_queue(bench)
    channel.bind("q", "amq.fanout")
    key = "é" * 200
    fanout = bench.host.exchanges["amq.fanout"]
    for _ in range(2):
        bench.broker.publish(
            fanout, Message(ForeignEncoding(Properties()), "amq.fanout", key, b"", b"", Facts())
        )
    bench.settle()
    content = channel.get("q")
    assert content is not None
    channel.consume("q", no_ack=True)
    for each in (content, *channel.deliveries()):
        assert each.method.routing_key == "é" * 127 + "\udcc3"


@given(samples.properties)
def test_headers_are_added_and_everything_else_stays_as_it_was(properties: BasicProperties) -> None:
    raw = properties.encode()
    before, after = (
        wire.property_fields(raw),
        wire.property_fields(ENCODING.with_headers(raw, {"x-new": values.Int16(1)})),
    )
    old = [entry for entry in wire.table_fields(before.pop("headers", b"\0\0\0\0")) if entry[0] != "x-new"]
    assert wire.table_fields(after.pop("headers")) == [("x-new", b"\x05x-news\x00\x01"), *old]
    assert after == before

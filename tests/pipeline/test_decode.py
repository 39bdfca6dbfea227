"""Blocks to record batches: every message once, with the columns that are wanted and no others."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructField, StructType

from leveret.durable.store.contract import DamagedError
from leveret.message import Facts, Message
from leveret.pipeline import decode, properties091
from leveret.pipeline.arrow import Batch, schema_of
from leveret.pipeline.decode import Decoder
from leveret.pipeline.errors import BadOption
from leveret.pipeline.options import Use, read_options
from leveret.pipeline.schema import PROPERTIES, SCHEMAS, check, full
from leveret.protocols.amqp010.broker.encoding import ENCODING as AMQP010
from leveret.protocols.amqp010.codec.commands import DeliveryProperties, MessageProperties
from leveret.protocols.amqp091.codec.fields import ByteArray
from leveret.protocols.amqp091.codec.wire import LongLong
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.mqtt.broker.encoding import ENCODING as MQTT
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties
from tests.pipeline.bulk import block, bodies, message


def decoder(*columns: str, kind: str = "amqp") -> Decoder:
    fields = [field for field in SCHEMAS[kind].fields if field.name in columns or not columns]
    return Decoder(schema_of(StructType(fields)), kind, "orders", 3)


def batches(octets: bytes, *columns: str, first: int = 0, until: int = 10**9) -> list[Batch]:
    return [batch for batch, _, _ in decoder(*columns).batches(octets, first, until)]


def rows(octets: bytes, *columns: str, first: int = 0, until: int = 10**9) -> list[dict[str, object]]:
    return [row for batch in batches(octets, *columns, first=first, until=until) for row in batch.to_pylist()]


def message10(properties: bytes, body: bytes) -> Message:
    return Message(AMQP10, "", "orders", properties, body, Facts())


def test_every_column_has_what_was_published():
    sent = message(
        b"body",
        "shop",
        "orders.new",
        headers={"retries": 3, "tags": ["a", 1, None], "raw": ByteArray(b"\xff\0"), "void": None},
        content_type="text/plain",
        delivery_mode=2,
        priority=7,
        correlation_id="c",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        app_id="till",
    )
    (row,) = rows(block(7, sent, arrived=1_767_225_600_123))
    properties = row.pop("properties")
    assert row == {
        "body": b"body",
        "exchange": "shop",
        "routing_key": "orders.new",
        "stream": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": datetime(2026, 1, 1, 0, 0, 0, 123_000, UTC),
        "redelivered": False,
        "headers": [("retries", "3"), ("tags", '["a", 1, null]'), ("raw", "\\xff\x00"), ("void", None)],
    }
    assert properties == {
        **dict.fromkeys(field.name for field in PROPERTIES.fields),
        "content_type": "text/plain",
        "durable": True,
        "priority": 7,
        "correlation_id": "c",
        "ttl_ms": 60_000,
        "message_id": "m",
        "timestamp": datetime.fromtimestamp(1_700_000_000, UTC),
        "app_id": "till",
    }


def test_the_columns_of_kafka_hold_the_same():
    sent = message(b"body", "shop", "orders.new", headers={"a": "ü", "b": None})
    (batch,) = [each for each, _, _ in decoder(kind="kafka").batches(block(7, sent), 0, 100)]
    assert batch.to_pylist() == [
        {
            "key": b"orders.new",
            "value": b"body",
            "topic": "orders",
            "partition": 3,
            "offset": 7,
            "timestamp": datetime.fromtimestamp(1, UTC),
            "timestampType": 1,
            "headers": [{"key": "a", "value": "ü".encode()}, {"key": "b", "value": None}],
        }
    ]


SENT = st.builds(
    message,
    st.binary(max_size=5),
    st.sampled_from(["", "x"]),
    st.sampled_from(["a", "b", "ü"]),
    message_id=st.sampled_from([None, "1", "2"]),
)


@given(st.lists(st.lists(SENT, min_size=1, max_size=6), min_size=1, max_size=5), st.data())
def test_rows_are_the_messages_asked_for_however_they_lie_in_blocks(
    commits: Sequence[Sequence[Message]], data: st.DataObject
):
    octets, expected = b"", []
    for commit in commits:
        octets += block(len(expected), *commit)
        expected += commit
    first = data.draw(st.integers(0, len(expected)))
    until = data.draw(st.integers(first, len(expected)))
    found = rows(octets, first=first, until=until)
    assert [
        (row["offset"], row["body"], row["exchange"], row["routing_key"], row["properties"]["message_id"])  # type: ignore[index]
        for row in found
    ] == [
        (offset, sent.body, sent.exchange, sent.key, AMQP091_ID(sent))
        for offset, sent in enumerate(expected)
        if first <= offset < until
    ]


def AMQP091_ID(sent: Message) -> object:  # noqa: N802
    return sent.encoding.property(sent.properties, "message_id")


def test_small_blocks_share_a_batch_and_large_ones_have_their_own():
    octets = b"".join(block(at, message(b"x")) for at in range(100))
    assert [each.num_rows for each in batches(octets, "body")] == [100]
    large = block(0, *[message(b"y")] * 20_000) + block(20_000, *[message(b"z")] * 10)
    assert [each.num_rows for each in batches(large, "body")] == [20_000, 10]


@pytest.mark.parametrize("size", [1, decode.MANY_ROWS - 1, decode.MANY_ROWS, 30])
@pytest.mark.parametrize("other", [None, 2])
def test_bodies_of_blocks_of_any_size_are_those_that_were_sent(size: int, other: int | None):
    """Taken one by one or as they lie; a block of another protocol (the third, here) may be among them."""
    count = 5 * size
    sent = [b"%d" % n * (n % 4) for n in range(count)]
    made = [
        message10(b"", b"\0Su\xa0" + bytes([len(each)]) + each) if n // size == other else message(each)
        for n, each in enumerate(sent)
    ]
    octets = b"".join(block(begin, *made[begin : begin + size]) for begin in range(0, count, size))
    found = rows(octets, "body", "offset", first=2, until=count - 1)
    assert found == [{"body": sent[n], "offset": n} for n in range(2, count - 1)]


def test_a_batch_says_which_offsets_it_has():
    octets = block(10, *[message(b"x")] * 5)
    assert [(low, high) for _, low, high in decoder("body").batches(octets, 11, 13)] == [(11, 13)]


def test_what_messages_share_is_not_repeated_without_bound():
    sent = message(b"", headers={"large": "x" * 100_000})
    found = batches(block(0, *[sent] * 200), "offset", "headers")
    assert sum(each.num_rows for each in found) == 200
    assert max(each.nbytes for each in found) < 2 * decode.REPEATED_MAX


def test_bodies_are_not_copied():
    octets = block(0, *[message(b"x" * 1000)] * 100)
    (batch,) = batches(octets, "body")
    begin = id(octets)
    address = batch.column("body").buffers()[2].address  # type: ignore[attr-defined]
    assert begin < address < begin + len(octets) + 100


def test_properties_are_not_decoded_unless_a_column_wants_them(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(decode, "ENCODINGS", {"amqp091": decode.AMQP091})
    monkeypatch.setattr(properties091, "read", None)
    assert len(rows(block(0, message(b"x", message_id="1")), "body", "offset", "routing_key")) == 1


def test_the_same_properties_are_decoded_once(monkeypatch: pytest.MonkeyPatch):
    calls = []
    before = properties091.read
    monkeypatch.setattr(properties091, "read", lambda octets: calls.append(octets) or before(octets))
    sent = [message(b"x", message_id=str(at % 3)) for at in range(30)]
    found = decoder("properties")
    for _ in range(2):
        assert sum(each.num_rows for each, _, _ in found.batches(block(0, *sent), 0, 99)) == 30
    assert len(calls) == 3


def test_bodies_of_amqp_1_0_are_what_their_data_sections_hold():
    data = b"\x00\x53\x75\xa0\x02hi"
    value = b"\x00\x53\x77\xa1\x05hello"
    found = rows(block(0, message10(b"", data), message10(b"", value), message(b"plain")))
    assert bodies(found) == [b"hi", value, b"plain"]
    assert [row["properties"]["type"] for row in found] == [None, "amqp-1.0", None]  # type: ignore[index]


def test_what_arrow_cannot_hold_is_null_or_escaped():
    sent = message(
        b"", key="k\udcff", timestamp=2**64 - 1, headers={"n": LongLong(2**62), "h\udcfe": "\udcfd"}
    )
    (row,) = rows(block(0, sent))
    assert row["routing_key"] == "k\\xff"
    assert row["properties"]["timestamp"] is None  # type: ignore[index]
    assert row["headers"] == [("n", str(2**62)), ("h\\xfe", "\\xfd")]


def test_what_a_queue_had_delivered_before_is_redelivered():
    sent = [message(b"x")] * 3
    octets = block(0, *sent, positions=[8, 9, 4]) + block(3, *sent) + block(6, *sent, positions=[1, 2, 3])
    found = rows(octets, "redelivered", first=1, until=9)
    assert [row["redelivered"] for row in found] == [True, False, *[False] * 3, True, False, True]


def test_what_comes_from_a_queue_has_the_time_when_it_came_there():
    sent = [message(b"x")] * 3
    octets = block(0, *sent, arrived=9_000, positions=[2, 4, 6], arrivals=[7_000, 5_000, 6_001])
    octets += block(3, *sent, arrived=9_000)  # as brokers wrote them before: when it was set aside
    found = rows(octets, "timestamp", first=1, until=5)
    began = datetime(1970, 1, 1, tzinfo=UTC)
    after = [(cast(datetime, row["timestamp"]) - began).total_seconds() for row in found]
    assert after == [5, 6.001, 9, 9]


@pytest.mark.parametrize("count", [1, 2 * decode.MANY_ROWS])
def test_messages_of_amqp_0_10_are_rows_like_others(count: int):
    said = MessageProperties(
        correlation_id=b"c", content_type="text/plain", application_headers={"retries": 3, "x-jms-type": "t"}
    )
    octets = DeliveryProperties(priority=7, timestamp=1_700_000_000).encode() + said.encode()
    sent = [Message(AMQP010, "", "orders", octets, b"body", Facts(has_headers=True))] * count
    found = rows(block(0, *sent), "body", "headers", "properties", "annotations")
    assert len(found) == count
    for row in found:
        assert row["body"] == b"body"
        assert ("retries", "3") in row["headers"]
        properties = row["properties"]
        assert (properties["correlation_id"], properties["priority"], properties["type"]) == ("c", 7, "t")


@pytest.mark.parametrize("count", [1, 2 * decode.MANY_ROWS])
def test_messages_of_mqtt_are_rows_like_others(count: int):
    said = Properties(
        content_type="text/plain", correlation_id="c", durable=True, ttl_ms=5000, headers={"n": "7"}
    )
    sent = [
        Message(MQTT, "amq.topic", "devices.7", MQTT.write(said), b"21.5", Facts(has_headers=True))
    ] * count
    found = rows(block(0, *sent), "body", "routing_key", "headers", "properties")
    assert len(found) == count
    for row in found:
        assert (row["body"], row["routing_key"], row["headers"]) == (b"21.5", "devices.7", [("n", "7")])
        properties = row["properties"]
        assert (properties["correlation_id"], properties["content_type"]) == ("c", "text/plain")


def test_damage_on_the_way_is_noticed():
    octets = bytearray(block(0, message(b"x" * 50)))
    octets[-3] ^= 1
    with pytest.raises(DamagedError):
        rows(bytes(octets))


def test_a_protocol_that_is_not_known_is_named():
    class Other(FakeEncoding):
        name = "stomp"

    with pytest.raises(DamagedError, match="of the protocol 'stomp'"):
        rows(block(0, Message(Other(Properties()), "", "", b"", b"")))


# Schemas.

LEAST = {"endpoints": "a", "subscribe": "b"}


def test_headers_may_be_left_out():
    options = read_options({**LEAST, "includeHeaders": "false"}, Use.BATCH)
    assert "headers" not in full(options).names
    assert "properties" in full(options).names


def test_a_schema_may_name_some_columns_and_some_properties_in_any_order():
    options = read_options(LEAST, Use.BATCH)
    some = StructType([StructField("type", PROPERTIES["type"].dataType)])
    wanted = StructType(
        [StructField("offset", full(options)["offset"].dataType), StructField("properties", some)]
    )
    check(wanted, options)
    made = Decoder(schema_of(wanted), "amqp", "orders", 0)
    ((batch, _, _),) = made.batches(block(4, message(b"", type="t", app_id="a")), 0, 9)
    assert batch.to_pylist() == [{"offset": 4, "properties": {"type": "t"}}]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ("value binary", "has a column 'value'; known are body, exchange"),
        ("body string", "column 'body' of the schema given is string; it must be binary"),
        ("properties struct<colour:string>", "it must be struct<content_type:string"),
        ("properties struct<priority:string>", "it must be struct"),
    ],
)
def test_a_schema_that_cannot_be_had_is_refused(columns: str, said: str):
    with pytest.raises(BadOption, match=said):
        check(ddl(columns), read_options(LEAST, Use.BATCH))
    with pytest.raises(BadOption, match="no columns"):
        check(StructType([]), read_options(LEAST, Use.BATCH))


def ddl(columns: str) -> StructType:
    """PySpark reads such texts with a JVM only."""
    from pyspark.sql.types import BinaryType, StringType

    kinds = {"binary": BinaryType(), "string": StringType()}
    name, kind = columns.split(" ")
    if kind.startswith("struct<"):
        field, inner = kind[7:-1].split(":")
        return StructType([StructField(name, StructType([StructField(field, kinds[inner])]))])
    return StructType([StructField(name, kinds[kind])])

"""Record batches to blocks: every row is a message, with all that its columns say, and nothing is left out silently."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal

import attrs
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType, VariantVal

from leveret.durable.store.block import Block, header, messages_of
from leveret.message import Message
from leveret.pipeline import encode
from leveret.pipeline.arrow import Batch, schema_of
from leveret.pipeline.columns import columns_of
from leveret.pipeline.decode import Decoder
from leveret.pipeline.encode import Encoder, Made, together
from leveret.pipeline.errors import BadRow
from leveret.pipeline.jobs import archive_columns
from leveret.pipeline.options import Use, read_options
from leveret.pipeline.schema import VARIANT
from leveret.pipeline.sink_options import SinkOptions, read_sink_options
from leveret.pipeline.user_ids import without_users
from leveret.protocols.amqp010.broker.encoding import ENCODING as AMQP010
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091
from leveret.protocols.amqp091.codec.fields import ByteArray
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.amqp10.codec.types import Described, Long, Symbol, Timestamp, UByte, UInt, Value
from leveret.protocols.amqp10.codec.types import encode as encoded
from leveret.protocols.mqtt.broker.encoding import ENCODING as MQTT
from leveret.values import Properties
from leveret.values import Timestamp as Timestamp091
from tests.pipeline.bulk import FACTS, block, message

ENCODINGS = {each.name: each for each in (AMQP010, AMQP091, AMQP10, MQTT)}
Row = dict[str, object]


def section(code: int, value: Value) -> bytes:
    """A section of AMQP 1.0."""
    return b"\0S" + bytes((code,)) + encoded(value)


HEADERS = pa.map_(pa.string(), pa.string())
KAFKAS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
KINDS = {
    "content_type": pa.string(),
    "durable": pa.bool_(),
    "priority": pa.int32(),
    "correlation_id": pa.string(),
    "ttl_ms": pa.int64(),
    "message_id": pa.string(),
    "timestamp": pa.timestamp("us", "UTC"),
}
SCHEMA = pa.schema(
    [
        ("body", pa.binary()),
        ("exchange", pa.string()),
        ("routing_key", pa.string()),
        ("properties", pa.struct(list(KINDS.items()))),
        ("headers", HEADERS),
    ]
)


def options(**given: object) -> SinkOptions:
    return read_sink_options({"endpoints": "a", **{name: str(value) for name, value in given.items()}})


def encoder(batch: Batch, **given: object) -> Encoder:
    asked = options(**given)
    return Encoder(columns_of(from_arrow_schema(batch.schema), asked), asked)


def batch_of(rows: Sequence[Row], schema: object = SCHEMA) -> Batch:
    return pa.RecordBatch.from_pylist(rows, schema=schema)


def one_column(values: Sequence[object], kind: object, name: str = "body") -> Batch:
    bodies = [b""] * len(values)
    columns = {"body": pa.array(bodies, pa.binary())} if name != "body" else {}
    return pa.RecordBatch.from_pydict({**columns, name: pa.array(values, kind)})


def messages(blocks: Sequence[Made]) -> list[Message]:
    found = []
    for made in blocks:
        at = rows = 0
        while at < len(made.octets):
            head = header(made.octets, at)
            found += messages_of(Block(made.octets, at), ENCODINGS.get)
            at += head.octets
            rows += head.count
        assert rows == made.rows
    return found


def sent(batch: Batch, **given: object) -> list[Message]:
    return messages(list(encoder(batch, **given).blocks(batch)))


def properties_of(message: Message) -> BasicProperties:
    return BasicProperties.decode(message.properties)


GIVEN = ("exchange", "routingKey")
NAMES = st.sampled_from(["", "a", "ü€"])
TEXTS = st.sampled_from([None, "", "a", "b", "ü€"])
FIELDS = st.fixed_dictionaries(
    {
        "content_type": TEXTS,
        "durable": st.sampled_from([None, True, False]),
        "priority": st.sampled_from([None, 0, 255]),
        "correlation_id": TEXTS,
        "ttl_ms": st.sampled_from([None, 0, 60_000]),
        "message_id": TEXTS,
        "timestamp": st.sampled_from([None, datetime.fromtimestamp(1_700_000_000, UTC)]),
    }
)
ROWS = st.fixed_dictionaries(
    {
        "body": st.binary(max_size=9),
        "exchange": NAMES,
        "routing_key": TEXTS,
        "properties": st.none() | FIELDS,
        "headers": st.none()
        | st.dictionaries(st.sampled_from(["", "x", "ü"]), TEXTS, max_size=3).map(dict.items).map(list),
    }
)


def expected(row: Row, persistent: bool) -> BasicProperties:
    """What a publisher of 0-9-1 would have said, a row at a time."""
    fields = row["properties"] or {}
    assert isinstance(fields, dict)
    durable = persistent if fields.get("durable") is None else fields["durable"]
    ttl = fields.get("ttl_ms")
    timestamp = fields.get("timestamp")
    headers = row["headers"]
    return BasicProperties(
        content_type=fields.get("content_type"),
        delivery_mode=2 if durable else None,
        priority=fields.get("priority"),
        correlation_id=fields.get("correlation_id"),
        expiration=None if ttl is None else str(ttl),
        message_id=fields.get("message_id"),
        timestamp=None if timestamp is None else int(timestamp.timestamp()),
        headers=None if headers is None else dict(headers),  # type: ignore[call-overload]
    )


@given(st.lists(ROWS, min_size=1, max_size=30), st.booleans(), st.integers(60, 400), st.data())
def test_every_row_is_a_message(rows: list[Row], persistent: bool, octets: int, data: st.DataObject):
    begin = data.draw(st.integers(0, len(rows) - 1))
    batch = batch_of(rows).slice(begin)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "BLOCK_OCTETS", octets)
        found = sent(batch, persistent=persistent)
    assert [(each.exchange, each.key, each.body, properties_of(each)) for each in found] == [
        (row["exchange"], row["routing_key"] or "", row["body"], expected(row, persistent))
        for row in rows[begin:]
    ]


def test_an_option_says_it_of_all_rows():
    batch = batch_of([{"body": b"a", "exchange": "there", "routing_key": key} for key in ("x", "y")])
    addresses = {
        given: [(each.exchange, each.key) for each in sent(batch, **{given: "o"})] for given in GIVEN
    }
    assert addresses == {"exchange": [("o", "x"), ("o", "y")], "routingKey": [("there", "o"), ("there", "o")]}


def test_what_all_rows_share_is_in_a_block_once():
    batch = batch_of([{"body": b"%d" % at, "exchange": "e", "routing_key": "k"} for at in range(1000)])
    (made,) = encoder(batch).blocks(batch)
    block = Block(made.octets)
    assert (block.which, block.property_ends, len(block.origins)) == (None, None, 1)
    assert bytes(block.bodies) == b"".join(b"%d" % at for at in range(1000))


def test_keys_are_in_a_block_once_each():
    batch = batch_of([{"body": b"", "exchange": "e", "routing_key": f"k{at % 3}"} for at in range(1000)])
    (made,) = encoder(batch).blocks(batch)
    block = Block(made.octets)
    assert [origin[-2:] for origin in block.origins] == [["e", "k0"], ["e", "k1"], ["e", "k2"]]
    assert block.which is not None
    assert list(block.which[:5]) == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.large_binary()])
def test_a_body_is_octets_or_text_of_any_width(kind: object):
    values = ["a", "", "ü"] if kind != pa.large_binary() else [b"a", b"", "ü".encode()]
    assert [each.body for each in sent(one_column(values, kind), exchange="e")] == [b"a", b"", "ü".encode()]


def test_names_and_numbers_may_be_of_any_width():
    properties = pa.struct([("priority", pa.int8()), ("ttl_ms", pa.int32()), ("type", pa.large_string())])
    headers = pa.map_(pa.large_string(), pa.large_string())
    columns = {
        "body": pa.array([b"a", b"b"]),
        "exchange": pa.array(["e", "f"], pa.large_string()),
        "key": pa.array([b"k", None], pa.large_binary()),
        "properties": pa.array([{"priority": 3, "ttl_ms": 7, "type": "t"}, None], properties),
        "headers": pa.array([[("x", "1")], None], headers),
    }
    first, second = sent(pa.RecordBatch.from_pydict(columns))
    assert (first.exchange, first.key, second.exchange, second.key) == ("e", "k", "f", "")
    assert properties_of(first) == BasicProperties(
        priority=3, expiration="7", type="t", headers={"x": "1"}, delivery_mode=2
    )
    assert properties_of(second) == BasicProperties(delivery_mode=2)


def test_columns_may_have_kafkas_names():
    columns = {
        "key": pa.array([b"k", b"\xff", None], pa.binary()),
        "value": pa.array([b"a", b"b", b"c"], pa.binary()),
        "headers": pa.array([[{"key": "x", "value": b"1"}, {"key": "y", "value": None}], [], None], KAFKAS),
        "offset": pa.array([1, 2, 3]),
    }
    found = sent(pa.RecordBatch.from_pydict(columns), exchange="e")
    assert [(each.key, each.body) for each in found] == [("k", b"a"), ("\udcff", b"b"), ("", b"c")]
    assert [properties_of(each).headers for each in found] == [{"x": "1", "y": None}, {}, None]


def test_further_routing_keys_are_lists():
    batch = one_column([[("CC", '["a", "b"]'), ("BCC", None)]], HEADERS, "headers")
    assert properties_of(sent(batch, exchange="e")[0]).headers == {"CC": ["a", "b"], "BCC": None}


def test_pieces_are_bounded_and_a_large_row_goes_alone():
    sizes = [600_000, 600_000, 10, 3_000_000, 10, 10]
    batch = one_column([bytes(size) for size in sizes], pa.binary())
    blocks = list(encoder(batch, exchange="e").blocks(batch))
    assert [made.rows for made in blocks] == [1, 2, 1, 2]
    assert [len(each.body) for each in messages(blocks)] == sizes


def test_a_block_has_no_more_rows_than_a_block_may():
    batch = one_column([b""] * 70_000, pa.binary())
    assert [made.rows for made in encoder(batch, exchange="e").blocks(batch)] == [65_535, 4_465]


@pytest.mark.parametrize("width", [1, 60, 255])
def test_a_request_is_bounded_whatever_the_keys_are(width: int):
    keys = [f"{at:0{width}}"[-width:].replace("0", "\x01") for at in range(20_000)]
    columns = {"body": pa.array([b"x" * 9] * 20_000, pa.binary()), "key": pa.array(keys)}
    batch = pa.RecordBatch.from_pydict(columns)
    requests = list(together(encoder(batch, exchange="e").blocks(batch)))
    assert all(len(made.octets) <= encode.REQUEST_OCTETS for made in requests)
    assert [each.key for each in messages(requests)] == keys


def test_small_blocks_share_a_request_and_large_ones_do_not():
    small, large = Made(bytes(300_000), 2), Made(bytes(2_000_000), 1)
    found = [(len(made.octets), made.rows) for made in together([small, small, small, small, large, small])]
    assert found == [(900_000, 6), (300_000, 2), (2_000_000, 1), (300_000, 2)]
    assert list(together([])) == []


def test_no_rows_are_no_block():
    batch = one_column([], pa.binary())
    assert list(encoder(batch, exchange="e").blocks(batch)) == []


PROPERTIES_OF = {name: pa.struct([(name, kind)]) for name, kind in KINDS.items()}


@pytest.mark.parametrize(
    ("batch", "given", "said"),
    [
        (
            one_column([b"a", None], pa.binary()),
            {"exchange": "e"},
            "column 'body' is null in a row; coalesce(body",
        ),
        (
            one_column([None], pa.string(), "exchange"),
            {},
            "column 'exchange' is null in a row; the option exchange",
        ),
        (
            one_column(["x" * 256], pa.string(), "exchange"),
            {},
            "column 'exchange' has more than 255 bytes in a row",
        ),
        (
            one_column(["ü" * 128], pa.string(), "key"),
            {"exchange": "e"},
            "column 'key' has more than 255 bytes",
        ),
        (
            one_column([{"priority": 256}], PROPERTIES_OF["priority"], "properties"),
            {"exchange": "e"},
            "column 'properties.priority' is 256 in a row; it must be from 0 to 255",
        ),
        (
            one_column([{"ttl_ms": -1}], PROPERTIES_OF["ttl_ms"], "properties"),
            {"exchange": "e"},
            "column 'properties.ttl_ms' is -1 in a row",
        ),
        (
            one_column(
                [{"timestamp": datetime(1960, 1, 1, tzinfo=UTC)}], PROPERTIES_OF["timestamp"], "properties"
            ),
            {"exchange": "e"},
            "column 'properties.timestamp' is before 1970 in a row",
        ),
        (
            one_column([{"content_type": "x" * 256}], PROPERTIES_OF["content_type"], "properties"),
            {"exchange": "e"},
            "column 'properties.content_type' has more than 255 bytes in a row",
        ),
        (
            one_column([[("x" * 256, "")]], HEADERS, "headers"),
            {"exchange": "e"},
            "the name of a header in column 'headers' has more than 255 bytes",
        ),
        (
            one_column([[("x", "y" * 130_000)]], HEADERS, "headers"),
            {"exchange": "e"},
            "column 'headers' and properties have more than 120000 bytes in a row",
        ),
        (
            one_column([[("CC", "a,b")]], HEADERS, "headers"),
            {"exchange": "e"},
            "header 'CC' in column 'headers' is 'a,b' in a row; it must be JSON such as",
        ),
        (
            one_column([[{"key": None, "value": b"x"}]], KAFKAS, "headers"),
            {"exchange": "e"},
            "column 'headers' has a header without a name in a row",
        ),
    ],
)
def test_what_cannot_be_said_is_an_error_that_names_the_column(
    batch: Batch, given: dict[str, str], said: str
):
    with pytest.raises(BadRow) as caught:
        sent(batch, **given)
    assert said in str(caught.value)
    assert len(str(caught.value)) < 300


def test_ids_may_be_of_any_length():
    kind = pa.struct([("message_id", pa.string()), ("correlation_id", pa.string())])
    batch = one_column([{"message_id": "m" * 300, "correlation_id": "c"}], kind, "properties")
    found = properties_of(sent(batch, exchange="e")[0])
    assert (found.message_id, found.headers, found.correlation_id) == (None, {"x-message-id": "m" * 300}, "c")


def test_the_octets_of_properties_are_remembered_and_not_for_ever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(encode, "REMEMBERED_MAX", 10)
    calls: list[object] = []
    write = encode.written
    monkeypatch.setattr(encode, "written", lambda *said: calls.append(said) or write(*said))
    batch = one_column([[("x", str(at % 10))] for at in range(100)], HEADERS, "headers")
    made = encoder(batch, exchange="e")
    assert [list(made.blocks(batch)) for _ in range(2)]
    assert len(calls) == 10
    others = one_column([[("x", str(at))] for at in range(25)], HEADERS, "headers")
    assert len(messages(list(made.blocks(others)))) == 25
    assert len(made._remembered) <= 10
    long = one_column([[("x", "y" * 1025)]] * 2, HEADERS, "headers")
    assert len(messages(list(made.blocks(long)))) == 2
    assert all(len(octets) < 1024 for octets in made._remembered.values())


def variants(*headers: object) -> Batch:
    """As Spark has them: structs."""
    made = [None if each is None else VariantVal.parseJson(json.dumps(each)) for each in headers]
    rows = [None if each is None else {"value": each.value, "metadata": each.metadata} for each in made]
    return one_column(rows, schema_of(StructType([VARIANT])).field("headers").type, "headers")  # type: ignore[attr-defined]


def test_headers_of_variants_have_the_types_they_had():
    headers = {"a": 1, "b": "ü", "c": [1, "x", None], "d": {"e": True}, "f": 1 << 40, "g": None, "CC": ["k"]}
    found = sent(variants(headers, None, {}, headers), exchange="e")
    assert [properties_of(each).headers for each in found] == [headers, None, {}, headers]
    assert isinstance(properties_of(found[0]).headers["a"], int)  # type: ignore[index]


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([1], "column 'headers' holds a variant that is no object in a row"),
        ({"x" * 256: 1}, "the name of a header in column 'headers' has more than 255 bytes"),
        ({"a": [10**30]}, "header 'a' in column 'headers' is [Decimal"),
        ({"a": {"y" * 256: 1}}, "header 'a' in column 'headers' is {'yyyy"),
    ],
)
def test_a_variant_that_is_no_headers_is_an_error(headers: object, said: str):
    with pytest.raises(BadRow) as caught:
        sent(variants(headers), exchange="e")
    assert said in str(caught.value)


def test_a_variant_that_is_damaged_is_an_error():
    batch = variants({"a": 1})
    rows = [{"value": b"\x02\x7f\xff", "metadata": b"\x01\x00\x00"}]
    damaged = one_column(rows, batch.schema.field("headers").type, "headers")  # type: ignore[attr-defined]
    with pytest.raises(BadRow, match="column 'headers' is a variant"):
        sent(damaged, exchange="e")


# Messages as they were.


RAW = archive_columns.columns(read_options({"endpoints": "a", "subscribe": "jobs"}, Use.STREAM), ())
HEADERS_091 = {
    "n": 7,
    "octets": ByteArray(b"\xff\x00"),
    "price": Decimal("1.25"),
    "at": Timestamp091(1_767_225_600),
}
EXPIRY, SUBJECT, GROUP = Timestamp(1_800_000_000_001), "a subject", UInt(3)
PROPERTIES_10 = [
    b"id",
    b"guest",
    None,
    SUBJECT,
    None,
    None,
    Symbol("text/plain"),
    None,
    EXPIRY,
    EXPIRY,
    "group",
    GROUP,
]
APPLICATION_10 = {"n": UInt(7), "inner": Described(Symbol("a:b"), ["x", Long(1)])}
BODIES_10 = {
    "a section of data": section(0x75, b"abc"),
    "a long spelling of a short one": b"\0Su\xb0\0\0\0\x03abc",
    "two of them": section(0x75, b"ab") + section(0x75, b"c"),
    "a value": section(0x77, {"a": UInt(1), "b": [True, None, Symbol("s")]}),
    "a text": section(0x77, "caf\xe9"),
    "sequences": section(0x76, ["x", Long(2)]) + section(0x76, [b"\xff"]),
    "with a footer": section(0x75, b"x") + section(0x78, {Symbol("f"): 1}),
    "a large one": section(0x75, b"x" * 300),
}
JSONS = {
    "a value": '{"a": 1, "b": [true, null, "s"]}',
    "a text": '"caf\xe9"',
    "sequences": '["x", 2, "\\\\xff"]',
}


def of_all_protocols() -> list[Message]:
    octets_091 = BasicProperties(
        headers=HEADERS_091, timestamp=1_767_225_600, expiration="60000", user_id="guest"
    ).encode()
    octets_10 = section(0x70, [True, UByte(4), UInt(60_000)]) + section(0x72, {Symbol("x-opt-a"): Long(1)})
    octets_10 += section(0x73, PROPERTIES_10) + section(0x74, APPLICATION_10)
    octets_010 = AMQP010.write(Properties(durable=True, message_id="m", headers={"n": 7, "x": [1, "a"]}))
    found = [Message(AMQP091, "shop", "k", octets_091, b"plain", FACTS), message(b"")]
    found += [Message(AMQP10, "shop", "k", octets_10, body, FACTS) for body in BODIES_10.values()]
    found += [Message(AMQP10, "", "q", b"", BODIES_10["a value"], FACTS)]
    found.append(Message(AMQP010, "shop", "k", octets_010, b"\x00\xff", FACTS))
    octets_mqtt = MQTT.write(Properties(durable=True, correlation_id="c", headers={"n": "7"}))
    found.append(Message(MQTT, "amq.topic", "devices.7", octets_mqtt, b"21.5", FACTS))
    return [*found, *found[:-2]]


def looks(messages: Sequence[Message]) -> list[tuple[object, ...]]:
    return [(each.encoding.name, each.exchange, each.key, each.properties, each.body) for each in messages]


def archived(*messages: Message) -> Batch:
    blocks = b"".join(block(at, each) for at, each in enumerate(messages))
    decoder = Decoder(RAW, "amqp", "jobs", 0)
    return pa.Table.from_batches(
        [batch for batch, _, _ in decoder.batches(blocks, 0, 10**9)]
    ).combine_chunks()


@pytest.mark.parametrize("times", [1, 20])  # few are decoded one by one
def test_a_message_of_every_protocol_is_published_as_it_was(times: int):
    sent = of_all_protocols() * times
    found = archived(*sent)
    encoder = Encoder(columns_of(from_arrow_schema(found.schema), options()), options())
    got = messages([made for batch in found.to_batches() for made in encoder.blocks(batch)])
    assert looks(got) == looks(sent)


def test_values_and_sequences_are_json():
    sent = of_all_protocols()
    jsons = archived(*sent)["body_json"].to_pylist()
    bodies = {body: name for name, body in BODIES_10.items()}
    wanted = [JSONS.get(bodies.get(each.body, "")) if each.encoding is AMQP10 else None for each in sent]
    assert jsons == wanted


def test_rows_without_raw_properties_are_made_of_their_columns():
    rows = archived(*of_all_protocols()[:4]).to_pylist()
    rows[1]["raw_properties"] = None
    rows[1]["headers"] = [("a", "b")]
    batch = pa.RecordBatch.from_pylist(rows, RAW)
    encoder = Encoder(columns_of(from_arrow_schema(RAW), options()), options())
    got = messages(list(encoder.blocks(batch)))
    assert [each.body for each in got] == [b"plain", b"", *list(BODIES_10.values())[:2]]
    assert AMQP091.read(got[1].properties).headers == {"a": "b"}
    rows[2]["encoding"] = "stomp"
    with pytest.raises(
        BadRow, match="column 'encoding' is 'stomp' in a row; known are amqp010, amqp091, amqp10, mqtt"
    ):
        list(encoder.blocks(pa.RecordBatch.from_pylist(rows, RAW)))


def test_raw_columns_belong_together():
    schema = from_arrow_schema(RAW.remove(RAW.get_field_index("encoding")))
    with pytest.raises(BadRow, match="select both or neither"):
        columns_of(schema, options(exchange="e"))


def test_the_user_is_taken_out_unless_it_publishes_itself():
    sent = of_all_protocols()
    found = archived(*sent)
    users = pa.array([each["user_id"] for each in found["properties"].to_pylist()], pa.string())
    given = found.append_column("user", users)
    assert without_users(given, "user", "guest")["raw_properties"] == found["raw_properties"]
    made = without_users(given, "user", "ann")
    for each, raw in zip(sent, made["raw_properties"].to_pylist(), strict=True):
        before, after = each.encoding.read(each.properties), each.encoding.read(raw)
        assert after == attrs.evolve(before, user_id=None)

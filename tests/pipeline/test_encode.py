"""Record batches to blocks: every row is a message, with all that its columns say, and nothing is left out silently."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_schema

from broker_core.message import Message
from broker_core.store.block import Block, header, messages_of
from pipeline import encode
from pipeline.arrow import Batch
from pipeline.columns import columns_of
from pipeline.encode import Encoder, Made
from pipeline.sink_options import SinkOptions, read_sink_options
from protocols.amqp091.encoding import ENCODING as AMQP091
from protocols.amqp091.wire import BasicProperties

Row = dict[str, object]
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
            found += messages_of(Block(made.octets, at), {"amqp091": AMQP091}.get)
            at += head.octets
            rows += head.count
        assert rows == made.rows
    return found


def sent(batch: Batch, **given: object) -> list[Message]:
    return messages(list(encoder(batch, **given).blocks(batch)))


def properties_of(message: Message) -> BasicProperties:
    return BasicProperties.decode(message.properties)


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
        "exchange": TEXTS,
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
        found = sent(batch, exchange="e", routingKey="k", persistent=persistent)
    assert [(each.exchange, each.key, each.body, properties_of(each)) for each in found] == [
        (
            "e" if row["exchange"] is None else row["exchange"],
            "k" if row["routing_key"] is None else row["routing_key"],
            row["body"],
            expected(row, persistent),
        )
        for row in rows[begin:]
    ]

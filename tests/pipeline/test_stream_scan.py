"""Streams in polars, DuckDB and pandas without Spark: what is read, which columns of it, and how much at a time."""

from __future__ import annotations

import os

import pytest

from leveret.pipeline.errors import BadOption, NoStream, Refused
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker, message

polars = need_module("polars")
duckdb = need_module("duckdb")
need_module("pyarrow")

from leveret.pipeline.stream_scan import read_stream, scan_stream  # noqa: E402


def test_duckdb_asks_a_stream_in_sql(broker: FakeBroker) -> None:
    broker.stream("orders").fill(1000)
    with duckdb.connect() as connection:
        connection.register("orders", read_stream("orders", endpoint=broker.url, columns=["offset", "body"]))
        sql = 'SELECT count(*), max("offset"), min(octet_length(body)) FROM orders'
        assert connection.sql(sql).fetchall() == [(1000, 999, 1)]


def test_polars_reads_the_columns_that_a_query_names(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from leveret.pipeline import stream_scan

    wanted: list[list[str]] = []
    known = stream_scan.read_stream

    def noted(*streams: str, columns: list[str], **given: str) -> object:
        wanted.append(columns)
        return known(*streams, columns=columns, **given)

    monkeypatch.setattr(stream_scan, "read_stream", noted)
    broker.stream("orders").publish(
        message(b"a", key="eu", headers={"n": 1}), message(b"b", key="us"), message(b"c", key="eu")
    )
    orders = scan_stream("orders", endpoint=broker.url)
    found = orders.filter(polars.col("routing_key") == "eu").select("body").collect()
    assert found["body"].to_list() == [b"a", b"c"]
    assert [sorted(each) for each in wanted] == [["body", "routing_key"]]
    assert orders.head(2).collect()["offset"].to_list() == [0, 1]
    assert orders.select(polars.len()).collect().item() == 3
    assert orders.collect().height == 3
    assert orders.filter(polars.col("offset") > 0).head(1).collect()["body"].to_list() == [b"b"]


def test_pandas_has_a_frame_with_headers(broker: FakeBroker) -> None:
    need_module("pandas")
    broker.stream("orders").publish(message(b"a", headers={"n": 1}), message(b"b"))
    frame = read_stream("orders", endpoint=broker.url).read_pandas()
    assert [bytes(each) for each in frame["body"]] == [b"a", b"b"]
    assert [None if each is None else dict(each) for each in frame["headers"]] == [{"n": "1"}, None]


def test_options_say_which_messages_as_for_spark(broker: FakeBroker) -> None:
    for each in broker.super_stream("orders", 2):
        each.fill(10)
    broker.stream("refunds").fill(5)

    def offsets(*streams: str, **options: str) -> list[tuple[str, int, int]]:
        given = {"endpoint": broker.url, "columns": ["stream", "partition", "offset"], **options}
        return [tuple(each.values()) for each in read_stream(*streams, **given).read_all().to_pylist()]  # type: ignore[arg-type]

    assert len(offsets("orders", "refunds")) == 25
    assert offsets("orders", startingOffsets='{"orders":{"0":8,"1":-1}}') == [
        ("orders", 0, 8),
        ("orders", 0, 9),
    ]
    assert offsets("refunds", endingOffsets='{"refunds":{"0":1}}') == [("refunds", 0, 0)]
    broker.stream("chosen").publish(message(b"a"), message(b"longer"))
    assert offsets("chosen", minBodyBytes="2") == [("chosen", 0, 1)]


def test_a_long_stream_is_read_a_batch_at_a_time(broker: FakeBroker) -> None:
    for _ in range(10):
        broker.stream("orders").publish(*[message(os.urandom(1000)) for _ in range(50)])
    reader = read_stream("orders", endpoint=broker.url, columns=["body"], fetchBytes="65536")
    first = reader.read_next_batch()
    asked = sum("/blocks" in each for each in broker.asked)
    assert 0 < first.num_rows < 500
    assert asked == 1
    assert first.num_rows + sum(batch.num_rows for batch in reader) == 500


def test_what_cannot_be_read_is_told_at_once(broker: FakeBroker) -> None:
    broker.stream("orders")
    broker.queue("jobs")
    with pytest.raises(BadOption, match="there is no column 'bodies', but body, exchange"):
        read_stream("orders", endpoint=broker.url, columns=["bodies"])
    with pytest.raises(NoStream, match="'jobs' in vhost '/' is no stream"):
        read_stream("jobs", endpoint=broker.url)
    with pytest.raises(Refused, match="there is no stream 'refunds'"):
        read_stream("refunds", endpoint=broker.url)
    with pytest.raises(BadOption, match="unknown option 'startingOffset'; did you mean startingOffsets"):
        read_stream("orders", endpoint=broker.url, startingOffset="latest")
    assert read_stream("orders", endpoint=broker.url).read_all().num_rows == 0

"""Streams and exchanges as tables of Spark SQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pika
import pytest

from tests.interop.conftest import need_module
from tests.pipeline.conftest import LocalNode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

errors = need_module("pyspark.errors")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


@pytest.fixture
def tables(spark: SparkSession, node: LocalNode) -> Iterator[str]:
    """A stream `orders` in a node, whose URL it is; tables are dropped afterwards."""
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
    yield node.url
    for each in spark.catalog.listTables():
        spark.sql(f"DROP TABLE IF EXISTS {each.name}")


def said(spark: SparkSession, query: str) -> str:
    with pytest.raises(errors.PySparkException) as caught:
        spark.sql(query).collect()
    return str(caught.value)


def test_a_stream_is_a_table_and_an_exchange_is_another(spark: SparkSession, tables: str):
    spark.sql(
        f"CREATE TABLE orders USING amqp OPTIONS (endpoints '{tables}', subscribe 'orders')"
        " COMMENT 'what was ordered' TBLPROPERTIES (team 'shop')"
    )
    spark.sql(f"CREATE TABLE shop USING amqp OPTIONS (endpoints '{tables}', exchange '')")
    spark.sql(f"CREATE TABLE nowhere USING amqp OPTIONS (endpoints '{tables}', exchange 'x', routingKey 'k')")
    spark.sql("INSERT INTO shop (body, routing_key) VALUES (encode('a', 'utf-8'), 'orders')")
    spark.sql("INSERT INTO shop VALUES (encode('b', 'utf-8'), 'orders', null, map('n', '1'))")
    spark.sql(
        "INSERT INTO shop SELECT body, 'orders', properties, headers FROM orders WHERE orders.offset = 1"
    )
    found = spark.sql("SELECT cast(body AS string), headers FROM orders WHERE offset >= 1 ORDER BY offset")
    assert [tuple(row) for row in found.collect()] == [("b", {"n": "1"}), ("b", {"n": "1"})]
    # Rows with the names and types of the target go to the target, not to where they come from.
    assert "no exchange 'x'" in said(
        spark, "INSERT INTO nowhere SELECT body, properties, headers FROM orders"
    )
    rows = spark.readStream.option("startingOffsets", "earliest").table("orders")
    query = rows.writeStream.format("memory").queryName("copied").trigger(availableNow=True).start()
    query.awaitTermination(60)
    assert spark.table("copied").count() == 3
    assert spark.sql("SELECT * FROM orders WITH (startingOffsets = 'latest')").count() == 0


def test_what_spark_does_not_hand_over_is_said(spark: SparkSession, tables: str):
    both = f"endpoints '{tables}', subscribe 'orders'"
    assert "make two of them" in said(spark, f"CREATE TABLE t USING amqp OPTIONS ({both}, exchange '')")
    assert "unknown option 'topic'" in said(spark, f"CREATE TABLE t USING amqp OPTIONS ({both}, topic 'x')")
    spark.sql(f"CREATE TABLE few USING amqp OPTIONS ({both}, columns 'offset, body')")
    assert spark.table("few").columns == ["offset", "body"]
    assert "has handed over no options" in said(spark, "INSERT INTO few VALUES (1, null)")
    spark.sql(f"CREATE TABLE own (body binary) USING amqp OPTIONS ({both})")
    assert "without a list of columns" in said(spark, "SELECT * FROM own")
    assert spark.sql(f"SELECT * FROM own WITH (endpoints = '{tables}', subscribe = 'orders')").columns == [
        "body"
    ]

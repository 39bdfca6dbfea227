"""Queries in a real Spark: what they read, once, whatever happens in between. Most read blocks of a fake broker."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from leveret.pipeline.jobs.run import patiently
from tests.harness.seldom import elsewhere, spark_killed
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker, message
from tests.pipeline.conftest import ROOT, LocalNode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

errors = need_module("pyspark.errors")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def options(broker: FakeBroker | LocalNode, **given: object) -> dict[str, str]:
    said = {"endpoints": broker.url, "subscribe": "orders", "retrySeconds": "5", **given}
    return {name: str(value) for name, value in said.items() if value is not None}


def batch(spark: SparkSession, broker: FakeBroker, **given: object) -> DataFrame:
    return spark.read.format("amqp").options(**options(broker, **given)).load()


class Archive:
    """A query that writes to a folder, run until it has read what there is."""

    def __init__(self, spark: SparkSession, broker: FakeBroker | LocalNode, folder: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._folder = folder

    def run(self, keep: Callable[[DataFrame], DataFrame] = lambda rows: rows, **given: object) -> list[int]:
        """How many rows each micro-batch had."""
        return patiently(lambda: self._run(keep, given))

    def _run(self, keep: Callable[[DataFrame], DataFrame], given: dict[str, object]) -> list[int]:
        rows = self._spark.readStream.format("amqp").options(**options(self._broker, **given)).load()
        query = (
            keep(rows)
            .writeStream.format("parquet")
            .option("path", str(self._folder / "rows"))
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    def rows(self) -> list[tuple[int, int, bytes]]:
        found = self._spark.read.parquet(str(self._folder / "rows")).select("partition", "offset", "body")
        return sorted((row[0], row[1], bytes(row[2])) for row in found.collect())


@pytest.fixture
def archive(spark: SparkSession, broker: FakeBroker, tmp_path: Path) -> Archive:
    return Archive(spark, broker, tmp_path)


def filled(partition: int, until: int, first: int = 0) -> list[tuple[int, int, bytes]]:
    return [(partition, offset, b"%d" % offset) for offset in range(first, until)]


def test_a_batch_has_all_columns_of_all_partitions(spark: SparkSession, broker: FakeBroker):
    first, second = broker.super_stream("orders", 2)
    first.publish(message(b"a", "shop", "k", headers={"x": 1}, content_type="text/plain", timestamp=5))
    second.fill(3000)
    rows = batch(spark, broker, minPartitions=3)
    assert rows.rdd.getNumPartitions() == 4
    (row,) = rows.where("stream = 'orders' and partition = 0").collect()
    assert (bytes(row.body), row.exchange, row.routing_key, row.offset) == (b"a", "shop", "k", 0)
    assert (row.headers, row.properties.content_type) == ({"x": "1"}, "text/plain")
    assert (row.timestamp.timestamp() > 0, row.redelivered) == (True, False)
    sums = rows.where("partition = 1").selectExpr("sum(offset)", "sum(cast(cast(body as string) as int))")
    assert sums.collect()[0] == (sum(range(3000)), sum(range(3000)))


def test_a_schema_of_ones_own_and_that_of_kafka(spark: SparkSession, broker: FakeBroker):
    broker.stream("orders").fill(10)
    asked = options(broker, startingOffsets='{"orders":{"0":7}}')
    rows = spark.read.format("amqp").schema("offset bigint, body binary").options(**asked).load()
    assert [(row.offset, bytes(row.body)) for row in rows.collect()] == [(7, b"7"), (8, b"8"), (9, b"9")]
    rows = batch(spark, broker, schema="kafka").selectExpr("topic", "cast(value as string)", "headers")
    assert rows.collect()[3] == ("orders", "3", [])


def test_headers_as_a_variant_and_annotations(spark: SparkSession, broker: FakeBroker):
    broker.stream("orders").publish(message(b"x", headers={"tags": ["a", 1], "n": 2}), message(b"y"))
    rows = batch(spark, broker, headersFormat="variant", includeAnnotations="true")
    found = rows.selectExpr(
        "variant_get(headers, '$.tags[1]', 'int')", "schema_of_variant(headers)", "annotations"
    )
    assert [tuple(row) for row in found.collect()] == [
        (1, "OBJECT<n: BIGINT, tags: ARRAY<VARIANT>>", None),
        (None, None, None),
    ]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"subscrib": "x"}, "unknown option 'subscrib'; did you mean subscribe?"),
        ({"subscribe": "order"}, "there is no stream 'order' in virtual host '/'"),
        ({"username": "mallory"}, "does not let 'mallory' in: see the options username and passwordFile"),
    ],
)
def test_a_mistake_is_said(spark: SparkSession, broker: FakeBroker, given: dict[str, str], said: str):
    broker.stream("orders")
    with pytest.raises(errors.AnalysisException) as caught:
        batch(spark, broker, **given).count()
    assert said in str(caught.value)


def test_a_query_goes_on_where_it_was(archive: Archive, broker: FakeBroker):
    first, second = broker.super_stream("orders", 2)
    first.fill(250)
    assert archive.run(startingOffsets="earliest", maxOffsetsPerTrigger=100) == [100, 100, 50]
    first.fill(50)
    second.fill(30)
    broker.super_stream("orders", 3)[2].fill(20)  # a new partition, from its beginning
    broker.faults = ["hang up", 503]
    assert sum(archive.run(startingOffsets="latest")) == 100
    assert archive.rows() == [*filled(0, 300), *filled(1, 30), *filled(2, 20)]


@elsewhere
def test_a_first_micro_batch_that_failed_is_read_again_and_is_the_same(archive: Archive, broker: FakeBroker):
    stream = broker.stream("orders")
    stream.fill(100)

    def fail(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("*", "if(offset >= 120, raise_error('disk full'), null) as failure")

    def as_many_columns(rows: DataFrame) -> DataFrame:
        return rows.selectExpr("*", "cast(null as string) as failure")

    given = {"startingOffsets": '{"orders":{"0":90}}'}
    stream.fill(50)
    with pytest.raises(errors.StreamingQueryException, match="disk full"):
        archive.run(fail, **given)
    stream.fill(50)
    archive.run(as_many_columns, startingOffsets="latest")
    assert archive.rows() == filled(0, 200, 90)


@elsewhere
def test_messages_that_are_gone_end_a_query_or_are_passed_over(archive: Archive, broker: FakeBroker):
    stream = broker.stream("orders")
    stream.fill(100)
    archive.run(startingOffsets="earliest")
    stream.fill(300)
    stream.drop(300)
    with pytest.raises(errors.StreamingQueryException, match="offsets 100 to 299 are gone"):
        archive.run()
    assert sum(archive.run(failOnDataLoss="false")) == 100
    assert archive.rows() == [*filled(0, 100), *filled(0, 400, 300)]


def test_a_password_is_in_no_plan_and_no_error(
    spark: SparkSession, broker: FakeBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    broker.user = ("guest", "s3cret-word")
    broker.stream("orders").fill(3)
    file = tmp_path / "password"
    file.write_text("s3cret-word\n")
    rows = batch(spark, broker, passwordFile=file)
    assert rows.count() == 3
    rows.explain(True)
    assert "s3cret-word" not in capsys.readouterr().out
    broker.user = ("guest", "changed")
    with pytest.raises(errors.AnalysisException) as caught:
        batch(spark, broker, passwordFile=file).count()
    assert "s3cret-word" not in str(caught.value)


@spark_killed
def test_a_node_that_was_killed_has_everything_for_the_next_micro_batch(
    spark: SparkSession, node: LocalNode, tmp_path: Path
):
    archive = Archive(spark, node, tmp_path)
    publish(node, 0, 60)
    assert sum(archive.run(startingOffsets="earliest")) == 60
    node.kill()
    node.start()
    publish(node, 60, 90)
    assert sum(archive.run()) == 30
    assert archive.rows() == sorted((n % 2, n // 2, b"%d" % n) for n in range(90))


@elsewhere
def test_the_example_prints_what_it_should(spark: SparkSession, capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(ROOT / "examples/16_stream_to_spark.py"))
    assert capsys.readouterr().out.splitlines() == [
        "carrot: 30",
        "clover: 30",
        "turnip: 30",
        "30 rows, the newest has offset 29",
        "40 rows, the newest has offset 39",
    ]


def publish(node: LocalNode, begin: int, end: int) -> None:
    """Numbers, to a super stream of two partitions, each confirmed."""
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("orders", "direct", durable=True, arguments={"x-super-stream": True})
        for number in range(2):
            queue = f"orders-{number}"
            channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
            order = {"x-stream-partition-order": number}
            channel.queue_bind(queue, "orders", str(number), arguments=order)
        for number in range(begin, end):
            channel.basic_publish("orders", str(number % 2), b"%d" % number)

"""Work queues in a real Spark, from a real node: each message in the table once, and then it is gone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from leveret.pipeline.client import Client
from leveret.pipeline.jobs.run import patiently
from leveret.pipeline.options import Use, read_options
from leveret.pipeline.queue_batch import QueueBatch
from tests.interop.conftest import need_module
from tests.pipeline.conftest import LocalNode
from tests.pipeline.test_spark import Archive, batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

errors = need_module("pyspark.errors")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

QUEUE = {"subscribe": "jobs", "readerName": "archive"}


def publish(node: LocalNode, bodies: Sequence[bytes]) -> int:
    """Each confirmed; returns how many messages then wait in the queue."""
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("jobs", durable=True)
        for body in bodies:
            channel.basic_publish("", "jobs", body, pika.BasicProperties(delivery_mode=2))
        ready: int = channel.queue_declare("jobs", passive=True).method.message_count
        return ready


def test_a_queue_is_drained_into_a_table_over_several_runs(
    spark: SparkSession, node: LocalNode, tmp_path: Path
):
    sent = [b"%d" % number for number in range(100)]
    publish(node, sent[:60])
    archive = Archive(spark, node, tmp_path)
    assert archive.run(maxOffsetsPerTrigger=35, **QUEUE) == [35, 25]
    assert publish(node, sent[60:]) == 40  # of the first ones none is ready any more
    assert archive.run(**QUEUE) == [40]
    assert archive.rows() == [(0, number, body) for number, body in enumerate(sent)]
    assert publish(node, []) == 0
    assert leased(node) == (
        100,
        100,
    )  # Spark has asked what comes after its last micro-batch, so that is safe


def leased(node: LocalNode) -> tuple[int, int]:
    """The first offset that is not settled, and that behind the last; opens the lease as a query does."""
    client = Client(read_options({"endpoints": node.url, **QUEUE}, Use.STREAM), "guest")
    try:
        lease, _ = client.open_lease("jobs")
    finally:
        client.close()
    return lease.first, lease.next


def test_a_query_ends_when_another_one_has_opened_its_lease(
    spark: SparkSession, node: LocalNode, tmp_path: Path
):
    publish(node, [b"1"])
    options = {"endpoints": node.url, **QUEUE}
    rows = spark.readStream.format("amqp").options(**options).load()

    def begun() -> StreamingQuery:
        query = rows.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "first")).start()
        query.processAllAvailable()
        return query

    first = patiently(begun)
    leased(node)
    with pytest.raises(errors.StreamingQueryException) as caught:
        first.awaitTermination(30)
    said = "another query reads queue 'jobs' in virtual host '/' as 'archive' now (option readerName)"
    assert said in str(caught.value)


def test_a_batch_of_a_queue_leaves_it_when_it_is_committed(spark: SparkSession, node: LocalNode):
    publish(node, [b"%d" % number for number in range(10)])
    with pytest.raises(errors.AnalysisException) as caught:
        batch(spark, node, **QUEUE).count()
    assert "reserve them with leveret.pipeline.queue_batch.QueueBatch" in str(caught.value)
    published = datetime.now(UTC)
    reserved = QueueBatch({"endpoints": node.url, **QUEUE}, messages=7)
    publish(node, [b"late"])
    rows = reserved.rows(spark)
    assert rows.where("offset >= 5").union(rows).count() == 9
    assert sorted(bytes(row.body) for row in rows.where("routing_key = 'jobs'").collect()) == [
        b"%d" % number for number in range(7)
    ]
    rows.createOrReplaceTempView("held")
    (arrived,) = (
        spark.sql("select max(timestamp) < cast(:at as timestamp) from held", {"at": published}).first() or ()
    )
    assert arrived  # that is when they came into the queue, not when they were reserved
    reserved.commit()
    assert (publish(node, []), leased(node)) == (4, (7, 7))

"""How far queries are: by Spark's reports, in a listener, and at the broker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leveret.pipeline.errors import BadOption
from leveret.pipeline.progress import ProgressReporter, QueryProgress, progress_in
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker
from tests.pipeline.conftest import LocalNode

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

need_module("pyspark")


def at(following: int) -> dict[str, object]:
    return {"next": following, "id": "i"}


def progress(**more: object) -> dict[str, object]:
    source = {
        "endOffset": {"orders": {"0": at(60), "1": at(10)}},
        "latestOffset": {"orders": {"0": at(100), "1": at(10), "2": at(5)}},
    }
    other = {"endOffset": 7, "latestOffset": 9}
    said = {"id": "q-1", "name": "lake", "batchId": 3, "numInputRows": 40, "processedRowsPerSecond": 12.5}
    return {**said, "sources": [other, source], **more}


def found(**more: object) -> QueryProgress:
    made = progress_in(progress(**more))
    assert made is not None
    return made


def test_a_report_of_sparks_says_how_far_each_partition_is_behind():
    made = found(observedMetrics={"published": {"rows": 7}})
    assert [(each.source, each.partition, each.position, each.behind) for each in made.partitions] == [
        ("orders", 0, 60, 40),
        ("orders", 1, 10, 0),
    ]
    assert (made.behind, made.average, made.maximum) == (40, 20.0, 40)
    assert (made.name, made.batch, made.rows, made.published, made.rows_per_s) == ("lake", 3, 40, 7, 12.5)
    assert (found(name=None).name, found().published) == ("q-1", None)
    assert progress_in(progress(sources=[{"endOffset": 7, "latestOffset": 9}])) is None


class Told(FakeBroker):
    """A broker that takes reports, or does not know of them."""

    status = 200

    def change(self, method: str, target: str) -> tuple[int, dict[str, str], bytes]:
        return self.status, {"Content-Type": "application/json"}, b'{"reason": "not here"}'


def test_a_reporter_adds_up_what_it_tells_and_stops_where_nobody_wants_to_know(
    caplog: pytest.LogCaptureFixture,
):
    from tests.pipeline.bulk import serving

    with serving(Told()) as broker:
        reporter = ProgressReporter({"endpoints": broker.url, "exchange": "of the sink", "vhost": "shop"})
        reporter.tell(found())
        reporter.tell(found(observedMetrics={"published": {"rows": 7}}))
        assert broker.asked == ["/api/leveret/pipelines/shop", *["/api/leveret/pipelines/shop/lake"] * 2]
        said = json.loads(broker.body)
        assert (said["rows"], said["published"], said["batch"], said["rows_per_s"]) == (80, 7, 3, 12)
        assert said["partitions"][0] == {
            "source": "orders",
            "partition": 0,
            "position": 60,
            "behind": 40,
            "incarnation": "i",
        }
        broker.status = 404  # type: ignore[attr-defined]
        reporter.tell(found())
        reporter.tell(found())
        assert len(broker.asked) == 4
        reporter.close()
    assert "does not take how far query lake is: not here" in caplog.text
    with pytest.raises(BadOption, match="option endpoints is missing"):
        ProgressReporter({})


def test_runs_that_follow_each_other_count_on(broker: FakeBroker):
    for rows in (40, 80):
        reporter = ProgressReporter({"endpoints": broker.url})
        reporter.tell(found())
        reporter.close()
        assert broker.pipelines["lake"]["rows"] == rows


@pytest.mark.interop
@pytest.mark.timeout(300)
def test_a_listener_measures_a_query_and_the_broker_shows_it(
    spark: SparkSession, node: LocalNode, tmp_path: Path
):
    import pika

    from leveret.pipeline.client import Client
    from leveret.pipeline.listener import LagListener
    from leveret.pipeline.options import Use, read_options

    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        for number in range(30):
            channel.basic_publish("", "orders", b"%d" % number)
    seen: list[QueryProgress] = []
    listener = LagListener({"endpoints": node.url}, seen.append)
    spark.streams.addListener(listener)
    try:
        rows = spark.readStream.format("amqp").option("endpoints", node.url).option("subscribe", "orders")
        rows = rows.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", "20")
        writing = rows.load().writeStream.format("noop").queryName("lake")
        query = writing.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
        query.awaitTermination(120)
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()  # type: ignore[attr-defined]
    finally:
        spark.streams.removeListener(listener)
    assert [(each.name, each.rows, each.behind) for each in seen if each.rows] == [
        ("lake", 20, 10),
        ("lake", 10, 0),
    ]
    client = Client(read_options({"endpoints": node.url, "subscribe": "x"}, Use.STREAM))
    answer = client._asker.ask("GET", "/api/leveret/pipelines/%2F")
    client.close()
    (shown,) = json.loads(answer.octets)
    assert (shown["name"], shown["rows"], shown["behind"]) == ("lake", 30, 0)
    assert shown["partitions"] == [{"source": "orders", "partition": 0, "position": 30, "behind": 0}]

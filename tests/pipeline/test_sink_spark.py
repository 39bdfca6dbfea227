"""Writing from a real Spark: rows are messages, once, whatever is repeated. On a node with a data folder."""

from __future__ import annotations

import runpy
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pika
import pytest

from leveret.pipeline.jobs.run import patiently
from tests.harness.seldom import elsewhere
from tests.interop.conftest import need_module
from tests.pipeline.conftest import ROOT, LocalNode, started

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

errors = need_module("pyspark.errors")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


class Channel:
    """Declares queues, and empties them."""

    def __init__(self, url: str) -> None:
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()

    def declare(self, queue: str, **arguments: object) -> None:
        self._channel.queue_declare(queue, durable=True, arguments=arguments)
        if not arguments:
            self._channel.queue_purge(queue)

    def bind(self, queue: str, exchange: str) -> None:
        self._channel.exchange_declare(exchange, "fanout", durable=True)
        self._channel.queue_bind(queue, exchange)

    def publish(self, queue: str, bodies: Sequence[bytes]) -> None:
        self._channel.confirm_delivery()
        for body in bodies:
            self._channel.basic_publish("", queue, body)

    def taken(self, queue: str) -> list[tuple[bytes, pika.BasicProperties]]:
        found = []
        while (got := self._channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append((got[2], got[1]))
        return found

    def bodies(self, queue: str) -> list[bytes]:
        return sorted(body for body, _ in self.taken(queue))

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNode]:
    """One for all tests."""
    with started(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


@pytest.fixture
def channel(node: LocalNode) -> Iterator[Channel]:
    channel = Channel(node.amqp_url)
    channel.declare("work")
    yield channel
    channel.close()


def options(node: LocalNode, **given: object) -> dict[str, str]:
    return {name: str(value) for name, value in {"endpoints": node.url, "retrySeconds": "5", **given}.items()}


def write(rows: DataFrame, node: LocalNode, **given: object) -> None:
    rows.write.format("amqp").mode("append").options(**options(node, **given)).save()


def numbers(begin: int, end: int) -> list[bytes]:
    return sorted(b"%d" % number for number in range(begin, end))


def test_a_table_is_written_to_a_queue(spark: SparkSession, node: LocalNode, channel: Channel):
    rows = spark.range(0, 200, 1, 2).selectExpr(
        "cast(id as string) as body",
        "'work' as key",
        "map('parity', cast(id % 2 as string)) as headers",
        "named_struct('message_id', cast(id as string), 'content_type', 'text/plain') as properties",
    )
    write(rows, node, exchange="")
    found = channel.taken("work")
    assert sorted(body for body, _ in found) == numbers(0, 200)
    body, properties = found[123]
    assert (properties.message_id, properties.content_type) == (body.decode(), "text/plain")
    assert properties.headers == {"parity": str(int(body) % 2)}
    assert properties.delivery_mode == 2


def test_at_least_once_is_written_by_the_tasks(spark: SparkSession, node: LocalNode, channel: Channel):
    rows = spark.range(0, 100, 1, 2).selectExpr("cast(id as string) as value")
    write(rows, node, exchange="", routingKey="work", delivery="at-least-once")
    assert channel.bodies("work") == numbers(0, 100)


@pytest.mark.parametrize(
    ("column", "given", "said"),
    [
        ("colour", {}, "column 'colour' is no part of a message"),
        ("body", {"exchange": "shop"}, "no exchange 'shop' in vhost '/'"),
        ("body", {"routingKey": "nobody"}, "option mandatory=false"),
    ],
)
def test_a_mistake_is_said_and_nothing_is_published(
    spark: SparkSession, node: LocalNode, channel: Channel, column: str, given: dict[str, str], said: str
):
    rows = spark.range(3).selectExpr(f"cast(id as string) as {column}")
    with pytest.raises(errors.PySparkException) as caught:
        write(rows, node, **{"exchange": "", "routingKey": "work", **given})
    assert said in str(caught.value)
    assert channel.bodies("work") == []


class Bridge:
    """A query from the stream `orders` to the exchange `copies`."""

    def __init__(self, spark: SparkSession, node: LocalNode, checkpoint: Path) -> None:
        self._spark = spark
        self._node = node
        self._checkpoint = checkpoint

    def run(self, **given: object) -> list[int]:
        """How many rows each micro-batch had."""
        return patiently(lambda: self._run(given))

    def _run(self, given: dict[str, object]) -> list[int]:
        asked = options(self._node, subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=40)
        rows = self._spark.readStream.format("amqp").options(**asked).load()
        query = (
            rows.writeStream.format("amqp")
            .options(**options(self._node, exchange="copies", **given))
            .option("checkpointLocation", str(self._checkpoint))
            .queryName("bridge")
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(120)
        return [each["numInputRows"] for each in query.recentProgress if each["numInputRows"]]

    def lose_last_commit(self) -> None:
        """As if the driver had died after the broker's commit and before Spark's."""
        done = max(
            (path for path in (self._checkpoint / "commits").iterdir() if path.name.isdigit()),
            key=lambda path: int(path.name),
        )
        done.unlink()
        (done.parent / f".{done.name}.crc").unlink(missing_ok=True)


def test_a_stream_is_written_once_though_a_micro_batch_is_repeated(
    spark: SparkSession, node: LocalNode, channel: Channel, tmp_path: Path
):
    channel.declare("orders", **{"x-queue-type": "stream"})
    channel.bind("work", "copies")
    channel.publish("orders", [b"%d" % number for number in range(60)])
    bridge = Bridge(spark, node, tmp_path)
    assert bridge.run() == [40, 20]
    bridge.lose_last_commit()
    channel.publish("orders", [b"%d" % number for number in range(60, 90)])
    assert bridge.run() == [20, 30]
    assert channel.bodies("work") == numbers(0, 90)


@elsewhere
def test_the_example_prints_what_it_should(spark: SparkSession, capsys: pytest.CaptureFixture[str]):
    runpy.run_path(str(ROOT / "examples/17_spark_to_exchange.py"))
    assert capsys.readouterr().out.splitlines() == [
        "parcels: 148 orders, 148 different ones, 1054.90 in all",
        "pallets: 52 orders, 52 different ones, 2198.10 in all",
        "parcels: 36 orders, 36 different ones, 170.05 in all",
        "pallets: 14 orders, 14 different ones, 863.00 in all",
    ]

"""The same queries on a cluster, a standalone master with two workers, whose Python has nothing of Leveret.

One program goes through `spark-submit`, with Leveret in --py-files, and one through `leveret pipeline`."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest

from tests.harness.seldom import spark_cluster
from tests.interop.conftest import need_module
from tests.pipeline.cluster import Cluster, output
from tests.pipeline.conftest import LocalNode
from tests.pipeline.lake_readers import READERS
from tests.pipeline.rounds import consumed

need_module("pyspark")
need_module("deltalake")
need_module("polars")
need_module("duckdb_extension_delta")
need_module("pandas")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600), spark_cluster]

PROGRAM = Path(__file__).with_name("clustered.py")
MESSAGES = 600


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


@pytest.fixture
def shop(node: LocalNode) -> LocalNode:
    """A node with numbers in a super stream."""
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel)
        for number in range(MESSAGES):
            channel.basic_publish("orders", str(number % 2), b"%d" % number)
    return node


def wait_for(program: subprocess.Popen[str], file: Path) -> None:
    """Wait until a program has made a file, and is not at its end."""
    while program.poll() is None and not file.exists():
        time.sleep(0.05)
    assert program.poll() is None, output(program)


def test_a_query_is_the_same_on_a_cluster_and_an_executor_that_dies_costs_it_nothing(
    cluster: Cluster, shop: LocalNode, tmp_path: Path
):
    program = cluster.submit(PROGRAM, shop.url, str(tmp_path))
    wait_for(program, tmp_path / "bridge-checkpoint/offsets/1")
    cluster.kill_executor()
    assert output(program) == {"rows": str(MESSAGES), "different": str(MESSAGES), "executors": "2"}
    with pika.BlockingConnection(pika.URLParameters(shop.amqp_url)) as connection:
        assert sorted(consumed(connection.channel(), "bridged")) == [*range(MESSAGES)]


def test_an_archive_is_written_by_executors_which_get_leveret_and_one_that_dies_costs_it_nothing(
    cluster: Cluster, shop: LocalNode, tmp_path: Path
):
    lake = tmp_path / "lake"
    program = cluster.leveret(
        "archive", "orders", lake, "--endpoint", shop.url, "--batch", 200, "--log", tmp_path / "log"
    )
    wait_for(program, tmp_path / "lake.checkpoint/offsets/1")
    cluster.kill_executor()
    output(program)
    for name, rows in READERS.items():
        assert sorted(rows(lake)) == [*range(MESSAGES)], name


def declare(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    """A super stream, and an exchange that leads to a queue."""
    channel.exchange_declare("orders", "direct", durable=True, arguments={"x-super-stream": True})
    for number in range(2):
        queue = f"orders-{number}"
        channel.queue_declare(queue, durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_bind(queue, "orders", str(number), arguments={"x-stream-partition-order": number})
    channel.exchange_declare("bridge", "fanout", durable=True)
    channel.queue_declare("bridged", durable=True)
    channel.queue_bind("bridged", "bridge")

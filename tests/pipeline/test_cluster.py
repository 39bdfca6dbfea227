"""The same queries on a cluster: `spark-submit` to a standalone master with two workers, Leveret in --py-files."""

from __future__ import annotations

import time
from pathlib import Path

import pika
import pytest

from tests.interop.conftest import need_module
from tests.pipeline.cluster import Cluster, output
from tests.pipeline.conftest import LocalNode
from tests.pipeline.rounds import consumed

need_module("pyspark")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

PROGRAM = Path(__file__).with_name("clustered.py")
MESSAGES = 600


def test_a_query_is_the_same_on_a_cluster_and_an_executor_that_dies_costs_it_nothing(
    node: LocalNode, tmp_path: Path
):
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel)
        for number in range(MESSAGES):
            channel.basic_publish("orders", str(number % 2), b"%d" % number)
    with Cluster(tmp_path, workers=2) as cluster:
        program = cluster.submit(PROGRAM, node.url, str(tmp_path))
        while program.poll() is None and not (tmp_path / "bridge-checkpoint/offsets/1").exists():
            time.sleep(0.05)
        assert program.poll() is None, output(program)
        cluster.kill_executor()
        found = output(program)
    assert found == {"rows": str(MESSAGES), "different": str(MESSAGES), "executors": "2"}
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        assert sorted(consumed(connection.channel(), "bridged")) == [*range(MESSAGES)]


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

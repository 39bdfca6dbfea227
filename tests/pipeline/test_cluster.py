"""The same queries on a cluster: `spark-submit` to a standalone master with two workers, Leveret in --py-files."""

from __future__ import annotations

from pathlib import Path

import pika
import pytest

from tests.interop.conftest import need_module
from tests.pipeline.cluster import Cluster, said
from tests.pipeline.conftest import LocalNode

need_module("pyspark")

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

PROGRAM = Path(__file__).with_name("clustered.py")
MESSAGES = 3000


def test_a_query_is_the_same_on_a_cluster(node: LocalNode, tmp_path: Path):
    published = {(n % 2, b"%d" % n) for n in range(MESSAGES)}
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        declare(channel)
        for partition, body in published:
            channel.basic_publish("orders", str(partition), body)
        with Cluster(tmp_path, workers=2) as cluster:
            found = said(cluster.submit(PROGRAM, node.url, str(tmp_path)))
        assert found == {"rows": str(MESSAGES), "different": str(MESSAGES), "executors": "2"}
        bridged = [
            body for *_, body in channel.consume("bridged", auto_ack=True, inactivity_timeout=0) if body
        ]
    assert sorted(bridged) == sorted(body for _, body in published)


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

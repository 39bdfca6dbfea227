"""Measure how fast Spark reads a stream: rows per second, body and offset, and all columns.

    python -m benchmarks.spark                       # a million messages of 100 bytes on a node of its own
    python -m benchmarks.spark --messages 200000

Spark counts the rows and the bytes of their bodies, so that every batch goes through it. Needs `leveret[spark]` and
Java.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pika

from leveret.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SERVE = (sys.executable, "-m", "leveret", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
# The reads: title, the schema given, and what Spark computes from each batch.
READS = (
    ("body and offset", "body binary, offset bigint", ("sum(octet_length(body))", "sum(offset)")),
    (
        "all columns",
        None,
        (
            "sum(octet_length(body))",
            "sum(offset)",
            "max(exchange)",
            "max(routing_key)",
            "max(stream)",
            "max(timestamp)",
            "max(properties.content_type)",
            "sum(size(headers))",
        ),
    ),
)


@contextmanager
def served() -> Iterator[tuple[str, str]]:
    """Run a node with its data in a folder; yields its URLs for AMQP and HTTP."""
    with tempfile.TemporaryDirectory() as folder:
        node = subprocess.Popen(
            [*SERVE, "--data", folder], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert node.stdout is not None
        found: list[str] = []
        for line in node.stdout:
            found += re.findall(r"(127\.0\.0\.1:\d+) +(?:AMQP|HTTP)", line)
            if "Ctrl-C" in line:
                break
        try:
            yield f"amqp://guest:guest@{found[0]}/%2F", f"http://{found[1]}"
        finally:
            node.terminate()
            node.wait()


def fill(url: str, messages: int, size: int) -> None:
    """Fill a stream with messages that have two headers and a content type."""
    properties = pika.BasicProperties(
        content_type="application/json", headers={"source": "till-7", "retries": 0}
    )
    body = b"x" * size
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": "stream"})
        for _ in range(messages):
            channel.basic_publish("", "orders", body, properties)
        channel.confirm_delivery()
        channel.basic_publish("", "orders", body, properties)  # confirmed when all before it are readable


def read(spark: SparkSession, http: str, schema: str | None, made: tuple[str, ...], tasks: int) -> float:
    """Return the seconds for one read of everything."""
    reader = spark.read.format("amqp").option("endpoints", http).option("subscribe", "orders")
    if schema is not None:
        reader = reader.schema(schema)
    rows = reader.option("minPartitions", tasks).load()
    began = time.perf_counter()
    rows.selectExpr(*made).collect()
    return time.perf_counter() - began


def main() -> None:
    """Fill a stream, read it some times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=100, help="octets of a body")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=2, help="at the same time")
    asked = parser.parse_args()
    with served() as (amqp, http):
        fill(amqp, asked.messages, asked.size)
        spark = session("benchmark", f"local[{asked.tasks}]")
        print(f"{'':20} median rows/s  (lowest to highest), {asked.messages} messages of {asked.size} octets")
        for title, schema, made in READS:
            read(spark, http, schema, made, asked.tasks)  # the first one compiles
            took = [read(spark, http, schema, made, asked.tasks) for _ in range(asked.rounds)]
            rates = sorted(asked.messages / seconds for seconds in took)
            print(f"{title:20} {statistics.median(rates):13,.0f}  ({rates[0]:,.0f} to {rates[-1]:,.0f})")
        spark.stop()


if __name__ == "__main__":
    main()

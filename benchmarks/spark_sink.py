"""Measure how fast Spark writes to exchanges: rows per second, from the first row until all are queued and on disk.

    python -m benchmarks.spark_sink                  # half a million messages of 100 bytes on a node of its own
    python -m benchmarks.spark_sink --messages 200000

The queue is emptied by deleting it, between the rounds. Needs `leveret[spark]` and Java.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import TYPE_CHECKING

import pika

from benchmarks.spark import served
from leveret.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

STREAM = {"x-queue-type": "stream"}
BODY = "cast(lpad(cast(id as string), {size}, '-') as binary) as body"
# The writes: title, columns besides the body, options, and the queue's arguments.
WRITES: tuple[tuple[str, tuple[str, ...], dict[str, str], dict[str, str]], ...] = (
    ("to a queue", (), {}, {}),
    ("to a stream", (), {}, STREAM),
    ("to a stream, at least once", (), {"delivery": "at-least-once"}, STREAM),
    ("to a stream, two headers", ("map('a', '1', 'b', '2') as headers",), {}, STREAM),
    ("to a stream, ids", ("named_struct('message_id', cast(id as string)) as properties",), {}, STREAM),
)


def declare(url: str, arguments: dict[str, str]) -> None:
    """Declare an empty queue."""
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        channel.queue_delete("written")
        channel.queue_declare("written", durable=True, arguments=arguments)


def table(spark: SparkSession, messages: int, tasks: int, size: int, columns: tuple[str, ...]) -> DataFrame:
    return spark.range(0, messages, 1, tasks).selectExpr(BODY.format(size=size), *columns)


def write(rows: DataFrame, http: str, options: dict[str, str]) -> float:
    """Return the seconds for writing all messages."""
    writer = (
        rows.write.format("amqp").mode("append").options(endpoints=http, exchange="", routingKey="written")
    )
    began = time.perf_counter()
    writer.options(**options).save()
    return time.perf_counter() - began


def main() -> None:
    """Write some times to queues that are empty."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=500_000)
    parser.add_argument("--size", type=int, default=100, help="octets of a body")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=2, help="at the same time")
    parser.add_argument("--only", default="", help="what has this in its title")
    asked = parser.parse_args()
    with served() as (amqp, http):
        spark = session("benchmark", f"local[{asked.tasks}]")
        print(f"{'':30} median rows/s  (lowest to highest), {asked.messages} messages of {asked.size} octets")
        for title, columns, options, arguments in WRITES:
            if asked.only not in title:
                continue
            took = []
            for number in range(asked.rounds + 1):
                declare(amqp, arguments)
                messages = asked.messages if number else 1000  # the first one compiles
                rows = table(spark, messages, asked.tasks, asked.size, columns)
                took.append(write(rows, http, options))
            rates = sorted(asked.messages / seconds for seconds in took[1:])
            print(f"{title:30} {statistics.median(rates):13,.0f}  ({rates[0]:,.0f} to {rates[-1]:,.0f})")
        spark.stop()


if __name__ == "__main__":
    main()

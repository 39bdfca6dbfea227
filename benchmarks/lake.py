"""Measure what the lake's side is held to, in under four minutes on a quiet machine of two cores.

    python -m benchmarks.lake                        # five million messages of 100 bytes on a node of its own
    python -m benchmarks.lake --messages 1000000     # on a busy machine: look at the processor time

For each figure: rows per second, what is wanted, and the microseconds of processor time for a row, in all processes
but the node's. The best of two rounds counts, after one to warm up. Needs `leveret[spark]` and Java.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import pika

from benchmarks.archive import PIKA_MESSAGES, Shop, by_pika, by_process, by_tasks, descendants
from benchmarks.brokers import free_port, leveret
from benchmarks.bulk import QUEUE, fill
from leveret.pipeline.jobs.run import patiently
from leveret.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES: Final = 5_000_000
BATCH: Final = 1_000_000  # messages, as `leveret pipeline archive` has it
WRITTEN: Final = 500_000  # rows to a queue
DIFFERENT: Final = 1_000_000  # messages whose properties and headers differ
NEAR_THE_END: Final = 10_000  # messages behind the offset that is asked for
PAIRS: Final = 15  # of reads from there, each a third of a second
TICK_S: Final = 1 / os.sysconf("SC_CLK_TCK")
HEADERS: Final = (
    "map('n', cast(id as string), 'country', if(id % 2 = 0, 'FI', 'SE'), 'till', cast(id % 977 as string))"
)
PROPERTIES: Final = (
    "named_struct('message_id', cast(id as string), 'timestamp', timestamp_seconds(id), 'type', 'order')"
)


def busy_s(node: int) -> float:
    """Return the processor time of this process, and of all that it has started, without a node."""
    found = time.process_time()
    for each in descendants(os.getpid()):
        if each != node:
            with suppress(OSError):
                said = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
                found += sum(map(int, said[11:15])) * TICK_S
    return found


@attrs.frozen
class Measure:
    """Prints the figures."""

    node: int

    def __call__(self, title: str, wanted: str, rounds: int, work: Callable[[], int]) -> float:
        """Do the work some times, print rows per second, and return the best."""
        best, cost = 0.0, 0.0
        for _ in range(rounds):
            began, busy = time.perf_counter(), busy_s(self.node)
            rows = patiently(work)
            seconds, used = time.perf_counter() - began, busy_s(self.node) - busy
            if rows / seconds > best:
                best, cost = rows / seconds, used / rows * 1e6
        print(f"| {title} | {best:,.0f} | {wanted} | {cost:.2f} |", flush=True)
        return best


def count_from(spark: SparkSession, http: str, offset: int, pushed: bool) -> int:
    """Count the messages from an offset on, by a condition or by an option."""
    rows = spark.read.format("amqp").options(endpoints=http, subscribe=QUEUE)
    if pushed:
        return rows.load().where(f"offset >= {offset}").select("offset").count()
    return rows.option("startingOffsets", f'{{"{QUEUE}":{{"0":{offset}}}}}').load().select("offset").count()


def condition_to_option(spark: SparkSession, http: str, offset: int) -> float:
    """Return how many times the time of an option a condition takes: the median of pairs, after one to warm up."""
    ratios = []
    for _ in range(PAIRS + 1):
        seconds = []
        for pushed in (True, False):
            began = time.perf_counter()
            count_from(spark, http, offset, pushed)
            seconds.append(time.perf_counter() - began)
        ratios.append(seconds[0] / seconds[1])
    return statistics.median(ratios[1:])


def write(spark: SparkSession, http: str, port: int, rows: int, *columns: str, stream: bool = False) -> int:
    """Publish rows to a new durable queue or stream."""
    name = "different" if stream else "written"
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
        channel = connection.channel()
        channel.queue_delete(name)
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"} if stream else None)
    body = "cast(lpad(cast(id as string), 100, '-') as binary) as body"
    made = spark.range(0, rows, 1, 2).selectExpr(body, *columns)
    made.write.format("amqp").mode("append").options(endpoints=http, exchange="", routingKey=name).save()
    return rows


def measure(messages: int, rounds: int) -> None:
    """Print the figures of a number of messages."""
    with tempfile.TemporaryDirectory() as made:
        folder, port = Path(made), free_port()
        with leveret("--data", str(folder / "data"), "--http", f"127.0.0.1:{port}") as broker:
            fill(broker.port, messages)
            http = f"http://127.0.0.1:{port}"
            shop = Shop(broker, port, folder, messages, batch=BATCH)
            measured = Measure(broker.process)
            print(f"{messages:,} messages of 100 bytes, load {os.getloadavg()[0]:.1f}\n")
            print("| | rows per second | wanted | us of processor a row |\n|---|---:|---:|---:|")
            once = measured("archive --once, without Spark", "", 1, lambda: by_process(shop))
            part = min(messages, PIKA_MESSAGES)
            slow = measured("a consumer with pika that writes Parquet", "", 1, lambda: by_pika(shop, part))
            print(f"| archive --once against pika | {once / slow:.1f} x | 5 x | |", flush=True)
            spark = session("benchmark", "local[2]", {"spark.driver.memory": "1g"})
            ids = (f"{PROPERTIES} as properties", f"{HEADERS} as headers")
            patiently(lambda: write(spark, http, broker.port, DIFFERENT, *ids, stream=True))
            different = attrs.evolve(shop, stream="different")
            patiently(lambda: by_tasks(spark, different))
            few = {"columns": "body,offset"}
            measured("body and offset, with Spark", "800,000", rounds, lambda: by_tasks(spark, shop, **few))
            measured("all columns, with Spark", "600,000", rounds, lambda: by_tasks(spark, shop))
            measured(
                "all columns that differ, with Spark", "300,000", rounds, lambda: by_tasks(spark, different)
            )
            measured(
                "to a durable queue", "250,000", rounds, lambda: write(spark, http, broker.port, WRITTEN)
            )
            ratio = condition_to_option(spark, http, messages - NEAR_THE_END)
            print(f"| where offset >= N against startingOffsets | {ratio:.2f} x | 1.2 x | |")
            print(f"\nload {os.getloadavg()[0]:.1f}")
            spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    measure(given.messages, given.rounds)


if __name__ == "__main__":
    main()

"""Measure ways from a stream to a table: messages per second, memory, and the broker's latency meanwhile.

    python -m benchmarks.archive                          # two million messages of 100 bytes on a node of its own
    python -m benchmarks.archive --messages 10000000      # does the memory stay as it is?
    python -m benchmarks.archive --no-spark

Micro-batches of 1,000,000 messages. Beside archives with Spark and without: a query of one's own to Spark's file sink,
Spark copying such a table, and a consumer with pika that writes Parquet. In the end a client of AMQP 0-9-1 sends
messages to itself while Spark archives. Needs `leveret[spark]` and Java.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING

import attrs
import pika
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as parquet  # type: ignore[import-untyped]

from benchmarks.brokers import Running, free_port, leveret, resident_kib
from benchmarks.bulk import QUEUE, fill
from benchmarks.round_trips import round_trips
from benchmarks.tables import spread
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import Target, archive_messages
from leveret.pipeline.jobs.archive_columns import columns as archive_columns
from leveret.pipeline.jobs.archive_local import local_archive
from leveret.pipeline.jobs.checkpoints import QueryCheckpoint
from leveret.pipeline.jobs.data_files import Layout
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.options import Use, read_options
from leveret.pipeline.session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SAMPLE_S = 0.25
BATCH = 1_000_000  # messages, as `leveret pipeline archive` has it
COLUMNS = "body binary, offset bigint"
MESSAGES = 2_000_000
PIKA_MESSAGES = 200_000
PIKA_ROWS = 100_000  # in a file
MIB = 1024  # KiB


class Memory(threading.Thread):
    """Samples the resident memory of the node, of Java and of Spark's Python over time."""

    def __init__(self, node: int) -> None:
        super().__init__(daemon=True)
        self.samples: list[tuple[int, ...]] = []  # MiB
        self._node = node
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(SAMPLE_S):
            java = python = 0
            for each in descendants(os.getpid()):
                with suppress(OSError):
                    command = Path(f"/proc/{each}/cmdline").read_bytes()
                    java += resident_kib(each) if b"org.apache.spark" in command else 0
                    python += (
                        resident_kib(each) if b"pyspark" in command and b"org.apache" not in command else 0
                    )
            self.samples.append((resident_kib(self._node) // MIB, java // MIB, python // MIB))

    def end(self) -> Iterator[list[int]]:
        """Yield the maximum of each in each quarter of the time."""
        self._over.set()
        self.join()
        size = max(1, len(self.samples) // 4)
        for begin in range(0, 4 * size, size):
            yield [max(column) for column in zip(*self.samples[begin : begin + size], strict=True)]


def descendants(process: int) -> Iterator[int]:
    for task in Path(f"/proc/{process}/task").iterdir():
        with suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                yield child
                yield from descendants(child)


@attrs.frozen
class Shop:
    """A node with a full stream, and a folder for tables."""

    broker: Running
    http: int
    folder: Path
    messages: int
    stream: str = QUEUE
    batch: int = BATCH

    @property
    def reading(self) -> dict[str, str]:
        found = {
            "endpoints": f"http://127.0.0.1:{self.http}",
            "subscribe": self.stream,
            "startingOffsets": "earliest",
        }
        return {**found, "minPartitions": "2", "maxOffsetsPerTrigger": str(self.batch)}

    def place(self, name: str) -> str:
        """Return a folder that does not exist yet."""
        return str(self.folder / f"{name}-{token_hex(4)}")


# The ways to a table: each returns the messages that it has written.


def by_tasks(spark: SparkSession, shop: Shop, **options: str) -> int:
    """`leveret pipeline archive --engine spark`: tasks write the files of a Delta table."""
    where = shop.place("tasks")
    by = () if options else ("day",)
    query, _ = archive_messages(spark, {**shop.reading, **options}, Target(where, by=by))
    query.awaitTermination()
    return rows_in(where)


def by_process(shop: Shop, columns: pa.Schema | None = None) -> int:
    """`leveret pipeline archive --engine pyarrow`."""
    where = shop.place("process")
    options = read_options(shop.reading, Use.STREAM)
    by = ("day",) if columns is None else ()
    layout = Layout(where, by, archive_columns(options, by) if columns is None else columns)
    with local_archive(options, layout, QueryCheckpoint(Path(f"{where}.checkpoint"))) as run:
        run.run(Report("archive", lambda line: None), Stop())
    return rows_in(where)


def by_file_sink(spark: SparkSession, shop: Shop, schema: str | None) -> int:
    """A query of one's own, to Spark's sink of Parquet."""
    where = shop.place("sink")
    reader = spark.readStream.format("amqp").options(**shop.reading)
    rows = (reader if schema is None else reader.schema(schema)).load()
    writer = rows.writeStream.format("parquet").option("path", where)
    writer = writer.option("checkpointLocation", f"{where}.checkpoint")
    writer.trigger(availableNow=True).start().awaitTermination()
    return spark.read.parquet(where).count()


def by_copy(spark: SparkSession, shop: Shop) -> int:
    """Spark reads a table that is there, and writes it: what its own part costs."""
    where = shop.place("copy")
    files = [str(file) for file in shop.folder.glob("process-????????/day=*/*.parquet")]
    table = Path(files[0]).parents[1]
    spark.read.parquet(*(file for file in files if file.startswith(f"{table}/"))).write.parquet(where)
    return spark.read.parquet(where).count()


def by_pika(shop: Shop, messages: int) -> int:
    """A consumer with pika that writes a file of Parquet for 100,000 messages."""
    where = Path(shop.place("pika"))
    where.mkdir()
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", shop.broker.port)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=2000)
        rows: list[tuple[bytes, str, str, int]] = []
        written = 0
        consuming = channel.consume(QUEUE, arguments={"x-stream-offset": "first"})
        for method, properties, body in consuming:
            rows.append((body, method.exchange, method.routing_key, properties.headers["x-stream-offset"]))
            if len(rows) % 1000 == 0:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if len(rows) == PIKA_ROWS or written + len(rows) == messages:
                names = ("body", "exchange", "routing_key", "offset")
                columns = dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))
                parquet.write_table(pa.table(columns), where / f"{written}.parquet")
                written, rows = written + len(rows), []
            if written == messages:
                break
    return written


def rows_in(where: str) -> int:
    return sum(each.rows or 0 for each in delta.committed(delta.found(where)))


def measured(title: str, rounds: int, write: Callable[[], int]) -> float:
    """Print messages per second, and return the median."""
    rates = []
    for each in range(rounds + 1):
        began = time.perf_counter()
        written = write()
        if each:  # the first round warms up
            rates.append(written / (time.perf_counter() - began))
    print(f"| {title} | {spread(rates)} |", flush=True)
    return statistics.median(rates)


def memory_of(spark: SparkSession, shop: Shop) -> None:
    """Archive once more with Spark, and print memory over time, and the broker's latency meanwhile."""
    memory = Memory(shop.broker.process)
    memory.start()
    with round_trips(shop.broker.port) as trips:
        by_tasks(spark, shop)
    count, p50, p99, longest = trips
    print(
        f"\n{count:.0f} round trips meanwhile: p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {longest:.1f} ms"
    )
    for number, (node, java, python) in enumerate(memory.end(), 1):
        print(
            f"most memory in quarter {number}: node {node} MiB, Java {java} MiB, Spark's Python {python} MiB"
        )


def measure(messages: int, rounds: int, with_spark: bool = True) -> None:
    """Print the figures of a number of messages."""
    with tempfile.TemporaryDirectory() as made:
        folder, http = Path(made), free_port()
        with leveret("--data", str(folder / "data"), "--http", f"127.0.0.1:{http}") as broker:
            fill(broker.port, messages)
            shop = Shop(broker, http, folder, messages)
            print(f"{messages:,} messages of 100 bytes\n\n| | messages per second |\n|---|---:|")
            few = pa.schema([("body", pa.binary()), ("offset", pa.int64())])
            ours = measured("archive, all columns, without Spark", rounds, lambda: by_process(shop))
            measured("body and offset, without Spark", rounds, lambda: by_process(shop, few))
            part = min(messages, PIKA_MESSAGES)
            pika_rate = measured("a consumer with pika that writes Parquet", 1, lambda: by_pika(shop, part))
            if with_spark:
                spark = session("benchmark", "local[2]", {"spark.driver.memory": "1g"})
                measured("archive, all columns, with Spark", rounds, lambda: by_tasks(spark, shop))
                for title, schema in (("body and offset", COLUMNS), ("all columns", None)):
                    measured(
                        f"{title}, through Spark to its file sink",
                        rounds,
                        partial(by_file_sink, spark, shop, schema),
                    )
                measured("Spark copies the same Parquet", rounds, lambda: by_copy(spark, shop))
                memory_of(spark, shop)
                spark.stop()
            print(f"\nwithout Spark, against pika: {ours / pika_rate:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=MESSAGES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--no-spark", action="store_true", help="only what needs no Java")
    given = parser.parse_args()
    measure(given.messages, given.rounds, not given.no_spark)


if __name__ == "__main__":
    main()

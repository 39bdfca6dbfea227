"""Measure the archiving of a stream as a Parquet table: rows per second, memory, and the broker's latency meanwhile.

    python -m benchmarks.archive                          # two million messages of 100 bytes on a node of its own
    python -m benchmarks.archive --messages 10000000      # does the memory stay as it is?

Micro-batches of 500 000 messages, body, offset and timestamp. Meanwhile a client of AMQP 0-9-1 sends messages to
itself. Needs `leveret[spark]` and Java.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.brokers import Running, free_port, leveret, resident_kib
from benchmarks.bulk import QUEUE, fill
from benchmarks.round_trips import round_trips
from benchmarks.tables import spread
from pipeline.session import session

SAMPLE_S = 0.25
BATCH = 500_000  # messages
COLUMNS = "body binary, offset bigint, timestamp timestamp"
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


def archive(broker: Running, http: int, folder: Path, messages: int) -> None:
    """Fill a stream, archive it, and print the results."""
    fill(broker.port, messages)
    spark = session("benchmark", "local[2]", {"spark.driver.memory": "1g"})
    rows = spark.readStream.format("amqp").schema(COLUMNS).option("endpoints", f"http://127.0.0.1:{http}")
    rows = rows.option("subscribe", QUEUE).option("startingOffsets", "earliest").option("minPartitions", "2")
    writer = rows.option("maxOffsetsPerTrigger", str(BATCH)).load().writeStream.format("parquet")
    writer = writer.option("path", str(folder / "table")).option(
        "checkpointLocation", str(folder / "checkpoint")
    )
    memory = Memory(broker.process)
    memory.start()
    with round_trips(broker.port) as trips:
        began = time.perf_counter()
        query = writer.trigger(availableNow=True).start()
        query.awaitTermination()
        seconds = time.perf_counter() - began
    found = spark.read.parquet(str(folder / "table")).selectExpr("count(distinct offset)").first()
    assert found is not None
    assert found[0] == messages, found
    batches = [each for each in query.recentProgress if each["numInputRows"]][
        1:
    ]  # Java warms up in the first
    rates = [each["numInputRows"] / each["durationMs"]["triggerExecution"] * 1000 for each in batches]
    print(f"{messages:,} messages in {seconds:.1f} s; rows/s of micro-batches but the first: {spread(rates)}")
    count, p50, p99, longest = trips
    print(f"{count:.0f} round trips meanwhile: p50 {p50:.2f} ms, p99 {p99:.2f} ms, longest {longest:.1f} ms")
    for number, (node, java, python) in enumerate(memory.end(), 1):
        print(
            f"most memory in quarter {number}: node {node} MiB, Java {java} MiB, Spark's Python {python} MiB"
        )
    spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=2_000_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder, http = Path(made), free_port()
        with leveret("--data", str(folder / "data"), "--http", f"127.0.0.1:{http}") as broker:
            archive(broker, http, folder, given.messages)


if __name__ == "__main__":
    main()

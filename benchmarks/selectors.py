"""Measure what a selector costs a bulk reader of a stream beside the read of the columns that it names.

    python -m benchmarks.selectors
    python -m benchmarks.selectors --messages 1000000 --rounds 5

Each message has headers, an id and a time of its own. Read are headers; the same by a selector on one that has few
values, and by one on another that no two messages share; and all columns. Printed is the reader's processor time.
Needs `leveret[lake]`, and pika.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import pika

from benchmarks.brokers import free_port, leveret
from benchmarks.tables import spread
from leveret.pipeline.stream_scan import read_stream

STREAM: Final = "selected"
COUNTRIES: Final = ("FI", "SE", "NO", "DK", "IS")
SELECTORS: Final = ("country = 'FI'", "n > 100")


def fill(port: int, messages: int) -> None:
    """Fill the stream."""
    parameters = pika.ConnectionParameters("127.0.0.1", port)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
        for number in range(messages):
            headers = {"n": number, "country": COUNTRIES[number % len(COUNTRIES)], "trace": f"{number:032x}"}
            said = pika.BasicProperties(
                headers=headers, message_id=str(number), timestamp=number, delivery_mode=2
            )
            channel.basic_publish("", STREAM, b"x" * 100, said)
        channel.queue_declare(STREAM, passive=True)  # all before it has come


def spent(read: Callable[[], object]) -> float:
    """Return the processor time of this process for one read, in seconds."""
    before = time.process_time()
    read()
    return time.process_time() - before


def rows(endpoint: str, columns: Sequence[str] | None, **options: str) -> int:
    """Read, and return the number of rows."""
    return sum(batch.num_rows for batch in read_stream(STREAM, endpoint=endpoint, columns=columns, **options))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    http = free_port()
    with (
        tempfile.TemporaryDirectory() as folder,
        leveret("--data", folder, "--http", f"127.0.0.1:{http}") as broker,
    ):
        fill(broker.port, given.messages)
        endpoint = f"http://127.0.0.1:{http}"
        reads = {
            "headers": partial(rows, endpoint, ("headers",)),
            **{
                f"headers, where {selector}": partial(rows, endpoint, ("headers",), selector=selector)
                for selector in SELECTORS
            },
            "all columns": partial(rows, endpoint, None),
        }
        found: dict[str, list[float]] = {title: [] for title in reads}
        for number in range(given.rounds + 1):
            for title, read in reads.items():
                took_s = spent(read)
                if number:  # the first round warms up
                    found[title].append(1e6 * took_s / given.messages)
        print(
            f"{given.messages:,} messages, us of the reader's processor time for a message\n\n| | us |\n|---|---:|"
        )
        for title, times in found.items():
            print(f"| {title} | {spread(times, 2)} |")


if __name__ == "__main__":
    main()

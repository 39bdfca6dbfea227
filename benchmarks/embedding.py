"""Measure how long a test waits for its broker: the fixture, a round trip with pika, and the end, in one table.

python -m benchmarks.embedding
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import pika

from leveret import ThreadedNode
from leveret.testing.leveret_broker import LeveretBroker, fresh_broker

ROUNDS = 50


def round_trip(broker: LeveretBroker) -> None:
    """Connect, declare, publish, get, close."""
    with pika.BlockingConnection(broker.parameters) as connection:
        channel = connection.channel()
        channel.queue_declare("q")
        channel.basic_publish("", "q", b"hello")
        assert channel.basic_get("q", auto_ack=True)[2] == b"hello"


def a_fresh_broker(node: ThreadedNode) -> None:
    """Measure the fixture `leveret_broker`."""
    with fresh_broker(node):
        pass


def a_fresh_broker_used(node: ThreadedNode) -> None:
    with fresh_broker(node) as broker:
        round_trip(broker)


def a_node_used(_: ThreadedNode) -> None:
    with ThreadedNode() as node, fresh_broker(node) as broker:
        round_trip(broker)


def seconds(action: Callable[[], None]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def row(title: str, durations: list[float]) -> None:
    ordered = sorted(1000 * each for each in durations)
    worst = ordered[int(len(ordered) * 0.95) - 1]
    print(f"| {title} | {statistics.median(ordered):.2f} | {worst:.2f} | {ordered[-1]:.2f} |")


def main() -> None:
    """Print milliseconds: median, 95th of 100, worst."""
    print("| ms | median | p95 | worst |\n|---|---:|---:|---:|")
    start = "import leveret; node = leveret.ThreadedNode(); node.start(); node.stop()"
    row("a process that imports Leveret, starts a node and stops it", [
        seconds(lambda: subprocess.run([sys.executable, "-c", start], check=True)) for _ in range(5)
    ])  # fmt: skip
    with ThreadedNode() as node:
        for title, action in (
            ("fixture `leveret_broker`, set up and torn down", a_fresh_broker),
            ("the same with a round trip of pika in between", a_fresh_broker_used),
            ("a node of its own with a round trip", a_node_used),
        ):
            row(title, [seconds(lambda action=action: action(node)) for _ in range(ROUNDS)])  # type: ignore[misc]


if __name__ == "__main__":
    main()

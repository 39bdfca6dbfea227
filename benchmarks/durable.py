"""Measure durability: persistent messages on a durable queue, beside RabbitMQ; recovery; space on disk.

RabbitMQ's queue is a durable classic one, with all its defaults. Both brokers confirm a message when it is synced to
disk, or has been acknowledged before that.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from benchmarks.brokers import Running, has_rabbitmq, leveret, rabbitmq
from benchmarks.flood import Consumer, fill, flood
from benchmarks.latency import Latencies, confirm_latency
from benchmarks.tables import head, row, spread

# The loads: title, messages a round, and the arguments of `flood`.
LOADS: tuple[tuple[str, int, dict[str, int]], ...] = (
    ("100 B, window 1000", 100_000, {"size": 100}),
    ("1 KiB, window 1000", 60_000, {"size": 1024}),
    ("100 B, one at a time", 3_000, {"size": 100, "window": 1, "prefetch": 1}),
)
LOAD = 0.8  # of the highest rate, for latencies
LATENCY_S = 5.0

# The recoveries: title, messages, and how many of them were in flight at once.
FILLS = (
    ("1,000,000 x 100 B, published with window 1000", 1_000_000, 1000),
    ("100,000 x 100 B, published one at a time", 100_000, 1),
)
IDLE_S = 10.0  # for a node to give back space


@contextmanager
def _brokers() -> Iterator[list[Running]]:
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        brokers = [stack.enter_context(leveret("--data", folder))]
        if has_rabbitmq():
            brokers.append(stack.enter_context(rabbitmq()))
        yield brokers


def durable(rounds: int) -> None:
    """Print messages per second through one durable queue, persistent, confirmed and acknowledged."""
    print("\n## Persistent messages per second, median (lowest to highest)\n")
    with _brokers() as brokers:
        head("persistent messages", brokers)
        for title, messages, load in LOADS:
            row(title, brokers, rounds, partial(_flood, messages=messages, **load))  # type: ignore[arg-type]


def _flood(broker: Running, **load: int) -> float:
    return flood(broker.port, durable=True, **load)  # type: ignore[arg-type]


def latency(rounds: int) -> None:
    """Print the time from a message's due time to its confirm, at 80 % of the broker's rate with a window."""
    print("\n## Confirms of persistent messages at 80 % load: milliseconds, median (lowest to highest)\n")
    with _brokers() as brokers:
        print(
            "| persistent messages of 100 B | messages per second | p50 | p99 | max |\n|---|---:|---:|---:|---:|"
        )
        found: dict[str, list[Latencies]] = {broker.name: [] for broker in brokers}
        for _ in range(rounds):
            for broker in brokers:
                rate = LOAD * _sustained(broker)
                found[broker.name].append(confirm_latency(broker.port, rate, LATENCY_S))
        for name, each in found.items():
            columns = [
                [x.rate for x in each],
                [x.p50 for x in each],
                [x.p99 for x in each],
                [x.worst for x in each],
            ]
            cells = [spread(column, digits) for column, digits in zip(columns, (0, 1, 1, 1), strict=True)]
            print(f"| {name} | {' | '.join(cells)} |", flush=True)


def _sustained(broker: Running) -> float:
    """Return messages per second over as long as a latency measurement: a burst is faster than the sustained rate."""
    burst = _flood(broker, messages=60_000, size=100)
    return _flood(broker, messages=int(burst * LATENCY_S), size=100)


def recovery(rounds: int) -> None:
    """Kill a node with a full queue; measure when it listens and delivers again, and its space on disk."""
    print("\n## Recovery after kill -9: seconds since the start of the process, median (lowest to highest)\n")
    print("| what waits | listens | first message | drained per second | MiB on disk | and drained |")
    print("|---|---:|---:|---:|---:|---:|")
    for title, messages, window in FILLS:
        with tempfile.TemporaryDirectory() as folder:
            with leveret("--data", folder) as broker:
                fill(broker.port, messages, window=window)
                os.kill(broker.process, signal.SIGKILL)
            full = mebibytes(folder)
            times = [_recover(folder, messages) for _ in range(rounds)]
            listens, delivers = (spread(column, 2) for column in zip(*times, strict=True))
            rate, empty = _drain(folder, messages)
            print(
                f"| {title} | {listens} | {delivers} | {rate:,.0f} | {full:.1f} | {empty:.1f} |", flush=True
            )


def _recover(folder: str, messages: int) -> tuple[float, float]:
    """Return seconds from the start of the process until it listens, and until its first message has arrived."""
    started = time.perf_counter()
    with leveret("--data", folder) as broker:
        listens = time.perf_counter() - started
        consumer = Consumer(broker.port, "filled", messages, 100, durable=True)
        while not consumer.received:
            _wait_and_receive(consumer)
        delivers = time.perf_counter() - started
        os.kill(broker.process, signal.SIGKILL)
        consumer.wire.socket.close()
    return listens, delivers


def _drain(folder: str, messages: int) -> tuple[float, float]:
    """Return messages per second until all are received and acknowledged, and MiB on disk a while later."""
    with leveret("--data", folder) as broker:
        started = time.perf_counter()
        consumer = Consumer(broker.port, "filled", messages, 100, durable=True)
        while consumer.received < messages:
            _wait_and_receive(consumer)
        rate = messages / (time.perf_counter() - started)
        time.sleep(IDLE_S)
        consumer.wire.socket.close()
        return rate, mebibytes(folder)


def _wait_and_receive(consumer: Consumer) -> None:
    consumer.wire.socket.setblocking(True)
    consumer.receive()


def mebibytes(folder: str) -> float:
    """Return the size of a folder's files on disk."""
    return sum(each.stat().st_blocks * 512 for each in Path(folder).rglob("*") if each.is_file()) / (1 << 20)

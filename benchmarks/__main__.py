"""Run all measurements: beside a RabbitMQ if the system has one, alternating, with medians and spread.

make bench                                # all of it compiled, a few minutes
python -m benchmarks --rounds 3 compare   # plain
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from importlib import import_module
from pathlib import Path

from benchmarks import (
    amqp010,
    amqp10,
    applications,
    bulk,
    client,
    compare,
    containers,
    database,
    durable,
    embedding,
    filters,
    flat,
    mqtt,
    outrun,
    paging,
    proofs,
    proton_engine,
    tls,
    versions,
)
from benchmarks.applications import cells, measured
from benchmarks.brokers import has_rabbitmq, leveret, peak_kib, rabbitmq, resident_kib
from benchmarks.flood import Wire, flood, publish_frames
from benchmarks.tables import head, row
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties

LOADS_010: tuple[tuple[str, Callable[[int], float]], ...] = (
    ("0-9-1, confirms and acks", partial(flood, messages=100_000, size=256)),
    ("0-10, completed and accepted", partial(amqp010.flood, messages=100_000)),
    ("0-10, completed", partial(amqp010.flood, messages=100_000, accepts=False)),
)

LOADS_10 = (
    ("100 B", 100_000, 100, "send"),
    ("100 B, own ids and properties", 100_000, 100, "send-own"),
    ("1 KiB", 60_000, 1024, "send"),
)


def throughput10(rounds: int) -> None:
    """Print throughput over AMQP 1.0, with sender and receiver in separate processes that both wait for outcomes."""
    print("\n## Throughput over AMQP 1.0: messages per second, median (lowest to highest)\n")
    with ExitStack() as stack:
        command = stack.enter_context(amqp10.client())
        brokers = [stack.enter_context(leveret())]
        if has_rabbitmq():
            brokers.append(stack.enter_context(rabbitmq("rabbitmq_amqp1_0")))
        head("transient messages, unsettled, accepted", brokers)
        costs = []
        for title, messages, size, role in LOADS_10:
            found = measured(
                brokers,
                rounds,
                lambda each, load=(messages, size, role): amqp10.flood(command, each, *load),  # type: ignore[misc]
            )
            print(f"| {title} | {cells(found, 1, 0)} |", flush=True)
            costs.append(f"| {title} | {cells(found, 0, 1)} |")
        print()
        head("processor time of the broker for a message, us", brokers)
        print("\n".join(costs))


def throughput010(rounds: int) -> None:
    """Print throughput over AMQP 0-10, beside 0-9-1 on the same node."""
    print("\n## Throughput over AMQP 0-10: messages per second, median (lowest to highest)\n")
    os.environ["LEVERET_PROTOCOLS__AMQP010__ENABLED"] = "true"
    with leveret() as broker:
        brokers = [broker]
        head("transient messages of 256 B", brokers)
        for title, measure in LOADS_010:
            row(title, brokers, rounds, lambda each, measure=measure: measure(each.port))  # type: ignore[misc]


def start(rounds: int) -> None:
    """Measure the time from the start of a process to the first answer on the AMQP port."""
    times = []
    for _ in range(rounds + 1):
        started = time.perf_counter()
        with leveret():
            times.append(time.perf_counter() - started)
    print(f"\n## Cold start: {statistics.median(times[1:]) * 1000:.0f} ms", end=" ")
    print(f"({min(times[1:]) * 1000:.0f} to {max(times[1:]) * 1000:.0f})")


def idle(rounds: int, connections: int = 1000) -> None:
    """Print what an idle connection with an open channel costs."""
    with leveret() as broker:
        for _ in range(20):
            Wire(broker.port).socket.close()
        before = resident_kib(broker.process)
        held = [Wire(broker.port) for _ in range(connections)]
        each = (resident_kib(broker.process) - before) / connections
        for wire in held:
            wire.socket.close()
    print(f"\n## Idle connection: {each:.1f} KiB ({connections} connections with a channel each)")


def large(rounds: int, size: int = 16 << 20) -> None:
    """Measure peak memory over the size of one large body, in and out."""
    with leveret() as broker:
        publisher, consumer = Wire(broker.port), Wire(broker.port)
        consumer.call(m.QueueDeclare("large"), m.QueueDeclareOk)
        before = peak_kib(broker.process)
        publisher.socket.sendall(publish_frames("", "large", size, BasicProperties().encode()))
        consumer.call(m.BasicConsume("large", "c", no_ack=True), m.BasicConsumeOk)
        started = time.perf_counter()
        received = len(consumer.buffer)
        while received < size:
            received += len(consumer.socket.recv(1 << 20))
        seconds = time.perf_counter() - started
        times_size = (peak_kib(broker.process) - before) * 1024 / size
        publisher.socket.close()
        consumer.socket.close()
    print(
        f"\n## A body of {size >> 20} MiB: {times_size:.2f} times its size at the peak, "
        f"{seconds:.2f} s from queue to client"
    )


def flatness(rounds: int) -> None:
    """Print the cost of a message against the number of queues and bindings."""
    print("\n## Cost against the number of queues and bindings, in process\n")
    flat.main()


def embedded(rounds: int) -> None:
    """Print what a broker costs a test."""
    print("\n## A broker in a test: milliseconds\n", flush=True)
    embedding.main()


MEASURES: dict[str, Callable[[int], None]] = {
    "applications": applications.applications,
    "amqp10": throughput10,
    "amqp010": throughput010,
    "mqtt": mqtt.mqtt,
    "durable": durable.durable,
    "latency": durable.latency,
    "recovery": durable.recovery,
    "database": database.database,
    "bulk": bulk.bulk,
    "client": client.client,
    "start": start,
    "idle": idle,
    "large": large,
    "filters": filters.filters,
    "flat": flatness,
    "embedding": embedded,
    "proton": proton_engine.main,
    "tls": tls.main,
    "outrun": outrun.main,
}

OF_THE_LAKE = ("archive", "lake")  # need `leveret[spark]` and Java
LONG = ("paging", "proofs", "database", "containers", *OF_THE_LAKE)


def of_the_lake(name: str, messages: int | None, rounds: int) -> None:
    """Measure what a module does that imports Spark."""
    module = import_module(f"benchmarks.{name}")
    module.measure(messages or module.MESSAGES, rounds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["compare", *MEASURES, *LONG, "versions", []]
    parser.add_argument(
        "measures",
        nargs="*",
        choices=names,
        help=f"which; without, all but {', '.join(LONG)}, which take long or need more",
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--against", metavar="FOLDER", type=Path, help="the source of an earlier version")
    paging.add_arguments(parser)
    containers.add_arguments(parser)
    proofs.add_arguments(parser)
    compare.add_arguments(parser)
    given = parser.parse_args()
    measures = {
        "compare": lambda rounds: compare.main(given),
        **MEASURES,
        "paging": lambda rounds: paging.main(given),
        "proofs": lambda rounds: proofs.main(given),
        "containers": lambda rounds: containers.main(given),
        **{name: partial(of_the_lake, name, given.messages) for name in OF_THE_LAKE},
    }
    if given.against is not None:
        measures["versions"] = partial(versions.versions, given.against)
    elif "versions" in given.measures:
        parser.error("to measure versions, say --against which")
    if not has_rabbitmq():
        print(
            "no RabbitMQ here: measuring Leveret alone (Debian: apt-get install rabbitmq-server)",
            file=sys.stderr,
        )
    for name in given.measures or [name for name in measures if name not in LONG]:
        measures[name](given.rounds)


if __name__ == "__main__":
    main()

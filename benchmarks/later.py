"""Measure messages that wait for a time: the memory of each, with its body and without it, and how fast they get ready.

Each measurement has a process of its own, as memory that one has freed would hide what the next one takes.

    python -m benchmarks.later                      # 200 000 of 100 B
    python -m benchmarks.later --messages 1000000
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from leveret.alarms import resident_octets
from leveret.memory_tuning import give_back_memory
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.queues.work_queue import WorkQueue
from leveret.server.node.threaded import ThreadedNode, embedded

SIZE: Final = 100  # bytes of a body
BATCH: Final = 2000  # messages that are published in one call
FAR_S: Final = 3600.0
PROPERTIES: Final = b"\x10\x00\x02"  # delivery mode 2
QUEUE: Final = "later"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--messages", type=int, default=200_000)
    options = parser.parse_args()
    for measure in (in_memory, ready_now):
        with tempfile.TemporaryDirectory() as folder:
            alone(measure, Path(folder), options.messages)
            if measure is in_memory:
                alone(after_a_start, Path(folder), options.messages)


def alone(measure: Callable[[Path, int], None], folder: Path, messages: int) -> None:
    """Measure in a process of its own."""
    process = multiprocessing.get_context("spawn").Process(target=measure, args=(folder, messages))
    process.start()
    process.join()
    if process.exitcode:
        raise SystemExit(process.exitcode)


def node_on(folder: Path) -> ThreadedNode:
    return ThreadedNode(embedded({"node": {"data_dir": str(folder)}}))


def queue_of(node: ThreadedNode) -> WorkQueue:
    found = node.node.broker.virtual_host("/").queues[QUEUE]
    assert isinstance(found, WorkQueue)
    return found


def resident() -> int:
    gc.collect()
    give_back_memory()
    return resident_octets()


def publish(node: ThreadedNode, messages: int, due_ms: int) -> None:
    """Publish durable messages for that time, and wait until all are on disk."""
    broker = node.node.broker
    facts = Facts(durable=True, due_ms=due_ms)

    def batch(count: int) -> None:
        exchange = broker.virtual_host("/").default_exchange
        for _ in range(count):
            broker.publish(exchange, Message(ENCODING, "", QUEUE, PROPERTIES, bytes(SIZE), facts))
        broker.settle()

    for begin in range(0, messages, BATCH):
        node.call(partial(batch, min(BATCH, messages - begin)))
    journal = broker.journal
    assert journal is not None
    while node.call(lambda: journal.dirty or journal.durable < journal.open - 1):
        time.sleep(0.01)


def declare(node: ThreadedNode) -> None:
    node.call(lambda: node.node.broker.virtual_host("/").declare_queue(QUEUE, durable=True))


def in_memory(folder: Path, messages: int) -> None:
    with node_on(folder) as node:
        declare(node)
        publish(node, BATCH, int((time.time() + FAR_S) * 1000))
        node.call(lambda: queue_of(node).purge())
        before = resident()
        publish(node, messages, int((time.time() + FAR_S) * 1000))
        told("in memory", resident() - before, messages)


def after_a_start(folder: Path, messages: int) -> None:
    before = resident()
    with node_on(folder.with_name(f"{folder.name}-empty")):
        empty = resident() - before
    began = time.perf_counter()
    with node_on(folder) as node:
        took_s = time.perf_counter() - began
        assert queue_of(node).scheduled().away == messages, "all are on disk only"
        told(f"on disk only, after a start of {took_s:.1f} s", resident() - before - empty, messages)


def ready_now(folder: Path, messages: int) -> None:
    with node_on(folder) as node:
        declare(node)
        publish(node, messages, int((time.time() + FAR_S) * 1000))
        queue = queue_of(node)
        while node.call(lambda: queue.page_out(0)):
            pass
        began = time.perf_counter()
        node.call(lambda: queue.later.hasten(queue.later.positions()))
        while node.call(lambda: queue.delayed):
            time.sleep(0.01)
        took_s = time.perf_counter() - began
        print(f"from disk to ready: {messages / took_s:,.0f} messages per second")


def told(what: str, octets: int, messages: int) -> None:
    print(
        f"{what}: {octets / messages:,.0f} bytes for each of {messages:,} messages with {SIZE} bytes of body"
    )


if __name__ == "__main__":
    main()

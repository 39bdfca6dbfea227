"""Messages with one header, for queues that look at it."""

from __future__ import annotations

import attrs

from leveret.message import Facts, Message
from leveret.queues.queue import Queue
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties, Value
from tests.harness.bench import CoreBench

HEADER = "of"


def headed(
    value: Value, body: bytes, priority: int = 0, ttl_ms: int | None = None, durable: bool = False
) -> Message:
    """A message whose header says `value`; None: it has none."""
    headers = None if value is None else {HEADER: value}
    facts = Facts(durable, priority, ttl_ms, has_headers=headers is not None)
    encoding = FakeEncoding(attrs.evolve(Properties(), headers=headers))
    return Message(encoding, "", "q", b"", body, facts)


def publish(bench: CoreBench, queue: Queue, *said: str, priority: int = 0, ttl_ms: int | None = None) -> None:
    """One batch: `a1` says a in its header."""
    for each in said:
        queue.push(headed(each[0], each.encode(), priority, ttl_ms))
    bench.settle()

"""Measure a publisher that outruns its consumer: window 1000 against prefetch 10, each message acknowledged by itself.

How long does the queue become, what memory does that take, and how old are messages when they are delivered? Beside
RabbitMQ, and with `[flow] credit`. The client is that of applications.py.

    python -m benchmarks outrun
"""

from __future__ import annotations

import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import attrs

from benchmarks.applications import QUEUE, Line, client, command_of, prepare, ran
from benchmarks.brokers import Running, family, free_port, has_rabbitmq, leveret, rabbitmq, resident_kib
from benchmarks.flood import Wire
from benchmarks.tables import spread
from leveret.protocols.amqp091.codec import methods as m

LINE: Final = Line("outrun", 100_000, confirms=1000, prefetch=10, ack_every=1)
CREDIT: Final = 1000
LOOK_S: Final = 0.02  # between two looks at the queue and the memory
CONFIG: Final = """
[flow]
credit = {credit}

[[listeners]]
address = "127.0.0.1:{port}"
"""


@attrs.frozen
class Outrun:
    """What was seen in one run: messages per second, the longest queue, memory, and the age of the deliveries."""

    rate: float
    waiting: int
    grown_kib: int
    p50_ms: float
    p99_ms: float


@contextmanager
def watched(broker: Running, memory_of: int) -> Iterator[list[tuple[int, int]]]:
    """Collect the length of the queue, and the memory of the broker in KiB, again and again meanwhile."""
    seen: list[tuple[int, int]] = []
    over = threading.Event()
    wire = Wire(broker.port)

    def look() -> None:
        while not over.wait(LOOK_S):
            found = wire.call(m.QueueDeclare(QUEUE % 0, passive=True), m.QueueDeclareOk)
            assert isinstance(found, m.QueueDeclareOk)
            seen.append((found.message_count, resident_kib(memory_of)))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()
        wire.socket.close()


def outrun(program: str, broker: Running) -> Outrun:
    prepare(broker.port, LINE)
    largest = max(family(broker.process), key=resident_kib)  # RabbitMQ's main process is a script
    before = resident_kib(largest)
    with watched(broker, largest) as seen:
        took_s, p50, p99 = map(float, ran(program, "load", None, broker.port, *command_of(LINE)))
    waiting, kib = (max(column) for column in zip(*seen, strict=True))
    return Outrun(LINE.messages / took_s, waiting, kib - before, p50 / 1000, p99 / 1000)


def main(rounds: int) -> None:
    """Print a table; the brokers take turns."""
    with ExitStack() as stack:
        program = stack.enter_context(client())
        if program is None:
            return
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        brokers = [stack.enter_context(leveret("--data", str(folder / "plain")))]
        port = free_port()
        (folder / "credit.toml").write_text(CONFIG.format(credit=CREDIT, port=port))
        flags = ("--config", str(folder / "credit.toml"), "--data", str(folder / "credit"))
        name = f"Leveret, [flow] credit = {CREDIT}"
        brokers.append(stack.enter_context(leveret(*flags, name=name, configured_port=port)))
        if has_rabbitmq():
            brokers.append(stack.enter_context(rabbitmq()))
        found: dict[str, list[Outrun]] = {broker.name: [] for broker in brokers}
        for each in range(rounds + 1):
            for broker in brokers if each % 2 else reversed(brokers):
                run = outrun(program, broker)
                if each:  # the first round warms up
                    found[broker.name].append(run)
    print(f"\n## A publisher with a window of {LINE.confirms} against a prefetch of {LINE.prefetch}\n")
    print("| | messages/s | most messages waiting | more memory, MiB | age of deliveries, ms: p50 | p99 |")
    print(f"|---|{'---:|' * 5}")
    for name, runs in found.items():
        cells = (
            spread([run.rate for run in runs]),
            spread([run.waiting for run in runs]),
            spread([run.grown_kib / 1024 for run in runs], 1),
            f"{statistics.median(run.p50_ms for run in runs):,.1f}",
            spread([run.p99_ms for run in runs], 1),
        )
        print(f"| {name} | {' | '.join(cells)} |")

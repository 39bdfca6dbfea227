"""Measure a queue longer than memory: persistent messages fill it, then it is drained; memory and rates throughout.

The node's processor time for a message says the same as the rate, without the effect of other load on the machine.

    python -m benchmarks paging                                         # 5 000 000 of 100 B, then 5 GiB of 64 KiB
    python -m benchmarks paging --messages 500000 --size 100 --watermark 256MiB
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import attrs

from benchmarks.brokers import Running, leveret, processor_s, resident_kib
from benchmarks.flood import Consumer, Publisher, declare_afresh, turn

LOADS: Final = ((5_000_000, 100), (5 * (1 << 30) // 65536, 65536))  # messages, bytes of the body
STEPS: Final = 20  # lines for each way
WINDOW: Final = 1000  # unconfirmed messages,
WINDOW_OCTETS: Final = 4 << 20  # and bytes, or one message
PREFETCH: Final = 200
QUEUE: Final = "paging"


@attrs.define
class Way:
    """One way, filling or draining: rates and memory at each step."""

    rates: list[float] = attrs.Factory(list)  # messages per second, since the step before
    processor: list[float] = attrs.Factory(list)  # microseconds of the node's for each message
    resident: list[int] = attrs.Factory(list)  # KiB: the most seen since the step before

    def described(self, what: str) -> str:
        """Compare the first fifth with the last, and name the slowest step."""
        first, last = _ends(self.rates)
        cheap, dear = _ends(self.processor)
        return (
            f"{what}: {first:,.0f} messages/s at first, {last:,.0f} at last ({last / first:.0%}), "
            f"slowest step {min(self.rates):,.0f}; {cheap:.1f} us of processor at first, {dear:.1f} at last; "
            f"memory at most {max(self.resident) / 1024:,.0f} MiB"
        )


def _ends(values: list[float]) -> tuple[float, float]:
    """Return the means of the first and the last fifth."""
    part = max(1, len(values) // 5)
    return statistics.mean(values[:part]), statistics.mean(values[-part:])


def watched(broker: Running, messages: int, done: Callable[[], int], go_on: Callable[[], None]) -> Way:
    """Run until everything is done, and record rates and memory at each step."""
    way = Way()
    step, most = max(1, messages // STEPS), 0
    began, before, looked, spent = time.perf_counter(), 0, 0.0, processor_s(broker.process)
    while done() < messages:
        go_on()
        now = time.perf_counter()
        if now - looked >= 0.05:
            looked, most = now, max(most, resident_kib(broker.process))
        if done() - before >= step or done() >= messages:
            count, used = done() - before, processor_s(broker.process)
            way.rates.append(count / (now - began))
            way.processor.append((used - spent) / count * 1e6)
            way.resident.append(most)
            print(
                f"{done():12,} {way.rates[-1]:10,.0f}/s {way.processor[-1]:8,.1f} us {most / 1024:6,.0f} MiB",
                flush=True,
            )
            began, before, most, spent = now, done(), 0, used
    return way


def filled(broker: Running, messages: int, size: int) -> Way:
    declare_afresh(broker.port, QUEUE, durable=True)
    publisher = Publisher(broker.port, QUEUE, messages, size, durable=True)
    window = max(1, min(WINDOW, WINDOW_OCTETS // size))
    confirms = publisher.confirms
    way = watched(
        broker, messages, lambda: confirms.count, lambda: _turn(publisher, None, confirms.count + window)
    )
    publisher.wire.socket.close()
    return way


def drained(broker: Running, messages: int, size: int) -> Way:
    idle = Publisher(broker.port, QUEUE, 0, size, durable=True)
    consumer = Consumer(broker.port, QUEUE, messages, size, durable=True, prefetch=PREFETCH)
    way = watched(broker, messages, lambda: consumer.received, lambda: _turn(idle, consumer, 0))
    consumer.wire.socket.close()
    idle.wire.socket.close()
    return way


def _turn(publisher: Publisher, consumer: Consumer | None, allowed: int) -> None:
    turn(publisher, consumer, allowed, timeout_s=1.0)


def measure(messages: int, size: int, watermark: str) -> None:
    """Fill and drain once, in a node of its own."""
    print(f"\n### {messages:,} persistent messages of {size:,} octets, watermark {watermark}\n")
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "leveret.toml")
        config.write_text(f'[memory]\nwatermark = "{watermark}"\n')
        with leveret("--config", str(config), "--data", str(Path(folder, "data"))) as broker:
            print(filled(broker, messages, size).described("Filling"))
            print(drained(broker, messages, size).described("Draining"))
            time.sleep(1.0)
            print(f"Empty: {resident_kib(broker.process) / 1024:,.0f} MiB")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("paging")
    group.add_argument("--messages", type=int, help="instead of both loads; also of archive and lake")
    group.add_argument("--size", type=int, default=100, help="octets of body")
    group.add_argument("--watermark", default="512MiB", help="of the memory alarm")


def main(given: argparse.Namespace) -> None:
    """Measure both loads, or the given one."""
    print("\n## A queue longer than memory")
    loads = LOADS if given.messages is None else ((given.messages, given.size),)
    for messages, size in loads:
        measure(messages, size, given.watermark)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    main(parser.parse_args())

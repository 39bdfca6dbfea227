"""Measure deduplication: memory of an id, time of a look, and messages per second with it beside those without.

    python -m benchmarks.deduplication --rounds 3

All messages have an id in the header, also where nothing looks at it, so that the ratio is that of the looks and of
what is written. The rounds alternate.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.brokers import leveret
from benchmarks.flood import Consumer, Publisher, Wire, delivery_size, publish_frames, turn
from leveret.features.deduplication.digests import DIGEST_OCTETS
from leveret.features.deduplication.recent_ids import RecentIds
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.fields import FieldTable
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.server.node.build_info import built

SIZE = 100  # bytes of a body
WINDOW = 1000
IDS = (1_000, 100_000, 1_000_000)
SWITCH: FieldTable = {"x-message-deduplication": True}


def properties(number: int, durable: bool) -> bytes:
    headers: FieldTable = {"x-deduplication-header": f"order-{number:012}"}
    return BasicProperties(headers=headers, delivery_mode=2 if durable else 1).encode()


class IdPublisher(Publisher):
    """Sends messages with different ids."""

    def __init__(
        self, port: int, exchange: str, queue: str, first: int, messages: int, durable: bool
    ) -> None:
        super().__init__(port, queue, messages, SIZE, durable)
        frames = [
            publish_frames(exchange, queue, SIZE, properties(n, durable))
            for n in range(first, first + messages)
        ]
        self.frame = frames[0]
        self.octets = memoryview(b"".join(frames))

    def send(self, allowed: int) -> bool:
        limit = min(allowed, self.messages) * len(self.frame)
        while self.sent_octets < limit:
            try:
                self.sent_octets += self.wire.socket.send(self.octets[self.sent_octets : limit])
            except BlockingIOError:
                return False
        return True


def rate(port: int, messages: int, first: int, durable: bool, where: str) -> float:
    """Return messages per second, confirmed and acknowledged. `where`: exchange, queue, or nothing drops duplicates."""
    exchange = f"x-{where}"
    owner = Wire(port)
    arguments: FieldTable = SWITCH if where == "exchange" else {}
    owner.call(m.ExchangeDeclare(exchange, "fanout", durable=True, arguments=arguments), m.ExchangeDeclareOk)
    queue = f"q-{where}"
    owner.call(m.QueueDelete(queue), m.QueueDeleteOk)
    of_queue: FieldTable = SWITCH if where == "queue" else {}
    owner.call(m.QueueDeclare(queue, durable=True, arguments=of_queue), m.QueueDeclareOk)
    owner.call(m.QueueBind(queue, exchange), m.QueueBindOk)
    consumer = Consumer(port, queue, messages, SIZE, durable)
    consumer.step = delivery_size("c", exchange, queue, SIZE, properties(first, durable))
    publisher = IdPublisher(port, exchange, queue, first, messages, durable)
    started = time.perf_counter()
    while consumer.received < messages or publisher.confirms.count < messages:
        turn(publisher, consumer, publisher.confirms.count + WINDOW)
    seconds = time.perf_counter() - started
    for wire in (publisher.wire, consumer.wire, owner):
        wire.socket.close()
    return messages / seconds


def throughput(rounds: int, messages: int) -> None:
    print(f"\n| messages per second ({built()}) | nothing | exchange | queue |\n|---|---|---|---|")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        broker = stack.enter_context(leveret("--data", folder))
        first = 0
        for title, durable, count in (
            ("transient", False, messages),
            ("persistent", True, messages // 2),
        ):
            found: dict[str, list[float]] = {"nothing": [], "exchange": [], "queue": []}
            for _ in range(rounds):
                for where, rates in found.items():
                    rates.append(rate(broker.port, count, first, durable, where))
                    first += count
            base = median(found["nothing"])
            cells = [f"{median(rates):,.0f} ({median(rates) / base:.2f})" for rates in found.values()]
            print(f"| {title} | {' | '.join(cells)} |", flush=True)


def resident() -> int:
    """Return the bytes of memory that this process has."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def memory() -> None:
    print(
        f"\n| ids ({built()}) | bytes each | us to look and add | us to look | longest, ms |\n|---|---|---|---|---|"
    )
    for count in IDS:
        digests = [os.urandom(DIGEST_OCTETS) for _ in range(count)]
        before = resident()
        ids = RecentIds(count)
        longest, started = 0.0, time.perf_counter()
        for at in range(0, count, 100):
            begin = time.perf_counter()
            for digest in digests[at : at + 100]:
                if not ids.has(digest, 1):
                    ids.add(digest, 0, 1, True)
            longest = max(longest, time.perf_counter() - begin)
        added = time.perf_counter() - started
        octets = resident() - before
        started = time.perf_counter()
        found = sum(map(ids.has, digests, [1] * count))
        looked = time.perf_counter() - started
        assert found == count
        print(
            f"| {count:,} | {octets / count:.1f} | {added / count * 1e6:.2f} | {looked / count * 1e6:.2f} "
            f"| {longest * 1000:.1f} |",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--messages", type=int, default=100_000)
    given = parser.parse_args()
    memory()
    throughput(given.rounds, given.messages)


if __name__ == "__main__":
    main()

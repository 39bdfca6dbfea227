"""Measure the cost of a message against the number of queues and bindings, which should make no difference.

It runs in one process and without sockets, but with everything else: frames of basic.publish go into a 0-9-1
connection, in batches as a busy socket brings them, with routing keys drawn evenly from all there are, which is the
worst case for the caches.

    python -m benchmarks.flat
"""

from __future__ import annotations

import random
import time

from benchmarks.flood import publish_frames
from leveret.broker import Broker
from leveret.config.config import Config
from leveret.exchanges.exchange_type import Exchange
from leveret.front_end import Peer
from leveret.memory_tuning import spare_the_collector
from leveret.outbox import Outbox
from leveret.protocols.amqp091.broker.adapter import Adapter091
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.virtual_host import VirtualHost

MESSAGES = 50_000
BATCH = 500  # messages in one read


def connection(broker: Broker) -> Adapter091:
    """Return a 0-9-1 connection with channel 1 open, without a socket."""
    broker.access.add_user("guest", "guest")
    broker.access.set_permissions("guest", "/", ".*", ".*", ".*")
    front = Adapter091(broker, Config(), Outbox([]), Peer("127.0.0.1", 1, "127.0.0.1", 5672, True), 0.0)
    front.receive(b"AMQP\x00\x00\x09\x01", 0.0)
    for channel, method in (
        (0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US")),
        (0, m.ConnectionTuneOk(2047, 131072, 0)),
        (0, m.ConnectionOpen("/")),
        (1, m.ChannelOpen()),
    ):
        front.receive(wire.method_frame(channel, method.encode()), 0.0)
    return front


def cost_us(exchange: Exchange, keys: list[str]) -> float:
    """Return microseconds per message, the best of five runs."""
    broker = exchange.virtual_host.broker
    front = connection(broker)
    properties = BasicProperties(delivery_mode=1).encode()
    chosen = random.Random(1).choices(keys, k=MESSAGES)
    frames = [publish_frames(exchange.name, key, 100, properties) for key in chosen]
    reads = [b"".join(frames[at : at + BATCH]) for at in range(0, MESSAGES, BATCH)]
    best = float("inf")
    for _ in range(5):
        started = time.perf_counter()
        for data in reads:
            front.receive(data, broker.tick())
            broker.settle()
        best = min(best, time.perf_counter() - started)
        for queue in exchange.virtual_host.queues.values():
            queue.purge()
    return best / MESSAGES * 1e6


def queues(count: int) -> float:
    """Measure the default exchange in front of `count` queues."""
    host = _host()
    names = [f"queue.{n}" for n in range(count)]
    for name in names:
        host.declare_queue(name)
    return cost_us(host.default_exchange, names)


def bindings(kind: str, count: int) -> float:
    """Measure `count` bindings to ten queues; one in ten is a pattern on a topic exchange."""
    host = _host()
    exchange = host.declare_exchange("x", kind)
    targets = [host.declare_queue(f"queue.{n}") for n in range(10)]
    keys = [f"region{n % 100}.device{n}.reading" for n in range(count)]
    for n, key in enumerate(keys):
        pattern = key.replace("reading", "*") if kind == "topic" and n % 10 == 0 else key
        host.bind(exchange, targets[n % 10], pattern)
    return cost_us(exchange, keys)


def _host() -> VirtualHost:
    return Broker().add_virtual_host("/")


def main() -> None:
    spare_the_collector()  # as `leveret serve` does
    print("| what | number | us per message | against the first |")
    print("|---|---:|---:|---:|")
    for name, measure, numbers in (
        ("queues", queues, (1, 100, 10_000)),
        ("direct bindings", lambda n: bindings("direct", n), (10, 1_000, 100_000)),
        ("topic bindings", lambda n: bindings("topic", n), (10, 1_000, 100_000)),
    ):
        first = 0.0
        for number in numbers:
            cost = measure(number)
            first = first or cost
            print(f"| {name} | {number} | {cost:.2f} | {cost / first:.2f} |")


if __name__ == "__main__":
    main()

"""Measure what a message costs by the kind of work, in one process and without sockets.

Frames go into 0-9-1 connections as a read brings them, and what these answer is acknowledged: everything but the
operating system, trio and the disk. Kinds of work take turns, so that the ratios hold when the machine's speed does
not, and the processor's time is counted, not the clock's.

    PYTHONPATH=build/compiled:. python -P -m benchmarks.in_process --rounds 5 --together 1,20 --lines own-50,own-single
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from benchmarks.flat import connection
from leveret.broker import Broker
from leveret.memory_tuning import spare_the_collector
from leveret.protocols.amqp091.broker.adapter import Adapter091
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.virtual_host import VirtualHost

MESSAGES: Final = 40_000  # of a measurement
PREFETCH: Final = 200
DISTINCT: Final = 2000  # messages that are made beforehand, and published round and round
FRAME_MAX: Final = 131_072
EXCHANGE: Final = "x"


@attrs.frozen
class Work:
    """A kind of work. `ack_every`: 1 acknowledges each message by itself, 0 none."""

    title: str
    own: bool = True  # each message has ids, a time and headers of its own
    ack_every: int = 50
    exchange: str = ""  # its type; empty: messages go straight to the queue
    queues: int = 1
    keys: int = 1
    consumers: int = 1  # of each queue
    prefetch: int = PREFETCH
    sizes: tuple[int, ...] = (100,)


WORKS: Final[Mapping[str, Work]] = {
    "alike-50": Work("alike, acks of 50", own=False),
    "alike-single": Work("alike, each acknowledged", own=False, ack_every=1),
    "own-50": Work("own ids and headers, acks of 50"),
    "own-single": Work("own ids and headers, each acknowledged", ack_every=1),
    "mixed": Work("own ids, 200 to 2000 B, acks of 50", sizes=tuple(range(200, 2001, 29))),
    "topic": Work("own ids, topic exchange, 10 queues, 1000 keys", exchange="topic", queues=10, keys=1000),
    "shared": Work("own ids, 20 consumers, prefetch 10", ack_every=1, consumers=20, prefetch=10),
    "fanout": Work("own ids, fanout to 10 queues, a copy", exchange="fanout", queues=10),
}  # fmt: skip


def properties(work: Work, number: int) -> bytes:
    """Return those of a message, as most applications set them."""
    if not work.own:
        return BasicProperties(delivery_mode=1).encode()
    return BasicProperties(
        content_type="application/json",
        headers={
            "traceparent": f"00-4bf92f3577b34da6{number:016x}-00f067aa0ba902b7-01",
            "x-tenant": "t7",
            "attempt": 1,
        },
        delivery_mode=1,
        correlation_id=f"{number:016x}",
        message_id=f"m-{number:016x}",
        timestamp=1_700_000_000 + number,
    ).encode()


def published(work: Work, number: int) -> bytes:
    key = f"eu.{number * 7919 % work.keys}.x" if work.exchange else "q0"
    out: list[bytes] = []
    method = m.BasicPublish(EXCHANGE if work.exchange else "", key).encode()
    body = bytes(work.sizes[number % len(work.sizes)])
    wire.append_content(out, 1, method, properties(work, number), body, FRAME_MAX)
    return b"".join(out)


def ack(tag: int, multiple: bool) -> bytes:
    return wire.method_frame(1, m.BasicAck(tag, multiple).encode())


class Line:
    """One publisher with confirms, and the consumers of a kind of work."""

    def __init__(self, work: Work, together: int) -> None:
        self.work = work
        self.broker = Broker()
        host = self.broker.add_virtual_host("/")
        self._declare(host)
        self.publisher = connection(self.broker)
        self._say(self.publisher, m.ConfirmSelect())
        self.consumers = [self._consumer(f"q{queue}") for queue in range(work.queues)
                          for _ in range(work.consumers)]  # fmt: skip
        count = max(DISTINCT, together)
        frames = [published(work, number) for number in range(count)]
        self.reads = [b"".join(frames[at : at + together]) for at in range(0, count - together + 1, together)]
        self.together = together
        self._acked = [0] * len(self.consumers)

    def _declare(self, host: VirtualHost) -> None:
        work = self.work
        exchange = host.declare_exchange(EXCHANGE, work.exchange) if work.exchange else None
        for number in range(work.queues):
            queue = host.declare_queue(f"q{number}")
            if exchange is not None:
                for key in range(number, work.keys, work.queues) if work.keys > 1 else (number,):
                    if work.exchange == "topic":
                        host.bind(exchange, queue, f"eu.{key}.#")
                    else:
                        host.bind(exchange, queue, "")

    def _say(self, front: Adapter091, method: wire.Method) -> None:
        front.receive(wire.method_frame(1, method.encode()), self.broker.tick())
        self.broker.settle()

    def _consumer(self, queue: str) -> Adapter091:
        front = connection(self.broker)
        self._say(front, m.BasicQos(0, self.work.prefetch))
        self._say(front, m.BasicConsume(queue, "c", no_ack=not self.work.ack_every))
        return front

    def run(self, messages: int) -> tuple[float, float]:
        """Return microseconds of the processor for a copy of a message, and for its acknowledgement."""
        broker, publisher = self.broker, self.publisher
        clock = time.process_time
        publishing = acking = 0.0
        for each in range(messages // self.together):
            read = self.reads[each % len(self.reads)]
            begun = clock()
            publisher.receive(read, broker.tick())
            broker.settle()
            publishing += clock() - begun
            publishing += self._sent()
            acking += self._acknowledge()
        assert not any(queue.ready for queue in broker.virtual_hosts["/"].queues.values())
        copies = messages * (self.work.queues if self.work.exchange == "fanout" else 1)
        return 1e6 * publishing / copies, 1e6 * acking / copies

    def _sent(self) -> float:
        """Take what is to be sent, as a transport does. Return the seconds that it took."""
        begun = time.process_time()
        for front in (self.publisher, *self.consumers):
            if front.outbox.pieces:
                octets = b"".join(front.outbox.take())
                front.outbox.sent(len(octets))
        del self.publisher.outbox.ready[:]
        return time.process_time() - begun

    def _acknowledge(self) -> float:
        """Acknowledge what has been delivered. Return the seconds that it took, with the deliveries that follow."""
        every, took, again = self.work.ack_every, 0.0, True
        while again:
            again = False
            for at, front in enumerate(self.consumers):
                last, acked = front.channels[1].last_tag, self._acked[at]
                if not every or last - acked < every:
                    continue
                again = True
                if every == 1:
                    acks = b"".join([ack(tag, False) for tag in range(acked + 1, last + 1)])
                else:
                    acks = ack(last, True)
                self._acked[at] = last
                begun = time.process_time()
                front.receive(acks, self.broker.tick())
                self.broker.settle()
                took += time.process_time() - begun
            took += self._sent()
        return took


def main(
    arguments: list[str] | None = None, say: Callable[[str], None] = lambda text: print(text, flush=True)
) -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--lines", default=",".join(WORKS), help="kinds of work (default: all)")
    asked.add_argument("--together", default="1,20", help="messages in one read (default: %(default)s)")
    asked.add_argument("--rounds", type=int, default=5)
    asked.add_argument("--messages", type=int, default=MESSAGES, help="of a measurement")
    given = asked.parse_args(arguments)
    spare_the_collector()  # as `leveret serve` does
    for together in map(int, given.together.split(",")):
        say(f"\n{together} in a read, us of the processor\n")
        say("| work | way in and out | acknowledgement | both |\n|---|---:|---:|---:|")
        lines = {name: Line(WORKS[name], together) for name in given.lines.split(",")}
        costs: dict[str, list[tuple[float, float]]] = {name: [] for name in lines}
        for _ in range(given.rounds):
            for name, line in lines.items():
                costs[name].append(line.run(given.messages))
        for name, cost in costs.items():
            way, acks, both = (
                statistics.median(column) for column in zip(*((a, b, a + b) for a, b in cost), strict=True)
            )
            say(f"| {WORKS[name].title} | {way:.2f} | {acks:.2f} | {both:.2f} |")


if __name__ == "__main__":
    main()

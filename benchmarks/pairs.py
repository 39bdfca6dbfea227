"""Run many publishers and consumers, each pair with a queue of its own, in one thread that costs little.

    python -m benchmarks.pairs PORT PAIRS MESSAGES WINDOW

MESSAGES are the total of all pairs. Each publisher keeps at most WINDOW of its messages unconfirmed, each consumer has
a prefetch of 200 and acknowledges, with a window of less than 50, each message.
"""

from __future__ import annotations

import json
import resource
import select
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from benchmarks.flood import BLOCK, Consumer, Publisher, declare_afresh

PREFETCH: Final = 200


class Pairs:
    """So many pairs, connected."""

    def __init__(self, port: int, count: int, window: int, size: int = 100, durable: bool = False) -> None:
        self.window = window
        self.publishers: list[Publisher] = []
        self.consumers: list[Consumer] = []
        self._on: dict[int, Callable[[], None]] = {}
        self._poll = select.epoll()
        prefetch = min(PREFETCH, 4 * window)
        for number in range(count):
            queue = f"pair{number}"
            declare_afresh(port, queue, durable)
            consumer = Consumer(port, queue, 1 << 40, size, durable, prefetch)
            publisher = Publisher(port, queue, BLOCK, size, durable)
            self.consumers.append(consumer)
            self.publishers.append(publisher)
            self._watch(consumer.wire.socket.fileno(), consumer.receive)
            self._watch(publisher.wire.socket.fileno(), self._confirmed(publisher))

    def _watch(self, number: int, heard: Callable[[], None]) -> None:
        self._poll.register(number, select.EPOLLIN)
        self._on[number] = heard

    def _confirmed(self, publisher: Publisher) -> Callable[[], None]:
        def heard() -> None:
            publisher.receive()
            publisher.send(publisher.confirms.count + self.window)

        return heard

    @property
    def received(self) -> int:
        return sum(consumer.received for consumer in self.consumers)

    def run(self, messages: int) -> float:
        """Return messages per second, from the first publish until every pair has had its share."""
        share = messages // len(self.publishers)
        for publisher, consumer in zip(self.publishers, self.consumers, strict=True):
            publisher.messages = consumer.messages = consumer.received + share
        started = time.perf_counter()
        for publisher in self.publishers:
            publisher.send(publisher.confirms.count + self.window)
        until = self.received + share * len(self.publishers)
        while self.received < until or any(p.confirms.count < p.messages for p in self.publishers):
            for _ in range(50):
                for number, _event in self._poll.poll(0.01):
                    self._on[number]()
        return share * len(self.publishers) / (time.perf_counter() - started)

    def close(self) -> None:
        for end in (*self.publishers, *self.consumers):
            end.wire.socket.close()


@contextmanager
def pairs(port: int, count: int, window: int) -> Iterator[Pairs]:
    made = Pairs(port, count, window)
    try:
        yield made
    finally:
        made.close()


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    port, count, messages, window = map(int, sys.argv[1:])
    with pairs(port, count, window) as made:
        print(json.dumps({"messages_per_second": made.run(messages)}))


if __name__ == "__main__":
    main()

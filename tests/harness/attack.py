"""An attack on a broker, in any protocol: what happens in it, and what must hold after it.

An attacker is brought into a state of its connection and sends what it likes. Then everything it was sent must be what
the protocol allows, what is kept of it must have its bounds, the books of the broker must balance, no mistake of ours
may be logged, and an honest neighbour must still be served. Each protocol's attack.py has its states and its neighbour,
and says what its bytes and its bounds are.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import attrs

from leveret.clock import NEVER
from leveret.queues.queue import Queue

from .bench import ClientBench
from .peer import JoinedPeer

SMALL = 'limits.message_size_max = "64KiB"\n'  # so that a flipped bit does not ask for megabytes
PLENTY_S = 100_000  # by then every deadline has passed


class Neighbour(ABC):
    """An honest client on a connection of its own, which publishes to itself."""

    peer: JoinedPeer

    def __init__(self, bench: ClientBench) -> None:
        self.sent = 0
        self.enter(bench)

    def must_be_served(self) -> None:
        self.sent += 1
        self.publish(str(self.sent).encode())

    @abstractmethod
    def enter(self, bench: ClientBench) -> None:
        """Open the connection, and whatever it takes to publish and consume."""

    @abstractmethod
    def publish(self, body: bytes) -> None:
        """Publish this: it is accepted, it comes, and it is settled."""


@attrs.frozen
class Attack:
    """Attacks on brokers with these settings: `attack(state, chunks)` is one, and returns the attacker."""

    settings: str
    neighbour: Callable[[ClientBench], Any]
    must_be_protocol: Callable[[Any], None]  # of the attacker: what came back
    must_be_bounded: Callable[[Any], None]  # of the attacker: what is kept of it
    must_balance: Callable[[ClientBench], None]
    must_have_gone: Callable[[ClientBench, Any], None]  # of the neighbour: nothing else is left

    def __call__(self, state: Callable[[ClientBench], Any], chunks: Sequence[bytes]) -> Any:
        """Bring an attacker into a state and let it send these, each read by itself."""
        bench = ClientBench(self.settings)
        neighbour = self.neighbour(bench)
        with nothing_logged():
            attacker = state(bench)
            attacker.read()
            for chunk in chunks:
                attacker.send_bytes(chunk)
                self.must_be_protocol(attacker)
                self.must_be_bounded(attacker)
            neighbour.must_be_served()
            self.must_balance(bench)
            bench.advance(PLENTY_S)
            self.must_be_protocol(attacker)
            neighbour.must_be_served()
            attacker.drop()
            self.must_balance(bench)
            bench.advance(PLENTY_S)  # for what is kept of it for a while
            self.must_balance(bench)
            neighbour.must_be_served()
        assert list(bench.broker.clients) == [neighbour.peer.front.client]
        self.must_have_gone(bench, neighbour)
        return attacker


@contextmanager
def nothing_logged() -> Iterator[None]:
    """The broker logs no mistake of its own."""
    texts: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: texts.append(handler.format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("leveret")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert texts == []


def queues_of(bench: ClientBench) -> list[Queue]:
    return [*bench.host.queues.values(), *bench.host.hidden_queues.values()]


def must_balance(bench: ClientBench) -> None:
    """Every queue counts what it holds; nothing is left to do."""
    for queue in queues_of(bench):
        waiting = list(queue.waiting())
        assert queue.ready == len(waiting)
        assert queue.ready_bytes == sum(delivery.message.size for delivery in waiting)
        assert queue.unsettled_bytes >= 0
        assert queue.unsettled or not queue.unsettled_bytes
        assert queue.expiring == sum(delivery.expires_at != NEVER for delivery in waiting)
        assert not queue.touched
    broker = bench.broker
    assert (broker.touched, list(broker.dying), broker.publishers) == ([], [], [])
    assert bench.host.connections == len(broker.clients)


class Recording(JoinedPeer):
    """A client that remembers what it said."""

    said = b""

    def send_bytes(self, data: bytes, settle: bool = True) -> None:
        self.said += data
        super().send_bytes(data, settle)


def split(said: bytes, size_at: Callable[[bytes, int], int]) -> tuple[bytes, ...]:
    """The protocol headers and frames, one by one; `size_at` is the size of the frame that begins there."""
    found, at = [], 0
    while at < len(said):
        end = at + (8 if said.startswith(b"AMQP", at) else size_at(said, at))
        found.append(said[at:end])
        at = end
    return tuple(found)

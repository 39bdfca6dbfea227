"""A broker with a stream, and connections that ask for it over HTTP, in memory.

stand = Stand()
stand.publish(b"a")
assert bodies(stand.blocks("from=0")) == [(0, b"a")]
"""

from __future__ import annotations

from collections.abc import Iterator

from leveret.broker import Broker
from leveret.clock import ManualClock
from leveret.config.config import parse
from leveret.durable.store import block
from leveret.features.standard import equip
from leveret.message import Message
from leveret.protocols.http.server import memory_budget as room
from leveret.queues.stream import StreamQueue
from leveret.queues.stream_log import MemoryLog, Raw
from leveret.server.node.assembly import populate
from leveret.values import Table
from tests.harness.bench import ENCODING, Bench
from tests.harness.http import Line, Response
from tests.harness.settings import user, virtual_hosts

CONFIG = parse(
    virtual_hosts("/", "closed")
    + user("reader", "sesame", {"/": {"read": "^s"}})
    + user("writer", "sesame", {"/": {"write": ".*", "configure": ".*"}}, "administrator")
)
STREAM: Table = {"x-queue-type": "stream"}


class HeldLog(MemoryLog):
    """Answers when told, as one that has to read from a disk."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int, int, Raw]] = []

    def raw(self, offset: int, until: int, octets: int, then: Raw) -> None:
        self.asked.append((offset, until, octets, then))

    def land(self) -> None:
        """What was asked for first is there."""
        offset, until, octets, then = self.asked.pop(0)
        super().raw(offset, until, octets, then)

    def fail(self, error: Exception) -> None:
        self.asked.pop(0)[-1](error)


class Stand(Bench):
    """A broker with a stream `s`, and connections to it."""

    def __init__(self) -> None:
        super().__init__(equip(Broker(ManualClock())))
        populate(self.broker, CONFIG)
        self.host = self.broker.virtual_host("/")
        self.stream = self.declare("s")

    def declare(self, name: str) -> StreamQueue:
        queue = self.host.declare_queue(name, durable=True, arguments=STREAM)
        assert isinstance(queue, StreamQueue)
        return queue

    def publish(self, *bodies: bytes, to: str = "s") -> None:
        for body in bodies:
            self.broker.publish(self.host.exchange(""), Message(ENCODING, "", to, b"", body))
        self.broker.settle()

    def ask(self, path: str, user: str = "reader", method: str = "GET", host: str = "%2F") -> Asking:
        asking = Asking(self.broker)
        asking.ask(path, user, method, host)
        return asking

    def blocks(self, query: str) -> Response:
        return self.ask(f"/s/blocks?{query}").response

    @property
    def room(self) -> room.MemoryBudget:
        return room.room_of(self.broker)


class Asking(Line):
    """A connection that asks for what there is in bulk."""

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker, CONFIG)

    def ask(
        self, path: str, user: str = "reader", method: str = "GET", host: str = "%2F", what: str = "streams"
    ) -> None:
        self.send(method, f"/api/leveret/{what}/{host}{path}", login=f"{user}:sesame")


def bodies(response: Response) -> list[tuple[int, bytes]]:
    """Offsets and bodies of an answer with blocks."""
    assert (response.status, response.headers["Content-Type"]) == (200, "application/vnd.leveret.blocks")
    return list(unpacked(response.body))


def unpacked(octets: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(octets):
        read = block.Block(octets, at)
        at += read.header.octets
        for message in block.messages_of(read, lambda name: ENCODING):
            assert message.notes is not None
            assert message.notes.offset is not None
            yield message.notes.offset, message.body


def told(response: Response) -> tuple[int, int, int]:
    """First, next, committed."""
    first, following, committed = (
        int(response.headers[f"Leveret-{name}"]) for name in ("First", "Next", "Committed")
    )
    return first, following, committed

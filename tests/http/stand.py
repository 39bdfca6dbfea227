"""A broker with a stream, and connections that ask for it over HTTP, in memory.

stand = Stand()
stand.publish(b"a")
assert bodies(stand.blocks("from=0")) == [(0, b"a")]
"""

from __future__ import annotations

from collections.abc import Iterator

from broker_core.broker import Broker
from broker_core.clock import ManualClock
from broker_core.config.load import parse
from broker_core.message import Message
from broker_core.node.assembly import populate
from broker_core.outbox import Outbox
from broker_core.queues.stream import StreamQueue
from broker_core.queues.stream_log import MemoryLog, Raw
from broker_core.store import block
from broker_core.values import Table
from protocols.http.registration import PROTOCOL
from protocols.http.server import memory_budget as room
from protocols.http.server.adapter import ControlConnection
from tests.core.fakes import ENCODING
from tests.http.desk import HERE, Response, basic

CONFIG = parse("""
[[virtual_hosts]]
name = "/"
[[virtual_hosts]]
name = "closed"
[[users]]
name = "reader"
password = "sesame"
[users.permissions]
"/" = { read = "^s" }
[[users]]
name = "writer"
password = "sesame"
tags = ["administrator"]
[users.permissions]
"/" = { write = ".*", configure = ".*" }
""")
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


class Stand:
    """A broker with a stream `s`, and connections to it."""

    def __init__(self) -> None:
        self.broker = Broker(ManualClock())
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

    def advance(self, seconds: float) -> None:
        clock = self.broker.clock
        assert isinstance(clock, ManualClock)
        clock.advance(seconds)
        self.broker.tick()
        self.broker.settle()

    def ask(self, path: str, user: str = "reader", method: str = "GET", host: str = "%2F") -> Asking:
        asking = Asking(self.broker)
        asking.ask(path, user, method, host)
        return asking

    def blocks(self, query: str) -> Response:
        return self.ask(f"/s/blocks?{query}").response

    @property
    def room(self) -> room.Room:
        return room.room_of(self.broker)


class Asking:
    """A connection."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        connection = PROTOCOL.factory(broker, CONFIG, Outbox([]), HERE, broker.now)
        assert isinstance(connection, ControlConnection)
        self.connection = connection
        self._method = ""

    def ask(
        self, path: str, user: str = "reader", method: str = "GET", host: str = "%2F", what: str = "streams"
    ) -> None:
        self._method = method
        head = f"{method} /api/leveret/{what}/{host}{path} HTTP/1.1\r\nHost: localhost\r\n"
        octets = f"{head}Authorization: {basic(f'{user}:sesame')}\r\n\r\n".encode()
        self.connection.receive(octets, self.broker.now)

    @property
    def waits(self) -> bool:
        """Whether nothing has been answered yet."""
        return not self.connection.outbox.pieces

    @property
    def response(self) -> Response:
        """The answer, which the peer reads at once."""
        outbox = self.connection.outbox
        octets = b"".join(outbox.take())
        if outbox.sent(len(octets)):
            self.connection.drained()
        return Response(octets, self._method)


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

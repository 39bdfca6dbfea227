"""The clients in memory of tests/amqp091 and tests/amqp10, at the other end of a socket: a whole node is between.

remote = Remote(node)                 # a ThreadedNode; in the place of a ClientBench
channel = remote.channel()            # of tests/amqp091
session = remote.session()            # of tests/amqp10

Whatever is sent has been worked through when the call returns, and what the node has sent by then is there to be read:
a thing that is not there is not late, but held.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import TypeVar

from leveret import Node, ThreadedNode
from leveret.broker import Broker
from leveret.durable.journal import Journal
from leveret.durable.store.contract import NoSpaceError, StoreError
from leveret.durable.store.memory import MemoryStore
from tests.amqp091 import peer as amqp091
from tests.amqp091.peer import ClientChannel
from tests.amqp10 import peer as amqp10
from tests.amqp10.client import Session

T = TypeVar("T")


class Remote:
    """A node that is spoken to over sockets. A context manager, which closes them."""

    def __init__(self, node: ThreadedNode) -> None:
        self.node = node
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Remote:
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._sockets:
            each.close()

    def settle(self) -> None:
        """Until what was sent has been worked through, and what the store has said by now."""
        self.node.wait(Node.quiet)
        self.node.call(lambda: None)

    def call(self, function: Callable[[], T]) -> T:
        """Do something in the node's thread, and let it settle what that caused."""
        try:
            return self.node.call(function)
        finally:
            self.settle()

    def channel(self) -> ClientChannel:
        """Of a connection of its own."""
        return Peer091(self).open().channel()

    def session(self) -> Session:
        """Of a connection of its own."""
        return Peer10(self).log_in().ask_open().begin()

    def connected(self) -> socket.socket:
        """What is sent there has arrived when `sendall` returns."""
        connection = socket.create_connection((self.node.host, self.node.port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._sockets.append(connection)
        return connection

    def received(self, connection: socket.socket) -> bytes:
        """What has come; empty: nothing, or that was the end."""
        self.settle()
        with suppress(BlockingIOError, ConnectionResetError):
            return connection.recv(1 << 20, socket.MSG_DONTWAIT)
        return b""


class Slow(Remote):
    """A node whose disk does what a test says."""

    def __init__(self, node: ThreadedNode, store: MemoryStore) -> None:
        super().__init__(node)
        self.store = store
        self.journal.patience_s = 0.0  # what is to be on disk is on its way at once

    def land(self) -> None:
        """The commit in flight is on disk; the next one is in flight then."""
        self.call(self.store.land)

    def land_all(self) -> None:
        while self.store.flying is not None:
            self.land()

    def fail(self, error: NoSpaceError | StoreError) -> None:
        self.call(lambda: self.store.fail(error))

    def without_waiting(self, act: Callable[[], object]) -> None:
        """With a disk that is fast meanwhile."""
        self.store.held = False
        act()
        self.store.held = True

    @property
    def broker(self) -> Broker:
        return self.node.node.broker

    @property
    def journal(self) -> Journal:
        assert self.broker.journal is not None
        return self.broker.journal


class OverSocket:
    """Bytes go over a socket, and have been worked through when a call returns."""

    def send_bytes(self, octets: bytes, settle: bool = True) -> None:
        self.socket.sendall(octets)
        if settle:
            self.bench.settle()

    def take_bytes(self) -> bytes:
        return self.bench.received(self.socket)


class Peer091(OverSocket, amqp091.Peer):
    def __init__(self, remote: Remote) -> None:
        self.bench = remote
        self.socket = remote.connected()
        self.front = SimpleNamespace(wire=SimpleNamespace(frame_max=131_072))
        self.received = deque()
        self.heartbeats, self.greeting = 0, b""
        self._buffer, self._partial = b"", {}


class Peer10(OverSocket, amqp10.Peer):
    def __init__(self, remote: Remote) -> None:
        self.bench = remote
        self.socket = remote.connected()
        self.headers, self.mechanisms, self.sasl = [], None, deque()
        self.opened = self.closed = None
        self.empty_frames, self.sessions, self.frame_size_max = 0, {}, 131_072
        self._heard, self._buffer = [], b""


class Gone:
    """In the place of a Remote whose node has ended."""

    def received(self, connection: object) -> bytes:
        try:
            return connection.recv(1 << 20)
        except ConnectionResetError:
            return b""

    def settle(self) -> None:
        """Nothing will come."""

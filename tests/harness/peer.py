"""A client's end of a connection that is joined to a broker in memory, without a socket.

Each protocol's peer.py has the client that speaks it.
"""

from __future__ import annotations

from typing import Any, ClassVar

from leveret.front_end import Peer as Address
from leveret.outbox import Outbox

from .bench import ClientBench

LOOPBACK = Address("127.0.0.1", 40000, "127.0.0.1", 5672, True)
ELSEWHERE = Address("192.0.2.7", 40000, "192.0.2.1", 5672, False)


class JoinedPeer:
    """One connection, seen from the client. `adapter` is the class of the broker's end."""

    adapter: ClassVar[Any]

    def __init__(self, bench: ClientBench | None = None, address: Address = LOOPBACK) -> None:
        self.bench = bench = bench or ClientBench()
        limits = bench.config.limits
        self.outbox = Outbox(bench.ready, limits.outbox_size_max, bench.config.message_size_max)
        self.front = self.adapter(bench.broker, bench.config, self.outbox, address, bench.broker.tick())
        self.intake = self.front.intake()
        self._buffer = b""  # what came of a frame that is not whole
        self._unread: list[bytes] = []  # sent while the broker did not read from us
        bench.peers.append(self)

    def send_bytes(self, data: bytes, settle: bool = True) -> None:
        if self.front.blocked:
            self._unread.append(data)
            return
        self.intake.receive(data, self.bench.broker.tick())
        if settle:
            self.bench.settle()
        if self.front.halted and not self.outbox.full:
            self.send_bytes(b"", settle)

    def read_on(self) -> None:
        """Send what was kept while the broker did not read from us, as far as it reads now."""
        unread, self._unread = self._unread, []
        for data in unread:
            self.send_bytes(data)

    def take_bytes(self) -> bytes:
        """Everything sent since the last time; as if the operating system had taken it."""
        data = b"".join(self.outbox.take())
        if self.outbox in self.bench.ready:
            self.bench.ready.remove(self.outbox)
        if self.outbox.sent(len(data)):
            self.front.drained()
        return data

    def read(self) -> None:
        """Work in what the broker has sent."""
        while data := self.take_bytes():
            self.hear(data)
            self.bench.settle()

    def hear(self, data: bytes) -> None:
        """Work in these bytes."""
        raise NotImplementedError

    def drop(self) -> None:
        """The transport is gone."""
        self.bench.broker.tick()
        self.front.lost()
        if self in self.bench.peers:  # else it had gone already
            self.bench.peers.remove(self)
        self.bench.settle()

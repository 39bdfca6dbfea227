"""Readers with leases, as tests use them: every verb goes on until there is nothing left to do at once.

reader = Leased(queue)
assert reader.reserve(messages=2).bodies() == "a b"
"""

from __future__ import annotations

from leveret.broker import Broker
from leveret.durable.store import block
from leveret.errors import Failure
from leveret.features.leases.lease import Lease, opened
from leveret.features.leases.reservation import Reservation
from leveret.message import Message
from leveret.queues.place import delivery_at
from leveret.queues.queue import Queue
from tests.harness.bench import ENCODING

PLENTY = 1 << 30
NO_MESSAGE = Message(ENCODING, "", "", b"", b"")


def settle_down(broker: Broker) -> None:
    """One turn after the other, as long as one is due."""
    broker.settle()
    while broker.touched or ((at := broker.timers.next_at()) is not None and at <= broker.now):
        broker.settle()


class Leased:
    """Who has opened a lease of a queue."""

    def __init__(self, queue: Queue, reader: str = "r") -> None:
        self.broker = queue.virtual_host.broker
        self.lease: Lease = opened(queue, reader)
        self.fence = self.lease.fence
        self.told: list[Failure | None] = []  # how each request ended
        self.asking: Reservation | None = None
        settle_down(self.broker)

    def reserve(
        self, messages: int = PLENTY, begin: int | None = None, octets: int = PLENTY, wait_s: float = 0.0
    ) -> Leased:
        at = self.lease.first if begin is None else begin
        self.asking = self.lease.reserve(at, messages, octets, wait_s, self.told.append)
        settle_down(self.broker)
        return self

    def settle(self, until: int) -> Leased:
        self.lease.settle(until)
        settle_down(self.broker)
        return self

    def release(self, for_good: bool = False) -> Leased:
        self.lease.release(self.told.append, for_good)
        settle_down(self.broker)
        return self

    def drop(self) -> None:
        """Its connection is lost."""
        assert self.asking is not None
        self.asking.drop()
        settle_down(self.broker)

    @property
    def state(self) -> tuple[int, int]:
        """First and next offset, as readers are told."""
        return self.lease.first, self.lease.log.committed

    def rows(self) -> list[tuple[int, bytes, int]]:
        """Offset, body and noted position of everything it can read."""
        found: list[tuple[int, bytes, int]] = []
        offset = self.lease.first
        while octets := self._raw(offset):
            at = 0
            while at < len(octets):
                read = block.Block(octets, at)
                at += read.header.octets
                bodies = [each.body for each in block.messages_of(read, {ENCODING.name: ENCODING}.get)]
                assert read.positions is not None
                rows = zip(
                    range(read.header.first, read.header.next), bodies, read.positions.tolist(), strict=True
                )
                found += [row for row in rows if row[0] >= offset]
                offset = read.header.next
        assert [row[0] for row in found] == [*range(*self.state)]
        return found

    def _raw(self, offset: int) -> bytes:
        got: list[bytes | Exception] = []
        self.lease.log.raw(offset, self.lease.log.committed, 1 << 20, got.append)
        assert len(got) == 1
        assert isinstance(got[0], bytes), got[0]
        return got[0]

    def arrivals(self) -> list[int]:
        """When each message that it can read came into the queue, in ms since 1970."""
        octets, at, found = self._raw(self.lease.first), 0, []
        while at < len(octets):
            read = block.Block(octets, at)
            at += read.header.octets
            assert read.arrivals is not None
            found += read.arrivals.tolist()
        return found

    def bodies(self) -> str:
        """Everything it can read, in order."""
        return b" ".join(body for _, body, _ in self.rows()).decode()

    def places(self) -> list[tuple[int, bool]]:
        """Where each stood in the queue, and whether it had been delivered before."""
        found = (delivery_at(place, NO_MESSAGE, self.lease.queue) for _, _, place in self.rows())
        return [(each.position, each.redelivered) for each in found]

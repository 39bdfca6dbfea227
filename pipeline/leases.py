"""Queues in the form that the planner needs: with a first and a last offset, of which a micro-batch gets a part.

A queue has no offsets. Its lease assigns them to messages as they are reserved, so the end of a queue is an estimate:
the reserved messages and as many more as wait now. The real end of a micro-batch is known when it has reserved them.

    opened ── settled up to where the last micro-batch ended ── reserved ──> read by tasks ── settled ...

Nothing is released when a query stops: it may go on from its checkpoint, and finds the same messages at the same
offsets.
"""

from __future__ import annotations

from typing import Final, Protocol

import attrs

from leveret.pipeline.client import NO_FENCE, Fetched, Lease, Stream
from leveret.pipeline.errors import Ahead, Missing
from leveret.pipeline.offsets import Mark

MESSAGES_MAX: Final = 1_000_000  # of a queue reserved at a time: the broker's own limits
OCTETS_MAX: Final = 1 << 30
NOTHING_RESERVED: Final = (
    "spark.read gives the messages of a queue that are reserved under readerName: reserve them with"
    " leveret.pipeline.queue_batch.QueueBatch, or read with spark.readStream and trigger(availableNow=True)"
)


class LeaseBroker(Protocol):
    """The requests about leases, which a `Client` can make."""

    def lease(self, queue: str) -> Lease: ...
    def open_lease(self, queue: str) -> tuple[Lease, int]: ...
    def settle(self, queue: str, fence: int, until: int) -> Lease: ...
    def reserve(self, queue: str, fence: int, begin: int, messages: int, octets: int) -> Lease: ...
    def leased_blocks(self, queue: str, fence: int, incarnation: str, first: int, until: int) -> Fetched: ...


class Opened:
    """A lease that this query has opened."""

    __slots__ = ("done", "fence", "lease")

    def __init__(self, lease: Lease, fence: int) -> None:
        self.lease = lease  # as in the broker's last answer
        self.fence = fence
        self.done = lease.first  # messages below are in the table


class Leases:
    """The leases of one query, in the driver."""

    def __init__(self, broker: LeaseBroker) -> None:
        self._broker = broker
        self._opened: dict[str, Opened] = {}

    def look(self, queue: str, done: Mark | None = None) -> Stream:
        """Return the present state. Messages below `done` are in the table, and are settled. Raises Fenced, Missing."""
        opened = self._opened.get(queue) or self._open(queue)
        if done is not None and done.incarnation == opened.lease.incarnation:
            opened.done = max(opened.done, min(done.next, opened.lease.next))
        try:
            opened.lease = self._broker.settle(queue, opened.fence, opened.done)
        except (Missing, Ahead):  # gone, perhaps with the queue, or begun anew: opening it tells
            opened = self._open(queue)
        lease = opened.lease
        end = lease.next + lease.ready
        return Stream(queue, lease.incarnation, lease.first, end, lease.messages, lease.octets)

    def settle(self, queue: str, done: Mark) -> None:
        """Settle the messages below `done`, which are in the table, unless `look` has done so already."""
        opened = self._opened.get(queue)
        if opened is None or opened.lease.incarnation != done.incarnation or done.next <= opened.lease.first:
            return
        self.look(queue, done)

    def reserve(self, queue: str, begin: int, messages: int, octets: int) -> int:
        """Reserve so many messages from `begin` on, as far as they exist; return the offset behind them. Raises Fenced.

        Messages beyond the broker's limits are left for the next micro-batch.
        """
        opened = self._opened[queue]
        wanted = min(messages, MESSAGES_MAX)
        while True:
            before = opened.lease.next
            lease = self._broker.reserve(queue, opened.fence, begin, wanted, min(octets, OCTETS_MAX))
            opened.lease = lease
            if lease.next >= begin + wanted or lease.next <= before or not lease.ready:
                return min(lease.next, begin + wanted)

    def fence(self, queue: str) -> int:
        return self._opened[queue].fence

    def _open(self, queue: str) -> Opened:
        lease, fence = self._broker.open_lease(queue)
        opened = self._opened[queue] = Opened(lease, fence)
        return opened


class HeldLeases(Leases):
    """Leases as batch reads see them: they give the messages that are reserved, and neither reserve nor settle any."""

    def look(self, queue: str, done: Mark | None = None) -> Stream:
        try:
            lease = self._broker.lease(queue)
        except Missing as missing:
            raise Missing(f"{missing}. {NOTHING_RESERVED}") from None
        return Stream(queue, lease.incarnation, lease.first, lease.next, lease.messages, lease.octets)

    def fence(self, queue: str) -> int:
        return NO_FENCE


@attrs.frozen
class LeasedBlocks:
    """Fetches blocks of a queue for a task, which uses the lease that its query has opened."""

    broker: LeaseBroker
    fence: int  # or `NO_FENCE`

    def blocks(self, name: str, incarnation: str, first: int, until: int) -> Fetched:
        return self.broker.leased_blocks(name, self.fence, incarnation, first, until)

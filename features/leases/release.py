"""A release puts the messages of a lease back into their old places in the queue, a portion in each turn.

    begin ──all that was reserved is on disk──> read ──> a portion in the queue again ──on disk──> the next portion
                                                                                             └─ no more ──> answered

One commit puts a portion into the queue and removes it from the lease: a crash in the middle of a release loses nothing
and duplicates nothing. Damaged messages cannot go back; they are skipped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from leveret.broker import Publisher
from leveret.errors import Failure
from leveret.queues.place import delivery_at

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.features.leases.lease import Lease, Then
    from leveret.message import Encoding

PORTION: Final = 1_000  # messages that are put back in one turn: 5 ms
READ_OCTETS: Final = 1 << 18  # bytes that are read at once, plus up to a block


class UnreadableRows(Failure):
    """The messages to release cannot be read now. They stay in the lease."""


class Release(Publisher):
    """A release in progress. `for_good`: the lease ends after it. `then` is called with its result."""

    __slots__ = (
        "_at",
        "_blocks",
        "_blocks_at",
        "_deliveries",
        "_lease",
        "_over",
        "_then",
        "for_good",
        "released",
    )
    persistent = True

    def __init__(self, lease: Lease, then: Then, for_good: bool) -> None:
        self.for_good = for_good
        self.released = 0  # messages
        self._lease = lease
        self._then = then
        self._over = False
        self._blocks = b""  # the blocks that were read
        self._blocks_at = 0  # blocks before this have been made deliveries
        self._deliveries: list[Delivery] = []  # of the last block
        self._at = 0  # deliveries before this have been put back

    def begin(self) -> None:
        self._soon(self._join)

    def _soon(self, step: Callable[[float], None]) -> None:
        """Run a step in the next turn, which follows at once."""
        self._lease.queue.settling.later(0.0, step)

    # The publisher, told of what is on disk.

    def _join(self, now: float) -> None:
        if not self._over:
            self._lease.queue.settling.publishers.append(self)

    def mark(self) -> int:
        return self._lease.closed_commit

    def taken(self, mark: int) -> None:
        if self._over:
            return
        lease = self._lease
        if lease.durable_commit < mark:  # called at once, as nothing of it is in the open commit
            self._join(0.0)
        elif lease.first < lease.log.next:
            self._soon(self._go_on)
        elif self.for_good and not lease.ended:
            lease.forget()
            self._soon(self._join)
        else:
            self.end(None)

    # Portions. Modules of the store are imported on use, as a node in memory does not need them.

    def _go_on(self, now: float) -> None:
        from leveret.durable.store.contract import DamagedError

        if self._over:
            return
        try:
            if self._at < len(self._deliveries) or self._unpacks():
                self._put_back()
                self._join(now)
                return
        except DamagedError as error:  # the protocol of a message is not installed
            self.end(UnreadableRows(f"{self._lease.described} cannot be released: {error}"))
            return
        found = self._lease.log
        found.raw(self._lease.first, found.committed, READ_OCTETS, self._arrived)

    def _arrived(self, result: bytes | Exception) -> None:
        from leveret.durable.store.contract import DamagedError

        if self._over:
            return
        if isinstance(result, bytes):
            self._blocks, self._blocks_at = result, 0
            self._soon(self._go_on)
        elif isinstance(result, DamagedError) and result.next is not None:
            self._lease.pass_over(min(result.next, self._lease.log.next))
            self._soon(self._join)
        else:
            self.end(UnreadableRows(f"{self._lease.described} cannot be read: {result}"))

    def _unpacks(self) -> bool:
        """Make deliveries of the next block that was read; False if there is none. Raises DamagedError."""
        from leveret.durable.store import block

        if self._blocks_at >= len(self._blocks):
            return False
        lease, queue = self._lease, self._lease.queue
        read = block.Block(self._blocks, self._blocks_at)
        self._blocks_at += read.header.octets
        messages = block.messages_of(read, self._encodings(), noted=False)
        assert read.positions is not None, "a lease knows the place of each of its messages"
        places = read.positions.tolist()
        self._deliveries = [
            delivery_at(place, message, queue) for message, place in zip(messages, places, strict=True)
        ]
        self._at = max(0, lease.first - read.header.first)  # those before are settled
        lease.pass_over(max(lease.first, read.header.first))  # there may be gaps where blocks were damaged
        return True

    def _put_back(self) -> None:
        lease, end = self._lease, self._at + PORTION
        portion = self._deliveries[self._at : end]
        lease.put_back(portion)
        self._at = end
        self.released += len(portion)

    def _encodings(self) -> Callable[[str], Encoding | None]:
        """Return a function from a name to an encoding. Without a store, those of the messages in memory are used."""
        journal, lease = self._lease.queue.settling.journal, self._lease
        if journal is not None:
            return journal.encoding
        found = lease.log.read(lease.first, READ_OCTETS, READ_OCTETS)
        return {each.encoding.name: each.encoding for each in (found[1] if found else ())}.get

    # The end.

    def end(self, why: Failure | None) -> None:
        if not self._over:
            self._over = True
            if self._lease.work is self:
                self._lease.work = None
            self._then(why)

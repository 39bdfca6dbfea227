"""A release: what a lease has goes back to its old places in the queue, a portion in each turn.

    begin ──all that was reserved is on disk──> read a portion ──> in the queue again ──on disk──> the next portion
                                                                                        └─ no more ──> answered

That a portion is in the queue again and that the lease has it no more is one commit: a crash in the middle of a release
loses nothing and doubles nothing. What is damaged cannot go back; it is passed over.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from broker_core.broker import Publisher
from broker_core.delivery import NEVER, Delivery
from broker_core.errors import Failure
from broker_core.log import unnumbered

if TYPE_CHECKING:
    from broker_core.lease import Lease, Then
    from broker_core.message import Encoding

PORTION_OCTETS: Final = 1 << 18  # that are put back in one turn, and a block


class Unreadable(Failure):
    """What should go back cannot be read now. It stays in the lease."""


class Release(Publisher):
    """One request to release. `for_good`: then the lease ends. `then` is told how it ended."""

    __slots__ = ("_lease", "_over", "_then", "for_good", "released")
    persistent = True

    def __init__(self, lease: Lease, then: Then, for_good: bool) -> None:
        self.for_good = for_good
        self.released = 0  # messages
        self._lease = lease
        self._then = then
        self._over = False

    def begin(self) -> None:
        self._soon(self._join)

    def _soon(self, step: Callable[[float], None]) -> None:
        """In the next turn; it comes at once."""
        broker = self._lease.queue.virtual_host.broker
        broker.timers.at(broker.now, step)

    # Told of what is on disk.

    def _join(self, now: float) -> None:
        if not self._over:
            self._lease.queue.virtual_host.broker.publishers.append(self)

    def mark(self) -> int:
        return self._lease.log.next

    def taken(self, mark: int) -> None:
        if self._over:
            return
        lease = self._lease
        if lease.log.committed < lease.log.next:  # a commit that was closed before is on its way
            self._join(0.0)
        elif lease.first < lease.log.next:
            self._soon(self._read)
        elif self.for_good and not lease.ended:
            lease.forget()
            self._soon(self._join)
        else:
            self.end(None)

    # A portion.

    # What is of the store is loaded when it is asked for: a node in memory need not.

    def _read(self, now: float) -> None:
        if not self._over:
            found = self._lease.log
            found.raw(self._lease.first, found.committed, PORTION_OCTETS, self._arrived)

    def _arrived(self, found: bytes | Exception) -> None:
        from broker_core.store.contract import DamagedError

        if self._over:
            return
        lease = self._lease
        if isinstance(found, DamagedError) and found.next is not None:
            lease.pass_over(min(found.next, lease.log.next))
        elif isinstance(found, Exception):
            self.end(Unreadable(f"{lease.described} cannot be read: {found}"))
        else:
            try:
                self._put_back(found)
            except DamagedError as error:
                self.end(Unreadable(f"{lease.described} cannot be released: {error}"))
        self._soon(self._join)

    def _put_back(self, octets: bytes) -> None:
        """Raises DamagedError, and then nothing is put back: a protocol that is needed is not installed."""
        from broker_core.store import block

        lease, queue = self._lease, self._lease.queue
        encoding_of, deliveries = self._encodings(), []
        at, following = 0, lease.first
        while at < len(octets):
            read = block.Block(octets, at)
            assert read.positions is not None, "a lease knows the place of each of its messages"
            messages = block.messages_of(read, encoding_of)
            settled = max(0, lease.first - read.header.first)
            for message, position in zip(messages[settled:], read.positions.tolist()[settled:], strict=True):
                deliveries.append(Delivery(unnumbered(message), queue, position // 2, NEVER))
            at += read.header.octets
            following = read.header.next
        for delivery in deliveries:
            queue.take_back(delivery)
        self.released += len(deliveries)
        lease.advance(following)

    def _encodings(self) -> Callable[[str], Encoding | None]:
        """By name. Without a store the messages are in memory, and know theirs."""
        journal, lease = self._lease.queue.virtual_host.broker.journal, self._lease
        if journal is not None:
            return journal.encoding
        found = lease.log.read(lease.first, PORTION_OCTETS, PORTION_OCTETS)
        return {each.encoding.name: each.encoding for each in (found[1] if found else ())}.get

    # The end.

    def end(self, why: Failure | None) -> None:
        if not self._over:
            self._over = True
            if self._lease.work is self:
                self._lease.work = None
            self._then(why)

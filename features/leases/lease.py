"""Leases set messages of a work queue aside for one reader, which may read them repeatedly until it settles them.

    queue ──reserve──> log: reserved, with offsets ──settle──> gone
      ^                       │
      └───────release─────────┘

A lease has a log of its own. To reserve messages is to take them out of the queue and to append them to the log, in
one commit: so they have offsets, and a reader that begins again reads the same ones. Settled messages are gone;
released ones go back to their old places in the queue. Until then they count as unsettled there: they do not expire,
stay when the queue is purged, and are deleted with it.

Opening a lease gives it a new `fence`, which shuts out the client that had opened it before.

One operation at a time is in progress: a `Reservation` (reservation.py) or a `Release` (release.py). Its progress is
noted in the log, and so in the same commit as what it did.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.catalogue import LEASE
from leveret.errors import Failure, NotFound, PreconditionFailed, TooMany, no_queue
from leveret.features.leases.release import Release
from leveret.features.leases.reservation import Reservation
from leveret.guests import Guest
from leveret.queues.place import packed_place
from leveret.queues.queue import require_access
from leveret.queues.stream_log import Log, MemoryLog
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.durable.journal import Journal
    from leveret.queues.contract import QueueHost
    from leveret.queues.queue import Queue

log: Final = logging.getLogger("leveret.store")

LEASES_MAX: Final = 1000  # of a virtual host
READER_MAX: Final = 255  # bytes of its name
SETTLED: Final = "settled"  # note in the log: messages below this offset are settled
POSITION: Final = "position"  # note in the log: above the queue positions of all messages in it
PIECE: Final = 2_000  # messages whose bytes are counted together

Then: TypeAlias = Callable[[Failure | None], None]
"""Called when an operation has ended: with its failure, or with None when it is done and on disk."""


class Fenced(PreconditionFailed):
    """Another client has opened the lease since."""


class Leases(Guest):
    """The leases of a virtual host."""

    def __init__(self, host: QueueHost) -> None:
        self.found: dict[tuple[str, str], Lease] = {}  # by queue and reader

    def queue_deleted(self, queue: Queue) -> None:
        """End the leases of a queue. Their names are free at once, also while the queue waits for its messages."""
        for key in [key for key, lease in self.found.items() if lease.queue is queue]:
            self.found.pop(key).end()

    def reserved(self, queue: Queue) -> int:
        """Return how many messages the leases of a queue hold."""
        return sum(lease.messages for lease in self.found.values() if lease.queue is queue)


class Busy(Failure):
    """Another operation has to finish first; the request may be repeated."""


class Lease:
    """A lease holds the messages of one queue that are reserved for one reader."""

    __slots__ = (
        "_lookouts",
        "_sizes",
        "ended",
        "fence",
        "first",
        "incarnation",
        "log",
        "number",
        "queue",
        "reader",
        "work",
    )

    def __init__(self, queue: WorkQueue, reader: str) -> None:
        self.queue = queue
        self.reader = reader
        # Rises each time it is opened; requests need the latest one. It starts at random, so that the fence of an
        # earlier lease of the same name does not fit by chance.
        self.fence = secrets.randbits(40)
        self.incarnation = secrets.token_hex(8)  # differs from that of an earlier lease of the same name
        self.number = 0  # in the store
        self.log: Log = MemoryLog()
        self.first = 0  # messages below this offset are settled
        self.ended = False
        self.work: Reservation | Release | None = None  # the operation in progress
        self._sizes = Sizes()
        self._lookouts: dict[Callable[[], None], None] = {}

    @property
    def stored_as(self) -> tuple[str, ...]:
        return LEASE, self.queue.virtual_host.name, self.queue.name, self.reader

    @property
    def described(self) -> str:
        """The lease as error texts name it."""
        return f"lease '{self.reader}' of {self.queue.described}"

    @property
    def messages(self) -> int:
        """The number of reserved messages."""
        return self.log.next - self.first

    @property
    def octets(self) -> int:
        """The bytes of the bodies of reserved messages, roughly."""
        return self._sizes.total

    def keep_in(self, journal: Journal, number: int) -> None:
        """Keep the lease in the store, under this number. Called before it is used."""
        self.number = number
        self.log = journal.open_log(number, self.described, self._committed)
        self.log.remembers = False

    def begin(self) -> None:
        """Restore the state of a lease that has come back at a start, with its log."""
        found, settled = self.log, self.log.sequences.get(SETTLED, 0)
        self.first = min(max(settled, found.first), found.next)
        if self.first != settled:
            log.error("%s has lost messages from offset %d on", self.described, min(settled, self.first))
            found.note(SETTLED, self.first)
        if settled > found.next:  # offsets that were used will be used again
            self.incarnation = secrets.token_hex(8)
            self._keep()
        octets = found.octets * self.messages // max(1, found.messages)
        self.queue.set_aside(self.messages, octets, found.sequences.get(POSITION, 0))
        self._sizes.add(self.first, found.next, octets)

    def _keep(self) -> None:
        catalogue = self.queue.settling.catalogue
        if catalogue is not None:
            catalogue.keep(self)

    @property
    def closed_commit(self) -> int:
        """The last closed commit: all changes so far are in it, in an earlier one, or in the open one."""
        journal = self.queue.settling.journal
        return 0 if journal is None else journal.open - 1

    @property
    def durable_commit(self) -> int:
        """The last commit on disk."""
        journal = self.queue.settling.journal
        return 0 if journal is None else journal.durable

    # Ownership.

    def open(self) -> int:
        """Shut out the client that had the lease, and return the new fence."""
        self.fence += 1
        self.stop(Fenced(f"somebody else has opened {self.described}"))
        self._keep()
        self._is_used()
        self._committed()
        return self.fence

    def require(self, fence: int) -> None:
        """Raise Fenced if this is not the current fence."""
        if fence != self.fence:
            raise Fenced(f"somebody else has opened {self.described}")

    def _is_used(self) -> None:
        self.queue.used_at = self.queue.settling.now

    # Messages.

    def reserve(self, begin: int, messages: int, octets: int, wait_s: float, then: Then) -> Reservation:
        """Settle messages below `begin`, and reserve until there are `messages`, or `octets` of bodies, from there on.

        The reservation waits up to `wait_s` seconds for the first message. An earlier one ends and is answered with
        what there is. Raises Busy during a release, AccessRefused if the queue admits no further consumer.
        """
        self.settle(begin)
        self.stop(None)
        reservation = Reservation(self, begin + messages, octets, then)
        reservation.begin(wait_s)
        self.work = reservation
        return reservation

    def take(self, deliveries: list[Delivery]) -> int:
        """Move deliveries from the queue to the lease; return the bytes of their bodies."""
        settling = self.queue.settling
        wall = settling.clock.wall()
        now_ms = int(wall * 1000)
        arrived_at = (
            settling.journal.arrival_times.of if settling.journal is not None else lambda number: None
        )
        append, begin, octets = self.log.append, self.log.next, 0
        for delivery in deliveries:
            # What is in memory only has no number, and counts as arrived now.
            arrived = arrived_at(delivery.stored) if delivery.stored > 0 else None
            append(delivery.message, wall, packed_place(delivery), now_ms if arrived is None else arrived)
            octets += delivery.message.size
        self.queue.forget(deliveries)  # in the same commit that has them in the log
        self.log.note(POSITION, self.queue.position)
        self._sizes.add(begin, self.log.next, octets)
        if self.log.committed == self.log.next:
            self._committed()
        return octets

    def settle(self, until: int) -> None:
        """Accept the messages below an offset. Raises Busy during a release."""
        self._require_no_release()
        if until > self.first:
            count = until - self.first
            self.queue.accepted_elsewhere(count, self.advance(until))
        self._is_used()

    def pass_over(self, until: int) -> None:
        """Skip the messages below an offset, which are lost: neither in the lease nor in the queue."""
        if until > self.first:
            count = until - self.first
            self.queue.lost(count, self.advance(until))

    def put_back(self, portion: Sequence[Delivery]) -> None:
        """Let the first messages of the lease wait in their queue again."""
        octets = 0
        for delivery in portion:
            self.queue.take_back(delivery)
            octets += delivery.message.size
        self.queue.lost(
            0, self.advance(self.first + len(portion)) - octets
        )  # what the lease has them down for

    def advance(self, until: int) -> int:
        """Drop the messages below an offset from the lease, and return their bytes, roughly."""
        before = self._sizes.total
        self.first = until
        self._sizes.drop_until(until)
        self.log.note(SETTLED, until)
        self.log.drop_until(until)
        return before - self._sizes.total

    def release(self, then: Then, for_good: bool = False) -> Release:
        """Put unsettled messages back, marked as redelivered. `for_good`: then end the lease. Raises Busy."""
        self._require_no_release()
        self.stop(Busy(f"{self.described} is being released"))
        self.work = Release(self, then, for_good)
        self.work.begin()
        return self.work

    def _require_no_release(self) -> None:
        if isinstance(self.work, Release):
            raise Busy(f"{self.described} is being released")

    def stop(self, why: Failure | None) -> None:
        """End the operation in progress, if there is one; what it has done so far stays done."""
        work, self.work = self.work, None
        if work is not None:
            work.end(why)

    # Reading.

    def look_out(self, tell: Callable[[], None]) -> None:
        """Have a function called once, when there is more to read, or the lease was opened or has ended."""
        self._lookouts[tell] = None

    def look_away(self, tell: Callable[[], None]) -> None:
        """Take back a `look_out`."""
        self._lookouts.pop(tell, None)

    def _committed(self) -> None:
        """Tell readers that there is more in the log, or another change; in the next turn, as they may do much then."""
        if self._lookouts:
            self.queue.settling.later(0.0, self._tell)

    def _tell(self, now: float) -> None:
        lookouts, self._lookouts = self._lookouts, {}
        for tell in lookouts:
            tell()

    # The end.

    def forget(self) -> None:
        """Remove the lease, which is empty and not needed any more, from the virtual host."""
        self.work = None
        leases_of(self.queue.virtual_host).pop((self.queue.name, self.reader), None)
        self.end()

    def end(self) -> None:
        """End the lease with all its messages: its queue is deleted, or it is not needed any more."""
        self.ended = True
        settling = self.queue.settling
        self.stop(no_queue(self.queue.name, self.queue.virtual_host.name))
        if settling.catalogue is not None:
            settling.catalogue.forget(self)
        settling.discarded.add(self.log.end(), settling.now)
        self.log = MemoryLog()
        self._committed()


def opened(queue: Queue, reader: str) -> Lease:
    """Open the lease of a queue and reader, creating it if needed. Raises Locked, PreconditionFailed, TooMany."""
    leases = leases_of(queue.virtual_host)
    lease = leases.get((queue.name, reader))
    if lease is None:
        lease = leases[queue.name, reader] = new_lease(queue, reader)
    lease.open()
    return lease


def new_lease(queue: Queue, reader: str) -> Lease:
    """Return a new lease, which the caller puts in place. Raises Locked, PreconditionFailed, TooMany."""
    if not isinstance(queue, WorkQueue):
        raise PreconditionFailed(f"{queue.described} is a stream: it is read as it is, without a lease")
    require_access(queue, None)
    if queue.limits.group_key is not None:
        raise PreconditionFailed(
            f"{queue.described} has message groups, and a lease would hold all of them up"
        )
    if queue.auto_delete:
        raise PreconditionFailed(f"{queue.described} is auto-delete: it would go when the first reading ends")
    if not 0 < len(reader.encode("utf-8", "surrogateescape")) <= READER_MAX:
        raise PreconditionFailed(f"the name of a reader has 1 to {READER_MAX} octets")
    host = queue.virtual_host
    if len(leases_of(host)) >= LEASES_MAX:
        raise TooMany(f"vhost '{host.name}' has {LEASES_MAX} leases, and cannot have more")
    return Lease(queue, reader)


def leases_of(host: QueueHost) -> dict[tuple[str, str], Lease]:
    """Return the leases of a virtual host by queue and reader."""
    return host.guest(Leases).found


def lease_of(host: QueueHost, queue: str, reader: str) -> Lease:
    """Return the lease of a queue and reader. Raises NotFound."""
    if (lease := leases_of(host).get((queue, reader))) is None:
        raise no_lease(queue, reader, host.name)
    return lease


def no_lease(queue: str, reader: str, host: str) -> NotFound:
    return NotFound(f"no lease '{reader}' of queue '{queue}' in vhost '{host}'")


class Sizes:
    """The bytes of message bodies by offset: exact at the ends of pieces, estimated within them."""

    __slots__ = ("_pieces", "total")

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, int, int]] = deque()  # first, next, octets
        self.total = 0

    def add(self, first: int, following: int, octets: int) -> None:
        """Add messages at offsets that follow the last ones."""
        if self._pieces and following - self._pieces[-1][0] <= PIECE:
            begin, _, more = self._pieces.pop()
            self._pieces.append((begin, following, more + octets))
        elif following > first:
            self._pieces.append((first, following, octets))
        self.total += octets

    def drop_until(self, offset: int) -> None:
        while self._pieces and self._pieces[0][0] < offset:
            first, following, octets = self._pieces.popleft()
            left = 0
            if following > offset:
                left = octets * (following - offset) // (following - first)
                self._pieces.appendleft((offset, following, left))
            self.total -= octets - left

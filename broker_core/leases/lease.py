"""Leases: messages of a work queue, set aside for one reader, to be read as often as it likes until it settles them.

    queue ──reserve──> log: reserved, with offsets ──settle──> gone
      ^                       │
      └───────release─────────┘

A lease has a log of its own. To reserve messages is to take them out of the queue and to append them to the log, in
one commit: so they have offsets, and a reader that begins again reads the same ones. What is settled is gone; what is
released goes back to its old place in the queue. Until then they count as unsettled there: they do not expire, stay
when the queue is purged, and go with it.

Who opens a lease gets its `fence`, and whoever had it before is shut out.

One thing at a time is under way: a `Reservation` (reserving.py) or a `Release` (releasing.py). How far they went is
noted in the log, and so in the same commit as what they did.
"""

from __future__ import annotations

import logging
import secrets
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from broker_core.errors import Failure, NotFound, PreconditionFailed, TooMany, no_queue
from broker_core.leases.release import Release
from broker_core.leases.reservation import Reservation
from broker_core.queues.stream_log import Log, MemoryLog
from broker_core.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from broker_core.delivery import Delivery
    from broker_core.durability.journal import Journal
    from broker_core.queues.queue import Queue
    from broker_core.virtual_host import VirtualHost

log: Final = logging.getLogger("leveret.store")

LEASES_MAX: Final = 1000  # of a virtual host
READER_MAX: Final = 255  # octets of its name
SETTLED: Final = "settled"  # notes in the log: what is below this offset is done with,
POSITION: Final = "position"  # and all places in the queue that messages in the log had are below this one
PIECE: Final = 2_000  # messages whose octets are counted together

Then: TypeAlias = Callable[[Failure | None], None]
"""Told when something that was under way has ended: why it failed, or that it is done, and on disk."""


class Fenced(PreconditionFailed):
    """Somebody else has opened the lease since."""


class Busy(Failure):
    """Something else has to be finished first; it may be asked again."""


class Lease:
    """What one reader has of one queue."""

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
        # Rises each time it is opened; only who knows the last one may change anything. That of an earlier lease of
        # the same name should not fit by chance.
        self.fence = secrets.randbits(40)
        self.incarnation = secrets.token_hex(8)  # another one for another lease of the same name
        self.number = 0  # in the store
        self.log: Log = MemoryLog()
        self.first = 0  # what is below is settled
        self.ended = False
        self.work: Reservation | Release | None = None  # what is under way
        self._sizes = Sizes()
        self._lookouts: dict[Callable[[], None], None] = {}

    @property
    def described(self) -> str:
        """The lease as error texts name it."""
        return f"lease '{self.reader}' of {self.queue.described}"

    @property
    def messages(self) -> int:
        """How many are reserved."""
        return self.log.next - self.first

    @property
    def octets(self) -> int:
        """Of the bodies of what is reserved, roughly."""
        return self._sizes.total

    def keep_in(self, journal: Journal, number: int) -> None:
        """It outlives the node. Said before it is used."""
        self.number = number
        self.log = journal.open_log(number, self.described, self._committed)
        self.log.remembers = False

    def begin(self) -> None:
        """It has come back at a start, with its log."""
        found, settled = self.log, self.log.sequences.get(SETTLED, 0)
        self.first = min(max(settled, found.first), found.next)
        if self.first != settled:
            log.error("%s has lost messages from offset %d on", self.described, min(settled, self.first))
            found.note(SETTLED, self.first)
        if settled > found.next:  # offsets that were used will be used again
            self.incarnation = secrets.token_hex(8)
            self._keep()
        self.queue.set_aside(self.messages, found.sequences.get(POSITION, 0))
        self._sizes.add(self.first, found.next, found.octets * self.messages // max(1, found.messages))

    def _keep(self) -> None:
        catalogue = self.queue.virtual_host.broker.catalogue
        if catalogue is not None:
            catalogue.keep_lease(self)

    @property
    def closed_commit(self) -> int:
        """The last commit that was closed: all that was done before is in it, in an earlier one, or in the open one."""
        journal = self.queue.virtual_host.broker.journal
        return 0 if journal is None else journal.open - 1

    @property
    def durable_commit(self) -> int:
        """The last one on disk."""
        journal = self.queue.virtual_host.broker.journal
        return 0 if journal is None else journal.durable

    # Whose it is.

    def open(self) -> int:
        """Shut out who had it. Returns the fence for whoever has it now."""
        self.fence += 1
        self.stop(Fenced(f"somebody else has opened {self.described}"))
        self._keep()
        self._is_used()
        self._committed()
        return self.fence

    def require(self, fence: int) -> None:
        """Raises Fenced."""
        if fence != self.fence:
            raise Fenced(f"somebody else has opened {self.described}")

    def _is_used(self) -> None:
        self.queue.used_at = self.queue.virtual_host.broker.now

    # What becomes of messages.

    def reserve(self, begin: int, messages: int, octets: int, wait_s: float, then: Then) -> Reservation:
        """Settle what is below `begin`, and have up to so many messages, with bodies of so many octets, from there on.

        Waits for the first one. Who asked before has what there is by now. Raises Busy, AccessRefused.
        """
        self.settle(begin)
        self.stop(None)
        reservation = Reservation(self, begin + messages, octets, then)
        reservation.begin(wait_s)
        self.work = reservation
        return reservation

    def take(self, deliveries: list[Delivery]) -> int:
        """These have left the queue for the lease. Returns the octets of their bodies."""
        wall = self.queue.virtual_host.broker.clock.wall()
        append, begin, octets = self.log.append, self.log.next, 0
        for delivery in deliveries:
            append(delivery.message, wall, delivery.position * 2 + delivery.redelivered)
            octets += delivery.message.size
        self.queue.forget(deliveries)  # in the same commit they are in the log
        self.log.note(POSITION, self.queue.position)
        self._sizes.add(begin, self.log.next, octets)
        if self.log.committed == self.log.next:
            self._committed()
        return octets

    def settle(self, until: int) -> None:
        """What is below has been dealt with. Raises Busy."""
        self._require_no_release()
        if until > self.first:
            self.queue.accepted_elsewhere(until - self.first)
            self.advance(until)
        self._is_used()

    def pass_over(self, until: int) -> None:
        """What is below is neither here nor in the queue any more."""
        if until > self.first:
            self.queue.lost(until - self.first)
            self.advance(until)

    def advance(self, until: int) -> None:
        """What is below is here no more."""
        self.first = until
        self._sizes.drop_until(until)
        self.log.note(SETTLED, until)
        self.log.drop_until(until)

    def release(self, then: Then, for_good: bool = False) -> Release:
        """Put back what is not settled, marked as redelivered. `for_good`: then the lease ends. Raises Busy."""
        self._require_no_release()
        self.stop(Busy(f"{self.described} is being released"))
        self.work = Release(self, then, for_good)
        self.work.begin()
        return self.work

    def _require_no_release(self) -> None:
        if isinstance(self.work, Release):
            raise Busy(f"{self.described} is being released")

    def stop(self, why: Failure | None) -> None:
        """What is under way ends here: it has done what it has done."""
        work, self.work = self.work, None
        if work is not None:
            work.end(why)

    # Reading.

    def look_out(self, tell: Callable[[], None]) -> None:
        """Have it called once, when there is something more to read, or the lease was opened or has ended."""
        self._lookouts[tell] = None

    def look_away(self, tell: Callable[[], None]) -> None:
        """It is not called any more."""
        self._lookouts.pop(tell, None)

    def _committed(self) -> None:
        """The log has more for readers, or something else is new to them. In the next turn: there may be no end to what
        they do then.
        """
        if self._lookouts:
            broker = self.queue.virtual_host.broker
            broker.timers.at(broker.now, self._tell)

    def _tell(self, now: float) -> None:
        lookouts, self._lookouts = self._lookouts, {}
        for tell in lookouts:
            tell()

    # The end.

    def forget(self) -> None:
        """Nobody wants it any more, and it has nothing."""
        self.work = None
        self.queue.virtual_host.leases.pop((self.queue.name, self.reader), None)
        self.end()

    def end(self) -> None:
        """The queue is deleted, or nobody wants the lease any more: what it has goes with it."""
        self.ended = True
        broker = self.queue.virtual_host.broker
        self.stop(no_queue(self.queue.name, self.queue.virtual_host.name))
        if broker.catalogue is not None:
            broker.catalogue.forget_lease(self)
        broker.discarded.add(self.log.end(), broker.now)
        self.log = MemoryLog()
        self._committed()


def opened(queue: Queue, reader: str) -> Lease:
    """The lease, made if it is not there, and opened. Raises Unsupported, Locked, PreconditionFailed."""
    leases = queue.virtual_host.leases
    lease = leases.get((queue.name, reader))
    if lease is None:
        lease = leases[queue.name, reader] = new_lease(queue, reader)
    lease.open()
    return lease


def new_lease(queue: Queue, reader: str) -> Lease:
    """Not in place yet."""
    if not isinstance(queue, WorkQueue):
        raise PreconditionFailed(f"{queue.described} is a stream: it is read as it is, without a lease")
    queue.require_access(None)
    if queue.limits.group_key is not None:
        raise PreconditionFailed(
            f"{queue.described} has message groups, and a lease would hold all of them up"
        )
    if queue.auto_delete:
        raise PreconditionFailed(f"{queue.described} is auto-delete: it would go when the first reading ends")
    if not 0 < len(reader.encode("utf-8", "surrogateescape")) <= READER_MAX:
        raise PreconditionFailed(f"the name of a reader has 1 to {READER_MAX} octets")
    host = queue.virtual_host
    if len(host.leases) >= LEASES_MAX:
        raise TooMany(f"vhost '{host.name}' has {LEASES_MAX} leases, and cannot have more")
    return Lease(queue, reader)


def lease_of(host: VirtualHost, queue: str, reader: str) -> Lease:
    """Raises NotFound."""
    if (lease := host.leases.get((queue, reader))) is None:
        raise no_lease(queue, reader, host.name)
    return lease


def no_lease(queue: str, reader: str, host: str) -> NotFound:
    return NotFound(f"no lease '{reader}' of queue '{queue}' in vhost '{host}'")


class Sizes:
    """How many octets the bodies from one offset to another have: exactly at the ends of pieces, roughly within."""

    __slots__ = ("_pieces", "total")

    def __init__(self) -> None:
        self._pieces: deque[tuple[int, int, int]] = deque()  # first, next, octets
        self.total = 0

    def add(self, first: int, following: int, octets: int) -> None:
        """Offsets that follow the last ones."""
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

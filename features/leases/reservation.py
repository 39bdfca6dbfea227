"""A reservation moves messages from a queue into a lease, a portion in each turn, until there are enough, or no more.

    begin ──> attached to the queue: a portion ──on disk──> there is more ──> the next portion
                                          │                └─ enough, or no more now ──> answered
                                          └─ nothing yet ──> waits for the first ──> answered with nothing

To the queue it is a consumer like others while it lasts; so paging, priorities, expiry and a single active consumer
work as for others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker import Publisher
from leveret.delivery import Consumer, Delivery, Window
from leveret.outbox import OVERHEAD

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.errors import Failure
    from leveret.features.leases.lease import Lease, Then

PORTION: Final = 2_000  # messages that are taken in one turn: 5 ms
PORTION_OCTETS: Final = 1 << 20
TAKING_S: Final = 5.0  # while more and more arrives; then the reader is answered with what there is


class Reservation(Consumer, Publisher):
    """A reservation in progress, up to the offset `until`. `then` is called with its result."""

    __slots__ = ("_joined", "_lease", "_left", "_over", "_share", "_then", "_timer", "_until_s")
    persistent = True

    def __init__(self, lease: Lease, until: int, octets: int, then: Then) -> None:
        super().__init__(lease.queue, False, max(0, until - lease.log.next), Window(0))
        self._lease = lease
        self._left = octets - lease.octets  # of bodies
        self._share = 0  # bytes left of this turn's portion
        self._then = then
        self._timer: Timer | None = None  # ends the wait for the first message
        self._until_s = 0.0  # the time after which it takes no more
        self._joined = False  # `Broker.publishers`
        self._over = False

    def begin(self, wait_s: float) -> None:
        """Attach to the queue. Raises AccessRefused if the queue admits no further consumer."""
        settling = self.queue.settling
        if self._wants:
            self._renew()
            self.queue.add_consumer(self)
        self._until_s = settling.now + max(wait_s, TAKING_S)
        if wait_s:
            self._timer = settling.later(wait_s, self._time_is_over)
        settling.later(0.0, self._join)

    @property
    def _wants(self) -> bool:
        return self.credit > 0 and self._left > 0

    @property
    def _is_on_its_way(self) -> bool:
        """Return whether messages were taken that are not on disk, so that the reader cannot be told of them yet."""
        return self._lease.log.committed < self._lease.log.next

    def _renew(self) -> None:
        self.window.credit, self._share = PORTION, PORTION_OCTETS

    # The queue's consumer.

    def room(self) -> int:
        return min(self._share, self._left)

    def deliver(self, deliveries: list[Delivery]) -> None:
        octets = self._lease.take(deliveries)
        self._left -= octets
        self._share -= octets + OVERHEAD * len(deliveries)
        self._join()

    def cancelled(self) -> None:
        """Do nothing: the queue is deleted, which ends the lease and with it this."""

    # The publisher, told of what is on disk.

    def _join(self, now: float = 0.0) -> None:
        if not (self._joined or self._over):
            self._joined = True
            self.queue.settling.publishers.append(self)

    def mark(self) -> int:
        self._joined = False
        return self._lease.closed_commit

    def taken(self, mark: int) -> None:
        if self._over:
            return
        # Called at once, as nothing of it is in the open commit; or there is more in a commit after that one.
        if self._lease.durable_commit < mark or self._is_on_its_way:
            self._join()
        elif not self._goes_on():
            self.end(None)

    def _goes_on(self) -> bool:
        """Arrange for the next step, and return True; False if the reservation is complete."""
        settling, lease = self.queue.settling, self._lease
        if not self._wants or settling.now >= self._until_s:
            return False
        if self.window.credit <= 0 or self._share <= 0:
            settling.later(0.0, self._take_more)
            return True
        if self.queue.seeks_for(self):
            self._join()
            return True
        waits = self._timer is not None and not self._timer.cancelled
        return waits and lease.log.committed <= lease.first

    def _take_more(self, now: float) -> None:
        if not self._over:
            self._renew()
            self.wake()
            self._join()

    def _time_is_over(self, now: float) -> None:
        if self._is_on_its_way:
            self._until_s = now
            self._join()
        else:
            self.end(None)

    # The end.

    def drop(self) -> None:
        """End the reservation without a call of `then`. Reserved messages stay reserved."""
        if not self._over:
            self._over = True
            self.queue.settling.timers.cancel(self._timer)
            self.queue.remove_consumer(self)
            if self._lease.work is self:
                self._lease.work = None

    def end(self, why: Failure | None) -> None:
        if not self._over:
            self.drop()
            self._then(why)

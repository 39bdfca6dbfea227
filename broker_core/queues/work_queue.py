"""A work queue delivers messages in order to consumers in turn.

    push ──> waiting ──dispatch/take_one──> unsettled ──accept──> gone
               ^  └─expired, over limit──> dead            ├─reject──> dead
               ├──────────────release──────────────────────┤
               └──due── scheduled <──release, for later────┘

Waiting messages stand in lanes (`laned_queue.py`); what is here gives them to consumers and hears of their answers.
Consumers stand in rings, one per consumer priority (`round_robin.py`). A consumer that cannot take more leaves its ring
and returns through `wake`, so that no message costs a look at idle consumers.

Consumers with selectors, and those that browse, do not take from the head: `search.py` serves a queue that has any.

A message that a consumer gave back may have to wait for a time (`backoff.py`): `schedule.py` keeps it until then.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import attrs
from mypy_extensions import mypyc_attr

from leveret.clock import NEVER
from leveret.delivery import Consumer, Delivery, copy_of
from leveret.durability import PENDING
from leveret.errors import AccessRefused, NotAtHand
from leveret.limits import QueueLimits
from leveret.outbox import OVERHEAD
from leveret.queues import runs
from leveret.queues.backoff import Backoff, backoff_of
from leveret.queues.contract import NO_TERMS, QueueHost, QueueTerms
from leveret.queues.expiry import Expiry
from leveret.queues.lane import Lane
from leveret.queues.laned_queue import LanedQueue
from leveret.queues.overflow import (
    DROP_HEAD,
    bury_all,
    drop_over_limit,
    wake_awaiting,
)
from leveret.queues.overfull import FLOWING, look_at
from leveret.queues.queue import (
    AT_ONCE,
    BY_BACKOFF,
    DELETED,
    DELIVERY_LIMIT,
    REJECTED,
)
from leveret.queues.round_robin import RoundRobin, ring_of, step_out
from leveret.queues.schedule import is_for_later
from leveret.queues.search import Search, takes_now
from leveret.queues.single_active_consumer import SingleActiveConsumer
from leveret.queues.stored_queue import ALL

if TYPE_CHECKING:
    from leveret.exchanges.duplicates import Duplicates
    from leveret.message import Message


NO_RINGS: Final[list[RoundRobin]] = []


@mypyc_attr(allow_interpreted_subclasses=True)
class WorkQueue(LanedQueue):
    """A queue that delivers each message to one consumer, and drops it when that accepts it."""

    all_seek: ClassVar[bool] = False  # all consumers use cursors, also those without a selector
    may_lack: ClassVar[bool] = True  # its unanswered messages may be on disk only

    __slots__ = (
        "backoff",
        "expiry",
        "search",
        "single",
    )

    def __init__(
        self, virtual_host: QueueHost, name: str, limits: QueueLimits, terms: QueueTerms = NO_TERMS
    ) -> None:
        super().__init__(virtual_host, name, limits, terms)
        self.search: Search | None = None  # exists while a consumer needs cursors
        self.backoff: Backoff | None = None  # how long messages wait that a consumer gave back
        # The only one that is served, if there is such a limit.
        self.single: SingleActiveConsumer | None = None
        self.expiry: Expiry | None = None  # created with the first message that will expire
        self.set_up()
        self.apply(limits)

    def set_up(self) -> None:
        """Initialise the attributes of a kind of work queue. Called once, before `apply`."""

    # Limits.

    def apply(self, limits: QueueLimits) -> None:
        if limits.expires_ms != self.limits.expires_ms:
            self.used_at = self.settling.now  # a new term begins now
        self.limits = limits
        self.watched = limits.max_length is not None or limits.max_bytes is not None or limits.no_local
        self.watched = self.watched or self.deduplication is not None
        self.ttl_s = NEVER if limits.message_ttl_ms is None else limits.message_ttl_ms / 1000
        if self.watched and limits.overflow is DROP_HEAD:
            drop_over_limit(self)
        if self.overfull is not None:
            self.overfull.look()
        if not limits.single_active:
            self.single = None
        elif self.single is None:
            self.single = SingleActiveConsumer(self)
        self.backoff = backoff_of(limits)
        self.reads_delays = limits.delayed_message
        if self.auto_deletion is not None or limits.expires_ms is not None:
            self.begin_auto_deletion().watch()
        if self.dead_letters is not None:
            self.dead_letters.route_again()
        self.touch()

    def deduplicate(self, known: Duplicates | None) -> None:
        super().deduplicate(known)
        self.apply(self.limits)  # it is watched now, or need not be any more

    # Arrival.

    # Handing out.

    def dispatch(self) -> None:
        """Deliver waiting messages to consumers that can take them, the highest consumer priority first, in turn.

        A paused queue only keeps its limits.
        """
        if self.single is not None and self.single.is_open:
            self.single.elect()
        absent = self.absent
        for ring in NO_RINGS if self.paused or (absent is not None and absent.answers) else self.rings:
            if self.search is not None:
                self.search.serve(ring)
                continue
            while self.ready and (consumer := ring.first) is not None:
                room = consumer.room()
                window = consumer.window
                quota = consumer.credit if consumer.credit < window.credit else window.credit
                if room <= 0 or quota <= 0:
                    ring.shift()
                    consumer.able = False
                    continue
                deliveries = self._take(quota if consumer is ring.last else 1, room)
                if not deliveries:
                    break
                ring.turn()
                self.give(consumer, deliveries)
        if self.watched and self.limits.overflow is DROP_HEAD:
            drop_over_limit(self)  # among what arrived and what came back
        elif self.watched and self.limits.overflow in FLOWING:
            look_at(self)
        if self.expiring:
            if self.expiry is None:
                self.expiry = Expiry(self)
            self.expiry.watch()
        if self.awaited:
            wake_awaiting(self)
        if self.demand is not None:
            self.demand.look()

    def _take(self, quota: int, room: int, lanes: list[Lane] | None = None) -> list[Delivery]:
        """Take up to `quota` messages, of no more than `room` bytes and one message, by priority and order.

        `lanes`: take from these only.
        """
        if self.search is not None:
            return self.search.take(quota, room)
        if lanes is None:
            lanes = self.lanes
            if len(lanes) == 1 and (run := runs.take(self, lanes[0], quota, room)):
                self.ready = self.ready_bytes = 0
                return run
            if len(lanes) > 1:
                lanes = lanes[::-1]
        now = self.settling.now
        taken: list[Delivery] = []
        for lane in lanes:
            fresh, returned = lane.fresh, lane.returned
            while len(taken) < quota and room > 0 and (returned or fresh):
                if returned and lane.pages is not None and not lane.at_hand():
                    break
                delivery = lane.take() if returned else fresh.popleft()
                if delivery.expires_at < now:
                    self.expire(delivery)
                    continue
                taken.append(delivery)
                message = delivery.message
                room -= message.size + len(message.properties) + OVERHEAD
                self.ready_bytes -= message.size
                if delivery.expires_at != NEVER:
                    self.expiring -= 1
            if lane.pages is not None:
                lane.look_ahead(wanting=len(taken) < quota and room > 0)
                break
        self.ready -= len(taken)
        return taken

    def take_one(self, settled: bool) -> Delivery | None:
        self.used_at = self.settling.now
        self._load_head()
        while not (taken := self._take(1, 1)):  # those at hand have expired
            if not self._load_head():
                return None
        return self.hand_out(taken[0], settled)

    def _load_head(self) -> bool:
        """Read the page at the head at once, if the head is on disk. Return whether it was. Raises NotAtHand."""
        if self.head_is_away():
            raise NotAtHand
        lane = self._next_lane()
        if lane is None or lane.at_hand():
            return False
        lane.load()
        return True

    def _next_lane(self) -> Lane | None:
        """Return the lane whose turn it is; None if the queue is empty."""
        return next((lane for lane in reversed(self.lanes) if lane), None)

    def head_is_away(self) -> bool:
        """Return whether the next message is on its way here, or has to come from another machine and is asked for."""
        if self.returning:
            return True
        return self.journal is not None and self.asks_for(self._next_lane())

    def asks_for_first(self, count: int = ALL) -> bool:
        if self.journal is None:
            return False
        asks = False
        for lane in self.lanes:
            left = count
            for page in lane.away():
                asks |= self.journal.brings(page.numbers)
                left -= len(page) - page.expiring  # those may have expired
                if left <= 0:
                    break
        if count == ALL and self.schedule is not None:
            asks |= self.schedule.asks_for(self.schedule.items())
        if count == ALL and self.dead_letters is not None:
            asks |= self.dead_letters.asks_for_first()
        return asks

    def can_deliver_now(self, message: Message) -> bool:
        if (message.facts.due_ms or self.reads_delays) and is_for_later(self, message):
            return False
        self.dispatch()
        return not (self.paused or self._waits()) and any(
            takes_now(consumer, message) for ring in self.rings for consumer in ring
        )

    def _waits(self) -> bool:
        """Return whether a page is being read that all consumers wait for."""
        if self.returning:
            return True
        return self.search is None and self.backlog is not None and self.backlog.waits

    def seeks_for(self, consumer: Consumer) -> bool:
        return not self.paused and (consumer.searching or self._waits())

    # Answers.

    def acquire(self, position: int) -> Delivery | None:
        for lane in self.lanes:
            if (delivery := lane.take_at(position)) is not None:
                if delivery.expires_at >= self.settling.now:
                    return self._with_client(delivery)
                self.expire(delivery)
                break
        return None

    def take_stored(self, positions: Sequence[int]) -> list[Delivery]:
        taken = [each for lane in self.lanes for each in lane.take_stored(positions)]
        found = {each.position for each in taken}
        for position in positions:
            if position not in found:  # of a queue that does not leave them on disk
                taken += [each for lane in self.lanes if (each := lane.take_at(position)) is not None]
        return [self._with_client(each) for each in taken]

    def _with_client(self, delivery: Delivery) -> Delivery:
        """Count a message that was taken out of its lane as delivered and not answered, and return it."""
        self.left(delivery)
        if self.awaited or self.overfull is not None:
            self.touch()
        self.delivered += 1
        self.unsettled += 1
        self.unsettled_bytes += delivery.message.size
        delivery.given_at = self.settling.now
        if self.present is not None:
            self.present.acquired(delivery)
        return delivery

    def release(
        self, delivery: Delivery, failed: bool = True, redelivered: bool = True, until: float = BY_BACKOFF
    ) -> None:
        if self.absent is not None and not self.deleted:
            if self.absent.delays(delivery, self.release, failed, redelivered, until):
                return
        if self.bounded:
            self.answered((delivery,))
        self.unsettled -= 1
        self.unsettled_bytes -= delivery.message.size
        if self.deleted:
            if self.absent is not None and self.absent.is_gone(delivery):
                self.forget((delivery,))
            else:
                self.die(delivery, DELETED)
            return
        delivery.consumer = None
        delivery.redelivered = delivery.redelivered or redelivered
        if failed:
            delivery.attempts += 1
            limit = self.limits.delivery_limit
            if limit is not None and delivery.attempts > limit:
                self.die(delivery, DELIVERY_LIMIT)
                return
            if self.journal is not None and (limit is not None or self.backoff is not None):
                self.journal.attempted(delivery)
        if self.present is not None:
            self.present.returned(delivery)
        if until == BY_BACKOFF:
            until = self.due_after(delivery.attempts, failed) if redelivered else AT_ONCE
        if until > self.settling.now:
            self.scheduled().put(delivery, until)
            self.touch()  # it counts towards the limits
        else:
            self.due(delivery)

    def avoid(self, delivery: Delivery, consumer: Consumer) -> None:
        self.searched().avoid(delivery, consumer)

    def unsend(self, delivery: Delivery, settled: bool) -> None:
        if not settled or self.deleted:
            super().unsend(delivery, settled)
            return
        self.not_accepted(delivery.message.size)
        WorkQueue.take_back(self, copy_of(delivery))  # the store forgets the one sent

    def hand_back(self, delivery: Delivery) -> None:
        self.release(delivery, until=self.due_after(delivery.attempts + 1, False))

    def due_after(self, attempts: int, is_failure: bool) -> float:
        """Return when a message is ready again that a consumer gave back, in monotonic seconds, by the back-off."""
        wait_s = 0.0 if self.backoff is None else self.backoff.wait_s(attempts, is_failure)
        return self.settling.now + wait_s if wait_s else AT_ONCE

    def take_back(self, delivery: Delivery) -> None:
        """Requeue a message that a guest had. The store gets it anew, and its time to live begins again."""
        if self.journal is not None and delivery.message.facts.durable and self.number:
            delivery.stored = PENDING
            self.journal.arrivals.append(delivery)
            if delivery.counted_attempts:
                self.journal.attempted(delivery)
        if self.present is not None:
            self.present.entered(delivery)  # it had left
        delivery.expires_at = self.end_of(delivery.message)
        self.release(delivery, failed=False, until=AT_ONCE)

    def reject(self, delivery: Delivery) -> None:
        if self.absent is not None and not self.deleted and self.absent.delays(delivery, self.reject):
            return
        if self.bounded:
            self.answered((delivery,))
        self.unsettled -= 1
        self.unsettled_bytes -= delivery.message.size
        if self.deleted:
            if self.absent is not None:
                self.absent.is_gone(delivery)
            self.forget((delivery,))
        else:
            self.die(delivery, REJECTED)

    # Only this class changes the counts of waiting messages: where it moves single ones, and in these methods.

    def set_aside(self, count: int, octets: int, position: int) -> None:
        self.unsettled += count
        self.unsettled_bytes += octets
        self.go_on_from(position)

    def give_back_unseen(self, delivery: Delivery) -> None:
        """Put back an acquired message that the client may not have after all."""
        self.delivered -= 1
        WorkQueue.release(self, delivery, failed=False, redelivered=False)

    # Looking and emptying.

    # Consumers.

    def add_consumer(self, consumer: Consumer) -> None:
        """Attach a consumer. Raises AccessRefused if it or another is exclusive (S099); browsers are always let in."""
        if not consumer.browses:
            if self.consumers and (consumer.exclusive or next(iter(self.consumers)).exclusive):
                raise AccessRefused(f"{self.described} in exclusive use")
            self.consumers[consumer] = None
            self.taken_up()
        if consumer.browses or consumer.selector is not None or self.all_seek:
            self.searched().add(consumer)
        consumer.attached = True
        self.used_at = self.settling.now
        self.consumer_came(consumer)
        if self.single is None or consumer.browses:
            self.offer(consumer)
        else:
            self.single.came(consumer)

    @property
    def is_searched(self) -> bool:
        return self.search is not None

    def searched(self) -> Search:
        """Return the search, begun if there is none."""
        if self.search is None:
            self.search = self.new_search()
        return self.search

    def new_search(self) -> Search:
        return Search(self)

    def remove_consumer(self, consumer: Consumer) -> None:
        if not consumer.attached:
            return
        consumer.attached = False
        self.consumers.pop(consumer, None)
        self.used_at = self.settling.now
        step_out(self.rings, consumer)
        self.consumer_left(consumer)
        if self.search is not None:
            self.search.remove(consumer)
        if self.single is not None:
            self.single.left(consumer)
        if not consumer.browses:
            self.left_alone()

    def timed_out(self, consumer: Consumer) -> None:
        super().timed_out(consumer)
        if self.single is not None:
            self.single.timed_out(consumer)

    def answered(self, deliveries: Iterable[Delivery]) -> None:
        super().answered(deliveries)
        if self.single is not None:
            self.single.answered()

    def serves(self, consumer: Consumer) -> bool:
        return self.single is None or self.single.serves(consumer)

    def offer(self, consumer: Consumer) -> None:
        """Add a consumer that can take messages (again) to the ring of its priority."""
        if consumer.able or not (self.single is None or self.single.serves(consumer)):
            return
        consumer.able = True
        ring_of(self.rings, consumer.priority).add(consumer)
        self.touch()

    # Time.

    def taken_up(self) -> None:
        if self.auto_deletion is not None:
            self.auto_deletion.returned()

    def left_alone(self) -> None:
        is_lent = self.owner is not None and not self.exclusive
        if self.auto_delete and not (self.consumers or is_lent or self.deleted):
            self.begin_auto_deletion().left()

    def bury_all(self, reason: str = REJECTED) -> None:
        self.limits = attrs.evolve(self.limits, at_least_once=False)  # there is no later for a deleted queue
        if self.dead_letters is not None:
            self.dead_letters.give_up()
        bury_all(self, reason)

    # The end.

    def let_go(self) -> None:
        self.lanes = []
        self.schedule = None
        if self.dead_letters is not None:
            self.dead_letters.let_go()

    def closed(self) -> None:
        """Drop the messages and cancel the consumers, browsers included."""
        if self.expiry is not None:
            self.expiry.end()
        if self.auto_deletion is not None:
            self.auto_deletion.end()
        if self.overfull is not None:
            self.overfull.end()
        if self.schedule is not None:
            self.schedule.end()
        if self.absent is not None:
            self.absent.give_up()
        self.purge()
        if self.dead_letters is not None:
            self.dead_letters.closed()
        if self.search is not None:
            self.consumers.update(dict.fromkeys(self.search.browsers()))  # browsers are cancelled, too
            self.search.end()
        super().closed()
        self.rings.clear()

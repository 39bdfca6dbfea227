"""Paging keeps the memory of messages within a budget: more of them are on disk only, and are read back later.

    check ── has the process grown by more than the budget? ── no ──> done
                                                           └─ yes ──> measure all queues ── the largest first ──> pages
                                                                                        └─ bounds on consumers

Messages cost nothing here, as arrivals are not counted. One reading shows whether the process has grown by more than
the budget; only then the queues are measured, and those with the most in memory page out the messages to be delivered
last. Messages that the store has are just dropped from memory; others (transient messages, and those in queues that are
not durable) are written first, and are gone when the node ends.

What consumers have and do not answer goes to the disk, too, but for a few hundred bytes of each message; consumers that
have too much of these are held back (`consumer_bounds.py`).

The node itself and its buffers need memory, too: where the watermark leaves less than the budget, the budget is what it
leaves. Above the watermark (`relieve`), as much goes to the disk as the process is above it.

Freed memory is used again by the messages that follow. If none follow, it is given back to the system, a little at a
time, as that takes 0.1 ms a MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from leveret.alarms import MIB, resident_octets
from leveret.durable.journal import Journal
from leveret.memory_tuning import give_back_memory
from leveret.queues import consumer_bounds
from leveret.queues.consumer_bounds import ConsumerBounds
from leveret.queues.discarded_messages import PAUSE_S
from leveret.queues.held_dead_letters import HeldDeadLetters
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.clock import Timer
    from leveret.delivery import Consumer
    from leveret.queues.queue import Queue

WAITING: Final = 450  # bytes of a waiting message besides body and properties: 310 to 420, and its number
INTERVAL_S: Final = 0.05  # between checks while messages arrive: 15 MB at the most
ASKING_S: Final = 1e-5  # least pause for every queue that was measured: that takes 4 % of the time
PORTION: Final = 16_384  # messages that are paged out at once: 10 ms
ATTEMPT: Final = 16  # messages that are paged out in the time that one call of `page_out` takes besides
LEFT: Final = 7 / 8  # of the budget is left in use when it was exceeded
BUFFERS: Final = 1 / 8  # of the watermark: what connections, commits and pages on their way need
HEAD: Final = 256  # messages at the head of a queue with consumers that stay in memory,
HEAD_OCTETS: Final = 1 << 18  # or about so many bytes of them
UNUSED: Final = 64 * MIB  # bytes; unused memory beyond it is given back, or beyond
UNUSED_SHARE: Final = 1 / 16  # of the watermark,
LOOK_S: Final = 2.0  # unless it is needed again after so long
LOOK_QUEUES: Final = 100  # measured in a step of a look
LOOK_REST: Final = 50  # times as long as a look took, there is no other


class Paging:
    """Keeps the messages of a broker within a budget of memory."""

    def __init__(
        self,
        broker: Broker,
        budget: int | None,
        resident: Callable[[], int] = resident_octets,
        give_back: Callable[[], None] = give_back_memory,
    ) -> None:
        """`resident` returns the memory of the process in bytes; `give_back` returns unused memory to the system."""
        # In bytes; None is no limit.
        self.budget = budget  # of waiting messages
        self.unanswered_max: int | None = None  # of messages that consumers have and did not answer
        self.watermark: int | None = None  # of the whole process
        self.due_at = broker.now  # when the next check is worthwhile, monotonic seconds
        self._broker = broker
        self._resident = resident
        self._give_back = give_back
        self._look: Timer | None = None  # to check for unused memory
        self._is_looking = False  # it has begun
        self._not_before = 0.0  # when the next one may be
        self._again: Timer | None = None  # to go on paging out
        self._base = resident()  # the memory without messages
        self._above = 0  # bytes that the process is above the watermark
        self._bounds = ConsumerBounds()

    def relieve(self, octets: int) -> None:
        """Have so many bytes of messages put away, because the process is above its watermark. They go soon."""
        self._above = octets
        self._broker.timers.cancel(self._again)
        self._again = self._broker.timers.at(self._broker.now, self.check)

    def check(self, now: float) -> None:
        """Page out messages if there are too many in memory: a portion of them now, and the rest soon."""
        self.due_at = now + INTERVAL_S
        above, self._above = self._above, 0
        budget, grown = self._left_for(self.budget), self._grown()
        unanswered_max = self._left_for(self.unanswered_max)
        if grown > self._unused_max and not self._is_looking and (self._look is None or self._look.cancelled):
            self._look = self._broker.timers.at(max(now + LOOK_S, self._not_before), self._look_at_unused)
        least = min([each for each in (budget, unanswered_max) if each is not None], default=grown)
        if grown <= least and not above and not self._bounds.are_there:
            return
        queues = [queue for host in self._broker.hosts() for queue in host.queues.values()]
        self._bounds.look(queues, unanswered_max, now)
        memory = sorted(memory_in(queues), key=lambda found: found[0], reverse=True)
        waiting = sum([octets for octets, _ in memory])
        pause_s = max(INTERVAL_S, len(memory) * ASKING_S)
        self.due_at = now + pause_s
        excess: float = above
        if budget is not None and waiting > budget:
            excess = max(excess, waiting - budget * LEFT)
        if excess <= 0:
            return
        self._broker.timers.cancel(self._again)
        if self._put_away([queue for _, queue in memory], excess):
            self._again = self._broker.timers.at(now + PAUSE_S, self.check)
        elif self._is_writing():
            self._again = self._broker.timers.at(now + pause_s, self.check)

    def came(self, consumer: Consumer) -> None:
        """Bound what a consumer that is about to be attached has unanswered, if memory is short."""
        self._bounds.came(consumer)

    def _left_for(self, octets: int | None) -> int | None:
        """Return how many of these bytes the watermark leaves beside the node itself and its buffers."""
        watermark, wanted = self.watermark, (self.budget or 0) + (self.unanswered_max or 0)
        if octets is None or watermark is None or not wanted:
            return octets
        left = max(watermark * BUFFERS, watermark * (1 - BUFFERS) - self._base)
        return min(octets, int(left * octets / wanted))

    @property
    def _unused_max(self) -> float:
        return UNUSED if self.watermark is None else min(UNUSED, self.watermark * UNUSED_SHARE)

    def _grown(self) -> int:
        """Return the memory gained with messages in queues, without that of streams, which has its own bound."""
        journal = self._broker.journal
        streams = journal.cache.octets if isinstance(journal, Journal) else 0
        return self._resident() - self._base - streams

    def _is_writing(self) -> bool:
        """Return whether commits are under way, after which more messages can be paged out."""
        journal = self._broker.journal
        return journal is not None and (journal.dirty or journal.durable < journal.open - 1)

    def _look_at_unused(self, now: float) -> None:
        """Give back what the queues do not need, once they are all measured, in portions."""
        self._is_looking = True
        steps = self._looking()
        self._broker.long_work.begin(lambda: next(steps, False))

    def _looking(self) -> Iterator[bool]:
        """Yield after each step of a look."""
        needed, took_s, clock = 0, 0.0, self._broker.clock
        for host in list(self._broker.hosts()):
            portions = portions_of(host.queues)
            while True:
                began = clock.now()
                queues = next(portions, None)
                if queues is None:
                    break
                needed += sum([octets for octets, _ in memory_in(queues)])
                needed += sum([consumer_bounds.memory_of(each) for each in queues])
                took_s += clock.now() - began
                yield True
        if self._grown() > needed + self._unused_max:
            self._give_back()
        self._is_looking = False
        self.due_at = clock.now()  # so that it is checked again after the next batch
        self._not_before = self.due_at + LOOK_REST * took_s

    def _put_away(self, queues: Iterable[WorkQueue], octets: float) -> bool:
        """Page out a portion of these queues, one after the other. Return whether there is more to page out now."""
        left = PORTION
        for queue in queues:
            gone = True
            while gone and octets > 0 and left > 0:
                memory, waiting = memory_of(queue), away_from(queue)
                gone = queue.page_out(kept_of(queue))
                octets -= memory - memory_of(queue)
                left -= away_from(queue) - waiting + ATTEMPT
        return octets > 0 and left <= 0


def portions_of(queues: Mapping[str, Queue]) -> Iterator[list[Queue]]:
    """Yield all queues, some at a time; to list 100,000 takes up to 50 ms, as each is touched.

    Those that come or go meanwhile may or may not be there, and so a few others that came after one that goes.
    """
    seen, values = 0, iter(queues.values())
    while True:
        try:
            portion = list(islice(values, LOOK_QUEUES))
        except RuntimeError:  # some have come or gone
            values = iter(list(queues.values())[seen:])
            continue
        if not portion:
            return
        seen += len(portion)
        yield portion


def memory_in(queues: Iterable[Queue]) -> Iterator[tuple[int, WorkQueue]]:
    """Yield each queue with waiting messages, after the bytes of memory that they take."""
    for queue in queues:
        if isinstance(queue, WorkQueue) and (queue.ready or queue.schedule is not None):
            yield memory_of(queue), queue
        held = queue.dead_letters
        if isinstance(held, HeldDeadLetters) and held.ready:
            yield memory_of(held), held


def memory_of(queue: WorkQueue) -> int:
    """Return the bytes that waiting messages take in memory, as if all had properties as large as the last one's."""
    messages, octets = queue.ready, queue.ready_bytes
    if queue.backlog is not None:
        messages -= queue.backlog.messages
        octets -= queue.backlog.octets
    if (later := queue.schedule) is not None:
        messages += len(later) - later.away
        octets += later.octets - later.away_octets
    last = next((lane.arrivals[-1] for lane in queue.lanes if lane.arrivals), None)
    properties = 0 if last is None else len(last.message.properties)
    return octets + messages * (WAITING + properties)


def away_from(queue: WorkQueue) -> int:
    """Return how many messages are on disk only."""
    return queue.books().messages + (0 if queue.schedule is None else queue.schedule.away)


def kept_of(queue: WorkQueue) -> int:
    """Return how many messages at the head stay in memory, for consumers."""
    if not (queue.consumers and queue.ready):
        return 0
    average = queue.ready_bytes // queue.ready
    return max(1, min(HEAD, HEAD_OCTETS // (average + 1)))

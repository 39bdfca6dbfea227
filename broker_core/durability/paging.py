"""Which waiting messages stay in memory: no more than a budget allows; the others are on disk only, and come back.

    check ── more memory than at the start, and the budget? ── no ──> that was all
                                                           └─ yes ──> what waits where? ── the largest first ──> pages

A message costs nothing here: nobody counts arrivals. That the process has grown by more than the budget is seen by one
reading; only then the queues are asked, and those with the most in memory put what will be delivered last on disk. To
put away is to forget, where the store has the message already; what it has not (messages and queues that are not
durable) is written first, and is gone when the node ends.

What is freed is used again by the messages that follow. When none do, the system gets it back: a little at a time, for
that takes 0.1 ms a MiB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from broker_core.flow import MIB, resident_octets
from broker_core.memory_tuning import give_back_memory
from broker_core.queues.deferred_free import PAUSE_S
from broker_core.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.clock import Timer

WAITING: Final = (
    450  # octets of a waiting message besides body and properties: 310 to 420 were measured, and a number
)
INTERVAL_S: Final = 0.05  # between checks while messages come: 15 MB at the most
ASKING_S: Final = 1e-5  # at least that pause for every queue that was asked: 4 % of the time
PORTION: Final = 16_384  # messages that are put away at once: 10 ms
ATTEMPT: Final = 16  # messages that are put away in the time that it takes to ask a queue for it
LEFT: Final = 7 / 8  # of the budget, when it was exceeded
HEAD: Final = 256  # messages at the head of a queue with consumers that stay,
HEAD_OCTETS: Final = 1 << 18  # or about so many octets of them
UNUSED: Final = 64 * MIB  # more than that is given back,
LOOK_S: Final = 2.0  # unless it was needed again by then


class Paging:
    """Keeps the waiting messages of a broker within a budget of memory."""

    def __init__(
        self,
        broker: Broker,
        budget: int | None,
        resident: Callable[[], int] = resident_octets,
        give_back: Callable[[], None] = give_back_memory,
    ) -> None:
        """`resident`: the memory that the process has, in octets; `give_back` lets the system have what it can."""
        self.budget = budget  # octets; None: no limit
        self.due_at = broker.now  # when the next check is worth it, monotonic seconds
        self._broker = broker
        self._resident = resident
        self._give_back = give_back
        self._look: Timer | None = None  # at what is unused
        self._again: Timer | None = None  # for what is left to put away
        self._base = resident()  # without messages

    def check(self, now: float) -> None:
        """Put messages on disk if there are too many in memory: a portion of them, and the rest soon."""
        self.due_at = now + INTERVAL_S
        budget, grown = self.budget, self._grown()
        if grown > UNUSED and (self._look is None or self._look.cancelled):
            self._look = self._broker.timers.at(now + LOOK_S, self._look_at_unused)
        if budget is None or grown <= budget:
            return
        memory = sorted(self._memory(), key=lambda found: found[0], reverse=True)
        excess = sum([octets for octets, _ in memory]) - budget
        pause_s = max(INTERVAL_S, len(memory) * ASKING_S)
        self.due_at = now + pause_s
        if excess <= 0:
            return
        self._broker.timers.cancel(self._again)
        if self._put_away([queue for _, queue in memory], excess + budget * (1 - LEFT)):
            self._again = self._broker.timers.at(now + PAUSE_S, self.check)
        elif self._is_writing():
            self._again = self._broker.timers.at(now + pause_s, self.check)

    def _grown(self) -> int:
        """The memory that came with messages in queues. What streams have in memory is bounded elsewhere."""
        journal = self._broker.journal
        streams = 0 if journal is None else journal.cache.octets
        return self._resident() - self._base - streams

    def _is_writing(self) -> bool:
        """Whether there will be more that can go, although nobody may publish any more."""
        journal = self._broker.journal
        return journal is not None and (journal.dirty or journal.durable < journal.open - 1)

    def _look_at_unused(self, now: float) -> None:
        needed = sum([octets for octets, _ in self._memory()])
        if self._grown() > needed + UNUSED:
            self._give_back()
        self.due_at = now  # so that the next batch has it looked at again

    def _memory(self) -> Iterator[tuple[int, WorkQueue]]:
        """What the messages that wait in a queue take, and the queue."""
        for host in self._broker.hosts():
            for queue in host.queues.values():
                if queue.ready and isinstance(queue, WorkQueue):
                    yield memory_of(queue), queue

    def _put_away(self, queues: Iterable[WorkQueue], octets: float) -> bool:
        """A portion of what these have in memory, one after the other. Whether there is more to put away now."""
        left = PORTION
        for queue in queues:
            gone = True
            while gone and octets > 0 and left > 0:
                memory, waiting = memory_of(queue), queue.books().messages
                gone = queue.page_out(kept_of(queue))
                octets -= memory - memory_of(queue)
                left -= queue.books().messages - waiting + ATTEMPT
        return octets > 0 and left <= 0


def memory_of(queue: WorkQueue) -> int:
    """Octets that its waiting messages take in memory. Their properties are as large as those of the last one."""
    messages, octets = queue.ready, queue.ready_bytes
    if queue.backlog is not None:
        messages -= queue.backlog.messages
        octets -= queue.backlog.octets
    last = next((lane.arrivals[-1] for lane in queue.lanes if lane.arrivals), None)
    properties = 0 if last is None else len(last.message.properties)
    return octets + messages * (WAITING + properties)


def kept_of(queue: WorkQueue) -> int:
    """How many messages at the head stay in memory, for consumers."""
    if not queue.consumers:
        return 0
    average = queue.ready_bytes // queue.ready
    return max(1, min(HEAD, HEAD_OCTETS // (average + 1)))

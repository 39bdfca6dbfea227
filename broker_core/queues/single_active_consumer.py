"""The single active consumer of a work queue: one is served, and the others wait for its role.

    came ──> waits ──elected──> active ──left, late, outranked──> another is elected, with the next settle

Of those with the highest priority, the one that came first is active (S083). One that has not answered in time comes
after all others. In quorum queues, where the profile says so, one of a higher priority takes over, once the active one
has answered everything: until then no consumer is served.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.limits import QueueType
from leveret.queues.round_robin import step_out

if TYPE_CHECKING:
    from leveret.delivery import Consumer
    from leveret.queues.work_queue import WorkQueue

QUORUM: Final = QueueType.QUORUM


class SingleActiveConsumer:
    """The role of one queue's single active consumer, and the election of the one that has it."""

    __slots__ = ("_queue", "active", "contested")

    def __init__(self, queue: WorkQueue) -> None:
        self._queue = queue
        self.active: Consumer | None = None
        self.contested = False  # another may have to become it

    @property
    def is_open(self) -> bool:
        """Return whether an election is due."""
        return self.active is None or self.contested

    def serves(self, consumer: Consumer) -> bool:
        """Return whether a consumer gets messages."""
        return consumer.browses or (consumer is self.active and not self.contested)

    def came(self, consumer: Consumer) -> None:
        """Called when a consumer was attached that does not browse."""
        if len(self._queue.consumers) == 1:
            self.elect()
        elif self.active is None or self._outranks(consumer, self.active):
            self._contest()

    def _outranks(self, consumer: Consumer, active: Consumer) -> bool:
        queue = self._queue
        if active.late_at:
            return True
        takes_over = queue.type is QUORUM and queue.virtual_host.compat.single_active_takeover
        return takes_over and consumer.priority > active.priority

    def left(self, consumer: Consumer) -> None:
        """Called when a consumer was detached. The next settle elects one successor, however many leave together."""
        if consumer is self.active:
            self.active = None
            self._queue.touch()
        elif self.contested:
            self._queue.touch()

    def timed_out(self, consumer: Consumer) -> None:
        """Called when a consumer has not answered in time."""
        if consumer is self.active:
            self._contest()

    def answered(self) -> None:
        """Called for answers, where a consumer that is to give way has some to give (`Queue.bounded`)."""
        if self.contested:
            self._queue.touch()

    def _contest(self) -> None:
        self.contested = True
        self._queue.touch()

    def elect(self) -> None:
        """Elect the consumer that is to be active, and serve it, unless another has to answer first."""
        queue, before = self._queue, self.active
        chosen = max(queue.consumers, key=lambda each: (-each.late_at, each.priority), default=None)
        if before is not None and chosen is not before:
            step_out(queue.rings, before)
            if queue.unsettled and not before.late_at:
                queue.bounded = True  # hears of answers
                return
            before.passed_over()
        self.contested = False
        self.active = chosen
        if chosen is not None:
            queue.offer(chosen)
            if chosen is not before:
                chosen.elected()

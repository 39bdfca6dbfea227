"""The demand of a federated queue: it wants messages if it is empty, and has a consumer that could take one.

Consumers of a negative priority do not count: links of other brokers have such, and if they did, messages would go
around between queues that nobody consumes from. So says RabbitMQ's documentation of federated queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.features.transfers.transfer import TURN_S
from leveret.queues.queue import Demand
from leveret.queues.round_robin import step_out
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.delivery import Consumer
    from leveret.features.federation.link import QueueLink
    from leveret.queues.queue import Queue


class QueueDemand(Demand):
    """The demand of one queue, which all its links follow."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.links: dict[QueueLink, None] = {}
        self._is_wanted = False
        self._timer: Timer | None = None
        queue.demand = self
        queue.touch()

    def add(self, link: QueueLink) -> None:
        self.links[link] = None
        link.run(self._is_wanted)

    def remove(self, link: QueueLink) -> None:
        self.links.pop(link, None)

    def look(self) -> None:
        queue = self.queue
        wanted = False
        for consumer in queue.consumers if not (queue.ready or queue.paused) else ():
            if not takes_now(consumer):
                set_aside(queue, consumer)
            elif consumer.priority >= 0 and not consumer.suspended and queue.serves(consumer):
                wanted = True
        if wanted == self._is_wanted:
            return
        self._is_wanted = wanted
        if self._timer is None:
            broker = self.queue.virtual_host.broker
            self._timer = broker.timers.at(broker.now + TURN_S, self._tell)

    def _tell(self, _now: float) -> None:
        self._timer = None
        for link in self.links:
            link.run(self._is_wanted)

    def end(self) -> None:
        self.queue.demand = None
        self.queue.virtual_host.broker.timers.cancel(self._timer)
        self._timer = None


def takes_now(consumer: Consumer) -> bool:
    """Return whether a consumer has credit and room for a message."""
    return min(consumer.credit, consumer.window.credit) > 0 and consumer.room() > 0


def set_aside(queue: Queue, consumer: Consumer) -> None:
    """Take a consumer out of its ring that can take nothing, so that the queue hears of it when it can again.

    An empty queue does not look at its consumers, and would leave it there.
    """
    if consumer.able and isinstance(queue, WorkQueue):
        step_out(queue.rings, consumer)

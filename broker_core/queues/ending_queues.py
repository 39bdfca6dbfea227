"""Queues that are deleted, and keep their messages until these can go elsewhere.

    delete ──> ending: asked again in a moment ──messages are here──> buried, and closed

Where messages of a deleted queue go to an alternate exchange, or are dead-lettered, and some of them have to come from
another machine first, the queue stays in the store until then. Its name is free at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.catalogue import ENDING_QUEUE, Named
from leveret.queues.queue import DELETED, REJECTED

if TYPE_CHECKING:
    from leveret.queues.queue import Queue
    from leveret.virtual_host import VirtualHost

LOOK_S: Final = 0.05  # between two looks whether messages of a deleted queue have come from another machine


class EndingQueues:
    """The queues of a virtual host that are deleted, and wait for messages that are to go elsewhere."""

    def __init__(self, host: VirtualHost) -> None:
        self._host = host
        self._queues: set[Queue] = set()
        self.closing = False  # the virtual host is being deleted: nothing is waited for

    def __contains__(self, queue: Queue) -> bool:
        return queue in self._queues

    def __iter__(self) -> Iterator[Queue]:
        return iter(list(self._queues))

    def __len__(self) -> int:
        return len(self._queues)

    def restore(self, queue: Queue) -> None:
        """Take in a queue that was being deleted when the node ended, as it is restored at a start."""
        queue.pause(True)
        self._queues.add(queue)

    def go_on(self) -> None:
        """Have the messages of restored queues go where they are to go, now that they, and all policies, are here."""
        for queue in self:
            self._host.apply_queue_policy(queue)
            self._look_again_at(queue)

    def end(self, queue: Queue, now: float = 0.0) -> None:
        """Have the messages of a deleted queue go where they are to go, and drop what is left of it.

        Until then it is in the store, so that a sudden end of the node loses none of them.
        """
        was_ending = queue in self._queues
        self._queues.discard(queue)
        if queue.deleted:
            return
        reason = REJECTED if self._host.compat.dead_letter_on_delete else DELETED
        if reason == REJECTED or queue.limits.alternate_exchange is not None:
            is_far = queue.asks_for_first()
            if is_far and not self.closing:
                queue.paused = True
                self._queues.add(queue)
                self._look_again_at(queue)
                if not was_ending:
                    if self._host.broker.catalogue is not None:
                        self._host.broker.catalogue.forget(queue)
                        self._host.broker.catalogue.keep(ending(queue))
                return
            if not is_far:
                queue.bury_all(reason)
        if self._host.broker.catalogue is not None:
            self._host.broker.catalogue.forget(ending(queue) if was_ending else queue)
        queue.closed()

    def _look_again_at(self, queue: Queue) -> None:
        """Ask in a moment whether the messages of a deleted queue have come."""
        self._host.settling.later(LOOK_S, partial(self.end, queue))


def ending(queue: Queue) -> Named[Queue]:
    """Return what is in the store of a deleted queue until its messages have gone elsewhere."""
    return Named((ENDING_QUEUE, queue.virtual_host.name, queue.name, str(queue.number)), queue)

"""A filtered queue keeps the messages that match its selector. Subscriptions with a selector use one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.queues.search import TEST_OCTETS
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.message import Message


class FilteredQueue(WorkQueue):
    """A work queue that keeps the messages that match its selector, and ignores the others."""

    __slots__ = ()

    def push(self, message: Message) -> bool:
        self.settling.work += 1 + len(message.properties) // TEST_OCTETS
        assert self.selector is not None, "it is set before the queue is bound"
        return super().push(message) if self.selector.matches(message) else True

    def takes_of(self, messages: list[Message]) -> int:
        return 0  # each is tested by itself

    def push_run(self, messages: list[Message]) -> int:
        return 0

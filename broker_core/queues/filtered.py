"""A queue with a condition: messages in, those that suit it kept. A subscription with a selector has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.queues.search import TEST_OCTETS
from broker_core.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from broker_core.message import Message
    from broker_core.selectors.parser import Selector


class Sieve(WorkQueue):
    """It keeps what suits its selector, and lets everything else go by."""

    __slots__ = ("selector",)

    selector: Selector  # set before it is bound

    def push(self, message: Message) -> bool:
        self.virtual_host.broker.work += 1 + len(message.properties) // TEST_OCTETS
        return super().push(message) if self.selector.matches(message) else True

    def takes_of(self, messages: list[Message]) -> int:
        return 0  # each is looked at

    def push_run(self, messages: list[Message]) -> int:
        return 0

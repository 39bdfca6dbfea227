"""The contract of observers, which see what is published and delivered in a virtual host (`VirtualHost.observe`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from leveret.queues.counted_queue import CountedQueue

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.message import Message
    from leveret.observability.connection_stats import ConsumerFacts
    from leveret.queues.queue import Queue


class Observer(Protocol):
    """An observer of what is published and delivered in a virtual host."""

    def wants(self, message: Message) -> bool:
        """Return whether this message is of interest; it is then published by itself, not in a run."""

    def published(self, message: Message, queues: tuple[Queue, ...]) -> None:
        """Called before a message is put into these queues."""

    def delivered(self, queue: CountedQueue, who: ConsumerFacts, deliveries: Iterable[Delivery]) -> None:
        """Called after a consumer has been given these."""

"""The terms of a queue, and typing protocols for what it needs of its virtual host and of the client that owns it.

Queue ──virtual_host──> QueueHost, and ──settling──> Settling (settling.py)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from leveret.exchanges.contract import Host, RouteTracer
from leveret.limits import QueueType
from leveret.queues.counted_queue import CountedQueue
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.config.compat import Compat
    from leveret.delivery import Delivery
    from leveret.guests import G
    from leveret.observability.connection_stats import ConsumerFacts
    from leveret.queues.queue import Queue
    from leveret.queues.undelivered import Undelivered
    from leveret.selectors.parser import Selector
    from leveret.settling import Settling


class QueueHost(Host, Protocol):
    """The virtual host that a queue is in."""

    undelivered: Undelivered  # queues whose dead letters wait for a target

    @property
    def settling(self) -> Settling: ...

    @property
    def compat(self) -> Compat: ...

    @property
    def default_queue_type(self) -> QueueType | None:
        """The type of new queues whose declaration names none."""

    @property
    def tracer(self) -> DeliveryTracer | None:
        """The tracer of what is published and delivered; None while nothing observes it."""

    def delete_queue(self, queue: Queue, if_unused: bool = False, if_empty: bool = False) -> int:
        """Delete a queue, its bindings and messages."""

    def queue_warnings(self, queue: Queue) -> list[str]:
        """Return sentences about the arguments of a queue that have no effect."""

    def note(self, queue: Queue, notes: Table) -> None:
        """Keep notes with a queue across restarts."""

    def reserved(self, queue: Queue) -> int:
        """Return how many unsettled messages of a queue the guests have: it is in use then."""

    def guest(self, kind: type[G]) -> G:
        """Return the guest of this class, made on the first call."""


class DeliveryTracer(RouteTracer, Protocol):
    def delivered(self, queue: CountedQueue, who: ConsumerFacts, deliveries: Iterable[Delivery]) -> None:
        """Show messages that a consumer has been given."""

    def asking(self) -> ConsumerFacts:
        """Return the connection whose input is being handled."""


class Owner(Protocol):
    """The client that alone may use an exclusive queue, which ends with it."""

    name: str  # of the connection, for operators
    exclusive_queues: dict[Queue, None]

    @property
    def peer(self) -> object:
        """The other end of the client's connection."""


NO_ARGUMENTS: Final[Table] = {}


@attrs.frozen
class QueueTerms:
    """The terms that a queue was declared with."""

    type: QueueType = QueueType.CLASSIC
    durable: bool = False
    exclusive: bool = False
    auto_delete: bool = False
    owner: Owner | None = None  # the client that alone may use it
    arguments: Table = NO_ARGUMENTS
    selector: Selector | None = None  # only messages that match it are kept (`filtered.py`)


NO_TERMS: Final = QueueTerms()

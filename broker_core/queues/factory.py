"""Create a queue of the kind that a declaration's arguments ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_core.arguments.queue_declaration import queue_type
from broker_core.config.compat import QuorumPriorities
from broker_core.limits import QueueLimits, QueueType
from broker_core.queues.filtered import Sieve
from broker_core.queues.queue import Queue
from broker_core.queues.quorum_levels import StrictQueue, TwoLevelQueue
from broker_core.queues.sequenced import work_queue_kind
from broker_core.queues.stream import StreamQueue
from broker_core.queues.work_queue import WorkQueue
from broker_core.values import Table

if TYPE_CHECKING:
    from broker_core.client import Client
    from broker_core.selectors.parser import Selector
    from broker_core.virtual_host import VirtualHost

KINDS: Final[dict[QueueType, type[Queue]]] = {
    QueueType.CLASSIC: WorkQueue,
    QueueType.QUORUM: WorkQueue,
    QueueType.STREAM: StreamQueue,
}

QUORUM_KINDS: Final[dict[QuorumPriorities, type[Queue]]] = {
    QuorumPriorities.NONE: WorkQueue,
    QuorumPriorities.TWO_LEVELS: TwoLevelQueue,
    QuorumPriorities.STRICT: StrictQueue,
}


def new_queue(
    host: VirtualHost,
    name: str,
    limits: QueueLimits,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    owner: Client | None,
    arguments: Table,
    selector: Selector | None,
) -> Queue:
    """Return a new queue of the kind that its arguments ask for; the caller adds it to the virtual host."""
    type_ = queue_type(arguments)
    said = host, name, limits, type_, durable, exclusive, auto_delete, owner, arguments
    if selector is not None:
        sieve = Sieve(*said)
        sieve.selector = selector
        return sieve
    kind = KINDS[type_]
    if kind is WorkQueue:
        kind = work_queue_kind(limits)
    if kind is WorkQueue and type_ is QueueType.QUORUM:
        kind = QUORUM_KINDS[host.broker.compat.quorum_priorities]
    return kind(*said)

"""Create a queue of the kind that a declaration's arguments ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.arguments.queue_declaration import queue_type
from leveret.config.compat import QuorumPriorities
from leveret.limits import QueueLimits, QueueType
from leveret.queues.filtered import FilteredQueue
from leveret.queues.queue import Queue
from leveret.queues.quorum_queue import QuorumQueue, TwoLevelQuorumQueue
from leveret.queues.sequenced import work_queue_kind
from leveret.queues.stream import StreamQueue
from leveret.queues.work_queue import WorkQueue
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.queues.contract import Owner, QueueHost
    from leveret.selectors.parser import Selector

KINDS: Final[dict[QueueType, type[Queue]]] = {
    QueueType.CLASSIC: WorkQueue,
    QueueType.QUORUM: WorkQueue,
    QueueType.STREAM: StreamQueue,
}

QUORUM_KINDS: Final[dict[QuorumPriorities, type[Queue]]] = {
    QuorumPriorities.NONE: WorkQueue,
    QuorumPriorities.TWO_LEVELS: TwoLevelQuorumQueue,
    QuorumPriorities.STRICT: QuorumQueue,
}


def new_queue(
    host: QueueHost,
    name: str,
    limits: QueueLimits,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
    owner: Owner | None,
    arguments: Table,
    selector: Selector | None,
) -> Queue:
    """Return a new queue of the kind that its arguments ask for; the caller adds it to the virtual host."""
    type_ = queue_type(arguments)
    kind = FilteredQueue if selector is not None else KINDS[type_]
    if kind is WorkQueue:
        kind = work_queue_kind(limits)
    if kind is WorkQueue and type_ is QueueType.QUORUM:
        kind = QUORUM_KINDS[host.compat.quorum_priorities]
    queue = kind(host, name, limits, type_, durable, exclusive, auto_delete, owner, arguments)
    queue.selector = selector
    return queue

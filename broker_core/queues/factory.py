"""Create a queue of the kind that a declaration's arguments ask for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from leveret.arguments.queue_declaration import queue_type
from leveret.config.compat import QuorumPriorities
from leveret.limits import QueueLimits, QueueType
from leveret.queues.filtered import FilteredQueue
from leveret.queues.queue import Queue
from leveret.queues.quorum_queue import QuorumQueue, TwoLevelQuorumQueue
from leveret.queues.sequenced import work_queue_kind
from leveret.queues.stream import StreamQueue
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.queues.contract import QueueHost, QueueTerms

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


def new_queue(host: QueueHost, name: str, limits: QueueLimits, terms: QueueTerms) -> Queue:
    """Return a new queue of the kind that its arguments ask for; the caller adds it to the virtual host.

    The type among the terms is that of the arguments.
    """
    type_ = queue_type(terms.arguments)
    kind = FilteredQueue if terms.selector is not None else KINDS[type_]
    if kind is WorkQueue:
        kind = work_queue_kind(limits)
    if kind is WorkQueue and type_ is QueueType.QUORUM:
        kind = QUORUM_KINDS[host.compat.quorum_priorities]
    return kind(host, name, limits, attrs.evolve(terms, type=type_))

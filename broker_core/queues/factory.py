"""Create a queue of the kind that a declaration's arguments ask for.

The module of a kind that few nodes have is imported with its first queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from leveret.arguments.queue_declaration import queue_type
from leveret.config.compat import QuorumPriorities
from leveret.limits import QueueLimits, QueueType
from leveret.queues.queue import Queue
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.queues.contract import QueueHost, QueueTerms


def new_queue(host: QueueHost, name: str, limits: QueueLimits, terms: QueueTerms) -> Queue:
    """Return a new queue of the kind that its arguments ask for; the caller adds it to the virtual host.

    The type among the terms is that of the arguments.
    """
    type_ = queue_type(terms.arguments)
    kind = _kind_of(host, limits, type_, terms.selector is not None)
    return kind(host, name, limits, attrs.evolve(terms, type=type_))


def _kind_of(host: QueueHost, limits: QueueLimits, type_: QueueType, is_filtered: bool) -> type[Queue]:
    if is_filtered:
        from leveret.queues.filtered import FilteredQueue

        return FilteredQueue
    if type_ is QueueType.STREAM:
        from leveret.queues.stream import StreamQueue

        return StreamQueue
    kind = _work_queue_kind(limits)
    if kind is WorkQueue and type_ is QueueType.QUORUM:
        return _quorum_kind(host.compat.quorum_priorities)
    return kind


def _work_queue_kind(limits: QueueLimits) -> type[WorkQueue]:
    numbered, valued, grouped = limits.sequence_header, limits.last_value_key, limits.group_key
    if numbered is None and valued is None and grouped is None and not limits.fair_share:
        return WorkQueue
    from leveret.queues.sequenced import work_queue_kind

    return work_queue_kind(limits)


def _quorum_kind(priorities: QuorumPriorities) -> type[WorkQueue]:
    if priorities is QuorumPriorities.NONE:
        return WorkQueue
    from leveret.queues.quorum_queue import QuorumQueue, TwoLevelQuorumQueue

    return TwoLevelQuorumQueue if priorities is QuorumPriorities.TWO_LEVELS else QuorumQueue

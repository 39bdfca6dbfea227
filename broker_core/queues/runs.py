"""Runs of like messages for one queue are pushed and taken together, so that common work is done once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.durability import PENDING
from leveret.outbox import OVERHEAD

if TYPE_CHECKING:
    from leveret.message import Message
    from leveret.queues.lane import Lane
    from leveret.queues.laned_queue import LanedQueue

FEW: Final = 4  # messages; a run that is not longer is taken as quickly one by one


def takes_of(queue: LanedQueue, messages: list[Message]) -> int:
    """Return how many messages of a run a queue with limits (`watched`) is sure to take, even if none leaves it."""
    limits, count = queue.limits, len(messages)
    if limits.no_local or queue.schedule is not None:
        return 0
    if queue.deduplication is not None:
        count = len(queue.deduplication.new_in(messages))
        messages = messages[:count]
    ready, octets = queue.ready, queue.ready_bytes
    if (held := queue.dead_letters) is not None and limits.at_least_once:
        ready += held.count
        octets += held.octets
    if limits.max_length is not None:
        count = max(0, min(count, limits.max_length - ready))
    if limits.max_bytes is not None and count:
        octets += sum([message.size for message in messages])
        return count if octets <= limits.max_bytes else 0
    return count


def line_up(queue: LanedQueue, messages: list[Message], expires_at: float) -> int:
    """Append a run to its lane, numbered from the queue's next position on. Return the bytes of the bodies."""
    position, octets = queue.position, 0
    arrived: list[Delivery] = []
    for message in messages:
        arrived.append(Delivery(message, queue, position, expires_at))
        position += 1
        octets += message.size
    if queue.journal is not None and messages[0].facts.durable and queue.number:
        for delivery in arrived:
            delivery.stored = PENDING
        queue.journal.arrivals += arrived
    if queue.entering is not None:
        queue.entering.entered_all(arrived)
    queue.lane_of(arrived[0]).arrivals.extend(arrived)
    return octets


def take(queue: LanedQueue, lane: Lane, quota: int, room: int) -> list[Delivery]:
    """Take all waiting messages of a lane, if they are more than `FEW` and fit into `quota` and `room`; else none.

    Nothing is taken if any message is on disk, has come back, or may expire: such lanes are taken from one by one.
    """
    if lane.pages is not None or lane.returned or not FEW < len(lane.fresh) <= quota:
        return []
    if queue.ready_bytes + len(lane.fresh) * OVERHEAD >= room:
        return []
    run = list(lane.fresh)
    for delivery in run:
        if delivery.expires_at != NEVER or room <= 0:
            return []
        room -= delivery.message.size + len(delivery.message.properties) + OVERHEAD
    lane.fresh.clear()
    return run

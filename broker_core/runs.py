"""Runs of like messages, one after the other into the same queue: what is the same for all of them is done once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from broker_core.delivery import NEVER, PENDING, Delivery
from broker_core.work_queue import WorkQueue

if TYPE_CHECKING:
    from broker_core.message import Message
    from broker_core.queue import Queue


def end_of_run(messages: Sequence[Message], begin: int) -> int:
    """How far those go that are from the same exchange, with the same key, and of which the broker knows the same."""
    first, end = messages[begin], begin + 1
    exchange, key, facts = first.exchange, first.key, first.facts
    while end < len(messages):
        message = messages[end]
        if message.facts is not facts or message.key != key or message.exchange != exchange:
            break
        end += 1
    return end


def push_all(queue: Queue, messages: Sequence[Message]) -> int:
    """Push a run into a queue that takes whatever comes. Returns how many it took."""
    facts = messages[0].facts
    if (
        len(messages) == 1
        or type(queue) is not WorkQueue
        or queue.watched
        or queue.ttl_s != NEVER
        or facts.ttl_ms is not None
        or len(queue.lanes) > 1
    ):
        return sum([queue.push(message) for message in messages])
    arrived = [
        Delivery(message, queue, place, NEVER) for place, message in enumerate(messages, queue.position)
    ]
    queue.position += len(arrived)
    if queue.journal is not None and facts.durable and queue.number:
        for delivery in arrived:
            delivery.stored = PENDING
        queue.journal.arrivals += arrived
    queue.lanes[0].arrivals += arrived
    queue.ready += len(arrived)
    queue.ready_bytes += sum([message.size for message in messages])
    queue.published += len(arrived)
    if not queue.touched and (queue.rings or queue.expiring):
        queue.touch()
    return len(arrived)

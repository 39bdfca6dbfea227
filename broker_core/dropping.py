"""A queue that holds more than it may drops what comes first, of the lowest priority (S082)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.discard import PAUSE_S, PORTION
from broker_core.queue import MAXLEN

if TYPE_CHECKING:
    from broker_core.lane import Lane
    from broker_core.work_queue import WorkQueue


def drop_over_limit(queue: WorkQueue) -> None:
    """No more than a portion at once: others want their turn."""
    dropped = 0
    while queue.ready and queue.over_limit():
        if dropped == PORTION:
            broker = queue.virtual_host.broker
            broker.timers.at(broker.now + PAUSE_S, lambda now: queue.touch())
            return
        lane = next(lane for lane in queue.lanes if lane)  # the lowest priority goes first
        if lane.at_hand():
            queue.left(delivery := lane.take())
            queue.die(delivery, MAXLEN)
            dropped += 1
        elif not _drop_page(queue, lane):
            lane.load()


def _drop_page(queue: WorkQueue, lane: Lane) -> bool:
    """Drop what comes first without reading it, if all of it is too much, and none of it is buried."""
    page = lane.page_at_head()
    is_buried = queue.limits.dead_letter_exchange is not None
    if page is None or is_buried or not queue.over_limit(-len(page), -page.octets):
        return False
    lane.drop_page()
    queue.ready -= len(page)
    queue.ready_bytes -= page.octets
    queue.expiring -= page.expiring
    return True

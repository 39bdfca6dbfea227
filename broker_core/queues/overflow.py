"""A full queue refuses new messages, or drops the oldest ones of the lowest priority (S082).

Where the profile says so, overflow drops no persistent message (AMQP 0-9-1, class basic: a server must not discard one
when a queue overflows). Such messages stay although the queue is over its limit, until consumers take them: what holds
publishers back is the memory alarm. They may stand at the head for long, and so the queue is not searched for others
behind them: a new message that is not persistent is dropped instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.limits import Overflow
from leveret.queues.discarded_messages import PAUSE_S, DiscardPortion
from leveret.queues.overfull import FLOWING
from leveret.queues.queue import MAXLEN

if TYPE_CHECKING:
    from leveret.message import Message
    from leveret.queues.lane import Lane
    from leveret.queues.laned_queue import LanedQueue

DROP_HEAD: Final = Overflow.DROP_HEAD
REJECT_PUBLISH_DLX: Final = Overflow.REJECT_PUBLISH_DLX
SELF_DESTRUCT: Final = Overflow.SELF_DESTRUCT

NEVER_FULL: Final = (Overflow.DROP_HEAD, Overflow.SELF_DESTRUCT, *FLOWING)  # queues that take every message


def refuses(queue: LanedQueue, message: Message) -> bool:
    """Return whether a queue with limits (`watched`) does not take this message in; dead-letter it if they say so."""
    limits = queue.limits
    if limits.no_local and is_local(queue, message):
        return True
    if queue.deduplication is not None and not queue.deduplication.admits(message):
        return True
    if limits.overflow is DROP_HEAD:
        return (
            limits.keeps_persistent and not message.facts.durable and _is_full_of_persistent(queue, message)
        )
    if limits.overflow in FLOWING:
        return False
    if not queue.lacks_room_for(message):
        return False
    queue.dispatch()
    if queue.dead_letters is not None:
        queue.dead_letters.dispatch()  # what died in this batch need not be in the way
    if not queue.lacks_room_for(message):
        return False
    if limits.overflow is REJECT_PUBLISH_DLX:
        queue.settling.dead_letter(queue, message, MAXLEN)
    return True


def _is_full_of_persistent(queue: LanedQueue, message: Message) -> bool:
    """Return whether a message finds no room, and none that it may push out; dead-letter it then."""
    if not queue.lacks_room_for(message):
        return False
    queue.dispatch()
    if not queue.lacks_room_for(message) or any(map(_may_drop_head, queue.lanes)):
        return False
    queue.settling.dead_letter(queue, message, MAXLEN)
    return True


def _may_drop_head(lane: Lane) -> bool:
    """Return whether a lane's first message is not persistent, as far as that can be told without reading it."""
    return bool(lane) and lane.at_hand() and not lane.head().message.facts.durable


def _droppable(queue: LanedQueue) -> Lane | None:
    """Return the lane whose first message goes next, that of the lowest priority, if any may be dropped."""
    if not queue.limits.keeps_persistent:
        return next(lane for lane in queue.lanes if lane)
    return next((lane for lane in queue.lanes if _may_drop_head(lane)), None)


def turned_away(queue: LanedQueue, message: Message) -> bool:
    """Count a refused message and return False. True if it need not be told: no-local, a duplicate, self-destruct."""
    if queue.limits.no_local and is_local(queue, message):
        return True
    if queue.deduplication is not None and repeats(queue, message):
        return True
    if queue.limits.overflow is DROP_HEAD:  # it was dropped, as another would have been
        return True
    if queue.limits.overflow is SELF_DESTRUCT:
        queue.begin_auto_deletion().destroy()
        return True
    queue.count_refused()
    queue.settling.refused_by = queue.name
    return False


def repeats(queue: LanedQueue, message: Message) -> bool:
    """Return whether a queue that drops duplicates drops this message as one, which is counted."""
    known = queue.deduplication
    if known is None or known.admits(message):
        return False
    identity = known.identify(message)
    return identity is not None and known.repeats(identity)


def drop_over_limit(queue: LanedQueue) -> None:
    """Drop messages from the head until the queue is within its limits, a portion at a time so as not to block."""
    portion = DiscardPortion(queue.settling.clock, queue.limits.dead_letter_exchange is not None)
    while queue.ready and queue.over_limit():
        lane = _droppable(queue)
        if lane is None:
            return
        if lane.at_hand():
            if portion.is_over():
                _look_again(queue)
                return
            queue.left(delivery := lane.take())
            queue.die(delivery, MAXLEN)
        elif not _drop_page(queue, lane):
            if queue.asks_for(lane):
                return  # the queue is touched when it has come
            lane.load()
    while queue.schedule is not None and queue.over_limit():
        if queue.schedule.asks_for_head():
            _look_again(queue)
            return
        if (later := queue.schedule.drop_first()) is None:
            return
        queue.die(later, MAXLEN)


def _look_again(queue: LanedQueue) -> None:
    """Have the queue look at its limits again in a moment."""
    queue.settling.later(PAUSE_S, lambda now: queue.touch())


def _drop_page(queue: LanedQueue, lane: Lane) -> bool:
    """Drop the page at the head unread, if all of it is over the limit, and nothing has to be known of its messages."""
    page = lane.page_at_head()
    is_buried = queue.limits.dead_letter_exchange is not None or queue.present is not None
    if page is None or is_buried or not queue.over_limit(-len(page), -page.octets):
        return False
    lane.drop_page()
    queue.removed(len(page), page.octets, page.expiring)
    return True


def wake_awaiting(queue: LanedQueue) -> None:
    """Have dead letters tried again that this queue has refused, those of as many queues as there is room for."""
    awaited = queue.awaited
    assert awaited is not None, "something is awaited"
    messages = octets = 0
    while awaited:
        held = next(iter(awaited))
        octets += awaited[held]
        messages += 1
        if queue.limits.overflow in NEVER_FULL or not queue.over_limit(messages, octets):
            del awaited[held]
            held.wake()
        else:
            return
    queue.awaited = None


def bury_all(queue: LanedQueue, reason: str) -> None:
    """Let all waiting messages die, in the order of their delivery, and then those that wait for a time."""
    while lane := next((lane for lane in reversed(queue.lanes) if lane), None):
        if lane.at_hand():
            queue.left(delivery := lane.take())
            queue.die(delivery, reason)
        else:
            lane.load()
    if queue.schedule is not None:
        for delivery in queue.schedule.take_all():
            queue.die(delivery, reason)


def is_local(queue: LanedQueue, message: Message) -> bool:
    """Return whether a message came over the connection of a queue's owner, or of its exclusive consumer."""
    if message.peer is None:
        return False
    sole = next(iter(queue.consumers), None)
    return (queue.owner is not None and queue.owner.peer is message.peer) or (
        sole is not None and sole.exclusive and sole.peer is message.peer
    )

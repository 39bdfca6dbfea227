"""What a session has sent, by command id, until the peer says what became of it: accept, reject, release, acquire.

    pre-acquired ──sent──> unsettled ──accept──> gone
                               ├──reject──> its queue's alternate exchange, or dead
                               └──release─> back at its old place
    not-acquired ──sent──> browsed ──acquire──> unsettled, or gone if nobody is to accept it

Ids that the session does not hold are passed over: they may have been settled before. A set of ids is a claim, which
may name four thousand million of them in ten octets; only those count that were sent, and of those, in the time of what
is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from protocols.amqp010.codec import commands as c
from protocols.amqp010.codec.sequences import MASK, Id, SequenceSet, distance, following, is_before

if TYPE_CHECKING:
    from broker_core.delivery import Delivery
    from broker_core.queues.queue import Queue
    from protocols.amqp010.broker.session import ServedSession

T = TypeVar("T")

BROWSED_MAX: Final = 65_536  # messages that were shown: of the last so many, at least, any may be acquired
FAR: Final = 1 << 30  # half of what two ids may be apart and still be compared


class Sent(Generic[T]):
    """Something about transfers, by their command ids: put there as they are sent, taken out by sets of ids."""

    __slots__ = ("by_id", "looked_at", "oldest")

    def __init__(self) -> None:
        self.by_id: dict[Id, T] = {}
        self.oldest: Id = 0  # none of those here is older
        self.looked_at = 0  # ids, by the last `take`

    def begin(self, id: Id) -> dict[Id, T]:
        """Where to put transfers, of which the next has this id."""
        if not self.by_id:
            self.oldest = id
        return self.by_id

    def put_back(self, held: dict[Id, T]) -> None:
        """These are here again."""
        for id, each in held.items():
            self.begin(id)[id] = each
            if is_before(id, self.oldest):
                self.oldest = id

    def take(self, ids: SequenceSet, last: Id) -> dict[Id, T]:
        """Take out those of `ids` that are here; `last`: the last id that was sent.

        Whoever takes a long backlog in small steps from its front does not pay for the whole of it with each step, and
        who names more than there is pays for what there is.
        """
        held = self.by_id
        self.looked_at = 0
        if not held:
            return {}
        if not 0 <= distance(self.oldest, last) <= FAR:
            self.oldest = next(iter(held))
        asked = ids.within(self.oldest, last)
        if not asked:
            return {}
        self.looked_at = min(asked.count, 4 * len(held) + 1000)
        if asked.count > 4 * len(held) + 1000:
            taken = {id: each for id, each in held.items() if id in asked}
            self.by_id = {id: each for id, each in held.items() if id not in taken}
        else:
            taken, pop = {}, held.pop
            for low, high in asked.ranges:
                span = range(low, high + 1) if low <= high else (*range(low, MASK + 1), *range(high + 1))
                taken |= {id: pop(id) for id in span if id in held}
        low, high = asked.ranges[0]
        if low == self.oldest:
            self.oldest = following(high)
        return taken


class Browsed:
    """Where the messages stand that were shown and not taken: the last `size_max` of them, and no more than twice so
    many."""

    __slots__ = ("_older", "_recent", "_size_max", "looked_at")

    def __init__(self, size_max: int = BROWSED_MAX) -> None:
        self._size_max = size_max
        self._recent: dict[Id, tuple[Queue, int, bool]] = {}
        self._older: dict[Id, tuple[Queue, int, bool]] = {}
        self.looked_at = 0  # ids, by the last `take`

    def add(self, id: Id, queue: Queue, position: int, settled: bool) -> None:
        """`settled`: nobody will accept it when it is acquired."""
        if len(self._recent) >= self._size_max:
            self._older, self._recent = self._recent, {}
        self._recent[id] = queue, position, settled

    def take(self, ids: SequenceSet) -> dict[Id, tuple[Queue, int, bool]]:
        """Those of `ids` that are here, which they are not any more."""
        found: dict[Id, tuple[Queue, int, bool]] = {}
        self.looked_at = 4 * min(ids.count, len(self._older) + len(self._recent))
        for shown in (self._older, self._recent):
            known = (
                [id for id in ids if id in shown]
                if ids.count <= len(shown)
                else [*filter(ids.__contains__, shown)]
            )
            found |= {id: shown.pop(id) for id in known}
        return found

    def clear(self) -> None:
        self._recent.clear()
        self._older.clear()


# What the peer says became of them.


def message_accept(session: ServedSession, id: Id, command: c.MessageAccept) -> None:
    """Dealt with; in a transaction, when that is committed."""
    if taken := _taken(session, command.transfers):
        session.accepted += len(taken)
        if session.tx is not None:
            session.tx.accept(taken)
        else:
            for delivery in taken.values():
                delivery.queue.accept(delivery)
    session.complete(id)


def message_reject(session: ServedSession, id: Id, command: c.MessageReject) -> None:
    """Not wanted, by nobody else either."""
    for delivery in _taken_back(session, command.transfers).values():
        delivery.queue.reject(delivery)
    session.complete(id)


def message_release(session: ServedSession, id: Id, command: c.MessageRelease) -> None:
    """Back to its old place; it counts as a failed delivery if it is to be marked as delivered before."""
    marked = command.set_redelivered
    for delivery in _taken_back(session, command.transfers).values():
        delivery.queue.release(delivery, failed=marked, redelivered=marked)
    session.complete(id)


def message_acquire(session: ServedSession, id: Id, command: c.MessageAcquire) -> None:
    """What was only shown is to be the session's, as far as it still waits; the result names what it got."""
    acquired = SequenceSet()
    if command.transfers:
        shown = session.browsed.take(command.transfers)
        session.has_looked_at(session.browsed.looked_at)
        for queue in {queue for queue, _, _ in shown.values() if not queue.deleted}:
            session.client.readable_queue(queue.name)  # as if he subscribed to it now
        for each, (queue, position, settled) in shown.items():
            delivery = None if queue.deleted else queue.acquire(position)
            if delivery is None:
                continue
            acquired.add(each)
            if settled:
                queue.accept(delivery)
            else:
                session.unsettled.put_back({each: delivery})
    session.result(id, c.Acquired(acquired))
    session.complete(id)


def release_all(session: ServedSession) -> None:
    """The session has ended: what nobody has answered goes back, marked as delivered before."""
    for delivery in session.unsettled.by_id.values():
        delivery.queue.release(delivery)
    session.unsettled.by_id.clear()
    session.browsed.clear()


def _taken(session: ServedSession, ids: SequenceSet | None) -> dict[Id, Delivery]:
    if not ids:
        return {}
    taken = session.unsettled.take(ids, session.last_sent)
    session.has_looked_at(session.unsettled.looked_at)
    return taken


def _taken_back(session: ServedSession, ids: SequenceSet | None) -> dict[Id, Delivery]:
    """Also what was accepted in a transaction that is not over: it is not accepted after all."""
    taken = _taken(session, ids)
    return taken | session.tx.take_back(ids) if ids and session.tx is not None else taken

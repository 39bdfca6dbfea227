"""The transfers that a session has sent, by command id, until the peer accepts, rejects, releases or acquires them.

    pre-acquired ──sent──> unsettled ──accept──> gone
                               ├──reject──> its queue's alternate exchange, or dead
                               └──release─> back at its old place
    not-acquired ──sent──> browsed ──acquire──> unsettled, or gone if no accept is needed

Acquiring an unsettled transfer renews it: the time in which it has to be accepted begins anew.

Ids that the session does not hold are passed over: they may have been settled before. A set in ten bytes may name four
thousand million ids; only those that were sent count, in time proportional to what is held.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Generic, TypeVar

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.sequences import MASK, Id, SequenceSet, distance, following, is_before

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.protocols.amqp010.broker.session import ServedSession
    from leveret.queues.queue import Queue

T = TypeVar("T")

BROWSED_MAX: Final = 65_536  # messages; at least this many of those shown last may be acquired
FAR: Final = 1 << 30  # half the distance over which two ids can be compared


class Sent(Generic[T]):
    """A table of transfers by their command ids: filled as they are sent, emptied by sets of ids."""

    __slots__ = ("by_id", "looked_at", "oldest")

    def __init__(self) -> None:
        self.by_id: dict[Id, T] = {}
        self.oldest: Id = 0  # no id here is older
        self.looked_at = 0  # ids that the last `take` examined

    def begin(self, id: Id) -> dict[Id, T]:
        """Return the dict to put transfers into, of which the next has this id."""
        if not self.by_id:
            self.oldest = id
        return self.by_id

    def put_back(self, held: dict[Id, T]) -> None:
        """Put these back."""
        for id, each in held.items():
            self.begin(id)[id] = each
            if is_before(id, self.oldest):
                self.oldest = id

    def take(self, ids: SequenceSet, last: Id) -> dict[Id, T]:
        """Remove the entries with these ids and return those that were there. `last` is the last id that was sent.

        Taking a long backlog in small steps from its front does not cost the whole of it with each step, and a set of
        more ids than there are costs no more than what there is.
        """
        held = self.by_id
        selected = self._asked(ids, last)
        if not selected:
            return {}
        if selected.count > 4 * len(held) + 1000:
            taken = {id: each for id, each in held.items() if id in selected}
            self.by_id = {id: each for id, each in held.items() if id not in taken}
        else:
            taken, pop = {}, held.pop
            for low, high in selected.ranges:
                span = range(low, high + 1) if low <= high else (*range(low, MASK + 1), *range(high + 1))
                taken |= {id: pop(id) for id in span if id in held}
        low, high = selected.ranges[0]
        if low == self.oldest:
            self.oldest = following(high)
        return taken

    def held(self, ids: SequenceSet, last: Id) -> dict[Id, T]:
        """Return the entries with these ids, which stay. It costs as much as `take`."""
        selected = self._asked(ids, last)
        if selected.count > 4 * len(self.by_id) + 1000:
            return {id: each for id, each in self.by_id.items() if id in selected}
        return {id: self.by_id[id] for id in selected if id in self.by_id}

    def _asked(self, ids: SequenceSet, last: Id) -> SequenceSet:
        """Return those of the ids that may be here."""
        held = self.by_id
        self.looked_at = 0
        if not held:
            return SequenceSet()
        if not 0 <= distance(self.oldest, last) <= FAR:
            self.oldest = next(iter(held))
        selected = ids.within(self.oldest, last)
        self.looked_at = min(selected.count, 4 * len(held) + 1000)
        return selected


class Browsed:
    """The positions of messages that were shown and not acquired: the last `size_max`, at most twice as many."""

    __slots__ = ("_older", "_recent", "_size_max", "looked_at")

    def __init__(self, size_max: int = BROWSED_MAX) -> None:
        self._size_max = size_max
        self._recent: dict[Id, tuple[Queue, int, bool]] = {}
        self._older: dict[Id, tuple[Queue, int, bool]] = {}
        self.looked_at = 0  # ids that the last `take` examined

    def add(self, id: Id, queue: Queue, position: int, settled: bool) -> None:
        """Note a shown message. `settled` means that the peer will not accept it after it has acquired it."""
        if len(self._recent) >= self._size_max:
            self._older, self._recent = self._recent, {}
        self._recent[id] = queue, position, settled

    def take(self, ids: SequenceSet) -> dict[Id, tuple[Queue, int, bool]]:
        """Remove the messages with these ids and return those that were there."""
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


# Commands of the peer.


def message_accept(session: ServedSession, id: Id, command: c.MessageAccept) -> None:
    """Remove deliveries that the peer has dealt with; in a transaction, when that is committed."""
    if taken := _taken(session, command.transfers):
        session.accepted += len(taken)
        if session.tx is not None:
            session.tx.accept(taken)
        else:
            for delivery in taken.values():
                delivery.queue.accept(delivery)
    session.complete(id)


def message_reject(session: ServedSession, id: Id, command: c.MessageReject) -> None:
    """Reject deliveries: they go to the alternate exchange, are dead-lettered or dropped, and never redelivered."""
    for delivery in _taken_back(session, command.transfers).values():
        delivery.queue.reject(delivery)
    session.complete(id)


def message_release(session: ServedSession, id: Id, command: c.MessageRelease) -> None:
    """Return deliveries to their old places. Those to be marked as redelivered count as failed deliveries."""
    marked = command.set_redelivered
    for delivery in _taken_back(session, command.transfers).values():
        delivery.queue.release(delivery, failed=marked, redelivered=marked)
    session.complete(id)


def message_acquire(session: ServedSession, id: Id, command: c.MessageAcquire) -> None:
    """Acquire shown messages that still wait in their queues, and renew those that the session holds already.

    The result names all of them."""
    acquired = SequenceSet()
    if command.transfers:
        for each, held in session.unsettled.held(command.transfers, session.last_sent).items():
            held.queue.renew(held)
            acquired.add(each)
        session.has_looked_at(session.unsettled.looked_at)
        shown = session.browsed.take(command.transfers)
        session.has_looked_at(session.browsed.looked_at)
        for queue in {queue for queue, _, _ in shown.values() if not queue.deleted}:
            session.client.readable_queue(queue.name)  # the same check as for subscribing to it now
        for each, (queue, position, settled) in shown.items():
            delivery = None if queue.deleted or queue.paused else queue.acquire(position)
            if delivery is None:
                continue
            acquired.add(each)
            if settled:
                queue.accept(delivery)
            else:
                session.unsettled.put_back({each: delivery})
                session.timeouts.watch(delivery)
    session.result(id, c.Acquired(acquired))
    session.complete(id)


def release_all(session: ServedSession) -> None:
    """Release all unsettled deliveries of a session that has ended, marked as redelivered."""
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
    """Return these deliveries, including those accepted in an open transaction, of which the accept is cancelled."""
    taken = _taken(session, ids)
    return taken | session.tx.take_back(ids) if ids and session.tx is not None else taken

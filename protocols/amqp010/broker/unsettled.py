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

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.sequences import MASK, Id, SequenceSet, distance, following, is_before
from leveret.protocols.shared.machine.numbered_table import NumberedTable

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.protocols.amqp010.broker.session import ServedSession
    from leveret.queues.queue import Queue

T = TypeVar("T")

BROWSED_MAX: Final = 65_536  # messages; at least this many of those shown last may be acquired
FAR: Final = 1 << 30  # half the distance over which two ids can be compared


class Sent(Generic[T]):
    """A table of transfers by their command ids: filled as they are sent, emptied by sets of ids."""

    __slots__ = ("looked_at", "oldest", "table")

    def __init__(self) -> None:
        self.table: NumberedTable[T] = NumberedTable()
        self.oldest: Id = 0  # no id here is older
        self.looked_at = 0  # ids that the last `take` examined

    def add(self, id: Id, entry: T) -> None:
        if not self.table or is_before(id, self.oldest):
            self.oldest = id
        self.table.add(id, entry)

    def add_all(self, first: Id, entries: Sequence[T]) -> None:
        """Add transfers that were sent one after the other, the first of them with this id."""
        if not self.table:
            self.oldest = first
        wraps = MASK + 1 - first
        self.table.add_all(first, entries[:wraps])
        if len(entries) > wraps:
            self.table.add_all(0, entries[wraps:])

    def put_back(self, held: Mapping[Id, T]) -> None:
        """Put these back."""
        for id, each in held.items():
            self.add(id, each)

    def take(self, ids: SequenceSet, last: Id) -> dict[Id, T]:
        """Remove the entries with these ids and return those that were there. `last` is the last id that was sent.

        Taking a long backlog in small steps from its front does not cost the whole of it with each step, and a set of
        more ids than there are costs no more than what there is.
        """
        selected = self._asked(ids, last)
        if not selected:
            return {}
        low, high = selected.first_range
        known = range(low, high + 1)
        taken = dict(zip(known, self.table.take(known), strict=False))  # up to the first that is not here
        if len(taken) < self.looked_at:
            others = self._known(selected)
            taken.update(zip(others, self.table.take(others), strict=True))
        if low == self.oldest:
            self.oldest = following(high)
        return taken

    def held(self, ids: SequenceSet, last: Id) -> dict[Id, T]:
        """Return the entries with these ids, which stay. It costs as much as `take`."""
        found = [(id, self.table.get(id)) for id in self._known(self._asked(ids, last))]
        return {id: each for id, each in found if each is not None}

    def _known(self, selected: SequenceSet) -> list[Id]:
        """Return the ids of a set that are here."""
        table = self.table
        if selected.count > 4 * len(table) + 1000:
            return [id for id in table if id in selected]
        return [id for id in selected if id in table]

    def _asked(self, ids: SequenceSet, last: Id) -> SequenceSet:
        """Return those of the ids that may be here."""
        self.looked_at = 0
        if not self.table:
            return SequenceSet()
        if not 0 <= distance(self.oldest, last) <= FAR:
            self.oldest = next(iter(self.table))
        selected = ids.within(self.oldest, last)
        self.looked_at = min(selected.count, 4 * len(self.table) + 1000)
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
                session.unsettled.add(each, delivery)
                session.timeouts.watch(delivery)
    session.result(id, c.Acquired(acquired))
    session.complete(id)


def release_all(session: ServedSession) -> None:
    """Release all unsettled deliveries of a session that has ended, marked as redelivered."""
    for delivery in session.unsettled.table.values():
        delivery.queue.release(delivery)
    session.unsettled.table.clear()
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

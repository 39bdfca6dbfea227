"""Local transactions hold back publishes and outcomes until commit (0-9-1 tx, 1.0 coordinator, 0-10 tx).

    publish ──> routed (S122) ──commit──> what is left of the route     nothing ──> routed anew ──> nothing: unroutable

Messages are routed when they are published, and reach their queues at commit; outcomes take effect at commit and are
dropped by a rollback (S124). A queue that was deleted in between and declared again gets its messages, as RabbitMQ
remembers queues by their names; a message for which no queue is left is routed anew, so that alternates get it, and is
unroutable if that leads nowhere (S125).

That a commit is there as a whole or not at all is the journal's doing: all that it changes is in one commit on disk.
Consumers do not wait for that, so that one may have seen what a crash undoes (X094).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leveret.exchanges.routing import Route, drops, give_once, identity_at, walk

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.exchanges.contract import Host
    from leveret.exchanges.duplicates import Identity
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message
    from leveret.queues.queue import Queue


class Publication:
    """A message that is to be published at a commit, and the route that was found for it when it came."""

    __slots__ = ("exchange", "host", "message", "route")

    def __init__(self, host: Host, exchange: str, route: Route, message: Message) -> None:
        self.host = host
        self.exchange = exchange  # its name
        self.route = route
        self.message = message

    def route_now(self) -> Route:
        """Return the route with the queues and exchanges of these names that are there now.

        If no queue is left, the message is routed anew; if it was unroutable when it came, it stays so.
        """
        found = self.route
        if not found.keepers and True not in [queue.deleted for queue in found.queues]:
            return found
        queues = tuple([each for each in map(self._queue, found.queues) if each is not None])
        keepers = tuple([each for each in found.keepers if self.host.exchanges.get(each.name) is each])
        if queues == found.queues and keepers == found.keepers:
            return found
        if queues or (found.handled and keepers == found.keepers):
            return found.among(queues, keepers)
        exchange = self.host.exchanges.get(self.exchange)
        return walk(exchange, self.message) if exchange is not None else Route((), False, (), False)

    def _queue(self, queue: Queue) -> Queue | None:
        return self.host.queues.get(queue.name) if queue.deleted else queue


class Transaction:
    """The publishes and outcomes of one channel or session since its last commit or rollback."""

    __slots__ = ("_outcomes", "_publishes", "copies", "octets", "publications")

    def __init__(self) -> None:
        self._publishes: list[Callable[[], bool]] = []
        self.publications: list[Publication] = []  # those of `publish`, in order
        self._outcomes: list[Callable[[], None]] = []
        self.octets = 0  # bytes of the bodies held
        self.copies = 0  # messages that a commit would put into queues

    def publish(
        self,
        broker: Broker,
        exchange: Exchange,
        message: Message,
        unroutable: Callable[[], None] | None = None,
    ) -> bool:
        """Route a message now, to be put into its queues at commit. False: it is unroutable now.

        `unroutable` is called at the commit, if the message reaches nothing then. Raises PreconditionFailed if an
        interceptor refuses the message.
        """
        exchange.published += 1
        if exchange.prepares:
            message = broker.prepared(exchange, message)
        identity = None if exchange.deduplication is None else identity_at(exchange, message)
        if identity is not None and drops(exchange, identity):
            return True
        route = broker.route(exchange, message)
        publication = Publication(exchange.virtual_host, exchange.name, route, message)
        self.hold(lambda: give_at_commit(exchange, identity, publication, unroutable), message.size)
        self.publications.append(publication)
        self.copies += len(route.queues)
        route.count(exchange)
        return not route.unroutable

    @property
    def held(self) -> tuple[int, int]:
        """The number of publishes and the number of outcomes."""
        return len(self._publishes), len(self._outcomes)

    def hold(self, give: Callable[[], bool], octets: int) -> None:
        """Call `give` at commit, in the order of publishing. It returns False if a queue refused the message."""
        self._publishes.append(give)
        self.octets += octets

    def settle(self, outcome: Callable[[], None]) -> None:
        """Call `outcome` at commit, after the publishes."""
        self._outcomes.append(outcome)

    def obstacle(self) -> Queue | None:
        """Return a queue without room for all that it would get, or None if a commit now would be taken in full.

        Messages that consumers might take at once count as well.
        """
        needs: dict[Queue, tuple[int, int]] = {}
        for each in self.publications:
            for queue in each.route_now().queues:
                messages, octets = needs.get(queue, (0, 0))
                needs[queue] = messages + 1, octets + each.message.size
        return next((queue for queue, need in needs.items() if not queue.has_room(*need)), None)

    def stray(self) -> str:
        """Return the words for a message that has become unroutable since it was published; empty: there is none."""
        for each in self.publications:
            if not each.route.unroutable and each.route_now().unroutable:
                return f"nothing takes a message to exchange '{each.exchange}' with key '{each.message.key}' any more"
        return ""

    def fits_on_disk(self, broker: Broker) -> bool:
        """Return whether there is room for its durable messages, which are written together or not at all.

        Without it the commit would wait for room, and with it all that consumers settle, which makes room.
        """
        if broker.journal is None:
            return True
        durable = [
            each.message.size
            for each in self.publications
            if each.message.facts.durable and each.route_now().queues
        ]
        return broker.journal.has_room_for(sum(durable))

    def commit(self) -> int:
        """Carry out all publishes, then all outcomes; return how many messages a full queue refused (X029)."""
        refused = 0
        for give in self._publishes:
            refused += not give()
        for outcome in self._outcomes:
            outcome()
        self.rollback()
        return refused

    def rollback(self) -> None:
        """Drop all publishes and outcomes."""
        self._publishes.clear()
        self.publications.clear()
        self._outcomes.clear()
        self.octets = 0
        self.copies = 0


def give_at_commit(
    exchange: Exchange, identity: Identity | None, held: Publication, unroutable: Callable[[], None] | None
) -> bool:
    """Give a message at a commit, unless the transaction itself has published its id before. False: it was refused.

    Where exchanges on the way drop duplicates, the route is found anew, and the message goes where both lead.
    """
    if identity is not None and drops(exchange, identity):
        held.route.count(exchange, -1)
        return True
    left, message = held.route_now(), held.message
    if left is not held.route:
        held.route.count(exchange, -1)
        left.count(exchange)
    if left.passed and held.route.passed:
        now = walk(exchange, message)
        left = left.among(
            tuple(each for each in left.queues if each in now.queues or each not in held.route.queues),
            left.keepers,
        )
        left.passing(now.passed)  # as of now
    if unroutable is not None and left.unroutable:
        unroutable()
    return give_once(exchange, identity, left, message)

"""Local transactions hold back publishes and outcomes until commit (0-9-1 tx, 1.0 coordinator, 0-10 tx).

Messages are routed when they are published (S122) and reach their queues at commit; outcomes take effect at commit and
are dropped by a rollback (S124).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from leveret.exchanges.routing import Route, drops, give_once, identity_at, walk

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.exchanges.duplicates import Identity
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message
    from leveret.queues.queue import Queue


class Transaction:
    """The publishes and outcomes of one channel or session since its last commit or rollback."""

    __slots__ = ("_outcomes", "_publishes", "copies", "octets", "routes")

    def __init__(self) -> None:
        self._publishes: list[Callable[[], bool]] = []
        self.routes: list[tuple[Route, Message]] = []  # of messages published with `publish`, in order
        self._outcomes: list[Callable[[], None]] = []
        self.octets = 0  # bytes of the bodies held
        self.copies = 0  # messages that a commit would put into queues

    def publish(self, broker: Broker, exchange: Exchange, message: Message) -> bool:
        """Route a message now, to be put into its queues at commit. False: it is unroutable now.

        Raises PreconditionFailed if an interceptor refuses the message.
        """
        exchange.published += 1
        if exchange.prepares:
            message = broker.prepared(exchange, message)
        identity = None if exchange.deduplication is None else identity_at(exchange, message)
        if identity is not None and drops(exchange, identity):
            return True
        found = broker.route(exchange, message)
        if identity is not None or found.passed:
            self.hold(lambda: give_at_commit(exchange, identity, found, message), message.size)
        else:
            self.hold(lambda: alive(found).give(message), message.size)
        self.routes.append((found, message))
        self.copies += len(found.queues)
        exchange.unroutable += found.unroutable
        exchange.surplus += len(found.queues) + found.unroutable - 1
        return not found.unroutable

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
        for found, message in self.routes:
            for queue in found.queues:
                messages, octets = needs.get(queue, (0, 0))
                needs[queue] = messages + 1, octets + message.size
        return next(
            (each for each, need in needs.items() if not each.deleted and not each.has_room(*need)), None
        )

    def fits_on_disk(self, broker: Broker) -> bool:
        """Return whether there is room for its durable messages, which are written together or not at all.

        Without it the commit would wait for room, and with it all that consumers settle, which makes room.
        """
        if broker.journal is None:
            return True
        durable = [message.size for found, message in self.routes if message.facts.durable and found.queues]
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
        self.routes.clear()
        self._outcomes.clear()
        self.octets = 0
        self.copies = 0


def alive(found: Route) -> Route:
    """Return a route without the queues and exchanges that were deleted since it was found."""
    queues = tuple(queue for queue in found.queues if not queue.deleted)
    keepers = tuple(each for each in found.keepers if each.virtual_host.exchanges.get(each.name) is each)
    return found.among(queues, keepers)


def give_at_commit(exchange: Exchange, identity: Identity | None, found: Route, message: Message) -> bool:
    """Give a message at a commit, unless the transaction itself has published its id before. False: it was refused.

    Where exchanges on the way drop duplicates, the route is found anew, and the message goes where both lead.
    """
    if identity is not None and drops(exchange, identity):
        exchange.surplus -= len(found.queues) + found.unroutable - 1
        return True
    left = alive(found)
    if found.passed:
        now = walk(exchange, message)
        left = left.among(tuple(each for each in left.queues if each in now.queues), left.keepers)
        left.passing(now.passed)  # as of now
    return give_once(exchange, identity, left, message)

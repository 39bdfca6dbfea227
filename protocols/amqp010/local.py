"""Queues that do not want what their own connection publishes: the argument `no-local`, as Apache Qpid has it.

A message is local to a queue if it comes over the connection of the session that owns the queue, or that is its only,
exclusive subscriber. It is dropped on its way there. Only transfers over 0-10 that are not part of a transaction are
looked at, and only while the virtual host has such a queue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from broker_core.broker import REFUSED, TAKEN, Outcome
from broker_core.routing import Route
from broker_core.topology import Kept
from protocols.amqp010 import declarations
from protocols.amqp010.subscription import Subscription

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.client import Client
    from broker_core.exchange import Exchange
    from broker_core.message import Message
    from broker_core.queue import Queue
    from broker_core.topology import VirtualHost
    from protocols.amqp010 import commands as c
    from protocols.amqp010.sequences import Id
    from protocols.amqp010.served_session import ServedSession

ARGUMENT: Final = "no-local"


class Aloof(Kept):
    """The queues of a virtual host that were declared like this, as long as the session lives that did it."""

    def __init__(self, host: VirtualHost) -> None:
        super().__init__(host)
        self.declared: dict[str, ServedSession] = {}  # by name, and by whom
        self._sessions: set[ServedSession] = set()  # who will be forgotten when they end

    def note(self, session: ServedSession, name: str) -> None:
        """The session has declared it; if it is another's already, it stays that."""
        known = self.declared.get(name)
        if known is not None and self.host.queues[name].owner is not session.client:
            return
        if session not in self._sessions:
            self._sessions.add(session)
            session.at_end.append(partial(self._forget, session))
        self.declared[name] = session
        if len(self.declared) > 2 * len(self.host.queues):  # queues come and go while their session lasts
            self._keep(lambda session: True)

    def _forget(self, session: ServedSession) -> None:
        self._sessions.discard(session)
        self._keep(lambda by: by is not session)

    def _keep(self, stays: Callable[[ServedSession], bool]) -> None:
        queues = self.host.queues
        self.declared = {name: by for name, by in self.declared.items() if name in queues and stays(by)}

    def publish(self, broker: Broker, origin: Client, exchange: Exchange, message: Message) -> Outcome:
        """As `Broker.publish`, but past the queues that the message is local to; `origin`: of its connection."""
        found = broker.route(exchange, message)
        kept = tuple(queue for queue in found.queues if not self._is_local(queue, origin))
        if len(kept) == len(found.queues):
            return broker.publish(exchange, message)
        exchange.published += 1
        taken = Route(kept, found.handled, found.keepers, lasting=False).give(message)
        return TAKEN if taken else REFUSED

    def _is_local(self, queue: Queue, origin: Client) -> bool:
        if queue.name not in self.declared or not queue.arguments.get(ARGUMENT):
            return False
        if queue.owner is not None and self.declared[queue.name].origin is origin:
            return True
        sole = next(iter(queue.consumers), None)
        return isinstance(sole, Subscription) and sole.exclusive and sole.session.origin is origin


def queue_declare(session: ServedSession, id: Id, command: c.QueueDeclare) -> None:
    """As that of declarations.py."""
    declarations.queue_declare(session, id, command)
    queue = session.host.queues.get(command.queue or "")
    if queue is not None and not command.passive and queue.arguments.get(ARGUMENT):
        session.host.kept(Aloof).note(session, queue.name)

"""Queues that do not want what their own connection publishes: the argument `no-local`, as Apache Qpid has it.

A message is local to a queue if it comes over the connection of the session that owns the queue, or that is its only,
exclusive subscriber. It is dropped on its way there. Only transfers over 0-10 that are not part of a transaction are
looked at, and only while the virtual host has such a queue.
"""

from __future__ import annotations

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
        self.declared: dict[str, Client] = {}  # by name, and over which connection

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
        if queue.owner is not None and self.declared[queue.name] is origin:
            return True
        sole = next(iter(queue.consumers), None)
        return isinstance(sole, Subscription) and sole.exclusive and sole.session.origin is origin


def queue_declare(session: ServedSession, id: Id, command: c.QueueDeclare) -> None:
    """As that of declarations.py."""
    declarations.queue_declare(session, id, command)
    if command.arguments and command.arguments.get(ARGUMENT) and command.queue:
        declared = session.host.kept(Aloof).declared
        declared[command.queue] = session.origin
        session.at_end.append(partial(declared.pop, command.queue, None))

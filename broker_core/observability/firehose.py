"""The firehose: while a virtual host is traced, a copy of every message published and delivered in it.

    publish  ─> TracedRoute.give    ─┐
    dispatch ─> Queue.give, hand_out ─┴─> Tracer ─> amq.rabbitmq.trace, in the same settle, when queues are at rest

A virtual host that is not traced pays nothing for publishing, since tracing swaps the cached routes, and one test a
batch for delivering. Copies have the keys and headers of RabbitMQ's, and are AMQP 0-9-1 messages. Copies and their dead
letters are not traced themselves. Fetched and consumed messages are traced; browsing, leases and blocks of a stream are
not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from broker_core.exchanges.routing import Route
from broker_core.observability.connection_stats import ConsumerFacts
from broker_core.observability.system_messages import as_message, said_of

if TYPE_CHECKING:
    from broker_core.broker import Broker
    from broker_core.delivery import Delivery
    from broker_core.exchanges.exchange import Exchange
    from broker_core.message import Message
    from broker_core.queues.queue import Queue
    from broker_core.values import Value

TRACE: Final = "amq.rabbitmq.trace"
USERS_MAX: Final = 1000  # connections whose users are cached


class Traced:
    """The part of a virtual host that tracing needs; `VirtualHost` inherits it."""

    name: str
    broker: Broker
    exchanges: dict[str, Exchange]
    queues: dict[str, Queue]
    revision: int

    tracer: Tracer | None = None

    @property
    def tracing(self) -> bool:
        """True if messages are copied to `amq.rabbitmq.trace`."""
        return self.tracer is not None

    def set_tracing(self, on: bool) -> None:
        """Switch the copying of messages to `amq.rabbitmq.trace` on or off."""
        if on is self.tracing:
            return
        self.tracer = Tracer(self) if on else None
        self.revision += 1  # cached routes are of the other kind
        if self.broker.catalogue is not None:
            self.broker.catalogue.keep_virtual_host(self.broker.virtual_hosts[self.name])
        self.broker.events.happened("vhost.tracing.set", self.name, {"name": self.name, "tracing": on})


class TracedRoute(Route):
    """A route that reports the messages it takes to the tracer."""

    __slots__ = ("_tracer",)

    def __init__(
        self,
        tracer: Tracer,
        queues: tuple[Queue, ...],
        handled: bool,
        keepers: tuple[Exchange, ...],
        lasting: bool,
    ) -> None:
        super().__init__(queues, handled, keepers, lasting)
        self._tracer = tracer
        self.only = None  # so that no publish bypasses `give`

    def give(self, message: Message) -> bool:
        self._tracer.published(message, self.queues)
        return super().give(message)

    def give_run(self, messages: list[Message]) -> int:
        return 0  # none as a run: each message has to be reported by `give`

    def fulfil(self, message: Message) -> None:
        self._tracer.published(message, self.queues)
        super().fulfil(message)

    def among(self, queues: tuple[Queue, ...], keepers: tuple[Exchange, ...]) -> Route:
        route = TracedRoute(self._tracer, queues, self.handled, keepers, lasting=False)
        return route.passing(self.passed) if self.passed else route


class Tracer:
    """Makes the copies of one virtual host, and publishes them when no queue is in the middle of an operation."""

    def __init__(self, host: Traced) -> None:
        self._host = host
        self._copies: list[Message] = []  # of this batch
        self._users: dict[str, str] = {}  # of connections, by name

    def route(
        self, queues: tuple[Queue, ...], handled: bool, keepers: tuple[Exchange, ...], lasting: bool
    ) -> Route:
        """Return a route that reports its messages to this tracer."""
        return TracedRoute(self, queues, handled, keepers, lasting)

    def published(self, message: Message, queues: Iterable[Queue]) -> None:
        """Copy a message that a client has published to these queues."""
        if message.notes is None and self._wanted(message):
            who = self.asking()
            more: dict[str, Value] = {"routed_queues": [queue.name for queue in queues]}
            self._copy(f"publish.{message.exchange}", message, who, more)

    def delivered(self, queue: Queue, who: ConsumerFacts, deliveries: Iterable[Delivery]) -> None:
        """Copy messages that a consumer has been given."""
        if queue.hidden:
            return
        for delivery in deliveries:
            if self._wanted(delivery.message):
                more: dict[str, Value] = {"redelivered": int(delivery.redelivered)}
                self._copy(f"deliver.{queue.name}", delivery.message, who, more)

    def asking(self) -> ConsumerFacts:
        """Return the connection whose input is being handled, and its channel if it has only one."""
        operations = self._host.broker.operations
        fed = None if operations is None else operations.fed
        if fed is None or fed.front is None:
            return ConsumerFacts()
        facts = fed.front.facts()
        only = None
        if facts is not None:
            self._remember(fed.peer.name, facts.user)
            only = next(iter(fed.front.channel_facts()), None) if facts.channels == 1 else None
        return ConsumerFacts(connection=fed.peer.name, channel=0 if only is None else only.number)

    def _wanted(self, message: Message) -> bool:
        """Return whether to copy: the trace is on and bound to, and the message is no copy, nor one's dead letter."""
        if self._host.tracer is not self:  # an open transaction may hold a route of a previous trace
            return False
        if not self._host.exchanges[TRACE].bindings_by_identity or message.exchange == TRACE:
            return False
        notes = message.notes
        return notes is None or notes.first_death is None or notes.first_death[2] != TRACE

    def _copy(self, key: str, message: Message, who: ConsumerFacts, more: dict[str, Value]) -> None:
        try:
            properties, body = message.encoding.convert(message)
        except Exception:  # the message is unreadable, which its delivery logs
            return
        headers: dict[str, Value] = {
            "exchange_name": message.exchange,
            "routing_keys": [message.key, *message.facts.cc],
            "properties": said_of(properties),
            "node": "" if self._host.broker.operations is None else self._host.broker.operations.name,
            "vhost": self._host.name,
            "connection": who.connection,
            "channel": who.channel,
            "user": self._user(who.connection),
            **more,
        }
        copy = as_message(self._host.broker, TRACE, key, headers, body)
        if copy is None:
            return
        if not self._copies:
            self._host.broker.timers.at(self._host.broker.now, self._publish)
        self._copies.append(copy)

    def _user(self, connection: str) -> str:
        if (user := self._users.get(connection)) is None:
            clients = self._host.broker.clients
            user = next((client.user.name for client in clients if client.name == connection), "")
            self._remember(connection, user)
        return user or self._host.broker.events.actor

    def _remember(self, connection: str, user: str) -> None:
        if len(self._users) >= USERS_MAX:
            self._users.clear()
        self._users[connection] = user

    def _publish(self, now: float) -> None:
        copies, self._copies = self._copies, []
        exchange = self._host.exchanges.get(TRACE)
        for copy in copies if exchange is not None else ():
            assert exchange is not None
            Route.give(self._host.broker.route(exchange, copy), copy)
            exchange.published += 1

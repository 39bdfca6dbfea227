"""Tracing of a virtual host: what is published and delivered in it is shown to those who observe.

    publish  ─> TracedRoute.give    ─┐            ┌─> Firehose: copies, while an operator has switched them on
    dispatch ─> Queue.give, hand_out ─┴─> Tracer ─┼─> Spans: of OpenTelemetry, where the settings ask for them
                                                  └─> Recorder: a file of what happens, while it is recorded

A virtual host that nobody observes pays nothing for publishing, since tracing swaps the cached routes, and one test a
batch for delivering. Fetched and consumed messages are traced; browsing, reserving and blocks of a stream are not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from leveret.exchanges.routing import Route
from leveret.observability.connection_stats import ConsumerFacts
from leveret.observability.firehose import Firehose
from leveret.queues.counted_queue import CountedQueue

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.delivery import Delivery
    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message
    from leveret.observability.observer import Observer
    from leveret.queues.queue import Queue

FIREHOSE: Final = "firehose"
USERS_MAX: Final = 1000  # connections whose users are cached


class Traced:
    """The part of a virtual host that tracing needs; `VirtualHost` inherits it."""

    name: str
    broker: Broker
    exchanges: dict[str, Exchange]
    queues: dict[str, Queue]
    revision: int

    tracer: Tracer | None = None
    _observers: Mapping[str, Observer] = MappingProxyType({})  # by name

    @property
    def tracing(self) -> bool:
        """True if messages are copied to `amq.rabbitmq.trace`."""
        return FIREHOSE in self._observers

    def set_tracing(self, on: bool) -> None:
        """Switch the copying of messages to `amq.rabbitmq.trace` on or off."""
        if on is self.tracing:
            return
        self.observe(FIREHOSE, Firehose(self, Asking(self.broker)) if on else None)
        if self.broker.catalogue is not None:
            self.broker.catalogue.keep(self.broker.virtual_hosts[self.name])
        self.broker.events.happened("vhost.tracing.set", self.name, {"name": self.name, "tracing": on})

    def observe(self, name: str, observer: Observer | None) -> None:
        """Show messages to this observer from now on, in place of an earlier one of that name; or to none."""
        others = {each: found for each, found in self._observers.items() if each != name}
        self._observers = others if observer is None else {**others, name: observer}
        in_order = tuple(self._observers[each] for each in sorted(self._observers))
        self.tracer = Tracer(self, in_order) if in_order else None
        self.revision += 1  # cached routes are of the other kind


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
        """Give messages as a run up to the first that is of interest, which has to be reported by `give`."""
        for count, message in enumerate(messages):
            if self._tracer.wants(message):
                return super().give_run(messages[:count]) if count else 0
        return super().give_run(messages)

    def sharing(self) -> tuple[Queue, ...]:
        return ()

    def fulfil(self, message: Message) -> None:
        self._tracer.published(message, self.queues)
        super().fulfil(message)

    def among(self, queues: tuple[Queue, ...], keepers: tuple[Exchange, ...]) -> Route:
        route = TracedRoute(self._tracer, queues, self.handled, keepers, lasting=False)
        return route.passing(self.passed) if self.passed else route


class Tracer:
    """Shows what is published and delivered in one virtual host to its observers, as long as it is the one in force."""

    def __init__(self, host: Traced, observers: tuple[Observer, ...]) -> None:
        self._host = host
        self._observers = observers

    def route(
        self, queues: tuple[Queue, ...], handled: bool, keepers: tuple[Exchange, ...], lasting: bool
    ) -> Route:
        """Return a route that reports its messages to this tracer."""
        return TracedRoute(self, queues, handled, keepers, lasting)

    def wants(self, message: Message) -> bool:
        """Return whether an observer is interested in a message."""
        return any(observer.wants(message) for observer in self._observers)

    def published(self, message: Message, queues: tuple[Queue, ...]) -> None:
        """Show a message that is put into these queues."""
        if self._host.tracer is not self:  # an open transaction may hold a route of a previous trace
            return
        for observer in self._observers:
            observer.published(message, queues)

    def delivered(self, queue: CountedQueue, who: ConsumerFacts, deliveries: Iterable[Delivery]) -> None:
        """Show messages that a consumer has been given."""
        if not queue.hidden:
            for observer in self._observers:
                observer.delivered(queue, who, deliveries)

    def asking(self) -> ConsumerFacts:
        """Return the connection whose input is being handled, and its channel if it has only one."""
        return Asking(self._host.broker).who()


class Asking:
    """Finds out whose input is being handled."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._users: dict[str, str] = {}  # of connections, by name

    def who(self) -> ConsumerFacts:
        """Return the connection whose input is being handled, and its channel if it has only one."""
        operations = self._broker.operations
        fed = None if operations is None else operations.fed
        if fed is None or fed.front is None:
            return ConsumerFacts()
        facts = fed.front.facts()
        only = None
        if facts is not None:
            self._remember(fed.peer.name, facts.user)
            only = next(iter(fed.front.channel_facts()), None) if facts.channels == 1 else None
        return ConsumerFacts(connection=fed.peer.name, channel=0 if only is None else only.number)

    def user_of(self, connection: str) -> str:
        """Return the user of a connection; without one, the name behind the present request."""
        if (user := self._users.get(connection)) is None:
            clients = self._broker.clients
            user = next((client.user.name for client in clients if client.name == connection), "")
            self._remember(connection, user)
        return user or self._broker.events.actor

    def _remember(self, connection: str, user: str) -> None:
        if len(self._users) >= USERS_MAX:
            self._users.clear()
        self._users[connection] = user

"""The ends of shovels on this node: a consumer and a publisher, without a connection.

They act with the permissions of the user that has set the shovel, which are checked when an end opens and whenever
users or permissions have changed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.broker import REFUSED, UNROUTABLE
from leveret.client import Client
from leveret.delivery import UNLIMITED, Consumer, Delivery, Window
from leveret.errors import AccessRefused, Failure, NotFound
from leveret.exchanges.exchange_type import Exchange
from leveret.features.transfers.definition import AckMode
from leveret.features.transfers.ends import (
    NOBODY,
    REFUSES,
    DestinationEnd,
    EndListener,
    Journey,
    SourceEnd,
    goes_nowhere,
    settles,
)
from leveret.message import Message, Notes
from leveret.observability.connection_stats import ConsumerFacts
from leveret.queues.queue import Queue

if TYPE_CHECKING:
    from leveret.config.amqp_uri import Uri
    from leveret.features.transfers.definition import EndSettings
    from leveret.publishing.publish_rate import PublishRate

DEFAULT: Final = ""  # the exchange


def client_of(journey: Journey, uri: Uri) -> Client:
    """Return the user that has set the shovel as a client in its virtual host, or that of the URI. Raises Failure."""
    name = journey.virtual_host_at(uri)
    broker = journey.broker
    if journey.user == NOBODY:
        raise NotFound("the user who has set it was deleted: it has to be set again")
    user = broker.access.user(journey.user)
    if user is None:
        raise NotFound(f"there is no user '{journey.user}', who has set it")
    if not broker.access.may_enter(user, name):
        raise AccessRefused(f"access to vhost '{name}' refused for user '{user.name}', who has set it")
    client = Client(broker, user, journey.title)
    client.host = broker.virtual_host(name)
    return client


def require_queue(client: Client, end: EndSettings, name: str) -> None:
    """Declare a queue, unless it is there or has to be. Raises Failure."""
    if name not in client.host.queues and not end.predeclared:
        client.declare_queue(name, durable=True, arguments=end.arguments)


class LocalSource(SourceEnd):
    """A queue of this node, or an exchange, to which a queue of its own is bound."""

    def __init__(self, journey: Journey, uri: Uri, listener: EndListener) -> None:
        self._journey = journey
        self._uri = uri
        self._listener = listener
        self._client: Client | None = None
        self._consumer: SourceConsumer | None = None
        self._revision = -1  # of the permissions, when they were checked

    def open(self) -> None:
        try:
            self._attach()
        except Failure as failure:
            self._listener.failed(str(failure))

    def _attach(self) -> None:
        journey = self._journey
        client = self._client = client_of(journey, self._uri)
        queue = self._queue(client, journey.definition.source)
        waiting = queue.ready
        self._revision = journey.broker.access.revision
        consumer = SourceConsumer(self, queue, journey)
        client.consume(consumer)
        self._consumer = consumer
        self._listener.opened(waiting)

    def _queue(self, client: Client, end: EndSettings) -> Queue:
        if end.queue is not None:
            require_queue(client, end, end.queue)
            return client.readable_queue(end.queue)
        queue = client.declare_queue("", exclusive=True, arguments=end.arguments)
        client.bind(end.exchange or "", queue.name, False, end.key or "", {})
        return client.readable_queue(queue.name)

    def room(self) -> int:
        return self._listener.room()

    def arrived(self, message: Message) -> None:
        self._listener.arrived(message)

    def cancelled(self) -> None:
        self._listener.failed("the source queue has been deleted, or may no longer be read")

    def accept(self, number: int, multiple: bool) -> None:
        if self._consumer is not None:
            self._consumer.accept(number, multiple)

    def pause(self) -> None:
        if self._consumer is not None:
            self._consumer.paused = True

    def resume(self) -> None:
        self._check()
        if self._consumer is not None:
            self._consumer.paused = False
            self._consumer.wake()

    def _check(self) -> None:
        """Check the permissions anew, if any have changed. Raises Failure."""
        revision = self._journey.broker.access.revision
        if self._consumer is not None and revision != self._revision:
            client_of(self._journey, self._uri).require_readable(self._consumer.queue.name)
            self._revision = revision

    def close(self) -> None:
        if self._consumer is not None:
            self._consumer.close()
        if self._client is not None:
            self._client.leave()
        self._consumer = self._client = None


class SourceConsumer(Consumer):
    """Takes the messages of a queue for a shovel, and numbers them."""

    def __init__(self, source: LocalSource, queue: Queue, journey: Journey) -> None:
        definition = journey.definition
        settled = settles(journey)
        credit = UNLIMITED if settled else definition.prefetch
        super().__init__(queue, settled, credit, Window(), arguments=definition.consumer_arguments)
        self.timeout_s = 0.0  # a destination may be away for long
        self.paused = False
        self._source = source
        self._name = journey.title
        self._prefetch = 0 if settled else definition.prefetch
        self._number = 0
        self._unsettled: dict[int, Delivery] = {}

    def facts(self) -> ConsumerFacts:
        return ConsumerFacts(tag=self._name, prefetch=self._prefetch)

    def room(self) -> int:
        return 0 if self.paused else self._source.room()

    def deliver(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.take(delivery, delivery.message)

    def take(self, delivery: Delivery, message: Message) -> None:
        """Number a delivery, and pass its message on."""
        self._number += 1
        if not self.settled:
            self._unsettled[self._number] = delivery
        self._source.arrived(message)

    def cancelled(self) -> None:
        self._source.cancelled()

    def accept(self, number: int, multiple: bool) -> None:
        if not multiple:
            self._accept(number)
            return
        while self._unsettled and (first := next(iter(self._unsettled))) <= number:
            self._accept(first)

    def _accept(self, number: int) -> None:
        delivery = self._unsettled.pop(number, None)
        if delivery is not None:
            self.credit += 1
            delivery.queue.accept(delivery)
            self.wake()

    def close(self) -> None:
        if self.attached:
            self.queue.remove_consumer(self)
        unsettled, self._unsettled = self._unsettled, {}
        for delivery in unsettled.values():
            delivery.queue.release(delivery, failed=False)


class LocalDestination(DestinationEnd):
    """A queue or an exchange of this node. It is a `Publisher`."""

    persistent = False

    def __init__(self, journey: Journey, uri: Uri, listener: EndListener) -> None:
        self._journey = journey
        self._uri = uri
        self._listener = listener
        self._confirms = journey.definition.ack_mode is AckMode.ON_CONFIRM
        # This node has checked who published what comes from it.
        definition = journey.definition
        self._is_verified = definition.trusts_user_id or all(uri.is_local for uri in definition.source.uris)
        self._client: Client | None = None
        self._exchanges: dict[str, Exchange] = {}  # checked, at this revision of what checks look at
        self._revision = -1
        self._published = 0
        self._announced = False

    def open(self) -> None:
        end = self._journey.definition.destination
        try:
            client = self._client = client_of(self._journey, self._uri)
            if end.queue is not None:
                require_queue(client, end, end.queue)
            if end.queue is not None or end.exchange is not None:
                self._exchange(client, end.exchange or DEFAULT)
        except Failure as failure:
            self._listener.failed(str(failure))
        else:
            self._listener.opened(None)

    def _exchange(self, client: Client, name: str) -> Exchange:
        """Return an exchange that the user may publish to, checked once. Raises Failure."""
        if client.host.checks_revision != self._revision:
            self._client = client = client_of(self._journey, self._uri)
            self._exchanges.clear()
            self._revision = client.host.checks_revision
        exchange = self._exchanges.get(name)
        if exchange is None:
            exchange = self._exchanges[name] = client.publish_target(name)
        return exchange

    def has_room(self) -> bool:
        broker = self._journey.broker
        if broker.alarms.reason or broker.is_behind:
            return False
        return all(rate.wait_s(broker.now) <= 0 for rate in self._rates())

    def _rates(self) -> tuple[PublishRate, ...]:
        """Return the publish rates of the user and the virtual host, which count what is published here."""
        client = self._client
        return () if client is None else client.broker.publish_rates.of(client.user, client.host)

    def publish(self, message: Message) -> None:
        """Publish a message. Raises Failure."""
        client, end = self._client, self._journey.definition.destination
        assert client is not None
        name = (
            DEFAULT if end.queue is not None else message.exchange if end.exchange is None else end.exchange
        )
        exchange = self._exchange(client, name)
        key = end.queue if end.queue is not None else message.key if end.key is None else end.key
        copy = addressed(message, exchange.name, key)
        if copy.facts.user_id is not None and not self._is_verified:
            client.require_user_id(copy.facts.user_id)
        if client.guards_topics(exchange):
            client.check_topics(exchange, copy.keys)
        for rate in self._rates():
            rate.take(1, client.broker.now)
        outcome = client.broker.publish(exchange, copy)
        if not self._confirms:
            return
        if outcome is REFUSED:
            self._listener.refused(self._published + 1, REFUSES)
            return
        if outcome is UNROUTABLE and self._keeps(exchange, copy):
            self._listener.refused(self._published + 1, goes_nowhere(end, exchange.name, key))
            return
        self._published += 1
        self.persistent = self.persistent or copy.facts.durable
        if not self._announced:
            self._announced = True
            client.broker.publishers.append(self)

    def _keeps(self, exchange: Exchange, message: Message) -> bool:
        """Return whether a message that gets into no queue stays at the source."""
        return True

    def mark(self) -> int:
        self._announced = self.persistent = False
        return self._published

    def taken(self, mark: int) -> None:
        if self._client is not None:
            self._listener.confirmed(mark, True)

    def close(self) -> None:
        self._client = None


def addressed(message: Message, exchange: str, key: str) -> Message:
    """Return a message as it is published anew: with its history, but without a place in a stream, and without BCC."""
    facts, notes = message.facts, message.notes
    if facts.bcc or facts.due_ms:
        facts = facts.copy()
        facts.bcc, facts.due_ms = (), 0
    if notes is not None:
        notes = history_of(notes)
    return Message(message.encoding, exchange, key, message.properties, message.body, facts, notes)


def history_of(notes: Notes) -> Notes:
    """Return notes with the deaths only."""
    history = Notes()
    history.deaths, history.first_death, history.last_death = (
        notes.deaths,
        notes.first_death,
        notes.last_death,
    )
    return history

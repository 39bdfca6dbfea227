"""Feeds from this node: an exchange or a queue of another virtual host, or of another name in the same one.

They act with the permissions of the user that has set the upstream, as the ends of shovels do.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from leveret.errors import Failure
from leveret.features.federation.feed import PRIORITY, Propagation, Side
from leveret.features.federation.hops import INTERNAL_TYPE
from leveret.features.transfers.ends import ExchangeFeedEnd, QueueFeedEnd
from leveret.features.transfers.local import LocalSource, SourceConsumer, client_of
from leveret.message import Facts, Message
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.config.amqp_uri import Uri
    from leveret.delivery import Delivery
    from leveret.exchanges.exchange_type import Binding
    from leveret.features.federation.feed import ExchangeFeed, QueueFeed
    from leveret.features.transfers.ends import EndListener, Journey
    from leveret.queues.queue import Queue

FANOUT: Final = "fanout"


class LocalFeed(LocalSource):
    """The base of both feeds: which messages go on, and with which headers."""

    def __init__(
        self, feed: ExchangeFeed | QueueFeed, journey: Journey, uri: Uri, listener: EndListener
    ) -> None:
        super().__init__(journey, uri, listener)
        self._from = feed
        operations = journey.broker.operations
        here = None if operations is None else operations.name
        self.origin = Side(here, journey.virtual_host_at(uri))

    def _entered(self) -> Client:
        client = self._client = client_of(self._journey, self._uri)
        self._revision = self._journey.broker.access.revision
        return client

    def _consume(self, client: Client, queue: Queue, priority: int) -> None:
        consumer = FeedConsumer(self, queue, self._journey, priority)
        client.consume(consumer)
        self._consumer = consumer

    def marked(self, delivery: Delivery) -> Message | None:
        """Return the message of a delivery as it goes on; None: it does not."""
        message = delivery.message
        headers = self._from.headers(message, delivery.redelivered, self.origin, self._uri)
        if headers is None:
            return None
        marked = message.saying(headers)
        if self._from.drops and marked is not message and marked.facts.cc:
            marked.facts = without_further_keys(marked.facts)
        return marked


def without_further_keys(facts: Facts) -> Facts:
    """Return the same facts of a message that is published with one routing key."""
    found = facts.copy()
    found.cc = found.bcc = ()
    return found


class FeedConsumer(SourceConsumer):
    """Takes messages for a feed, and passes on those that go on; the others have arrived."""

    def __init__(self, feed: LocalFeed, queue: Queue, journey: Journey, priority: int) -> None:
        super().__init__(feed, queue, journey)
        self.priority = priority
        self._feed = feed
        self._over: list[Delivery] = []  # deliveries that go no further

    def deliver(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            message = self._feed.marked(delivery)
            if message is not None:
                self.take(delivery, message)
            elif not self.settled:
                self._over.append(delivery)
        if self._over:
            broker = self.queue.virtual_host.broker
            broker.timers.at(broker.now, self._settle)

    def _settle(self, _now: float) -> None:
        over, self._over = self._over, []
        for delivery in over:
            self.credit += 1
            delivery.queue.accept(delivery)
        self.wake()

    def close(self) -> None:
        self._settle(0.0)
        super().close()


class LocalExchangeFeed(LocalFeed, ExchangeFeedEnd):
    """An exchange of this node, with an internal one and a queue of the link's own."""

    def __init__(self, feed: ExchangeFeed, journey: Journey, uri: Uri, listener: EndListener) -> None:
        super().__init__(feed, journey, uri, listener)
        self._exchange_feed = feed
        self._internal = ""
        self._propagation: Propagation | None = None
        self._queue_name = feed.queue_name(self.origin.virtual_host)

    def _attach(self) -> None:
        feed, client = self._exchange_feed, self._entered()
        like = feed.exchange
        if feed.name not in client.host.exchanges:
            client.declare_exchange(
                feed.name, like.type.name, like.durable, like.auto_delete, like.internal, like.arguments
            )
        suffixes = "AB" if f"{self._queue_name} A" not in client.host.exchanges else "BA"
        self._internal, old = (f"{self._queue_name} {suffix}" for suffix in suffixes)
        client.delete_exchange(self._internal)
        self._declare_internal(client)
        client.declare_queue(self._queue_name, durable=True, arguments=feed.queue_arguments)
        client.bind(self._internal, self._queue_name, False, "", {})
        self._propagation = Propagation(feed, self.origin, suffixes[0])
        for binding in like.bindings:
            self.bound(binding)
        client.delete_exchange(old)
        self._consume(client, client.readable_queue(self._queue_name), 0)
        self._listener.opened(0)

    def _declare_internal(self, client: Client) -> None:
        is_known = INTERNAL_TYPE in client.broker.exchange_types  # else what arrives is looked at
        arguments = self._exchange_feed.internal_arguments if is_known else {}
        client.declare_exchange(
            self._internal, INTERNAL_TYPE if is_known else FANOUT, True, True, True, arguments
        )

    def bound(self, binding: Binding) -> None:
        if self._propagation is None or self._client is None:
            return
        wanted = self._propagation.added(binding)
        if wanted is not None:
            self._try(self._client, True, wanted.key, wanted.arguments)

    def unbound(self, binding: Binding) -> None:
        if self._propagation is None or self._client is None:
            return
        wanted = self._propagation.removed(binding)
        if wanted is not None:
            self._try(self._client, False, wanted.key, wanted.arguments)

    def _try(self, client: Client, binds: bool, key: str, arguments: Table) -> None:
        change = client.bind if binds else client.unbind
        try:
            change(self._exchange_feed.name, self._internal, True, key, arguments)
        except Failure as failure:
            self._listener.failed(str(failure))

    def remove(self) -> None:
        client, internal = self._client, self._internal
        self.close()
        if client is None:
            return
        with suppress(Failure):
            client.delete_queue(self._queue_name)
            if internal:
                client.delete_exchange(internal)


class LocalQueueFeed(LocalFeed, QueueFeedEnd):
    """A queue of this node."""

    def __init__(self, feed: QueueFeed, journey: Journey, uri: Uri, listener: EndListener) -> None:
        super().__init__(feed, journey, uri, listener)
        self._queue_feed = feed
        self._is_wanted = False

    def _attach(self) -> None:
        feed, client = self._queue_feed, self._entered()
        like = feed.queue
        if feed.name not in client.host.queues:
            client.declare_queue(feed.name, like.durable, False, like.auto_delete, like.arguments)
        client.readable_queue(feed.name)
        self._listener.opened(0)
        self.run(self._is_wanted)

    def run(self, wanted: bool) -> None:
        self._is_wanted = wanted
        client, consumer = self._client, self._consumer
        if client is None:
            return
        if consumer is None and wanted:
            try:
                self._consume(client, client.readable_queue(self._queue_feed.name), PRIORITY)
            except Failure as failure:
                self._listener.failed(str(failure))
        elif consumer is not None and consumer.queue.deleted:
            self.cancelled()
        elif consumer is not None and wanted != consumer.attached:
            if wanted:
                client.consume(consumer)
            else:
                consumer.queue.remove_consumer(consumer)

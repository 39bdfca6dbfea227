"""The firehose: while a virtual host is traced, a copy of every message published and delivered in it.

    Tracer ─> Firehose ─> amq.rabbitmq.trace, in the same settle, when queues are at rest

Copies have the keys and headers of RabbitMQ's, and are AMQP 0-9-1 messages. Copies and their dead letters are not
copied themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from leveret.exchanges.routing import Route
from leveret.observability.system_messages import as_message, said_of
from leveret.queues.counted_queue import CountedQueue

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.message import Message
    from leveret.observability.connection_stats import ConsumerFacts
    from leveret.observability.tracer import Asking, Traced
    from leveret.queues.queue import Queue
    from leveret.values import Value

TRACE: Final = "amq.rabbitmq.trace"


class Firehose:
    """Makes the copies of one virtual host, and publishes them when no queue is in the middle of an operation."""

    def __init__(self, host: Traced, asking: Asking) -> None:
        self._host = host
        self._asking = asking
        self._copies: list[Message] = []  # of this batch

    def published(self, message: Message, queues: Iterable[Queue]) -> None:
        """Copy a message that a client has published to these queues."""
        if message.notes is None and self.wants(message):
            who = self._asking.who()
            more: dict[str, Value] = {"routed_queues": [queue.name for queue in queues]}
            self._copy(f"publish.{message.exchange}", message, who, more)

    def delivered(self, queue: CountedQueue, who: ConsumerFacts, deliveries: Iterable[Delivery]) -> None:
        """Copy messages that a consumer has been given."""
        for delivery in deliveries:
            if self.wants(delivery.message):
                more: dict[str, Value] = {"redelivered": int(delivery.redelivered)}
                self._copy(f"deliver.{queue.name}", delivery.message, who, more)

    def wants(self, message: Message) -> bool:
        """Return whether to copy: the trace is on and bound to, and the message is no copy, nor one's dead letter."""
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
            "user": self._asking.user_of(who.connection),
            **more,
        }
        copy = as_message(self._host.broker, TRACE, key, headers, body)
        if copy is None:
            return
        if not self._copies:
            self._host.broker.timers.at(self._host.broker.now, self._publish)
        self._copies.append(copy)

    def _publish(self, now: float) -> None:
        copies, self._copies = self._copies, []
        exchange = self._host.exchanges.get(TRACE)
        for copy in copies if exchange is not None else ():
            assert exchange is not None
            Route.give(self._host.broker.route(exchange, copy), copy)
            exchange.published += 1

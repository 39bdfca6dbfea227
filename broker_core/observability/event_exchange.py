"""Events as messages: publish what happens in the broker to the exchange `amq.rabbitmq.event`.

    Events.happened ──> EventExchange (only if something is bound) ──> messages, in the same settle

The routing key is the event's name, the headers are its facts, as in RabbitMQ's plug-in; there is no body.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.exchanges.exchange_type import Exchange
from leveret.observability.events import Event, EventListener
from leveret.observability.system_messages import as_message
from leveret.values import Int64, Table, Value

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.message import Message
    from leveret.virtual_host import VirtualHost

EVENTS: Final = "amq.rabbitmq.event"
CONNECTED: Final = "connection.created"
NOBODY: Final = "rmq-internal"  # the actor if it is no user
PENDING_MAX: Final = 10_000  # events of one batch; a virtual host that is deleted has two for each binding
OF_THE_NODE: Final = ("vhost.", "user.", "alarm.")  # events whose facts name their object already


def add_to(host: VirtualHost) -> Exchange:
    """Add the exchange to a virtual host. It exists from the beginning, so that queues can be bound to it."""
    exchange = Exchange(host, EVENTS, host.broker.exchange_types["topic"], durable=True, internal=True)
    host.add_exchange(exchange)
    return exchange


class EventExchange(EventListener):
    """Publishes events, if something is bound to the exchange."""

    def __init__(self, broker: Broker) -> None:
        self.passed_over = 0  # events dropped because there were too many at once
        self._broker = broker
        self._pending: list[Message] = []

    def on_event(self, event: Event) -> None:
        if self._exchange() is None:
            return
        if len(self._pending) >= PENDING_MAX:
            self.passed_over += 1
            return
        if not self._pending:
            self._broker.timers.at(self._broker.now, self._publish)
        message = self._message(event)
        if message is not None:
            self._pending.append(message)

    def _exchange(self) -> Exchange | None:
        """Return the exchange if something is bound to it."""
        host = self._broker.virtual_hosts.get(self._broker.events_in)
        exchange = None if host is None else host.exchanges.get(EVENTS)
        return exchange if exchange is not None and exchange.bindings_by_identity else None

    def _message(self, event: Event) -> Message | None:
        wall = self._broker.clock.wall()
        headers = told(event, int(wall * 1000))
        if event.name == CONNECTED:
            headers = {**where(self._broker), **headers}
        return as_message(
            self._broker,
            EVENTS,
            event.name,
            headers,
            b"",
            durable=True,
            timestamp=int(wall),
        )

    def _publish(self, now: float) -> None:
        """Publish the pending events; called when the queues are at rest and the operation that caused them is over."""
        pending, self._pending = self._pending, []
        exchange = self._exchange()
        if exchange is None:
            return
        for message in pending:
            self._broker.publish(exchange, message)


def where(broker: Broker) -> Table:
    """Return the connection facts of the client whose input is being handled."""
    operations = broker.operations
    fed = None if operations is None else operations.fed
    if operations is None or fed is None:
        return {}
    return {
        "node": operations.name,
        "type": "network",
        "peer_host": fed.peer.host,
        "peer_port": fed.peer.port,
        "host": fed.peer.local_host,
        "port": fed.peer.local_port,
        "ssl": fed.peer.tls is not None,
        "connected_at": Int64(int(fed.connected_at * 1000)),
    }


def told(event: Event, wall_ms: int) -> Table:
    """Return the headers of an event."""
    headers: dict[str, Value] = dict(event.facts)
    if event.virtual_host and not event.name.startswith(OF_THE_NODE):
        headers.setdefault("vhost", event.virtual_host)
    headers["user_who_performed_action"] = event.actor or NOBODY
    headers["timestamp_in_ms"] = Int64(wall_ms)
    return headers


class AlarmEvents:
    """Reports alarms that were raised or cleared, one by one."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._raised: tuple[str, ...] = ()

    def on_alarms(self, reason: str | None) -> None:
        raised = () if reason is None else tuple(reason.split(" & "))
        before, self._raised = self._raised, raised
        for name, alarms in (
            ("alarm.set", [each for each in raised if each not in before]),
            ("alarm.cleared", [each for each in before if each not in raised]),
        ):
            for alarm in alarms:
                self._broker.events.happened(name, "", {"name": alarm})

"""A session: the subscriptions and the messages on their way of one client, with or without a connection.

    SUBSCRIBE ─> queue, bound to the topic exchange ─> QueueConsumer ─> PUBLISH ─> flight ─> acknowledged, settled

A session that lasts has a durable queue for its subscriptions of QoS 1 and 2, and a record in the store: its terms, its
subscriptions and its will, and notes on packet identifiers. Its queue for QoS 0 belongs to the connection. One that
does not last has exclusive queues, and nothing in the store. A shared subscription takes from a durable queue that
belongs to all sessions of the group.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from leveret.delivery import Delivery, Window
from leveret.errors import Failure
from leveret.protocols.mqtt.broker import notes
from leveret.protocols.mqtt.broker.consumer import QueueConsumer, Sending
from leveret.protocols.mqtt.broker.errors import code_of
from leveret.protocols.mqtt.broker.registration import SHARED
from leveret.protocols.mqtt.broker.retained import retained_of
from leveret.protocols.mqtt.broker.subscriptions import Group, Subscribed
from leveret.protocols.mqtt.broker.topics import fits
from leveret.protocols.mqtt.broker.will import delay_of, publish_will, table_of
from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.codec.packets import DUP, MQTT_5, Ack, Subscription, Will
from leveret.protocols.mqtt.codec.properties import PUBREC, PUBREL
from leveret.protocols.mqtt.codec.writer import ack
from leveret.protocols.mqtt.machine.flights import (
    ACCEPTED,
    COMPLETED,
    REFUSED,
    RELEASED,
    REPEATED,
    SENT,
    Flight,
    Flights,
)
from leveret.queues.queue import Queue

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.clock import Timer
    from leveret.protocols.mqtt.broker.adapter import AdapterMqtt
    from leveret.protocols.mqtt.broker.records import ProtocolRecord
    from leveret.protocols.mqtt.broker.retained import RetainedMessage
    from leveret.protocols.mqtt.broker.sessions import ClientSessions
    from leveret.protocols.mqtt.broker.settings import MqttSettings
    from leveret.values import Table


PREFIX: Final = "mqtt-subscription-"  # of the names of queues, as in RabbitMQ
SHARED_PREFIX: Final = "mqtt-shared-"
SHOWN_AT_ONCE: Final = 50  # retained messages, in 0.2 ms
NAME_MAX: Final = 255  # bytes of a queue's name
# The flights of all sessions that have sent nothing yet. They stay empty.
NO_FLIGHTS: Final[Flights[Delivery | None]] = Flights()


class Session:
    """One session. `lasts` says whether it outlives its connection."""

    __slots__ = (
        "_consumers",
        "_expiry",
        "_resend",
        "_showing",
        "_will_timer",
        "_window",
        "accepted",
        "broker",
        "client",
        "client_id",
        "client_octets",
        "delivered",
        "delivered_settled",
        "ended",
        "exchange",
        "expiry_s",
        "flights",
        "groups",
        "host",
        "in_flight_max",
        "lasts",
        "left_ms",
        "received",
        "record",
        "served",
        "sessions",
        "settings",
        "user",
        "version",
        "will",
    )

    def __init__(
        self, sessions: ClientSessions, client_id: str, user: str, settings: MqttSettings, expiry_s: int
    ) -> None:
        self.sessions = sessions
        self.host = sessions.host
        self.broker = sessions.host.broker
        self.client_id = client_id
        self.client_octets = client_id.encode()
        self.user = user
        self.settings = settings
        self.exchange = settings.exchange
        self.expiry_s = expiry_s
        self.lasts = expiry_s > 0
        self.groups: dict[str, Group] = {}  # by the name of the queue
        self.flights = NO_FLIGHTS  # `flights_of` returns those to be added to
        self.received: dict[int, None] = {}  # packet identifiers of QoS 2 that wait for PUBREL
        self.record: ProtocolRecord | None = None
        self.served: AdapterMqtt | None = None  # its connection
        self.client: Client | None = None  # that of the connection, or the last one's
        self.will: Will | None = None
        self.ended = False
        self.version = MQTT_5  # of the connection
        self.in_flight_max = 0
        self.delivered = self.delivered_settled = self.accepted = 0
        self.left_ms: int | None = None  # when the last connection ended, in ms since 1970-01-01 UTC
        self._consumers: dict[str, QueueConsumer] = {}  # by the name of the queue
        # What waits for its turn after a reconnection, the oldest last. None, as below: sessions are many.
        self._resend: list[Flight[Delivery | None]] | None = None
        # Queues of new subscriptions, and the retained messages that are still to be put into them.
        self._showing: list[tuple[Queue, Iterator[RetainedMessage | None]]] | None = None
        self._window = Window(0)
        self._expiry: Timer | None = None
        self._will_timer: Timer | None = None

    # What is kept.

    def table(self) -> Table:
        """Return what the record says."""
        subscribed = [each for group in self.groups.values() for each in group.by_filter.values()]
        return {
            "user": self.user,
            "exchange": self.exchange,
            "expiry_s": self.expiry_s,
            "left_ms": self.left_ms,
            "subscriptions": [each.as_table() for each in subscribed],
            "will": None if self.will is None else table_of(self.will),
        }

    def keep(self) -> None:
        """Write the session to its record, if it lasts."""
        if self.record is not None:
            self.record.change(self.table())

    def set_expiry(self, expiry_s: int) -> None:
        """Change the time for which the session is kept without a connection."""
        self.expiry_s = expiry_s
        self.lasts = expiry_s > 0
        self.keep()

    # The connection.

    def attach(self, served: AdapterMqtt, client: Client, will: Will | None, in_flight_max: int) -> None:
        """Serve this connection from now on. `go_on` follows when its client knows."""
        self._stop_timers()
        self.served, self.client, self.will = served, client, will
        self.version = served.wire.version
        self.left_ms = None
        self.in_flight_max = in_flight_max
        self._window = Window(in_flight_max - len(self.flights))
        self.keep()

    def go_on(self) -> None:
        """Send again what has not been acknowledged, and take messages from the queues. Raises Failure."""
        served = self.served
        assert served is not None
        comes_again = len(self.flights) > 0
        if comes_again:  # what is new comes after that (MQTT-4.6.0-5)
            self._window.credit -= self.in_flight_max
        self._resend = list(reversed(self.flights.by_id.values())) or None
        for _ in range(min(len(self.flights), self.in_flight_max)):
            self._send_next_again()
        if comes_again:
            served.answers.add(partial(_let_new_ones_follow, self, served), False)
        for name, group in list(self.groups.items()):
            known = self.host.queues.get(name)
            if known is None or not known.durable:
                self._declare(name, group)
            for subscribed in group.by_filter.values():
                self._bind(name, subscribed)
            self._consume(name, group)

    def _send_next_again(self) -> None:
        """Send the next message again that is still for the client. Those that are not give their credit back."""
        while self._resend and not self._send_again(self._resend.pop()):
            self._window.credit += 1

    def _send_again(self, flight: Flight[Delivery | None]) -> bool:
        """Send a flight on the new connection, or forget it if its message is gone; return whether it is sent."""
        served, delivery = self.served, flight.token
        assert served is not None
        if flight.stage == RELEASED or delivery is None:
            served.answers.add(ack(PUBREL << 4 | 2, flight.packet_id), self.record is not None)
            return True
        queue = delivery.queue
        group = self.groups.get(queue.name)
        if queue.deleted or (group is None and flight.qos == 1):
            self._forget(flight)
            if not queue.deleted:  # the session has left its group, and others can have it
                queue.release(delivery)
            return False
        queue.bring((delivery,))
        if group is not None:
            consumer = self._consumer_of(queue, group)
        else:  # with QoS 2 no other may have it (MQTT-4.8.2-5), and it comes to its end (MQTT-3.10.4-3)
            left = Group(queue.name, is_shared=True)
            consumer = QueueConsumer(self, queue, left, False, self._window)
        delivery.consumer = consumer
        delivery.given_at = self.broker.now
        try:
            sending = consumer.sending(delivery)
        except Exception:  # the fault of another protocol's encoding
            self._forget(flight)
            queue.reject(delivery)
            return False
        if sending is None:  # the subscription has gone
            self._forget(flight)
            queue.accept(delivery)
            return False
        step = partial(_send_late, self, consumer, flight, sending, sending.body, True)
        served.answers.add(step, self.record is not None)
        return True

    def may_go_on(self) -> bool:
        """Return whether the client may read all of its queues, after its user has logged in again."""
        client = self.client
        return client is None or all(client.may_still_read(each.queue) for each in self._consumers.values())

    def detach(self) -> None:
        """Part from the connection, which ends: the session waits for another one, or ends."""
        served, client = self.served, self.client
        if served is None or client is None:
            return
        for consumer in list(self._consumers.values()):
            consumer.end()
        self._consumers.clear()
        self._resend = None
        self.served = None
        while client.abandon_queue():  # those of QoS 0, or all
            pass
        client.resumed = nothing
        self.client = client.part()
        for flight in list(self.flights.by_id.values()):  # others of the group can have them
            delivery = flight.token
            if delivery is not None and flight.qos == 1 and delivery.queue.name.startswith(SHARED_PREFIX):
                self._forget(flight)
                delivery.queue.release(delivery)
        if not self.lasts or client.is_disowned:
            self.end()
            return
        self.left_ms = round(self.broker.clock.wall() * 1000)
        self.keep()
        self.wait(self.expiry_s)

    def wait(self, left_s: float) -> None:
        """Wait for a connection for so long, and with the will for its delay."""
        now = self.broker.now
        if self.will is not None:
            delay_s = min(delay_of(self.will), left_s)
            if delay_s <= 0:
                self._publish_will(now)
            else:
                self._will_timer = self.broker.timers.at(now + delay_s, self._publish_will)
        self._expiry = self.broker.timers.at(now + left_s, lambda now: self.end())

    def expires_in(self) -> int | None:
        """Return the seconds until the session ends; None while it has a connection."""
        if self._expiry is None or self.served is not None:
            return None
        return max(0, round(self._expiry.at - self.broker.now))

    def _publish_will(self, now: float) -> None:
        will, self.will = self.will, None
        if will is not None and self.client is not None:
            publish_will(will, self.client, self.client_id, self.settings)
            self.keep()

    def _stop_timers(self) -> None:
        self.broker.timers.cancel(self._expiry)
        self.broker.timers.cancel(self._will_timer)
        self._expiry = self._will_timer = None

    def end(self) -> None:
        """End the session, with its subscriptions and its messages. It must have no connection. A second call does
        nothing."""
        if self.ended:
            return
        self.ended = True
        self._stop_timers()
        self._publish_will(self.broker.now)
        for flight in self.flights.by_id.values():
            delivery = flight.token
            if delivery is None or delivery.queue.deleted or flight.stage != SENT:
                continue
            if flight.qos == 2 and delivery.queue.name.startswith(SHARED_PREFIX):
                delivery.queue.reject(delivery)  # another must not get it (MQTT-4.8.2-5)
            else:
                delivery.queue.release(delivery)
        self.flights = NO_FLIGHTS
        for name, group in list(self.groups.items()):
            self._leave(name, group)
        self.sessions.forget(self)
        if self.record is not None:
            self.record.end()

    # Subscribing.

    def subscribe_all(self, asked: Sequence[Subscription], identifier: int) -> tuple[int, ...]:
        """Subscribe, and return the reason codes. No packet has more filters than a session may have."""
        most = self.settings.subscriptions_max
        codes = [self._subscribe(each, identifier) for each in asked[:most]]
        self.keep()
        return *codes, *(r.QUOTA_EXCEEDED for _ in asked[most:])

    def unsubscribe_all(self, topic_filters: Sequence[str]) -> tuple[int, ...]:
        """Unsubscribe, and return the reason codes."""
        codes = [self._unsubscribe(each) for each in topic_filters]
        self.keep()
        return tuple(codes)

    def _subscribe(self, asked: Subscription, identifier: int) -> int:
        """Subscribe, and return the reason code."""
        subscribed = Subscribed(asked, identifier)
        if not fits(subscribed.own_filter):
            return r.TOPIC_FILTER_INVALID
        name = self.queue_name(subscribed)
        if len(name.encode()) > NAME_MAX:
            return r.TOPIC_FILTER_INVALID
        before = _group_of(self, asked.topic_filter)
        subscriptions = sum(len(group.by_filter) for group in self.groups.values())
        if before is None and subscriptions >= self.settings.subscriptions_max:
            return r.QUOTA_EXCEEDED
        group = self.groups.get(name) or Group(name, subscribed.share is not None)
        was_there = name in self.host.queues
        try:
            if not group.by_filter:
                self._declare(name, group)
            queue = self._readable(name)
            self._bind(name, subscribed)  # last: a refusal leaves no binding
        except Failure as failure:
            if not (group.by_filter or was_there):
                self._leave(name, group)
            return code_of(failure)
        group.put(subscribed)
        self.groups[name] = group
        if subscribed.share is not None:
            self.sessions.join(name, self)
        if before is not None and before is not group:
            self._withdraw(before, asked.topic_filter)
        try:
            self._consume(name, group)
        except Failure as failure:
            self._unsubscribe(asked.topic_filter)
            return code_of(failure)
        if subscribed.share is None and (
            asked.retain_handling == 0 or (asked.retain_handling == 1 and before is None)
        ):
            self._show_retained(queue, subscribed)
        return asked.qos

    def queue_name(self, subscribed: Subscribed) -> str:
        """Return the name of the queue for a subscription."""
        if subscribed.share is not None:
            return f"{SHARED_PREFIX}{subscribed.share}:{subscribed.own_filter}"
        return f"{PREFIX}{self.client_id}qos{min(subscribed.qos, 1)}"

    def _declare(self, name: str, group: Group) -> None:
        """Declare the queue of a group, which may be there: then it has to be like it. Raises Failure."""
        assert self.client is not None
        lasts = group.is_shared or (self.lasts and name.endswith("qos1"))
        arguments: Table = {}
        if not group.is_shared and name.endswith("qos0"):
            arguments = {"x-max-length": self.settings.waiting_max}
        queue = self.client.declare_queue(
            name, durable=lasts, exclusive=not lasts, arguments=arguments, ours=True
        )
        if group.is_shared:
            self.host.note(queue, {**queue.notes, SHARED: True})

    def _bind(self, name: str, subscribed: Subscribed) -> None:
        assert self.client is not None
        self.client.bind(self.exchange, name, False, subscribed.binding_key, {})

    def _readable(self, name: str) -> Queue:
        assert self.client is not None
        return self.client.readable_queue(name)

    def _consume(self, name: str, group: Group) -> None:
        if self.served is not None:
            self._consumer_of(self._readable(name), group)

    def _consumer_of(self, queue: Queue, group: Group) -> QueueConsumer:
        """Return the consumer of a queue, attached now if it was not. Raises Failure."""
        consumer = self._consumers.get(queue.name)
        if consumer is None:
            assert self.client is not None
            settled = queue.name.endswith("qos0") and not group.is_shared
            consumer = QueueConsumer(self, queue, group, settled, self._window)
            consumer.peer = self.client.peer
            self._consumers[queue.name] = consumer
            self.client.consume(consumer)
        return consumer

    def _show_retained(self, queue: Queue, subscribed: Subscribed) -> None:
        """Put the retained messages that a subscription matches into its queue: in portions, if they are many."""
        found = retained_of(self.host).matching(subscribed.levels)
        if self._showing is not None:
            self._showing.append((queue, found))
        else:
            self._showing = [(queue, found)]
            self.broker.long_work.begin(self._show_some)

    def _show_some(self) -> bool:
        """Show some retained messages, and return whether there may be more."""
        showing = self._showing
        assert showing is not None
        queue, found = showing[0]
        retained, count = retained_of(self.host), 0
        for each in islice(found, SHOWN_AT_ONCE):
            if each is not None:  # else some topics did not match
                self.broker.deliver(retained.message_of(each, self.exchange), (queue,))
            count += 1
        if count < SHOWN_AT_ONCE or queue.deleted:
            del showing[0]
            if not showing:
                self._showing = None
        return self._showing is not None

    def _unsubscribe(self, topic_filter: str) -> int:
        """Unsubscribe, and return the reason code."""
        group = _group_of(self, topic_filter)
        if group is None:
            return r.NO_SUBSCRIPTION_EXISTED
        self._withdraw(group, topic_filter)
        return r.SUCCESS

    def _withdraw(self, group: Group, topic_filter: str) -> None:
        """Remove a subscription from a group, with its binding, and the queue if it was the last one."""
        subscribed = group.by_filter[topic_filter]
        name = group.queue_name
        if len(group.by_filter) == 1:
            self._leave(name, group)
            group.remove(topic_filter)
            return
        group.remove(topic_filter)
        queue, exchange = self.host.queues.get(name), self.host.exchanges.get(self.exchange)
        key = subscribed.binding_key
        if queue is not None and exchange is not None:
            if all(each.binding_key != key for each in group.by_filter.values()):
                self.host.unbind(exchange, queue, key, {})

    def _leave(self, name: str, group: Group) -> None:
        """Take no more from a queue, and delete it if it is this session's alone."""
        self.groups.pop(name, None)
        consumer = self._consumers.pop(name, None)
        if consumer is not None:
            consumer.end()
        if group.is_shared:
            self.sessions.part(name, self)
        elif (queue := self.host.queues.get(name)) is not None and (
            queue.durable or self.client is queue.owner
        ):
            self.host.delete_queue(queue)

    def queue_deleted(self, queue: Queue) -> bool:
        """Return whether a deleted queue was one of the session's, and not deleted because its connection ended."""
        is_over = queue.exclusive and self.served is None
        return queue.name in self.groups and not (self.ended or is_over)

    # Messages to the client.

    def fly(self, consumer: QueueConsumer, delivery: Delivery, sending: Sending, body: bytes) -> None:
        """Send a message with QoS 1 or 2; one with QoS 2 once its packet identifier is on disk."""
        self.delivered += 1
        flight = flights_of(self).take(sending.qos, delivery)
        dup = delivery.redelivered and not consumer.group.is_shared  # to this client, then (MQTT-3.3.1-1)
        if sending.qos == 2 and self.record is not None and delivery.stored:
            self.record.note(notes.sent(flight.packet_id, delivery.queue.name), delivery.position)
            served = self.served
            assert served is not None
            step = partial(_send_late, self, consumer, flight, sending, body, dup)
            served.answers.add(step, persistent=True)
        else:
            self._send_flight(consumer, flight, sending, body, dup)

    def _send_flight(
        self,
        consumer: QueueConsumer,
        flight: Flight[Delivery | None],
        sending: Sending,
        body: bytes,
        dup: bool,
    ) -> None:
        served = self.served
        if served is None:
            return
        flags = sending.flags | DUP if dup else sending.flags
        if not served.wire.send(sending.field, body, sending.properties, flight.qos, flight.packet_id, flags):
            delivery = flight.token
            self._forget(flight)
            if delivery is not None:
                consumer.refuse(delivery)

    def acknowledge(self, kind: int, packet_id: int, reason_code: int) -> None:
        """Take a PUBACK, PUBREC or PUBCOMP. Raises ProtocolError."""
        fate, flight = self.flights.acknowledge(kind, packet_id, reason_code)
        served = self.served
        assert served is not None
        if flight is None:
            if kind == PUBREC and reason_code < r.UNSPECIFIED_ERROR:
                code = r.PACKET_IDENTIFIER_NOT_FOUND
                served.answers.add(Ack(PUBREL, packet_id, code).encode(served.wire.version), False)
            return
        delivery = flight.token
        lasting = self.record is not None
        if fate is REPEATED:
            served.answers.add(ack(PUBREL << 4 | 2, packet_id), lasting)
            return
        if fate is ACCEPTED and delivery is not None:
            self.accepted += 1
            delivery.queue.accept(delivery)
            if kind == PUBREC:
                self._unnote_sent(flight, delivery)
                flight.token = None
                if self.record is not None:
                    self.record.note(notes.released(packet_id), 1)
                served.answers.add(ack(PUBREL << 4 | 2, packet_id), lasting)
                return
        elif fate is REFUSED and delivery is not None:
            self._unnote_sent(flight, delivery)
            delivery.queue.reject(delivery)
        elif fate is COMPLETED and self.record is not None:
            self.record.unnote(notes.released(packet_id))
        self._free()

    def _unnote_sent(self, flight: Flight[Delivery | None], delivery: Delivery) -> None:
        if flight.qos == 2 and self.record is not None:
            self.record.unnote(notes.sent(flight.packet_id, delivery.queue.name))

    def _forget(self, flight: Flight[Delivery | None]) -> None:
        """Forget a flight whose message is gone, or goes elsewhere."""
        self.flights.drop(flight.packet_id)
        if flight.token is not None:
            self._unnote_sent(flight, flight.token)

    def _free(self) -> None:
        """Give the credit of one flight back."""
        self._window.credit += 1
        self._send_next_again()
        for consumer in self._consumers.values():
            if not consumer.settled:
                consumer.wake()

    def wake(self) -> None:
        """Take messages again, after the outbox was full."""
        for consumer in self._consumers.values():
            consumer.wake()

    # Messages from the client with QoS 2.

    def receive(self, packet_id: int) -> None:
        """Note that a message was published, until PUBREL comes."""
        self.received[packet_id] = None
        if self.record is not None:
            self.record.note(notes.received(packet_id), 1)

    def complete(self, packet_id: int) -> bool:
        """Take a PUBREL; return whether the identifier is known."""
        if packet_id not in self.received:
            return False
        del self.received[packet_id]
        if self.record is not None:
            self.record.unnote(notes.received(packet_id))
        return True

    # The end by others.

    def disconnect(self, code: int, why: str) -> None:
        """End the connection, if there is one, for this reason."""
        served = self.served
        if served is not None:
            self.detach()
            served.wire.fail(MqttError(code, why))
            served.wake()  # the node sees that it has ended


def _let_new_ones_follow(session: Session, served: AdapterMqtt) -> None:
    """Take new messages from the queues: all that was to be sent again on this connection has been sent."""
    if session.served is served:
        session._window.credit += session.in_flight_max
        session.wake()


def flights_of(session: Session) -> Flights[Delivery | None]:
    """Return the flights of a session, to be added to."""
    if session.flights is NO_FLIGHTS:
        session.flights = Flights()
    return session.flights


def _group_of(session: Session, topic_filter: str) -> Group | None:
    """Return the group of a subscription; None if there is no such one."""
    for group in session.groups.values():  # one or two, and one for each shared subscription
        if topic_filter in group.by_filter:
            return group
    return None


def _send_late(
    session: Session,
    consumer: QueueConsumer,
    flight: Flight[Delivery | None],
    sending: Sending,
    body: bytes,
    dup: bool,
) -> None:
    """Send a flight that has waited, unless it has ended meanwhile."""
    if session.flights.by_id.get(flight.packet_id) is flight:
        session._send_flight(consumer, flight, sending, body, dup)


def nothing() -> None:
    """Do nothing: the client of a session without a connection does not publish."""

"""The consumer of one of a session's queues: its deliveries become PUBLISH packets.

A message is sent with the lower of its publisher's QoS and the subscription's. With QoS 0 it is settled when it is
sent; with QoS 1 and 2 it is a flight of the session until the client has acknowledged it. One with QoS 2 waits until
the note of its packet identifier is on disk, if the session outlives the node: else the client could get it twice
after a crash.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs

from leveret.clock import NEVER
from leveret.delivery import UNLIMITED, Consumer, Delivery, Window
from leveret.message import Message
from leveret.observability.connection_stats import ConsumerFacts
from leveret.protocols.mqtt.broker.encoding import (
    ENCODING,
    QOS,
    RETAIN,
    RETAINED,
    expiry_of,
    properties_of,
    publisher_of,
)
from leveret.protocols.mqtt.broker.topics import can_be_topic, topic_of
from leveret.protocols.mqtt.codec.properties import NONE, Properties

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.protocols.mqtt.broker.session import Session
    from leveret.protocols.mqtt.broker.subscriptions import Group, Match
    from leveret.queues.queue import Queue

log: Final = logging.getLogger("leveret.protocols")

ONE: Final = 1  # byte of room: a single message is taken, however large
FROM_ELSEWHERE_QOS: Final = 1  # of what reaches the queue by another way than a subscription


class Shown:
    """A message as MQTT has it. It is kept with the message, as many clients may get it."""

    __slots__ = ("body", "flags", "properties", "publisher", "topic")

    def __init__(self, message: Message) -> None:
        """Convert a message. Raises what another protocol's encoding raises, and ValueError for a key that cannot be a
        topic."""
        octets, body = message.properties, message.body
        if message.encoding is not ENCODING:
            said, body = message.encoding.convert(message)
            octets = ENCODING.write(said)
        self.topic = topic_of(message.key)
        if not can_be_topic(self.topic):
            raise ValueError(f"the key {message.key!r:.200} cannot be a topic")
        self.flags = octets[0]
        self.publisher = publisher_of(octets)
        self.properties = properties_of(octets)
        self.body = body


def shown(message: Message) -> Shown:
    """Return a message as MQTT has it. Raises as `Shown` does."""
    found = message.converted
    if not isinstance(found, Shown):
        found = message.converted = Shown(message)
    return found


class QueueConsumer(Consumer):
    """The consumer of one queue of a session, while that has a connection."""

    __slots__ = ("_settles_soon", "_to_accept", "_to_reject", "group", "session")

    def __init__(self, session: Session, queue: Queue, group: Group, settled: bool, window: Window) -> None:
        """`settled`: all its messages have QoS 0."""
        super().__init__(queue, settled, UNLIMITED, Window() if settled else window)
        self.session = session
        self.group = group
        self._to_accept: list[Delivery] = []
        self._to_reject: list[Delivery] = []
        self._settles_soon = False

    def facts(self) -> ConsumerFacts:
        served = self.session.served
        name = "" if served is None else served.peer.name
        tag = self.session.client_id
        return ConsumerFacts(tag=tag, connection=name, channel=1, prefetch=self.session.in_flight_max)

    def unanswered(self) -> Mapping[int, object]:
        return self.session.flights.by_id

    def room(self) -> int:
        served = self.session.served
        if served is None:
            return 0
        room = served.outbox.room()
        if room > 0 and self.bounds and not self.settled:
            return ONE if self.may_take_more() else 0
        return room

    def deliver(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            try:
                found = shown(delivery.message)
            except Exception as error:  # the fault of another protocol's encoding, or of the key
                self._refuse(delivery, error)
                continue
            self._deliver(delivery, found)

    def _deliver(self, delivery: Delivery, found: Shown) -> None:
        session = self.session
        match = self._match(delivery.message, found)
        qos = 0 if match is None else min(match.qos, found.flags & QOS)
        if match is None or (match.no_local and found.publisher == session.client_octets):
            self._settle(delivery, accepted=True)
            return
        if self.settled:
            qos = 0
        retain = bool(found.flags & RETAINED or (match.retain_as_published and found.flags & RETAIN))
        properties = self._properties(delivery, found, match)
        session.delivered += 1
        if not qos:
            sent = session.send(found, properties, 0, 0, retain, dup=False)
            session.delivered_settled += 1
            self._settle(delivery, accepted=sent)
        else:
            session.fly(self, delivery, found, properties, qos, retain)

    def again(self, delivery: Delivery) -> tuple[Shown, Properties, bool]:
        """Return how a message is sent once more, on another connection. Raises what `shown` raises."""
        found = shown(delivery.message)
        match = self._match(delivery.message, found)
        as_published = match is not None and match.retain_as_published
        retain = bool(found.flags & RETAINED or (as_published and found.flags & RETAIN))
        return found, NONE if match is None else self._properties(delivery, found, match), retain

    def _match(self, message: Message, found: Shown) -> Match | None:
        """Return the options for a message, or None if it is not the session's any more, or never was."""
        if self.group.is_shared:
            return self.group.only.match()
        match = self.group.match(found.topic)
        if match is None and message.exchange != self.session.exchange:
            return (
                self.session.elsewhere
            )  # the queue was bound, or got it, by other means than a subscription
        return match

    def _properties(self, delivery: Delivery, found: Shown, match: Match) -> Properties:
        properties = found.properties
        left_ms = ttl_left_ms(delivery)
        if not match.identifiers and left_ms is None and properties.message_expiry_interval is None:
            return properties
        expiry_s = None if left_ms is None else expiry_of(left_ms)
        return attrs.evolve(
            properties, subscription_identifiers=match.identifiers, message_expiry_interval=expiry_s
        )

    # What is settled without the client. The queue must not be called while it delivers, but right after.

    def _refuse(self, delivery: Delivery, error: Exception) -> None:
        log.warning("cannot deliver a message of %s over MQTT: %s", delivery.queue.described, error)
        self._settle(delivery, accepted=False)

    def refuse(self, delivery: Delivery) -> None:
        """Reject a delivery that cannot be sent: it is dead-lettered, if its queue has a dead-letter exchange."""
        self._settle(delivery, accepted=False)

    def _settle(self, delivery: Delivery, accepted: bool) -> None:
        if self.settled:
            return  # the queue has accepted it
        self.window.credit += 1
        (self._to_accept if accepted else self._to_reject).append(delivery)
        if not self._settles_soon:
            self._settles_soon = True
            broker = self.session.broker
            broker.timers.at(broker.now, self._settle_now)

    def _settle_now(self, now: float) -> None:
        self._settles_soon = False
        accepted, self._to_accept = self._to_accept, []
        rejected, self._to_reject = self._to_reject, []
        for delivery in accepted:
            delivery.queue.accept(delivery)
        for delivery in rejected:
            delivery.queue.reject(delivery)
        self.wake()

    def end(self) -> None:
        """Detach from the queue. What the client has not acknowledged stays with the session."""
        self.queue.remove_consumer(self)
        self._settle_now(self.session.broker.now)

    def cancelled(self) -> None:
        """Called when the queue is deleted: `Sessions.queue_deleted` ends the session."""

    def end_as_slow(self, why: str) -> None:
        self.session.disconnect_slow(why)


def ttl_left_ms(delivery: Delivery) -> int | None:
    """Return how long a message has left to live in ms; None if its publisher has set no limit."""
    ttl_ms = delivery.message.facts.ttl_ms
    if ttl_ms is None or delivery.expires_at == NEVER:
        return ttl_ms
    return max(1, int(1000 * (delivery.expires_at - delivery.queue.virtual_host.broker.now)))

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

from leveret.clock import NEVER, PAUSE_S
from leveret.delivery import UNLIMITED, Consumer, Delivery, Held, Window
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
from leveret.protocols.mqtt.broker.subscriptions import Match
from leveret.protocols.mqtt.broker.topics import can_be_topic, topic_of
from leveret.protocols.mqtt.codec.packets import MQTT_5
from leveret.protocols.mqtt.codec.properties import Properties, encode_properties
from leveret.protocols.mqtt.codec.reason_codes import QUOTA_EXCEEDED
from leveret.protocols.mqtt.codec.writer import topic_field

if TYPE_CHECKING:
    from leveret.protocols.mqtt.broker.session import Session
    from leveret.protocols.mqtt.broker.subscriptions import Group
    from leveret.queues.queue import Queue

log: Final = logging.getLogger("leveret.protocols")

ONE: Final = 1  # byte of room: a single message is taken, however large
KNOWN_MAX: Final = 256  # different messages of which a consumer remembers how they are sent
PORTION: Final = 1000  # messages of QoS 0 at once that a slow client has let wait: 5 ms, if all differ
# Of what reaches the queue by another way than a subscription, or was sent before the subscription ended.
ELSEWHERE: Final = Match(1, False, False, ())


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


class Sending:
    """A message as it is sent on one connection, but for its packet identifier and its payload.

    Most messages look like the one before, or like the last of another publisher or topic: what was made for that
    serves again, as long as `octets`, key and subscriptions are the same.
    """

    __slots__ = ("body", "field", "flags", "key", "octets", "properties", "qos", "revision")

    def __init__(
        self,
        field: bytes,
        properties: bytes,
        qos: int,
        retain: bool,
        body: bytes,
        key: str = "",
        octets: bytes = b"",
        revision: int = -1,
    ) -> None:
        self.field = field  # the topic, with its size in front
        self.properties = properties  # with their length in front; empty in version 3.1.1
        self.qos = qos
        self.flags = 1 if retain else 0
        self.body = body
        self.key = key
        self.octets = octets
        self.revision = revision  # of the subscriptions; -1: it serves once


class QueueConsumer(Consumer):
    """The consumer of one queue of a session, while that has a connection."""

    __slots__ = ("_known", "_last", "_rests", "_to_settle", "group", "session")

    def __init__(self, session: Session, queue: Queue, group: Group, settled: bool, window: Window) -> None:
        """`settled`: all its messages have QoS 0."""
        super().__init__(queue, settled, UNLIMITED, Window() if settled else window)
        self.session = session
        self.group = group
        self._last: Sending | None = None
        # Those before it, by key and octets; None: messages have not differed yet.
        self._known: dict[tuple[str, bytes], Sending] | None = None
        self._rests = False  # it takes a portion, and the next one after a pause
        # What is settled soon, and whether it is accepted; None: nothing is.
        self._to_settle: list[tuple[Delivery, bool]] | None = None

    def facts(self) -> ConsumerFacts:
        served = self.session.served
        name = "" if served is None else served.peer.name
        tag = self.session.client_id
        return ConsumerFacts(tag=tag, connection=name, channel=1, prefetch=self.session.in_flight_max)

    def unanswered(self) -> Held:
        return self.session.flights.by_id

    def room(self) -> int:
        served = self.session.served
        if served is None:
            return 0
        room = served.outbox.room()
        if room > 0 and self.bounds and not self.settled:
            return ONE if self.may_take_more() else 0
        return room

    def wake(self) -> None:
        """Take messages again: in portions, between which others are served, if many of QoS 0 have waited.

        Those of QoS 1 and 2 are as few as the client may leave unacknowledged.
        """
        if self._rests and self.window.credit <= 0:
            return
        if self.settled and not (self._rests or self.able) and self.queue.ready > PORTION:
            broker = self.session.broker
            self._rests = True
            self.window.credit = PORTION
            broker.timers.at(broker.now + PAUSE_S, self._go_on)
        super().wake()

    def _go_on(self, now: float) -> None:
        """Take the next portion, unless the outbox had no room for this one: then `wake` follows when it has."""
        is_taken = self.window.credit <= 0
        self._rests = False
        self.window.credit = UNLIMITED
        if is_taken:
            self.wake()

    def deliver(self, deliveries: list[Delivery]) -> None:
        session = self.session
        served = session.served
        assert served is not None, "only those with a connection have consumers"
        send, last, revision = served.wire.send, self._last, self.group.revision
        sent = 0
        for delivery in deliveries:
            message = delivery.message
            if (
                last is not None
                and message.properties is last.octets
                and message.key == last.key
                and last.revision == revision
                and message.facts.ttl_ms is None
            ):
                body = message.body
            elif (known := self._before(last, message, revision)) is not None:
                last, body = known, message.body
            else:
                last = self._look_at(delivery)
                if last is None:
                    continue
                body = last.body
            if last.qos:
                session.fly(self, delivery, last, body)
            elif send(last.field, body, last.properties, 0, 0, last.flags):
                sent += 1
                if not self.settled:
                    self._settle(delivery, accepted=True)
            else:
                self._settle(delivery, accepted=False)
        session.delivered += sent
        session.delivered_settled += sent
        self._last = last if last is not None and last.revision >= 0 else None

    def _before(self, last: Sending | None, message: Message, revision: int) -> Sending | None:
        """Return what was made for an earlier message that looked like this one, and keep what was made last."""
        known = self._known
        if last is not None and last.revision == revision:
            if known is None or len(known) >= KNOWN_MAX:
                known = self._known = {}
            known[last.key, last.octets] = last
        if known is None:
            return None
        found = known.get((message.key, message.properties))
        if found is None or found.octets is not message.properties or found.revision != revision:
            return None
        return found if message.facts.ttl_ms is None else None

    def _look_at(self, delivery: Delivery) -> Sending | None:
        """Return how a message is sent, or None if it is not, and has been settled."""
        try:
            found = self.sending(delivery)
        except Exception as error:  # the fault of another protocol's encoding, or of the key
            log.warning("cannot deliver a message of %s over MQTT: %s", delivery.queue.described, error)
            self._settle(delivery, accepted=False)
            return None
        if found is None:
            self._settle(delivery, accepted=True)
        return found

    def sending(self, delivery: Delivery) -> Sending | None:
        """Return how a message is sent now, or None if it is not for this client. Raises what `shown` raises."""
        message, session = delivery.message, self.session
        found = shown(message)
        match = self._match(message, found)
        if match is None or (match.no_local and found.publisher == session.client_octets):
            return None
        qos = 0 if self.settled else min(match.qos, found.flags & QOS)
        retain = bool(found.flags & RETAINED or (match.retain_as_published and found.flags & RETAIN))
        properties = b""
        if session.version == MQTT_5:
            properties = encode_properties(self._properties(delivery, found, match))
        field = topic_field(found.topic)
        if message.encoding is not ENCODING or message.facts.ttl_ms is not None:
            return Sending(field, properties, qos, retain, found.body)
        if message.exchange != session.exchange:
            return Sending(field, properties, qos, retain, found.body)
        return Sending(
            field, properties, qos, retain, found.body, message.key, message.properties, self.group.revision
        )

    def _match(self, message: Message, found: Shown) -> Match | None:
        """Return the options for a message, or None if it is not the session's any more, or never was."""
        if self.group.is_shared:
            return self.group.only.match() if self.group.by_filter else ELSEWHERE
        match = self.group.match(found.topic)
        if match is None and message.exchange != self.session.exchange:
            return ELSEWHERE  # the queue was bound, or got it, by other means than a subscription
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

    def refuse(self, delivery: Delivery) -> None:
        """Reject a delivery that cannot be sent: it is dead-lettered, if its queue has a dead-letter exchange."""
        self._settle(delivery, accepted=False)

    def _settle(self, delivery: Delivery, accepted: bool) -> None:
        if self.settled:
            return  # the queue has accepted it
        self.window.credit += 1
        if self._to_settle is None:
            self._to_settle = []
            broker = self.session.broker
            broker.timers.at(broker.now, self._settle_now)
        self._to_settle.append((delivery, accepted))

    def _settle_now(self, now: float) -> None:
        settled, self._to_settle = self._to_settle, None
        for delivery, accepted in settled or ():
            if accepted:
                delivery.queue.accept(delivery)
            else:
                delivery.queue.reject(delivery)
        self.wake()

    def end(self) -> None:
        """Detach from the queue. What the client has not acknowledged stays with the session."""
        self.queue.remove_consumer(self)
        self._settle_now(self.session.broker.now)

    def cancelled(self) -> None:
        """Called when the queue is deleted: `ClientSessions.queue_deleted` ends the session."""

    def end_as_slow(self, why: str) -> None:
        self.session.disconnect(QUOTA_EXCEEDED, why)


def ttl_left_ms(delivery: Delivery) -> int | None:
    """Return how long a message has left to live in ms; None if its publisher has set no limit."""
    ttl_ms = delivery.message.facts.ttl_ms
    if ttl_ms is None or delivery.expires_at == NEVER:
        return ttl_ms
    return max(1, int(1000 * (delivery.expires_at - delivery.queue.virtual_host.broker.now)))

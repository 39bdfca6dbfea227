"""Publishing: from a PUBLISH, or a will, to a message of the core.

What goes to the topic exchange is also kept, if it is to be retained. The permission for the exchange is checked once
and remembered; with topic permissions, each topic is checked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import attrs

from leveret.broker import REFUSED, UNROUTABLE, WORK_MAX, Outcome
from leveret.message import NO_FACTS, Facts, Message
from leveret.protocols.mqtt.broker.encoding import ENCODING, RETAIN, facts_of, packed
from leveret.protocols.mqtt.broker.retained import retained_of
from leveret.protocols.mqtt.broker.topics import can_be_topic, fits, key_of, topic_of
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.codec.properties import NONE, Properties
from leveret.protocols.mqtt.codec.reason_codes import (
    NO_MATCHING_SUBSCRIBERS,
    PACKET_TOO_LARGE,
    QUOTA_EXCEEDED,
    SUCCESS,
    TOPIC_NAME_INVALID,
)
from leveret.publishing.publish_targets import UNCHECKED, PublishTarget, targets_of

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.exchanges.exchange_type import Exchange
    from leveret.protocols.mqtt.broker.settings import MqttSettings

KEYS_MAX: Final = 1024  # routing keys of topics that are remembered
# calls for a run, each of which may look at all that is left, before that comes one by one
TRIES_MAX: Final = 2
DURABLE: Final = Facts(durable=True)
OF_THE_CONNECTION: Final = ("topic_alias", "will_delay_interval")


class Publishing:
    """Publishes the messages of one client."""

    __slots__ = (
        "_body_size_max",
        "_broker",
        "_client",
        "_client_id",
        "_facts",
        "_flags",
        "_host",
        "_keys",
        "_octets",
        "_properties",
        "_settings",
        "_target",
        "_targets",
    )

    def __init__(self, client: Client, client_id: str, settings: MqttSettings, body_size_max: int) -> None:
        self._client = client
        self._broker = client.broker
        self._host = client.host
        self._settings = settings
        self._body_size_max = body_size_max
        self._client_id = client_id.encode()
        self._targets = targets_of(client, "mqtt")
        self._target = PublishTarget(self._host.default_exchange, False, UNCHECKED)
        self._keys: dict[str, str] = {}
        self._flags = -1  # of the last message,
        self._properties: Properties | None = None  # its properties,
        self._octets, self._facts = b"", NO_FACTS  # and what was made of them

    def publish(self, topic: str, payload: bytes, qos: int, retain: bool, properties: Properties) -> int:
        """Publish a message, and return the reason code of its acknowledgement. Raises Failure, or MqttError."""
        exchange, key = self._aim(topic)
        if len(payload) > self._body_size_max:
            raise MqttError(PACKET_TOO_LARGE, f"a payload of {len(payload)} bytes is larger than allowed")
        flags = qos | (RETAIN if retain else 0)
        if properties is not self._properties or flags != self._flags:
            self._look_at(flags, qos, properties)
        message = Message(ENCODING, exchange.name, key, self._octets, payload, self._facts)
        message.peer = self._client.peer
        if retain:
            return self._code_of(self._publish_retained(exchange, topic, message, qos))
        return self._code_of(self._broker.publish(exchange, message))

    def _publish_retained(self, exchange: Exchange, topic: str, message: Message, qos: int) -> Outcome:
        """Publish a message that is to be retained, as interceptors have changed it. Raises MqttError."""
        broker = self._broker
        if exchange.prepares:
            prepared = broker.prepare(exchange, message)
            if prepared is None:
                exchange.published += 1
                return REFUSED
            if prepared is not message:
                topic, message = topic_of(prepared.key), prepared
        if message.body:
            self._require_room(topic, message.body)
        outcome = broker.publish(exchange, message, is_prepared=True)
        # A full queue drops its copy of a message of QoS 0; one of QoS 1 or 2 is not accepted then, as nothing of it.
        if outcome is not REFUSED or (broker.refused_by and not qos):
            self._retain(topic, message)
        return outcome

    def publish_alike(self, topic: str, payloads: list[bytes], properties: Properties) -> int:
        """Publish messages of QoS 0 that differ in their payloads only, and return how many: as many as a turn allows.

        What a full queue refuses is dropped. Raises Failure, or MqttError.
        """
        exchange, key = self._aim(topic)
        if max(map(len, payloads)) > self._body_size_max:
            raise MqttError(PACKET_TOO_LARGE, "a payload is larger than allowed")
        if properties is not self._properties or self._flags:
            self._look_at(0, 0, properties)
        name, octets, facts, peer = exchange.name, self._octets, self._facts, self._client.peer
        messages = [Message(ENCODING, name, key, octets, payload, facts) for payload in payloads]
        for message in messages:
            message.peer = peer
        broker, done, tries = self._broker, 0, TRIES_MAX
        while done < len(messages) and broker.work <= WORK_MAX:
            if tries:
                tries -= 1
                done += broker.publish_run(exchange, messages[done:] if done else messages, WORK_MAX)
            if done < len(messages) and broker.work <= WORK_MAX:
                broker.publish(exchange, messages[done])
                done += 1
        return done

    def _aim(self, topic: str) -> tuple[Exchange, str]:
        """Return the exchange and the routing key for a topic, checked. Raises Failure, or MqttError."""
        target = self._target
        if target.revision != self._host.checks_revision:
            name = self._settings.exchange
            target = self._target = self._targets.check(self._client, name, name)
        key = self._keys.get(topic) or self._key_of(topic)
        if target.guarded:
            self._client.check_topics(target.exchange, (key,))
        return target.exchange, key

    def _look_at(self, flags: int, qos: int, properties: Properties) -> None:
        kept = properties
        if properties is not NONE:
            kept = attrs.evolve(properties, topic_alias=None, will_delay_interval=None)
        self._octets = packed(flags, self._client_id, kept)
        self._facts = (DURABLE if qos else NO_FACTS) if kept is NONE else facts_of(qos, kept)
        self._flags, self._properties = flags, properties

    def _key_of(self, topic: str) -> str:
        """Return the routing key of a topic. Raises MqttError 0x90 for one that is too long to be a key."""
        if not fits(topic):
            raise MqttError(TOPIC_NAME_INVALID, "a topic name has more than 255 bytes")
        if len(self._keys) >= KEYS_MAX:
            self._keys.clear()
        key = self._keys[topic] = key_of(topic)
        return key

    def _require_room(self, topic: str, payload: bytes) -> None:
        """Raise MqttError 0x97 if a message cannot be retained: it is too large, or there are too many."""
        if len(payload) > self._settings.retained_size_max:
            raise MqttError(QUOTA_EXCEEDED, f"a message of {len(payload)} bytes is too large to be retained")
        retained_of(self._host).require_room(topic, self._settings.retained_max)

    def _retain(self, topic: str, message: Message) -> None:
        retained = retained_of(self._host)
        if not can_be_topic(topic):  # an interceptor has given it such a key
            return
        if message.body:
            retained.retain(topic, message.properties, message.body, message.facts.ttl_ms)
        else:
            retained.delete(topic)

    def _code_of(self, outcome: Outcome) -> int:
        if outcome is REFUSED:
            queue = self._broker.refused_by
            why = f"queue '{queue}' is full" if queue else self._broker.refused_for
            raise MqttError(QUOTA_EXCEEDED, why)
        return NO_MATCHING_SUBSCRIBERS if outcome is UNROUTABLE else SUCCESS

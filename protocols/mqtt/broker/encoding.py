"""The encoding of MQTT messages: what is kept of a PUBLISH besides topic and payload, and its neutral properties.

    flags (1 byte) | client id of the publisher (2 bytes of size, UTF-8) | properties of MQTT 5 (section 3.3.2.3)

The flags have the QoS of the publisher, whether it asked to retain the message, and whether this is a retained message
for a new subscription. The properties are as in the packet, without topic alias and subscription identifiers, which
belong to a connection. The format is for good: messages in the store have it.

| MQTT 5                            | neutral                                              |
|-----------------------------------|------------------------------------------------------|
| QoS 1 or 2                        | durable                                              |
| content type                      | content_type                                         |
| correlation data                  | correlation_id: a text if it is UTF-8, else bytes    |
| response topic                    | reply_to: `/exchanges/<exchange>/<key>`              |
| message expiry interval           | ttl_ms                                               |
| user properties                   | headers; those of one name become a list             |
"""

from __future__ import annotations

from typing import Final
from urllib.parse import quote, unquote

import attrs

from leveret.errors import PreconditionFailed
from leveret.limits import TTL_MAX_MS
from leveret.message import Encoding, Facts
from leveret.protocols.mqtt.broker.topics import can_be_topic, key_of, topic_of
from leveret.protocols.mqtt.codec import properties as p
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.values import Id, Properties, Table, Value, printed

QOS: Final = 0x03
RETAIN: Final = 0x04  # the publisher asked to retain the message
RETAINED: Final = 0x08  # it is a copy of a retained message, for a new subscription
HEAD: Final = 3  # bytes in front of the client id
EXPIRY_MAX_S: Final = 0xFFFF_FFFF
FIELD_MAX: Final = 0xFFFF  # bytes
EXCHANGES: Final = "/exchanges/"
NOT_A_TOPIC: Final = "x-opt-reply-to"  # the user property with a reply-to that is no topic, as in RabbitMQ
DEFAULT_EXCHANGE: Final = "amq.topic"


def packed(flags: int, client_id: bytes, properties: p.Properties) -> bytes:
    """Return what is kept of a PUBLISH. Properties of the connection must have been taken out."""
    head = bytes((flags, len(client_id) >> 8, len(client_id) & 0xFF)) + client_id
    if properties is p.NONE or properties == p.NONE:
        return head
    octets = p.encode_properties(properties)
    return head + octets[_length_size(octets) :]


def _length_size(octets: bytes) -> int:
    size = 0
    while octets[size] & 0x80:
        size += 1
    return size + 1


def publisher_of(octets: bytes) -> bytes:
    """Return the client id of the publisher; empty if there is none."""
    return octets[HEAD : HEAD + (octets[1] << 8 | octets[2])]


def properties_of(octets: bytes) -> p.Properties:
    """Return the properties of MQTT 5. Raises MqttError if they are damaged."""
    rest = octets[HEAD + (octets[1] << 8 | octets[2]) :]
    return p.decode_properties(rest, p.PUBLISH) if rest else p.NONE


def with_flags(octets: bytes, flags: int) -> bytes:
    """Return the same with other flags."""
    return bytes((flags,)) + octets[1:]


class EncodingMqtt(Encoding):
    name = "mqtt"

    def headers(self, properties: bytes) -> Table:
        return _headers(properties_of(properties).user_properties)

    def read(self, properties: bytes) -> Properties:
        found = properties_of(properties)
        expiry_s, topic = found.message_expiry_interval, found.response_topic
        return Properties(
            content_type=found.content_type,
            headers=_headers(found.user_properties) or None,
            durable=bool(properties[0] & QOS),
            correlation_id=_id_of(found.correlation_data),
            reply_to=None if topic is None else address_of(topic),
            ttl_ms=ttl_of(expiry_s),
        )

    def write(self, properties: Properties) -> bytes:
        pairs = _pairs(properties.headers or {})
        topic = None
        if properties.reply_to:
            topic = response_topic_of(properties.reply_to)
            if topic is None:
                pairs += _pairs({NOT_A_TOPIC: properties.reply_to})
        ttl_ms = properties.ttl_ms
        found = p.Properties(
            content_type=_string(properties.content_type),
            correlation_data=_octets_of(properties.correlation_id),
            response_topic=topic,
            message_expiry_interval=None if ttl_ms is None else expiry_of(ttl_ms),
            user_properties=tuple(pairs),
        )
        return packed(1 if properties.durable else 0, b"", found)

    def with_headers(self, properties: bytes, headers: Table) -> bytes:
        found = properties_of(properties)
        kept = [pair for pair in found.user_properties if pair[0] not in headers]
        changed = attrs.evolve(found, user_properties=(*kept, *_pairs(headers)))
        return packed(properties[0], publisher_of(properties), changed)

    def published(self, properties: bytes) -> tuple[Facts, bytes]:
        if len(properties) < HEAD or len(properties) < HEAD + (properties[1] << 8 | properties[2]):
            raise PreconditionFailed("the properties of a message of MQTT are cut short")
        try:
            return facts_of(properties[0] & QOS, properties_of(properties)), properties
        except MqttError as error:
            raise PreconditionFailed(f"the properties of MQTT cannot be read: {error.text}") from None


ENCODING: Final = EncodingMqtt()


def facts_of(qos: int, properties: p.Properties) -> Facts:
    """Return the facts for the core."""
    return Facts(
        durable=qos > 0,
        ttl_ms=ttl_of(properties.message_expiry_interval),
        has_headers=bool(properties.user_properties),
    )


def ttl_of(expiry_s: int | None) -> int | None:
    """Return the time to live in ms for a message expiry interval: at most ten years, as in every protocol."""
    return None if expiry_s is None else min(expiry_s * 1000, TTL_MAX_MS)


def expiry_of(ttl_ms: int) -> int:
    """Return whole seconds for a time to live, at least one of them if any is left."""
    return min(-(-max(ttl_ms, 0) // 1000), EXPIRY_MAX_S)


def address_of(topic: str, exchange: str = DEFAULT_EXCHANGE) -> str:
    """Return the neutral address of a response topic."""
    return f"{EXCHANGES}{quote(exchange, safe='')}/{quote(key_of(topic), safe='')}"


def response_topic_of(reply_to: str) -> str | None:
    """Return the topic that a neutral address stands for, or None if it is another address."""
    if not reply_to.startswith(EXCHANGES):
        return None
    exchange, slash, key = reply_to[len(EXCHANGES) :].partition("/")
    if not slash or unquote(exchange) != DEFAULT_EXCHANGE:
        return None
    try:
        topic = topic_of(unquote(key, errors="strict"))
    except UnicodeDecodeError:
        return None
    return topic if can_be_topic(topic) and len(topic.encode()) <= FIELD_MAX else None


def _headers(pairs: tuple[tuple[str, str], ...]) -> Table:
    found: dict[str, Value] = {}
    for name, value in pairs:
        before = found.get(name)
        if before is None:
            found[name] = value
        else:
            found[name] = [*before, value] if isinstance(before, list) else [before, value]
    return found


def _pairs(headers: Table) -> list[tuple[str, str]]:
    """Return user properties for headers: one for each item of a list; tables, and what is too long, are left out."""
    pairs: list[tuple[str, str]] = []
    for name, value in headers.items():
        key = _string(name)
        if key is None:
            continue
        for item in value if isinstance(value, list | tuple) else (value,):
            if item is None or isinstance(item, dict | list | tuple):
                continue
            shown = _string(printed(item))
            if shown is not None:
                pairs.append((key, shown))
    return pairs


def _string(text: str | None) -> str | None:
    """Return a text if it can be a string of MQTT, else None (section 1.5.4)."""
    if text is None or "\0" in text:
        return None
    try:
        return text if len(text.encode()) <= FIELD_MAX else None
    except UnicodeEncodeError:
        return None


def _id_of(octets: bytes | None) -> Id | None:
    if octets is None:
        return None
    try:
        return octets.decode()
    except UnicodeDecodeError:
        return octets


def _octets_of(identifier: Id | None) -> bytes | None:
    if identifier is None:
        return None
    octets = (
        identifier if isinstance(identifier, bytes) else str(identifier).encode("utf-8", "surrogateescape")
    )
    return octets if len(octets) <= FIELD_MAX else None

"""Content properties of AMQP 0-9-1: what the core reads of them, and what a consumer is shown.

`project` reads a publisher's property bytes once. `rendered` gives the bytes for a consumer: the publisher's own, to
the byte, unless the message has a history (deaths, failed deliveries) or came from another protocol.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker_core.errors import PreconditionFailed
from broker_core.limits import TTL_MAX_MS
from broker_core.message import Death, Encoding, Facts, Message, further_keys
from broker_core.values import Properties, Table, Timestamp, Value
from protocols.amqp091 import wire
from protocols.amqp091.wire import BasicProperties, FieldTable, FieldValue

DURABLE: Final = 2  # delivery-mode
OFFSET: Final = "x-stream-offset"  # where in a stream a delivery comes from
REMEMBERED_MAX: Final = 4096  # distinct property bytes whose facts are kept
REMEMBERED_SIZE_MAX: Final = 128  # octets; longer ones hardly come twice

remembered: Final[dict[bytes, Facts]] = {}  # by property bytes; looked up before `project` is called


class Encoding091(Encoding):
    name = "amqp091"

    def headers(self, properties: bytes) -> Table:
        raw = wire.property_fields(properties).get("headers")
        return {} if raw is None else wire.decode_table(raw)

    def read(self, properties: bytes) -> Properties:
        given = BasicProperties.decode(properties)
        return Properties(
            content_type=given.content_type,
            content_encoding=given.content_encoding,
            headers=given.headers,
            durable=given.delivery_mode == DURABLE,
            priority=given.priority,
            correlation_id=given.correlation_id,
            reply_to=given.reply_to,
            ttl_ms=None if given.expiration is None else ttl_ms(given.expiration),
            message_id=given.message_id,
            timestamp=given.timestamp,
            type=given.type,
            user_id=given.user_id,
            app_id=given.app_id,
        )

    def write(self, properties: Properties) -> bytes:
        return BasicProperties(
            content_type=properties.content_type,
            content_encoding=properties.content_encoding,
            headers=None if properties.headers is None else field_table(properties.headers),
            delivery_mode=DURABLE if properties.durable else None,
            priority=properties.priority,
            correlation_id=properties.correlation_id,
            reply_to=properties.reply_to,
            expiration=None if properties.ttl_ms is None else str(properties.ttl_ms),
            message_id=properties.message_id,
            timestamp=properties.timestamp,
            type=properties.type,
            user_id=properties.user_id,
            app_id=properties.app_id,
        ).encode()


ENCODING: Final = Encoding091()


# What the core reads.


def project(properties: bytes) -> tuple[Facts, bytes]:
    """The facts, and the properties as consumers may see them (without BCC, S091).

    Raises wire.MalformedError, or PreconditionFailed for an expiration or CC that makes no sense (S090, S091).
    """
    given = BasicProperties.decode(properties)
    headers = given.headers or {}
    facts = Facts(
        durable=given.delivery_mode == DURABLE,
        priority=given.priority or 0,
        ttl_ms=None if given.expiration is None else ttl_ms(given.expiration),
        user_id=given.user_id,
        reply_to=given.reply_to,
        cc=further_keys(headers, "CC"),
        bcc=further_keys(headers, "BCC"),
        has_headers=bool(headers),
    )
    if "BCC" in headers:
        return facts, wire.edit_headers(properties, frozenset({"BCC"}), {})
    _remember(properties, facts)
    return facts, properties


def _remember(properties: bytes, facts: Facts) -> None:
    if len(properties) <= REMEMBERED_SIZE_MAX:
        if len(remembered) >= REMEMBERED_MAX:
            remembered.clear()
        remembered[properties] = facts


def ttl_ms(expiration: str) -> int:
    """Expiration in milliseconds. Raises PreconditionFailed with RabbitMQ's words for what is wrong (S090)."""
    digits = expiration[1:] if expiration[:1] in ("-", "+") else expiration
    leading = len(digits) - len(digits.lstrip("0123456789"))
    if not leading:
        fault = "no_integer"
    elif leading < len(digits):
        fault = "leftover_string"
    elif expiration.startswith("-"):
        fault = "value_negative"
    elif int(digits) > TTL_MAX_MS:
        fault = "value_too_large"
    else:
        return int(digits)
    raise PreconditionFailed(f"invalid expiration '{expiration}': {fault}")


# What a consumer sees.


def rendered(message: Message, attempts: int = 0) -> bytes:
    """The properties for a consumer. `attempts`: failed deliveries so far, shown as x-delivery-count."""
    if message.notes is None and message.encoding is ENCODING:
        properties = message.properties
    else:
        properties = _converted(message)
    if attempts:
        properties = wire.edit_headers(properties, frozenset(), {"x-delivery-count": attempts})
    return properties


def _converted(message: Message) -> bytes:
    """Properties of another protocol, a dead letter or a message in a stream; the last result stays with it."""
    remembered = message.converted
    if isinstance(remembered, Converted):
        return remembered.properties
    if message.encoding is ENCODING:
        properties = message.properties
    else:
        properties = ENCODING.write(message.encoding.read(message.properties))
    notes = message.notes
    if notes is not None and notes.deaths:
        properties = _with_deaths(message, properties)
    if notes is not None and notes.offset is not None:
        properties = wire.edit_headers(properties, frozenset(), {OFFSET: wire.LongLong(notes.offset)})
    message.converted = Converted(properties)
    return properties


class Converted:
    """Properties rendered for 0-9-1, remembered on a message."""

    __slots__ = ("properties",)

    def __init__(self, properties: bytes) -> None:
        self.properties = properties


DEATH_HEADERS: Final = frozenset(
    {
        "x-death",
        *(
            f"x-{which}-death-{what}"
            for which in ("first", "last")
            for what in ("reason", "queue", "exchange")
        ),
    }
)


def _with_deaths(message: Message, properties: bytes) -> bytes:
    """X031-X036: x-death newest first, the first and last death, no expiration, no CC once it was replaced."""
    notes = message.notes
    assert notes is not None
    headers: FieldTable = {"x-death": [_death_table(death) for death in notes.deaths]}
    for which, death in (("first", notes.first_death), ("last", notes.last_death)):
        if death is not None:
            for what, text in zip(("reason", "queue", "exchange"), death, strict=True):
                headers[f"x-{which}-death-{what}"] = text
    removed = DEATH_HEADERS if message.facts.cc else DEATH_HEADERS | {"CC"}
    return wire.edit_headers(wire.edit_properties(properties, {"expiration": None}), removed, headers)


def _death_table(death: Death) -> FieldTable:
    table: FieldTable = {
        "count": wire.LongLong(death.count),
        "reason": death.reason,
        "queue": death.queue,
        "time": wire.Timestamp(death.first_time),
        "exchange": death.exchange,
        "routing-keys": list(death.keys),
    }
    if death.ttl_ms is not None:
        table["original-expiration"] = str(death.ttl_ms)
    return table


def field_table(table: Table) -> FieldTable:
    """Neutral values as field values: lists and dicts of our own, texts as they are."""
    return {name: _field(value) for name, value in table.items()}


def _field(value: Value) -> FieldValue:
    if isinstance(value, Mapping):
        return field_table(value)
    if isinstance(value, bytearray):
        return wire.ByteArray(value)
    if isinstance(value, Timestamp):
        return wire.Timestamp(value)
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        return value
    return [_field(item) for item in value]


def table(fields: FieldTable) -> Table:
    """Field values as neutral values: the reverse of `field_table`."""
    return {name: _value(field) for name, field in fields.items()}


def _value(field: FieldValue) -> Value:
    if isinstance(field, dict):
        return table(field)
    if isinstance(field, list):
        return [_value(item) for item in field]
    if isinstance(field, wire.ByteArray):
        return bytearray(field)
    return Timestamp(field) if isinstance(field, wire.Timestamp) else field

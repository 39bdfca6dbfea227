"""Content properties of AMQP 0-9-1: conversion to the core's facts, and rendering for consumers.

`project` reads a publisher's property bytes once. `rendered` returns the bytes for a consumer: the publisher's own
bytes, unless the message has a history (deaths, failed deliveries) or came from another protocol. Values of those that
0-9-1 cannot express (a text of more than 255 bytes, headers of more than a frame) are left out.
"""

from __future__ import annotations

from typing import ClassVar, Final
from uuid import UUID

from mypy_extensions import i64

from leveret.errors import PreconditionFailed
from leveret.limits import TTL_MAX_MS
from leveret.message import LOWEST, Death, Encoding, Facts, Message, further_keys
from leveret.protocols.amqp091.broker.core_values import core_value, field_table, table
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.fields import value_at
from leveret.protocols.amqp091.codec.header_scan import ABSENT, octets_of, plain_table_after, value_of
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable
from leveret.values import Id, Properties, Table, Value

DURABLE: Final = 2  # delivery-mode
SHORT_MAX: Final = 255  # bytes of a short string
WRITTEN_MAX: Final = 120_000  # bytes of properties: they have one frame, and x-death and the like are added
REPLY_TO: Final = "amq.rabbitmq.reply-to"  # the alias of a channel's own reply queue
OFFSET: Final = "x-stream-offset"  # the position in a stream of a delivery

FLAGS_SIZE: Final = 2  # in front of all properties
UNKNOWN: Final = 0x0003  # flags of properties that basic does not have
TOLD: Final = 0x0310  # the flags of reply-to, expiration and user-id

# Most messages have one of a few sets of facts: by durable and has_headers, and priority; the last one's is `LOWEST`.
plainly: Final = [
    [Facts(durable, priority, has_headers=headers) for priority in (*range(256), LOWEST)]
    for durable in (False, True)
    for headers in (False, True)
]


class Encoding091(Encoding):
    name: ClassVar[str] = "amqp091"

    def headers(self, properties: bytes) -> Table:
        raw = wire.property_fields(properties).get("headers")
        return {} if raw is None else table(wire.decode_table(raw))

    def header(self, properties: bytes, name: str) -> Value:
        at = value_of(properties, name.encode("utf-8", "surrogateescape"))
        if at < 0:
            return None if at == ABSENT else self.headers(properties).get(name)
        field, _ = value_at(properties, at, len(properties), 1)
        return core_value(field)

    def header_octets(self, properties: bytes, names: dict[bytes, int], size_max: int) -> bytes | None:
        return octets_of(properties, names, size_max)

    def read(self, properties: bytes) -> Properties:
        given = BasicProperties.decode(properties)
        return Properties(
            content_type=given.content_type,
            content_encoding=given.content_encoding,
            headers=None if given.headers is None else table(given.headers),
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
        headers = dict(properties.headers or {})
        correlation_id = _identified(properties.correlation_id, "x-correlation-id", headers)
        message_id = _identified(properties.message_id, "x-message-id", headers)
        octets = BasicProperties(
            content_type=_short(properties.content_type),
            content_encoding=_short(properties.content_encoding),
            headers=field_table(headers) if headers or properties.headers is not None else None,
            delivery_mode=DURABLE if properties.durable else None,
            priority=_within(properties.priority, 0xFF),
            correlation_id=correlation_id,
            reply_to=_short(properties.reply_to),
            expiration=None if properties.ttl_ms is None else str(properties.ttl_ms),
            message_id=message_id,
            timestamp=_within(properties.timestamp, 0xFFFF_FFFF_FFFF_FFFF),
            type=_short(properties.type),
            user_id=_short(properties.user_id),
            app_id=_short(properties.app_id),
        ).encode()
        return octets if len(octets) <= WRITTEN_MAX else wire.edit_properties(octets, {"headers": None})

    def published(self, properties: bytes) -> tuple[Facts, bytes]:
        if len(properties) > WRITTEN_MAX:
            raise PreconditionFailed(
                f"the properties have {len(properties)} octets, {WRITTEN_MAX} are the most"
            )
        try:
            facts, properties = project(properties)
        except wire.MalformedError as error:
            raise PreconditionFailed(f"the properties cannot be read: {error}") from None
        if facts.reply_to == REPLY_TO:
            raise PreconditionFailed("fast reply consumer does not exist")
        return facts, properties

    def with_headers(self, properties: bytes, headers: Table) -> bytes:
        edited = wire.edit_headers(properties, frozenset(), field_table(headers))
        return edited if len(edited) <= WRITTEN_MAX else properties


def _short(text: str | None) -> str | None:
    """Return a text that fits a short string, or None."""
    if text is None or len(text.encode("utf-8", "surrogateescape")) > SHORT_MAX:
        return None
    return text


def _within(number: int | None, most: int) -> int | None:
    return number if number is not None and 0 <= number <= most else None


def _identified(given: Id | None, header: str, headers: dict[str, Value]) -> str | None:
    """Return an id as a short string, or None after adding an id that does not fit as a header of its own (S232)."""
    if isinstance(given, UUID):
        return f"urn:uuid:{given}"
    if isinstance(given, int):
        return str(given)
    if given is None or (isinstance(given, str) and _short(given) is not None):
        return given
    headers[header] = given if isinstance(given, str) else bytearray(given)
    return None


ENCODING: Final = Encoding091()


def project(properties: bytes) -> tuple[Facts, bytes]:
    """Return the facts, and the properties as consumers may see them (without BCC, S091).

    Raises wire.MalformedError, or PreconditionFailed for an invalid expiration or CC (S090, S091).
    """
    plain = plain_facts(properties)
    if plain is not None:
        return plain, properties
    given = BasicProperties.decode(properties)
    headers = given.headers or {}
    facts = Facts(
        durable=given.delivery_mode == DURABLE,
        priority=LOWEST if given.priority == 0 else given.priority or 0,
        ttl_ms=None if given.expiration is None else ttl_ms(given.expiration),
        user_id=given.user_id,
        reply_to=given.reply_to,
        cc=further_keys(headers, "CC"),
        bcc=further_keys(headers, "BCC"),
        has_headers=bool(headers),
    )
    if "BCC" in headers:
        return facts, wire.edit_headers(properties, frozenset({"BCC"}), {})
    return facts, properties


def plain_facts(properties: bytes) -> Facts | None:
    """Return the facts, or None if something is wrong with the properties, or there are further routing keys in them.

    Ids, timestamps and headers differ in each message, and the core needs none of them: they are skipped, so that what
    nobody asks for is not built. Raises PreconditionFailed for an invalid expiration (S090).
    """
    if len(properties) < FLAGS_SIZE:
        return None
    at: i64 = FLAGS_SIZE
    end: i64 = len(properties)
    flags: i64 = properties[0] << 8 | properties[1]
    mode: i64 = 0
    priority: i64 = 0
    reply_to = expiration = user_id = None
    has_headers = False
    if flags & UNKNOWN:
        return None
    try:  # flag by flag: a loop over flags makes objects of them
        if flags & 0x8000:  # content type
            at += 1 + properties[at]
        if flags & 0x4000:  # content encoding
            at += 1 + properties[at]
        if flags & 0x2000:
            start = at
            at = plain_table_after(properties, at, end)
            if at < 0:
                return None
            has_headers = at > start + 4
        if flags & 0x1000:
            mode = properties[at]
            at += 1
        if flags & 0x0800:
            priority = properties[at]
            if priority == 0:
                priority = LOWEST
            at += 1
        if flags & 0x0400:  # correlation id
            at += 1 + properties[at]
        if flags & TOLD:
            if flags & 0x0200:
                reply_to = _text_at(properties, at)
                at += 1 + properties[at]
            if flags & 0x0100:
                expiration = _text_at(properties, at)
                at += 1 + properties[at]
        if flags & 0x0080:  # message id
            at += 1 + properties[at]
        if flags & 0x0040:  # timestamp
            at += 8
        if flags & 0x0020:  # type
            at += 1 + properties[at]
        if flags & 0x0010:
            user_id = _text_at(properties, at)
            at += 1 + properties[at]
        if flags & 0x0008:  # application id
            at += 1 + properties[at]
        if flags & 0x0004:  # reserved
            at += 1 + properties[at]
    except IndexError:
        return None
    if at != end:
        return None
    if not flags & TOLD:
        kind: i64 = 2 if mode == DURABLE else 0
        return plainly[kind + 1 if has_headers else kind][priority]
    return Facts(
        mode == DURABLE,
        priority,
        None if expiration is None else ttl_ms(expiration),
        user_id,
        reply_to,
        has_headers=has_headers,
    )


def _text_at(properties: bytes, at: i64) -> str:
    """Return the short string at an offset, or what is there of it. Raises IndexError if there is nothing."""
    return properties[at + 1 : at + 1 + properties[at]].decode("utf-8", "surrogateescape")


def ttl_ms(expiration: str) -> int:
    """Parse an expiration in milliseconds. Raises PreconditionFailed with RabbitMQ's words for the fault (S090)."""
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


def rendered(message: Message, attempts: int = 0) -> tuple[bytes, bytes]:
    """Return properties and body for a consumer. `attempts`: failed deliveries so far, shown as x-delivery-count."""
    if message.notes is None and message.encoding is ENCODING:
        properties, body = message.properties, message.body
    else:
        converted = _converted(message)
        properties, body = converted.properties, converted.body
    if attempts:
        properties = wire.edit_headers(properties, frozenset(), {"x-delivery-count": attempts})
    return properties, body


def _converted(message: Message) -> Converted:
    """Render a message of another protocol, a dead letter or a message in a stream; the last result is cached on it."""
    converted = message.converted
    if isinstance(converted, Converted):
        return converted
    if message.encoding is ENCODING:
        properties, body = message.properties, message.body
    else:
        written, body = message.encoding.convert(message)
        properties = ENCODING.write(written)
    notes = message.notes
    if notes is not None and notes.deaths:
        properties = _with_deaths(message, properties)
    if notes is not None and notes.offset is not None:
        properties = wire.edit_headers(properties, frozenset(), {OFFSET: wire.LongLong(notes.offset)})
    converted = message.converted = Converted(properties, body)
    return converted


class Converted:
    """The rendering of a message for 0-9-1, cached on the message."""

    __slots__ = ("body", "properties")

    def __init__(self, properties: bytes, body: bytes) -> None:
        self.properties = properties
        self.body = body


def cut(name: str) -> str:
    """Return a name as a short string: longer names of other protocols are cut."""
    if len(name) <= SHORT_MAX // 4:
        return name
    return name.encode("utf-8", "surrogateescape")[:SHORT_MAX].decode("utf-8", "surrogateescape")


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
    """Add the death headers (X031-X036): x-death newest first, first and last death, no expiration, no replaced CC."""
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

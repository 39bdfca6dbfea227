"""Convert the header segment of AMQP 0-10 to neutral properties, and back.

| neutral, 0-9-1                    | AMQP 0-10                                                                        |
|-----------------------------------|----------------------------------------------------------------------------------|
| durable, priority, ttl, timestamp | delivery-mode 2, priority, ttl, timestamp (in seconds) of delivery-properties    |
| message_id, a UUID                | message-id                                                                       |
| message_id, anything else         | header `x-message-id`                                                            |
| correlation_id                    | the bytes of its text: a UUID's is `urn:uuid:...`, a number's are its digits     |
| reply_to, a queue's name          | reply-to without an exchange, the name is the routing key                        |
| reply_to `/exchanges/x/key`       | reply-to with an exchange, and both names as they are                            |
| content_type, content_encoding    | the same                                                                         |
| user_id, app_id                   | the same                                                                         |
| type                              | header `x-jms-type`, as Qpid's own converters have it                            |
| headers                           | application-headers                                                              |
| `subject` of 1.0                  | header `qpid.subject`                                                            |
| a body that is a map or a list    | content-type `amqp/map`, `amqp/list`                                             |

The text `urn:uuid:...` is a UUID, as it is in 1.0. What only 0-10 has (expiration, resume-id, fragment-properties,
unknown types, ...) is not converted, and what one side cannot represent is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote_to_bytes
from uuid import UUID

from leveret import values
from leveret.protocols.amqp010.broker import envelope as e
from leveret.protocols.amqp010.broker.core_values import is_name, neutral, table, wire
from leveret.protocols.amqp010.codec.types import encode, encode_list, encode_map, list_at, map_at
from leveret.values import Id, Properties, Table

URN: Final = re.compile(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
UINT16_MAX: Final = 0xFFFF
EXCHANGES: Final = "/exchanges/"
QUEUES: Final = "/queues/"
MESSAGE_ID: Final = "x-message-id"
CORRELATION_ID: Final = "x-correlation-id"
TYPE: Final = "x-jms-type"
SUBJECT: Final = "qpid.subject"
MAP: Final = b"amqp/map"  # content types
LIST: Final = b"amqp/list"


# From 0-10 to neutral properties.


def read(header: bytes) -> Properties:
    """Return the neutral properties of a header segment."""
    begin, end = e.delivery_at(header)
    delivery, message = e.delivery_fields(header[begin:end]), e.message_fields(header)
    given = _headers(message[e.HEADERS])
    message_id, correlation_id = _message_id(message, given), _correlation_id(message, given)
    type_ = given.pop(TYPE) if isinstance(given.get(TYPE), str) else None
    return Properties(
        content_type=e.text(message[e.CONTENT_TYPE]),
        content_encoding=e.text(message[e.CONTENT_ENCODING]),
        headers=given or None,
        durable=delivery[e.DELIVERY_MODE] == e.DURABLE,
        priority=_number(delivery[e.PRIORITY_AT]),
        correlation_id=correlation_id,
        reply_to=reply_to_of(message[e.REPLY_TO]),
        ttl_ms=_number(delivery[e.TTL]) or None,
        message_id=message_id,
        timestamp=_number(delivery[e.TIMESTAMP]),
        type=type_ if isinstance(type_, str) else None,
        user_id=e.text(message[e.USER_ID]) or None,
        app_id=e.text(message[e.APP_ID]),
    )


def headers(header: bytes) -> Table:
    """Return the application-headers; none if they are too large to be decoded."""
    begin, end = e.message_at(header)
    if begin == end:
        return {}
    return _headers(e.message_fields(header)[e.HEADERS])


def _headers(octets: bytes | None) -> dict[str, values.Value]:
    if octets is None or not 4 < len(octets) <= e.LOOKED_INTO_MAX:
        return {}
    pairs, _ = map_at(len(octets).to_bytes(4, "big") + octets, 0, 4 + len(octets))
    return table(pairs)


def _number(octets: bytes | None) -> int | None:
    return None if octets is None else int.from_bytes(octets, "big")


def _message_id(message: list[bytes | None], given: dict[str, values.Value]) -> Id | None:
    octets = message[e.MESSAGE_ID]
    return _id(MESSAGE_ID, given) if octets is None else UUID(bytes=octets)


def _correlation_id(message: list[bytes | None], given: dict[str, values.Value]) -> Id | None:
    text = e.text(message[e.CORRELATION_ID])
    if text is None:
        return _id(CORRELATION_ID, given)
    return UUID(text) if URN.fullmatch(text) else text


def _id(header: str, given: dict[str, values.Value]) -> Id | None:
    """Return an id out of the header that carries it because the property itself could not; remove that header."""
    value = given.get(header)
    if isinstance(value, bool) or not isinstance(value, str | bytes | bytearray | int):
        return None
    del given[header]
    if isinstance(value, int):
        return int(value)
    return bytes(value) if isinstance(value, bytearray) else value


def reply_to_of(octets: bytes | None) -> str | None:
    """Return a reply-to as a queue's name, or as the address of an exchange with a routing key."""
    if octets is None:
        return None
    exchange, key = map(e.text, e.reply_fields(octets))
    if exchange:
        return EXCHANGES + _encoded(exchange) + (f"/{_encoded(key)}" if key else "")
    if key and key.startswith((EXCHANGES, QUEUES)):
        return QUEUES + _encoded(key)
    return key or None


def _encoded(name: str) -> str:
    return quote(name, safe="", errors="surrogateescape")


def _decoded(name: str) -> str:
    return unquote_to_bytes(name).decode("utf-8", "surrogateescape")


def body_value(header: bytes, body: bytes) -> values.Value:
    """Return the map or list that a body is by its content type; None if it cannot be converted completely."""
    if len(body) > e.LOOKED_INTO_MAX:
        return None
    content_type = e.message_fields(header)[e.CONTENT_TYPE]
    read = map_at if content_type == MAP else list_at if content_type == LIST else None
    if read is None:
        return None
    try:
        converted, after = read(body, 0, len(body))
        found = neutral(converted)
        return found if after == len(body) and wire(found) == converted else None
    except ValueError:
        return None


# From neutral properties to 0-10.


def write(properties: Properties, subject: values.Value = None) -> bytes:
    """Return delivery-properties and message-properties as a header segment; an empty struct is left out."""
    given = dict(properties.headers or {})
    delivery = [
        *(None, None, None),  # discard-unroutable, immediate, redelivered
        _packed(properties.priority, 1),
        e.DURABLE if properties.durable else None,
        _packed(properties.ttl_ms, 8),
        _packed(properties.timestamp, 8),
    ]
    message_id = _uuid(properties.message_id, given)
    correlation_id = _octets_of_id(properties.correlation_id, given)
    if (type_ := properties.type) is not None:
        given[TYPE] = type_
    if isinstance(subject, str):
        given.setdefault(SUBJECT, subject)
    message = [
        None,  # content-length
        message_id,
        correlation_id,
        _reply_to(properties.reply_to),
        _octets(properties.content_type, e.SHORT_MAX),
        _octets(properties.content_encoding, e.SHORT_MAX),
        _octets(properties.user_id, UINT16_MAX),
        _octets(properties.app_id, UINT16_MAX),
        e.map_of(entries) if (entries := entries_of(given)) else None,
    ]
    return _struct(e.DELIVERY, delivery, e.DELIVERY_WIDTHS) + _struct(e.MESSAGE, message, e.MESSAGE_WIDTHS)


def body_of(value: values.Value) -> tuple[str, bytes] | None:
    """Return a content type and a body that represent this value; None if it cannot be represented completely."""
    if isinstance(value, str):
        return "text/plain", value.encode()
    try:
        converted = wire(value)
        if neutral(converted) != value:
            return None
        if isinstance(converted, dict):
            return MAP.decode(), encode_map(converted)
        return (LIST.decode(), encode_list(converted)) if isinstance(converted, list) else None
    except ValueError:
        return None


def _struct(code: bytes, fields: list[bytes | None], widths: tuple[int, ...]) -> bytes:
    return b"" if all(field is None for field in fields) else e.struct_of(code, fields, widths)


def _packed(number: int | None, width: int) -> bytes | None:
    if number is None or not 0 <= number < 1 << 8 * width:
        return None
    return number.to_bytes(width, "big")


def _octets(text: str | None, most: int) -> bytes | None:
    octets = None if text is None else text.encode("utf-8", "surrogateescape")
    return octets if octets is None or len(octets) <= most else None


def _uuid(given: Id | None, headers: dict[str, values.Value]) -> bytes | None:
    """Return a message-id; an id that is no UUID goes into a header of its own instead."""
    if isinstance(given, str) and URN.fullmatch(given):
        given = UUID(given)
    if isinstance(given, UUID):
        return given.bytes
    if given is not None:
        headers[MESSAGE_ID] = _value(given)
    return None


def _octets_of_id(given: Id | None, headers: dict[str, values.Value]) -> bytes | None:
    """Return a correlation-id; one that is too long goes into a header of its own instead."""
    if given is None:
        return None
    if isinstance(given, UUID):
        return f"urn:uuid:{given}".encode()
    octets = given if isinstance(given, bytes) else str(given).encode("utf-8", "surrogateescape")
    if len(octets) > UINT16_MAX:
        headers[CORRELATION_ID] = _value(given)
        return None
    return octets


def _value(given: str | bytes | int) -> values.Value:
    if isinstance(given, bytes):
        return bytearray(given)
    return values.UInt64(given) if isinstance(given, int) else given


def _reply_to(text: str | None) -> bytes | None:
    """Return an encoded reply-to for a queue's name or an address of version 2."""
    if not text:
        return None
    exchange, key = "", text
    if text.startswith(QUEUES):
        key = _decoded(text.removeprefix(QUEUES))
    elif text.startswith(EXCHANGES):
        exchange, key = map(_decoded, text.removeprefix(EXCHANGES).partition("/")[::2])
    fields = [_octets(exchange or None, e.SHORT_MAX), _octets(key, e.SHORT_MAX)]
    return None if fields[1] is None else e.packed_of(fields, e.REPLY_WIDTHS)


def entries_of(given: Table) -> dict[str, bytes]:
    """Return the headers that 0-10 can represent, as encoded entries of a map."""
    entries: dict[str, bytes] = {}
    for name, value in given.items():
        if is_name(name):
            try:
                entries[name] = encode(wire(value))
            except ValueError:
                continue
    return entries


# Headers that the broker adds.


def edited(header: bytes, added: Mapping[str, bytes], removed: frozenset[str] = frozenset()) -> bytes:
    """Return the header segment with entries added to its headers or replaced in them, and the rest as it is.

    Headers that are too large to be decoded stay as they are.
    """
    begin, end = e.message_at(header)
    fields = e.message_fields(header)
    octets = fields[e.HEADERS] or b""
    if len(octets) > e.LOOKED_INTO_MAX:
        return header
    entries = {name: entry for name, entry in e.entries_at(octets).items() if name not in removed}
    fields[e.HEADERS] = e.map_of({**entries, **added})
    return header[:begin] + e.struct_of(e.MESSAGE, fields, e.MESSAGE_WIDTHS) + header[end:]

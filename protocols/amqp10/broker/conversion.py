"""Conversion of the sections of an AMQP 1.0 message to neutral properties, and back (S231, S232).

| neutral, 0-9-1                        | AMQP 1.0                                                                     |
|---------------------------------------|------------------------------------------------------------------------------|
| durable, priority, ttl                | the same of `header`                                                         |
| message_id, correlation_id            | the same; the text `urn:uuid:...` is a UUID                                  |
| reply_to, a queue's name              | `reply-to`, its address `/queues/...`                                        |
| reply_to, an address of version 2     | the same                                                                     |
| content_type, content_encoding        | the same, if they are ASCII                                                  |
| timestamp, in seconds                 | `creation-time`, in milliseconds                                             |
| user_id, app_id                       | `user-id`, `group-id`                                                        |
| type                                  | annotation `x-basic-type`                                                    |
| header CC                             | annotation `x-cc`                                                            |
| headers `x-...`                       | annotations                                                                  |
| other headers, but arrays and tables  | `application-properties`                                                     |

The `subject` is shared with other protocols that have one (0-10). All other fields of 1.0 (`to`, ...) concern 1.0
alone. A value that one side cannot express is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from uuid import UUID

from leveret import values
from leveret.protocols.amqp10.broker import addresses
from leveret.protocols.amqp10.broker.core_values import Pairs, neutral, table, wire
from leveret.protocols.amqp10.broker.envelope import (
    COPIES,
    Envelope,
    annotation,
    annotations_section,
    entry,
    envelope_of,
)
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.sections import (
    APPLICATION,
    BODY,
    DELIVERY,
    FOOTER,
    PROPERTIES,
    bounds,
    value_of,
)
from leveret.protocols.amqp10.codec.types import DecodeError, Timestamp, Value, encode, value_at
from leveret.protocols.amqp10.codec.writing import compound
from leveret.values import Id, Properties, Table

LOOKED_INTO_MAX: Final = 131_072  # bytes of a section; a larger one is passed on unread
UINT_MAX: Final = 0xFFFF_FFFF
URN: Final = re.compile(r"urn:uuid:[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")
SHORT_MAX: Final = 255  # bytes of the ids that 0-9-1 can express; longer ids are headers there
TYPE: Final = "x-basic-type"
INTERNAL: Final = frozenset(("x-exchange", "x-routing-key", "x-death"))  # annotations that are no headers
INTERNAL_BEGIN: Final = "x-basic-"

APPLICATION_BEGIN: Final = b"\x00\x53\x74"
VALUE_BEGIN: Final = b"\x00\x53\x77"
NOTHING: Final[tuple[Value, ...]] = (None,) * 13
(MESSAGE_ID, USER_ID, TO, SUBJECT, REPLY_TO, CORRELATION_ID, CONTENT_TYPE, CONTENT_ENCODING) = range(8)
ABSOLUTE_EXPIRY_TIME, CREATION_TIME, GROUP_ID, GROUP_SEQUENCE, REPLY_TO_GROUP_ID = range(8, 13)
SELECTED: Final = {  # properties that are read alone, by their names in the core
    "message_id": MESSAGE_ID,
    "to": TO,
    "subject": SUBJECT,
    "correlation_id": CORRELATION_ID,
    "absolute_expiry_time": ABSOLUTE_EXPIRY_TIME,
    "creation_time": CREATION_TIME,
    "group_id": GROUP_ID,
    "group_sequence": GROUP_SEQUENCE,
    "reply_to_group_id": REPLY_TO_GROUP_ID,
}


def read(octets: bytes) -> Properties:
    """Return the neutral properties of the sections before a body."""
    at = bounds(octets)
    envelope = envelope_of(octets[: at[PROPERTIES]], at[DELIVERY])
    given = properties_at(octets, at)
    creation_time, user_id = given[CREATION_TIME], given[USER_ID]
    return Properties(
        content_type=_string(given[CONTENT_TYPE]),
        content_encoding=_string(given[CONTENT_ENCODING]),
        headers=_headers(envelope, application_at(octets, at)) or None,
        durable=envelope.durable,
        priority=envelope.priority,
        correlation_id=_id(given[CORRELATION_ID]),
        reply_to=_queue(_string(given[REPLY_TO])),
        ttl_ms=envelope.ttl_ms,
        message_id=_id(given[MESSAGE_ID]),
        timestamp=creation_time // 1000 if isinstance(creation_time, int) else None,
        type=_string(annotation(envelope.entries[TYPE])) if TYPE in envelope.entries else None,
        user_id=user_id.decode("utf-8", "surrogateescape") if isinstance(user_id, bytes) else None,
        app_id=_string(given[GROUP_ID]),
    )


def selected(octets: bytes, name: str) -> values.Value:
    """Return a single property, one of `SELECTED`: an id, a string, a number, or a time in milliseconds."""
    return _id(properties_at(octets, bounds(octets))[SELECTED[name]])


def headers(octets: bytes) -> Table:
    """Return the application-properties and annotations that other protocols call headers."""
    at = bounds(octets)
    return _headers(envelope_of(octets[: at[PROPERTIES]], at[DELIVERY]), application_at(octets, at))


def _headers(envelope: Envelope, application: Pairs) -> Table:
    found = table(application)
    for name, value in _annotations(envelope):
        if name not in INTERNAL and not name.startswith(INTERNAL_BEGIN):
            found["CC" if name == COPIES else name] = value
    return found


def message_annotations(octets: bytes) -> Table:
    """Return the publisher's message annotations, without those that other protocols cannot express."""
    at = bounds(octets)
    return dict(_annotations(envelope_of(octets[: at[PROPERTIES]], at[DELIVERY])))


def _annotations(envelope: Envelope) -> Iterator[tuple[str, values.Value]]:
    for name, octets in envelope.entries.items():
        try:
            yield name, neutral(annotation(octets))
        except ValueError:
            continue


def properties_at(octets: bytes, at: list[int]) -> tuple[Value, ...]:
    """Return the fields of a message's properties, in the order of the wire."""
    if at[PROPERTIES] == at[APPLICATION]:
        return NOTHING
    fields, _ = value_at(octets, value_of(octets, at[PROPERTIES]), at[APPLICATION])
    assert isinstance(fields, list)
    return (*fields, *NOTHING[len(fields) :])


def application_at(octets: bytes, at: list[int]) -> Pairs:
    """Return a message's application-properties, or none if the section is larger than LOOKED_INTO_MAX."""
    if not 0 < at[BODY] - at[APPLICATION] <= LOOKED_INTO_MAX:
        return {}
    pairs, _ = value_at(octets, value_of(octets, at[APPLICATION]), at[BODY])
    assert isinstance(pairs, dict)
    return pairs


def _string(value: Value) -> str | None:
    return str(value) if isinstance(value, str) else None


def _id(value: Value) -> Id | None:
    if isinstance(value, int):
        return int(value)
    return value if isinstance(value, str | bytes | UUID) else None


def _queue(address: str | None) -> str | None:
    return None if address is None else addresses.queue_named(address) or address


def body_value(body: bytes) -> values.Value:
    """Return the map, list or text in a body, or None if other protocols cannot express all of it."""
    if len(body) > LOOKED_INTO_MAX or not body.startswith(VALUE_BEGIN):
        return None
    try:
        value, after = value_at(body, len(VALUE_BEGIN), len(body))
        if not isinstance(value, dict | list | str) or after != bounds(body)[FOOTER]:
            return None
        found = neutral(value)
        return found if wire(found) == value else None
    except (DecodeError, ValueError):
        return None


def write(properties: Properties, subject: values.Value = None) -> bytes:
    """Encode header, annotations, properties and application-properties; empty sections are left out."""
    given = dict(properties.headers or {})
    record = p.Properties(
        message_id=_identified(properties.message_id, "x-message-id", given),
        user_id=_octets(properties.user_id),
        subject=subject if isinstance(subject, str) and _unicode(subject) else None,
        reply_to=_address(properties.reply_to) if properties.reply_to else None,
        correlation_id=_identified(properties.correlation_id, "x-correlation-id", given),
        content_type=_ascii(properties.content_type),
        content_encoding=_ascii(properties.content_encoding),
        creation_time=_milliseconds(properties.timestamp),
        group_id=_unicode(properties.app_id),
    )
    annotations, application = _parted(given)
    if (type_ := _unicode(properties.type)) is not None:
        annotations[TYPE] = entry(TYPE, type_)
    octets = b"" if record == p.Properties() else record.encode()
    return (
        _header(properties) + annotations_section(annotations.values()) + octets + _application(application)
    )


def _address(reply_to: str) -> str:
    return reply_to if addresses.is_address(reply_to) else addresses.queue_address(reply_to)


def value_section(value: values.Value) -> bytes | None:
    """Return the body that `body_value` reads as this value, or None if 1.0 cannot express all of it."""
    try:
        converted = wire(value)
        return VALUE_BEGIN + encode(_with_strings(converted)) if neutral(converted) == value else None
    except ValueError:
        return None


def _with_strings(value: Value) -> Value:
    """Turn the keys of maps into strings, as in bodies; elsewhere they are symbols."""
    if isinstance(value, dict):
        return {str(name): _with_strings(item) for name, item in value.items()}
    return [_with_strings(item) for item in value] if isinstance(value, list) else value


def _header(properties: Properties) -> bytes:
    header = p.Header(
        durable=properties.durable or None,
        priority=_within(properties.priority, 255),
        ttl=_within(properties.ttl_ms, UINT_MAX),
    )
    return b"" if header == p.Header() else header.encode()


def _parted(given: Table) -> tuple[dict[str, bytes], list[bytes]]:
    """Split headers into annotations by name, and keys and values of application-properties (part 3, section 3.2.5)."""
    annotations: dict[str, bytes] = {}
    application: list[bytes] = []
    for header, value in given.items():
        try:
            converted = wire(value)
            name = COPIES if header == "CC" and isinstance(converted, list) else header
            if name.startswith("x-") and name.isascii():
                annotations[name] = entry(name, converted)
            elif not isinstance(converted, list | dict):
                application += (encode(name), encode(converted))
        except ValueError:
            continue
    return annotations, application


def _application(items: list[bytes]) -> bytes:
    return APPLICATION_BEGIN + compound(0xC1, items) if items else b""


def _identified(given: Id | None, header: str, headers: dict[str, values.Value]) -> Id | None:
    """Convert an id. An id that 0-9-1 could not express is in a header of its own (S232)."""
    if given is None:
        return _from_header(header, headers)
    if isinstance(given, int):
        return given if 0 <= given < 2**64 else str(given)
    if isinstance(given, str):
        if URN.fullmatch(given):
            return UUID(given)
        return _octets(given) if _unicode(given) is None else given
    return given


def _from_header(header: str, headers: dict[str, values.Value]) -> Id | None:
    value = headers.get(header)
    if isinstance(value, bytes | bytearray):
        del headers[header]
        return bytes(value)
    if isinstance(value, str) and len(value) > SHORT_MAX // 4 and len(value.encode()) > SHORT_MAX:
        del headers[header]
        return value
    return None


def _octets(text: str | None) -> bytes | None:
    return None if text is None else text.encode("utf-8", "surrogateescape")


def _unicode(text: str | None) -> str | None:
    """Return a text if it is valid UTF-8, or None: texts of other protocols may hold other bytes."""
    if text is None:
        return None
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return text


def _ascii(text: str | None) -> str | None:
    return text if text is not None and text.isascii() else None


def _within(number: int | None, most: int) -> int | None:
    return number if number is not None and 0 <= number <= most else None


def _milliseconds(seconds: int | None) -> int | None:
    return None if seconds is None or not -(2**63) <= seconds * 1000 < 2**63 else Timestamp(seconds * 1000)

"""Decode the properties of AMQP 0-9-1 messages as its encoding does, in a third of the time.

This is for messages whose properties are like those of few others; many that are alike are decoded together
(pipeline/shapes.py). Kinds of values that are rare, and whatever does not fit, are left to the encoding itself, so that
both always agree.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import PreconditionFailed
from leveret.protocols.amqp091.broker.core_values import core_value
from leveret.protocols.amqp091.broker.encoding import DURABLE, ENCODING, ttl_ms
from leveret.protocols.amqp091.codec.fields import MalformedError, value_at
from leveret.values import Properties, Value

SHORT, TABLE, OCTET, LONGLONG = range(4)
FIELDS: Final = (
    (0x8000, "content_type", SHORT),
    (0x4000, "content_encoding", SHORT),
    (0x2000, "headers", TABLE),
    (0x1000, "delivery_mode", OCTET),
    (0x0800, "priority", OCTET),
    (0x0400, "correlation_id", SHORT),
    (0x0200, "reply_to", SHORT),
    (0x0100, "expiration", SHORT),
    (0x0080, "message_id", SHORT),
    (0x0040, "timestamp", LONGLONG),
    (0x0020, "type", SHORT),
    (0x0010, "user_id", SHORT),
    (0x0008, "app_id", SHORT),
)
REST: Final = 0x0007  # flags of properties that nothing is decoded of
TEXT, INT = b"SI"  # kinds of a header's value
NAMES_MAX: Final = 4096  # names of headers that are kept decoded

Layout = tuple[tuple[str, int], ...]
layouts: Final[dict[bytes, Layout]] = {}  # by flags, of which there are 8192 at most
names: Final[dict[bytes, str]] = {}


def read(raw: bytes) -> Properties:
    """Return all properties under their neutral names. Raises MalformedError, PreconditionFailed."""
    try:
        found = _read(raw)
    except (IndexError, MalformedError, PreconditionFailed):
        found = None  # the encoding says what is wrong
    return ENCODING.read(raw) if found is None else found


def _read(raw: bytes) -> Properties | None:
    """Return the properties; None if they are not as expected. Raises IndexError if they are cut off."""
    layout = layouts.get(raw[:2])
    if layout is None:
        flags = raw[0] << 8 | raw[1]
        if flags & REST:
            return None
        layout = layouts[raw[:2]] = tuple((name, kind) for flag, name, kind in FIELDS if flags & flag)
    at, durable, ttl = 2, False, None
    values: dict[str, object] = {}
    for name, kind in layout:
        if kind == SHORT:
            begin = at + 1
            at = begin + raw[at]
            text = raw[begin:at].decode("utf-8", "surrogateescape")
            if name == "expiration":
                ttl = ttl_ms(text)
            else:
                values[name] = text
        elif kind == TABLE:
            end = at + 4 + int.from_bytes(raw[at : at + 4], "big")
            headers, at = _headers(raw, at + 4, end)
            if at != end:
                return None
            values[name] = headers
        elif kind == LONGLONG:
            values[name] = int.from_bytes(raw[at : at + 8], "big")
            at += 8
        elif name == "delivery_mode":
            durable = raw[at] == DURABLE
            at += 1
        else:
            values[name] = raw[at]
            at += 1
    if at != len(raw):
        return None
    return Properties(durable=durable, ttl_ms=ttl, **values)  # type: ignore[arg-type]


def _headers(raw: bytes, at: int, end: int) -> tuple[dict[str, Value], int]:
    """Return the headers up to `end`, and where the last one ends: elsewhere, if they are not as they should be."""
    found: dict[str, Value] = {}
    while at < end:
        begin = at + 1
        at = begin + raw[at]
        octets = raw[begin:at]
        name = names.get(octets)
        if name is None:
            name = octets.decode("utf-8", "surrogateescape")
            if len(names) < NAMES_MAX:
                names[octets] = name
        kind = raw[at]
        if kind == TEXT:
            begin = at + 5
            at = begin + int.from_bytes(raw[at + 1 : begin], "big")
            try:
                found[name] = raw[begin:at].decode()
            except UnicodeDecodeError:
                found[name] = core_value(raw[begin:at])
        elif kind == INT:
            begin = at + 1
            at += 5
            found[name] = int.from_bytes(raw[begin:at], "big", signed=True)
        else:
            field, at = value_at(raw, at, min(end, len(raw)), 1)
            found[name] = core_value(field)
    return found, at

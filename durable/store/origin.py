"""Encode as JSON what the broker knows of a message without its properties, and decode it (docs/store-format.md).

Never to be compiled: encodings have their names as attributes of their classes, and where a class is plain Python,
compiled code does not find them there.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, TypeAlias

from leveret.durable.store.contract import MissingProtocolError
from leveret.message import Death, Encoding, Facts, Message, Notes

REMEMBERED_MAX: Final = 4096
REMEMBERED_SIZE_MAX: Final = 1024  # characters

EncodingOf = Callable[[str], Encoding | None]  # returns an encoding by name, or None
Texts: TypeAlias = list[str]
# Encoding name; durable, priority, TTL, user id, reply-to, CC, BCC, whether it has headers; notes.
Origin: TypeAlias = (
    "tuple[str, bool, int, int | None, str | None, str | None, Texts, Texts, bool, list[object] | None]"
)


def origin_said(message: Message, notes: Notes | None) -> list[object]:
    """Return an `Origin` for JSON; `notes` are those of the message's notes that are to be kept."""
    facts = message.facts
    return [
        message.encoding.name,
        facts.durable,
        facts.priority,
        facts.ttl_ms,
        facts.user_id,
        facts.reply_to,
        facts.cc,
        facts.bcc,
        facts.has_headers,
        notes_said(notes),
    ]


SegmentReader: TypeAlias = "tuple[Encoding, bool, int, int | None, str | None, str | None, bool]"
remembered: Final[dict[SegmentReader, str]] = {}


def remembered_origin(message: Message) -> str:
    """Return an `Origin` without notes, as JSON. Many messages share one, whatever their keys: 1 us instead of 5."""
    facts = message.facts
    if facts.cc or facts.bcc:
        return json.dumps(origin_said(message, None), separators=(",", ":"))
    looks = (
        message.encoding,
        facts.durable,
        facts.priority,
        facts.ttl_ms,
        facts.user_id,
        facts.reply_to,
        facts.has_headers,
    )
    origin = remembered.get(looks)
    if origin is None:
        origin = json.dumps(origin_said(message, None), separators=(",", ":"))
        if len(remembered) >= REMEMBERED_MAX:
            remembered.clear()
        if len(origin) <= REMEMBERED_SIZE_MAX:
            remembered[looks] = origin
    return origin


def notes_said(notes: Notes | None) -> list[object] | None:
    """Return the broker's notes on a message, for JSON."""
    if notes is None:
        return None
    deaths = [
        [d.queue, d.reason, d.count, d.first_time, d.last_time, d.exchange, d.keys, d.ttl_ms]
        for d in notes.deaths
    ]
    fields: list[object] = [deaths, notes.first_death, notes.last_death, notes.offset]
    if notes.reached or notes.is_repeat:
        fields.append(notes.reached)
    if notes.is_repeat:
        fields.append(True)
    return fields


def encoding_named(name: str, encoding_of: EncodingOf) -> Encoding:
    """Return an encoding by name. Raises MissingProtocolError if there is none."""
    encoding = encoding_of(name)
    if encoding is None:
        raise MissingProtocolError(name)
    return encoding


def facts_of(origin: Origin) -> Facts:
    """Return the facts that the core knows; `Encoding.restored` may add more."""
    _, durable, priority, ttl_ms, user_id, reply_to, cc, bcc, has_headers, _ = origin
    return Facts(durable, priority, ttl_ms, user_id, reply_to, tuple(cc), tuple(bcc), has_headers)


def notes_of(rows: list[object] | None) -> Notes | None:
    """Decode the result of `notes_said`."""
    if rows is None:
        return None
    deaths, first_death, last_death, offset, *more = rows
    notes = Notes()
    assert isinstance(deaths, list)
    notes.deaths = tuple(
        Death(queue, reason, count, first_time, last_time, exchange, tuple(keys), ttl_ms)
        for queue, reason, count, first_time, last_time, exchange, keys, ttl_ms in deaths
    )
    notes.first_death, notes.last_death = _address(first_death), _address(last_death)
    notes.offset = offset if isinstance(offset, int) else None
    if more and isinstance(more[0], list):
        notes.reached = tuple((bool(is_exchange), str(name)) for is_exchange, name in more[0])
    notes.is_repeat = len(more) > 1 and bool(more[1])
    return notes


def _address(value: object) -> tuple[str, str, str] | None:
    if not isinstance(value, list):
        return None
    reason, queue, exchange = value
    return reason, queue, exchange

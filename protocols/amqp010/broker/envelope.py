"""The header segment of a transfer: find its structs, read what the broker needs, edit it, and build it anew.

    struct32*: size, code, flags, fields              delivery-properties    rewritten for each consumer
                                                      message-properties     as they came, but for headers we add
                                                      any other              as they came

Structs are packed: a flag for each field, then the fields that are present, without padding (0-10 final, section 3.3).
So one walk over the flags that are set tells where every field is, without making an object. Clients mostly repeat the
same delivery-properties, but for their timestamp; what follows from the rest is remembered by its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from struct import Struct
from struct import error as struct_error
from typing import Final, TypeVar

from leveret.limits import TTL_MAX_MS
from leveret.message import LOWEST, Facts
from leveret.protocols.amqp010.codec.reading import SIZE_WIDTHS, WIDTHS, str8_at
from leveret.protocols.amqp010.codec.types import MalformedError, map_at, value_at

K = TypeVar("K")
V = TypeVar("V")

DURABLE: Final = b"\x02"  # delivery-mode
PRIORITY: Final = 4  # of messages that give none
LOOKED_INTO_MAX: Final = 131_072  # bytes of headers; larger ones are passed on undecoded
REMEMBERED_MAX: Final = 4096  # entries in each of the tables of what was seen before
REMEMBERED_SIZE_MAX: Final = 128  # bytes; longer ones rarely come twice
SHORT_MAX: Final = 255  # bytes of a str8

DELIVERY: Final = b"\x04\x01"
MESSAGE: Final = b"\x04\x03"
DELIVERY_CODE: Final = 0x0401
FRAGMENT_CODE: Final = 0x0402
MESSAGE_CODE: Final = 0x0403

# The fields of the two structs in the order of the specification, and how many bytes each has; less than zero: how many
# bytes its size in front of it has.
DISCARD_UNROUTABLE: Final = 0
IMMEDIATE: Final = 1
REDELIVERED: Final = 2
PRIORITY_AT: Final = 3
DELIVERY_MODE: Final = 4
TTL: Final = 5
TIMESTAMP: Final = 6
EXPIRATION: Final = 7
EXCHANGE: Final = 8
ROUTING_KEY: Final = 9
RESUME_ID: Final = 10
RESUME_TTL: Final = 11
DELIVERY_WIDTHS: Final = (0, 0, 0, 1, 1, 8, 8, 8, -1, -1, -2, 8)
CONTENT_LENGTH: Final = 0
MESSAGE_ID: Final = 1
CORRELATION_ID: Final = 2
REPLY_TO: Final = 3
CONTENT_TYPE: Final = 4
CONTENT_ENCODING: Final = 5
USER_ID: Final = 6
APP_ID: Final = 7
HEADERS: Final = 8
MESSAGE_WIDTHS: Final = (8, 16, -2, -2, -1, -1, -2, -2, -4)
REPLY_EXCHANGE: Final = 0
REPLY_KEY: Final = 1
REPLY_WIDTHS: Final = (-1, -1)
FRAGMENT_WIDTHS: Final = (0, 0, 8)
IDS: Final = 0x0600  # the flags of message-id and correlation-id, as STRUCT_BEGIN reads them

UINT32: Final = Struct(">I")
STRUCT_BEGIN: Final = Struct(">IHH")  # size, code, flags
FIELDS_AT: Final = 6  # bytes of a struct in front of its flags
TIME_SIZE: Final = 8  # bytes of a timestamp
# Where the timestamp of delivery-properties is behind the beginning of the struct, by the first byte of the flags; 0 if
# there is none.
TIME_AT: Final = tuple(
    FIELDS_AT + 2 + sum(DELIVERY_WIDTHS[field] for field in range(TIMESTAMP) if flags >> field & 1)
    if flags >> TIMESTAMP & 1
    else 0
    for flags in range(256)
)


class Envelope:
    """The parts of a message's header segment that the broker reads. Messages with equal properties share it."""

    __slots__ = ("discard_unroutable", "expiration", "facts", "immediate", "routing_key")

    def __init__(
        self,
        facts: Facts,
        routing_key: str,
        discard_unroutable: bool,
        immediate: bool,
        expiration: int | None,
    ) -> None:
        self.facts = facts  # one object for equal facts
        self.routing_key = routing_key
        self.discard_unroutable = discard_unroutable
        self.immediate = immediate
        self.expiration = expiration  # seconds since 1970-01-01 UTC, if there is no TTL

    def facts_at(self, wall: float) -> Facts:
        """Return the facts, with the TTL that an expiration means at this time, in seconds since 1970-01-01 UTC."""
        if self.expiration is None:
            return self.facts
        facts = self.facts.copy()
        facts.ttl_ms = min(max(0, int(1000 * (self.expiration - wall))), TTL_MAX_MS)
        return facts


remembered: Final[dict[bytes, Envelope]] = {}  # by whole header segments without headers, ids and timestamp
# By delivery-properties without their timestamp, user-id, and whether there are headers.
remembered_parts: Final[dict[tuple[bytes, str | None, bool], Envelope]] = {}
remembered_facts: Final[dict[tuple[bool, int, int | None, str | None, bool], Facts]] = {}


def envelope_of(header: bytes) -> Envelope:
    """Return what the broker reads of a header segment; b"" if there is none. Raises MalformedError.

    Takes 2 us for what C++ clients send, 0.1 where it repeats. Headers are checked here, because they are read later.
    """
    found = remembered.get(header)
    if found is not None:
        return found
    delivery, user_id, has_headers, seen = b"", None, False, False
    delivery_begin = delivery_end = 0
    own = False  # has what mostly differs from message to message
    at, end = 0, len(header)
    try:
        while at < end:
            size, code, flags = STRUCT_BEGIN.unpack_from(header, at)
            begin, at = at, at + 4 + size
            if code == MESSAGE_CODE and not seen:
                seen = True
                user_id, has_headers = _said_at(header, begin + 8, at, flags)
                own = own or has_headers or flags & IDS != 0
            elif code == DELIVERY_CODE and not delivery:
                delivery_begin, delivery_end = begin, at
                time_at = TIME_AT[flags >> 8]
                own = own or time_at != 0
                delivery = timeless(header, begin, at, time_at)
            elif code == FRAGMENT_CODE:
                fields_at(header, begin + FIELDS_AT, at, FRAGMENT_WIDTHS)
            elif size < 2 or code in (MESSAGE_CODE, DELIVERY_CODE):
                raise MalformedError("the header segment has a struct twice, or one without a code")
    except (IndexError, struct_error):
        raise MalformedError("the header segment is cut short") from None
    if at > end:
        raise MalformedError("a struct leads beyond the end of the header segment")
    found = remembered_parts.get((delivery, user_id, has_headers))
    if found is None:
        found = _envelope(header[delivery_begin:delivery_end], user_id, has_headers)
        _remember(
            remembered_parts, (delivery, user_id, has_headers), found, len(delivery) + len(user_id or "")
        )
    if not own:
        _remember(remembered, header, found, end)
    return found


def _said_at(octets: bytes, at: int, end: int, flags: int) -> tuple[str | None, bool]:
    """Return the user-id, and whether there are headers, of message-properties whose fields are here.

    Works as `fields_at` with MESSAGE_WIDTHS, in a quarter of the time. An empty user-id is none: C++ clients send it.
    """
    user_id, has_headers = None, False
    if flags & 0x0100:  # content-length
        at += 8
    if flags & 0x0200:  # message-id
        at += 16
    if flags & 0x0400:  # correlation-id
        at += 2 + (octets[at] << 8 | octets[at + 1])
    if flags & 0x0800:
        begin, at = at + 2, at + 2 + (octets[at] << 8 | octets[at + 1])
        fields_at(octets, begin, at, REPLY_WIDTHS)
    if flags & 0x1000:  # content-type
        at += 1 + octets[at]
    if flags & 0x2000:  # content-encoding
        at += 1 + octets[at]
    if flags & 0x4000:
        begin, at = at + 2, at + 2 + (octets[at] << 8 | octets[at + 1])
        if begin != at:
            user_id = octets[begin:at].decode("utf-8", "surrogateescape")
    if flags & 0x8000:  # app-id
        at += 2 + (octets[at] << 8 | octets[at + 1])
    if flags & 0x0001:
        begin, at = at + 4, at + 4 + int.from_bytes(octets[at : at + 4], "big")
        has_headers = _has_entries(octets, begin, at)
    if at > end:
        raise MalformedError("the fields of message-properties lead beyond their end")
    return user_id, has_headers


def _envelope(delivery: bytes, user_id: str | None, has_headers: bool) -> Envelope:
    given = delivery_fields(delivery)
    ttl_ms = _number(given[TTL]) or None  # zero means none, as for qpidd
    looks = (
        given[DELIVERY_MODE] == DURABLE,
        PRIORITY if given[PRIORITY_AT] is None else _number(given[PRIORITY_AT]) or LOWEST,
        None if ttl_ms is not None and ttl_ms > TTL_MAX_MS else ttl_ms,
        user_id,
        has_headers,
    )
    facts = remembered_facts.get(looks)
    if facts is None:
        facts = Facts(looks[0], looks[1], looks[2], user_id, has_headers=has_headers)
        _remember(remembered_facts, looks, facts, len(user_id or ""))
    return Envelope(
        facts,
        text(given[ROUTING_KEY]) or "",
        given[DISCARD_UNROUTABLE] is not None,
        given[IMMEDIATE] is not None,
        (_number(given[EXPIRATION]) or None) if ttl_ms is None else None,
    )


def timeless(header: bytes, begin: int, end: int, time_at: int) -> bytes:
    """Return delivery-properties without their timestamp, whose place is that of TIME_AT: a key that repeats.

    It is unique: the size in front of the struct is still that with the timestamp.
    """
    if not time_at or begin + time_at + TIME_SIZE > end:  # none, or malformed
        return header[begin:end]
    return header[begin : begin + time_at] + header[begin + time_at + TIME_SIZE : end]


def _remember(known: dict[K, V], key: K, value: V, size: int) -> None:
    if size <= REMEMBERED_SIZE_MAX:
        if len(known) >= REMEMBERED_MAX:
            known.clear()
        known[key] = value


def _number(octets: bytes | None) -> int:
    return 0 if octets is None else int.from_bytes(octets, "big")


def text(octets: bytes | None) -> str | None:
    """Return the bytes as text, or None for none; bytes that are not UTF-8 are kept."""
    return None if octets is None else octets.decode("utf-8", "surrogateescape")


# Packed structs.

steps: Final[dict[tuple[int, tuple[int, ...]], tuple[tuple[int, int], ...]]] = {}  # by flags and widths


def fields_at(octets: bytes, at: int, end: int, widths: tuple[int, ...]) -> dict[int, tuple[int, int]]:
    """Return where the present fields are, without their sizes, by number. `at` is the offset of the flags."""
    flags = int.from_bytes(octets[at : at + 2], "little")
    walk = steps.get((flags, widths)) or _steps(flags, widths)
    at += 2
    found = {}
    for field, width in walk:
        if width >= 0:
            begin, at = at, at + width
        else:
            begin = at - width
            at = begin + int.from_bytes(octets[at:begin], "big")
        found[field] = (begin, at)
    if at > end:
        raise MalformedError("the fields of a struct lead beyond its end")
    return found


def _steps(flags: int, widths: tuple[int, ...]) -> tuple[tuple[int, int], ...]:
    """Return the numbers and widths of the fields whose flags are set; flags without a field are ignored."""
    walk = tuple((field, width) for field, width in enumerate(widths) if flags >> field & 1)
    if len(steps) < REMEMBERED_MAX:
        steps[flags, widths] = walk
    return walk


def struct_of(code: bytes, values: Sequence[bytes | None], widths: tuple[int, ...]) -> bytes:
    """Return a struct with these fields, None for absent ones. The values fit their widths."""
    packed = packed_of(values, widths)
    return UINT32.pack(len(packed) + 2) + code + packed


def packed_of(values: Sequence[bytes | None], widths: tuple[int, ...]) -> bytes:
    """Return flags and fields."""
    flags, parts = 0, [b""]
    for field, value in enumerate(values):
        if value is None:
            continue
        flags |= 1 << field
        if (width := widths[field]) < 0:
            parts.append(len(value).to_bytes(-width, "big"))
        parts.append(value)
    parts[0] = flags.to_bytes(2, "little")
    return b"".join(parts)


def delivery_fields(delivery: bytes) -> list[bytes | None]:
    """Return the fields of delivery-properties, a whole struct or nothing. Raises MalformedError."""
    return _fields(delivery, 0, len(delivery), DELIVERY_WIDTHS)


def message_fields(header: bytes) -> list[bytes | None]:
    """Return the fields of a header segment's message-properties; all None if there are none."""
    begin, end = message_at(header)
    return _fields(header, begin, end, MESSAGE_WIDTHS)


def reply_fields(octets: bytes) -> list[bytes | None]:
    """Return exchange and routing key of a reply-to."""
    return _fields(b"\x00" * FIELDS_AT + octets, 0, FIELDS_AT + len(octets), REPLY_WIDTHS)


def _fields(octets: bytes, begin: int, end: int, widths: tuple[int, ...]) -> list[bytes | None]:
    values: list[bytes | None] = [None] * len(widths)
    if begin < end:
        for field, (low, high) in fields_at(octets, begin + FIELDS_AT, end, widths).items():
            values[field] = octets[low:high]
    return values


def message_at(header: bytes) -> tuple[int, int]:
    """Return where the message-properties begin and end in a header segment; equal offsets if there are none."""
    return _struct_at(header, MESSAGE)


def delivery_at(header: bytes) -> tuple[int, int]:
    """Return where the delivery-properties begin and end in a header segment; equal offsets if there are none."""
    return _struct_at(header, DELIVERY)


def _struct_at(header: bytes, code: bytes) -> tuple[int, int]:
    at = 0
    while at < len(header):
        after = at + 4 + int.from_bytes(header[at : at + 4], "big")
        if header[at + 4 : at + FIELDS_AT] == code:
            return at, after
        at = after
    return at, at


# Maps.


COMPOSITE: Final = (0xA8, 0xA9, 0xAA, 0xAB)  # map, list, array, struct32


def _width(code: int) -> int | None:
    """Return the length of the value behind a type code, as in `*_WIDTHS`; None for a composite value."""
    kind = code >> 4
    if code in COMPOSITE:
        return None
    return -SIZE_WIDTHS[kind] if kind in SIZE_WIDTHS else WIDTHS.get(kind)


CODE_WIDTHS: Final = [_width(code) for code in range(256)]


def _has_entries(octets: bytes, begin: int, end: int) -> bool:
    """Check that headers can be decoded, and return whether there are any; those above LOOKED_INTO_MAX count as none.

    Takes 0.3 us an entry, where decoding takes 1. Raises MalformedError, or IndexError.
    """
    if begin == end or end - begin > LOOKED_INTO_MAX:
        return False
    count: int = UINT32.unpack_from(octets, begin)[0]
    at = begin + 4
    for _ in range(count):
        at += 1 + octets[at]
        width = CODE_WIDTHS[octets[at]]
        if width is None:  # nested
            map_at(octets, begin - 4, end)
            return True
        if width >= 0:
            at += 1 + width
        elif width == -2:
            at += 3 + (octets[at + 1] << 8 | octets[at + 2])
        else:
            at += 1 - width + int.from_bytes(octets[at + 1 : at + 1 - width], "big")
    if at != end:
        raise MalformedError("a map does not end with its last entry")
    return count > 0


def entries_at(octets: bytes) -> dict[str, bytes]:
    """Return the entries of a map without its size, by name: code and value as they came. The last of a name counts."""
    entries: dict[str, bytes] = {}
    at, end = 4, len(octets)
    while at < end:
        name, begin = str8_at(octets, at, end)
        _, at = value_at(octets, begin, end)
        entries[name] = octets[begin:at]
    return entries


def map_of(entries: Mapping[str, bytes]) -> bytes:
    """Return a map without its size. The names fit a str8."""
    parts = [UINT32.pack(len(entries))]
    for name, octets in entries.items():
        encoded = name.encode("utf-8", "surrogateescape")
        parts += (bytes((len(encoded),)), encoded, octets)
    return b"".join(parts)

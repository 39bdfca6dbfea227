"""The envelope of a message, its header and message-annotations: read from bytes once, and encoded anew.

The broker reads only the annotations that concern it; the others are kept as entries, the bytes of key and value, and
sent unchanged. Most messages have one of few envelopes, which are looked up by their bytes.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from leveret.protocols.amqp10.broker.core_values import printed
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.sections import MalformedError, value_of
from leveret.protocols.amqp10.codec.types import Symbol, Value, encode, skip_at, value_at
from leveret.protocols.amqp10.codec.writing import LONG, encode_symbol
from leveret.queues.delays import DELIVERY_DELAY, DELIVERY_TIME, delay_ms

COPIES: Final = "x-cc"  # further routing keys (S208)
REMEMBERED_MAX: Final = 4096  # distinct envelopes, and as many headers for consumers
REMEMBERED_SIZE_MAX: Final = 128  # bytes; longer ones hardly come twice
SHOWN_MAX: Final = 500  # characters of a value in a refusal

ANNOTATIONS_BEGIN: Final = b"\x00\x53\x72"
NO_HEADER: Final = p.Header()


class Envelope:
    """The header and annotations of a message, as its publisher set them."""

    __slots__ = (
        "copies",
        "delay_ms",
        "due_ms",
        "durable",
        "entries",
        "is_timed",
        "priority",
        "remembered",
        "size",
        "ttl_ms",
    )

    def __init__(self, octets: bytes, header: p.Header, entries: dict[str, bytes]) -> None:
        self.durable = header.durable is True
        self.priority = header.priority
        self.ttl_ms = header.ttl
        self.entries = entries  # annotations by name: the original bytes of key and value
        self.copies: Value = annotation(entries[COPIES]) if COPIES in entries else None
        self.is_timed = DELIVERY_TIME in entries or DELIVERY_DELAY in entries
        self.due_ms = time_in(entries, DELIVERY_TIME) if self.is_timed else 0  # ms since 1970; 0: at once
        # From its arrival, unless it says when it is due.
        self.delay_ms = time_in(entries, DELIVERY_DELAY) if self.is_timed and not self.due_ms else 0
        self.size = len(octets)
        # It may be a key of other caches, too. Times are hardly ever the same.
        self.remembered = self.size <= REMEMBERED_SIZE_MAX and not self.due_ms


def time_in(entries: dict[str, bytes], name: str) -> int:
    """Return an annotation that is a time or a delay in ms; 0 if it is absent, not above zero or no whole number."""
    return delay_ms(annotation(entries[name])) if name in entries else 0


def require_times(envelope: Envelope) -> None:
    """Raise AmqpError if an annotation that should be a time is no whole number."""
    for name in (DELIVERY_TIME, DELIVERY_DELAY):
        value = annotation(envelope.entries[name]) if name in envelope.entries else 0
        if not isinstance(value, int) or isinstance(value, bool):
            text = f"bad value for '{name}' message-annotation: {printed(value)[:SHOWN_MAX]}"
            raise AmqpError(p.INVALID_FIELD, text)


remembered: Final[dict[bytes, Envelope]] = {}


def envelope_of(octets: bytes, header_size: int) -> Envelope:
    """Return the envelope of a header section of `header_size` bytes, with message-annotations behind it.

    Either may be missing. Raises AmqpError amqp:decode-error (S209).
    """
    found = remembered.get(octets)
    if found is None:
        header = header_at(octets, 0) if header_size else NO_HEADER
        entries = entries_at(octets, header_size) if header_size < len(octets) else {}
        found = Envelope(octets, header, entries)
        if found.remembered:
            if len(remembered) >= REMEMBERED_MAX:
                remembered.clear()
            remembered[octets] = found
    return found


def header_at(octets: bytes, at: int) -> p.Header:
    try:
        header, _ = p.decode(octets, at, len(octets))
    except AmqpError as error:
        raise MalformedError(error.description) from None
    assert isinstance(header, p.Header)
    return header


def entries_at(octets: bytes, at: int) -> dict[str, bytes]:
    """Return the annotations of a section. Raises MalformedError for reserved keys: all but symbols that begin with
    `x-` (part 3, section 3.2.10)."""
    begin = value_of(octets, at)
    try:
        pairs, end = value_at(octets, begin, len(octets))
    except AmqpError as error:
        raise MalformedError(error.description) from None
    assert isinstance(pairs, dict)
    entries: dict[str, bytes] = {}
    at = begin + (3 if octets[begin] == 0xC1 else 9)
    while at < end:
        value_begins = skip_at(octets, at, end)
        after = skip_at(octets, value_begins, end)
        key, _ = value_at(octets, at, end)
        if not isinstance(key, Symbol) or not key.startswith("x-"):
            raise MalformedError(f"{{reserved_annotation_key,{printed(key)[:SHOWN_MAX]}}}")
        entries[str(key)] = octets[at:after]
        at = after
    return entries


def annotation(entry: bytes) -> Value:
    """Return the value of an entry."""
    return value_at(entry, skip_at(entry, 0, len(entry)), len(entry))[0]


def entry(name: str, value: Value) -> bytes:
    """Encode an entry. Raises ValueError for a value that the wire format cannot express."""
    return encode_symbol(name) + encode(value)


def annotations_section(entries: Collection[bytes]) -> bytes:
    """Encode a section of message-annotations, or nothing if there are no entries."""
    if not entries:
        return b""
    content = b"".join(entries)
    if len(content) < 255 and len(entries) < 128:
        return ANNOTATIONS_BEGIN + bytes((0xC1, len(content) + 1, 2 * len(entries))) + content
    return ANNOTATIONS_BEGIN + b"\xd1" + LONG.pack(len(content) + 4) + LONG.pack(2 * len(entries)) + content

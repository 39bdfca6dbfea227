"""Encode copies of messages in queues as a chunk, and decode it (docs/store-format.md).

    entries   header, columns (an element for each entry, then an element for each record), crc32 of all that
    messages  one record after the other; length and crc32 of each are columns
    record    four lengths (u32), origin (JSON), exchange, key, properties, body

Columns are read and written as arrays, so that a message costs a record and little else. All numbers are little-endian.
Checksums are zlib's crc32; nothing is returned whose checksum does not match.
"""

from __future__ import annotations

import json
import sys
from array import array
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import Final, cast
from zlib import crc32

from leveret.durable.store.contract import Chunk, DamagedError, Entries
from leveret.durable.store.origin import (
    EncodingOf,
    Origin,
    encoding_named,
    facts_of,
    notes_of,
    origin_said,
    remembered_origin,
)
from leveret.message import Encoding, Facts, Message

VERSION: Final = 1
# Version, flags, nothing, entries, records, number of the first entry, ms since 1970 when the first arrived.
HEADER: Final = Struct("<BBHIIQQ")
CHECKSUM: Final = Struct("<I")
LENGTHS: Final = Struct("<IIII")  # of origin, exchange, key and properties; the rest is the body
# flags: which columns there are
SPARSE: Final = 1
SHARED: Final = 2
EXPIRES: Final = 4
ARRIVED: Final = 8
VOLATILE: Final = 16  # flag: not to be recovered
SIGNED: Final = 32  # flag: the column of priorities has two bytes for each, and some are below 0
HEAD_LENGTHS: Final = Struct("<III")  # the first three of them
LENGTH: Final = Struct("<I")
HEADS_MAX: Final = 4096  # what records begin with, in a cache
HEAD_SIZE_MAX: Final = 1024  # bytes
PREFIXES_MAX: Final = 4096  # record prefixes that were read, in a cache
LOCKED_OCTETS: Final = 4096  # bytes passed to crc32 at a time
UNLOCKED_OCTETS: Final = 1 << 17  # a checksum of more takes long enough to let other threads run

BIG_ENDIAN: Final = sys.byteorder == "big"


class Columns:
    """A chunk's decoded entries: a row for each, and for each record its end, its size and its checksum."""

    __slots__ = (
        "arrivals",
        "arrived",
        "crcs",
        "ends",
        "expiries",
        "first",
        "numbers",
        "positions",
        "priorities",
        "queues",
        "records",
        "sizes",
        "volatile",
    )

    first: int  # the number that identifies the chunk
    volatile: bool
    arrived: int  # ms since 1970: of all entries, or of the first
    arrivals: array[int] | None  # None: all arrived together
    numbers: Sequence[int]  # of the entries, ascending
    queues: array[int]
    positions: array[int]
    priorities: array[int]
    expiries: array[int] | None  # None: no entry expires
    records: Sequence[int]  # which record an entry is a copy of
    sizes: array[int]  # of the records' bodies
    ends: array[int]  # of the records, in the chunk's messages
    crcs: array[int]

    def __len__(self) -> int:
        return len(self.queues)

    def begin(self, record: int) -> int:
        """Return where a record begins in the chunk's messages."""
        return self.ends[record - 1] if record else 0

    @property
    def latest_arrival(self) -> int:
        """The time at which the last of the entries arrived, in ms since 1970."""
        return self.arrived if self.arrivals is None else max(self.arrivals)

    def arrival(self, place: int) -> int:
        """Return when an entry arrived, in ms since 1970."""
        return self.arrived if self.arrivals is None else self.arrivals[place]


# Writing.


def pack(entries: Entries) -> Chunk:
    """Encode new entries; records are in the order of their queues, so that those of one queue are contiguous."""
    order, records = _order(entries)
    messages = entries.messages
    columns = Columns()
    columns.first, columns.volatile = entries.first, entries.volatile
    columns.arrived, columns.arrivals = entries.arrived, None
    columns.numbers = range(entries.first, entries.first + len(entries))
    columns.queues, columns.positions = entries.queues, entries.positions
    columns.priorities = entries.priorities
    columns.expiries = entries.expiries if any(entries.expiries) else None
    columns.records = records
    octets = _records(messages if isinstance(order, range) else [messages[at] for at in order], columns)
    return Chunk(entries.first, written(columns), octets)


def _order(entries: Entries) -> tuple[Sequence[int], Sequence[int]]:
    """Return the messages in the order of writing, and for each entry the place of its message in that order."""
    count = len(entries.messages)
    queues, records = entries.queues, entries.records
    if len(entries) == count and len(set(queues)) == 1:
        return range(count), range(count)
    first_queue = array("I", bytes(4 * count))
    for queue, record in zip(reversed(queues), reversed(records), strict=True):
        first_queue[record] = queue
    order = sorted(range(count), key=first_queue.__getitem__)
    places = array("H", bytes(2 * count))
    for place, at in enumerate(order):
        places[at] = place
    return order, array("H", map(places.__getitem__, records))


def written(columns: Columns) -> bytes:
    """Encode columns, with their checksum."""
    numbers, records = columns.numbers, columns.records
    flags = VOLATILE if columns.volatile else 0
    parts: list[array[int]] = []
    if not isinstance(numbers, range):
        flags |= SPARSE
        parts.append(array("Q", numbers))
    if columns.priorities.typecode == "h":
        flags |= SIGNED
    parts += [columns.queues, columns.positions, columns.priorities]
    if columns.expiries is not None:
        flags |= EXPIRES
        parts.append(columns.expiries)
    if columns.arrivals is not None:
        flags |= ARRIVED
        parts.append(columns.arrivals)
    if not isinstance(records, range):
        flags |= SHARED
        parts.append(array("H", records))
    parts += [columns.sizes, columns.ends, columns.crcs]
    header = HEADER.pack(VERSION, flags, 0, len(columns), len(columns.crcs), columns.first, columns.arrived)
    octets = b"".join([header, *map(octets_of, parts)])
    return octets + CHECKSUM.pack(checksum_of(octets))


def checksum_of(octets: bytes, before: int = 0) -> int:
    """Like `crc32`, which releases Python's lock above 5 KiB: to regain it from a busy loop takes 50 times as long."""
    if len(octets) > UNLOCKED_OCTETS:
        return crc32(octets, before)
    for at in range(0, len(octets), LOCKED_OCTETS):
        before = crc32(octets[at : at + LOCKED_OCTETS], before)
    return before


def has_signed(chunks: Iterable[Chunk]) -> bool:
    """Return whether any of these chunks has priorities below 0, which versions before format 2 cannot read."""
    return any(each.entries[1] & SIGNED for each in chunks)


def octets_of(column: array[int]) -> bytes:
    """Return a column's bytes as they are stored: little-endian."""
    if BIG_ENDIAN:
        column = column[:]
        column.byteswap()
    return column.tobytes()


heads: Final[dict[tuple[str, str, str], tuple[bytes, bytes]]] = {}  # by origin, exchange and key


def _records(messages: list[Message], columns: Columns) -> bytes:
    """Return the records in a row, and set their sizes, ends and checksums in `columns`.

    Most have the exchange, the key and the facts of the one before them, and many its properties.
    """
    pieces: list[bytes] = []
    ends: list[int] = []
    crcs: list[int] = []
    last: Message | None = None
    lengths = head = prefix = b""
    prefix_crc, end = 0, 0
    checksum = crc32  # a local variable: a global is looked up each time, even in compiled code
    for message in messages:
        is_new = (
            last is None
            or message.facts is not last.facts
            or message.key != last.key
            or message.exchange != last.exchange
            or message.notes is not last.notes
            or message.encoding is not last.encoding
        )
        if is_new:
            lengths, head = _head(message)
        if is_new or last is None or message.properties != last.properties:
            properties = message.properties
            prefix = b"".join((lengths, LENGTH.pack(len(properties)), head, properties))
            prefix_crc = checksum(prefix)
        last = message
        body = message.body
        pieces.append(prefix)
        pieces.append(body)
        end += len(prefix) + len(body)
        ends.append(end)
        crcs.append(
            checksum(body, prefix_crc) if len(body) < LOCKED_OCTETS else checksum_of(body, prefix_crc)
        )
    columns.sizes = array("I", [message.size for message in messages])
    columns.ends, columns.crcs = array("I", ends), array("I", crcs)
    return b"".join(pieces)


def record_of(message: Message) -> bytes:
    """Return the record of one message."""
    lengths, head = _head(message)
    properties = message.properties
    return b"".join((lengths, LENGTH.pack(len(properties)), head, properties, message.body))


def _head(message: Message) -> tuple[bytes, bytes]:
    """Return the lengths of origin, exchange and key, and these, which many messages have in common."""
    if message.notes is not None:
        return _written_head(json.dumps(origin_said(message, message.notes), separators=(",", ":")), message)
    origin = remembered_origin(message)
    looks = (origin, message.exchange, message.key)
    found = heads.get(looks)
    if found is None:
        found = _written_head(origin, message)
        if len(heads) >= HEADS_MAX:
            heads.clear()
        if len(found[1]) <= HEAD_SIZE_MAX:
            heads[looks] = found
    return found


def _written_head(origin: str, message: Message) -> tuple[bytes, bytes]:
    octets = origin.encode()
    exchange = message.exchange.encode("utf-8", "surrogatepass")
    key = message.key.encode("utf-8", "surrogatepass")
    return HEAD_LENGTHS.pack(len(octets), len(exchange), len(key)), octets + exchange + key


# Reading.


def read(octets: bytes) -> Columns:
    """Decode columns. Raises DamagedError if their checksum does not match."""
    if len(octets) < HEADER.size + CHECKSUM.size:
        raise DamagedError("a chunk's entries are cut off")
    end = len(octets) - CHECKSUM.size
    if CHECKSUM.unpack_from(octets, end)[0] != crc32(memoryview(octets)[:end]):
        raise DamagedError("the checksum of a chunk's entries does not fit")
    version, flags, _, count, records, first, arrived = HEADER.unpack_from(octets)
    if version != VERSION:
        raise DamagedError(f"a chunk has format {version}, this is {VERSION}")
    columns = Columns()
    columns.first, columns.arrived, columns.volatile = first, arrived, bool(flags & VOLATILE)
    taker = Taker(octets, HEADER.size, end)
    take = taker.column
    columns.numbers = take("Q", count) if flags & SPARSE else range(first, first + count)
    columns.queues, columns.positions, columns.priorities = (
        take("I", count),
        take("Q", count),
        take("h" if flags & SIGNED else "B", count),
    )
    columns.expiries = take("Q", count) if flags & EXPIRES else None
    columns.arrivals = take("Q", count) if flags & ARRIVED else None
    columns.records = take("H", count) if flags & SHARED else range(count)
    columns.sizes, columns.ends, columns.crcs = take("I", records), take("I", records), take("I", records)
    if taker.at != end:
        raise DamagedError("a chunk's entries are longer than they say")
    return columns


class Taker:
    """Takes what lies one after the other: bytes, and columns of numbers. Raises DamagedError beyond the end."""

    __slots__ = ("_end", "_octets", "at")

    def __init__(self, octets: bytes, at: int, end: int) -> None:
        self._octets = octets
        self.at = at
        self._end = end

    def take(self, length: int) -> bytes:
        """Take so many bytes."""
        at, end = self.at, self.at + length
        if end > self._end:
            raise DamagedError("what is stored is shorter than it says")
        self.at = end
        return self._octets[at:end]

    def column(self, kind: str, count: int) -> array[int]:
        """Take so many numbers of a kind of array, stored in little-endian order."""
        column = array(kind)
        column.frombytes(self.take(count * column.itemsize))
        if BIG_ENDIAN:
            column.byteswap()
        return column


parsed: Final[dict[bytes, tuple[Encoding, str, str, bytes, Facts]]] = {}


def message_of(record: bytes, checksum: int, encoding_of: EncodingOf) -> Message:
    """Decode a record; `encoding_of` returns an encoding by name, or None. Raises DamagedError."""
    if crc32(record) != checksum or len(record) < LENGTHS.size:
        raise DamagedError("the checksum of a message does not fit")
    begin = LENGTHS.size + sum(LENGTHS.unpack_from(record))
    prefix = record[:begin]
    found = parsed.get(prefix)
    if found is not None:
        encoding, exchange, key, properties, facts = found
        return Message(encoding, exchange, key, properties, record[begin:], facts)
    return _message(prefix, record[begin:], encoding_of)


def protocol_of(messages: bytes, begin: int) -> str:
    """Return the name of the protocol of the record that begins there, whose checksum may not match."""
    origin_size = LENGTHS.unpack_from(messages, begin)[0]
    at = begin + LENGTHS.size
    try:
        origin = json.loads(messages[at : at + origin_size])
    except ValueError:
        return ""
    return str(origin[0]) if isinstance(origin, list) and origin else ""


def _message(prefix: bytes, body: bytes, encoding_of: EncodingOf) -> Message:
    origin_size, exchange_size, key_size, properties_size = LENGTHS.unpack_from(prefix)
    exchange_at = LENGTHS.size + origin_size
    key_at = exchange_at + exchange_size
    properties_at = key_at + key_size
    origin = cast("Origin", tuple(json.loads(prefix[LENGTHS.size : exchange_at])))
    encoding = encoding_named(origin[0], encoding_of)
    properties = prefix[properties_at : properties_at + properties_size]
    facts = encoding.restored(facts_of(origin), properties)
    exchange = prefix[exchange_at:key_at].decode("utf-8", "surrogatepass")
    key = prefix[key_at:properties_at].decode("utf-8", "surrogatepass")
    notes = notes_of(origin[-1])
    if notes is None and len(prefix) <= 1024:
        if len(parsed) >= PREFIXES_MAX:
            parsed.clear()
        parsed[prefix] = (encoding, exchange, key, properties, facts)
    return Message(encoding, exchange, key, properties, body, facts, notes)


def damaged_records(columns: Columns, messages: bytes) -> list[int]:
    """Return the records of a chunk's messages whose checksum does not match."""
    octets = memoryview(messages)
    ends = columns.ends
    return [
        record
        for record, checksum in enumerate(columns.crcs)
        if crc32(octets[columns.begin(record) : ends[record]]) != checksum
    ]


def places(columns: Columns, numbers: Iterable[int]) -> list[int]:
    """Return the places of entries in a chunk's columns, by their numbers, ascending; missing ones are left out."""
    known = columns.numbers
    if isinstance(known, range):
        return [number - known.start for number in numbers if number in known]
    by_number = {number: place for place, number in enumerate(known)}
    return [place for number in numbers if (place := by_number.get(number)) is not None]


# Rewriting.


def rewritten(parts: Sequence[tuple[bytes, bytes, Sequence[int]]]) -> Chunk:
    """Merge what is left of some chunks into one. Each part: entries, messages, and the numbers still needed.

    Records are copied as they are, with their checksums. Raises DamagedError.
    """
    merged = Columns()
    merged.volatile = False
    merged.first = -1
    merged.queues, merged.positions, merged.priorities = array("I"), array("Q"), array("h")
    merged.sizes, merged.ends, merged.crcs = array("I"), array("I"), array("I")
    numbers, expiries, arrivals, records = array("Q"), array("Q"), array("Q"), array("H")
    octets: list[bytes] = []
    end = 0
    for entries, messages, needed in parts:
        columns = read(entries)
        if merged.first < 0:
            merged.first = columns.first
        merged.volatile = columns.volatile
        kept: dict[int, int] = {}  # record of the old chunk to record of the new one
        for place in places(columns, needed):
            record = columns.records[place]
            there = kept.get(record)
            if there is None:
                there = kept[record] = len(merged.crcs)
                octets.append(messages[columns.begin(record) : columns.ends[record]])
                end += len(octets[-1])
                merged.sizes.append(columns.sizes[record])
                merged.ends.append(end)
                merged.crcs.append(columns.crcs[record])
            numbers.append(columns.numbers[place])
            merged.queues.append(columns.queues[place])
            merged.positions.append(columns.positions[place])
            merged.priorities.append(columns.priorities[place])
            expiries.append(columns.expiries[place] if columns.expiries is not None else 0)
            arrivals.append(columns.arrival(place))
            records.append(there)
    if min(merged.priorities) >= 0:
        merged.priorities = array("B", merged.priorities)
    merged.numbers = numbers
    merged.expiries = expiries if any(expiries) else None
    merged.arrived, merged.arrivals = arrivals[0], arrivals
    merged.records = range(len(records)) if len(records) == len(merged.crcs) else records
    return Chunk(merged.first, written(merged), b"".join(octets))

"""Encode consecutive messages of a stream as a block, and decode it (docs/store-format.md).

    header     72 bytes, their crc32 last
    filter     a Bloom filter of the messages' filter values; left out if no message has one
    origins    JSON: a list for each kind of message: what origin.py has, exchange, key
    which      which kind each message is; left out if there is one
    positions  where each stood in a queue; left out if they come from none
    arrivals   when each came into that queue, in ms since 1970; left out if that is not known
    properties where each ends, and the bytes; only the bytes of the first if all have the same
    bodies     where each ends, and the bytes

Little-endian; every section begins at a multiple of 8 bytes, so that arrays can be taken as they are, and so does the
next block. "Where each ends" is an array that begins with a 0. Nothing in a block is read before its checksums match.
The filter has a checksum of its own in the header, so that it can be read alone.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from json.encoder import encode_basestring_ascii as quoted
from struct import Struct
from typing import Final, TypeAlias, cast
from zlib import crc32

from leveret.durable.store.chunk import BIG_ENDIAN, CHECKSUM, octets_of
from leveret.durable.store.contract import Append, DamagedError
from leveret.durable.store.origin import (
    EncodingOf,
    Origin,
    encoding_named,
    facts_of,
    notes_of,
    origin_said,
    remembered_origin,
)
from leveret.message import FILTER_NAMED, Encoding, Facts, Message, Notes, filter_value
from leveret.selectors.bloom import FILTER_MAX, filter_of

MAGIC: Final = b"LvrB"
VERSION, NEWER = (
    1,
    2,
)  # the second is that of blocks with a filter or arrivals, which older brokers refuse to read
# Magic, version, flags, nothing, bytes of the block, messages, offset of the first, ms since 1970 when they arrived,
# origins, bytes of origins, of properties and of bodies, crc32 of what follows the header, bytes of the filter, their
# crc32, nothing.
HEADER: Final = Struct("<4sBBHIIQQIIIIIII8x")
RANGE: Final = Struct("<IIQ")  # part of the header: bytes, messages, offset of the first
RANGE_AT: Final = 8
ADDRESS: Final = Struct("<QQ")  # part of the header: offset of the first, time of arrival
ADDRESS_AT: Final = 16
HEADER_OCTETS: Final = HEADER.size + CHECKSUM.size
# Flags: two columns are there, all messages have the same properties, there is a filter, and a third column is there.
WHICH, POSITIONS, SAME, FILTER, ARRIVALS = 1, 2, 4, 8, 16
FLAGS: Final = WHICH | POSITIONS | SAME | FILTER | ARRIVALS
BLOCK_OCTETS: Final = 1 << 20  # of bodies and properties in a piece of a commit
BLOCK_MESSAGES: Final = 65_535  # in a piece of a commit
OCTETS_MAX: Final = 1 << 31
ORIGINS_MAX: Final = 4096  # in the cache
TOO_LARGE: Final = "a block would have more than 2 GiB"

Column: TypeAlias = "memoryview[int] | array[int]"
Kind: TypeAlias = tuple[Encoding, str, str, Facts, Notes | None]  # with exchange and routing key


# Writing.


def written(append: Append) -> Iterator[bytes]:
    """Yield the blocks of an append; none if it is empty."""
    if append.packed is not None:
        yield addressed(append.packed.octets, append.first, append.arrived)
    elif append.messages:
        yield from map(pack, split(append))


def addressed(octets: bytes, first: int, arrived: int) -> bytes:
    """Return a block with other offsets and another time; what follows the header keeps its checksum."""
    head = bytearray(octets[: HEADER.size])
    ADDRESS.pack_into(head, ADDRESS_AT, first, arrived)
    return b"".join((head, CHECKSUM.pack(crc32(head)), memoryview(octets)[HEADER_OCTETS:]))


def split(append: Append) -> Iterator[Append]:
    """Split an append into pieces that each fit a block; a piece exceeds the limits by one message at most."""
    messages = append.messages
    begin = octets = 0
    for at, message in enumerate(messages):
        if octets >= BLOCK_OCTETS or at - begin >= BLOCK_MESSAGES:
            yield _piece(append, begin, at)
            begin, octets = at, 0
        octets += message.size + len(message.properties)
    yield _piece(append, begin, len(messages)) if begin else append


def _piece(append: Append, begin: int, end: int) -> Append:
    first = append.first + begin
    piece = Append(append.stream, append.segment, first, append.arrived, append.messages[begin:end])
    piece.filter_octets = append.filter_octets
    if append.positions is not None:
        piece.positions = append.positions[begin:end]
    if append.arrivals is not None:
        piece.arrivals = append.arrivals[begin:end]
    return piece


def pack(append: Append) -> bytes:
    """Encode at least one message as a block. Raises ValueError if it is too large for the header's fields."""
    messages = append.messages
    origins, which = _origins(messages)
    properties = [message.properties for message in messages]
    bodies = [message.body for message in messages]
    kinds = b"[" + b",".join(origins) + b"]"
    flags, parts = 0, [kinds]
    if len(origins) > 1:
        flags |= WHICH
        parts.append(octets_of(which))
    if append.positions is not None:
        flags |= POSITIONS
        parts.append(octets_of(append.positions))
    if append.arrivals is not None:
        flags |= ARRIVALS
        parts.append(octets_of(append.arrivals))
    if properties.count(properties[0]) == len(properties):
        flags |= SAME
        properties_octets = len(properties[0])
        parts.append(properties[0])
    else:
        properties_octets = _append_all(parts, properties)
    bits = b""
    if append.filter_octets and FILTER_NAMED in parts[-1]:  # one search for all messages: 0.1 ns a byte
        distinct = {(each.encoding, each.properties): each for each in messages}
        bits = filter_of(map(filter_value, distinct.values()), append.filter_octets)
    bodies_octets = _append_all(parts, bodies)
    sizes = len(origins), len(kinds), properties_octets, bodies_octets
    return sealed(flags, len(messages), append.first, append.arrived, sizes, parts, bits)


def sealed(
    flags: int,
    count: int,
    first: int,
    arrived: int,
    sizes: tuple[int, int, int, int],
    parts: Iterable[bytes | memoryview[int]],
    bits: bytes = b"",
) -> bytes:
    """Return a block of the sections that its flags announce, with header and checksums.

    `sizes` is the number of origins, and the bytes of origins, of properties, and of bodies; `bits` the Bloom filter.
    Raises ValueError if the block is too large for the header's fields.
    """
    if bits:
        flags, parts = flags | FILTER, chain((bits,), parts)
    version = version_of(flags)
    payload = b"".join(chain.from_iterable((part, bytes(-len(part) % 8)) for part in parts))
    octets = HEADER_OCTETS + len(payload)
    if octets >= OCTETS_MAX:
        raise ValueError(TOO_LARGE)
    facts = (MAGIC, version, flags, 0, octets, count, first, arrived)
    header = HEADER.pack(*facts, *sizes, crc32(payload), len(bits), crc32(bits) if bits else 0)
    return b"".join((header, CHECKSUM.pack(crc32(header)), payload))


def version_of(flags: int) -> int:
    """Return the version of the format that a block with these flags has."""
    return NEWER if flags & (FILTER | ARRIVALS) else VERSION


def _append_all(parts: list[bytes], pieces: list[bytes]) -> int:
    """Append the ends of the pieces and their bytes to `parts`; returns the number of bytes. Raises ValueError."""
    octets = b"".join(pieces)
    if len(octets) >= OCTETS_MAX:
        raise ValueError(TOO_LARGE)
    parts += (octets_of(array("I", accumulate(map(len, pieces), initial=0))), octets)
    return len(octets)


def _origins(messages: Sequence[Message]) -> tuple[Sequence[bytes], array[int]]:
    """Return each kind of message once, and which kind each message is. Most are like the one before them."""
    kinds: dict[bytes, int] = {}
    which = array("I")
    last = messages[0]
    place = kinds[origin_of(last)] = 0
    for message in messages:
        if (
            message.facts is not last.facts
            or message.key != last.key
            or message.exchange != last.exchange
            or message.notes is not last.notes
            or message.encoding is not last.encoding
        ):
            last, place = message, kinds.setdefault(origin_of(message), len(kinds))
        which.append(place)
    return list(kinds), which


origins: Final[dict[tuple[Encoding, str, str, Facts], bytes]] = {}


def origin_of(message: Message) -> bytes:
    """Return what a block says of a message besides properties and body, as JSON; cached."""
    notes = message.notes
    if notes is not None and (notes.deaths or notes.first_death or notes.last_death):
        return _origin(message, notes)
    looks = (message.encoding, message.exchange, message.key, message.facts)
    origin = origins.get(looks)
    if origin is None:
        origin = (
            f"{remembered_origin(message)[:-1]},{quoted(message.exchange)},{quoted(message.key)}]".encode()
        )
        if len(origins) >= ORIGINS_MAX:
            origins.clear()
        if len(origin) <= 1024:
            origins[looks] = origin
    return origin


def _origin(message: Message, notes: Notes) -> bytes:
    """Encode an origin with notes as JSON. The offset is left out: the message's place in the block implies it."""
    value = origin_said(message, _noted(notes, None))
    return json.dumps([*value, message.exchange, message.key], separators=(",", ":")).encode()


def _noted(notes: Notes | None, offset: int | None) -> Notes:
    """Return a copy of the notes with another offset."""
    noted = Notes()
    noted.offset = offset
    if notes is not None:
        noted.deaths, noted.first_death, noted.last_death = (
            notes.deaths,
            notes.first_death,
            notes.last_death,
        )
    return noted


# Reading.


class BlockHeader:
    """A decoded block header. The checksum of what follows it is not verified yet."""

    __slots__ = (
        "arrived",
        "bodies_octets",
        "checksum",
        "count",
        "filter_checksum",
        "filter_octets",
        "first",
        "flags",
        "next",
        "octets",
        "origins",
        "origins_octets",
        "properties_octets",
    )

    octets: int  # of the whole block
    count: int
    first: int  # offset of the first message
    next: int  # the offset after the last message
    arrived: int  # ms since 1970-01-01 UTC
    flags: int
    origins: int  # how many
    origins_octets: int
    properties_octets: int
    bodies_octets: int
    checksum: int  # of what follows the header
    filter_octets: int  # bytes of the Bloom filter, the first of what follows the header; 0: there is none
    filter_checksum: int  # of these


def header(octets: bytes | bytearray | memoryview[int], at: int = 0) -> BlockHeader:
    """Decode the header of the block that begins at `at`; the rest need not be there. Raises DamagedError."""
    if len(octets) - at < HEADER_OCTETS:
        raise DamagedError("the header of a block is cut off")
    end = at + HEADER.size
    if CHECKSUM.unpack_from(octets, end)[0] != crc32(memoryview(octets)[at:end]):
        raise DamagedError("the checksum of a block's header does not fit")
    magic, version, flags, _, *numbers = HEADER.unpack_from(octets, at)
    if magic != MAGIC:
        raise DamagedError("there is no block where one should be")
    if version != version_of(flags) or flags & ~FLAGS:
        raise DamagedError(f"a block has format {version} with flags {flags}, this is {NEWER}")
    found = BlockHeader()
    found.flags = flags
    found.octets, found.count, found.first, found.arrived, found.origins = numbers[:5]
    found.origins_octets, found.properties_octets, found.bodies_octets, found.checksum = numbers[5:9]
    found.filter_octets, found.filter_checksum = numbers[9:] if flags & FILTER else (0, 0)
    found.next = found.first + found.count
    if found.filter_octets > FILTER_MAX or found.octets < HEADER_OCTETS + found.filter_octets:
        raise DamagedError("the header of a block contradicts itself")
    if not found.count or found.octets < HEADER_OCTETS or found.octets % 8:
        raise DamagedError("the header of a block contradicts itself")
    return found


def filter_at(octets: bytes | bytearray | memoryview[int], at: int, head: BlockHeader) -> bytes:
    """Return the Bloom filter of the block that begins at `at`; empty if it has none. Raises DamagedError."""
    if not head.filter_octets:
        return b""
    begin = at + HEADER_OCTETS
    bits = bytes(octets[begin : begin + head.filter_octets])
    if len(bits) != head.filter_octets or crc32(bits) != head.filter_checksum:
        raise DamagedError("the checksum of a block's filter does not fit")
    return bits


def range_of(octets: bytes) -> tuple[int, int]:
    """Return the first offset of consecutive blocks, and the one after the last; the blocks are whole and verified."""
    at = 0
    while at < len(octets):
        size, count, first = RANGE.unpack_from(octets, at + RANGE_AT)
        if not at:
            begin: int = first
        at += size
    return begin, first + count


class Block:
    """A block whose checksums match. Its columns are views of the bytes; nothing is copied."""

    __slots__ = (
        "arrivals",
        "bodies",
        "body_ends",
        "header",
        "origins",
        "positions",
        "properties",
        "property_ends",
        "which",
    )

    header: BlockHeader
    origins: list[list[object]]  # each: the fields of an `Origin`, exchange, routing key
    which: Column | None  # index into `origins` for each message; None: all have the first
    positions: Column | None  # where each stood in a queue; None: they come from none
    arrivals: Column | None  # when each came into that queue, ms since 1970; None: all when the header says
    properties: memoryview[int]
    property_ends: Column | None  # 0, then where each ends; None: all messages share `properties`
    bodies: memoryview[int]
    body_ends: Column  # 0, then where each ends

    def __init__(self, octets: bytes | bytearray | memoryview[int], at: int = 0) -> None:
        """Decode the block that begins at `at`. Raises DamagedError."""
        self.header = head = header(octets, at)
        if len(octets) - at < head.octets:
            raise DamagedError("a block is cut off")
        payload = memoryview(octets)[at + HEADER_OCTETS : at + head.octets]
        if crc32(payload) != head.checksum:
            raise DamagedError("the checksum of a block does not fit")
        take, count, flags = _Sections(payload), head.count, head.flags
        filter_at(octets, at, head)
        take(head.filter_octets)
        self.origins = json.loads(bytes(take(head.origins_octets)))
        self.which = take.column("I", count) if flags & WHICH else None
        self.positions = take.column("Q", count) if flags & POSITIONS else None
        self.arrivals = take.column("Q", count) if flags & ARRIVALS else None
        self.property_ends = None if flags & SAME else take.column("I", count + 1)
        self.properties = take(head.properties_octets)
        self.body_ends = take.column("I", count + 1)
        self.bodies = take(head.bodies_octets)
        take.end()


class _Sections:
    """Takes the sections of a block's payload, one after the other."""

    __slots__ = ("_at", "_payload")

    def __init__(self, payload: memoryview[int]) -> None:
        self._payload = payload
        self._at = 0

    def __call__(self, octets: int) -> memoryview[int]:
        begin = self._at
        self._at = begin + octets + -octets % 8
        if self._at > len(self._payload):
            raise DamagedError("a block is shorter than it says")
        return self._payload[begin : begin + octets]

    def column(self, kind: str, count: int) -> Column:
        column = array(kind)
        octets = self(count * column.itemsize)
        if not BIG_ENDIAN:
            return octets.cast("I" if kind == "I" else "Q")
        column.frombytes(octets)
        column.byteswap()
        return column

    def end(self) -> None:
        if self._at != len(self._payload):
            raise DamagedError("a block is longer than it says")


def messages_of(block: Block, encoding_of: EncodingOf, noted: bool = True) -> list[Message]:
    """Return the messages; `noted` adds offsets to their notes. Raises DamagedError if a protocol is not installed."""
    kinds = kinds_of(block.origins, encoding_of)
    head = block.header
    which = [0] * head.count if block.which is None else block.which.tolist()
    bodies = pieces(block.bodies, block.body_ends)
    if block.property_ends is None:
        properties = [bytes(block.properties)] * head.count
    else:
        properties = pieces(block.properties, block.property_ends)
    known: dict[tuple[int, bytes], Facts] = {}
    messages = []
    for offset, place, raw, body in zip(range(head.first, head.next), which, properties, bodies, strict=True):
        encoding, exchange, key, facts, notes = kinds[place]
        restored = known.get((place, raw))
        if restored is None:
            restored = known[place, raw] = encoding.restored(facts, raw)
        seen = _noted(notes, offset) if noted else notes
        messages.append(Message(encoding, exchange, key, raw, body, restored, seen))
    return messages


def pieces(octets: memoryview[int], ends: Column) -> list[bytes]:
    """Return copies of the pieces that end at `ends`."""
    whole, bounds = bytes(octets), ends.tolist()
    return [whole[begin:end] for begin, end in pairwise(bounds)]


def kinds_of(rows: list[list[object]], encoding_of: EncodingOf) -> list[Kind]:
    """Decode origins. Consecutive ones often differ only in their keys."""
    kinds: list[Kind] = []
    last: list[object] = []
    for *known, exchange, key in rows:
        if known != last:
            last, origin = known, cast(Origin, tuple(known))
            encoding = encoding_named(origin[0], encoding_of)
            facts, notes = facts_of(origin), notes_of(origin[-1])
        kinds.append((encoding, str(exchange), str(key), facts, notes))
    return kinds

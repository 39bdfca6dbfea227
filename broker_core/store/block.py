"""The format of a block: messages of a stream that follow each other to octets, and back (docs/store-format.md).

    header     72 octets, their crc32 last
    origins    JSON: a list for each kind of message: what chunk.py's origin has, exchange, key
    which      which kind each message is; left out if there is one
    positions  where each stood in a queue; left out if they come from none
    properties where each ends, and the octets; only the octets of the first if all have the same
    bodies     where each ends, and the octets

Little-endian; whatever is listed begins at a multiple of 8 octets, so that arrays can be taken as they are, and so does
the next block. "Where each ends" is an array that begins with a 0. Nothing in a block is read before its checksums fit.
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

from broker_core.message import Encoding, Facts, Message, Notes
from broker_core.store.chunk import BIG_ENDIAN, CHECKSUM, octets_of
from broker_core.store.contract import Append, DamagedError
from broker_core.store.origin import (
    EncodingOf,
    Origin,
    encoding_named,
    facts_of,
    notes_of,
    origin_said,
    remembered_origin,
)

MAGIC: Final = b"LvrB"
VERSION: Final = 1
# Magic, version, flags, nothing, octets of the block, messages, offset of the first, ms since 1970 when they arrived,
# origins, octets of origins, of properties and of bodies, crc32 of what follows the header, nothing.
HEADER: Final = Struct("<4sBBHIIQQIIIII16x")
RANGE: Final = Struct("<IIQ")  # within it: octets, messages, offset of the first
RANGE_AT: Final = 8
ADDRESS: Final = Struct("<QQ")  # within it: offset of the first, when they arrived
ADDRESS_AT: Final = 16
HEADER_OCTETS: Final = HEADER.size + CHECKSUM.size
WHICH, POSITIONS, SAME = 1, 2, 4  # flags: two columns, and that all have the same properties
FLAGS: Final = WHICH | POSITIONS | SAME
BLOCK_OCTETS: Final = 1 << 20  # of bodies and properties in a piece of a commit
BLOCK_MESSAGES: Final = 65_535  # in such a piece
OCTETS_MAX: Final = 1 << 31
ORIGINS_MAX: Final = 4096  # remembered
TOO_LARGE: Final = "a block would have more than 2 GiB"

Column: TypeAlias = "memoryview[int] | array[int]"
Kind: TypeAlias = tuple[Encoding, str, str, Facts, Notes | None]  # exchange, routing key


# Writing.


def written(append: Append) -> Iterator[bytes]:
    """The blocks of what is appended; none if it is nothing."""
    if append.packed is not None:
        yield addressed(append.packed.octets, append.first, append.arrived)
    elif append.messages:
        yield from map(pack, split(append))


def addressed(octets: bytes, first: int, arrived: int) -> bytes:
    """The same block with other offsets and another time. What follows the header keeps its checksum."""
    head = bytearray(octets[: HEADER.size])
    ADDRESS.pack_into(head, ADDRESS_AT, first, arrived)
    return b"".join((head, CHECKSUM.pack(crc32(head)), memoryview(octets)[HEADER_OCTETS:]))


def split(append: Append) -> Iterator[Append]:
    """What was committed together, in pieces that may each be a block: no larger than the limits and a message."""
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
    if append.positions is not None:
        piece.positions = append.positions[begin:end]
    return piece


def pack(append: Append) -> bytes:
    """One block. There must be a message. Raises ValueError if it would have more octets than a header can say."""
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
    if properties.count(properties[0]) == len(properties):
        flags |= SAME
        properties_octets = len(properties[0])
        parts.append(properties[0])
    else:
        properties_octets = _append_all(parts, properties)
    bodies_octets = _append_all(parts, bodies)
    sizes = len(origins), len(kinds), properties_octets, bodies_octets
    return sealed(flags, len(messages), append.first, append.arrived, sizes, parts)


def sealed(
    flags: int,
    count: int,
    first: int,
    arrived: int,
    sizes: tuple[int, int, int, int],
    parts: Iterable[bytes | memoryview[int]],
) -> bytes:
    """A block of what its flags announce. `sizes`: origins; octets of origins, of properties, and of bodies.

    Raises ValueError if it would have more octets than a header can say.
    """
    payload = b"".join(chain.from_iterable((part, bytes(-len(part) % 8)) for part in parts))
    octets = HEADER_OCTETS + len(payload)
    if octets >= OCTETS_MAX:
        raise ValueError(TOO_LARGE)
    said = (MAGIC, VERSION, flags, 0, octets, count, first, arrived)
    header = HEADER.pack(*said, *sizes, crc32(payload))
    return b"".join((header, CHECKSUM.pack(crc32(header)), payload))


def _append_all(parts: list[bytes], pieces: list[bytes]) -> int:
    """Where each ends, and all of them; returns how many octets they have. Raises ValueError."""
    octets = b"".join(pieces)
    if len(octets) >= OCTETS_MAX:
        raise ValueError(TOO_LARGE)
    parts += (octets_of(array("I", accumulate(map(len, pieces), initial=0))), octets)
    return len(octets)


def _origins(messages: Sequence[Message]) -> tuple[Sequence[bytes], array[int]]:
    """Each kind of message once, and which kind each is. Most are as the one before them."""
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
    """What a block says of it besides properties and body: JSON. Remembered."""
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
    """As JSON. The offset is not in it: the place in the block says it."""
    said = origin_said(message, _noted(notes, None))
    return json.dumps([*said, message.exchange, message.key], separators=(",", ":")).encode()


def _noted(notes: Notes | None, offset: int | None) -> Notes:
    """The same with another offset."""
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
    """What a block is. The checksum of what follows it is not checked yet."""

    __slots__ = (
        "arrived",
        "bodies_octets",
        "checksum",
        "count",
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
    next: int  # and that behind the last
    arrived: int  # ms since 1970-01-01 UTC
    flags: int
    origins: int  # how many
    origins_octets: int
    properties_octets: int
    bodies_octets: int
    checksum: int  # of what follows the header


def header(octets: bytes | bytearray | memoryview[int], at: int = 0) -> BlockHeader:
    """The header of the block that begins at `at`; the rest need not be there. Raises DamagedError."""
    if len(octets) - at < HEADER_OCTETS:
        raise DamagedError("the header of a block is cut off")
    end = at + HEADER.size
    if CHECKSUM.unpack_from(octets, end)[0] != crc32(memoryview(octets)[at:end]):
        raise DamagedError("the checksum of a block's header does not fit")
    magic, version, flags, _, *said = HEADER.unpack_from(octets, at)
    if magic != MAGIC:
        raise DamagedError("there is no block where one should be")
    if version != VERSION or flags & ~FLAGS:
        raise DamagedError(f"a block has format {version} with flags {flags}, this is {VERSION}")
    found = BlockHeader()
    found.flags = flags
    found.octets, found.count, found.first, found.arrived, found.origins = said[:5]
    found.origins_octets, found.properties_octets, found.bodies_octets, found.checksum = said[5:]
    found.next = found.first + found.count
    if not found.count or found.octets < HEADER_OCTETS or found.octets % 8:
        raise DamagedError("the header of a block contradicts itself")
    return found


def range_of(octets: bytes) -> tuple[int, int]:
    """The first offset of blocks in a row, and the one behind the last. They are whole and checked already."""
    at = 0
    while at < len(octets):
        size, count, first = RANGE.unpack_from(octets, at + RANGE_AT)
        if not at:
            begin: int = first
        at += size
    return begin, first + count


class Block:
    """A block whose checksums fit. Its columns are views of the octets; nothing is copied."""

    __slots__ = (
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
    origins: list[list[object]]  # each: what an `Origin` has, exchange, routing key
    which: Column | None  # index into `origins` for each message; None: all are of the first
    positions: Column | None  # where each stood in a queue; None: it came from none
    properties: memoryview[int]
    property_ends: Column | None  # 0, then where each ends; None: `properties` are those of every message
    bodies: memoryview[int]
    body_ends: Column  # 0, then where each ends

    def __init__(self, octets: bytes | bytearray | memoryview[int], at: int = 0) -> None:
        """Raises DamagedError."""
        self.header = head = header(octets, at)
        if len(octets) - at < head.octets:
            raise DamagedError("a block is cut off")
        payload = memoryview(octets)[at + HEADER_OCTETS : at + head.octets]
        if crc32(payload) != head.checksum:
            raise DamagedError("the checksum of a block does not fit")
        take, count, flags = _Sections(payload), head.count, head.flags
        self.origins = json.loads(bytes(take(head.origins_octets)))
        self.which = take.column("I", count) if flags & WHICH else None
        self.positions = take.column("Q", count) if flags & POSITIONS else None
        self.property_ends = None if flags & SAME else take.column("I", count + 1)
        self.properties = take(head.properties_octets)
        self.body_ends = take.column("I", count + 1)
        self.bodies = take(head.bodies_octets)
        take.end()


class _Sections:
    """Takes what is listed in a block's payload, one after the other."""

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
    """The messages, `noted`: with their offsets noted on them. Raises DamagedError if a protocol is not installed."""
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
    """Copies of what ends there."""
    whole, bounds = bytes(octets), ends.tolist()
    return [whole[begin:end] for begin, end in pairwise(bounds)]


def kinds_of(said: list[list[object]], encoding_of: EncodingOf) -> list[Kind]:
    """What each origin says. Those that follow each other often differ in their keys only."""
    kinds: list[Kind] = []
    last: list[object] = []
    for *known, exchange, key in said:
        if known != last:
            last, origin = known, cast(Origin, tuple(known))
            encoding = encoding_named(origin[0], encoding_of)
            facts, notes = facts_of(origin), notes_of(origin[-1])
        kinds.append((encoding, str(exchange), str(key), facts, notes))
    return kinds

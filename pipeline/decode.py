"""Decode blocks of a stream as Arrow record batches (durable/store/block.py has the format).

    bytes ── pieces ──> rows of one block ── gathered ──> runs ── a column at a time ──> batches

Bodies of AMQP 0-9-1 are not copied: Arrow uses the block's arrays. Properties are decoded only if a column needs them:
once for all messages with the same bytes, or for all messages of one shape together (pipeline/shapes.py). Batches are
bounded: small blocks are gathered into one, and a block is cut where values that its messages share (properties, names)
would have to be repeated too often.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import and_, attrgetter, sub
from typing import TYPE_CHECKING, Final, TypeAlias, cast

import attrs

from leveret.durable.store.block import Block, header
from leveret.durable.store.contract import DamagedError
from leveret.durable.store.origin import Origin, facts_of, notes_of
from leveret.message import Encoding, Message
from leveret.pipeline import properties091, shapes091, shapes10
from leveret.pipeline.arrow import (
    Array,
    Batch,
    Kind,
    Schema,
    array_of,
    batch_of,
    binary_of,
    counted,
    fields_of,
    filtered,
    flags_of,
    is_struct,
    joined,
    maps_of,
    numbers_of,
    places_of,
    repeated,
    struct_of,
    variants_of,
    with_field,
)
from leveret.pipeline.body_json import body_text
from leveret.pipeline.shapes import OCTETS_MAX, ROWS_MIN, Joined, Shape, Shapes, Walker, shapes_of
from leveret.pipeline.shapes10 import Bodies
from leveret.pipeline.texts import CONVERTED, readable, said, variant
from leveret.protocols.amqp010.broker.encoding import ENCODING as AMQP010
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091
from leveret.protocols.amqp091.broker.encoding import rendered
from leveret.protocols.amqp10.broker.conversion import message_annotations
from leveret.protocols.amqp10.broker.encoding import AS_SECTIONS
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.amqp10.codec.sections import octets_of
from leveret.protocols.mqtt.broker.encoding import ENCODING as MQTT
from leveret.values import Properties, Table

if TYPE_CHECKING:
    from leveret.pipeline.filters import Filters
    from leveret.pipeline.row_filter import RowFilter

# Of a block, on average; from here on its bodies are one slice, 10 us, not copied one by one.
MANY_ROWS: Final = 8
RUN_ROWS: Final = 16_384  # rows of small blocks in a batch; a block may have more of its own
RUN_OCTETS: Final = 4 << 20  # bytes in a batch of small blocks
REPEATED_MAX: Final = 8 << 20  # bytes that the rows of a batch may repeat
REMEMBERED_MAX: Final = 4096  # distinct properties that are kept decoded
REMEMBERED_SIZE_MAX: Final = 1024  # bytes; longer ones rarely come twice
LOG_APPEND_TIME: Final = 1  # Kafka's code for a timestamp taken by the broker

NOTES: Final = -3  # index in an origin, before exchange and routing key
Looks: TypeAlias = tuple[str, bytes, bool]  # encoding, properties, whether the body is sections of AMQP 1.0

ENCODINGS: Final[Mapping[str, Encoding]] = {each.name: each for each in (AMQP010, AMQP091, AMQP10, MQTT)}
WALKERS: Final[Mapping[str, Walker]] = {AMQP091.name: shapes091.shape_of, AMQP10.name: shapes10.shape_of}


class Piece:
    """The rows [low, high) of a block."""

    __slots__ = ("block", "high", "low", "shared")

    def __init__(self, block: Block, low: int, high: int, shared: int) -> None:
        self.block = block
        self.low = low
        self.high = high
        self.shared = shared  # bytes that the block has once, and each row may repeat

    def __len__(self) -> int:
        return self.high - self.low

    @property
    def first(self) -> int:
        """The offset of the first row."""
        return self.block.header.first + self.low

    @property
    def next(self) -> int:
        """The offset behind the last row."""
        return self.block.header.first + self.high

    @property
    def octets(self) -> int:
        """The approximate size of the decoded rows in bytes."""
        ends = self.block.body_ends
        octets = ends[self.high] - ends[self.low] + len(self) * self.shared
        if self.block.property_ends is not None:
            octets += self.block.property_ends[self.high] - self.block.property_ends[self.low]
        return octets

    def encodings(self) -> list[Encoding]:
        """Return the encoding of each of the block's origins. Raises DamagedError."""
        found = []
        for origin in self.block.origins:
            encoding = ENCODINGS.get(str(origin[0]))
            if encoding is None:
                raise DamagedError(f"a message is of the protocol '{origin[0]}', which cannot be read here")
            found.append(encoding)
        return found

    def which(self, at: int) -> int:
        """Return the index of a row's origin."""
        return self.block.which[at] if self.block.which is not None else 0

    @property
    def owners(self) -> int:
        """The number of rows that may have properties of their own."""
        return 1 if self.block.property_ends is None else len(self)

    def all_properties(self, lengths: array[int]) -> bytes | memoryview[int]:
        """Return the properties of all rows, one after the other, and add their lengths to `lengths`."""
        block, low, high = self.block, self.low, self.high
        ends = block.property_ends
        if ends is None:
            lengths.extend(array("q", (len(block.properties),)) * len(self))
            return bytes(block.properties) * len(self)
        lengths.extend(map(sub, ends[low + 1 : high + 1], ends[low:high]))
        return block.properties[ends[low] : ends[high]]

    def all_bodies(self, lengths: array[int]) -> memoryview[int]:
        """Return the bodies of all rows, one after the other, and add their lengths to `lengths`."""
        ends = self.block.body_ends
        lengths.extend(map(sub, ends[self.low + 1 : self.high + 1], ends[self.low : self.high]))
        return self.block.bodies[ends[self.low] : ends[self.high]]

    def body(self, at: int) -> bytes:
        ends = self.block.body_ends
        return bytes(self.block.bodies[ends[at] : ends[at + 1]])

    def properties(self, at: int) -> bytes:
        ends = self.block.property_ends
        found = self.block.properties
        return bytes(found if ends is None else found[ends[at] : ends[at + 1]])


def pieces(octets: bytes, first: int, until: int) -> Iterator[Piece]:
    """Yield the rows of the blocks whose offsets are in [first, until), in order. Raises DamagedError."""
    at = 0
    while at < len(octets):
        head = header(octets, at)
        if head.first < until and head.next > first:
            block = Block(octets, at)
            low, high = max(first - head.first, 0), min(until, head.next) - head.first
            shared = _shared(block)
            step = max(1, REPEATED_MAX // (shared + 1))
            for begin in range(low, high, step):
                yield Piece(block, begin, min(begin + step, high), shared)
        at += head.octets


def _shared(block: Block) -> int:
    octets = max(
        len(str(origin[-1]))
        + len(str(origin[-2]))
        + (0 if origin[NOTES] is None else len(str(origin[NOTES])))
        for origin in block.origins
    )
    return octets + (len(block.properties) if block.property_ends is None else 0)


def runs(found: Iterator[Piece]) -> Iterator[list[Piece]]:
    """Yield neighbouring pieces together, as long as they are small. A run has no gaps."""
    run: list[Piece] = []
    rows = octets = 0
    for piece in found:
        is_large = rows + len(piece) > RUN_ROWS or octets + piece.octets > RUN_OCTETS
        if run and (is_large or piece.first != run[-1].next):
            yield run
            run, rows, octets = [], 0, 0
        run.append(piece)
        rows += len(piece)
        octets += piece.octets
    if run:
        yield run


class Decoder:
    """Decodes batches of one partition of a stream, with the columns of a schema."""

    def __init__(
        self,
        schema: Schema,
        columns: str,
        stream: str,
        partition: int,
        conditions: Filters | None = None,
        row_filter: RowFilter | None = None,
    ) -> None:
        """Make a decoder. Rows that do not fulfil `conditions` may be left out; those that `row_filter` refuses are."""
        self.is_over = False  # a block was seen behind which nothing fulfils the conditions
        self._conditions = conditions if conditions is not None and conditions.are_on_rows else None
        self._filter = row_filter
        self._schema = schema
        self._columns = [(COLUMNS[columns][field.name], field.type) for field in schema]
        # as texts
        self._with_headers = any(field.name == "headers" and not is_struct(field.type) for field in schema)
        self._stream = stream
        self._partition = partition
        self._remembered: dict[Looks, Properties] = {}

    def batches(self, octets: bytes, first: int, until: int) -> Iterator[tuple[Batch | None, int, int]]:
        """Yield each batch with its first offset and the offset behind its last. Raises DamagedError.

        None is for messages of which none is wanted.
        """
        for run in runs(pieces(octets, first, until)):
            is_whole = self._conditions is None and self._filter is None
            yield self._made(self._rows(run)) if is_whole else self._chosen(run), run[0].first, run[-1].next

    def _rows(self, run: Sequence[Piece]) -> Rows:
        return Rows(run, self._stream, self._partition, self._remembered, self._with_headers)

    def _made(self, rows: Rows) -> Batch:
        return batch_of([column(rows, kind) for column, kind in self._columns], self._schema)

    def _chosen(self, run: Sequence[Piece]) -> Batch | None:
        """Return the rows of those pieces that may be wanted."""
        found: list[Piece] = []
        flags = array("B")
        for piece in run:
            wanted = self._wanted(piece)
            if 1 in wanted:
                found.append(piece)
                flags.extend(wanted)
        rows = self._rows(found)
        if self._filter is not None and found:
            flags = array("B", map(and_, flags, self._filter.flags(found, rows.header_shapes)))
            found, wanted = _with_any(found, flags)
            # Shapes that are known take as long to find again as columns do.
            if rows.header_shapes is None or len(wanted) <= rows.count // 2:
                rows, flags = self._rows(found), wanted
        if self._conditions is not None:
            self.is_over = self._conditions.is_over(run[-1].block.header.arrived)
        if not found:
            return None
        made = self._made(rows)
        return filtered(made, flags_of(memoryview(flags))) if 0 in flags else made

    def _wanted(self, piece: Piece) -> array[int]:
        """Return 1 for each row of a piece that may fulfil the conditions, and 0 for others; nothing if none may."""
        if self._conditions is None:
            return array("B", (1,)) * len(piece)
        from leveret.pipeline.filters import rows_of  # which needs PySpark, as its conditions do

        origins = self._conditions.origins(piece.block)
        return rows_of(piece.block, piece.low, piece.high, origins) if any(origins) else array("B")


def _with_any(run: Sequence[Piece], flags: array[int]) -> tuple[list[Piece], array[int]]:
    """Return the pieces of which a row is wanted, with the flags of their rows."""
    found: list[Piece] = []
    kept = array("B")
    begin = 0
    for piece in run:
        of_piece = flags[begin : begin + len(piece)]
        begin += len(piece)
        if 1 in of_piece:
            found.append(piece)
            kept.extend(of_piece)
    return found, kept


@attrs.define(slots=False)
class Rows:
    """The pieces that become one batch, and values that its columns share."""

    pieces: Sequence[Piece]
    stream: str
    partition: int
    remembered: dict[Looks, Properties]
    with_headers: bool  # as texts

    @cached_property
    def count(self) -> int:
        return sum(map(len, self.pieces))

    @cached_property
    def encoding(self) -> str | None:
        """The name of the encoding of all rows; None if there are several."""
        names = {encoding.name for piece in self.pieces for encoding in piece.encodings()}
        return names.pop() if len(names) == 1 else None

    @cached_property
    def shapes(self) -> Shapes | None:
        """The rows by the shapes of their properties; None if few differ, or some are of another protocol."""
        owners = sum(piece.owners for piece in self.pieces)
        walker = WALKERS.get(self.encoding or "")
        if walker is None or owners < max(ROWS_MIN, self.count // 2):
            return None
        lengths = array("q")
        parts = [piece.all_properties(lengths) for piece in self.pieces]
        return shapes_of(Joined(parts, lengths), self.with_headers, walker)

    @property
    def header_shapes(self) -> Shapes | None:
        """The shapes, if some column has headers; else None."""
        return self.shapes if self.with_headers else None

    @cached_property
    def bodies(self) -> Bodies | None:
        """The bodies, if all are of AMQP 1.0, and there are enough of them to look at all together."""
        if self.encoding != AMQP10.name or self.count < ROWS_MIN:
            return None
        lengths = array("q")
        parts = [piece.all_bodies(lengths) for piece in self.pieces]
        return Bodies(Joined(parts, lengths)) if sum(lengths) <= OCTETS_MAX else None

    @cached_property
    def in_sections(self) -> frozenset[int]:
        """The rows whose bodies are sections of AMQP 1.0 that are not data."""
        if self.bodies is not None:
            return frozenset(at for at in self.bodies.others if octets_of(self.bodies.row(at)) is None)
        found: set[int] = set()
        begin = 0
        for piece in self.pieces:
            encodings = piece.encodings()
            if AMQP10 in encodings:
                found.update(
                    begin + at - piece.low
                    for at in range(piece.low, piece.high)
                    if encodings[piece.which(at)] is AMQP10 and octets_of(piece.body(at)) is None
                )
            begin += len(piece)
        return frozenset(found)

    def decoded(self, rows: Sequence[int]) -> tuple[list[Properties], Array]:
        """Return the distinct properties of some rows, all of one encoding, and the index of each."""
        assert self.shapes is not None
        name, row, places = str(self.encoding), self.shapes.joined.row, dict[Looks, int]()
        looks = ((name, row(at), at in self.in_sections) for at in rows)
        which = array("I", (places.setdefault(each, len(places)) for each in looks))
        return list(map(self._decoded, places)), places_of(which)

    @cached_property
    def has_deaths(self) -> bool:
        return any(origin[NOTES] for piece in self.pieces for origin in piece.block.origins)

    @cached_property
    def properties(self) -> tuple[list[Properties], Array]:
        """The distinct properties, and the index of each row's."""
        looks, which = self.looks
        return list(map(self._decoded, looks)), which

    @cached_property
    def looks(self) -> tuple[Sequence[Looks], Array]:
        """The distinct keys from which properties are decoded, and the index of each row's."""
        places: dict[Looks, int] = {}
        which = array("I")
        for piece in self.pieces:
            encodings, begin = piece.encodings(), len(which) - piece.low
            if piece.block.property_ends is None and len(encodings) == 1 and not self.in_sections:
                place = places.setdefault((encodings[0].name, piece.properties(0), False), len(places))
                which.extend(array("I", (place,)) * len(piece))
                continue
            for at in range(piece.low, piece.high):
                key = encodings[piece.which(at)].name, piece.properties(at), begin + at in self.in_sections
                which.append(places.setdefault(key, len(places)))
        return list(places), places_of(which)

    def _decoded(self, key: Looks) -> Properties:
        found = self.remembered.get(key)
        if found is None:
            encoding, octets, sections = key
            found = (properties091.read if encoding == AMQP091.name else ENCODINGS[encoding].read)(octets)
            if sections:
                found = attrs.evolve(found, type=AS_SECTIONS)
            if len(self.remembered) >= REMEMBERED_MAX:
                self.remembered.clear()
            if len(octets) <= REMEMBERED_SIZE_MAX:
                self.remembered[key] = found
        return found

    @cached_property
    def headers(self) -> tuple[list[Table | None], Array]:
        """The headers as consumers of AMQP 0-9-1 see them: those of dead letters tell why and where they died."""
        if self.has_deaths:
            return self._headers_with_deaths()
        distinct, which = self.properties
        return [each.headers for each in distinct], which

    def _headers_with_deaths(self) -> tuple[list[Table | None], Array]:
        places: dict[tuple[str, bytes, str], int] = {}
        found: list[Table | None] = []
        which = array("I")
        for piece in self.pieces:
            encodings, histories = piece.encodings(), [_history(origin) for origin in piece.block.origins]
            for at in range(piece.low, piece.high):
                origin = piece.which(at)
                key = encodings[origin].name, piece.properties(at), histories[origin]
                place = places.setdefault(key, len(places))
                if place == len(found):
                    headers = self._decoded((*key[:2], False)).headers
                    if key[2]:
                        headers = _with_deaths(encodings[origin], key[1], piece.block.origins[origin])
                    found.append(headers)
                which.append(place)
        return found, places_of(which)

    def of_origin(self, at: int, kind: Kind, convert: Callable[[str], object]) -> Array:
        """Return the item `at` of each row's origin as a column."""
        found: list[object] = []
        which = array("I")
        for piece in self.pieces:
            before = len(found)
            found += [convert(str(origin[at])) for origin in piece.block.origins]
            column = piece.block.which
            if column is None:
                which.extend(array("I", (before,)) * len(piece))
            else:
                which.extend(place + before for place in column[piece.low : piece.high])
        return array_of(found, kind).take(places_of(which))


def _history(origin: list[object]) -> str:
    """Return the part of an origin that determines headers; "" if the message has not died."""
    return json.dumps(origin[: NOTES + 1]) if origin[NOTES] else ""


def _with_deaths(encoding: Encoding, properties: bytes, origin: list[object]) -> Table:
    known = cast(Origin, origin[: NOTES + 1])
    dead = Message(encoding, "", "", properties, b"", facts_of(known), notes_of(known[-1]))
    return AMQP091.headers(rendered(dead)[0])


# Columns: functions that return a column of the rows as an array of a type.


def body(rows: Rows, kind: Kind) -> Array:
    if rows.count >= len(rows.pieces) * MANY_ROWS and all(map(is_plain, rows.pieces)):
        return joined(
            [
                binary_of(piece.block.body_ends, piece.block.bodies).slice(piece.low, len(piece))
                for piece in rows.pieces
            ]
        )
    if rows.bodies is not None:
        return rows.bodies.contents(lambda octets: _octets(octets, in_sections=True))
    found: list[bytes] = []
    for piece in rows.pieces:
        found += bodies_of(piece)
    return array_of(found, kind)


def is_plain(piece: Piece) -> bool:
    """Return whether the bodies are exactly the publisher's bytes."""
    return all(encoding is not AMQP10 for encoding in piece.encodings())


def bodies_of(piece: Piece) -> Iterator[bytes]:
    if is_plain(piece):
        return map(piece.body, range(piece.low, piece.high))
    encodings = piece.encodings()
    return (
        _octets(piece.body(at), encodings[piece.which(at)] is AMQP10) for at in range(piece.low, piece.high)
    )


def _octets(octets: bytes, in_sections: bool) -> bytes:
    """Return the contents of data sections; a body of other sections stays as it is (S232)."""
    plain = octets_of(octets) if in_sections else None
    return octets if plain is None else plain


def raw_properties(rows: Rows, kind: Kind) -> Array:
    """Return the publisher's properties as they are stored: with the column `encoding`, nothing of them is lost."""
    found = []
    for piece in rows.pieces:
        block = piece.block
        if block.property_ends is None:
            found.append(repeated(bytes(block.properties), len(piece), kind))
        else:
            found.append(binary_of(block.property_ends, block.properties).slice(piece.low, len(piece)))
    return joined(found)


def encoding(rows: Rows, kind: Kind) -> Array:
    return rows.of_origin(0, kind, readable)


def raw_body(rows: Rows, kind: Kind) -> Array:
    """Return bodies as they are stored where more than their contents is needed to make them again; else null."""
    return _of_sections(rows, kind, lambda body: None if AMQP10.body(AMQP10.octets(body)) == body else body)


def body_json(rows: Rows, kind: Kind) -> Array:
    """Return the values and sequences that bodies of AMQP 1.0 may be, as JSON; null for other bodies."""
    return _of_sections(rows, kind, lambda body: body_text(body) if octets_of(body) is None else None)


def _of_sections(rows: Rows, kind: Kind, convert: Callable[[bytes], object]) -> Array:
    """Return a column about bodies of AMQP 1.0; null for other protocols."""
    found: list[object] = []
    for piece in rows.pieces:
        if is_plain(piece):
            found += [None] * len(piece)
            continue
        encodings = piece.encodings()
        found += [
            convert(piece.body(at)) if encodings[piece.which(at)] is AMQP10 else None
            for at in range(piece.low, piece.high)
        ]
    return repeated(None, len(found), kind) if not any(found) else array_of(found, kind)


def exchange(rows: Rows, kind: Kind) -> Array:
    return rows.of_origin(-2, kind, readable)


def routing_key(rows: Rows, kind: Kind) -> Array:
    return rows.of_origin(-1, kind, readable)


def key(rows: Rows, kind: Kind) -> Array:
    return rows.of_origin(-1, kind, lambda name: name.encode("utf-8", "surrogateescape"))


def stream(rows: Rows, kind: Kind) -> Array:
    return repeated(rows.stream, rows.count, kind)


def partition(rows: Rows, kind: Kind) -> Array:
    return repeated(rows.partition, rows.count, kind)


def offset(rows: Rows, kind: Kind) -> Array:
    found = rows.pieces
    if found[-1].next - found[0].first == rows.count:
        return counted(found[0].first, rows.count)
    return joined([counted(piece.first, len(piece)) for piece in found])  # some were left out


def timestamp(rows: Rows, kind: Kind) -> Array:
    """Return when the broker received each message, in microseconds, as Spark represents times; of messages of a lease
    when they came into their queue.
    """
    found = array("q")
    for piece in rows.pieces:
        if (arrivals := piece.block.arrivals) is not None:
            found.extend(ms * 1000 for ms in arrivals[piece.low : piece.high])
        else:
            found.extend(array("q", (piece.block.header.arrived * 1000,)) * len(piece))
    return numbers_of(memoryview(found), kind)


def timestamp_type(rows: Rows, kind: Kind) -> Array:
    return repeated(LOG_APPEND_TIME, rows.count, kind)


def redelivered(rows: Rows, kind: Kind) -> Array:
    """Return which messages were delivered before. Only those of a lease can be: reading a stream takes none."""
    columns = [piece.block.positions for piece in rows.pieces]
    if not any(columns):
        return repeated(False, rows.count, kind)
    found = array("B")
    for piece, column in zip(rows.pieces, columns, strict=True):
        places = column[piece.low : piece.high] if column is not None else (0,) * len(piece)
        found.extend(place & 1 for place in places)
    return flags_of(found)


def properties(rows: Rows, kind: Kind) -> Array:
    if rows.shapes is None:
        return _properties(rows.properties, kind)
    found = rows.shapes.column(
        lambda shape: shape.properties(kind), lambda others: _properties(rows.decoded(others), kind)
    )
    return with_field(found, kind, "type", AS_SECTIONS, rows.in_sections) if rows.in_sections else found


def _properties(found: tuple[Sequence[Properties], Array], kind: Kind) -> Array:
    distinct, which = found
    fields = [_property(field.name, distinct, field.type) for field in fields_of(kind)]
    return struct_of(fields, kind).take(which)


def _property(name: str, distinct: Sequence[Properties], kind: Kind) -> Array:
    values = list(map(attrgetter(name), distinct))
    convert, absent = CONVERTED[name], values.count(None)
    if absent == len(values):
        return repeated(None, absent, kind)
    if absent:
        return array_of([None if value is None else convert(value) for value in values], kind)
    return array_of(list(map(convert, values)), kind)


def headers(rows: Rows, kind: Kind) -> Array:
    """Return headers as a map of texts, or as a Spark variant if the option asks for it."""
    if is_struct(kind):
        distinct, which = rows.headers
        return variants_of([None if each is None else variant(each) for each in distinct], kind).take(which)
    return _of_headers(rows, kind, Shape.maps, _maps)


def _of_headers(
    rows: Rows,
    kind: Kind,
    shaped: Callable[[Shape, Kind], Array],
    single: Callable[[Sequence[Table | None], Kind], Array],
) -> Array:
    """Return a column of headers, made by `shaped` where rows have shapes, and else by `single`."""
    if rows.has_deaths or rows.shapes is None:
        distinct, which = rows.headers
        return single(distinct, kind).take(which)

    def one_by_one(others: Sequence[int]) -> Array:
        distinct, which = rows.decoded(others)
        return single([each.headers for each in distinct], kind).take(which)

    return rows.shapes.column(lambda shape: shaped(shape, kind), one_by_one)


def _maps(distinct: Sequence[Table | None], kind: Kind) -> Array:
    """Return tables as maps of texts, from all names and all values: twice as fast as a list for each."""
    names: list[str] = []
    texts: list[str | None] = []
    ends = array("i", (0,))
    for each in distinct:
        if each:
            names += map(readable, each)
            texts += map(said, each.values())
        ends.append(len(names))
    return maps_of(ends, names, texts, [each is None for each in distinct], kind)


def annotations_column(rows: Rows, kind: Kind) -> Array:
    """Return the annotations of AMQP 1.0 messages; other protocols have none."""
    looks, which = rows.looks
    return array_of([_annotations(*each) for each in looks], kind).take(which)


def _annotations(encoding: str, properties: bytes, _: bool) -> list[tuple[str, str | None]] | None:
    if encoding != AMQP10.name:
        return None
    return [(readable(name), said(value)) for name, value in message_annotations(properties).items()]


def octet_headers(rows: Rows, kind: Kind) -> Array:
    """Return headers as Kafka has them: a list, with values as bytes."""
    return _of_headers(rows, kind, Shape.lists, _lists)


def _lists(distinct: Sequence[Table | None], kind: Kind) -> Array:
    found = [
        [{"key": readable(name), "value": _encoded(said(value))} for name, value in (each or {}).items()]
        for each in distinct
    ]
    return array_of(found, kind)


def _encoded(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


COLUMNS: Final[Mapping[str, Mapping[str, Callable[[Rows, Kind], Array]]]] = {
    "amqp": {
        "body": body,
        "exchange": exchange,
        "routing_key": routing_key,
        "stream": stream,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "redelivered": redelivered,
        "properties": properties,
        "headers": headers,
        "annotations": annotations_column,
        "raw_properties": raw_properties,
        "encoding": encoding,
        "raw_body": raw_body,
        "body_json": body_json,
    },
    "kafka": {
        "key": key,
        "value": body,
        "topic": stream,
        "partition": partition,
        "offset": offset,
        "timestamp": timestamp,
        "timestampType": timestamp_type,
        "headers": octet_headers,
    },
}

"""Decode the properties of many messages at once, a column at a time, by calls of Arrow.

    flags │ 4 "7041" │ timestamp │ table │ 1 "n" S 4 "7041" │ 7 "country" S 2 "FI"       rows of one shape have the
    flags │ 3 "998"  │ timestamp │ table │ 1 "n" S 3 "998"  │ 7 "country" S 2 "SE"       same flags, names and types

Messages of one publisher differ in their values, seldom in which properties and headers they have. Where rows have
one shape, the first of them tells what comes next in all of them, and the lengths in front of values, read and added
as columns, tell where. So no row becomes an object of Python: 0.3 us a row, where decoding one by one takes 6.

What comes when is a protocol's own: pipeline/shapes091.py, pipeline/shapes10.py.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from sys import byteorder
from typing import Final, Protocol, TypeAlias, cast

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.durable.store.contract import DamagedError
from leveret.pipeline.arrays import Buffered, Encoded
from leveret.pipeline.arrow import (
    Array,
    Kind,
    array_of,
    counted,
    fields_of,
    item_of,
    numbers_of,
    repeated,
    struct_of,
)
from leveret.pipeline.texts import SECONDS_MAX, readable

ROWS_MIN: Final = 64  # of one shape; fewer are decoded one by one, which is quicker then
WALKS_MAX: Final = 32  # in one batch; what has not found its shape then is decoded one by one
PADDING: Final = bytes(8)  # behind all rows, so that a length or a number which is cut off can be read
OCTETS_MAX: Final = (1 << 31) - 1

Span: TypeAlias = tuple[Array, Array]  # where the values of all rows begin and end
Column: TypeAlias = Callable[[], Array]  # makes a column of values when it is wanted


class DifferentError(Exception):
    """Raised where rows are not of one shape."""

    def __init__(self, flags: Array) -> None:
        """Take a flag for each row: whether it is, so far, as the first is."""
        super().__init__()
        self.flags = flags


class Joined:
    """The properties of the rows of a batch, one after the other."""

    def __init__(self, parts: Iterable[bytes | memoryview[int]], lengths: array[int]) -> None:
        """Join bytes. `lengths` has the length of each row, in 64 bits. Raises DamagedError if they do not fit."""
        self.octets = b"".join((*parts, PADDING))
        if min(lengths) < 0 or sum(lengths) != len(self.octets) - len(PADDING):
            raise DamagedError("the lengths of the properties in a block contradict themselves")
        sizes = numbers_of(memoryview(lengths), pa.int64())
        self.ends: Array = pc.cumulative_sum(sizes)
        self.begins: Array = pc.subtract(self.ends, sizes)
        self._buffer = pa.py_buffer(self.octets)
        self._each = pa.Array.from_buffers(pa.uint8(), len(self.octets), [None, self._buffer])

    def __len__(self) -> int:
        return len(self.ends)

    def row(self, at: int) -> bytes:
        return self.octets[cast(int, item(self.begins, at)) : cast(int, item(self.ends, at))]

    def at(self, places: Array) -> Array:
        """Return the bytes at these places as whole numbers."""
        found: Array = pc.cast(self._each.take(places), pa.int64())
        return found

    def slices(self, span: Span) -> Array:
        """Return the bytes of each row as binaries. Spans rise, and do not overlap.

        They are every second one of the binaries that the begins and ends of all rows cut the bytes into: 9 ns each.
        """
        begin, end = span if byteorder == "little" else reversed(span)
        bounds = pc.bit_wise_or(begin, pc.shift_left(end, pa.scalar(32, pa.int64())))  # two of 32 bits
        count = 2 * len(begin) - 1
        parts = pa.Array.from_buffers(pa.binary(), count, [None, bounds.buffers()[1], self._buffer])
        found: Array = parts.take(pc.multiply(counted(0, len(begin)), pa.scalar(2, pa.int64())))
        return found

    def numbers(self, span: Span, letter: str) -> Array:
        """Return numbers, given by the letter that their type has in `struct`, as the widest of their kind."""
        numbers: array[int] = array(letter, b"")
        octets = cast(Buffered, self.slices(span)).buffers()[2]
        assert octets is not None
        numbers.frombytes(memoryview(octets)[: len(span[0]) * numbers.itemsize])
        if byteorder == "little":
            numbers.byteswap()
        stored, widest = NUMBERS[letter]
        found: Array = pc.cast(numbers_of(memoryview(numbers), stored), widest)
        return found


NUMBERS: Final[Mapping[str, tuple[Kind, Kind]]] = {  # how they are stored, and the widest type of their kind
    "b": (pa.int8(), pa.int64()),
    "B": (pa.uint8(), pa.int64()),
    "h": (pa.int16(), pa.int64()),
    "H": (pa.uint16(), pa.int64()),
    "i": (pa.int32(), pa.int64()),
    "I": (pa.uint32(), pa.int64()),
    "q": (pa.int64(), pa.int64()),
    "Q": (pa.uint64(), pa.uint64()),
    "f": (pa.float32(), pa.float64()),
    "d": (pa.float64(), pa.float64()),
}


def item(array: Array, at: int) -> object:
    (found,) = array.slice(at, 1).to_pylist()
    return found


class Walk:
    """A walk through the properties of several rows, step by step, each as far as the first row's bytes say."""

    def __init__(self, joined: Joined, rows: Array) -> None:
        """Begin with the properties of some rows, given by their indices."""
        self._joined = joined
        self.at: Array = joined.begins.take(rows)
        self._ends = joined.ends.take(rows)

    @property
    def first(self) -> int:
        """The place where the first row goes on."""
        return cast(int, item(self.at, 0))

    @property
    def next(self) -> int:
        """The byte that the first row has next."""
        return self._joined.octets[self.first]

    def require(self, flags: Array) -> None:
        """Raise DifferentError unless all flags are set."""
        if not pc.all(flags).as_py():
            raise DifferentError(flags)

    def _move(self, end: Array) -> Span:
        """Go on to what lies behind `end`. Raises DifferentError for rows that end before it."""
        self.require(pc.less_equal(end, self._ends))
        begin, self.at = self.at, end
        return begin, end

    def same(self, width: int) -> bytes:
        """Return what the first row has next. Raises DifferentError for rows that have something else."""
        first = self.first
        wanted = self._joined.octets[first : first + width]
        span = self.fixed(width)
        self.require(pc.equal(self._joined.slices(span), pa.scalar(wanted, pa.binary())))
        return wanted

    def fixed(self, width: int) -> Span:
        return self._move(pc.add(self.at, width))

    def short(self) -> Span:
        """Pass a byte with a length, and so many bytes, which are returned."""
        begin: Array = pc.add(self.at, 1)
        _, end = self._move(pc.add(begin, self._joined.at(self.at)))
        return begin, end

    def long(self) -> Span:
        """Pass four bytes with a length, and so many bytes, which are returned."""
        sizes = self._joined.numbers(self.fixed(4), "i")
        self.require(pc.greater_equal(sizes, 0))
        return self._move(pc.add(self.at, sizes))

    def end(self) -> None:
        self.require(pc.equal(self.at, self._ends))


class HeaderValues(Protocol):
    """The values that the rows of a shape have in one header, all of one type."""

    @property
    def typed(self) -> Array | None:
        """The values as booleans, int64, uint64, doubles, texts or nulls; None for other types, and where some do not
        fit."""

    def spelled(self) -> Array:
        """Return their bytes, with types and lengths."""


@attrs.define(slots=False)
class Shape:
    """Rows of a batch that have the same properties, and headers of the same names and types."""

    rows: Array  # indices
    values: Mapping[str, Column]  # of properties, by their neutral names
    # names and texts; None: they have none, or nobody asks for them
    headers: Sequence[tuple[str, Column]] | None
    varying: Mapping[str, HeaderValues]  # by name: of the headers that may differ from row to row

    def properties(self, kind: Kind) -> Array:
        """Return a struct for each row."""
        return struct_of([self._property(field.name, field.type) for field in fields_of(kind)], kind)

    def _property(self, name: str, kind: Kind) -> Array:
        column = self.values.get(name)
        if column is None:
            return repeated(False if name == "durable" else None, len(self.rows), kind)
        found: Array = pc.cast(column(), kind)
        return found

    @cached_property
    def entries(self) -> tuple[Array, Array]:
        """The names and texts of the headers of all rows: those of the first row, those of the second, and so on."""
        assert self.headers is not None
        count, rows = len(self.headers), len(self.rows)
        names = array_of([name for name, _ in self.headers], pa.string())
        values = pa.chunked_array([texts() for _, texts in self.headers], pa.string())
        places = counted(0, count * rows)
        row = pc.divide(places, max(count, 1))
        column = pc.subtract(places, pc.multiply(row, count))
        return names.take(column), values.combine_chunks().take(pc.add(pc.multiply(column, rows), row))

    def maps(self, kind: Kind) -> Array:
        """Return headers as maps of texts."""
        if self.headers is None:
            return repeated(None, len(self.rows), kind)
        found: Array = pa.MapArray.from_arrays(self._ends(len(self.headers)), *self.entries, type=kind)
        return found

    def lists(self, kind: Kind) -> Array:
        """Return headers as lists of structs, with values as bytes; rows without headers have an empty list."""
        names, values = self.entries if self.headers else (array_of((), pa.string()),) * 2
        entries = struct_of([names, pc.cast(values, pa.binary())], item_of(kind))
        found: Array = pa.ListArray.from_arrays(self._ends(len(self.headers or ())), entries, type=kind)
        return found

    def _ends(self, each: int) -> Array:
        ends: Array = pc.cast(pc.multiply(counted(0, len(self.rows) + 1), each), pa.int32())
        return ends


Walker: TypeAlias = Callable[[Joined, Array, bool], Shape | None]


@attrs.frozen
class Shapes:
    """The rows of a batch, by their shapes; and those that have none in common with enough others."""

    joined: Joined
    shapes: Sequence[Shape]
    rest: Array

    def column(self, shaped: Callable[[Shape], Array], single: Callable[[Sequence[int]], Array]) -> Array:
        """Return a column: what `shaped` makes of each shape, and `single` of other rows, given by their indices."""
        found = [(each.rows, shaped(each)) for each in self.shapes]
        if len(self.rest):
            found.append((self.rest, single(cast("list[int]", self.rest.to_pylist()))))
        return merged(found)


def merged(parts: Sequence[tuple[Array, Array]]) -> Array:
    """Return one column of several, each with the indices of its rows, which rise."""
    if len(parts) == 1:
        return parts[0][1]
    rows, values = zip(*parts, strict=True)
    column: Array = pa.concat_arrays(values).take(pc.array_sort_indices(pa.concat_arrays(rows)))
    return column


def shapes_of(joined: Joined, with_headers: bool, shape_of: Walker) -> Shapes:
    """Sort rows by their shapes.

    `shape_of` returns the shape of some rows, given by their indices, or None if the first of them is malformed or
    unusual, and raises DifferentError if they are not alike. `with_headers` says whether it is to look at headers.
    """
    every = [counted(0, len(joined))]
    waiting, rest = (every, []) if len(joined.octets) <= OCTETS_MAX else ([], every)
    shapes: list[Shape] = []
    walks = 0
    while waiting:
        rows = waiting.pop()
        if len(rows) < ROWS_MIN or walks == WALKS_MAX:
            rest.append(rows)
            continue
        walks += 1
        try:
            found = shape_of(joined, rows, with_headers)
        except DifferentError as different:
            flags = different.flags
            if item(flags, 0):
                waiting += [pc.filter(rows, pc.invert(flags)), pc.filter(rows, flags)]
                continue
            found = None
        if found is None:
            rest.append(rows)
        else:
            shapes.append(found)
    others = pa.concat_arrays(rest or [pa.array((), pa.int64())])
    return Shapes(joined, shapes, others.take(pc.array_sort_indices(others)))


# Columns of values.


def by_value(values: Array, convert: Callable[[bytes], object], kind: Kind) -> Array:
    """Return what each value is converted to; equal ones are converted once."""
    encoded: Encoded = pc.dictionary_encode(values)
    distinct = cast("list[bytes]", encoded.dictionary.to_pylist())
    return array_of(list(map(convert, distinct)), kind).take(encoded.indices)


WRITTEN: Final = frozenset((pa.int64(), pa.uint64(), pa.string()))  # what Arrow writes as Python does


def written(typed: Array | None) -> Array | None:
    """Return the values of a header as texts; None if Arrow would write them in another way."""
    if typed is None or typed.type not in WRITTEN:
        return None
    found: Array = pc.cast(typed, pa.string())
    return found


def texts(values: Array, convert: Callable[[bytes], object]) -> Array:
    """Return binaries as texts; `convert` is for what is not UTF-8."""
    try:
        found: Array = pc.cast(values, pa.string())
    except pa.ArrowInvalid:
        return by_value(values, convert, pa.string())
    return found


def short_text(octets: bytes) -> str:
    return readable(octets.decode("utf-8", "surrogateescape"))


def short_texts(joined: Joined, span: Span) -> Array:
    return texts(joined.slices(span), short_text)


def times(seconds: Array) -> Array:
    """Return seconds since 1970 as times; null where Spark cannot represent them."""
    is_possible = pc.and_(pc.greater_equal(seconds, 0), pc.less_equal(seconds, SECONDS_MAX))
    kept = pc.if_else(is_possible, seconds, pa.scalar(None, pa.int64()))
    found: Array = pc.cast(pc.multiply(kept, 1_000_000), pa.timestamp("us", "UTC"))
    return found

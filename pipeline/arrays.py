"""The part of pyarrow that writing needs, with types: access to an array's bytes in memory, and grouping of equal rows.

Arrow finds equal rows, column by column, so that Python sees each distinct row once.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar, cast

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.pipeline.arrow import Array, Kind

T = TypeVar("T")
S = TypeVar("S")
T_co = TypeVar("T_co", covariant=True)


class Buffered(Array, Protocol):
    """An array whose buffers in memory can be read."""

    null_count: int
    offset: int
    type: Kind

    def buffers(self) -> list[memoryview[int] | None]: ...


class Encoded(Protocol):
    """A dictionary-encoded array: its distinct values, and the index of each row's value."""

    indices: Array
    dictionary: Array


class Nested(Buffered, Protocol):
    """An array of structs, lists or maps. Attributes that its kind does not have raise AttributeError."""

    offsets: Array
    values: Nested
    keys: Array
    items: Array

    def flatten(self) -> list[Array]: ...


def nulls_in(array: Array) -> int:
    return cast(Buffered, array).null_count


def as_octets(array: Array) -> Array:
    """Return texts or binaries as binaries with narrow offsets. Only an array with wide offsets is copied."""
    found: Array = pc.cast(array, pa.binary())
    return found


def as_whole_numbers(array: Array) -> Array:
    """Return an array as int64; times become microseconds since 1970."""
    found: Array = pc.cast(array, pa.int64())
    return found


def is_time(array: Array) -> bool:
    return bool(pa.types.is_timestamp(cast(Buffered, array).type))


class Octets:
    """Binaries stored one after the other, none of them null."""

    __slots__ = ("_array", "_ends", "_octets")

    def __init__(self, array: Array) -> None:
        self._array = cast(Buffered, array)
        _, ends, octets = self._array.buffers()
        assert ends is not None
        self._ends = memoryview(ends).cast("b").cast("i")[self._array.offset :]
        self._octets = memoryview(b"" if octets is None else octets)

    def lengths(self) -> Array:
        return as_whole_numbers(pc.binary_length(self._array))

    def ends(self, low: int, high: int) -> memoryview[int]:
        """Return 0, then where each of the rows [low, high) ends."""
        buffers = [None, self._array.buffers()[1]]
        count, offset = high - low + 1, self._array.offset + low
        absolute = pa.Array.from_buffers(pa.int32(), count, buffers, offset=offset)
        found: Buffered = pc.subtract(absolute, pa.scalar(self._ends[low], type=pa.int32()))
        (_, octets) = found.buffers()
        assert octets is not None
        return memoryview(octets).cast("b").cast("I")[:count]

    def octets(self, low: int, high: int) -> memoryview[int]:
        """Return the bytes of those rows."""
        return self._octets[self._ends[low] : self._ends[high]]


@attrs.frozen
class Groups(Generic[T_co]):
    """The distinct values of some rows, and the index of each row's value; None: all have the first."""

    which: Array | None
    distinct: Sequence[T_co]

    def within(self, low: int, high: int) -> Groups[T_co]:
        """Return the groups of the rows [low, high)."""
        if self.which is None:
            return self
        encoded = _encoded(self.which.slice(low, high - low))
        return _groups(encoded, [self.distinct[cast(int, at)] for at in encoded.dictionary.to_pylist()])


def _encoded(array: Array) -> Encoded:
    encoded: Encoded = pc.dictionary_encode(array, null_encoding="encode")
    return encoded


def _groups(encoded: Encoded, distinct: Sequence[T]) -> Groups[T]:
    return Groups(as_whole_numbers(encoded.indices) if len(distinct) > 1 else None, distinct)


def grouped(array: Array) -> Groups[object]:
    """Group an array by value. None stands for null."""
    if nulls_in(array) == len(array):
        return Groups(None, [None])
    encoded = _encoded(array)
    return _groups(encoded, encoded.dictionary.to_pylist())


def paired(one: Groups[T], other: Groups[S]) -> Groups[tuple[T, S]]:
    """Group rows by the values of both."""
    if one.which is None:
        return Groups(other.which, [(one.distinct[0], each) for each in other.distinct])
    if other.which is None:
        return Groups(one.which, [(each, other.distinct[0]) for each in one.distinct])
    width = len(other.distinct)
    encoded = _encoded(pc.add(pc.multiply(one.which, width), other.which))
    codes = cast("list[int]", encoded.dictionary.to_pylist())
    pairs = [(one.distinct[code // width], other.distinct[code % width]) for code in codes]
    return _groups(encoded, pairs)


def grouped_structs(array: Array, names: Sequence[str]) -> Groups[tuple[tuple[str, object], ...]]:
    """Group structs by all fields. The most varied comes last, so that a full tuple is made once per distinct row."""
    fields = cast(Nested, array).flatten()
    columns = [grouped(as_whole_numbers(each) if is_time(each) else each) for each in fields]
    order = sorted(range(len(columns)), key=lambda at: len(columns[at].distinct))
    found: Groups[tuple[tuple[str, object], ...]] = Groups(None, [()])
    for at in order:
        both = paired(found, columns[at])
        found = Groups(both.which, [(*before, (names[at], value)) for before, value in both.distinct])
    return found


def grouped_pairs(array: Array) -> Groups[tuple[tuple[object, object], ...] | None]:
    """Group maps, or lists of structs of two fields, by their entries, in order.

    Each list becomes a binary of numbers, one number for each distinct pair, because Arrow can compare binaries.
    """
    nested = cast(Nested, array)
    names, values = (nested.keys, nested.items) if _is_map(nested) else nested.values.flatten()
    pairs = paired(grouped(names), grouped(values))
    codes = pairs.which
    if codes is None:
        codes = pa.repeat(pa.scalar(0, type=pa.int64()), len(names))
    ends: Buffered = pc.multiply(nested.offsets, pa.scalar(8, type=pa.int32()))
    buffers = [None, ends.buffers()[1], cast(Buffered, codes).buffers()[1]]
    lists: Array = pa.Array.from_buffers(pa.binary(), len(array), buffers)
    if nested.null_count:
        lists = pc.if_else(pc.is_null(array), pa.scalar(None, type=pa.binary()), lists)
    encoded = _encoded(lists)
    found = [
        None if each is None else tuple(pairs.distinct[code] for code in memoryview(each).cast("q"))
        for each in cast("list[bytes | None]", encoded.dictionary.to_pylist())
    ]
    return _groups(encoded, found)


def _is_map(array: Nested) -> bool:
    return bool(pa.types.is_map(array.type))


def taken(distinct: Sequence[bytes], which: Array) -> Octets:
    """Return the binaries at these indices."""
    return Octets(pa.array(distinct, type=pa.binary()).take(which))


def lengths_of(groups: Groups[bytes]) -> Array:
    """Return the number of bytes of each row. There must be several distinct values."""
    found: Array = pa.array(list(map(len, groups.distinct)), type=pa.int64()).take(groups.which)
    return found


def running_sum(numbers: Sequence[Array], each: int) -> memoryview[int]:
    """Return the running sum over rows of all these columns, plus `each` for every row."""
    total: Array = pa.scalar(each, type=pa.int64())
    for column in numbers:
        total = pc.add(total, column)
    (_, octets) = cast(Buffered, pc.cumulative_sum(total)).buffers()
    assert octets is not None
    return memoryview(octets).cast("b").cast("q")[: len(numbers[0])]


def as_flags(truths: Array) -> array[int]:
    """Return booleans, none of them null, as bytes that are 0 or 1."""
    (_, octets) = cast(Buffered, pc.cast(truths, pa.uint8())).buffers()
    assert octets is not None
    return array("B", bytes(memoryview(octets)[: len(truths)]))


def as_places(which: Array) -> memoryview[int]:
    """Return indices of groups as 32-bit numbers, as a block stores them."""
    narrow: Buffered = pc.cast(which, pa.uint32())
    (_, octets) = narrow.buffers()
    assert octets is not None
    return memoryview(octets).cast("b").cast("I")[: len(which)]

"""32-bit ids that wrap around to 0 (RFC 1982), and sets of them: decode from bytes and encode.

An id is before another if fewer than 2^31 steps lead from it to the other: "before" orders only ids that are close
together. So a set never reaches further than 2^31 from its first id to its last, and everything within it is ordered.
Internally its ids are counted on beyond 2^32, so that plain comparisons and bisection work.

A peer's set may name 2^31 ids in 8 bytes. It costs what its ranges cost; its ids must not be iterated over before
`within` has cut it down to ids that exist.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from operator import le, sub
from typing import Final, TypeAlias

from leveret.protocols.amqp010.codec.values import MalformedError

Id: TypeAlias = int  # 0..2^32-1

MASK: Final = 0xFFFF_FFFF
HALF: Final = 0x8000_0000
SIZE_OF_ID: Final = 4  # bytes
RANGE_SIZE: Final = 2 * SIZE_OF_ID
FEW: Final = 8  # ranges; more are merged in one pass, unless the set that they join has far more
RANGES_MAX: Final = 0xFFFF // RANGE_SIZE  # as many as the 16 bits of the size can express

SIZE: Final = struct.Struct(">H")
ONE_RANGE: Final = struct.Struct(">HII")


def following(id: Id) -> Id:
    return (id + 1) & MASK


def preceding(id: Id) -> Id:
    return (id - 1) & MASK


def distance(a: Id, b: Id) -> int:
    """Return how many steps lead from a to b, from -2^31 to 2^31-1; negative if b is before a."""
    return ((b - a + HALF) & MASK) - HALF


def is_before(a: Id, b: Id) -> bool:
    """Return whether a < b by RFC 1982. Of two ids that are 2^31 apart neither is before the other."""
    return 0 < (b - a) & MASK < HALF


class SequenceSet:
    """Ids as ranges, merged and in order. A query costs O(log ranges), a change at most O(ranges), at the end O(1).

    Ranges are given as (lower, upper), both inclusive. ValueError is raised for a range that is inverted, or too far
    from the others.
    """

    __slots__ = ("_highs", "_lows")

    def __init__(self) -> None:
        self._lows: list[int] = []  # the first is an id, perhaps plus a multiple of 2^32; the others count on
        self._highs: list[int] = []

    @classmethod
    def of(cls, *ranges: tuple[Id, Id]) -> SequenceSet:
        made = cls()
        for lower, upper in ranges:
            made.add_range(lower, upper)
        return made

    @classmethod
    def of_range(cls, lower: Id, upper: Id) -> SequenceSet:
        length = (upper - lower) & MASK
        if length >= HALF:
            raise ValueError(f"the range {lower}-{upper} is inverted")
        return cls._made([lower], [lower + length])

    @classmethod
    def _made(cls, lows: list[int], highs: list[int]) -> SequenceSet:
        made = cls.__new__(cls)
        made._lows = lows
        made._highs = highs
        return made

    # Queries.

    def __bool__(self) -> bool:
        return bool(self._lows)

    def __contains__(self, id: Id) -> bool:
        if not self._lows:
            return False
        place = self._place(id)
        index = bisect_right(self._lows, place) - 1
        return index >= 0 and place <= self._highs[index]

    def __iter__(self) -> Iterator[Id]:
        """Yield every id. A peer's set must have been cut down with `within` before."""
        for low, high in zip(self._lows, self._highs, strict=True):
            for place in range(low, high + 1):
                yield place & MASK

    def __eq__(self, other: object) -> bool:
        return self.ranges == other.ranges if isinstance(other, SequenceSet) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # it changes

    def __repr__(self) -> str:
        return f"SequenceSet.of({', '.join(map(str, self.ranges))})"

    @property
    def ranges(self) -> list[tuple[Id, Id]]:
        return [(low & MASK, high & MASK) for low, high in zip(self._lows, self._highs, strict=True)]

    @property
    def range_count(self) -> int:
        return len(self._lows)

    @property
    def count(self) -> int:
        """The number of ids."""
        return sum(self._highs) - sum(self._lows) + len(self._lows)

    @property
    def first(self) -> Id:
        """The id that all others come after. Raises IndexError if the set is empty."""
        return self._lows[0] & MASK

    @property
    def first_range(self) -> tuple[Id, Id]:
        """The first range. Raises IndexError if the set is empty."""
        return self._lows[0] & MASK, self._highs[0] & MASK

    @property
    def last(self) -> Id:
        return self._highs[-1] & MASK

    def copy(self) -> SequenceSet:
        return SequenceSet._made(self._lows.copy(), self._highs.copy())

    def within(self, lower: Id, upper: Id) -> SequenceSet:
        """Return the ids that are also in that range."""
        if not self._lows:
            return SequenceSet()
        low, high = self._places(lower, upper)
        start = bisect_left(self._highs, low)
        end = bisect_right(self._lows, high)
        lows, highs = self._lows[start:end], self._highs[start:end]
        if lows:
            lows[0] = max(lows[0], low)
            highs[-1] = min(highs[-1], high)
        return SequenceSet._made(lows, highs)

    def without(self, other: SequenceSet) -> SequenceSet:
        """Return the ids that are not in the other set. Takes O(ranges of this set, times the logarithm of those of the
        other, plus the ranges of the other that lie within)."""
        if not self._lows or not other._lows:
            return self.copy()
        shift = self._place(other.first) - other._lows[0]
        hole_lows, hole_highs = other._lows, other._highs
        lows: list[int] = []
        highs: list[int] = []
        for low, high in zip(self._lows, self._highs, strict=True):
            start = low
            index = bisect_left(hole_highs, low - shift)
            while index < len(hole_lows) and hole_lows[index] + shift <= high:
                if start < hole_lows[index] + shift:
                    lows.append(start)
                    highs.append(hole_lows[index] + shift - 1)
                start = hole_highs[index] + shift + 1
                index += 1
            if start <= high:
                lows.append(start)
                highs.append(high)
        return SequenceSet._made(lows, highs)

    # Changes.

    def add(self, id: Id) -> None:
        highs = self._highs
        if highs and id == (highs[-1] + 1) & MASK and highs[-1] + 1 - self._lows[0] < HALF:
            highs[-1] += 1
        else:
            self.add_range(id, id)

    def add_range(self, lower: Id, upper: Id) -> None:
        low, high = self._places(lower, upper)
        lows, highs = self._lows, self._highs
        if lows and max(high, highs[-1]) - min(low, lows[0]) >= HALF:
            raise ValueError(f"{lower}-{upper} is too far from {self.first}-{self.last}")
        start = bisect_left(highs, low - 1)  # the first range that it touches; `end` is the first beyond
        end = bisect_right(lows, high + 1)
        if start < end:
            low = min(low, lows[start])
            high = max(high, highs[end - 1])
        lows[start:end] = [low]
        highs[start:end] = [high]

    def update(self, other: SequenceSet) -> None:
        """Add the ids of the other set. Takes O(ranges of both), and far less if the other has few ranges."""
        if other.range_count <= FEW + len(self._lows) // 32:
            for lower, upper in other.ranges:
                self.add_range(lower, upper)
        elif not self._lows:
            self._lows, self._highs = other._lows.copy(), other._highs.copy()
        else:
            self._merge(other)

    def _merge(self, other: SequenceSet) -> None:
        shift = self._place(other.first) - other._lows[0]
        if (
            max(self._highs[-1], other._highs[-1] + shift) - min(self._lows[0], other._lows[0] + shift)
            >= HALF
        ):
            raise ValueError(f"{other.first}-{other.last} is too far from {self.first}-{self.last}")
        theirs = [(low + shift, high + shift) for low, high in zip(other._lows, other._highs, strict=True)]
        lows: list[int] = []
        highs: list[int] = []
        # Two ascending runs: sorting them is linear.
        for low, high in sorted([*zip(self._lows, self._highs, strict=True), *theirs]):
            if highs and low <= highs[-1] + 1:
                highs[-1] = max(highs[-1], high)
            else:
                lows.append(low)
                highs.append(high)
        self._lows, self._highs = lows, highs

    def discard_until(self, id: Id) -> None:
        """Drop the ids before `id`."""
        if not self._lows:
            return
        place = self._place(id)
        end = bisect_left(self._highs, place)
        del self._lows[:end], self._highs[:end]
        if self._lows and self._lows[0] < place:
            self._lows[0] = place

    # Encoding.

    def encode(self) -> bytes:
        """Return the set with its 16-bit size. Raises ValueError if it has more than RANGES_MAX ranges."""
        lows, highs = self._lows, self._highs
        if len(lows) == 1:
            return ONE_RANGE.pack(RANGE_SIZE, lows[0] & MASK, highs[0] & MASK)
        if len(lows) > RANGES_MAX:
            raise ValueError(f"{len(lows)} ranges are more than a sequence-set has room for")
        bounds = [bound for bounds in self.ranges for bound in bounds]
        return struct.pack(f">H{len(bounds)}I", RANGE_SIZE * len(lows), *bounds)

    def beginning(self, ranges: int) -> SequenceSet:
        """Return the ids of the first `ranges` ranges."""
        return SequenceSet._made(self._lows[:ranges], self._highs[:ranges])

    def _place(self, id: Id) -> int:
        """Return the number that stands for an id in this set, near those of the set."""
        if not self._lows:
            return id
        origin = self._lows[0]
        return origin + ((id - origin + HALF) & MASK) - HALF

    def _places(self, lower: Id, upper: Id) -> tuple[int, int]:
        size = (upper - lower) & MASK
        if size >= HALF:
            raise ValueError(f"the range {lower}-{upper} is inverted")
        low = self._place(lower)
        return low, low + size


def sequence_set_at(data: bytes, at: int, end: int) -> tuple[SequenceSet, int]:
    """Read a set and return it with the offset after it. Raises MalformedError if it is cut off, or its ranges do not
    ascend or overlap."""
    if at + SIZE.size > end:
        raise MalformedError("a sequence-set without its size")
    (size,) = SIZE.unpack_from(data, at)
    at += SIZE.size
    if size % RANGE_SIZE or at + size > end:
        raise MalformedError(f"a sequence-set of {size} octets")
    if size > FEW * RANGE_SIZE and (plain := _plain_at(data, at, size)) is not None:
        return plain, at + size
    lows: list[int] = []
    highs: list[int] = []
    high = -1
    for lower, upper in struct.iter_unpack(">II", memoryview(data)[at : at + size]):
        low = high + ((lower - high) & MASK) if lows else lower
        length = (upper - lower) & MASK
        if length >= HALF or low == high or low + length - (lows[0] if lows else low) >= HALF:
            raise MalformedError(f"the range {lower}-{upper} of a sequence-set is inverted or out of order")
        if lows and low == high + 1:
            highs[-1] = low + length
        else:
            lows.append(low)
            highs.append(low + length)
        high = low + length
    return SequenceSet._made(lows, highs), at + size


def _plain_at(data: bytes, at: int, size: int) -> SequenceSet | None:
    """Return a set whose ranges ascend, do not touch, and do not pass 2^32; None if they are not like that.

    A peer may send 8191 ranges at a time, and this takes a fifth of the time of going through them one by one.
    """
    bounds = struct.unpack_from(f">{size // SIZE_OF_ID}I", data, at)
    lows, highs = list(bounds[::2]), list(bounds[1::2])
    if highs[-1] - lows[0] >= HALF or not all(map(le, lows, highs)):
        return None
    if min(map(sub, lows[1:], highs)) <= 1:
        return None
    return SequenceSet._made(lows, highs)

"""Count deliveries by strides: parse one delivery, and compare those behind it with it in columns.

Deliveries of one queue mostly have one size, and so the bytes that tell what they are lie one size apart. If each of
these columns holds the same byte as many times as there are deliveries, they are alike: 20 ns each in plain Python.
Anything different (another size, another frame) is parsed again; runs are searched in galloping lengths, so that
traffic of mixed sizes costs no more than parsing each.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

import attrs

from leveret.perf.block import HEAD, LITTLE, STAMP

ALIKE: Final = 8  # how many more are compared after a delivery without alike ones


@attrs.frozen
class Shape:
    """The layout of a delivery or, with 1.0, of one frame of it.

    `checked` are the places of bytes that alike deliveries share; `whole`: it is a whole delivery; `ends`: a delivery
    ends with it. A continuation has no body of its own: 0.
    """

    size: int
    channel_at: int
    body_at: int
    body_size: int
    checked: tuple[int, ...]
    whole: bool = True
    ends: bool = True


class Run:
    """A run of alike deliveries in the inbox, valid until more is read into it."""

    __slots__ = ("_at", "_octets", "count", "shape")

    def __init__(self, octets: bytearray, at: int, count: int, shape: Shape) -> None:
        self._octets = octets
        self._at = at
        self.count = count
        self.shape = shape

    def first(self) -> int:
        """Return the first byte, which all share."""
        return self._octets[self._at]

    def channels(self) -> array[int]:
        return self.two_bytes(self.shape.channel_at)

    def two_bytes(self, at: int) -> array[int]:
        """Return the numbers of two bytes, big endian, at this place of each."""
        return self._numbers("H", at, 2, LITTLE)

    def stamps(self) -> array[int] | None:
        """Return the times in the bodies, if these are long enough."""
        if self.shape.body_size < STAMP:
            return None
        return self._numbers("Q", self.shape.body_at, 8, not LITTLE)

    def publishers(self) -> array[int]:
        """Return the publishers' numbers, from bodies with a whole head."""
        return self._numbers("I", self.shape.body_at + STAMP, 4, not LITTLE)

    def numbers(self) -> array[int] | None:
        if self.shape.body_size < HEAD:
            return None
        return self._numbers("Q", self.shape.body_at + HEAD - 8, 8, not LITTLE)

    def _numbers(self, kind: str, at: int, width: int, swap: bool) -> array[int]:
        found = bytearray(width * self.count)
        step = self.shape.size
        for octet in range(width):
            start = self._at + at + octet
            found[octet::width] = self._octets[start : start + (self.count - 1) * step + 1 : step]
        numbers = array(kind, bytes(found))
        if swap:
            numbers.byteswap()
        return numbers


class Strides:
    """A search for runs of alike deliveries.

    `shape_at(octets, at, end)` returns the shape of the delivery at `at`; or the size of another frame, which it has
    handled; or 0 if the frame is incomplete.
    """

    __slots__ = ("_on_run", "_shape_at", "_so_many")

    def __init__(
        self, shape_at: Callable[[bytearray, int, int], Shape | int], on_run: Callable[[Run], None]
    ) -> None:
        self._shape_at = shape_at
        self._on_run = on_run
        self._so_many = ALIKE

    def take(self, octets: bytearray, end: int) -> int:
        """Handle complete frames and return how many bytes they were."""
        at = 0
        while at < end:
            shape = self._shape_at(octets, at, end)
            if isinstance(shape, int):
                if not shape:
                    break
                at += shape
                continue
            looked_at = min((end - at) // shape.size, self._so_many) if shape.whole else 1
            count = alike(octets, at, looked_at, shape) if looked_at > 1 else 1
            if count < looked_at:
                self._so_many = max(ALIKE, count)
            elif count == self._so_many:
                self._so_many = 2 * count
            self._on_run(Run(octets, at, count, shape))
            at += count * shape.size
        return at


def alike(octets: bytearray, at: int, count: int, shape: Shape) -> int:
    """Return how many of `count` deliveries are like the first, which has this shape."""
    step = shape.size
    for place in shape.checked:
        start = at + place
        column = octets[start : start + (count - 1) * step + 1 : step]
        count -= len(column.lstrip(column[:1]))
    return count

"""What a broker delivers, counted by strides: one delivery is read with care, the alike ones behind it in columns.

Deliveries of one queue mostly have one size, and so the octets that say what they are lie one size apart. If each of
these columns holds the same octet as many times as there are deliveries, so many are there: 20 ns each in plain Python.
What is different (another size, another frame) is read with care again; runs are looked for in galloping lengths, so
that traffic of mixed sizes costs no more than reading each.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from typing import Final

import attrs

from perf.block import HEAD, LITTLE, STAMP

ALIKE: Final = 8  # how many more are looked at, after one that stood alone


@attrs.frozen
class Shape:
    """A delivery, or with 1.0 a frame of one. `checked`: where the octets are that those alike have, too;
    `whole`: a delivery begins and ends with it; `ends`: one ends. A frame that goes on has no body of its own: 0."""

    size: int
    channel_at: int
    body_at: int
    body_size: int
    checked: tuple[int, ...]
    whole: bool = True
    ends: bool = True


class Run:
    """Deliveries alike, and where they are, until the next octets are read."""

    __slots__ = ("_at", "_octets", "count", "shape")

    def __init__(self, octets: bytearray, at: int, count: int, shape: Shape) -> None:
        self._octets = octets
        self._at = at
        self.count = count
        self.shape = shape

    def channels(self) -> array[int]:
        return self._numbers("H", self.shape.channel_at, 2, LITTLE)

    def stamps(self) -> array[int] | None:
        """The times in the bodies, if there is room for such."""
        if self.shape.body_size < STAMP:
            return None
        return self._numbers("Q", self.shape.body_at, 8, not LITTLE)

    def publishers(self) -> array[int]:
        """Of bodies that have a whole head."""
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
    """Takes octets, tells runs. `shape_at(octets, at, end)`: of the delivery that begins there; or how many octets
    something else has that it has dealt with, 0 being that it is not complete."""

    __slots__ = ("_on_run", "_shape_at", "_so_many")

    def __init__(
        self, shape_at: Callable[[bytearray, int, int], Shape | int], on_run: Callable[[Run], None]
    ) -> None:
        self._shape_at = shape_at
        self._on_run = on_run
        self._so_many = ALIKE

    def take(self, octets: bytearray, end: int) -> int:
        """How many octets were whole frames."""
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
    """How many of so many, the first being of this shape, are like it."""
    step = shape.size
    for place in shape.checked:
        start = at + place
        column = octets[start : start + (count - 1) * step + 1 : step]
        count -= len(column.lstrip(column[:1]))
    return count

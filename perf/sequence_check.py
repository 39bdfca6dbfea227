"""Check the messages of each publisher for losses, duplicates and changes of order."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Mapping
from typing import Final

AHEAD_MAX: Final = 1 << 28  # no publisher sends as many: a number beyond is not ours


class SequenceCheck:
    """The messages that came out of one queue to one consumer, with a byte as flag for each."""

    __slots__ = ("_flags", "_latest", "doubled", "reordered")

    def __init__(self) -> None:
        self._flags: dict[int, bytearray] = {}  # by publisher
        self._latest: dict[int, int] = {}  # the next number that is in order
        self.doubled = 0
        self.reordered = 0

    def add_run(self, publishers: array[int], numbers: array[int]) -> None:
        """Add a run, which mostly has consecutive numbers of one publisher."""
        publisher, first, count = publishers[0], numbers[0], len(numbers)
        expected = self._latest.get(publisher, 0)
        if (
            first >= expected
            and publishers.count(publisher) == count
            and numbers[-1] == first + count - 1
            and numbers == array("Q", range(first, first + count))
            and first + count < AHEAD_MAX
        ):
            flags = self._room(publisher, first + count)
            flags[first : first + count] = b"\1" * count
            self._latest[publisher] = first + count
            return
        for publisher, number in zip(publishers, numbers, strict=True):
            self.add(publisher, number)

    def add(self, publisher: int, number: int) -> None:
        if number >= AHEAD_MAX:
            return
        flags = self._room(publisher, number + 1)
        latest = self._latest.get(publisher, 0)
        if flags[number]:
            self.doubled += 1
        elif number < latest:
            self.reordered += 1
        flags[number] = 1
        self._latest[publisher] = max(latest, number + 1)

    def _room(self, publisher: int, size: int) -> bytearray:
        flags = self._flags.setdefault(publisher, bytearray())
        if len(flags) < size:
            flags.extend(bytes(size - len(flags)))
        return flags

    def packed(self) -> tuple[dict[int, bytes], int, int]:
        """Return the flags in a form that is sent to the process that sums up."""
        flags = {publisher: zlib.compress(flags, 1) for publisher, flags in self._flags.items()}
        return flags, self.doubled, self.reordered


class Account:
    """The messages that came out of one queue to any consumer."""

    def __init__(self) -> None:
        self._flags: dict[int, int] = {}  # by publisher: the flags as one number
        self.doubled = 0
        self.reordered = 0

    def add(self, packed: tuple[Mapping[int, bytes], int, int]) -> None:
        flags, doubled, reordered = packed
        self.doubled += doubled
        self.reordered += reordered
        for publisher, octets in flags.items():
            came = int.from_bytes(zlib.decompress(octets), "little")
            before = self._flags.get(publisher, 0)
            self.doubled += (came & before).bit_count()
            self._flags[publisher] = came | before

    def lost(self, sent: Mapping[int, int]) -> int:
        """Return how many are missing of the messages that each publisher sent, without refused ones."""
        return sum(count - self._flags.get(publisher, 0).bit_count() for publisher, count in sent.items())

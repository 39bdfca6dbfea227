"""The state of a chunk tells which of its entries are still needed: one bit for each, and some hundred bytes."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

RUN_MIN: Final = 8  # entries; more than that are settled together if they are consecutive


class ChunkState:
    """The entries of one chunk, and which of them are settled."""

    __slots__ = ("bits", "damaged", "first", "last", "live", "numbers", "octets", "poor", "volatile")

    def __init__(self, first: int, numbers: Sequence[int], octets: int, volatile: bool = False) -> None:
        self.first = first
        self.numbers = numbers  # of its entries, ascending
        self.last = numbers[-1]
        self.live = len(numbers)
        self.octets = octets  # bytes of its messages
        self.bits = bytearray((len(numbers) + 7) >> 3)  # 1: settled; by index of the entry
        self.volatile = volatile  # not to be recovered
        self.damaged = False  # it cannot be rewritten
        self.poor = False  # small, or sparse; set by `Chunks`

    def settle(self, numbers: Sequence[int]) -> int:
        """Settle entries of this chunk, by ascending numbers. Return how many were live before."""
        places = self._run_of(numbers) if len(numbers) > RUN_MIN else None
        if places is not None:
            settled = self._settle_run(places.start, len(places))  # usual; 20 ns an entry rather than 200
        else:
            settled = self._settle_each(self._places(numbers))
        self.live -= settled
        return settled

    def _run_of(self, numbers: Sequence[int]) -> range | None:
        """Return the indexes of entries in the chunk, if all are there and consecutive; else None."""
        known, first, last = self.numbers, numbers[0], numbers[-1]
        if not isinstance(known, range) or first < known.start or last >= known.stop:
            return None
        if last - first != len(numbers) - 1 or numbers != list(range(first, last + 1)):
            return None
        return range(first - known.start, last + 1 - known.start)

    def _places(self, numbers: Sequence[int]) -> list[int]:
        """Return the indexes of entries in the chunk; those that are not there are left out."""
        known = self.numbers
        if isinstance(known, range):
            start, stop = known.start, known.stop
            return [number - start for number in numbers if start <= number < stop]
        places = [bisect_left(known, number) for number in numbers]
        return [
            place
            for place, number in zip(places, numbers, strict=True)
            if place < len(known) and known[place] == number
        ]

    def _settle_run(self, first: int, count: int) -> int:
        bits = self.bits
        before = int.from_bytes(bits, "little")
        after = before | ((1 << count) - 1) << first
        bits[:] = after.to_bytes(len(bits), "little")
        return (after ^ before).bit_count()

    def _settle_each(self, places: Iterable[int]) -> int:
        bits = self.bits
        settled = 0
        for place in places:
            bit = 1 << (place & 7)
            if not bits[place >> 3] & bit:
                bits[place >> 3] |= bit
                settled += 1
        return settled

    def settle_between(self, start: int, stop: int) -> int:
        """Settle all entries from `start` up to `stop`, exclusive. Return how many were live before."""
        numbers = self.numbers
        if isinstance(numbers, range):
            begin, end = max(start - numbers.start, 0), min(stop - numbers.start, len(numbers))
        else:
            begin, end = bisect_left(numbers, start), bisect_left(numbers, stop)
        settled = self._settle_run(begin, end - begin) if begin < end else 0
        self.live -= settled
        return settled

    def restore_bits(self, bits: bytes) -> None:
        """Set the bits as the store has them; empty: no entry is settled."""
        if len(bits) == len(self.bits):
            self.bits[:] = bits
            self.live = len(self.numbers) - int.from_bytes(bits).bit_count()

    def live_places(self) -> Sequence[int]:
        """Return the indexes of the live entries."""
        if self.live == len(self.numbers):
            return range(len(self.numbers))
        bits = self.bits
        return [at for at in range(len(self.numbers)) if not bits[at >> 3] & 1 << (at & 7)]

    def needed(self) -> array[int]:
        """Return the numbers of the live entries."""
        return array("Q", map(self.numbers.__getitem__, self.live_places()))

    def needs(self, number: int) -> bool:
        """Return whether an entry is in this chunk, and live."""
        places = self._places([number])
        return bool(places) and not self.bits[places[0] >> 3] & 1 << (places[0] & 7)

    @property
    def live_octets(self) -> int:
        """Return roughly the bytes of the messages of live entries."""
        return self.octets * self.live // len(self.numbers)

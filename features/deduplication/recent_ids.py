"""The ids that were seen last, bounded in number and by age.

    add ──> slots, one after the other, oldest first: digest, the end of its time, kept or not    24 bytes
        └─> a table from the digest to the number of its slot (`digest_table.py`)                 30 bytes

Slots are numbered from 0 on without gaps, and are dropped from the oldest on: those beyond the size at once, so that
the bound is exact, and expired ones a few with each id that is added. So every call costs the same, whatever expires
at once. An id that has expired counts as unknown even while its slot is there. If it comes again, it gets a new slot.
"""

from __future__ import annotations

from typing import Final

from leveret.features.deduplication.digest_table import ABSENT, NUMBER_OCTETS, DigestTable
from leveret.features.deduplication.digests import DIGEST_OCTETS

SLOT_OCTETS: Final = DIGEST_OCTETS + NUMBER_OCTETS
PIECE_SLOTS: Final = 1024
VOID: Final = bytes(SLOT_OCTETS)  # a slot that was lost: it is the place of an id that was not kept
DROPPED_TOGETHER: Final = 4  # slots, with each id that is added
FOR_EVER: Final = 0  # the end of the time of an id that does not expire


class RecentIds:
    """The last ids, at most `size`. Times are in milliseconds, of one clock that the caller chooses."""

    __slots__ = ("_open", "_pieces", "_table", "first", "next", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.first = 0  # number of the oldest slot
        self.next = 0  # of the next one
        self._table = DigestTable()
        self._pieces: dict[int, bytes] = {}  # full pieces, by the number of their first slot
        self._open = bytearray()  # the last piece

    @property
    def count(self) -> int:
        """Return how many ids are known, with those that have expired and still have a slot."""
        return self._table.count

    def has(self, digest: bytes, now_ms: int) -> bool:
        """Return whether an id is known."""
        number = self._table.number_of(digest)
        if number == ABSENT:
            return False
        end_ms = self.end_of(number)
        return end_ms == FOR_EVER or end_ms > now_ms

    def add(self, digest: bytes, end_ms: int, now_ms: int, kept: bool) -> int:
        """Add an id that `has` does not know, until `end_ms`; `kept`: on disk, too. Return the number of its slot."""
        number = self.next
        self._append(digest, end_ms, kept)
        self._table.put(digest, number)
        self.drop(now_ms, DROPPED_TOGETHER)
        return number

    def drop(self, now_ms: int, most: int) -> None:
        """Drop up to so many of the oldest slots, if they have expired or are beyond the size."""
        while most > 0 and self.first < self.next:
            if self.next - self.first <= self.size:
                end_ms = self.end_of(self.first)
                if end_ms == FOR_EVER or end_ms > now_ms:
                    return
            self._drop_first()
            most -= 1

    def clear(self) -> None:
        """Forget all ids. Numbers go on."""
        self._table = DigestTable()
        self._pieces.clear()
        self.begin_at(self.next)

    def begin_at(self, number: int) -> None:
        """Give the next slot this number. Called while there is none."""
        self.first = self.next = number
        self._open = bytearray(VOID * (number % PIECE_SLOTS))

    def begin_after(self, number: int) -> None:
        """Give no number up to this one again, if there are no ids at all."""
        if self.next <= number:
            self.begin_at(number + 1)

    def end_of(self, number: int) -> int:
        """Return the end of the time of the id in a slot."""
        return int.from_bytes(self._slot(number)[DIGEST_OCTETS:], "little") >> 1

    def is_kept(self, number: int) -> bool:
        """Return whether the id in a slot is on disk, too."""
        return bool(self._slot(number)[DIGEST_OCTETS] & 1)

    def octets(self) -> int:
        """Return roughly the bytes of memory that are needed."""
        return self._table.octets() + SLOT_OCTETS * (self.next - self.first) + 120 * len(self._pieces)

    # For the disk.

    @property
    def buckets(self) -> int:
        """Return the number of parts in which `bucket` tells all ids."""
        return self._table.buckets

    def bucket(self, place: int) -> bytes:
        """Return digests and numbers, one after the other, of one part."""
        return self._table.bucket(place)

    def take_back(self, number: int, end_ms: int, digest: bytes) -> None:
        """Add an id with the number that it had before a restart. Called in the order of numbers."""
        if self.first == self.next:
            self.begin_at(number)
        while self.next < number:
            self._append_slot(VOID)
        self._append(digest, end_ms, True)
        self._table.put(digest, number)

    # Slots.

    def _append(self, digest: bytes, end_ms: int, kept: bool) -> None:
        self._append_slot(digest + (end_ms * 2 + kept).to_bytes(NUMBER_OCTETS, "little"))

    def _append_slot(self, slot: bytes) -> None:
        self._open += slot
        self.next += 1
        if self.next % PIECE_SLOTS == 0:
            self._pieces[self.next - PIECE_SLOTS] = bytes(self._open)
            self._open = bytearray()

    def _slot(self, number: int) -> bytes:
        place = number % PIECE_SLOTS
        at = place * SLOT_OCTETS
        piece = self._pieces.get(number - place)
        return bytes(self._open[at : at + SLOT_OCTETS]) if piece is None else piece[at : at + SLOT_OCTETS]

    def _drop_first(self) -> None:
        number = self.first
        slot = self._slot(number)
        if slot != VOID:
            self._table.remove(slot[:DIGEST_OCTETS], number)  # unless the id came again since
        self.first = number + 1
        if self.first % PIECE_SLOTS == 0:
            self._pieces.pop(number + 1 - PIECE_SLOTS, None)

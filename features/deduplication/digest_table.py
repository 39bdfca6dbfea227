"""A table from digests to numbers that needs some 30 bytes an entry, and never stands still to grow.

    digest ── its first bytes ──> bucket: records one after the other, found by `bytes.find`

This is linear hashing: whenever the table has more than `LOAD` entries a bucket, the next bucket in turn is split, and
no other is touched. So each change costs the same however large the table is; a dictionary would copy all of its
entries at once when it grows, and take three times the memory. A record is the digest and the number, 24 bytes; a
bucket is an immutable string of bytes, which Python stores without reserve: changing one copies 200 bytes, in 50 ns.
"""

from __future__ import annotations

from typing import Final

from leveret.features.deduplication.digests import DIGEST_OCTETS

NUMBER_OCTETS: Final = 8
RECORD_OCTETS: Final = DIGEST_OCTETS + NUMBER_OCTETS
LOAD: Final = 9  # entries a bucket on average; before its split a bucket has up to twice as many: 0.5 KiB
PLACE_OCTETS: Final = 7  # of the digest: an integer of so many bytes is a machine word
ABSENT: Final = -1


class DigestTable:
    """A mapping from digests to whole numbers, from 0 to 2^62."""

    __slots__ = ("_buckets", "_half", "_split", "count")

    def __init__(self) -> None:
        self.count = 0
        self._buckets: list[bytes] = [b""]
        self._half = 1  # buckets when this round of splitting began: a power of two
        self._split = 0  # the bucket that is split next

    def number_of(self, digest: bytes) -> int:
        """Return the number of a digest; `ABSENT` if it is not there."""
        bucket = self._buckets[self._place(digest)]
        at = found_in(bucket, digest)
        return ABSENT if at < 0 else number_at(bucket, at)

    def put(self, digest: bytes, number: int) -> None:
        """Add a digest, or give it another number."""
        place = self._place(digest)
        bucket = self._buckets[place]
        at = found_in(bucket, digest)
        record = digest + number.to_bytes(NUMBER_OCTETS, "little")
        if at >= 0:
            self._buckets[place] = bucket[:at] + record + bucket[at + RECORD_OCTETS :]
            return
        self._buckets[place] = bucket + record
        self.count += 1
        if self.count > LOAD * len(self._buckets):
            self._split_next()

    def remove(self, digest: bytes, number: int) -> bool:
        """Remove a digest that has this number. Return whether it had."""
        place = self._place(digest)
        bucket = self._buckets[place]
        at = found_in(bucket, digest)
        if at < 0 or number_at(bucket, at) != number:
            return False
        self._buckets[place] = bucket[:at] + bucket[at + RECORD_OCTETS :]
        self.count -= 1
        return True

    @property
    def buckets(self) -> int:
        """Return the number of buckets, to go through with `bucket`. It only grows."""
        return len(self._buckets)

    def bucket(self, place: int) -> bytes:
        """Return the records of a bucket. A split moves records to higher places, where they are still to come."""
        return self._buckets[place]

    def octets(self) -> int:
        """Return roughly the bytes of memory that the table needs."""
        return RECORD_OCTETS * self.count + 49 * len(self._buckets)

    def _place(self, digest: bytes) -> int:
        hashed = int.from_bytes(digest[:PLACE_OCTETS], "little")
        place = hashed & (self._half - 1)
        return place if place >= self._split else hashed & (2 * self._half - 1)

    def _split_next(self) -> None:
        """Move those records of the next bucket to a new one that belong there."""
        bucket = self._buckets[self._split]
        stays: list[bytes] = []
        goes: list[bytes] = []
        for at in range(0, len(bucket), RECORD_OCTETS):
            record = bucket[at : at + RECORD_OCTETS]
            hashed = int.from_bytes(record[:PLACE_OCTETS], "little")
            if hashed & self._half:
                goes.append(record)
            else:
                stays.append(record)
        self._buckets[self._split] = b"".join(stays)
        self._buckets.append(b"".join(goes))
        self._split += 1
        if self._split == self._half:
            self._half *= 2
            self._split = 0


def found_in(bucket: bytes, digest: bytes) -> int:
    """Return where the record of a digest begins; -1 if there is none."""
    at = bucket.find(digest)
    while at >= 0 and at % RECORD_OCTETS:  # by chance, across two records
        at = bucket.find(digest, at + 1)
    return at


def number_at(bucket: bytes, at: int) -> int:
    """Return the number in the record that begins there."""
    return int.from_bytes(bucket[at + DIGEST_OCTETS : at + RECORD_OCTETS], "little")

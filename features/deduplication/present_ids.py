"""The ids of the messages that are in a queue now, waiting or with consumers.

    enters ──> digest: the message's place in the queue      leaves ──> gone, if it is still that message's

There is no bound but the queue's own. On disk nothing says that an id has left: its record has the place, and after a
restart the id is known if there is a message at that place.
"""

from __future__ import annotations

from leveret.features.deduplication.digest_table import ABSENT, DigestTable
from leveret.features.deduplication.recent_ids import FOR_EVER


class PresentIds:
    """A table of the ids in a queue. The number of an id is twice its message's place, and one more if it is stored."""

    __slots__ = ("_table",)

    def __init__(self) -> None:
        self._table = DigestTable()

    @property
    def count(self) -> int:
        return self._table.count

    def has(self, digest: bytes) -> bool:
        """Return whether a message with this id is there."""
        return self._table.number_of(digest) != ABSENT

    def add(self, digest: bytes, place: int, kept: bool) -> int:
        """Add the id of a message; `kept`: it is on disk, too. Return its number."""
        number = place * 2 + kept
        self._table.put(digest, number)
        return number

    def remove(self, digest: bytes, place: int) -> None:
        """Remove an id, unless it belongs to another message now."""
        if self._table.number_of(digest) >> 1 == place:
            self._table.remove(digest, self._table.number_of(digest))

    def clear(self) -> None:
        """Forget all ids."""
        self._table = DigestTable()

    def octets(self) -> int:
        """Return roughly the bytes of memory that are needed."""
        return self._table.octets()

    # For the disk.

    @property
    def buckets(self) -> int:
        return self._table.buckets

    def bucket(self, place: int) -> bytes:
        return self._table.bucket(place)

    def end_of(self, number: int) -> int:
        return FOR_EVER

    def is_kept(self, number: int) -> bool:
        return bool(number & 1)

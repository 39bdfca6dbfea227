"""The ids on disk that an exchange or a queue knows for its deduplication: a log like a stream's.

    keep ──> new ids ──the commit is closed──> a batch of records: one message of the log
    much of the log is out of date ──> a sweep writes all known ids once more, and what is before them is dropped

A record has 32 bytes: the number, the end of the id's time in ms since 1970 (0: none), and the digest, in an order in
which they can be sorted. The log is in the commit that has the ids' messages: after a crash an id is there if and only
if its message is, or was. It never has much more than three times the records of the ids that are known: each commit
that adds some sweeps twice as many, so that a sweep costs every commit the same, and nothing is read for it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, Final

from leveret.durable.segment_log import SegmentLog
from leveret.features.deduplication.digest_table import RECORD_OCTETS, number_at
from leveret.features.deduplication.digests import DIGEST_OCTETS
from leveret.message import Encoding, Message
from leveret.values import Properties, Table

if TYPE_CHECKING:
    from leveret.durable.journal import Journal
    from leveret.durable.store.contract import Append, Reader, Span
    from leveret.features.deduplication.present_ids import PresentIds
    from leveret.features.deduplication.recent_ids import RecentIds

log: Final = logging.getLogger("leveret.store")

RECORD: Final = Struct(f">QQ{DIGEST_OCTETS}s")  # number, end in ms, digest
BATCH_RECORDS: Final = 2048  # of one message of the log
SLACK_OCTETS: Final = 64 << 10  # of a log, below which there is no sweep
SWEPT_LEAST: Final = 256  # records that a commit sweeps, at least
CLEARED: Final = "cleared"  # a note: ids with numbers below it are forgotten
CONFIRMED: Final = "confirmed"  # a note that is written so that confirms wait for the commit that has it


class IdEncoding(Encoding):
    """The encoding of batches of records, which no client has published."""

    name = "ids"

    def headers(self, properties: bytes) -> Table:
        return {}

    def read(self, properties: bytes) -> Properties:
        return Properties()

    def write(self, properties: Properties) -> bytes:
        return b""


ENCODING: Final = IdEncoding()


class IdLog(SegmentLog):
    """The log of the ids of one exchange or queue. `ids` are those in memory."""

    __slots__ = ("_ids", "_new", "_next_part", "_swept_from")

    def __init__(self, journal: Journal, number: int, described: str, ids: RecentIds | PresentIds) -> None:
        super().__init__(journal, number, described, lambda: None)
        self.remembers = False
        self._ids = ids
        self._new = bytearray()  # records for the open commit
        self._next_part = 0  # the part of the ids that the sweep writes next
        self._swept_from: int | None = None  # the offset of the sweep's first batch; None: there is no sweep

    @property
    def is_behind(self) -> bool:
        return bool(self._new) or self.committed < self.next

    def keep(self, number: int, end_ms: int, digest: bytes) -> None:
        if not self._new:
            self._journal.appends[self] = None
        self._new += RECORD.pack(number, end_ms, digest)

    def confirm_later(self) -> None:
        self.keep_sequence(CONFIRMED, 0)

    def clear(self, following: int) -> None:
        self._new.clear()
        self.note(CLEARED, following)

    @property
    def cleared(self) -> int:
        """Return the number below which ids are forgotten."""
        return self.sequences.get(CLEARED, 0)

    # The end of a commit.

    def closed(self, wall: float) -> tuple[list[Append], int]:
        new, self._new = self._new, bytearray()
        if self._swept_from is None and self.octets > SLACK_OCTETS + 2 * RECORD.size * self._ids.count:
            self._begin_sweep()
        self._append_all(new)
        is_swept = self._swept_from is not None and self._sweep(2 * len(new) // RECORD.size)
        found = super().closed(wall)
        if is_swept and self._swept_from is not None:
            self.drop_until(self._swept_from)
            self._swept_from = None
        return found

    def _begin_sweep(self) -> None:
        """Have all known ids written from here on, in new segments, so that those before can be dropped."""
        self._new_segment = True
        self._swept_from = self.next
        self._next_part = 0

    def _sweep(self, most: int) -> bool:
        """Write some more ids, and return whether these were the last. Those that were added meanwhile may come again.

        A part is told as a whole. When a part is split, what leaves it comes later, so that no id is missed.
        """
        ids, records = self._ids, bytearray()
        most = RECORD.size * max(SWEPT_LEAST, most)
        while self._next_part < ids.buckets and len(records) < most:
            bucket = ids.bucket(self._next_part)
            self._next_part += 1
            for at in range(0, len(bucket), RECORD_OCTETS):
                number = number_at(bucket, at)
                if ids.is_kept(number):
                    records += RECORD.pack(number, ids.end_of(number), bucket[at : at + DIGEST_OCTETS])
        self._append_all(records)
        return self._next_part >= ids.buckets

    def _append_all(self, records: bytearray) -> None:
        """Append records in batches to the commit that is being closed."""
        step = BATCH_RECORDS * RECORD.size
        for begin in range(0, len(records), step):
            message = Message(ENCODING, "", "", b"", bytes(records[begin : begin + step]))
            self._open.append(message)
            self.next += 1
            self.messages += 1
            self.octets += message.size


def records_in(reader: Reader, spans: Iterable[Span], described: str) -> list[bytes]:
    """Return all records of a log that can be read, in the order of their numbers."""
    from leveret.durable.store.contract import DamagedError  # a node in memory does not need the store

    found: list[bytes] = []
    for span in spans:
        offset = span.first
        while offset < span.next:
            try:
                offset, bodies = bodies_at(reader, span, offset)
            except DamagedError as damage:
                log.error("ids of %s from %d on cannot be read: %s", described, offset, damage)
                offset = max(damage.next or span.next, offset + 1)
            else:
                for body in bodies:
                    found += [body[at : at + RECORD.size] for at in range(0, len(body), RECORD.size)]
    found.sort()
    return found


def bodies_at(reader: Reader, span: Span, offset: int) -> tuple[int, list[bytes]]:
    """Return the offset after a block, and the bodies in it. Raises DamagedError."""
    from leveret.durable.store import block
    from leveret.durable.store.contract import DamagedError
    from leveret.durable.store.segment_reader import some_blocks

    read = block.Block(some_blocks(reader, span.stream, span.first, offset, span.next, 0), 0)
    bodies = block.pieces(read.bodies, read.body_ends)
    if any(len(body) % RECORD.size for body in bodies):
        raise DamagedError("a batch of ids is cut off", read.header.next)
    return read.header.next, bodies

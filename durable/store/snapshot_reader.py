"""Read from messages.db while the writer writes: a separate connection sees the last commit, whole."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from functools import partial
from queue import SimpleQueue
from threading import Thread
from typing import TypeVar

from leveret.durable.store import chunk
from leveret.durable.store.contract import BlockRange, Chunk, DamagedError, Reader, Span, StoreError
from leveret.durable.store.database import is_trouble_of_disk
from leveret.durable.store.logged_changes import LoggedChanges, LoggedChunks
from leveret.durable.store.segment import Read, SegmentReader, not_there
from leveret.durable.store.segments import Segments
from leveret.selectors.bloom import BloomQuery

T = TypeVar("T")


class SnapshotReader(Reader):
    """Reads chunks through one connection, and blocks from the files of segments, in one thread."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        aside: Container[object],
        segments: Segments,
        logged: Callable[[], LoggedChanges] = LoggedChanges,
    ) -> None:
        """`aside` are damaged chunks, which are ignored; `logged` returns what is in the redo log only."""
        self._connection = connection
        self._aside = aside
        self._segments = segments
        self._looks = SegmentReader()
        self._logged = logged
        self._recent = LoggedChunks({}, {})

    @contextmanager
    def moment(self) -> Iterator[Reader]:
        """Return a context within which all reads see one moment. Raises StoreError."""
        self._begin()
        try:
            yield self
        finally:
            self._end()

    def _begin(self) -> None:
        self._recent = self._logged().now()  # first: what leaves the log after it is in the database
        try:
            self._connection.execute("begin")
        except sqlite3.Error as error:
            raise StoreError(f"messages.db cannot be read: {error}") from None

    def _end(self) -> None:
        self._recent = LoggedChunks({}, {})
        if self._connection.in_transaction:
            self._connection.execute("rollback")

    def find(self, number: int) -> tuple[int, bytes]:
        if (recent := self._recent.find(number)) is not None:
            return recent.first, recent.entries
        below = number
        while True:
            row = self._row("first <= ? order by first desc limit 1", below)
            if row is None:
                raise DamagedError(f"no chunk has entry {number}")
            first, entries = row
            if first not in self._aside and first not in self._recent.dropped:
                break
            below = first - 1
        if not isinstance(entries, bytes):
            raise DamagedError(f"chunk {first} is damaged")
        return first, entries

    def _row(self, where: str, number: int) -> tuple[int, object] | None:
        try:
            found: tuple[int, object] | None = self._connection.execute(
                f"select first, entries from chunks where {where}", (number,)
            ).fetchone()
        except sqlite3.Error as error:
            raise unread(f"the chunk of entry {number}", error) from None
        return found

    def messages(self, first: int, start: int, length: int) -> bytes:
        if (recent := self._recent.chunks.get(first)) is not None:
            octets = recent.messages[start : start + length]
            if len(octets) != length:
                raise DamagedError(f"chunk {first} is cut off")
            return octets
        # Reading part of a large blob takes 30 us; a select would copy all of it, 500 us for a MiB.
        try:
            with self._connection.blobopen("chunks", "messages", first, readonly=True) as blob:
                blob.seek(start)
                octets = blob.read(length)
        except (sqlite3.Error, ValueError) as error:  # ValueError: beyond the end
            raise unread(f"chunk {first}", error) from None
        if len(octets) != length:
            raise DamagedError(f"chunk {first} is cut off")
        return octets

    def again(self, number: int) -> Chunk:
        self._end()
        self._begin()
        first, entries = self.find(number)
        return Chunk(first, entries, self.messages(first, 0, chunk.read(entries).ends[-1]))

    def blocks(self, stream: int, segment: int, offset: int, until: int, octets: int) -> bytes:
        span, read = self._segment(stream, segment, until)
        return self._looks.blocks(span, read, offset, until, octets)

    def wanted(self, stream: int, segment: int, offset: int, until: int, wanted: BloomQuery) -> BlockRange:
        span, read = self._segment(stream, segment, until)
        return self._looks.wanted(span, read, offset, until, wanted)

    def offset_since(self, stream: int, segment: int, until: int, arrived: int) -> int:
        span, read = self._segment(stream, segment, until)
        return self._looks.offset_since(span, read, until, arrived)

    def _segment(self, stream: int, first: int, until: int) -> tuple[Span, Read]:
        span = self._segments.spans.get((stream, first))
        if span is None:
            raise not_there(stream, first, until)
        return span, partial(self._segments.read, stream, first)


def unread(what: str, error: Exception) -> DamagedError | StoreError:
    """Return the error for something unreadable: the data is damaged, or the disk has failed."""
    if isinstance(error, sqlite3.Error) and is_trouble_of_disk(error):
        return StoreError(f"{what} cannot be read: {error} ({error.sqlite_errorname})")
    return DamagedError(f"{what} cannot be read: {error}")


class ReaderThread:
    """Runs reading jobs in a thread, one after the other."""

    def __init__(self, slices: SnapshotReader) -> None:
        self._slices = slices
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._ended = False
        self._thread = Thread(target=self._run, name="leveret-reader", daemon=True)

    def start(self, soon: Callable[[Callable[[], None]], None]) -> None:
        self._soon = soon
        self._thread.start()

    def put(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        """Run a job; `then` is called through `soon` with what it returned or raised."""

        def done() -> None:
            found: T | Exception
            try:
                with self._slices.moment() as reader:
                    found = job(reader)
            except Exception as error:
                found = error
            self._soon(lambda: then(found))

        self._jobs.put(done)

    def end(self) -> None:
        """End the thread after the current job; waiting jobs are dropped."""
        self._ended = True
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            if not self._ended:
                job()

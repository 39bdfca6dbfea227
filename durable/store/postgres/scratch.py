"""Keep a local copy of a shard for reading: a data folder in SQLite that is not synced, and is made anew at each start.

    the database ── columns, objects, spans ──> at a start          own commits ──> as they are written
                 └─ messages, segments ──> when they are wanted, or a moment later

So the event loop reads locally, as from any data folder, and what is paged out only to save memory is here alone. The
messages of a chunk that was there at the start are empty until they are brought. Large ones are beside the database, in
plain files (`bodies.py`): the row has their key in the place of the messages, so that a reader sees those of its own
moment. The database may have merged a chunk already, or not yet, that a reader wants to bring: then it is said to be
damaged, as far as that moment goes, and read once more (`Reader.again`) from the database itself.
"""

from __future__ import annotations

import logging
import os
import shutil
import sqlite3
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from struct import Struct
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final

import attrs

from leveret.durable.store import chunk
from leveret.durable.store.contract import (
    Chunk,
    Commit,
    DamagedError,
    NoSpaceError,
    Reader,
    Span,
    Stats,
    StoreError,
)
from leveret.durable.store.database import failure
from leveret.durable.store.folder import BadFolder, holder
from leveret.durable.store.postgres.bodies import ChunkBodies
from leveret.durable.store.postgres.filled_folder import FilledFolder
from leveret.durable.store.postgres.source import ChunkRow, Source
from leveret.durable.store.segment import Read
from leveret.durable.store.segments import WRITING, Key, SegmentChange, Segments
from leveret.durable.store.snapshot_reader import ReaderThread, SnapshotReader, unread
from leveret.durable.store.syncing import write_all

log: Final = logging.getLogger("leveret.store")

SCRATCH: Final = "scratch"
BODIES: Final = "bodies"  # the folder of large chunks' messages
LARGE: Final = 8192  # bytes of a chunk's messages that are kept beside the database
# of those, in the place of the messages, which are always longer: a record takes 16 bytes
KEY: Final = Struct("<Q")
BROUGHT_OCTETS: Final = 1 << 20  # of messages fetched at a time without being asked for


class Scratch(FilledFolder):
    """The local copy of one shard."""

    def __init__(self, path: Path, sources: Callable[[str], Source]) -> None:
        """Create it anew. `sources` opens a reader of the shard, by the name of its use. Raises BadFolder."""
        if holder(path) is not None:
            raise BadFolder(f"the folder {path} is in use by another node")
        shutil.rmtree(path, ignore_errors=True)
        super().__init__(path)
        self._lock = Lock()  # of the connections that write
        self.bodies = ChunkBodies(path / BODIES)
        self._beside: dict[int, int] = {}  # keys of their messages, by chunk
        self._lacking: dict[int, int] = {}  # chunks without their messages, to the bytes of these
        self._firsts: list[int] = []  # of all chunks that lacked them at the start, ascending
        # Chunks whose messages are being brought because a reader waits for them.
        self._asked: set[int] = set()
        self._short_of: dict[Key, int] = {}  # segments whose files lack their first so many bytes
        self._segments.written = []
        self._over = Event()
        self._sources = [sources("loop"), sources("reader"), sources("loader")]
        messages = self._folder.messages
        self._slices = CachedSlices(self._connected(messages), self._segments, self, self._sources[0])
        self._reads = ReaderThread(
            CachedSlices(self._connected(messages), self._segments, self, self._sources[1])
        )
        self._loader = Thread(target=self._bring_all, name="leveret-loader", daemon=True)

    # The start.

    def take_rows(self, rows: Sequence[ChunkRow]) -> None:
        """Take over chunks, without their messages."""
        self.take_chunks([(Chunk(row.first, row.entries, b""), row.bits) for row in rows])
        self._lacking.update((row.first, row.octets) for row in rows if row.octets)

    def take_streams(self, spans: Sequence[Span], producers: Sequence[tuple[int, str, int]]) -> None:
        super().take_streams(spans, producers)
        self._short_of = {(span.stream, span.first): span.octets for span in spans if span.octets}

    def begin(self, soon: Callable[[Callable[[], None]], None]) -> None:
        """Begin to read, and to bring what is lacking."""
        self._firsts = sorted(self._lacking)
        self._reads.start(soon)
        self._loader.start()
        self._started = True

    # Commits, by the thread that writes them to the database.

    def write_segments(self, commit: Commit) -> tuple[SegmentChange | None, list[tuple[Key, int, bytes]]]:
        """Write the files of segments. Return the changes, and the blocks. Raises NoSpaceError, StoreError."""
        blocks: list[tuple[Key, int, bytes]] = []
        self._segments.written = blocks
        return self._writer.write_segments(commit), blocks

    def write_rows(self, commit: Commit, made: list[Chunk], change: SegmentChange | None) -> None:
        """Write the rest of a commit. Raises NoSpaceError, StoreError."""
        gone = [*commit.dropped, *(first for each, _ in commit.replaced for first in each)]
        with self._lock:
            with self._kept_beside(made) as (slim, keys):
                self._writer.write_rows(commit, slim, change)
            for first in gone:
                self._lacking.pop(first, None)
            old = [self._beside.pop(first) for first in gone if first in self._beside]
            self._beside.update(keys)
            if old:
                self._writing(lambda: self.bodies.drop(old))
            if change is not None:
                for key in change.cut:
                    self._short_of.pop(key, None)

    @contextmanager
    def _kept_beside(self, made: Sequence[Chunk]) -> Iterator[tuple[list[Chunk], dict[int, int]]]:
        """Put large messages beside the database, unless its rows are not written after all.

        Returns a context with the chunks as they go into rows, and the keys of those messages, by chunk.
        Raises NoSpaceError, StoreError.
        """
        keys: dict[int, int] = {}
        try:
            for each in made:
                if len(each.messages) >= LARGE:
                    self._writing(partial(self._put, keys, each))
            yield [_slim(each, keys) for each in made], keys
        except (NoSpaceError, StoreError):
            with suppress(OSError):
                self.bodies.drop([*keys.values()])
            raise

    def _put(self, keys: dict[int, int], made: Chunk) -> None:
        keys[made.first] = self.bodies.put(made.messages)

    def _writing(self, work: Callable[[], None]) -> None:
        """Write to files. Raises NoSpaceError, StoreError."""
        try:
            work()
        except OSError as error:
            raise failure(error, "the local copy cannot be written") from None

    def look_after(self) -> bool:
        """Do one step of maintenance while no commits come. Return whether there is more to do."""
        with self._lock:
            self._writing(self.bodies.tidy)
            return self._writer.look_after()

    # What is lacking.

    def lacks(self, numbers: Sequence[int]) -> bool:
        """Return whether messages of some of these entries are not here, or of a neighbour of theirs."""
        return any(first in self._lacking for first in self._about(numbers))

    def _about(self, numbers: Sequence[int]) -> Sequence[int]:
        """Return the chunks that have some of these entries, of those that lacked their messages at the start."""
        if not self._lacking:
            return ()
        begin = max(0, bisect_right(self._firsts, numbers[0]) - 1)
        return self._firsts[begin : bisect_right(self._firsts, numbers[-1])]

    def brings(self, numbers: Sequence[int]) -> bool:
        """Return whether `lacks` is true, and have the thread that reads bring the messages then."""
        about = self._about(numbers)
        wanted = [(first, octets) for first in about if (octets := self._lacking.get(first))]
        missing = [each for each in wanted if each[0] not in self._asked]
        self._asked.update(first for first, _ in missing)
        for firsts in portions(missing):
            self._reads.put(partial(self._bring, firsts), lambda found: None)
        return bool(wanted)

    def _bring(self, firsts: Sequence[int], reader: Reader) -> None:
        """Bring the messages of chunks that may be here by now. Raises StoreError."""
        wanted = [first for first in firsts if first in self._lacking]
        try:
            self._keep_if_possible(self._sources[1].bodies(wanted) if wanted else ())
        finally:
            self._asked.difference_update(firsts)

    def bring_chunk(self, first: int, entries: bytes, source: Source) -> bytes:
        """Return the messages of a chunk whose entries are known. Raises DamagedError, StoreError."""
        found = source.bodies([first])
        if not found or found[0].entries != entries:
            raise DamagedError(f"chunk {first} is not in the database as it is in the local copy")
        self._keep_if_possible(found)
        return found[0].messages

    def _keep_if_possible(self, chunks: Sequence[Chunk]) -> None:
        """Write messages that are lacking, if there is room for them; else they are brought another time."""
        with suppress(NoSpaceError):
            self._keep(chunks)

    def _keep(self, chunks: Sequence[Chunk]) -> None:
        """Write messages that are lacking; not those of chunks that the database has merged, and this copy has not."""
        with self._lock:
            lacking = [each for each in chunks if each.first in self._lacking]
            if not lacking:
                return
            with self._kept_beside(lacking) as (slim, keys):
                filled = self._writer.fill(slim)
            for first in filled:
                del self._lacking[first]
            self._beside.update((first, keys[first]) for first in filled if first in keys)
            if vain := [key for first, key in keys.items() if first not in self._beside]:
                self._writing(lambda: self.bodies.drop(vain))

    def bring_segment(self, key: Key, source: Source) -> None:
        """Bring the part of a segment's file that was there at the start. Raises StoreError."""
        octets = self._short_of.get(key)
        if octets is None:
            return
        try:
            descriptor = os.open(self._segments.file(*key), WRITING, 0o600)
            try:
                for at, block in source.blocks(*key, octets):
                    write_all(descriptor, block, at)
            finally:
                os.close(descriptor)
        except FileNotFoundError:  # the stream has ended meanwhile
            return
        except OSError as error:
            raise StoreError(str(failure(error, "a segment cannot be kept"))) from None
        self._short_of.pop(key, None)

    def _bring_all(self) -> None:
        """Bring the messages of all chunks that lack them, the oldest first; commits get half of the time at least."""
        source = self._sources[2]
        with suppress(StoreError):
            for firsts in portions([(first, self._lacking.get(first, 0)) for first in self._firsts]):
                began, commits = monotonic(), self._writer.commits
                wanted = [first for first in firsts if first in self._lacking]
                if wanted:
                    self._keep_if_possible(source.bodies(wanted))
                if self._writer.commits != commits and self._over.wait(monotonic() - began):
                    break
        source.close()

    # Reading.

    def known_spans(self) -> list[Span]:
        """Return the segments that there are now, in order."""
        return [span for _, span in sorted(self._segments.spans.items())]

    def stats(self) -> Stats:
        found = super().stats()
        lacking = sum(list(self._lacking.values()))
        beside = self.bodies.octets
        return attrs.evolve(
            found,
            messages_octets=found.messages_octets - KEY.size * len(self._beside) + beside + lacking,
            file_octets=found.file_octets + beside,
        )

    def let_go(self) -> None:
        """Close everything, and remove the folder. What waits for the database has to be told before."""
        if self._started:
            self._over.set()
            self._reads.end()
            self._loader.join()
        for source in self._sources:
            source.close()
        self.bodies.close()
        self._closed_properly = True  # no logs are left behind
        self._let_go()
        shutil.rmtree(self._folder.path, ignore_errors=True)


class CachedSlices(SnapshotReader):
    """Reads the local copy, and brings what it lacks."""

    def __init__(
        self, connection: sqlite3.Connection, segments: Segments, scratch: Scratch, source: Source
    ) -> None:
        super().__init__(connection, frozenset(), segments)
        self._scratch = scratch
        self._source = source

    @contextmanager
    def moment(self) -> Iterator[Reader]:
        with self._scratch.bodies.held(), super().moment() as reader:
            yield reader

    def messages(self, first: int, start: int, length: int) -> bytes:
        octets = self._kept(first, start, length)
        if len(octets) != length:
            raise DamagedError(f"chunk {first} is cut off")
        return octets

    def _kept(self, first: int, start: int, length: int) -> bytes:
        """Return bytes of a chunk's messages, from where the row says they are. Raises DamagedError, StoreError."""
        try:
            with self._connection.blobopen("chunks", "messages", first, readonly=True) as blob:
                if len(blob) > KEY.size:
                    blob.seek(start)
                    return blob.read(length)
                key = blob.read()
        except (sqlite3.Error, ValueError) as error:  # ValueError: beyond the end
            raise unread(f"chunk {first}", error) from None
        if key:
            return self._scratch.bodies.read(KEY.unpack(key)[0], start, length) or b""
        found = self._connection.execute("select entries from chunks where first = ?", (first,)).fetchone()
        return self._scratch.bring_chunk(first, found[0], self._source)[start : start + length]

    def again(self, number: int) -> Chunk:
        try:
            found = self._source.chunk_of(number)
        except StoreError as error:
            log.warning("entry %d is not read from the database: %s", number, error)
            found = None
        # What the database has not is here only, to save memory.
        return found if found is not None and is_of(found, number) else super().again(number)

    def _segment(self, stream: int, first: int, until: int) -> tuple[Span, Read]:
        self._scratch.bring_segment((stream, first), self._source)
        return super()._segment(stream, first, until)


def is_of(found: Chunk, number: int) -> bool:
    """Return whether a chunk has this number, or an entry with it."""
    try:
        return found.first == number or number in chunk.read(found.entries).numbers
    except DamagedError:
        return False


def _slim(made: Chunk, keys: dict[int, int]) -> Chunk:
    """Return a chunk as its row has it: with the key of its messages in their place, if they are kept beside."""
    key = keys.get(made.first)
    return made if key is None else Chunk(made.first, made.entries, KEY.pack(key))


def portions(sizes: Sequence[tuple[int, int]]) -> Sequence[list[int]]:
    """Return numbers, each given with its size, in portions of about `BROUGHT_OCTETS`."""
    found: list[list[int]] = []
    room = 0
    for number, octets in sizes:
        if room <= 0:
            found.append([])
            room = BROUGHT_OCTETS
        found[-1].append(number)
        room -= octets
    return found

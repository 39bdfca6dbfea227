"""The store in SQLite: two databases in a folder, a thread that writes and one that reads.

append ──> Writer (writer.py) ──> redo log, meta.db, messages.db   read_soon ──> ReaderThread (snapshot_reader.py)
objects, chunks, marks <── salvage.py, before the start      backup ──> backup.py
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import TypeVar

import attrs

from leveret.durable.store import backup as copying
from leveret.durable.store import redo_log, salvage, wal_tail
from leveret.durable.store.contract import (
    Commit,
    DamagedError,
    NoSpaceError,
    Reader,
    Span,
    Stats,
    Store,
    StoredChunk,
    StoreError,
)
from leveret.durable.store.database import (
    CLOSED,
    LOGGED,
    PAGE_OCTETS,
    REMEDY,
    RUNNING,
    DatabaseState,
    flags_of,
    folder_of,
    opened,
    prepare,
    state_of,
    unusable,
)
from leveret.durable.store.folder import BadFolder, Folder
from leveret.durable.store.housekeeping import Housekeeping
from leveret.durable.store.redo_log import RedoLog
from leveret.durable.store.reserve import DRAIN, Reserve
from leveret.durable.store.segments import Segments
from leveret.durable.store.snapshot_reader import ReaderThread, SnapshotReader
from leveret.durable.store.writer import Writer

T = TypeVar("T")


class SqliteStore(Store):
    """A store in a data folder, which is created if necessary.

    A folder with damaged messages can be opened; `damage` describes what is wrong. One with damaged objects cannot:
    without its queue a message would be lost.
    """

    def __init__(self, path: Path, drain_octets: int = 0, redo_octets: int = 0) -> None:
        """Open the store. Raises BadFolder, whose text says why, and what can be done.

        `drain_octets` are kept in reserve for commits that make room on a full disk. So many `redo_octets` of commits
        are kept in a log before they are written to the database; with 0 they are written at once.
        """
        self.damage: list[str] = []
        self._folder = Folder(path)
        self._reserve = Reserve(self._folder.path)
        self._drain = Reserve(self._folder.path, DRAIN, drain_octets)
        self._redo_octets = redo_octets
        self._connections: list[sqlite3.Connection] = []
        self._redo: RedoLog | None = None
        self._aside: set[int] = set()  # damaged chunks, which are ignored
        self._started = False
        self._closed_properly = False
        try:
            self._open()
        except sqlite3.Error as error:
            self._let_go()
            raise unusable(self._folder.path, error) from None
        except BaseException:
            self._let_go()
            raise

    # Start.

    def _open(self) -> None:
        folder = self._folder
        self._reserve.release()
        prepare(folder)
        had_logs = wal_tail.log_of(folder.messages).exists() and wal_tail.log_of(folder.meta).exists()
        for file in (folder.messages, folder.meta):
            self._write_log_again(file)
        messages, meta = self._connected(folder.messages), self._connected(folder.meta)
        self._looked_at, self._meta = self._connected(folder.messages), self._connected(folder.meta)
        self._segments = Segments(folder.path)
        self._slices = self._slices_of(self._looked_at)
        self._reads = ReaderThread(self._slices_of(self._connected(folder.messages)))
        self._state = self._state_found(messages, meta, had_logs)
        self._redo = RedoLog(folder.messages, self._state.folder)
        self._files = Housekeeping(messages, meta, self._reserve, self._drain)
        self._writer = Writer(
            messages,
            meta,
            self._aside,
            self._segments,
            self._files,
            self._redo,
            folder.lost,
            self._redo_octets,
        )
        self._closed_properly = self._state.ended != RUNNING
        self._recover(messages)
        self._objects = self._checked_objects(meta)
        self._marks = self._checked_messages(messages)
        self.was_clean = self._state.ended == CLOSED and not self.damage

    def _write_log_again(self, file: Path) -> None:
        try:
            wal_tail.write_again(file)
        except OSError as error:
            raise BadFolder(f"{wal_tail.log_of(file)} cannot be written: {error.strerror}") from None

    def _connected(self, file: Path) -> sqlite3.Connection:
        connection = opened(file)
        self._connections.append(connection)
        return connection

    def _state_found(
        self, messages: sqlite3.Connection, meta: sqlite3.Connection, had_logs: bool
    ) -> DatabaseState:
        """Return the state of messages.db. Raises BadFolder if it and meta.db do not belong together."""
        folder = folder_of(meta)
        if not isinstance(folder, bytes):
            raise BadFolder(f"{self._folder.meta} is damaged: it has no name. {REMEDY}.")
        try:
            state = state_of(messages)
        except DamagedError as error:
            self._found(str(error))
            epoch = int.from_bytes(os.urandom(4))  # unlike that of a node that runs by mistake
            return DatabaseState(folder, epoch, RUNNING, b"")
        if state.folder != folder:
            raise BadFolder(f"{self._folder.path}: its two databases are of different folders. {REMEDY}.")
        if state.ended == RUNNING and not had_logs:
            self._found("a log (-wal) is missing: what was committed last may be lost")
        return state

    def _slices_of(self, connection: sqlite3.Connection) -> SnapshotReader:
        return SnapshotReader(connection, self._aside, self._segments, lambda: self._writer.logged)

    def _recover(self, messages: sqlite3.Connection) -> None:
        """Write what the redo log has to messages.db. Raises BadFolder."""
        file = redo_log.log_of(self._folder.messages)
        if not flags_of(messages) & LOGGED:
            return
        if not file.exists():
            self._note(redo_log.missing(file))
            return
        try:
            found = self._writer.recover(self._state)
        except NoSpaceError as error:
            raise BadFolder(f"there is no room for what is in {file}: {error}") from None
        except (OSError, StoreError) as error:
            raise BadFolder(f"{file} cannot be written to {self._folder.messages}: {error}") from None
        for text in found.troubles(file):
            self._note(text)

    def _checked_objects(self, meta: sqlite3.Connection) -> list[tuple[str, str]]:
        """Return the objects of meta.db. Raises BadFolder if any are damaged."""
        wrong = salvage.troubles(meta, "integrity_check")
        objects = list(salvage.objects(meta, wrong.append))
        lost = wal_tail.commits_lost(self._folder.meta, meta)
        if lost > 1:
            wrong.append(wal_tail.told(self._folder.meta, lost))
        elif lost:
            self._found(wal_tail.told(self._folder.meta, lost))
        if wrong:
            raise BadFolder(f"{self._folder.meta} is damaged: {'; '.join(wrong)}. {REMEDY}.")
        return objects

    def _checked_messages(self, messages: sqlite3.Connection) -> list[tuple[int, int]]:
        """Note damage that shows without reading everything. Returns the marks."""
        if lost := wal_tail.commits_lost(self._folder.messages, messages):
            self._found(wal_tail.told(self._folder.messages, lost))
        if salvage.octets_of(messages) <= salvage.QUICK_OCTETS:
            for text in salvage.troubles(messages):
                self._found(text)
        if self._state.tally and salvage.tally_if_sound(messages) != self._state.tally:
            self._found("it does not hold what it held when it was closed")
        self._aside.update(salvage.aside(messages, self._found))
        self._producers = list(salvage.producers(messages, self._found))
        damaged: list[str] = []
        segments = salvage.segments(messages, damaged.append)
        self._segments.know(segments, ((place, (stream, name)) for place, stream, name, _ in self._producers))
        for text in damaged:
            self._found(text)
        if damaged:
            self._find_again()
        for text in self._segments.damage():
            self._note(text)
        return list(salvage.marks(messages, self._found))

    def _find_again(self) -> None:
        """Rebuild damaged rows of segments from the files. Raises BadFolder."""
        try:
            self._segments.find_again()
        except StoreError as error:
            raise BadFolder(str(error)) from None

    def _found(self, damage: str) -> None:
        self._note(f"{self._folder.messages}: {damage}")

    def _note(self, text: str) -> None:
        if text not in self.damage:
            self.damage.append(text)
        self.was_clean = False

    def _let_go(self) -> None:
        for connection in self._connections:
            connection.close()
        if self._redo is not None:
            self._redo.close()
        self._drain.close()
        if not self._closed_properly:
            self._leave_logs()
        self._folder.release()

    def _leave_logs(self) -> None:
        """Create the logs that SQLite has deleted after copying them: without them a crash would look like damage."""
        for database in (self._folder.messages, self._folder.meta):
            with suppress(OSError):
                if database.exists():
                    wal_tail.log_of(database).touch(mode=0o600)

    # Recovery; before `start` only.

    def objects(self) -> Iterator[tuple[str, str]]:
        return iter(self._objects)

    def chunks(self) -> Iterator[StoredChunk]:
        for kept in salvage.kept(self._looked_at, self._aside, self._found):
            if kept.entries is None:
                self._aside.add(kept.first)  # or it would be taken for the chunk of its neighbours' entries
            yield kept

    def marks(self) -> Iterator[tuple[int, int]]:
        return iter(self._marks)

    def spans(self) -> Iterator[Span]:
        return iter([span for _, span in sorted(self._segments.spans.items())])

    def producers(self) -> Iterator[tuple[int, str, int]]:
        return iter([(stream, name, last) for _, stream, name, last in self._producers])

    def segment(self, span: Span, at: int, length: int) -> bytes:
        """Return some bytes of a segment's file. Raises StoreError."""
        return self._segments.read(span.stream, span.first, at, length)

    # Running.

    def start(
        self,
        soon: Callable[[Callable[[], None]], None],
        durable: Callable[[int], None],
        failed: Callable[[Exception], None],
        stalled: Callable[[str | None], None] = lambda cause: None,
    ) -> None:
        self._objects, self._marks, self._producers = [], [], []
        self._state = attrs.evolve(self._state, epoch=self._state.epoch + 1, ended=RUNNING, tally=b"")
        self._files.shrinks = not self.damage
        self._closed_properly = False
        self._watch()
        self._writer.start(self._state, soon, durable, failed)
        self._reads.start(soon)
        self._started = True

    def _watch(self) -> None:
        """Note which files are written. Raises StoreError if they have gone already."""
        try:
            self._folder.watch()
        except OSError as error:
            raise StoreError(f"{error.filename} cannot be found: {error.strerror}") from None

    @property
    def room(self) -> int:
        return self._files.room

    def measure_room(self) -> int:
        return self._files.measure_room()

    @property
    def ahead_max(self) -> int:
        return self._files.ahead_max

    @property
    def is_short(self) -> bool:
        return self._files.is_short

    def append(self, commit: Commit, at_once: bool = False) -> bool:
        if at_once and self._writer.has_written(commit):
            return True
        self._writer.put(commit)
        return False

    def reader(self) -> AbstractContextManager[Reader]:
        return self._slices.moment()

    def read_soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        self._reads.put(job, then)

    # Maintenance.

    def stats(self) -> Stats:
        logged = self._writer.logged.now()
        chunks, octets = self._looked_at.execute(
            "select count(*), coalesce(sum(length(messages)), 0) from chunks "
            "where first not in (select value from json_each(?))",
            (json.dumps([*logged.dropped, *logged.chunks]),),
        ).fetchone()
        (objects,) = self._meta.execute("select count(*) from objects").fetchone()
        spans = list(self._segments.spans.values())  # at once: the writer continues
        (free,) = self._looked_at.execute("pragma freelist_count").fetchone()
        (format_,) = self._looked_at.execute("pragma user_version").fetchone()
        return Stats(
            chunks=chunks + len(logged.chunks),
            messages_octets=octets + sum(len(each.messages) for each in logged.chunks.values()),
            objects=objects,
            file_octets=copying.octets_in(self._folder.path) + sum(span.octets for span in spans),
            free_octets=free * PAGE_OCTETS,
            commits=self._writer.commits,
            format=format_,
            streams=len({span.stream for span in spans}),
            segments=len(spans),
            segment_octets=sum(span.octets for span in spans),
        )

    def backup(self, folder: Path) -> None:
        copying.copy(self._folder.path, folder)

    def close(self, last: Commit | None) -> None:
        assert self._started or not last, "a store takes commits once it is started"
        try:
            if self._started:
                self._reads.end()
                self._writer.end(last)
                self._closed_properly = last is not None
        finally:
            self._let_go()

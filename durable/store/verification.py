"""Inspect a data folder: whether everything is as it was written, and how much there is of each queue.

    verify   all checksums, SQLite's own check of the structure, the logs ──> problems, and damage by queue
    measure  the columns of the chunks, the rows of segments: no message is read    ──> contents by queue

Both see one moment of the folder and change nothing in it; a node may run on it. Meanwhile its logs grow.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import Final, TypeAlias

import attrs

from leveret.catalogue import BRANCH, DEDUPLICATION, ENDING_QUEUE, EXCHANGE, LEASE, QUEUE, STAGING
from leveret.durable.store import chunk, redo_log, salvage, wal_tail
from leveret.durable.store.backup import Progress, Snapshot
from leveret.durable.store.contract import DamagedError, Span, StoredChunk, StoreError
from leveret.durable.store.database import (
    CLOSED,
    LOGGED,
    RUNNING,
    DatabaseState,
    UnusableDatabase,
    flags_of,
    folder_of,
    state_of,
)
from leveret.durable.store.folder import MESSAGES, META, STREAMS, BadFolder, holder, require
from leveret.durable.store.records import json_in, names_in
from leveret.durable.store.redo_log import ReadLog
from leveret.durable.store.segment import gaps
from leveret.durable.store.segments import Segments
from leveret.durable.store.snapshot_reader import SnapshotReader
from leveret.durable.store.typed_json import Unreadable

Owner: TypeAlias = tuple[str, str, str]  # kind; virtual host; name
NOT_ALLOWED: Final = "nothing is known to be damaged, but this user may not read and write it"
OWNERS: Final = {
    QUEUE: 2,
    ENDING_QUEUE: 3,
    EXCHANGE: 2,
    LEASE: 3,
    STAGING: 2,
    BRANCH: 2,
    DEDUPLICATION: 3,
}  # and how many names each kind has
NOBODY: Final[Owner] = ("", "", "")  # a deleted queue: its messages are removed at the next start


@attrs.define
class StoredContent:
    """The messages in the store of a queue, or of an exchange that holds messages back."""

    messages: int = 0
    octets: int = 0  # bytes of the bodies
    oldest_ms: int = 0  # ms since 1970 when the first arrived
    damaged: int = 0  # messages that cannot be delivered


@attrs.define
class Report:
    """The contents of a data folder, or of a database, and what is wrong with it."""

    folder: Path
    node: int | None = None  # the process that runs on it; 0: unknown which
    database: str = ""  # what `folder` is a copy of, in words
    owner: str | None = None  # the name of the node that serves from it, if it is a database
    closed: bool = False  # whether it was closed properly
    objects: int = 0
    chunks: int = 0
    segments: int = 0  # of streams
    files: dict[str, int] = attrs.field(factory=dict)  # sizes in bytes
    free_octets: int = 0  # free bytes in messages.db
    contents: dict[Owner, StoredContent] = attrs.field(factory=dict)
    problems: list[str] = attrs.field(factory=list)

    @property
    def messages(self) -> int:
        return sum(content.messages for content in self.contents.values())

    @property
    def octets(self) -> int:
        return sum(content.octets for content in self.contents.values())


def verify(folder: Path, progress: Progress = lambda done, total: None) -> Report:
    """Check everything; what is wrong is among the report's problems.

    Raises BadFolder if there is no store, or none that this user may open.
    """
    report = _begun(folder)
    logs = wal_tail.log_of(folder / MESSAGES), wal_tail.log_of(folder / META)
    has_logs = all(log.exists() for log in logs)
    if report.node is None:  # a running node writes to them, and has checked them at its start
        for name in (MESSAGES, META):
            if lost := wal_tail.commits_behind(folder / name, wal_tail.frames_taken(folder / name)):
                report.problems.append(wal_tail.told(folder / name, lost))
    with ExitStack() as stack:
        moments: dict[str, Snapshot] = {}
        for name in (MESSAGES, META):
            try:
                moments[name] = stack.enter_context(closing(Snapshot(folder / name)))
            except BadFolder as error:
                if isinstance(error, UnusableDatabase) and not _may_open(folder / name):
                    raise BadFolder(f"{error}; {NOT_ALLOWED}") from None
                report.problems.append(str(error))
        for name, moment in moments.items():
            found = salvage.troubles(moment.database, "integrity_check")
            report.problems += [f"{folder / name}: {text}" for text in found]
        _Look(report, moments.get(MESSAGES), moments.get(META), has_logs).at_everything(progress)
    return report


def _may_open(file: Path) -> bool:
    """Return whether this user may open a database: SQLite makes files beside it, also to read."""
    return os.access(file, os.R_OK | os.W_OK) and os.access(file.parent, os.W_OK)


def measure(folder: Path) -> Report:
    """Count the contents without reading messages. Raises BadFolder."""
    report = _begun(folder)
    with closing(Snapshot(folder / MESSAGES)) as messages, closing(Snapshot(folder / META)) as meta:
        _Look(report, messages, meta, True).at_columns()
    return report


def _begun(folder: Path) -> Report:
    require(folder)
    files = sorted(file for file in folder.iterdir() if file.name.startswith((MESSAGES, META)))
    return Report(folder, holder(folder), files={file.name: file.stat().st_size for file in files})


class _Look:
    """One inspection of a folder; a database that cannot be opened is None."""

    def __init__(
        self, report: Report, messages: Snapshot | None, meta: Snapshot | None, has_logs: bool
    ) -> None:
        self._report = report
        self._messages = None if messages is None else messages.database
        self._logged = ReadLog() if messages is None else messages.logged
        self._meta = None if meta is None else meta.database
        self._has_logs = has_logs
        self._owners: dict[int, Owner] = {}
        self._said: set[str] = set()

    def _problem(self, text: str) -> None:
        if text not in self._said:
            self._said.add(text)
            self._report.problems.append(text)

    def at_everything(self, progress: Progress) -> None:
        try:
            if self._meta is not None:
                self._at_objects(self._meta)
            if self._messages is not None:
                self._at_state(self._messages)
                self._at_chunks(self._messages, progress, whole=True)
                for _ in salvage.marks(self._messages, self._problem):
                    pass
                for _ in salvage.producers(self._messages, self._problem):
                    pass
                self._at_segments(self._messages, progress, whole=True)
        except sqlite3.Error as error:
            self._problem(f"{self._report.folder} cannot be read to its end: {error}")

    def at_columns(self) -> None:
        """Count the contents. Raises BadFolder."""
        assert self._messages is not None, "it has been opened"
        assert self._meta is not None, "it has been opened"
        try:
            self._at_objects(self._meta)
            self._at_state(self._messages)
            self._at_chunks(self._messages, lambda done, total: None, whole=False)
            self._at_segments(self._messages, lambda done, total: None, whole=False)
        except sqlite3.Error as error:
            raise BadFolder(f"{self._report.folder} cannot be read: {error}") from None

    # meta.db, and the state of messages.db.

    def _at_objects(self, meta: sqlite3.Connection) -> None:
        for key, value in salvage.objects(meta, self._problem):
            self._report.objects += 1
            try:
                kind, *names = names_in(key)
                text = json_in(value)
            except (Unreadable, ValueError):
                self._problem(f"the object {key} cannot be read")
                continue
            if len(names) == OWNERS.get(kind) and isinstance(text, dict):
                number = text.get("number")
                if isinstance(number, int) and number:
                    self._owners[number] = (kind, names[0], " of ".join(names[:0:-1]))
                held = text.get("dead_letters")
                if isinstance(held, int):
                    self._owners[held] = (kind, names[0], f"{names[1]} (dead letters)")

    def _at_state(self, messages: sqlite3.Connection) -> None:
        (free,) = messages.execute("pragma freelist_count").fetchone()
        (page,) = messages.execute("pragma page_size").fetchone()
        self._report.free_octets = free * page
        try:
            state = state_of(messages)
        except DamagedError as error:
            self._problem(f"{MESSAGES}: {error}")
            return
        self._report.closed = state.ended == CLOSED
        if self._report.node is None:
            log = redo_log.log_of(self._report.folder / MESSAGES)
            for text in self._logged.troubles(log):
                self._problem(text)
            if flags_of(messages) & LOGGED and not log.exists():
                self._problem(redo_log.missing(log))
        for text in self._contradictions(state, messages):
            self._problem(text)

    def _contradictions(self, state: DatabaseState, messages: sqlite3.Connection) -> Iterable[str]:
        if self._meta is not None and folder_of(self._meta) != state.folder:
            yield f"{MESSAGES} and {META} are of different folders"
        if state.ended == RUNNING and not self._has_logs:
            yield "a log (-wal) is missing: what was committed last may be lost"
        if state.tally and salvage.tally_if_sound(messages) != state.tally:
            yield f"{MESSAGES} does not hold what it held when it was closed"

    # Chunks.

    def _at_chunks(self, messages: sqlite3.Connection, progress: Progress, whole: bool) -> None:
        aside = set(salvage.aside(messages, self._problem))
        slices = SnapshotReader(messages, frozenset(), Segments(self._report.folder))
        (total,) = messages.execute("select coalesce(sum(length(messages)), 0) from chunks").fetchone()
        done = 0
        logged = self._logged.changes  # checked when it was read
        for kept in logged.over(salvage.kept(messages, aside, self._problem)):
            self._report.chunks += 1
            if kept.entries is not None:
                columns = chunk.read(kept.entries)
                is_checked = not whole or kept.first in logged.chunks
                damaged = () if is_checked else self._damaged_records(slices, kept, columns)
                self._count(kept, columns, frozenset(damaged))
            done += kept.octets
            progress(done, total)

    def _damaged_records(
        self, slices: SnapshotReader, kept: StoredChunk, columns: chunk.Columns
    ) -> Sequence[int]:
        try:
            octets = slices.messages(kept.first, 0, kept.octets)
        except (DamagedError, StoreError) as error:
            self._problem(str(error))
            return range(len(columns.crcs))
        damaged = chunk.damaged_records(columns, octets)
        if damaged:
            self._problem(f"chunk {kept.first}: {len(damaged)} of {len(columns.crcs)} messages are damaged")
        return damaged

    def _count(self, kept: StoredChunk, columns: chunk.Columns, damaged: frozenset[int]) -> None:
        """Count the entries that are not settled for their queues."""
        if columns.volatile:  # paged out by a node to save memory; not recovered
            return
        bits = kept.settled or b""
        for place, queue in enumerate(columns.queues):
            if place >> 3 < len(bits) and bits[place >> 3] & 1 << (place & 7):
                continue
            content = self._content(queue)
            record = columns.records[place]
            arrived = columns.arrival(place)
            content.messages += 1
            content.octets += columns.sizes[record]
            content.oldest_ms = min(content.oldest_ms or arrived, arrived)
            content.damaged += record in damaged

    def _content(self, number: int) -> StoredContent:
        return self._report.contents.setdefault(self._owners.get(number, NOBODY), StoredContent())

    # Segments.

    def _at_segments(self, messages: sqlite3.Connection, progress: Progress, whole: bool) -> None:
        segments = Segments(self._report.folder)
        segments.know(salvage.segments(messages, self._problem), ())
        self._report.segments = len(segments.spans)
        done, total = 0, sum(span.octets for span in segments.spans.values())
        if total:
            self._report.files[f"{STREAMS}/"] = total
        for _, span in sorted(segments.spans.items()):
            content = self._content(span.stream)
            content.messages += span.next - span.first
            content.octets += span.bodies
            content.oldest_ms = min(content.oldest_ms or span.begun, span.begun)
            if whole:
                content.damaged += self._damaged_in(span, segments)
            done += span.octets
            progress(done, total)

    def _went(self, span: Span, segments: Segments) -> bool:
        """Return whether a missing segment was deleted properly since the inspection began."""
        if segments.file(span.stream, span.first).exists():
            return False
        with closing(Snapshot(self._report.folder / MESSAGES)) as now:
            there = Segments(self._report.folder)
            there.know(salvage.segments(now.database, self._problem), ())
        return (span.stream, span.first) not in there.spans

    def _damaged_in(self, span: Span, segments: Segments) -> int:
        """Return how many messages of a segment cannot be read."""
        damaged = 0
        try:
            lost = list(gaps(span, partial(segments.read, span.stream, span.first)))
            if lost and self._went(span, segments):
                return 0
            for begin, end, why in lost:
                damaged += end - begin
                self._problem(why)
        except StoreError as error:
            self._problem(str(error))
            return span.next - span.first
        return damaged

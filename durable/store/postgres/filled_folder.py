"""Fill a new data folder in SQLite with what is in PostgreSQL: for the local copy, and for backups."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import attrs

from leveret.durable.store.contract import Chunk, Commit, Span
from leveret.durable.store.database import CLOSED, COPIED, RUNNING, cut, say
from leveret.durable.store.segments import WRITING, Key, SegmentChange
from leveret.durable.store.sqlite import SqliteStore
from leveret.durable.store.syncing import sync_file, sync_folder, write_all


class FilledFolder(SqliteStore):
    """A data folder that gets rows instead of commits. Nothing is synced before `finish`."""

    def __init__(self, path: Path) -> None:
        """Create it in a folder that is empty. Raises BadFolder."""
        super().__init__(path)
        self._segments.syncs = False
        for connection in self._connections:
            connection.execute("pragma synchronous=off")
        self._writer.begin(attrs.evolve(self._state, epoch=1, ended=RUNNING))

    def take_objects(self, objects: Mapping[str, str]) -> None:
        """Take over objects. Raises NoSpaceError, StoreError, as all that takes over."""
        commit = Commit(0)
        commit.objects.update(objects)
        self._writer.write_rows(commit, [], None)

    def take_chunks(self, chunks: Sequence[tuple[Chunk, bytes]]) -> None:
        """Take over chunks, each with the bits of its settled entries."""
        commit = Commit(0)
        commit.settled = {each.first: bits for each, bits in chunks if bits}
        self._writer.write_rows(commit, [each for each, _ in chunks], None)

    def take_marks(self, marks: Sequence[tuple[int, int]]) -> None:
        """Take over the marks of entries."""
        commit = Commit(0)
        commit.marks = dict(marks)
        self._writer.write_rows(commit, [], None)

    def take_streams(self, spans: Sequence[Span], producers: Sequence[tuple[int, str, int]]) -> None:
        """Take over segments, without their files, and producers."""
        change = SegmentChange()
        for place, span in enumerate(spans, 1):
            change.spans[span.stream, span.first] = place, span
        for place, (stream, name, last) in enumerate(producers, len(spans) + 1):
            change.producers[stream, name] = place, last
        self._segments.know(
            [(place, span) for place, span in change.spans.values()],
            [(place, key) for key, (place, _) in change.producers.items()],
        )
        self._writer.write_rows(Commit(0), [], change)
        for stream in {span.stream for span in spans}:
            self._segments.have_folder(stream)

    def take_block(self, key: Key, at: int, octets: bytes) -> None:
        """Take over a part of a segment's file. Raises OSError."""
        descriptor = os.open(self._segments.file(*key), WRITING, 0o600)
        try:
            write_all(descriptor, octets, at)
        finally:
            os.close(descriptor)

    def finish(self, clean: bool) -> None:
        """Sync everything, and note that it is whole. Raises OSError, sqlite3.Error."""
        for key in sorted(self._segments.spans):
            file = self._segments.file(*key)
            if file.exists():
                with file.open("rb") as written:
                    sync_file(written.fileno())
                sync_folder(file.parent)
        messages, meta = self._connections[:2]
        for connection in (messages, meta):
            connection.execute("pragma synchronous=full")
        messages.execute("begin immediate")
        say(messages, attrs.evolve(self._state, epoch=1, ended=CLOSED if clean else COPIED))
        messages.execute("commit")
        cut(meta)
        cut(messages)
        self._closed_properly = True
        self._let_go()
        sync_folder(self._folder.path)

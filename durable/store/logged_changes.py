"""Hold what the redo log has and messages.db has not yet: chunks for readers, and the changes that are left of it all.

A chunk that is deleted before the log is written to the database never gets there.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from leveret.durable.store import chunk
from leveret.durable.store.commit_statement import VIEWS, as_list, as_marks, as_settled
from leveret.durable.store.contract import Chunk, Commit, StoredChunk
from leveret.durable.store.salvage import chunk_checksum
from leveret.mark import has_waiting

CHUNK: Final = "INSERT INTO chunks VALUES (?, ?, ?, ?)"
AGAIN: Final = "INSERT OR REPLACE INTO chunks VALUES (?, ?, ?, ?)"
CHANGE: Final = "INSERT INTO change VALUES (?, ?, ?)"
DELETION: Final = "INSERT INTO deletion VALUES (?, NULL)"


class LoggedChanges:
    """The commits of a round of the redo log, taken together."""

    def __init__(self) -> None:
        # by first number, ascending; all are newer than those of the database
        self.chunks: dict[int, Chunk] = {}
        self.dropped: dict[int, None] = {}  # chunks of the database that are deleted
        self.settled: dict[int, bytes] = {}  # as in a commit
        self.marks: dict[int, int] = {}
        self.octets = 0  # of the chunks that are left
        self.logged = 0  # of all chunks

    def __bool__(self) -> bool:
        return bool(self.chunks or self.dropped or self.settled or self.marks)

    def add(self, commit: Commit, made: Iterable[Chunk]) -> None:
        """Take in a commit, whose packed chunks are `made`."""
        for first in commit.dropped:
            self.settled.pop(first, None)
            if (gone := self.chunks.pop(first, None)) is None:
                self.dropped[first] = None
                continue
            self.octets -= gone.octets
            if self.marks:
                for number in chunk.read(gone.entries).numbers:
                    self.marks.pop(number, None)
        for each in made:
            octets = each.octets
            self.chunks[each.first] = each
            self.octets += octets
            self.logged += octets
        self.settled.update(commit.settled)
        self.marks.update(commit.marks)

    @property
    def waits(self) -> bool:
        """Return whether there is something for which messages.db needs the flag `WAITING`."""
        return has_waiting(self.marks) or chunk.has_signed(self.chunks.values())

    def over(self, stored: Iterable[StoredChunk]) -> Iterator[StoredChunk]:
        """Yield the chunks that a database would have with these changes; `stored` are those that it has, in order."""
        for each in stored:
            if each.first not in self.dropped and each.first not in self.chunks:
                each.settled = self.settled.get(each.first, each.settled)
                yield each
        for first, made in self.chunks.items():
            yield StoredChunk(first, made.entries, len(made.messages), self.settled.get(first, b""))

    def now(self) -> LoggedChunks:
        """Return chunks as of this moment, for another thread."""
        return LoggedChunks(self.chunks.copy(), self.dropped.copy())

    def clear(self) -> None:
        """Forget everything: it is in the database."""
        self.chunks.clear()
        self.dropped.clear()
        self.settled.clear()
        self.marks.clear()
        self.octets = self.logged = 0

    def write(self, database: sqlite3.Connection, kept: Sequence[int] = (), again: bool = False) -> None:
        """Write everything to messages.db, within a transaction. Once more, it changes nothing.

        `kept` are chunks that cannot be deleted, and are put aside; `again`: it may have been written before. The
        connection has the views of `define`. Raises sqlite3.Error.
        """
        rows = [
            (each.first, chunk_checksum(each.entries), each.entries, each.messages)
            for each in self.chunks.values()
        ]
        if rows:
            database.executemany(AGAIN if again else CHUNK, rows)
        if self.settled or self.marks:
            database.execute(CHANGE, (*as_settled(self.settled), as_marks(self.marks)))
        if self.dropped:  # last: with them go the marks of their entries, also those just written
            database.execute(DELETION, (as_list([*self.dropped], set(kept)),))
        put_aside(database, kept)


class LoggedChunks:
    """The chunks that are in the redo log only, as of one moment."""

    __slots__ = ("_firsts", "chunks", "dropped")

    def __init__(self, chunks: dict[int, Chunk], dropped: dict[int, None]) -> None:
        """`chunks` are by ascending first number, and newer than those of the database; `dropped` are of that."""
        self.chunks = chunks
        self.dropped = dropped
        self._firsts: list[int] = []

    def find(self, number: int) -> Chunk | None:
        """Return the chunk that has an entry; None if all are newer than that."""
        if not self.chunks:
            return None
        self._firsts = self._firsts or [*self.chunks]
        at = bisect_right(self._firsts, number)
        return self.chunks[self._firsts[at - 1]] if at else None


def define(database: sqlite3.Connection) -> None:
    """Give a connection to messages.db the views through which commits are written. Raises sqlite3.Error."""
    for statement in VIEWS:
        database.execute(statement)


def put_aside(database: sqlite3.Connection, firsts: Sequence[int]) -> None:
    """Have messages.db say of chunks that they are to be ignored. Raises sqlite3.Error."""
    if firsts:
        database.executemany("insert or ignore into aside values (?)", [(first,) for first in firsts])

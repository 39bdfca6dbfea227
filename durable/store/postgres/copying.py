"""Copy a store between a data folder in SQLite and a shard in PostgreSQL, whole, in both directions.

What is copied from PostgreSQL is as of one moment, while a node serves it or not. What is copied into PostgreSQL is one
transaction, which holds the shard's row: no node can claim the shard before it is over.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Final

import psycopg

from leveret.durable.store import chunk, verification
from leveret.durable.store.backup import Progress
from leveret.durable.store.contract import Chunk, DamagedError, NoSpaceError, StoreError
from leveret.durable.store.folder import LOCK as LOCK_FILE
from leveret.durable.store.folder import BadFolder, make
from leveret.durable.store.postgres import schema
from leveret.durable.store.postgres.filled_folder import FilledFolder
from leveret.durable.store.postgres.pooler import require_own_sessions
from leveret.durable.store.postgres.session import (
    APPLICATION,
    BadDatabase,
    Database,
    Session,
    failure,
)
from leveret.durable.store.postgres.shard import Shard
from leveret.durable.store.postgres.source import PORTION_OCTETS, SnapshotSource
from leveret.durable.store.sqlite import SqliteStore

TYPES: Final = {
    "objects (shard, key, value)": ("text", "bytea", "bytea"),
    "chunks (shard, first, octets, entries, messages)": ("text", "int8", "int4", "bytea", "bytea"),
    "settled (shard, chunk, bits)": ("text", "int8", "bytea"),
    "marks (shard, entry, tries)": ("text", "int8", "int8"),
    "segments (shard, stream, first, next, octets, bodies, begun, last)": ("text", *("int8",) * 7),
    "blocks (shard, stream, segment, at, octets)": ("text", "int8", "int8", "int8", "bytea"),
    "producers (shard, stream, producer, sequence)": ("text", "int8", "bytea", "int8"),
}
OBJECTS, CHUNKS, SETTLED, MARKS, SEGMENTS, BLOCKS, PRODUCERS = TYPES
LOCK: Final = """
select owner, exists (select from {s}.objects where shard = s.id) from {s}.shard s where id = %s for update
"""


def to_folder(
    database: Database,
    folder: Path,
    progress: Progress = lambda done, total: None,
    bodies: bool = True,
    shard: str = schema.SHARD,
) -> None:
    """Copy a shard to a folder, which must be empty, or is created. Without `bodies` there are no messages in it.

    Raises BadFolder, StoreError, UnreachableError, OSError.
    """
    make(folder)
    if any(each.name != LOCK_FILE for each in folder.iterdir()):
        raise BadFolder(f"{folder} is not empty")
    with closing(SnapshotSource(database, shard, f"{APPLICATION}:copy", Event())) as source:
        total, done = source.octets(), 0
        clean = source.clean()
        target = FilledFolder(folder)
        try:
            target.take_objects(source.objects())
            for rows in source.chunks():
                found = [(Chunk(row.first, row.entries, b""), row.bits) for row in rows]
                for at in range(0, len(rows), 16):
                    part = found[at : at + 16]
                    if bodies:
                        whole = source.bodies([each.first for each, _ in part])
                        part = [(each, bits) for each, (_, bits) in zip(whole, part, strict=True)]
                        done += sum(len(each.messages) for each, _ in part)
                        progress(done, total)
                    target.take_chunks(part)
            target.take_marks(source.marks())
            spans = source.spans()
            target.take_streams(spans, source.producers())
            for span in spans if bodies else ():
                for at, octets in source.blocks(span.stream, span.first, span.octets):
                    target.take_block((span.stream, span.first), at, octets)
                    done += len(octets)
                    progress(done, total)
            target.finish(clean)
        except sqlite3.Error as error:
            raise OSError(f"{folder} cannot be written: {error}") from None
        except NoSpaceError as error:
            raise OSError(str(error)) from None


def to_database(
    folder: Path,
    database: Database,
    progress: Progress = lambda done, total: None,
    shard: str = schema.SHARD,
) -> None:
    """Copy a data folder, which no node uses, to a shard that is empty: all of it, or nothing.

    Raises BadFolder, StoreError, UnreachableError, OSError.
    """
    found = verification.verify(folder, progress)
    if found.problems:
        raise BadFolder(f"{folder} is damaged, and nothing was copied: {'; '.join(found.problems)}")
    require_own_sessions(database)
    with closing(Session(database, f"{APPLICATION}:copy")) as session:
        schema.check(session)
        source = SqliteStore(folder)
        try:
            with session.connection.transaction():
                _take(session, shard, source, progress, found.octets)
            if session.was_doubtful():
                raise StoreError(
                    f"{database} has it all, but its standby may not: wait for that, and look again"
                )
        except psycopg.Error as error:
            why = failure(error)
            raise StoreError(str(why)) if isinstance(why, NoSpaceError) else why from None
        except DamagedError as error:
            raise BadFolder(f"{folder} is damaged, and nothing was copied: {error}") from None
        finally:
            source.close(None)


def _take(session: Session, shard: str, source: SqliteStore, progress: Progress, total: int) -> None:
    """Write everything that a store has into the tables, in a transaction. Raises psycopg.Error, DamagedError."""
    row = session.row(LOCK, shard)
    if row is None:
        raise BadDatabase(f"{session.database} has no shard '{shard}': `leveret store init` makes it")
    if row[0] is not None or row[1]:
        why = f"the node '{row[0]}' serves it" if row[0] is not None else "there is something in it"
        raise BadDatabase(f"{session.database} is not empty: {why}")
    done = 0
    _copy(session, shard, OBJECTS, ((key.encode(), value.encode()) for key, value in source.objects()))
    settled: list[tuple[int, bytes]] = []

    def chunks() -> Iterable[tuple[object, ...]]:
        nonlocal done
        with source.reader() as reader:
            for kept in source.chunks():
                assert kept.entries is not None, "the folder was verified"
                if chunk.read(kept.entries).volatile:  # not recovered by the next start
                    continue
                if kept.settled:
                    settled.append((kept.first, kept.settled))
                messages = reader.messages(kept.first, 0, kept.octets)
                yield kept.first, kept.octets, kept.entries, messages
                done += kept.octets
                progress(done, total)

    _copy(session, shard, CHUNKS, chunks())
    _copy(session, shard, SETTLED, settled)
    _copy(session, shard, MARKS, source.marks())
    spans = list(source.spans())
    _copy(
        session,
        shard,
        SEGMENTS,
        ((s.stream, s.first, s.next, s.octets, s.bodies, s.begun, s.last) for s in spans),
    )

    def blocks() -> Iterable[tuple[object, ...]]:
        for span in spans:
            for at in range(0, span.octets, PORTION_OCTETS):
                octets = source.segment(span, at, min(PORTION_OCTETS, span.octets - at))
                yield span.stream, span.first, at, octets

    _copy(session, shard, BLOCKS, blocks())
    producers = source.producers()
    _copy(
        session,
        shard,
        PRODUCERS,
        ((stream, name.encode("utf-8", "surrogatepass"), last) for stream, name, last in producers),
    )
    session.done("update {s}.shard set clean = %s where id = %s", source.was_clean, shard)


def _copy(session: Session, shard: str, table: str, rows: Iterable[tuple[object, ...]]) -> None:
    """Write rows into a table. Raises psycopg.Error."""
    statement = session.statement(f"copy {{s}}.{table} from stdin (format binary)")
    with session.connection.cursor() as cursor, cursor.copy(statement) as copy:
        copy.set_types(TYPES[table])
        for row in rows:
            copy.write_row((shard, *row))


def inspected(database: Database, read_messages: bool, progress: Progress) -> verification.Report:
    """Return what a shard has, and what is wrong with it, by a copy in a temporary folder.

    Without `read_messages` nothing is verified. Raises BadFolder, StoreError, UnreachableError, OSError.
    """
    with tempfile.TemporaryDirectory(prefix="leveret-") as folder:
        to_folder(database, Path(folder), progress, read_messages)
        report = verification.verify(Path(folder)) if read_messages else verification.measure(Path(folder))
    with closing(Shard(database, "copy")) as shard:
        report.owner = shard.observe().owner
    report.database, report.files, report.free_octets = str(database), {}, 0
    return report


def made(database: Database) -> bool:
    """Create the tables, if they are not there yet. Return whether they were created.

    Raises BadDatabase, UnreachableError.
    """
    require_own_sessions(database)
    with closing(Session(database, f"{APPLICATION}:init")) as session:
        return schema.create(session)

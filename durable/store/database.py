"""Create, open and identify the two databases of a data folder, and classify SQLite's errors.

messages.db is created before meta.db, each under another name first: a file with its final name is whole. The two share
a random name, because messages refer to queues by numbers that only their own meta.db explains; and messages.db records
whether it was ever in use. So a file that is missing, or empty, is never taken for one that was not created yet.

Durability is SQLite's: a write-ahead log, synced with each commit (synchronous=FULL). `wal_tail.py` finds what may be
lost in the log without SQLite noticing.
"""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path
from typing import Final
from zlib import crc32

import attrs

from leveret.alarms import free_octets
from leveret.durable.store import quota
from leveret.durable.store.contract import DamagedError, NoSpaceError, StoreError
from leveret.durable.store.folder import MESSAGES, META, BadFolder, Folder
from leveret.durable.store.reserve import RESERVE_OCTETS
from leveret.durable.store.syncing import sync_folder

FORMAT: Final = 1
# Added to it in a messages.db that has marks of entries that wait (`mark.py`), or priorities below 0 (`chunk.py`),
WAITING: Final = 1
LOGGED: Final = 2  # and while some of its commits may be in the redo log only (`redo_log.py`)
FORMAT_MAX: Final = FORMAT + WAITING + LOGGED
IDS: Final = {MESSAGES: 0x4C76724D, META: 0x4C767254}  # SQLite's application_id
PAGE_OCTETS: Final = 4096
# left free on the disk after a log was copied: for a start, and for commits
LEFT_OCTETS: Final = RESERVE_OCTETS // 4
LOCKED_S: Final = 5.0  # how long to wait for another program's lock

RUNNING, CLOSED, COPIED = 0, 1, 2  # how a store ended: not at all, properly, as a copy of a running one
REMEDY: Final = "`leveret store verify` tells more, and `leveret store restore` makes a folder from a backup"

# `entries` comes before `messages`: the first columns of a row are read without those after them. A checksum covers all
# of a row, its key included; those of chunks are within `entries`.
SCHEMA: Final = {
    MESSAGES: (
        "CREATE TABLE chunks (first INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, entries BLOB NOT NULL, "
        "messages BLOB NOT NULL)",
        "CREATE TABLE settled (chunk INTEGER PRIMARY KEY, checksum INTEGER NOT NULL, bits BLOB NOT NULL)",
        "CREATE TABLE marks (entry INTEGER PRIMARY KEY, tries INTEGER NOT NULL, checksum INTEGER NOT NULL)",
        "CREATE TABLE aside (first INTEGER PRIMARY KEY)",
        "CREATE TABLE segments (place INTEGER PRIMARY KEY, stream INTEGER NOT NULL, first INTEGER NOT NULL, "
        "next INTEGER NOT NULL, octets INTEGER NOT NULL, bodies INTEGER NOT NULL, begun INTEGER NOT NULL, "
        "last INTEGER NOT NULL, checksum INTEGER NOT NULL)",
        "CREATE TABLE producers (place INTEGER PRIMARY KEY, stream INTEGER NOT NULL, producer BLOB NOT NULL, "
        "sequence INTEGER NOT NULL, checksum INTEGER NOT NULL)",
        "CREATE TABLE state (id INTEGER PRIMARY KEY, folder BLOB NOT NULL, epoch INTEGER NOT NULL, "
        "ended INTEGER NOT NULL, tally BLOB NOT NULL, checksum INTEGER NOT NULL)",
    ),
    META: (
        "CREATE TABLE objects (place INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, value TEXT NOT NULL, "
        "checksum INTEGER NOT NULL)",
        "CREATE TABLE state (id INTEGER PRIMARY KEY, folder BLOB NOT NULL)",
    ),
}


@attrs.frozen
class DatabaseState:
    """The row of messages.db that describes it."""

    folder: bytes  # the random name that it shares with its meta.db
    epoch: int  # the number of its starts; only the latest may write
    ended: int  # RUNNING, CLOSED or COPIED
    tally: bytes  # its contents when it was closed; see `salvage.tally`

    @property
    def checksum(self) -> int:
        return crc32(b"%b %d %d %b" % (self.folder, self.epoch, self.ended, self.tally))


# Opening.


def connected(file: Path, write: bool = True) -> sqlite3.Connection:
    """Connect to an existing database; for one thread at a time. Raises sqlite3.Error."""
    connection = sqlite3.connect(
        f"{file.absolute().as_uri()}?mode={'rw' if write else 'ro'}",
        uri=True,
        timeout=LOCKED_S,
        isolation_level=None,  # transactions begin explicitly
        check_same_thread=False,
    )
    connection.text_factory = bytes  # damaged text is not UTF-8
    connection.execute("pragma cell_size_check=on")
    connection.execute("pragma temp_store=memory")
    if write:
        connection.execute("pragma synchronous=full")
        connection.execute("pragma fullfsync=on")  # as `syncing.py` does; only macOS knows it
        connection.execute("pragma checkpoint_fullfsync=on")
        connection.execute("pragma wal_autocheckpoint=0")  # the writer copies the log, and handles the errors
        connection.execute("pragma secure_delete=off")  # otherwise deleting a chunk would write it once more
    return connection


def opened(file: Path, write: bool = True) -> sqlite3.Connection:
    """Connect to a database after checking that it is ours and of our format. Raises BadFolder."""
    try:
        # SQLite would take an empty file for a new database, and delete the log beside it as a leftover.
        if file.stat().st_size < PAGE_OCTETS:
            raise BadFolder(f"{file} is cut off. {REMEDY}.")
        connection = connected(file, write)
    except FileNotFoundError:
        raise BadFolder(f"{file} is missing. {REMEDY}.") from None
    except OSError as error:
        raise BadFolder(f"{file} cannot be opened: {error.strerror}") from None
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise unusable(file, error) from None
    try:
        _check_format(connection, file)
        if write and _pragma(connection, "journal_mode=wal") != b"wal":
            raise BadFolder(f"{file} is on a file system on which SQLite cannot keep a write-ahead log")
    except (sqlite3.Error, UnicodeDecodeError) as error:
        connection.close()
        raise unusable(file, error) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _check_format(connection: sqlite3.Connection, file: Path) -> None:
    if _pragma(connection, "application_id") != IDS[file.name]:
        raise BadFolder(f"{file} is no file of Leveret's, or its beginning is damaged. {REMEDY}.")
    number = _pragma(connection, "user_version")
    if isinstance(number, int) and number > FORMAT_MAX:
        raise BadFolder(
            f"{file} has format {number}, and this version of Leveret knows formats up to {FORMAT_MAX}: "
            "it was written by a newer version; use that one"
        )
    value = connection.execute("select sql from sqlite_schema where sql is not null").fetchall()
    schema = {sql.encode() for sql in SCHEMA[file.name]}
    if number not in range(FORMAT, FORMAT_MAX + 1) or {sql for (sql,) in value} != schema:
        raise BadFolder(f"{file} is damaged: its tables are not those of format {FORMAT}. {REMEDY}.")


def flags_of(messages: sqlite3.Connection) -> int:
    """Return what is added to the format of a messages.db: `WAITING` and `LOGGED`. Raises sqlite3.Error."""
    number = _pragma(messages, "user_version")
    assert isinstance(number, int), "it was checked when the database was opened"
    return number - FORMAT


def set_flags(messages: sqlite3.Connection, flags: int) -> None:
    """Set what is added to the format of a messages.db, in a transaction of its own. Raises sqlite3.Error."""
    messages.execute(f"pragma user_version={FORMAT + flags}")


def _pragma(connection: sqlite3.Connection, name: str) -> object:
    row = connection.execute(f"pragma {name}").fetchone()
    return row[0] if row else None


class UnusableDatabase(BadFolder):
    """A database that cannot be opened, and of which nothing is known to be damaged."""


def unusable(file: Path, error: sqlite3.Error | UnicodeDecodeError) -> BadFolder:
    """Return the exception for an error that prevents any use of a database."""
    if isinstance(error, UnicodeDecodeError):  # SQLite quotes what it found
        return BadFolder(f"{file} is damaged: its tables cannot be read. {REMEDY}.")
    if is_damage(error):
        return BadFolder(f"{file} is damaged: {error}. {REMEDY}.")
    free = free_octets(file.parent)
    is_full = free is not None and free < PAGE_OCTETS * 64
    return UnusableDatabase(f"{file} cannot be used: {'there is no space left' if is_full else error}")


# Creation.


def prepare(folder: Folder) -> None:
    """Create the databases, if there are none yet. Raises BadFolder."""
    there = folder.messages.exists(), folder.meta.exists()
    if there == (True, True):
        return
    if there == (False, True):
        raise BadFolder(f"{folder.messages} is missing. {REMEDY}.")
    if there == (True, False) and _was_used(folder.messages):
        raise BadFolder(f"{folder.meta} is missing. {REMEDY}.")
    name = os.urandom(16)
    try:
        _make(folder.messages, DatabaseState(name, 0, CLOSED, b""))
        _make(folder.meta, DatabaseState(name, 0, CLOSED, b""))
    except (OSError, sqlite3.Error) as error:
        raise BadFolder(f"the data folder {folder.path} cannot be written: {error}") from None


def _was_used(messages: Path) -> bool:
    connection = opened(messages)
    try:
        return state_of(connection).epoch > 0
    except (sqlite3.Error, DamagedError):
        return True
    finally:
        connection.close()


def _make(file: Path, state: DatabaseState) -> None:
    """Create a database under another name, and rename it once it is whole."""
    made = file.with_suffix(".new")
    made.unlink(missing_ok=True)
    # not readable by others, wherever the folder is; SQLite gives its logs the same mode
    made.touch(mode=0o600)
    connection = sqlite3.connect(made, isolation_level=None)
    try:
        connection.execute(f"pragma page_size={PAGE_OCTETS}")
        connection.execute("pragma auto_vacuum=incremental")  # possible only before the first table
        connection.execute("begin")
        for table in SCHEMA[file.name]:
            connection.execute(table)
        if file.name == MESSAGES:
            say(connection, state)
        else:
            connection.execute("insert into state values (1, ?)", (state.folder,))
        connection.execute(f"pragma application_id={IDS[file.name]}")
        connection.execute(f"pragma user_version={FORMAT}")
        connection.execute("commit")
    finally:
        connection.close()
    made.rename(file)
    sync_folder(file.parent)


# State.


def state_of(connection: sqlite3.Connection) -> DatabaseState:
    """Return the state of messages.db. Raises DamagedError, sqlite3.Error."""
    row = connection.execute(
        "select folder, epoch, ended, tally, checksum from state where id = 1"
    ).fetchone()
    if row is None:
        raise DamagedError("the state is missing")
    try:
        state = DatabaseState(*row[:4])
        if state.checksum == row[4]:
            return state
    except (TypeError, ValueError):  # damaged columns may have any type
        pass
    raise DamagedError("the checksum of the state does not fit")


def say(connection: sqlite3.Connection, state: DatabaseState) -> None:
    """Write the state of messages.db, in a transaction."""
    connection.execute(
        "insert or replace into state values (1, ?, ?, ?, ?, ?)",
        (state.folder, state.epoch, state.ended, state.tally, state.checksum),
    )


def folder_of(meta: sqlite3.Connection) -> object:
    """Return the random name in meta.db. Raises sqlite3.Error."""
    row = meta.execute("select folder from state where id = 1").fetchone()
    return row[0] if row else None


# Write-ahead log.


def copied(connection: sqlite3.Connection) -> int:
    """Copy the log into the database, but for what readers still need. Returns its bytes. Raises sqlite3.Error."""
    return frames_copied(connection) * PAGE_OCTETS


def frames_copied(connection: sqlite3.Connection) -> int:
    """Like `copied`, but return the log's size in frames.

    SQLite would use up the free room before it reports that it is not enough, and then no commit would fit.
    """
    if not _has_room(connection):
        error = sqlite3.OperationalError("there is no room to copy the log")
        error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_FULL, "SQLITE_FULL"
        raise error
    _, frames, _ = connection.execute("pragma wal_checkpoint(passive)").fetchone()
    return int(frames)


def _has_room(connection: sqlite3.Connection) -> bool:
    """Return whether the disk has room for the database to grow by its log."""
    file = file_of(connection)
    free = free_octets(file.parent)
    try:
        growth = pages_of(connection) * PAGE_OCTETS - file.stat().st_size
    except OSError:
        free = None
    # Where it is unknown, SQLite will find out.
    return free is None or growth <= 0 or growth + LEFT_OCTETS <= free


def pages_of(connection: sqlite3.Connection) -> int:
    """Return the pages of a database, with those that are in its log only. Raises sqlite3.Error."""
    return int(connection.execute("pragma page_count").fetchone()[0])


def file_of(connection: sqlite3.Connection) -> Path:
    """Return the file of a database. Raises sqlite3.Error."""
    _, _, file = connection.execute("pragma database_list").fetchone()
    return Path(os.fsdecode(file))


def cut(connection: sqlite3.Connection) -> None:
    """Copy the log into the database, and truncate it if there is no reader. Raises sqlite3.Error."""
    copied(connection)
    connection.execute("pragma busy_timeout=0")  # a backup may read for minutes: then leave the log as it is
    connection.execute("pragma wal_checkpoint(truncate)").fetchone()
    connection.execute(f"pragma busy_timeout={round(LOCKED_S * 1000)}")


# Errors.


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether SQLite reports that the contents of a file are damaged."""
    return _code(error) in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def failure(error: Exception, what: str, folder: Path | None = None) -> NoSpaceError | StoreError:
    """Return why a commit failed; everything but lack of space is permanent. `folder` may have a quota."""
    if isinstance(error, StoreError):
        return error
    if is_want_of_room(error, folder):
        return NoSpaceError(f"{what}: {error}")
    if isinstance(error, sqlite3.Error) and is_damage(error):
        return StoreError(f"{what}: {error}. {REMEDY}.")
    name = getattr(error, "sqlite_errorname", type(error).__name__)
    return StoreError(f"{what}: {error} ({name})")


def is_want_of_room(error: Exception, folder: Path | None = None) -> bool:
    """Return whether there was no room on the disk, or in the table of open files: the same may succeed later.

    To SQLite a write that the quota of a folder forbids is one that has failed. It takes both back in the same way.
    """
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT) or is_want_of_files(error)
    code: int = getattr(error, "sqlite_errorcode", 0)
    # The log's index beside the database gets its room when it grows; if that fails, nothing has happened yet.
    if code & 0xFF == sqlite3.SQLITE_FULL or code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return True
    return code == sqlite3.SQLITE_IOERR_WRITE and folder is not None and quota.is_used_up(folder)


def is_want_of_files(error: BaseException | None) -> bool:
    """Return whether no more files could be opened, which room on the disk does not change."""
    return isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)


def _code(error: sqlite3.Error) -> int:
    """Return the primary code of an error; 0 if it is the Python module's own."""
    code: int = getattr(error, "sqlite_errorcode", 0)
    return code & 0xFF


def is_trouble_of_disk(error: sqlite3.Error) -> bool:
    """Return whether the operating system could not read or write."""
    return _code(error) in (sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_NOMEM)

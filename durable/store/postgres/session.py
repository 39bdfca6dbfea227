"""Connect to PostgreSQL, and classify its errors: lost, full, fenced, or a mistake.

A commit on which PostgreSQL waited for its synchronous standby in vain is a success with a warning. The commit is on
the primary alone, and may be gone after a failover: a session notes each warning, and its caller asks for them.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final
from zlib import crc32

import attrs

from leveret.durable.store.contract import FencedError, FullDatabaseError, NoSpaceError, StoreError
from leveret.durable.store.folder import BadFolder

try:
    import psycopg
    from psycopg import conninfo, pq, sql
    from psycopg.errors import error_from_result
except ImportError:
    raise BadFolder(
        "the store engine `postgres` needs the package psycopg: pip install 'leveret[postgres]'"
    ) from None

if TYPE_CHECKING:
    from psycopg.errors import Diagnostic

    from leveret.durable.store.wakeup import Wakeup

FENCED: Final = "LV001"  # SQLSTATE of a commit of an epoch that is over
MISTAKES: Final = (
    "22",
    "23",
    "42",
)  # classes of SQLSTATE: the same statement fails again, however often it is sent
FULL: Final = "53"  # insufficient resources: disk, memory
DISK_FULL: Final = "53100"
NOT_PREPARED: Final = ("26000", "42P05")  # a statement is not prepared, or is already
APPLICATION: Final = "leveret"
LOOK_S: Final = 0.25  # between two looks at whether to go on waiting for an answer

# A connection whose other end is gone is noticed within 5 s, as is a host that does not answer.
DEFAULTS: Final = {
    "connect_timeout": "2",
    "keepalives_idle": "2",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "5000",  # ms
    "target_session_attrs": "read-write",
}

NOT_UNDERSTOOD: Final = (
    "the connection string is not understood: libpq's `host=... dbname=...` or `postgresql://...` is expected"
)

POOLED: Final = (
    "a pooler lends sessions of the server to one transaction after another, which loses prepared statements and "
    "settings: connect to the server itself, or have the pooler keep a session for each client "
    "(PgBouncer: pool_mode = session)"
)

Value = str | int | bool | bytes | None


def boottime() -> float:
    """Return monotonic seconds that go on while the machine sleeps, where the system has such a clock."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class BadDatabase(BadFolder):
    """A database cannot be used as a store. The text says why, and what can be done; it has no password."""


class UnreachableError(Exception):
    """The database did not answer, or its connection was lost: what was sent may have been done, or not."""


@attrs.frozen
class Database:
    """The place of the store's tables: a connection string, which `repr` leaves out, and a schema."""

    dsn: str = attrs.field(repr=False)  # libpq's: "host=... dbname=..." or a URI; PG* variables fill it up
    schema: str = "leveret"

    def __str__(self) -> str:
        """Return the place for people, without the password."""
        try:
            known = conninfo.conninfo_to_dict(self.dsn)
        except psycopg.Error:
            return f"schema {self.schema}"
        shown = {name: known[name] for name in ("host", "port", "dbname", "user") if known.get(name)}
        return " ".join(f"{name}={value}" for name, value in (shown | {"schema": self.schema}).items())


def application_name(database: Database, shard: str, epoch: int) -> str:
    """Return the name by which others find the sessions of a shard's owner; PostgreSQL cuts it after 63 bytes."""
    return f"{APPLICATION}:{crc32(database.schema.encode()):08x}:{shard}:{epoch}"


def standby_name(database: Database, node: str) -> str:
    """Return the name of the session of a node that stands by."""
    return f"{APPLICATION}:{crc32(database.schema.encode()):08x}:standby:{node}"


class Session:
    """One connection, for one thread at a time. Each statement is a transaction of its own."""

    def __init__(self, database: Database, name: str) -> None:
        """Connect; `name` is shown to the database's operators. Raises UnreachableError, BadDatabase."""
        self.database = database
        self.doubtful = False  # a warning came: what was committed may not be on the standby
        self._prepared: set[bytes] = set()
        self.connection = connected(database, name)
        self.connection.add_notice_handler(self._on_notice)
        try:
            # A role may have been given another value; confirms rest on these.
            self.connection.execute("set synchronous_commit = 'on'")
            self.connection.execute("set statement_timeout = 0")
            self.connection.execute("set idle_session_timeout = 0")
        except psycopg.Error as error:
            self.close()
            raise unusable(database, error) from None

    def _on_notice(self, told: Diagnostic) -> None:
        if (told.sqlstate or "01000").startswith("01"):
            self.doubtful = True

    def statement(self, text: str) -> sql.Composed:
        """Return a statement with the schema in the place of `{s}`."""
        return sql.SQL(text).format(s=sql.Identifier(self.database.schema))

    def row(self, text: str, *values: Value) -> tuple[object, ...] | None:
        """Run a statement, and return its first row. Raises UnreachableError, FencedError, NoSpaceError, StoreError."""
        try:
            return self.connection.execute(self.statement(text), values).fetchone()
        except psycopg.Error as error:
            raise failure(error) from None

    def done(self, text: str, *values: Value) -> int:
        """Run a statement, and return the number of rows that it changed. Raises as `row` does."""
        try:
            return self.connection.execute(self.statement(text), values).rowcount
        except psycopg.Error as error:
            raise failure(error) from None

    def rows(self, text: str, *values: object) -> Sequence[tuple[object, ...]]:
        """Run a statement, and return all its rows. Raises as `row` does."""
        try:
            return self.connection.execute(self.statement(text), values, binary=True).fetchall()
        except psycopg.Error as error:
            raise failure(error) from None

    # Statements whose answer may be long in coming.

    def prepare(self, name: bytes, text: str) -> None:
        """Prepare a statement under a name, unless it is. Raises UnreachableError, StoreError."""
        if name in self._prepared:
            return
        try:
            statement = self.statement(text).as_bytes(self.connection)
            result = self.connection.pgconn.prepare(name, statement)
            if result.status != pq.ExecStatus.COMMAND_OK:
                raise error_from_result(result, "utf-8")
        except psycopg.Error as error:
            raise failure(error) from None
        self._prepared.add(name)

    def send(self, name: bytes, values: Sequence[bytes | None], waiting: Callable[[], None]) -> None:
        """Send a prepared statement with values in binary. `waiting` is called while the other end is slow.

        Raises UnreachableError, and what `waiting` raises.
        """
        self.begin(name, values)
        self.flush(waiting)

    def begin(self, name: bytes, values: Sequence[bytes | None]) -> None:
        """Send of a prepared statement what can be sent without waiting. Raises UnreachableError."""
        pg = self.connection.pgconn
        try:
            pg.send_query_prepared(name, values, [1] * len(values), 1)
            pg.flush()
        except psycopg.Error as error:
            raise failure(error) from None

    def flush(self, waiting: Callable[[], None]) -> None:
        """Send the rest of a statement that was begun, as `send` does."""
        pg = self.connection.pgconn
        try:
            while pg.flush():
                readable, writable, _ = select.select([pg.socket], [pg.socket], [], LOOK_S)
                if readable:
                    pg.consume_input()
                if not (readable or writable):
                    waiting()
        except psycopg.Error as error:
            raise failure(error) from None

    def is_prepared(self, name: bytes) -> bool:
        """Return whether a statement has been prepared under a name."""
        return name in self._prepared

    def answer(self, waiting: Callable[[], None], wakeup: Wakeup | None = None) -> list[bytes | None] | None:
        """Wait for the answer of what was sent, and return its first row, in binary.

        `waiting` is called when another thread has called `wakeup.wake`, too. Raises UnreachableError, FencedError,
        NoSpaceError, StoreError, and what `waiting` raises.
        """
        pg = self.connection.pgconn
        poll = select.poll()
        poll.register(pg.socket, select.POLLIN)
        if wakeup is not None:
            poll.register(wakeup.fileno(), select.POLLIN)
        try:
            while pg.is_busy():
                if pg.socket not in [number for number, _ in poll.poll(LOOK_S * 1000)]:
                    if wakeup is not None:
                        wakeup.hear()
                    waiting()
                pg.consume_input()
            row: list[bytes | None] | None = None
            error: psycopg.Error | None = None
            while (result := pg.get_result()) is not None:
                if result.status not in (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK):
                    error = error_from_result(result, "utf-8")
                elif result.ntuples:
                    row = [result.get_value(0, column) for column in range(result.nfields)]
            if error is not None:
                raise error
        except psycopg.Error as why:
            raise failure(why) from None
        return row

    def was_doubtful(self) -> bool:
        """Return whether a warning came since the last call."""
        doubtful, self.doubtful = self.doubtful, False
        return doubtful

    def close(self) -> None:
        """Close the connection, whatever state it is in."""
        self.connection.close()


def owner_session(database: Database, shard: str, epoch: int) -> Session:
    """Connect as the owner of a shard, for commits. Raises UnreachableError, BadDatabase.

    Each of their statements looks rows up by their key. A plan made while a table was small would read all of it, with
    what is dead and cannot be removed yet.
    """
    session = Session(database, application_name(database, shard, epoch))
    try:
        for kind in ("seqscan", "bitmapscan", "hashjoin", "mergejoin"):
            session.connection.execute(f"set enable_{kind} = off".encode())
    except psycopg.Error as error:
        session.close()
        raise unusable(database, error) from None
    return session


def connected(database: Database, name: str) -> psycopg.Connection:
    """Return a connection of psycopg under a name for operators. Raises UnreachableError, BadDatabase."""
    try:
        given = conninfo.conninfo_to_dict(database.dsn)
        wanted = DEFAULTS | {key: str(value) for key, value in given.items()} | {"application_name": name}
        text = conninfo.make_conninfo(**wanted)
    except psycopg.Error:  # its text may quote a part of the password
        raise BadDatabase(NOT_UNDERSTOOD) from None
    try:
        return psycopg.connect(text, autocommit=True, prepare_threshold=0)
    except psycopg.Error as error:
        raise unusable(database, error) from None


def failure(error: psycopg.Error) -> UnreachableError | FencedError | NoSpaceError | StoreError:
    """Return why a statement failed, as one of ours."""
    state = error.sqlstate or ""
    if state == FENCED:
        return FencedError("another node has taken over: this one confirms nothing more")
    if state == DISK_FULL:
        return FullDatabaseError(f"the database has no room: {line_of(error)}")
    if state.startswith(FULL):
        return NoSpaceError(f"the database has no room: {line_of(error)}")
    if state in NOT_PREPARED:
        return StoreError(POOLED)
    if state.startswith(MISTAKES) or isinstance(error, psycopg.ProgrammingError | psycopg.DataError):
        return StoreError(f"the database refuses: {line_of(error)} ({state})")
    return UnreachableError(line_of(error))


def unusable(database: Database, error: psycopg.Error) -> UnreachableError:
    """Return the error of an attempt to connect."""
    return UnreachableError(f"{database}: {POOLED if error.sqlstate in NOT_PREPARED else line_of(error)}")


def line_of(error: Exception) -> str:
    """Return an error's text on one line; libpq's have a line for each address tried, and never a password."""
    return "; ".join(part.strip() for part in str(error).splitlines() if part.strip()) or type(error).__name__

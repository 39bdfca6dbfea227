"""Find out whether a pooler stands before the server, and lends its sessions to one transaction after another.

A session that is lent keeps neither prepared statements nor settings for its client, and the store rests on both: its
commits are prepared statements, and `synchronous_commit` is set for each session. A pooler that keeps one session for
each client, as PgBouncer's `pool_mode = session` does, is as good as none.
"""

from __future__ import annotations

import select
from contextlib import closing
from enum import Enum
from typing import Final

import psycopg
from psycopg import pq

from leveret.durable.store.postgres.session import (
    POOLED,
    BadDatabase,
    Database,
    UnreachableError,
    connected,
    unusable,
)

APPLICATION: Final = "leveret:probe"
PROCESS: Final = b"select pg_backend_pid()"
LOOKS: Final = 16  # at the processes that serve two clients in turn
PATIENCE_S: Final = 5.0  # for a pooler that has no session left


class Pooling(Enum):
    """The ways in which a client is connected to the server."""

    NONE = "the connection goes straight to the server"
    KEPT = "a pooler keeps a session of the server for each client"
    LENT = POOLED


def require_own_sessions(database: Database) -> None:
    """Refuse a pooler that lends sessions. Raises BadDatabase, UnreachableError."""
    if pooling(database) is Pooling.LENT:
        raise BadDatabase(f"{database}: {POOLED}")


def pooling(database: Database) -> Pooling:
    """Return what stands before the server. Raises BadDatabase, UnreachableError.

    A pooler shows clients another process than the server's. One that lends sessions is seen by the server's: a client
    has that of another for its next transaction, or one that it had not before. Where two are lent in turn, clients
    that take turns, too, would each have the same again and again: so the second asks once, then twice, then thrice.
    """
    try:
        with closing(connected(database, APPLICATION)) as first:
            own = _value(first, PROCESS)
            if own == b"%d" % first.info.backend_pid:
                return Pooling.NONE
            with closing(connected(database, APPLICATION)) as second:
                for look in range(LOOKS):
                    others = [_value(second, PROCESS) for _ in range(1 + look % 3)]
                    if own in others or _value(first, PROCESS) != own:
                        return Pooling.LENT
            return Pooling.KEPT
    except psycopg.Error as error:
        raise unusable(database, error) from None


def _value(connection: psycopg.Connection, text: bytes) -> bytes | None:
    """Run statements that are not prepared, and return the first value that they give. Raises UnreachableError."""
    pg = connection.pgconn
    pg.send_query(text)
    value = None
    while True:
        while pg.is_busy():
            if not select.select([pg.socket], [], [], PATIENCE_S)[0]:
                raise UnreachableError(
                    "the pooler has no session of the server left, or the server does not answer"
                )
            pg.consume_input()
        if (result := pg.get_result()) is None:
            return value
        if result.status == pq.ExecStatus.FATAL_ERROR:
            raise UnreachableError(result.error_message.decode(errors="replace").strip())
        if result.ntuples:
            value = result.get_value(0, 0)

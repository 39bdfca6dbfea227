"""`leveret` with two mistakes: no commit or beat names its epoch, and the owner never suspends itself.

The function in the database has to be replaced as well (`without_epochs`).
"""

from __future__ import annotations

import sys

from leveret.durable.store.postgres import schema, writer
from leveret.durable.store.postgres.session import Database, Session
from leveret.server.cli import main
from leveret.server.cluster.lease import OwnLease

CHECK = "where id = shard_ and epoch = epoch_ and claim = claim_"
BARRIER_CHECK = "and epoch = $2::bigint and claim = $3::text"


def without_epochs(database: Database) -> None:
    """Replace the function that commits by one that takes every epoch."""
    assert CHECK in schema.COMMIT
    replace(database, schema.COMMIT.replace(CHECK, "where id = shard_"))


def with_epochs(database: Database) -> None:
    replace(database, schema.COMMIT)


def replace(database: Database, text: str) -> None:
    session = Session(database, "test")
    session.connection.execute(session.statement(text))
    session.close()


if __name__ == "__main__":
    assert BARRIER_CHECK in writer.BARRIER
    writer.BARRIER = writer.BARRIER.replace(  # type: ignore[misc]
        BARRIER_CHECK, "and $2::bigint is not null and $3::text is not null"
    )
    OwnLease.has_lapsed = lambda self, now: False  # type: ignore[method-assign]
    sys.exit(main())

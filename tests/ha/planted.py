"""`leveret` with two mistakes: the owner never suspends itself, and does not listen to its successor.

The functions in the database have to be replaced as well: no commit or beat compares its epoch (`without_epochs`).
"""

from __future__ import annotations

import sys

from leveret.durable.store.postgres import schema
from leveret.durable.store.postgres.session import Database, Session
from leveret.server.cli import main
from leveret.server.cluster.lease import OwnLease
from leveret.server.cluster.member import Member

CHECK = "where id = shard_ and epoch = epoch_ and claim = claim_"
BARRIER_CHECK = "where id = shard_ and epoch = epoch_ and (claim_ is null or claim = claim_)"


def without_epochs(database: Database) -> None:
    """Replace the function that commits by one that takes every epoch."""
    assert CHECK in schema.COMMIT
    assert BARRIER_CHECK in schema.BARRIER
    everybody = "where id = shard_"
    replace(
        database, schema.COMMIT.replace(CHECK, everybody), schema.BARRIER.replace(BARRIER_CHECK, everybody)
    )


def with_epochs(database: Database) -> None:
    replace(database, schema.COMMIT, schema.BARRIER)


def replace(database: Database, *texts: str) -> None:
    session = Session(database, "test")
    schema.run(session, texts)
    session.close()


if __name__ == "__main__":
    Member.hear = lambda self, news: None  # type: ignore[method-assign]
    OwnLease.has_lapsed = lambda self, now: False  # type: ignore[method-assign]
    sys.exit(main())

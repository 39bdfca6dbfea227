"""A pooler before the database is found out: one that lends sessions is refused, by its name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing

import attrs
import psycopg
import pytest

from leveret.durable.store.contract import StoreError
from leveret.durable.store.postgres import copying
from leveret.durable.store.postgres.pooler import Pooling, pooling
from leveret.durable.store.postgres.session import POOLED, BadDatabase, Database, Session, UnreachableError
from leveret.durable.store.postgres.shard import Shard
from leveret.server.cluster.inspection import inspect
from tests.harness.pooler import pooler


@pytest.fixture
def lent(database: Database) -> Iterator[Database]:
    with pooler(database.dsn, lends=True) as dsn:
        yield attrs.evolve(database, dsn=dsn)


@pytest.fixture
def kept(database: Database) -> Iterator[Database]:
    with pooler(database.dsn, lends=False) as dsn:
        yield attrs.evolve(database, dsn=dsn)


def test_what_stands_before_the_server_is_told(database: Database, lent: Database, kept: Database):
    assert [pooling(each) for each in (database, lent, kept)] == [Pooling.NONE, Pooling.LENT, Pooling.KEPT]


@pytest.mark.parametrize("sessions", [2, 3, 4])
@pytest.mark.parametrize("in_turn", [False, True])
def test_one_that_lends_is_found_out_however_many_sessions_are_free(
    database: Database, in_turn: bool, sessions: int
):
    with pooler(database.dsn, lends=True, in_turn=in_turn) as dsn, ExitStack() as open_:
        clients = [
            open_.enter_context(closing(psycopg.connect(dsn, prepare_threshold=None)))
            for _ in range(sessions)
        ]
        for each in clients:
            each.execute("select 1")  # in a transaction: each has a session
        for each in clients:
            each.commit()
        assert pooling(attrs.evolve(database, dsn=dsn)) is Pooling.LENT


def test_a_pooler_that_lends_sessions_is_refused_where_a_node_begins(lent: Database):
    for begin in (Shard(lent).observe, lambda: copying.made(lent)):
        with pytest.raises(BadDatabase, match="pool_mode = session"):
            begin()


def test_a_pooler_that_keeps_sessions_is_used(kept: Database):
    shard = Shard(kept, "a")
    assert shard.claim(shard.observe().epoch, "a", None) == 1
    shard.close()


def test_one_that_comes_between_later_is_named_in_the_error(lent: Database):
    with closing(Session(lent, "a")) as session:
        session.row("select 1")
        with pytest.raises(UnreachableError, match="pool_mode = session"):
            Session(lent, "b")
        with psycopg.connect(lent.dsn, prepare_threshold=None) as other:
            other.execute("select 1")  # in a transaction: the session of the server in which all was prepared
            with pytest.raises(StoreError) as failure:
                session.row("select 1")
    assert str(failure.value) == POOLED


def test_it_is_a_finding_of_the_check(lent: Database, kept: Database):
    *_, last = inspect(lent, requires_standby=True)
    assert (last.what, last.ok, last.found) == ("pooler", False, POOLED)
    found = {each.what: each for each in inspect(kept, requires_standby=True)}
    assert (found["pooler"].ok, found["pooler"].found) == (True, Pooling.KEPT.value)

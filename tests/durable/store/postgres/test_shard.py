"""One row says which node serves: two nodes that look at it, and take it from each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing

import pytest

from leveret.durable.store.postgres import schema
from leveret.durable.store.postgres.session import (
    BadDatabase,
    Database,
    Session,
    UnreachableError,
    application_name,
)
from leveret.durable.store.postgres.shard import Shard, ShardRow
from tests.harness.postgres import Pair

Open = Callable[..., Shard]


@pytest.fixture
def shard_of(database: Database) -> Iterator[Open]:
    """Opens the shard for one observer more."""
    with ExitStack() as stack:
        yield lambda node="": stack.enter_context(closing(Shard(database, node)))


def test_a_new_shard_has_no_owner(shard_of: Open):
    row = shard_of().observe()
    assert row == ShardRow(0, None, None, row.beat, 0, False)


def test_a_claim_begins_the_next_epoch_and_only_one_of_two_gets_it(shard_of: Open):
    one, two = shard_of("one"), shard_of("two")
    assert one.claim(0, "one", "10.0.0.1:5672") == 1
    assert two.claim(0, "two", None) is None
    row = two.observe()
    assert row == ShardRow(1, "one", "10.0.0.1:5672", row.beat, 0, False)
    assert two.claim(1, "two", None) == 2
    assert one.observe() == ShardRow(2, "two", None, row.beat, 0, False)


def test_the_owner_of_an_epoch_that_is_over_can_neither_beat_nor_release(shard_of: Open):
    one, two = shard_of("one"), shard_of("two")
    one.claim(0, "one", None)
    before = two.observe().beat
    assert one.beat(1)
    assert one.beat(1)
    beat = two.observe().beat
    assert beat > before
    two.claim(1, "two", None)
    assert not one.beat(1)
    assert not one.release(1)
    assert two.observe() == ShardRow(2, "two", None, beat, 0, False)
    assert two.release(2)
    assert one.observe().owner is None


def test_a_claim_ends_the_sessions_of_the_old_owner(database: Database, shard_of: Open):
    shard = shard_of()
    shard.claim(0, "one", None)
    owner = Session(database, application_name(database, "main", 1))
    other = Session(Database(database.dsn, "other"), application_name(Database("", "other"), "main", 1))
    assert shard.observe().session
    assert shard.claim(1, "two", None) == 2
    assert not shard.observe().session
    with pytest.raises(UnreachableError):
        owner.row("select 1")
    assert other.row("select 1") == (1,), "it is of another schema"
    owner.close()
    other.close()


def test_a_schema_is_made_once_and_that_of_a_newer_version_is_refused(database: Database, shard_of: Open):
    session = Session(database, "test")
    assert not schema.create(session)
    session.done("update {s}.format set version = 99")
    with pytest.raises(BadDatabase, match="newer version"):
        shard_of().observe()
    with pytest.raises(BadDatabase, match="newer version"):
        schema.create(session)
    session.close()


def test_without_a_schema_the_command_that_makes_one_is_named(postgres_pair: Pair):
    with pytest.raises(BadDatabase, match="leveret store init"):
        Shard(Database(postgres_pair.dsn, "nothing here")).observe()


def test_no_error_has_the_password():
    for dsn in (
        "host=/nonexistent password=geheim",
        "password=ge heim",
        "postgresql://u:geheim@127.0.0.1:1/x",
    ):
        with pytest.raises((BadDatabase, UnreachableError)) as caught:
            Shard(Database(dsn)).observe()
        assert "heim" not in str(caught.value)
        assert "heim" not in repr(Database(dsn))

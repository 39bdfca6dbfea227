"""No row has a new version with each commit: versions stay while a transaction of anybody else is open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leveret.durable.store.postgres import schema, writer
from leveret.durable.store.postgres.session import BadDatabase, Database, Session, owner_session
from leveret.durable.store.postgres.shard import Shard
from leveret.durable.store.postgres.store import PostgresStore
from tests.durable.store.shelf import Shelf, append, entries

READ = "select coalesce(sum(idx_tup_read), 0) from pg_stat_user_indexes where schemaname = %s"
ROW = "select ctid::text, clean from {s}.shard"
DEAD = 100
COMMITS = 3 * schema.COMMITS_A_PART

DOWNGRADE = (
    "drop function {s}.barrier",
    "drop function {s}.committed",
    "drop table {s}.commits",
    "drop sequence {s}.beats",
    "alter table {s}.segments drop part, add primary key (shard, stream, first)",
    "alter table {s}.producers drop part, add primary key (shard, stream, producer)",
    "update {s}.format set version = 1",
)


def test_neither_a_commit_nor_a_beat_makes_a_version_of_the_shards_row(shelf: Shelf, asked: Session):
    before = asked.rows(ROW)
    for number in range(2, 12):
        shelf.commit(chunks=[entries(number, b"x")], dropped=[number - 1])
    with closing(Shard(shelf.database or Database(""))) as shard:
        assert shard.beat(1)
        assert shard.observe().number == 11
    assert asked.rows(ROW) == before


def test_rows_of_streams_are_others_after_some_commits_and_the_last_ones_count(
    shelf: Shelf, database: Database, asked: Session
):
    for number in range(COMMITS):
        shelf.commit(appends=[append(7, number, b"x")], producers={(7, "p"): number})
    for table in ("segments", "producers"):
        [(part,)] = asked.rows(f"select part from {{s}}.{table}")
        assert int(str(part)) % (1 << 40) >= COMMITS // schema.COMMITS_A_PART, "it is not the first"
    shelf.store.close(None)
    again = Shelf.of_database(database, Path(str(shelf.folder) + "-again"))
    try:
        assert [(span.first, span.next) for span in again.store.spans()] == [(0, COMMITS)]
        assert list(again.store.producers()) == [(7, "p", COMMITS - 1)]
        again.start()
        again.commit(appends=[append(7, COMMITS, b"x")], producers={(7, "p"): -1})
        assert asked.rows("select next from {s}.segments") == [(COMMITS + 1,)], "also in a new epoch"
        assert asked.rows("select 1 from {s}.producers") == []
    finally:
        again.store.close(None)


def test_numbers_of_earlier_commits_are_deleted(
    shelf: Shelf, asked: Session, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer, "NUMBERS_KEPT", 4)
    for number in range(2, 30):
        shelf.commit(chunks=[entries(number, b"x")])
    rows = asked.rows("select number from {s}.commits order by number")
    assert 4 <= len(rows) <= 8
    assert rows[-1] == (29,)


GONE: dict[str, Callable[[int], tuple[dict[str, object], dict[str, object]]]] = {
    "chunks": lambda at: ({"chunks": [entries(at, b"x")]}, {"dropped": [at]}),
    "chunks that were settled": lambda at: (
        {"chunks": [entries(at, b"x", b"y")], "settled": {at: b"\1"}},
        {"dropped": [at]},
    ),
    "objects": lambda at: ({"objects": {f"o{at}": "x"}}, {"objects": {f"o{at}": None}}),
    "segments": lambda at: ({"appends": [append(7, at, b"x", segment=at)]}, {"cut": [(7, at)]}),
    "streams": lambda at: ({"appends": [append(at, 0, b"x")]}, {"ended": [at]}),
    "producers": lambda at: ({"producers": {(7, f"p{at}"): 1}}, {"producers": {(7, f"p{at}"): -1}}),
}


@pytest.mark.parametrize("kind", GONE)
def test_a_commit_reads_none_of_what_is_dead_while_a_transaction_of_somebody_stays_open(
    kind: str, shelf: Shelf, database: Database, asked: Session
):
    """PostgreSQL keeps rows that were deleted since it has begun, and their entries in indexes."""
    [(before,)] = asked.rows(READ, database.schema)
    with closing(Session(database, "test")) as somebody:
        somebody.done("begin isolation level repeatable read")
        somebody.rows("select count(*) from {s}.chunks")
        for at in range(2, 2 + DEAD):
            for change in GONE[kind](at):
                shelf.commit(**change)
            if at == DEAD // 10:  # from now on the planner takes the table for an empty one
                for table in ("objects", "chunks", "settled", "segments", "blocks", "producers"):
                    asked.done(f"analyze {{s}}.{table}")
        shelf.store.close(None)  # what its connections have read is counted now
        [(after,)] = asked.rows(READ, database.schema)
    assert int(str(after)) - int(str(before)) < 15 * DEAD


@pytest.fixture
def earlier(database: Database) -> Iterator[Database]:
    """A store in format 1."""
    with closing(Session(database, "test")) as session:
        for text in DOWNGRADE:
            session.done(text)
    yield database
    with closing(Session(database, "test")) as session:
        if schema.version_of(session) == 1:
            schema.upgrade(session)


def test_who_takes_a_store_of_format_2_over_makes_its_functions_anew(database: Database, asked: Session):
    asked.done(
        "create or replace function {s}.committed(shard_ text, epoch_ bigint) returns bigint language sql stable "
        "as 'select -1::bigint'"
    )
    asked.done("update {s}.format set version = 2")
    with closing(Shard(database, "new")) as shard:
        assert shard.claim(shard.observe().epoch, "new", None) is not None
    assert schema.check(asked) == schema.VERSION
    assert asked.rows("select {s}.committed('main', 1)") == [(0,)]


def test_who_takes_a_store_of_format_1_over_changes_it(earlier: Database, asked: Session, tmp_path: Path):
    asked.done("update {s}.shard set epoch = 4, owner = 'old', beat = 3, number = 17")
    asked.done("insert into {s}.segments values ('main', 7, 0, 5, 0, 0, 1, 1)")
    with closing(Shard(earlier, "new")) as watching, closing(Shard(earlier, "other")) as other:
        row = watching.observe()
        assert (row.epoch, row.beat, row.number) == (4, 3, 17)
        assert schema.check(asked) == 1, "to look at it changes nothing"
        assert other.claim(3, "other", None) is None
        assert schema.check(asked) == 1, "neither does a claim that comes too late"
        assert other.claim(4, "other", None) == 5
        assert schema.check(asked) == schema.VERSION
        assert (watching.observe().epoch, watching.observe().number) == (5, 0)
    shelf = Shelf(PostgresStore(earlier, 5, tmp_path / "copy"), database=earlier).start()
    assert shelf.commit(chunks=[entries(1, b"x")]) == 1
    assert [span.next for span in shelf.store.spans()] == [5]
    shelf.store.close(None)


def test_a_sequence_or_a_function_that_is_in_the_way_keeps_a_store_at_format_1(
    earlier: Database, asked: Session
):
    asked.done("create sequence {s}.beats")
    with (
        closing(Shard(earlier, "new")) as shard,
        pytest.raises(BadDatabase, match=f"format {schema.VERSION}"),
    ):
        shard.claim(0, "new", None)
    assert schema.check(asked) == 1
    asked.done("drop sequence {s}.beats")


def test_the_owners_statements_look_rows_up_by_key(database: Database):
    """A plan that was made while a table was small would read what is dead in it, too."""
    session = owner_session(database, schema.SHARD, 1)
    kinds = session.rows(
        "select setting from pg_settings where name in ('enable_seqscan', 'enable_hashjoin')"
    )
    session.close()
    assert kinds == [("off",), ("off",)]

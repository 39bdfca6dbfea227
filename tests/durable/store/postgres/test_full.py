"""A full database: what makes room is written nevertheless, the node lives, and what was acknowledged stays so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from time import monotonic

import pytest

from leveret.durable.store.contract import UNLIMITED, FullDatabaseError, NoSpaceError
from leveret.durable.store.postgres import writer
from leveret.durable.store.postgres.reserve import AGAIN_S, DatabaseReserve
from leveret.durable.store.postgres.session import Database, Session
from leveret.durable.store.postgres.shard import Shard
from leveret.durable.store.postgres.store import PostgresStore
from tests.durable.store.shelf import Shelf, entries
from tests.harness.postgres import SmallDisk

PARTS, PART_OCTETS = 4, 1 << 20
CHUNKS = 100
MESSAGES = 8  # in each
BODY = b"x" * 10_000

Open = Callable[[], Shelf]


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's thread is never idle for so long that it looks after the reserve by itself."""
    monkeypatch.setattr(writer, "BEAT_S", 3600.0)


@pytest.fixture
def opened(small_database: Database, tmp_path: Path) -> Iterator[Open]:
    """Takes the shard over, with a small reserve that is filled if there is room for it."""
    shelves: list[Shelf] = []

    def takeover() -> Shelf:
        with closing(Shard(small_database)) as shard:
            epoch = shard.claim(shard.observe().epoch, "test", None)
        assert epoch is not None
        store = PostgresStore(small_database, epoch, tmp_path / f"copy-{epoch}", require_replicated=False)
        store._writer.reserve = reserve = DatabaseReserve(store._writer._opened, PARTS, PART_OCTETS)
        for _ in range(PARTS):
            reserve.look_after(0.0)
        shelves.append(Shelf(store, database=small_database))
        return shelves[-1]

    yield takeover
    for shelf in shelves:
        shelf.store.close(None)


def settled(count: int) -> bytes:
    """The bits of a chunk of which the first so many messages are settled."""
    return bytes([(1 << count) - 1])


def filled(shelf: Shelf) -> None:
    for number in range(CHUNKS):
        shelf.commit(chunks=[entries(1 + number * MESSAGES, *[BODY] * MESSAGES)])


def test_what_is_acknowledged_while_the_database_is_full_stays_so_after_a_takeover(
    opened: Open, small_disk: SmallDisk
):
    shelf = opened().start()
    filled(shelf)
    small_disk.fill()
    firsts = [1 + number * MESSAGES for number in range(CHUNKS)]
    late = 1 + CHUNKS * MESSAGES
    number = shelf.commit(chunks=[entries(late, *[BODY] * MESSAGES * 10)])  # was on its way
    assert isinstance(number, int), "it is in the reserve"
    assert shelf.store.is_short, "publishers are held back"
    assert shelf.store.room == (PARTS - 1) * PART_OCTETS
    for at in range(1, MESSAGES):
        for first in firsts:
            number += 1
            assert shelf.commit(settled={first: settled(at)}) == number
    for first in firsts[10:]:
        number += 1
        assert shelf.commit(dropped=[first]) == number
    successor = opened()
    assert {row.first: row.settled for row in successor.store.chunks()} == {
        **dict.fromkeys(firsts[:10], settled(MESSAGES - 1)),
        late: b"",
    }
    assert isinstance(successor.start().commit(settled={late: b"\1"}), int), "it can go on"


def test_publishers_go_on_when_the_reserve_is_whole_again(opened: Open, small_disk: SmallDisk):
    shelf = opened().start()
    small_disk.fill()
    shelf.commit(chunks=[entries(1, *[BODY] * 50)])
    reserve = shelf.store._writer.reserve  # type: ignore[attr-defined]
    with closing(Session(shelf.database or Database(""), "test")) as session:
        now = monotonic() + 2 * AGAIN_S  # the store's thread has tried lately
        reserve.look_after(now)
        assert reserve.is_short, "there is no room"
        small_disk.give_back()
        for _ in range(PARTS + 1):
            assert reserve.is_short, "it lacks a part, or there is not as much besides"
            reserve.look_after(now := now + AGAIN_S)
        while reserve.is_short:
            reserve.look_after(now := now + AGAIN_S)
        assert reserve.room == UNLIMITED
        tables = session.rows("select relname from pg_class where relname ~ '^reserve_'")
        assert len(tables) == PARTS


def test_a_beat_and_a_claim_need_no_room(opened: Open, small_database: Database, small_disk: SmallDisk):
    opened()
    with closing(Session(small_database, "test")) as session:
        for at in range(1, PARTS + 1):
            session.done(f"drop table {{s}}.reserve_{at}")
    small_disk.fill()
    with closing(Shard(small_database)) as shard:
        for _ in range(1000):
            assert shard.beat(1)
        assert shard.claim(1, "other", "address") == 2


def test_what_is_larger_than_the_reserve_is_refused_and_what_was_written_stays(
    opened: Open, small_disk: SmallDisk
):
    shelf = opened().start()
    assert shelf.commit(chunks=[entries(1, *[BODY] * MESSAGES)]) == 1
    small_disk.fill()
    refused = shelf.new_commit(chunks=[entries(100, *[BODY] * 1000)])
    assert isinstance(shelf.given(refused), FullDatabaseError)
    small_disk.give_back()
    assert shelf.given(refused) == 2
    assert [row.first for row in opened().store.chunks()] == [1, 100]


def test_a_dump_that_reads_the_reserve_keeps_it_and_the_commit_is_tried_again(
    opened: Open, small_database: Database, small_disk: SmallDisk
):
    shelf = opened().start()
    small_disk.fill()
    commit = shelf.new_commit(chunks=[entries(1, *[BODY] * 50)])
    with closing(Session(small_database, "test")) as dump:
        dump.done("begin")
        for at in range(1, PARTS + 1):
            dump.done(f"lock table {{s}}.reserve_{at} in access share mode")
        assert isinstance(shelf.given(commit), NoSpaceError)
    assert shelf.given(commit) == 1


def test_a_table_of_a_node_that_served_before_is_no_obstacle(
    opened: Open, small_database: Database, caplog: pytest.LogCaptureFixture
):
    shelf = opened().start()
    reserve = shelf.store._writer.reserve  # type: ignore[attr-defined]
    with closing(Session(small_database, "test")) as session:
        session.done("drop table {s}.reserve_1")
        reserve._there.discard("reserve_1")
        session.done("create table {s}.reserve_1 (octets bytea)")
    now = monotonic() + AGAIN_S
    for _ in range(3):
        reserve.look_after(now := now + AGAIN_S)
    assert not reserve.is_short
    assert caplog.text.count("there is no reserve") == 1
    assert reserve._there == {f"reserve_{at}" for at in range(1, PARTS + 1)}


def test_the_reserve_is_made_also_where_commits_come_all_the_time(opened: Open, small_database: Database):
    shelf = opened().start()
    writing = shelf.store._writer  # type: ignore[attr-defined]
    with closing(Session(small_database, "test")) as session:
        for at in range(1, PARTS + 1):
            session.done(f"drop table {{s}}.reserve_{at}")
        writing.reserve = DatabaseReserve(writing._opened, PARTS, PART_OCTETS)
        for number in range(PARTS + 1):
            writing._fill_at = 0.0
            shelf.commit(chunks=[entries(1 + number, BODY)])
        shelf.commit(chunks=[entries(100, BODY)])  # it is done with what comes after the one before
        assert len(session.rows("select 1 from pg_class where relname ~ '^reserve_'")) == PARTS
        assert writing.reserve.is_whole

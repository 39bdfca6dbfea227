"""A promoted server that lacks what was confirmed is noticed, and gets from the owner what that still has."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from leveret.durable.store.contract import FencedError
from leveret.durable.store.postgres import writer
from leveret.durable.store.postgres.copying import made
from leveret.durable.store.postgres.recent_commits import RecentCommits
from leveret.durable.store.postgres.session import Database, Session
from leveret.durable.store.postgres.shard import Shard
from leveret.durable.store.postgres.store import PostgresStore
from tests.durable.store.shelf import Shelf, append, entries
from tests.harness.postgres import Pair, sessions
from tests.interop.conftest import wait_until

WRITES = "application_name like '%%:main:%%'"


@pytest.fixture(autouse=True)
def busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """No beat comes in between, so that a commit finds out about the loss."""
    monkeypatch.setattr(writer, "BEAT_S", 3600.0)


def shelf_of(database: Database, folder: Path) -> Shelf:
    with closing(Shard(database)) as shard:
        epoch = shard.claim(shard.observe().epoch, "test", None)
    assert epoch is not None
    return Shelf(PostgresStore(database, epoch, folder, require_replicated=False), database=database).start()


@pytest.fixture
def alone(pair_alone: Pair) -> Iterator[Pair]:
    """A server that waits for no standby."""
    pair_alone.require("")
    yield pair_alone
    pair_alone.require("standby")


@pytest.fixture
def shelf(database: Database, tmp_path: Path, alone: Pair) -> Iterator[Shelf]:
    opened = shelf_of(database, tmp_path / "copy")
    for number in range(1, 6):
        assert opened.commit(chunks=[entries(number, b"%d" % number)], objects={f"o{number}": "1"}) == number
    yield opened
    opened.store.close(None)


def lose(asked: Session, after: int) -> None:
    """Have the database as it is on a server that got nothing after a commit."""
    asked.done("delete from {s}.chunks where first > %s", after)
    asked.done("delete from {s}.objects where substr(key, 2)::text > %s", f"\\x3{after}")
    asked.done("delete from {s}.commits where number > %s", after)
    for pid in sessions(asked, WRITES):
        asked.row("select pg_terminate_backend(%s)", pid)


def chunks_in(asked: Session) -> list[object]:
    return [first for (first,) in asked.rows("select first from {s}.chunks order by first")]


def counts(shelf: Shelf) -> dict[str, float]:
    names = ("leveret_store_commits_lost_total", "leveret_store_commits_rewritten_total")
    return {each.name: each.samples[0][1] for each in shelf.store.metrics() if each.name in names}


def test_what_a_promoted_server_lacks_is_written_again(
    shelf: Shelf, asked: Session, caplog: pytest.LogCaptureFixture
):
    lose(asked, 2)
    assert shelf.commit(chunks=[entries(6, b"6")], dropped=[4]) == 6
    assert chunks_in(asked) == [1, 2, 3, 5, 6]
    assert asked.rows("select count(*) from {s}.objects") == [(5,)]
    assert list(counts(shelf).values()) == [3, 3]
    assert not shelf.store.has_lost
    [told] = [each for each in caplog.records if each.levelno == logging.CRITICAL]
    assert "the numbers 3 to 5" in told.getMessage()
    assert "those from 3 on, with 3 messages, are written again" in told.getMessage()
    assert shelf.commit(chunks=[entries(7, b"7")]) == 7


def test_what_cannot_be_written_again_stays_an_alarm(
    shelf: Shelf, asked: Session, caplog: pytest.LogCaptureFixture
):
    recent = shelf.store._writer.recent  # type: ignore[attr-defined]
    while recent._kept:
        recent._kept.popleft()
    lose(asked, 2)
    assert shelf.commit(chunks=[entries(6, b"6")]) == 6
    assert chunks_in(asked) == [1, 2, 6]
    assert list(counts(shelf).values()) == [3, 0]
    assert shelf.store.has_lost
    assert "none of them can be written again" in caplog.text
    for pid in sessions(asked, WRITES):
        asked.row("select pg_terminate_backend(%s)", pid)
    assert shelf.commit(chunks=[entries(7, b"7")]) == 7
    assert list(counts(shelf).values()) == [3, 0], "it is not lost twice"


def test_a_takeover_that_was_lost_is_told(shelf: Shelf, asked: Session, caplog: pytest.LogCaptureFixture):
    asked.done("update {s}.shard set epoch = 0, claim = null")
    lose(asked, 0)
    assert isinstance(shelf.commit(chunks=[entries(6, b"6")]), FencedError)
    assert "has forgotten that this node took over in epoch 1" in caplog.text


def test_the_last_commits_are_kept_up_to_a_size():
    recent = RecentCommits(100)
    for number in range(1, 10):
        recent.add(number, [[b"x" * 30, None]], 1)
    assert [number for number, _ in recent.after(0)] == [7, 8, 9]
    assert [number for number, _ in recent.after(8)] == [9]
    nothing = RecentCommits(0)
    nothing.add(1, [[b"x"]], 1)
    assert (nothing.last, list(nothing.after(0))) == (1, [])


def test_a_promotion_of_an_asynchronous_standby_loses_nothing_that_the_owner_has(
    own_pair: Pair, tmp_path: Path
):
    """The owner sees the promoted server in the place of the other, which is gone; then the owner is gone, too."""
    pair = own_pair
    pair.require("")
    ports = f"{pair.primary.port},{pair.standby.port}"
    database = Database(f"host=127.0.0.1,127.0.0.1 port={ports} user=postgres dbname=postgres")
    made(database)
    shelf = shelf_of(database, tmp_path / "copy")
    assert shelf.commit(chunks=[entries(1, b"replicated")]) == 1
    lag = "select count(*) from pg_stat_replication where replay_lsn = pg_current_wal_lsn()"
    wait_until(lambda: pair.primary.ask(lag) == "1", "the standby has it")
    pair.standby.ask("alter system set primary_conninfo = ''")
    pair.standby.ask("select pg_reload_conf()")
    wait_until(lambda: pair.primary.ask("select count(*) from pg_stat_replication") == "0", "it is cut off")
    for number in range(2, 12):
        streamed = [append(9, number - 2, b"x")]
        assert shelf.commit(chunks=[entries(number, b"%d" % number)], appends=streamed) == number
    pair.primary.kill()
    pair.standby.promote()
    pair.primary = pair.standby
    assert shelf.commit(chunks=[entries(12, b"12")]) == 12
    assert list(counts(shelf).values()) == [10, 10]
    shelf.store.close(None)
    again = shelf_of(database, tmp_path / "again")
    assert sorted(row.first for row in again.store.chunks()) == list(range(1, 13))
    assert [(span.first, span.next) for span in again.store.spans()] == [(0, 10)]
    again.store.close(None)

"""A commit without a clear answer is neither confirmed nor lost: it is looked for, and repeated if it is not there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from leveret.durable.store.contract import Commit, FencedError, NoSpaceError, StoreError
from leveret.durable.store.postgres import parameters, writer
from leveret.durable.store.postgres.session import Database, Session
from leveret.durable.store.postgres.shard import Shard
from leveret.durable.store.postgres.store import PostgresStore
from leveret.durable.store.postgres.writer import CANCELLED, NOT_REPLICATED, SLOW, PostgresWriter, Sent
from tests.durable.store.shelf import Shelf, append, bodies_in, entries
from tests.harness.postgres import Pair, sessions
from tests.interop.conftest import wait_until

WRITES = "application_name like '%%:main:%%'"  # the owner of the shard of this name
WAITS = "wait_event = 'SyncRep'"  # for the standby


def chunks_in(asked: Session) -> list[object]:
    return [first for (first,) in asked.rows("select first from {s}.chunks order by first")]


def store_of(shelf: Shelf) -> PostgresStore:
    assert isinstance(shelf.store, PostgresStore)
    return shelf.store


# A connection that is lost.


def test_a_commit_whose_connection_is_lost_before_it_is_sent_is_repeated(shelf: Shelf, asked: Session):
    for pid in sessions(asked, WRITES):
        asked.row("select pg_terminate_backend(%s)", pid)
    assert shelf.commit(chunks=[entries(2, b"second")]) == 2
    assert chunks_in(asked) == [1, 2]
    assert store_of(shelf).in_doubt == 1


def test_a_commit_that_is_there_when_its_connection_is_lost_is_not_repeated(
    shelf: Shelf, asked: Session, monkeypatch: pytest.MonkeyPatch
):
    """A chunk would be there twice otherwise, which its key forbids: the store would fail."""
    answer = Session.answer

    def lost(session: Session, *waiting: Any) -> object:
        found = answer(session, *waiting)
        if chunks_in(asked) == [1, 2] and store_of(shelf).in_doubt == 0:
            session.connection.close()
            raise writer.UnreachableError("cut between the commit and its answer")
        return found

    monkeypatch.setattr(Session, "answer", lost)
    assert shelf.commit(chunks=[entries(2, b"second")]) == 2
    assert chunks_in(asked) == [1, 2]
    assert store_of(shelf).in_doubt == 1


def test_publishers_are_told_to_wait_until_the_database_is_back(
    shelf: Shelf, asked: Session, monkeypatch: pytest.MonkeyPatch
):
    refusals = 3
    opened = Session.__init__

    def refused(session: Session, database: Database, name: str) -> None:
        nonlocal refusals
        if refusals:
            refusals -= 1
            raise writer.UnreachableError("connection refused")
        opened(session, database, name)

    monkeypatch.setattr(Session, "__init__", refused)
    monkeypatch.setattr(writer, "AGAIN_S", 0.0)
    for pid in sessions(asked, WRITES):
        asked.row("select pg_terminate_backend(%s)", pid)
    assert shelf.commit(chunks=[entries(2, b"second")]) == 2
    while len(shelf.stalls) < 2:
        shelf.hear()
    assert shelf.stalls[0]
    assert shelf.stalls[1] is None


# The standby.


@pytest.fixture
def frozen(pair_alone: Pair) -> Iterator[Pair]:
    """The standby does not answer, until the test says so or ends."""
    pair_alone.standby.pause()
    yield pair_alone
    pair_alone.standby.go_on()
    pair_alone.wait()


def test_nothing_is_confirmed_while_the_standby_hangs_nor_when_the_wait_for_it_is_cancelled(
    shelf: Shelf, asked: Session, frozen: Pair
):
    """A cancelled wait is a success to PostgreSQL, with a warning: the commit is on the primary alone."""
    shelf.store.append(shelf.new_commit(chunks=[entries(2, b"second")]))
    for times in range(1, 4):
        wait_until(lambda: sessions(asked, WAITS), "the writer waits for the standby")
        asked.row("select pg_cancel_backend(%s)", sessions(asked, WAITS)[0])
        wait_until(lambda times=times: store_of(shelf).in_doubt >= times, "the warning was seen")  # type: ignore[misc]
    assert shelf.told == [1]
    assert chunks_in(asked) == [1, 2], "it can be seen, and is not safe"
    frozen.standby.go_on()
    while shelf.told == [1]:
        shelf.hear()
    assert shelf.told == [1, 2]
    assert shelf.stalls[0] in (CANCELLED, SLOW)


def test_nothing_is_confirmed_while_no_standby_is_named(shelf: Shelf, asked: Session, pair_alone: Pair):
    """What manages failovers may take it out of the settings: then PostgreSQL waits for none, and says nothing."""
    pair_alone.require("")
    try:
        shelf.store.append(shelf.new_commit(chunks=[entries(2, b"second")]))
        shelf.hear()
        assert (shelf.told, shelf.stalls) == ([1], [NOT_REPLICATED])
    finally:
        pair_alone.require("standby")
    while len(shelf.told) < 2:
        shelf.hear()
    assert (shelf.told, shelf.stalls[1]) == ([1, 2], None)


def test_a_single_server_will_do_where_the_settings_say_so(
    database: Database, tmp_path: Path, pair_alone: Pair
):
    with closing(Shard(database)) as shard:
        epoch = shard.claim(0, "test", None)
    assert epoch is not None
    pair_alone.require("")
    try:
        shelf = Shelf(PostgresStore(database, epoch, tmp_path / "copy", require_replicated=False)).start()
        assert shelf.commit(objects={"a": "1"}) == 1
        shelf.store.close(None)
    finally:
        pair_alone.require("standby")


# Another node.


def test_a_commit_after_a_takeover_changes_nothing_and_the_node_is_fenced(
    shelf: Shelf, asked: Session, database: Database
):
    with closing(Shard(database)) as shard:
        assert shard.claim(shard.observe().epoch, "other", None) is not None
    said = shelf.commit(chunks=[entries(2, b"late")], objects={"a": "1"})
    assert isinstance(said, FencedError)
    assert chunks_in(asked) == [1]
    assert asked.rows("select * from {s}.objects") == []


def test_a_node_that_writes_nothing_notices_that_it_was_fenced(shelf: Shelf, database: Database):
    with closing(Shard(database)) as shard:
        shard.claim(shard.observe().epoch, "other", None)
    while shelf.told == [1]:
        shelf.hear()
    assert isinstance(shelf.told[-1], FencedError)


def test_a_claim_that_was_lost_with_its_database_leaves_no_right_to_its_epoch(
    shelf: Shelf, asked: Session, database: Database
):
    """Another node has claimed the same number on the database that was promoted."""
    asked.done("update {s}.shard set claim = 'of another'")
    assert isinstance(shelf.commit(chunks=[entries(2, b"late")]), FencedError)
    assert chunks_in(asked) == [1]


def test_a_store_is_not_opened_for_an_epoch_that_is_over(database: Database, tmp_path: Path):
    with closing(Shard(database)) as shard:
        shard.claim(0, "one", None)
        shard.claim(1, "two", None)
    with pytest.raises(FencedError):
        PostgresStore(database, 1, tmp_path / "copy")


# Two commits that are given together.


def test_a_commit_is_encoded_while_the_database_works_on_the_one_before(
    shelf: Shelf, asked: Session, frozen: Pair, monkeypatch: pytest.MonkeyPatch
):
    """The second comes while the writer waits, which it does for the first as long as the standby hangs."""
    encoded: list[int] = []
    anew = PostgresWriter._encoded_anew

    def noted(thread: PostgresWriter, commit: Commit, is_last: bool) -> Sent:
        encoded.append(commit.number)
        return anew(thread, commit, is_last)

    monkeypatch.setattr(PostgresWriter, "_encoded_anew", noted)
    shelf.store.append(shelf.new_commit(chunks=[entries(2, b"second")]))
    wait_until(lambda: sessions(asked, WAITS), "the writer waits for the standby")
    shelf.store.append(shelf.new_commit(chunks=[entries(3, b"third")]))
    wait_until(lambda: encoded == [2, 3], "the next is encoded")
    assert (shelf.told, chunks_in(asked)) == ([1], [1])
    frozen.standby.go_on()
    while len(shelf.told) < 3:
        shelf.hear()
    assert (shelf.told, chunks_in(asked), encoded) == ([1, 2, 3], [1, 2, 3], [2, 3])


def test_streams_are_written_in_the_order_of_commits(shelf: Shelf, asked: Session, frozen: Pair):
    shelf.store.append(shelf.new_commit(appends=[append(1, 0, b"a")]))
    wait_until(lambda: sessions(asked, WAITS), "the writer waits for the standby")
    shelf.store.append(shelf.new_commit(appends=[append(1, 1, b"b")]))
    frozen.standby.go_on()
    while len(shelf.told) < 3:
        shelf.hear()
    assert [span.next for span in shelf.store.spans()] == [2]


def test_nothing_is_written_before_a_commit_that_had_no_room(shelf: Shelf, asked: Session):
    refuse_chunk(asked, 2)
    first, second = (shelf.new_commit(chunks=[entries(number, b"x")]) for number in (2, 3))
    try:
        shelf.store.append(first)
        shelf.store.append(second)
        shelf.hear()
        assert isinstance(shelf.told[-1], NoSpaceError)
        assert isinstance(shelf.given(first), NoSpaceError)
        assert chunks_in(asked) == [1]
    finally:
        asked.done("drop function {s}.no_room cascade")
    shelf.store.append(first)
    shelf.store.append(second)
    while shelf.told[-1] != 3:
        shelf.hear()
    assert [number for number in shelf.told if isinstance(number, int)] == [1, 2, 3]
    assert chunks_in(asked) == [1, 2, 3]


def test_what_was_given_is_written_before_the_last_commit(shelf: Shelf, asked: Session):
    for number in (2, 3):
        shelf.store.append(shelf.new_commit(chunks=[entries(number, b"x")]))
    shelf.store.close(shelf.new_commit(objects={"a": "1"}))
    assert chunks_in(asked) == [1, 2, 3]
    assert asked.rows("select clean from {s}.shard") == [(True,)]


# A database that is full, and others that refuse.


def test_a_commit_that_found_no_room_is_kept_when_it_is_given_again(shelf: Shelf, asked: Session):
    """The local copy has taken it by then, and takes it once."""
    refuse_chunk(asked, 2)
    commit = shelf.new_commit(
        chunks=[entries(2, b"second")], appends=[append(1, 0, b"a")], objects={"a": "1"}
    )
    try:
        assert isinstance(shelf.given(commit), NoSpaceError)
        assert isinstance(shelf.given(commit), NoSpaceError)
        assert chunks_in(asked) == [1]
    finally:
        asked.done("drop function {s}.no_room cascade")
    assert shelf.given(commit) == 2
    assert chunks_in(asked) == [1, 2]
    assert shelf.commit(appends=[append(1, 1, b"b")]) == 3
    assert [span.next for span in shelf.store.spans()] == [2]


def test_a_mistake_in_a_commit_ends_the_store_instead_of_being_repeated_for_ever(shelf: Shelf):
    said = shelf.commit(chunks=[entries(1, b"a number that is taken")])
    assert isinstance(said, StoreError)
    assert not isinstance(said, FencedError)


# The end.


def test_a_store_that_cannot_reach_its_database_can_be_closed(
    shelf: Shelf, asked: Session, monkeypatch: pytest.MonkeyPatch
):
    def refused(session: Session, database: Database, name: str) -> None:
        raise writer.UnreachableError("connection refused")

    monkeypatch.setattr(writer, "CLOSE_S", 0.1)
    pids = sessions(asked, WRITES)
    monkeypatch.setattr(Session, "__init__", refused)
    for pid in pids:
        asked.row("select pg_terminate_backend(%s)", pid)
    with pytest.raises(StoreError, match="could not be closed properly"):
        shelf.store.close(shelf.new_commit(objects={"a": "1"}))


def test_the_last_commit_gives_the_shard_up(shelf: Shelf, asked: Session, database: Database):
    shelf = shelf.closed(objects={"a": "1"})
    with closing(Shard(database)) as shard:
        assert shelf.store.was_clean
        shelf.start()
        assert shelf.commit(objects={"b": "1"}) == 1
        assert shard.observe().owner == "test"
        shelf.store.close(shelf.new_commit())
        assert shard.observe().owner is None


# A commit that is too large for one statement.


def test_a_large_commit_is_several_statements_and_there_as_a_whole_or_not_at_all(
    shelf: Shelf, asked: Session, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(parameters, "PART_OCTETS", 3000)
    shelf.commit(chunks=[entries(2, b"old")], marks={2: 7})
    large = shelf.new_commit(
        chunks=[entries(number, b"x" * 1000) for number in range(3, 13)],
        appends=[append(1, 0, b"y" * 2000), append(1, 1, b"z" * 4000)],
        objects={"a": "1"},
        dropped=[2],
        settled={12: b"\0"},
        producers={(1, "p"): 3},
    )
    refuse_chunk(asked, 9)
    assert isinstance(shelf.given(large), NoSpaceError)
    assert chunks_in(asked) == [1, 2]
    asked.done("drop function {s}.no_room cascade")
    assert shelf.given(large) == 3
    assert chunks_in(asked) == [1, *range(3, 13)]
    shelf = shelf.killed()
    assert shelf.found().marks == {}
    assert shelf.found().chunks[12][2] == b"\0"
    assert [(span.first, span.next) for span in shelf.store.spans()] == [(0, 2)]
    shelf.start()
    found = shelf.read(lambda reader: reader.blocks(1, 0, 0, 2, 1 << 20))
    assert isinstance(found, bytes)
    assert bodies_in(found) == [(0, b"y" * 2000), (1, b"z" * 4000)]
    shelf.store.close(None)


def refuse_chunk(asked: Session, first: int) -> None:
    """Have the database be full when it comes to this chunk."""
    asked.done(
        "create function {s}.no_room() returns trigger language plpgsql as $$ "
        "begin raise exception 'no space left on device' using errcode = '53100'; end $$"
    )
    asked.done(
        "create trigger no_room before insert on {s}.chunks for each row "
        f"when (new.first = {first}) execute function {{s}}.no_room()"
    )

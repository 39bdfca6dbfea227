"""Mistakes that are planted in the store are found: the promises below are tried with each, and broken by one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import pytest

from leveret.durable.store.contract import FencedError
from leveret.durable.store.postgres import schema, writer
from leveret.durable.store.postgres.arrays import boolean
from leveret.durable.store.postgres.session import Database, Session, UnreachableError
from leveret.durable.store.postgres.shard import Shard
from leveret.durable.store.postgres.writer import COMMIT_NAME, PostgresWriter
from tests.durable.store.shelf import Shelf, entries
from tests.harness.postgres import Pair, sessions
from tests.harness.seldom import planted
from tests.interop.conftest import wait_until

Plant = Callable[[pytest.MonkeyPatch, Session], None]
Promise = Callable[[Shelf, Session, Pair, Database], None]


@pytest.fixture(autouse=True)
def silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store gives no sign of life but commits: a beat would find out about a takeover, too."""
    monkeypatch.setattr(writer, "BEAT_S", 3600.0)


@pytest.fixture
def asked(asked: Session) -> Iterator[Session]:
    yield asked
    create_commit(asked, schema.COMMIT)


def create_commit(session: Session, text: str) -> None:
    session.connection.execute(session.statement(text))


def waits(asked: Session, statement: str) -> list[int]:
    """The process at the server that waits for the standby with such a statement."""
    return sessions(asked, "wait_event = 'SyncRep' and query like %s", f"%{statement}%")


# The promises.


def a_fenced_node_confirms_nothing(shelf: Shelf, asked: Session, pair: Pair, database: Database) -> None:
    """Also where the takeover could not end its connection, and it has not noticed anything yet."""
    asked.done("update {s}.shard set epoch = epoch + 1, owner = 'other', claim = 'of the other'")
    assert isinstance(shelf.commit(chunks=[entries(2, b"late")]), FencedError)


def nothing_is_confirmed_before_the_standby_has_it(
    shelf: Shelf, asked: Session, pair: Pair, database: Database
) -> None:
    """Not while the server waits for the standby, and not when somebody ends that wait."""
    pair.standby.pause()
    try:
        shelf.store.append(shelf.new_commit(chunks=[entries(2, b"second")]))
        wait_until(lambda: shelf.hear_all() > 1 or waits(asked, "commit("), "it waits, or is confirmed")
        assert shelf.told == [1]
        asked.row("select pg_cancel_backend(%s)", waits(asked, "commit(")[0])
        wait_until(
            lambda: shelf.hear_all() > 1 or waits(asked, "barrier("), "it waits again, or is confirmed"
        )
        assert shelf.told == [1]
    finally:
        pair.standby.go_on()
        pair.wait()


def a_takeover_reads_nothing_before_its_claim_is_replicated(
    shelf: Shelf, asked: Session, pair: Pair, database: Database
) -> None:
    """The claim does not return while the server waits for the standby, nor when somebody ends that wait."""
    shard, claimed = Shard(database, "other"), list[int | None]()
    taker = Thread(target=lambda: claimed.append(shard.claim(1, "other", None)))
    pair.standby.pause()
    try:
        taker.start()
        wait_until(lambda: claimed or waits(asked, "epoch + 1"), "it waits, or is claimed")
        asked.row("select pg_cancel_backend(%s)", waits(asked, "epoch + 1")[0])
        wait_until(lambda: claimed or waits(asked, "barrier("), "it waits again, or is claimed")
        assert claimed == []
    finally:
        pair.standby.go_on()
        pair.wait()
        taker.join()
        shard.close()
    assert claimed == [2]


def a_commit_is_there_once(shelf: Shelf, asked: Session, pair: Pair, database: Database) -> None:
    """The connection is lost after the commit, before its answer: for objects, twice would not be noticed."""
    answer = Session.answer
    was_lost = False

    def lost(session: Session, *waiting: Any) -> list[bytes | None] | None:
        nonlocal was_lost
        found = answer(session, *waiting)
        if not was_lost:
            was_lost = True
            session.connection.close()
            raise UnreachableError("cut between the commit and its answer")
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "answer", lost)
        assert shelf.commit(chunks=[entries(2, b"second")]) == 2
        assert asked.rows("select count(*) from {s}.chunks") == [(2,)]


PROMISES: list[Promise] = [
    a_fenced_node_confirms_nothing,
    nothing_is_confirmed_before_the_standby_has_it,
    a_takeover_reads_nothing_before_its_claim_is_replicated,
    a_commit_is_there_once,
]


# The mistakes.


def no_epoch_check(patch: pytest.MonkeyPatch, asked: Session) -> None:
    create_commit(asked, schema.COMMIT.replace("and epoch = epoch_ and claim = claim_", ""))


def confirmed_before_the_wait(patch: pytest.MonkeyPatch, asked: Session) -> None:
    sent_name: list[bytes] = []
    begin, answer = Session.begin, Session.answer

    def begins(session: Session, name: bytes, values: list[bytes | None]) -> None:
        sent_name[:] = [name]
        begin(session, name, values)

    def answers(session: Session, *waiting: Any) -> list[bytes | None] | None:
        return [boolean(True)] if sent_name == [COMMIT_NAME] else answer(session, *waiting)

    patch.setattr(Session, "begin", begins)
    patch.setattr(Session, "answer", answers)


def the_warning_is_ignored(patch: pytest.MonkeyPatch, asked: Session) -> None:
    patch.setattr(Session, "was_doubtful", lambda session: False)


def the_number_is_not_compared(patch: pytest.MonkeyPatch, asked: Session) -> None:
    is_there = PostgresWriter._is_there

    def never(writer: PostgresWriter, number: int, session: Session | None = None) -> bool:
        is_there(writer, number, session)
        return False

    patch.setattr(PostgresWriter, "_is_there", never)


def the_standby_is_asynchronous(patch: pytest.MonkeyPatch, asked: Session) -> None:
    local = "begin perform set_config('synchronous_commit', 'local', true);"
    create_commit(asked, schema.COMMIT.replace("begin", local, 1))


def the_claim_is_not_waited_for(patch: pytest.MonkeyPatch, asked: Session) -> None:
    patch.setattr(Shard, "_is_in_doubt", lambda shard: False)


MISTAKES: list[tuple[Plant, Promise]] = [
    (no_epoch_check, a_fenced_node_confirms_nothing),
    (confirmed_before_the_wait, nothing_is_confirmed_before_the_standby_has_it),
    (the_warning_is_ignored, nothing_is_confirmed_before_the_standby_has_it),
    (the_standby_is_asynchronous, nothing_is_confirmed_before_the_standby_has_it),
    (the_claim_is_not_waited_for, a_takeover_reads_nothing_before_its_claim_is_replicated),
    (the_number_is_not_compared, a_commit_is_there_once),
]


@pytest.mark.parametrize("promise", PROMISES)
def test_it_is_kept(promise: Promise, shelf: Shelf, asked: Session, pair_alone: Pair, database: Database):
    promise(shelf, asked, pair_alone, database)


@planted
@pytest.mark.parametrize(("plant", "promise"), MISTAKES)
def test_a_mistake_is_found(
    plant: Plant,
    promise: Promise,
    shelf: Shelf,
    asked: Session,
    pair_alone: Pair,
    database: Database,
    monkeypatch: pytest.MonkeyPatch,
):
    plant(monkeypatch, asked)
    with pytest.raises(AssertionError):
        promise(shelf, asked, pair_alone, database)

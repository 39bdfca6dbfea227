"""What the thread that writes to the database does while there is nothing to write, and who sends what comes then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty
from threading import Event
from types import SimpleNamespace

import pytest

from leveret.durable.store.contract import Commit
from leveret.durable.store.postgres import session
from leveret.durable.store.postgres.arrays import boolean
from leveret.durable.store.postgres.parameters import WritingRight
from leveret.durable.store.postgres.session import UnreachableError, boottime
from leveret.durable.store.postgres.writer import BEAT_S, SMALL, SMALL_OCTETS, PostgresWriter
from tests.durable.store.shelf import entries


class Orders:
    """A queue whose next orders are known; None: nothing comes in the time that the caller waits.

    A function is called while the caller waits, and may put orders.
    """

    def __init__(self, *orders: Commit | Callable[[], None] | None) -> None:
        self._orders = iter(orders)
        self._put: list[Commit] = []
        self.waits: list[float] = []

    def put(self, commit: Commit) -> None:
        self._put.append(commit)

    def get(self, timeout: float) -> Commit:
        self.waits.append(timeout)
        if self._put:
            return self._put.pop(0)
        order = next(self._orders)
        if isinstance(order, Commit):
            return order
        if order is not None:
            order()
        raise Empty

    def get_nowait(self) -> Commit:
        if not self._put:
            raise Empty
        return self._put.pop(0)


class Database:
    """Both ends of a session with a database that answers everything with yes."""

    def __init__(self) -> None:
        self.steps: list[str] = []  # which thread sent what
        self.fails = False

    def is_prepared(self, name: bytes) -> bool:
        return True

    def prepare(self, name: bytes, text: str) -> None:
        pass

    def was_doubtful(self) -> bool:
        return False

    def begin(self, name: bytes, values: Sequence[bytes | None]) -> None:
        if self.fails:
            self.fails = False
            raise UnreachableError("the connection is gone")
        self.steps.append(f"begin {name.decode()}")

    def flush(self, waiting: Callable[[], None]) -> None:
        self.steps.append("flush")

    def send(self, name: bytes, values: Sequence[bytes | None], waiting: Callable[[], None]) -> None:
        self.steps.append(f"send {name.decode()}")

    def answer(self, *waiting: object) -> list[bytes | None]:
        self.steps.append("answer")
        return [boolean(True)]


def writer(orders: Orders, steps: list[bool], database: Database | None = None) -> PostgresWriter:
    """A thread's object whose local copy takes some steps to be maintained; each says whether there are more."""
    copy = SimpleNamespace(
        look_after=lambda: steps.pop(0),
        write_segments=lambda commit: (None, []),
        write_rows=lambda commit, made, change: None,
    )
    made = PostgresWriter(
        session.Database(""),
        WritingRight("main", 1, "claim"),
        copy,  # type: ignore[arg-type]
        database or Database(),  # type: ignore[arg-type]
        True,
        Event(),
    )
    made._orders = orders  # type: ignore[assignment]
    made._soon = lambda report: report()
    made._durable = made._failed_with = lambda outcome: None
    made.renewed_at = boottime() + 3600.0  # no beat is due
    return made


def commit(number: int, bodies: Sequence[bytes] = (b"one",)) -> Commit:
    made = Commit(number)
    made.chunks.append(entries(number, *bodies))
    return made


def appended(number: int) -> Commit:
    made = Commit(number)
    made.producers[1, "p"] = 1
    return made


def test_the_copy_is_not_maintained_between_commits_that_follow_each_other():
    commits, steps = [Commit(1), Commit(2)], [False]
    orders = Orders(*commits)
    thread = writer(orders, steps)
    assert [thread._next(), thread._next()] == commits
    assert orders.waits == [BEAT_S, BEAT_S]
    assert steps == [False]


def test_the_copy_is_maintained_step_by_step_once_no_commit_has_come_for_a_while():
    commit = Commit(1)
    orders = Orders(None, None, None, None, commit)
    thread = writer(orders, [True, True, False])
    assert thread._next() is commit
    assert orders.waits == [BEAT_S, 0, 0, BEAT_S, BEAT_S]


# Which thread sends.


def test_a_small_commit_is_sent_before_the_thread_is_woken():
    database, one = Database(), commit(1)
    thread = writer(Orders(lambda: thread.put(one)), [False], database)
    assert thread._next() is one
    assert database.steps == ["begin write"]
    thread._keep(one)
    assert database.steps == ["begin write", "flush", "answer"]


def test_what_could_not_be_sent_is_sent_by_the_thread():
    database, one = Database(), commit(1)
    database.fails = True
    thread = writer(Orders(lambda: thread.put(one)), [False], database)
    thread._keep(thread._next())  # type: ignore[arg-type]
    assert database.steps == ["send write", "answer"]


def test_what_comes_while_the_thread_has_something_to_do_waits_for_its_turn():
    database, one, two = Database(), commit(1), commit(2)
    thread = writer(Orders(lambda: thread.put(one)), [False], database)
    assert thread._next() is one
    thread.put(two)
    assert database.steps == ["begin write"]
    thread._keep(one)
    assert thread._next() is two
    thread._keep(two)
    assert database.steps == ["begin write", "flush", "answer", "send write", "answer"]


def test_what_comes_before_the_thread_has_begun_with_an_order_is_not_sent_before_that():
    database, large, small = Database(), commit(1, [b"large"] * (SMALL + 1)), commit(2)

    def both() -> None:
        thread.put(large)
        thread.put(small)

    thread = writer(Orders(both), [False], database)
    assert thread._next() is large
    assert database.steps == []


@pytest.mark.parametrize(
    "large",
    [commit(1, [b"."] * (SMALL + 1)), commit(1, [b"." * (SMALL_OCTETS + 1)]), appended(1)],
    ids=["many messages", "a large one", "of a stream"],
)
def test_what_takes_time_to_be_encoded_is_left_to_the_thread(large: Commit):
    database = Database()
    thread = writer(Orders(lambda: thread.put(large)), [False], database)
    assert thread._next() is large
    assert database.steps == []


def test_nothing_is_sent_before_the_thread_has_begun():
    database = Database()
    thread = writer(Orders(), [], database)
    thread.put(commit(1))
    assert database.steps == []

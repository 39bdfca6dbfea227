"""What the thread that writes to the database does while there is nothing to write."""

from __future__ import annotations

from queue import Empty
from threading import Event
from types import SimpleNamespace

from broker_core.store.contract import Commit
from broker_core.store.postgres.parameters import WritingRight
from broker_core.store.postgres.session import Database, boottime
from broker_core.store.postgres.writer import BEAT_S, PostgresWriter


class Orders:
    """A queue whose next orders are known; None: nothing comes in the time that the caller waits."""

    def __init__(self, *orders: Commit | None) -> None:
        self._orders = iter(orders)
        self.waits: list[float] = []

    def get(self, timeout: float) -> Commit:
        self.waits.append(timeout)
        order = next(self._orders)
        if order is None:
            raise Empty
        return order


def writer(orders: Orders, steps: list[bool]) -> PostgresWriter:
    """A thread's object whose local copy takes some steps to be maintained; each says whether there are more."""
    copy = SimpleNamespace(look_after=lambda: steps.pop(0))
    made = PostgresWriter(
        Database(""),
        WritingRight("main", 1, "claim"),
        copy,
        SimpleNamespace(),
        True,
        Event(),  # type: ignore[arg-type]
    )
    made._orders = orders  # type: ignore[assignment]
    made.renewed_at = boottime() + 3600.0  # no beat is due
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

"""When a commit had better wait: if nobody waits for it, more will come with it."""

from __future__ import annotations

import pytest

from broker_core.store.memory import MemoryStore
from tests.core.fakes import FakeConsumer
from tests.store.test_journal import Kept, Told

PATIENCE_S = 0.002


@pytest.fixture
def kept() -> Kept:
    kept = Kept(MemoryStore(held=True), "q", "r")
    kept.journal.patience_s = PATIENCE_S
    return kept


def commits(kept: Kept) -> int:
    """How many commits have been handed to the store."""
    return kept.store.stats().commits + (kept.store.flying is not None)


def test_a_commit_that_a_publisher_waits_for_is_not_put_off(kept: Kept) -> None:
    Told(kept).publish("q", b"a")
    kept.settle()
    assert kept.store.flying is not None


def test_a_commit_that_nobody_waits_for_is_put_off_and_takes_along_what_comes_next(kept: Kept) -> None:
    kept.publish("q", b"a")
    kept.settle()
    assert commits(kept) == 0
    publisher = Told(kept)
    publisher.publish("q", b"b")
    kept.settle()
    assert commits(kept) == 1
    kept.land()
    assert publisher.safe == 1
    assert kept.crash().q["q"].ready == 2


def test_a_commit_is_put_off_once_and_not_for_long(kept: Kept) -> None:
    for _ in range(4):
        kept.publish("q", b"a")
        kept.settle()
        kept.advance(PATIENCE_S / 4)
    assert commits(kept) == 1
    kept.publish("q", b"b")
    kept.land()
    kept.advance(PATIENCE_S)
    assert commits(kept) == 2, "another is put off anew"


def test_what_is_published_as_patience_ends_is_not_confirmed_unwritten(kept: Kept) -> None:
    """Timers run while the broker settles: a commit closed by one would have gone before its publishers are asked."""
    kept.publish("q", b"a")
    kept.settle()
    publisher = Told(kept)
    publisher.publish("q", b"b")
    kept.advance(PATIENCE_S)
    assert commits(kept) == 1
    assert publisher.safe == 0
    kept.land()
    assert publisher.safe == 1


def test_an_answer_that_waits_for_the_commit_ends_the_patience(kept: Kept) -> None:
    kept.publish("q", b"a")
    kept.settle()
    kept.journal.put("key", "1")
    kept.settle()
    assert commits(kept) == 1


def test_an_answer_that_waits_is_not_forgotten_while_another_commit_is_in_flight(kept: Kept) -> None:
    kept.journal.put("key", "1")
    kept.settle()
    kept.journal.put("key", "2")
    kept.settle()
    kept.journal.holds = False  # what comes next has nothing to wait for
    kept.settle()
    kept.store.land()
    kept.hear()
    assert commits(kept) == 2


def test_a_publisher_waits_for_the_disk_though_its_message_has_been_dealt_with(kept: Kept) -> None:
    """What is in flight may come back after a crash, so that nothing is told of it; what was never written is gone."""
    publisher, consumer = Told(kept), FakeConsumer(kept.q["q"])
    publisher.publish("q", b"a")
    kept.settle()
    publisher.publish("q", b"b")
    kept.settle()
    consumer.accept_all()
    kept.settle()
    assert publisher.safe == 0
    kept.store.land()
    kept.hear()
    assert publisher.safe == 1
    kept.land()
    assert (publisher.safe, kept.store.stats().chunks) == (2, 0)


def test_acknowledgements_are_committed_together(kept: Kept) -> None:
    consumer = FakeConsumer(kept.q["q"])
    for _ in range(20):
        kept.publish("q", b"a")
    kept.land()
    kept.advance(PATIENCE_S)
    kept.land()
    before = commits(kept)
    for delivery in list(consumer.held):
        consumer.accept(delivery)
        kept.settle()
        kept.advance(PATIENCE_S / 20)
    kept.advance(PATIENCE_S)
    kept.land()
    assert commits(kept) <= before + 2
    assert kept.store.stats().chunks == 0

"""When a commit had better wait: if nobody waits for it, more will come with it."""

from __future__ import annotations

import pytest

from leveret.durable.store.memory import MemoryStore
from tests.core.fakes import FakeConsumer
from tests.durable.test_journal import Kept, Told

PATIENCE_S = 0.002
QUICK_S = 0.001


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


# What consumers have may be settled before it is written.


@pytest.fixture
def quick(kept: Kept) -> Kept:
    kept.journal.quick_s = QUICK_S
    return kept


def test_what_a_consumer_answers_at_once_is_never_written_and_its_publisher_need_not_wait(quick: Kept):
    publisher, consumer = Told(quick), FakeConsumer(quick.q["q"])
    publisher.publish("q", b"a")
    quick.settle()
    assert (commits(quick), publisher.safe) == (0, 0), "it is with a consumer, and not yet written"
    consumer.accept_all()
    quick.settle()
    assert (commits(quick), publisher.safe) == (0, 1)
    assert quick.crash().q["q"].ready == 0


def test_who_is_told_early_has_been_waited_for_by_each_queue(quick: Kept) -> None:
    publisher = Told(quick)
    consumer, other = FakeConsumer(quick.q["q"]), FakeConsumer(quick.q["r"])
    publisher.publish("q", b"a")
    publisher.publish("r", b"b")
    quick.settle()
    consumer.accept_all()
    quick.settle()
    assert (commits(quick), publisher.safe) == (0, 0)
    other.accept_all()
    quick.settle()
    assert (commits(quick), publisher.safe) == (0, 2)


def test_a_consumer_is_waited_for_no_longer_than_that_and_then_not_for_a_while(quick: Kept) -> None:
    quick.journal.doubts = 3
    publisher, waited = Told(quick), []
    FakeConsumer(quick.q["q"])
    for _ in range(9):
        before = commits(quick)
        publisher.publish("q", b"a")
        quick.settle()
        waited.append(commits(quick) == before)
        quick.advance(QUICK_S)
        assert commits(quick) == before + 1
        quick.land()
    assert waited == [True, False, False, False, True, False, False, False, False]
    assert publisher.safe == 9


def test_a_consumer_that_never_answers_soon_is_waited_for_more_and_more_rarely_until_one_does(
    quick: Kept,
) -> None:
    quick.journal.doubts = 1
    publisher, consumer = Told(quick), FakeConsumer(quick.q["q"])

    def waits() -> bool:
        before = commits(quick)
        publisher.publish("q", b"a")
        quick.settle()
        waits = commits(quick) == before
        quick.advance(QUICK_S)
        quick.land()
        return waits

    waited = [number for number in range(400) if waits()]
    assert waited == [0, 2, 5, 10, 19, 36, 69, 134, 199, 264, 329, 394]

    def is_answered_unwritten() -> bool:
        before = commits(quick)
        publisher.publish("q", b"a")
        quick.settle()
        consumer.accept_all()
        quick.settle()
        quick.advance(PATIENCE_S)
        quick.land()
        return commits(quick) == before

    assert True in [is_answered_unwritten() for _ in range(100)]
    assert [waits() for _ in range(3)] == [True, False, True]


def test_what_waits_for_no_consumer_is_written_at_once(quick: Kept) -> None:
    publisher, consumer = Told(quick), FakeConsumer(quick.q["q"])
    publisher.publish("q", b"a")
    publisher.publish("r", b"b")
    quick.settle()
    assert commits(quick) == 1
    consumer.accept_all()
    quick.settle()
    assert publisher.safe == 0
    quick.land()
    assert publisher.safe == 2


def test_what_comes_back_from_a_consumer_is_written(quick: Kept) -> None:
    publisher, consumer = Told(quick), FakeConsumer(quick.q["q"], credit=1)
    publisher.publish("q", b"a")
    quick.settle()
    consumer.leave()
    for delivery in consumer.held:
        quick.q["q"].release(delivery)
    quick.settle()
    assert (commits(quick), publisher.safe) == (1, 0)
    quick.land()
    assert publisher.safe == 1
    assert quick.crash().q["q"].ready == 1

"""When a commit had better wait, and when a publisher need not: consumers can be faster than the disk."""

from __future__ import annotations

import pytest

from broker_core.store.contract import NoSpaceError, StoreError
from broker_core.store.journal import FEW
from broker_core.store.memory import MemoryStore
from tests.core.fakes import FakeConsumer
from tests.store.test_journal import TRANSIENT, Kept, Told

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


def test_a_publisher_is_told_when_what_is_in_flight_has_been_dealt_with(kept: Kept) -> None:
    publisher, consumer = Told(kept), FakeConsumer(kept.q["q"])
    publisher.publish("q", b"a")
    kept.settle()
    assert kept.store.flying is not None
    assert publisher.safe == 0
    consumer.accept(consumer.held[0])
    kept.settle()
    assert publisher.safe == 1


def test_a_publisher_is_told_when_what_is_gathered_has_been_dealt_with(kept: Kept) -> None:
    publisher, consumer = Told(kept), FakeConsumer(kept.q["q"])
    for body in (b"a", b"b"):
        publisher.publish("q", body)
        kept.settle()
    consumer.accept(consumer.held[0])
    kept.settle()
    assert publisher.safe == 0, "the second is still needed"
    consumer.accept(consumer.held[0])
    kept.settle()
    assert publisher.safe == 2


def test_a_publisher_is_not_told_while_one_copy_is_needed_and_not_on_disk(kept: Kept) -> None:
    publisher, consumer = Told(kept), FakeConsumer(kept.q["q"])
    for key in ("q", "r"):
        publisher.publish(key, b"a")
    kept.settle()
    consumer.accept(consumer.held[0])
    kept.settle()
    assert publisher.safe == 0
    kept.land()
    assert publisher.safe == 2


def test_what_was_dealt_with_before_does_not_count_for_what_is_needed_now(kept: Kept) -> None:
    """As many are settled as are not on disk, but they are others: these have been there for long."""
    consumer = FakeConsumer(kept.q["q"])
    kept.publish("q", b"a")
    kept.settle()
    kept.advance(PATIENCE_S)
    kept.land()
    publisher = Told(kept)
    publisher.publish("r", b"b")
    kept.settle()
    consumer.accept(consumer.held[0])
    kept.settle()
    assert publisher.safe == 0


def test_a_returned_message_is_needed_though_it_was_with_a_consumer(kept: Kept) -> None:
    publisher, consumer = Told(kept), FakeConsumer(kept.q["q"], credit=1)
    publisher.publish("q", b"a")
    kept.settle()
    consumer.release(consumer.held[0])
    kept.settle()
    assert publisher.safe == 0


def test_of_many_messages_nobody_looks_at_each(kept: Kept) -> None:
    publisher, consumer = Told(kept), FakeConsumer(kept.q["q"], credit=2 * FEW)
    for _ in range(FEW + 1):
        publisher.publish("q", b"a")
    kept.settle()
    for delivery in list(consumer.held):
        consumer.accept(delivery)
    kept.settle()
    assert publisher.safe == 0
    kept.land()
    assert publisher.safe == FEW + 1


def test_after_a_failure_nobody_is_told_however_fast_the_consumer(kept: Kept) -> None:
    publisher, consumer = Told(kept), FakeConsumer(kept.q["q"])
    publisher.publish("q", b"a")
    kept.settle()
    kept.journal.fail(StoreError("gone"))
    consumer.accept(consumer.held[0])
    kept.settle()
    assert publisher.safe == 0


def test_while_consumers_are_faster_than_the_disk_it_is_left_alone(kept: Kept) -> None:
    publisher, consumer = Told(kept), FakeConsumer(kept.q["q"])
    for _ in range(20):
        publisher.publish("q", b"a")
        kept.settle()
        consumer.accept(consumer.held[0])
        kept.settle()
        kept.hear()
        kept.advance(PATIENCE_S / 10)
        if kept.store.flying is not None:
            kept.store.land()
        kept.hear()
    assert publisher.safe == 20
    assert commits(kept) <= 3, "the first, and what is left of it"
    assert kept.store.stats().chunks <= 1


def test_a_consumer_that_is_slow_for_once_costs_its_publisher_one_wait(kept: Kept) -> None:
    publisher, consumer = Told(kept), FakeConsumer(kept.q["q"])
    publisher.publish("q", b"a")
    kept.settle()
    consumer.accept(consumer.held[0])
    kept.land()
    kept.advance(PATIENCE_S)
    kept.land()
    before = commits(kept)
    publisher.publish("q", b"b")
    kept.settle()
    assert (publisher.safe, commits(kept)) == (1, before), "it may be needless again"
    kept.advance(PATIENCE_S)
    assert commits(kept) == before + 1
    kept.land()
    assert publisher.safe == 2
    publisher.publish("q", b"c")
    kept.settle()
    assert commits(kept) == before + 2, "at once from now on"


def test_no_space_does_not_keep_from_telling_what_needs_none(kept: Kept) -> None:
    publisher, consumer = Told(kept), FakeConsumer(kept.q["q"])
    publisher.publish("q", b"a")
    publisher.publish("q", b"b", TRANSIENT)
    kept.settle()
    kept.store.fail(NoSpaceError("full"))
    kept.hear()
    for delivery in list(consumer.held):
        consumer.accept(delivery)
    kept.settle()
    assert publisher.safe == 2

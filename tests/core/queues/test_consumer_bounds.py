"""Consumers that have too much unanswered for the memory: who is held back, for how long, and what that costs."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.delivery import Unanswered
from leveret.queues.consumer_bounds import EASE_S, REMARK, UNANSWERED, ConsumerBounds, share_of
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import FakeConsumer, letters, waiting
from tests.harness.bench import CoreBench

EACH = UNANSWERED + 1  # bytes of a message of one letter


class Bounded(CoreBench):
    """A bench with one queue, whose consumers may have so many messages unanswered."""

    def __init__(self, messages: int) -> None:
        super().__init__()
        queue = self.queue()
        assert isinstance(queue, WorkQueue)
        self.q = queue
        self.allowed: int | None = messages * EACH
        self.bounds = ConsumerBounds()

    def put(self, count: int) -> None:
        """Publish so many in one batch."""
        self.publish("q", *letters(count))
        self.settle()

    def consumer(self, credit: int = 1 << 40, limit: int = 1 << 40) -> FakeConsumer:
        consumer = FakeConsumer(self.q, credit=credit, limit=limit)
        self.settle()
        return consumer

    def look(self) -> None:
        self.bounds.look([self.q], self.allowed, self.broker.now)
        self.settle()

    def settle(self) -> None:
        self.broker.settle()
        self.bounds.look([self.q], self.allowed, self.broker.now)
        self.broker.settle()


@pytest.fixture
def bench() -> Bounded:
    return Bounded(4)


def test_consumers_below_the_bound_are_never_held_back(bench: Bounded) -> None:
    bench.put(4)
    assert (bench.consumer().bodies(), bench.bounds.are_there) == ("a b c d", False)


def test_a_consumer_above_its_share_gets_nothing_more_until_it_has_answered(bench: Bounded) -> None:
    consumer = bench.consumer()
    bench.put(6)
    bench.put(3)
    assert len(consumer.got) == 6
    assert waiting(bench.q) == "a b c"
    for delivery in consumer.held[:2]:
        consumer.accept(delivery)
    bench.settle()
    assert len(consumer.got) == 6
    consumer.accept(consumer.held[0])
    bench.settle()
    assert (len(consumer.got), len(consumer.held)) == (7, 4)


def test_others_get_what_one_is_held_back_from(bench: Bounded) -> None:
    idle = bench.consumer()
    bench.put(6)
    other = bench.consumer()
    for _ in range(8):
        bench.put(1)
        other.accept_all()
        bench.settle()
    assert (len(idle.got), len(other.got)) == (6, 8)


def test_a_consumer_that_comes_while_memory_is_short_is_bounded_from_the_first(bench: Bounded) -> None:
    first = bench.consumer()
    bench.put(6)
    bench.put(6)
    second = FakeConsumer(bench.q, limit=0)
    bench.bounds.came(second)
    second.limit = 1 << 40
    second.wake()
    bench.broker.settle()
    assert len(second.got) <= 4
    assert len(first.got) == 6


@pytest.mark.parametrize("way", ["accept", "release", "reject"])
def test_every_answer_makes_room(bench: Bounded, way: str) -> None:
    consumer = bench.consumer()
    bench.put(6)
    bench.put(6)
    for _ in range(3):
        getattr(consumer, way)(consumer.held[0])
    bench.settle()
    assert len(consumer.held) == 4


def test_the_bounds_end_when_there_has_been_little_unanswered_for_a_while(bench: Bounded) -> None:
    consumer = bench.consumer()
    bench.put(6)
    consumer.accept_all()
    bench.settle()
    assert bench.bounds.are_there
    bench.clock.advance(EASE_S)
    bench.broker.tick()
    bench.settle()
    assert (bench.bounds.are_there, consumer.bounds, consumer.warnings) == (False, [], ())
    bench.allowed = None
    bench.put(9)
    assert len(consumer.got) == 15


def test_the_bounds_end_at_once_when_the_limit_is_taken_away(bench: Bounded) -> None:
    consumer = bench.consumer()
    bench.put(6)
    bench.put(6)
    bench.allowed = None
    bench.settle()
    assert (len(consumer.got), consumer.bounds) == (12, [])


def test_one_that_has_gone_leaves_its_share_to_the_others(bench: Bounded) -> None:
    first, second = bench.consumer(), bench.consumer()
    bench.put(8)
    bench.put(6)
    assert len(first.held) + len(second.held) == 8
    for delivery in list(first.held):
        first.release(delivery)
    first.leave()
    for delivery in list(second.held):
        second.accept(delivery)
    bench.settle()
    assert len(second.held) == 4


def test_bounds_of_the_operator_stay(bench: Bounded) -> None:
    own = Unanswered(1)
    consumer = FakeConsumer(bench.q, limit=0)
    consumer.bounds = [own]
    consumer.limit = 1 << 40
    bench.put(6)
    other = bench.consumer()
    bench.put(6)
    bench.allowed = None
    bench.settle()
    assert consumer.bounds == [own]
    assert other.bounds == []


def test_operators_are_told_who_is_held_back_once(bench: Bounded, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        consumer = bench.consumer()
        bench.put(6)
        for _ in range(3):
            bench.look()
    assert consumer.warnings == (REMARK,)
    assert len(caplog.records) == 1
    assert "queue 'q'" in caplog.text


def test_settled_consumers_and_those_of_other_queues_are_left_alone(bench: Bounded) -> None:
    free = FakeConsumer(bench.q, settled=True)
    other = FakeConsumer(bench.queue("other"))
    bench.consumer()
    bench.put(20)
    assert (free.bounds, other.bounds) == ([], [])


@given(st.lists(st.integers(0, 1000)), st.integers(0, 5000))
def test_shares_use_what_is_allowed_and_no_more(memory: list[int], allowed: int) -> None:
    share = share_of(memory, allowed)
    kept = sum(min(each, share) for each in memory)
    assert kept <= allowed or sum(memory) <= allowed
    if sum(memory) > allowed:
        assert kept + len(memory) > allowed

"""Long queues that go are freed, and expire, in portions: nobody notices but those who wait for their turn."""

from __future__ import annotations

import gc
from collections import deque

import pytest

from leveret.clock import ManualClock, Timers
from leveret.limits import QueueLimits
from leveret.message import Message
from leveret.queues import discarded_messages
from leveret.queues.discarded_messages import (
    BURIED,
    LOOK,
    PAUSE_S,
    PORTION,
    PORTION_S,
    DiscardedMessages,
    DiscardPortion,
)
from tests.core.fakes import DEAD, letters, reasons
from tests.harness.bench import CoreBench, message
from tests.harness.plain import plain_only

LONG = 2 * PORTION + 5


def long_queue(bench: CoreBench, **said: int | str):
    queue = bench.queue(**said)
    one = message("q")
    for _ in range(LONG):
        queue.push(one)
    bench.settle()
    return queue


def messages_left() -> int:
    return sum(isinstance(each, Message) for each in gc.get_objects())


def test_a_pile_is_freed_in_portions_with_pauses() -> None:
    timers = Timers()
    discarded = DiscardedMessages(timers)
    pile = [message() for _ in range(LONG)]
    discarded.add(pile, now=7.0)
    left = []
    while (at := timers.next_at()) is not None:
        assert at == pytest.approx(7.0 + (len(left) + 1) * PAUSE_S)
        timers.run(at)
        left.append(len(pile))
    assert left == [LONG - PORTION, LONG - 2 * PORTION, 0]


def test_piles_are_freed_one_after_the_other() -> None:
    timers = Timers()
    discarded = DiscardedMessages(timers)
    piles = [[message() for _ in range(PORTION + 1)] for _ in range(3)]
    for pile in piles:
        discarded.add(pile, now=0.0)
    turns = 0
    while (at := timers.next_at()) is not None:
        assert timers.run(at) == 1
        turns += 1
    assert turns == 6
    assert piles == [[], [], []]


def test_a_short_pile_needs_nobody() -> None:
    timers = Timers()
    DiscardedMessages(timers).add(deque(), now=0.0)
    DiscardedMessages(timers).add([message() for _ in range(PORTION)], now=0.0)
    assert timers.next_at() is None


def test_a_purged_queue_is_empty_at_once_and_goes_on(bench: CoreBench) -> None:
    queue = long_queue(bench)
    assert queue.purge() == LONG
    assert (queue.ready, queue.ready_bytes, list(queue.waiting())) == (0, 0, [])
    bench.publish("q", *letters(2))
    assert queue.ready == 2
    for _ in range(4):
        bench.advance(PAUSE_S)
    assert bench.broker.timers.next_at() is None
    assert queue.ready == 2


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_a_deleted_queue_leaves_no_message(kind: str, bench: CoreBench) -> None:
    gc.collect()
    before = messages_left()
    queue = bench.host.declare_queue("q", durable=True, arguments={"x-queue-type": kind})
    for number in range(LONG):
        queue.push(message("q", str(number).encode()))
    assert bench.host.delete_queue(queue) == LONG
    for _ in range(4):
        bench.advance(PAUSE_S)
    assert messages_left() <= before + 1


@plain_only
def test_a_long_queue_expires_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discarded_messages, "PORTION", 3)
    bench = CoreBench()
    dead = bench.queue("dead")
    queue = bench.queue("q", x_message_ttl=1000, **DEAD)
    bench.publish("q", *letters(8))
    bench.advance(1)
    assert (queue.ready, dead.ready) == (5, 3)
    assert queue.take_one(settled=True) is not None  # due is not overdue
    bench.advance(PAUSE_S)
    assert (queue.ready, dead.ready) == (1, 6)
    bench.advance(PAUSE_S)
    assert reasons(dead) == [f"{letter} expired" for letter in "abcefgh"]
    assert bench.broker.timers.next_at() is None


@plain_only
def test_what_has_expired_and_not_gone_yet_is_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discarded_messages, "PORTION", 3)
    bench = CoreBench()
    queue = bench.queue("q", x_message_ttl=1000)
    bench.publish("q", *letters(8))
    bench.advance(1.5)
    assert queue.ready == 5
    assert queue.take_one(settled=True) is None
    assert queue.ready == 0


def test_a_limit_that_is_put_on_a_long_queue_buries_its_messages_in_portions() -> None:
    """What is buried costs more than what is dropped, and is buried in the settle that follows."""
    bench = CoreBench()
    dead = bench.queue("dead")
    queue = bench.queue("q", **DEAD)
    for _ in range(4 * BURIED + 1):
        queue.push(message("q"))
    bench.settle()
    queue.apply(QueueLimits(max_length=1, dead_letter_exchange="", dead_letter_key="dead"))
    bench.settle()
    assert BURIED <= dead.ready <= 2 * BURIED
    for _ in range(3):
        before = dead.ready
        bench.advance(PAUSE_S)
        assert dead.ready - before <= BURIED
    assert (dead.ready, queue.ready) == (4 * BURIED, 1)


def test_a_portion_is_over_when_its_time_is() -> None:
    clock = ManualClock()
    portion = DiscardPortion(clock, is_buried=False)
    clock.advance(2 * PORTION_S)
    count = 0
    while not portion.is_over():
        count += 1
    assert count < LOOK

"""What bounds a queue: lengths with their overflows, and time."""

from __future__ import annotations

import pytest

from leveret.broker import Outcome
from leveret.limits import Overflow, QueueLimits
from leveret.queues.queue import Queue
from tests.core.fakes import DEAD, FakeConsumer, fetched, letters, morgue, reasons, waiting
from tests.harness.bench import CoreBench, message


def limit(queue: Queue, limits: QueueLimits) -> None:
    """As a policy does."""
    queue.apply(limits)
    queue.virtual_host.broker.settle()


# Limits.


def test_s082_a_full_queue_drops_its_head(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(x_max_length=2, **DEAD)
    assert bench.publish("q", *letters(4)) == [Outcome.TAKEN] * 4
    assert waiting(queue) == "c d"
    assert reasons(dead) == ["a maxlen", "b maxlen"]


def test_of_priorities_the_lowest_is_dropped_first(bench: CoreBench) -> None:
    queue = bench.queue(x_max_priority=1, x_max_length=2)
    bench.publish("q", b"a", b"b", priority=1)
    bench.publish("q", b"c", priority=0)
    assert waiting(queue) == "a b"


def test_a_message_larger_than_the_queue_is_dropped_itself_after_all_others(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length_bytes=3)
    bench.publish("q", b"aa", b"b", b"cccc")
    assert (waiting(queue), queue.ready_bytes) == ("", 0)


def test_what_a_consumer_takes_at_once_was_never_too_much(bench: CoreBench) -> None:
    consumer = FakeConsumer(bench.queue(x_max_length=0))
    bench.publish("q", *letters(3))
    assert consumer.bodies() == "a b c"


@pytest.mark.parametrize(
    ("overflow", "dead_letters"), [("reject-publish", []), ("reject-publish-dlx", ["b maxlen", "c maxlen"])]
)
def test_s082_a_full_queue_refuses(bench: CoreBench, overflow: str, dead_letters: list[str]) -> None:
    dead = morgue(bench)
    queue = bench.queue(x_max_length=1, x_overflow=overflow, **DEAD)
    assert bench.publish("q", *letters(3)) == [Outcome.TAKEN, Outcome.REFUSED, Outcome.REFUSED]
    assert (waiting(queue), queue.refused, queue.published) == ("a", 2, 1)
    assert reasons(dead) == dead_letters


def test_a_full_queue_gives_before_it_refuses(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=1, x_overflow="reject-publish")
    consumer = FakeConsumer(queue, credit=2)
    assert bench.publish("q", *letters(4)) == [Outcome.TAKEN] * 3 + [Outcome.REFUSED]
    assert (consumer.bodies(), waiting(queue)) == ("a b", "c")


def test_what_comes_back_counts_against_the_limit_too(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(x_max_length=2, **DEAD)
    consumer = FakeConsumer(queue, credit=3)
    bench.publish("q", *letters(5))
    consumer.pause()
    for delivery in list(consumer.held):
        consumer.release(delivery)
    bench.settle()
    assert waiting(queue) == "d e"
    assert reasons(dead) == ["a maxlen", "b maxlen", "c maxlen"]


def test_what_comes_back_to_a_queue_that_refuses_stays(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=1, x_overflow="reject-publish")
    consumer = FakeConsumer(queue, credit=1)
    bench.publish("q", b"a", b"b")
    consumer.pause()
    consumer.release(consumer.held[0])
    assert bench.publish("q", b"c") == [Outcome.REFUSED]
    assert waiting(queue) == "a b"


def test_s129_a_new_limit_holds_at_once_for_what_waits(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *letters(4))
    limit(queue, QueueLimits(max_length=3))
    assert waiting(queue) == "b c d"
    limit(queue, QueueLimits(max_bytes=1))
    assert waiting(queue) == "d"
    limit(queue, QueueLimits(max_length=0, overflow=Overflow.REJECT_PUBLISH))
    assert waiting(queue) == "d"  # whoever refuses drops nothing
    limit(queue, QueueLimits())
    bench.publish("q", b"e")
    assert waiting(queue) == "d e"


def test_a_queue_over_its_limit_stands_once_in_the_list_of_touched_queues(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=1)
    FakeConsumer(queue, credit=1)
    for body in letters(20):
        bench.broker.publish(bench.host.default_exchange, message("q", body))
    assert bench.broker.touched.count(queue) == 1
    bench.settle()
    assert (bench.broker.touched, queue.touched) == ([], False)


# Time.


def test_s080_a_message_expires_by_the_lower_of_its_own_and_the_queues_ttl(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(x_message_ttl=2000, **DEAD)
    bench.publish("q", b"a")
    bench.publish("q", b"b", ttl_ms=5000)
    bench.advance(1.999)
    assert waiting(queue) == "a b"
    bench.advance(0.001)
    assert reasons(dead) == ["a expired", "b expired"]
    bench.publish("q", b"c", ttl_ms=1000)
    bench.advance(1)
    assert (queue.ready, queue.ready_bytes, queue.expiring) == (0, 0, 0)


def test_s080_a_ttl_of_0_reaches_only_who_can_take_it_at_once(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(x_message_ttl=0, **DEAD)
    bench.publish("q", b"a")
    consumer = FakeConsumer(queue, credit=1)
    bench.publish("q", b"b", b"c")
    assert consumer.bodies() == "b"
    assert reasons(dead) == ["a expired", "c expired"]


def test_messages_expire_at_the_head_of_their_priority_only(bench: CoreBench) -> None:
    queue = bench.queue(x_max_priority=1)
    bench.publish("q", b"a")
    bench.publish("q", b"b", ttl_ms=1000)
    bench.publish("q", b"c", ttl_ms=1000, priority=1)
    bench.advance(5)
    assert waiting(queue) == "a b"
    consumer = FakeConsumer(queue)
    bench.settle()
    assert consumer.bodies() == "a"  # and nobody gets what has expired
    assert queue.ready == 0


def test_what_comes_back_too_late_expires(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(**DEAD)
    consumer = FakeConsumer(queue)
    bench.publish("q", b"a", ttl_ms=1000)
    bench.advance(2)
    assert queue.unsettled == 1  # who has it may take his time
    consumer.release(consumer.held[0])
    bench.settle()
    assert reasons(dead) == ["a expired"]


def test_what_comes_back_in_time_expires_in_its_turn(bench: CoreBench, queue: Queue) -> None:
    consumer = FakeConsumer(queue)
    bench.publish("q", b"a", ttl_ms=1000)
    consumer.leave()
    consumer.release(consumer.held[0])
    bench.advance(0.5)
    assert queue.ready == 1
    bench.advance(0.5)
    assert queue.ready == 0


def test_what_has_expired_is_not_handed_out_before_the_timers_have_seen_it(bench: CoreBench, queue: Queue):
    consumer = FakeConsumer(queue, credit=1)
    bench.publish("q", b"a")
    bench.publish("q", b"b", ttl_ms=1000)
    bench.clock.advance(1.25)
    bench.broker.tick()
    consumer.accept(consumer.held[0])
    bench.settle()
    assert (consumer.bodies(), queue.ready) == ("a", 0)


def test_a_fetch_passes_over_what_has_expired(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a", ttl_ms=1000)
    bench.publish("q", b"b")
    bench.clock.advance(2)
    bench.broker.tick()
    assert fetched(queue, settled=True).message.body == b"b"
    assert queue.take_one(settled=True) is None


def test_a_head_that_goes_makes_room_for_the_next_ones_deadline(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=1)
    bench.publish("q", b"a")
    bench.publish("q", b"b", ttl_ms=1000)  # drops a, and is the head now
    bench.advance(1)
    assert queue.ready == 0


def test_expiry_costs_nothing_when_nothing_expires(bench: CoreBench) -> None:
    FakeConsumer(bench.queue(), credit=1)
    bench.publish("q", *letters(3))
    assert bench.broker.timers.next_at() is None


def test_s081_a_queue_that_nobody_uses_goes_and_its_messages_do_not_die(bench: CoreBench) -> None:
    dead = morgue(bench)
    bench.queue(x_expires=1000, **DEAD)
    bench.publish("q", b"a")
    bench.advance(0.999)
    assert "q" in bench.host.queues
    bench.advance(0.001)
    assert "q" not in bench.host.queues
    assert dead.ready == 0
    assert bench.broker.timers.next_at() is None


def test_s081_consumers_fetches_and_declarations_are_uses(bench: CoreBench) -> None:
    queue = bench.queue(x_expires=1000)
    bench.advance(0.75)
    bench.queue(x_expires=1000)
    bench.advance(0.75)
    queue.take_one(settled=True)
    bench.advance(0.75)
    consumer = FakeConsumer(queue)
    bench.advance(10)
    consumer.leave()
    bench.advance(0.75)
    assert "q" in bench.host.queues
    bench.publish("q", b"a")  # not a use
    bench.advance(0.25)
    assert "q" not in bench.host.queues


def test_s081_the_term_begins_anew_when_the_last_consumer_leaves(bench: CoreBench) -> None:
    consumer = FakeConsumer(bench.queue(x_expires=1000))
    bench.advance(0.75)
    consumer.leave()
    bench.advance(0.75)
    assert "q" in bench.host.queues
    bench.advance(0.25)
    assert "q" not in bench.host.queues


def test_a_policy_can_end_and_begin_the_watch_for_disuse(bench: CoreBench) -> None:
    queue = bench.queue(x_expires=1000)
    limit(queue, QueueLimits())
    bench.advance(5)
    assert "q" in bench.host.queues
    limit(queue, QueueLimits(expires_ms=6000))
    bench.advance(5.75)
    assert "q" in bench.host.queues  # the term begins with the policy, however long nobody has used it before
    bench.advance(0.25)
    assert "q" not in bench.host.queues

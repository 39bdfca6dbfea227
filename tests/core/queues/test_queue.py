"""Queues, one claim at a time: turns, credit, answers, priorities, the end.

Limits and time: test_queue_limits.py. Everything at once: test_queue_properties.py."""

from __future__ import annotations

import pytest

from leveret.config.compat import Compat, compat
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.outbox import OVERHEAD
from leveret.queues.queue import Queue
from tests.core.fakes import DEAD, FakeConsumer, SharedWindow, fetched, letters, morgue, reasons, waiting
from tests.harness.bench import CoreBench, message

# Turns and credit.


@pytest.mark.parametrize("queue_type", ["classic", "quorum", "stream"])
def test_bytes_of_unsettled_messages_are_counted(bench: CoreBench, queue_type: str) -> None:
    queue = bench.host.declare_queue("q", durable=True, arguments={"x-queue-type": queue_type})
    consumer = FakeConsumer(queue, credit=4)
    bench.publish("q", b"a", b"bb", b"ccc", b"dddd", b"eeeee")
    waits = 15 if queue_type == "stream" else 5
    assert (queue.unsettled_bytes, queue.ready_bytes) == (10, waits)
    one, two, three, four = consumer.held
    queue.accept(one)
    assert queue.unsettled_bytes == 9
    queue.release(two)
    assert queue.unsettled_bytes == 7
    queue.reject(three)
    assert queue.unsettled_bytes == 4
    queue.accept_run([four])
    assert (queue.unsettled, queue.unsettled_bytes) == (0, 0)


def test_bytes_that_a_consumer_without_answers_could_not_send_are_counted_once(
    bench: CoreBench, queue: Queue
) -> None:
    consumer = FakeConsumer(queue, settled=True)
    bench.publish("q", b"abc")
    assert (queue.unsettled_bytes, queue.ready_bytes) == (0, 0)
    consumer.credit = 0
    queue.unsend(consumer.got[0], settled=True)
    assert (queue.unsettled_bytes, queue.ready_bytes) == (0, 3)


def test_messages_come_out_in_the_order_they_came_in(bench: CoreBench) -> None:
    consumer = FakeConsumer(bench.queue())
    bench.publish("q", b"a", b"b")
    bench.publish("q", b"c")
    assert consumer.bodies() == "a b c"
    assert consumer.batches == [2, 1]  # a lone consumer gets a batch in one call


def test_consumers_take_turns_message_by_message(bench: CoreBench, queue: Queue) -> None:
    first, second, third = (FakeConsumer(queue) for _ in range(3))
    bench.publish("q", *letters(7))
    assert (first.bodies(), second.bodies(), third.bodies()) == ("a d g", "b e", "c f")
    bench.publish("q", b"h")
    assert second.bodies() == "b e h"  # turns go on where they stopped


def test_a_consumer_without_credit_is_passed_over_until_it_has_some(bench: CoreBench, queue: Queue) -> None:
    slow, quick = FakeConsumer(queue, credit=1), FakeConsumer(queue, credit=3)
    bench.publish("q", *letters(5))
    assert (slow.bodies(), quick.bodies(), waiting(queue)) == ("a", "b c d", "e")
    slow.accept(slow.held[0])
    bench.settle()
    assert slow.bodies() == "a e"


def test_a_consumer_that_answers_nothing_has_no_more_than_its_credit(bench: CoreBench, queue: Queue) -> None:
    consumer = FakeConsumer(queue, settled=True, credit=2)
    bench.publish("q", *letters(5))
    assert (consumer.bodies(), consumer.credit) == ("a b", 0)
    assert (queue.unsettled, queue.accepted, queue.ready) == (0, 2, 3)
    consumer.grant(2)
    bench.settle()
    assert consumer.bodies() == "a b c d"


def test_nor_more_than_the_credit_that_it_shares(bench: CoreBench) -> None:
    window = SharedWindow(3)
    one, two = (FakeConsumer(bench.queue(name), settled=True, window=window) for name in ("1", "2"))
    bench.publish("1", b"a", b"b")
    bench.publish("2", b"c", b"d")
    assert (one.bodies(), two.bodies(), window.credit) == ("a b", "c", 0)


def test_a_shared_window_bounds_consumers_of_several_queues(bench: CoreBench) -> None:
    window = SharedWindow(2)
    one, two = FakeConsumer(bench.queue("1"), window=window), FakeConsumer(bench.queue("2"), window=window)
    bench.publish("1", b"a")
    bench.publish("2", b"b", b"c")
    assert (one.bodies(), two.bodies(), window.credit) == ("a", "b", 0)
    one.accept_all()
    bench.settle()
    assert two.bodies() == "b c"


def test_s115_higher_consumer_priorities_are_served_first_as_long_as_they_can_take(bench: CoreBench) -> None:
    queue = bench.queue()
    low, high = FakeConsumer(queue, priority=-1), FakeConsumer(queue, credit=2, priority=7)
    middle = FakeConsumer(queue, credit=1)
    bench.publish("q", *letters(4))
    assert (high.bodies(), middle.bodies(), low.bodies()) == ("a b", "c", "d")


def test_a_full_outbox_is_passed_over_and_what_fits_last_may_stand_out(bench: CoreBench) -> None:
    consumer = FakeConsumer(bench.queue(), limit=OVERHEAD + 2)
    bench.publish("q", b"a", b"b", b"c")
    assert consumer.bodies() == "a b"  # one octet of room was left: enough to begin a message
    consumer.drain()
    bench.settle()
    assert consumer.bodies() == "a b c"


def test_a_paused_consumer_loses_nothing_but_its_turn(bench: CoreBench, queue: Queue) -> None:
    consumer, other = FakeConsumer(queue), FakeConsumer(queue)
    consumer.pause()
    bench.publish("q", b"a", b"b")
    assert (consumer.bodies(), other.bodies()) == ("", "a b")
    consumer.resume()
    bench.publish("q", b"c", b"d")
    assert (consumer.bodies(), other.bodies()) == ("d", "a b c")


def test_s099_an_exclusive_consumer_is_alone(queue: Queue) -> None:
    alone = FakeConsumer(queue, exclusive=True)
    for exclusive in (False, True):
        with pytest.raises(AccessRefused, match="queue 'q' in vhost '/' in exclusive use"):
            FakeConsumer(queue, exclusive=exclusive)
    alone.leave()
    FakeConsumer(queue)
    with pytest.raises(AccessRefused):
        FakeConsumer(queue, exclusive=True)


def test_s083_of_several_consumers_one_is_active_and_leaves_to_the_first_of_the_highest_priority(
    bench: CoreBench,
) -> None:
    queue = bench.queue(x_single_active_consumer=True)
    first, second, high, higher = (FakeConsumer(queue, priority=priority) for priority in (0, 0, 5, 5))
    bench.publish("q", b"a", b"b")
    assert first.bodies() == "a b"
    second.wake()  # not its turn
    first.leave()
    bench.publish("q", b"c")
    assert high.bodies() == "c"
    high.leave()
    higher.leave()
    bench.publish("q", b"d")
    assert second.bodies() == "d"


def test_s083_x028_a_single_active_consumer_that_does_not_answer_is_replaced_at_once(
    bench: CoreBench,
) -> None:
    queue = bench.queue(x_single_active_consumer=True)
    first, second = FakeConsumer(queue, credit=1, priority=9), FakeConsumer(queue, credit=1)
    bench.publish("q", b"a", b"b")
    time_out(bench, first)
    assert (first.bodies(), second.bodies(), queue.serves(second)) == ("a", "a", True)
    second.accept_all()
    bench.settle()
    assert second.bodies() == "a b"
    time_out(bench, second)  # the one that was late first has had time to recover
    assert first.bodies() == "a b"


def test_s083_x028_one_that_is_late_and_alone_goes_on_until_another_comes(bench: CoreBench) -> None:
    queue = bench.queue(x_single_active_consumer=True)
    first = FakeConsumer(queue, credit=1)
    bench.publish("q", b"a")
    time_out(bench, first)
    assert first.bodies() == "a a"
    second = FakeConsumer(queue)
    bench.publish("q", b"b")
    assert (first.bodies(), second.bodies()) == ("a a", "b")
    second.leave()
    first.accept_all()
    bench.publish("q", b"c")
    assert first.bodies() == "a a c"


def time_out(bench: CoreBench, consumer: FakeConsumer) -> None:
    bench.advance(1)
    consumer.queue.timed_out(consumer)
    for delivery in list(consumer.held):
        consumer.release(delivery)
    bench.settle()


def contended(profile: str, type_: str = "quorum") -> tuple[CoreBench, Queue]:
    bench = CoreBench(compat=compat(profile))
    arguments = {"x-queue-type": type_, "x-single-active-consumer": True}
    return bench, bench.host.declare_queue("q", durable=True, arguments=arguments)


def test_s083_a_higher_priority_takes_over_in_a_quorum_queue_when_all_is_answered() -> None:
    bench, queue = contended("rabbitmq-4.0")
    low = FakeConsumer(queue)
    bench.publish("q", b"a", b"b")
    middle, high = FakeConsumer(queue, priority=1), FakeConsumer(queue, priority=2)
    bench.publish("q", b"c")
    low.accept(low.held[0])
    bench.settle()
    assert (low.bodies(), middle.bodies(), high.bodies(), waiting(queue)) == ("a b", "", "", "c")
    low.reject(low.held[0])
    bench.settle()
    assert (middle.bodies(), high.bodies()) == ("", "c")
    bench.publish("q", b"d")
    assert (low.bodies(), high.bodies()) == ("a b", "c d")


def test_s083_one_that_would_take_over_and_leaves_before_has_changed_nothing() -> None:
    bench, queue = contended("rabbitmq-4.3")
    low = FakeConsumer(queue)
    bench.publish("q", b"a")
    high = FakeConsumer(queue, priority=2)
    bench.publish("q", b"b")
    high.leave()
    bench.settle()
    assert (low.bodies(), high.bodies()) == ("a b", "")


@pytest.mark.parametrize(
    ("profile", "type_"), [("rabbitmq-4.0", "classic"), ("rabbitmq-3.13", "quorum"), ("default", "quorum")]
)
def test_s083_elsewhere_the_active_one_stays(profile: str, type_: str) -> None:
    bench, queue = contended(profile, type_)
    low, high = FakeConsumer(queue), FakeConsumer(queue, priority=2)
    bench.publish("q", b"a")
    assert (low.bodies(), high.bodies()) == ("a", "")


def test_an_active_consumer_without_credit_is_not_replaced(bench: CoreBench) -> None:
    queue = bench.queue(x_single_active_consumer=True)
    first, second = FakeConsumer(queue, credit=1), FakeConsumer(queue)
    bench.publish("q", b"a", b"b")
    assert (first.bodies(), second.bodies(), waiting(queue)) == ("a", "", "b")


def test_a_consumer_that_leaves_keeps_what_it_has_and_gets_no_more(bench: CoreBench, queue: Queue) -> None:
    consumer = FakeConsumer(queue)
    bench.publish("q", b"a", b"b")
    consumer.leave()
    consumer.wake()
    bench.publish("q", b"c")
    assert (consumer.bodies(), queue.unsettled, waiting(queue)) == ("a b", 2, "c")
    consumer.accept_all()
    assert (queue.unsettled, queue.accepted) == (0, 2)


def test_leaving_twice_is_harmless(queue: Queue) -> None:
    consumer = FakeConsumer(queue)
    queue.remove_consumer(consumer)
    queue.remove_consumer(consumer)
    assert not queue.consumers


def test_the_rings_of_consumers_that_left_are_gone(bench: CoreBench, queue: Queue) -> None:
    for priority in range(100):
        consumer = FakeConsumer(queue, credit=priority % 2, priority=priority)
        bench.publish("q", b"a")
        consumer.leave()
    assert queue.rings == []
    stays, goes = FakeConsumer(queue), FakeConsumer(queue)
    goes.leave()
    bench.settle()
    assert len(stays.got) == 50


def test_s068_an_auto_delete_queue_goes_with_its_last_consumer(bench: CoreBench) -> None:
    queue = bench.host.declare_queue("q", auto_delete=True)
    bench.publish("q", b"a")
    first, second = FakeConsumer(queue), FakeConsumer(queue)
    first.leave()
    assert "q" in bench.host.queues
    second.leave()
    assert "q" not in bench.host.queues
    assert queue.deleted


# Fetching.


def test_s112_messages_can_be_fetched_one_by_one(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a", b"b", b"c")
    assert fetched(queue, settled=True).message.body == b"a"
    kept = fetched(queue, settled=False)
    assert (queue.ready, queue.ready_bytes, queue.unsettled, queue.accepted) == (1, 1, 1, 1)
    queue.release(kept)
    again = fetched(queue, settled=False)
    assert (again.message.body, again.redelivered, again.attempts) == (b"b", True, 1)
    fetched(queue, settled=True)
    assert queue.take_one(settled=True) is None


def test_s086_a_queue_can_deliver_now_if_somebody_has_credit_and_room_and_nothing_waits(bench: CoreBench):
    queue = bench.queue()
    assert not queue.can_deliver_now(message())
    consumer = FakeConsumer(queue, credit=1)
    assert queue.can_deliver_now(message())
    consumer.pause()
    assert not queue.can_deliver_now(message())
    consumer.resume()
    bench.publish("q", b"a")
    assert not queue.can_deliver_now(message())
    consumer.accept_all()
    assert queue.can_deliver_now(message())


# Answers.


def test_s109_what_is_released_returns_to_its_old_place(bench: CoreBench, queue: Queue) -> None:
    consumer = FakeConsumer(queue, credit=3)
    bench.publish("q", *letters(5))
    consumer.pause()
    a, b, c = consumer.held
    for delivery in (c, a):
        consumer.release(delivery)
    assert waiting(queue) == "a c d e"
    consumer.resume()
    bench.settle()
    assert consumer.bodies() == "a b c a c"
    assert [delivery.redelivered for delivery in consumer.got] == [True, False, True, True, True]
    assert b.redelivered is False


def test_s110_a_release_without_failure_counts_no_attempt(bench: CoreBench) -> None:
    consumer = FakeConsumer(bench.queue(), credit=1)
    bench.publish("q", b"a")
    consumer.release(consumer.held[0], failed=False)
    bench.settle()
    consumer.release(consumer.held[0])
    bench.settle()
    assert (consumer.held[0].attempts, consumer.held[0].redelivered) == (1, True)


def test_a_message_dies_when_it_has_failed_more_often_than_the_limit(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(x_delivery_limit=2, **DEAD)
    consumer = FakeConsumer(queue)
    bench.publish("q", b"a")
    for _ in range(3):
        assert dead.ready == 0
        consumer.release(consumer.held[0])
        bench.settle()
    assert reasons(dead) == ["a delivery_limit"]
    assert (queue.ready, queue.unsettled, len(consumer.got)) == (0, 0, 3)


def test_what_is_rejected_dies(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(**DEAD)
    consumer = FakeConsumer(queue)
    bench.publish("q", b"a")
    consumer.reject(consumer.held[0])
    bench.settle()
    assert reasons(dead) == ["a rejected"]
    assert (queue.unsettled, queue.accepted) == (0, 0)


def test_without_a_dead_letter_exchange_the_dead_are_gone(bench: CoreBench) -> None:
    consumer = FakeConsumer(bench.queue())
    bench.publish("q", b"a")
    consumer.reject(consumer.held[0])
    assert not bench.broker.dying


# Priorities.


def test_s114_higher_message_priorities_come_first_and_are_clamped(bench: CoreBench) -> None:
    queue = bench.queue(x_max_priority=2)
    for body, priority in ((b"a", 0), (b"b", 2), (b"c", 1), (b"d", 9), (b"e", 0)):
        bench.publish("q", body, priority=priority)
    assert waiting(queue) == "b d c a e"
    consumer = FakeConsumer(queue, credit=2)
    bench.settle()
    assert consumer.bodies() == "b d"
    consumer.release(consumer.held[0])
    consumer.release(consumer.held[0])
    assert waiting(queue) == "b d c a e"


def test_without_priorities_a_message_priority_means_nothing(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a", priority=0)
    bench.publish("q", b"b", priority=9)
    assert waiting(queue) == "a b"


# Emptying and the end.


def test_s074_a_purge_leaves_what_consumers_have(bench: CoreBench) -> None:
    queue = bench.queue(**DEAD)
    dead = morgue(bench)
    consumer = FakeConsumer(queue, credit=1)
    bench.publish("q", *letters(3), ttl_ms=1000)
    assert queue.purge() == 2
    assert (queue.ready, queue.ready_bytes, queue.expiring, queue.unsettled) == (0, 0, 0, 1)
    consumer.pause()
    consumer.release(consumer.held[0])
    assert waiting(queue) == "a"
    assert queue.purge() == 1
    bench.advance(5)
    assert dead.ready == 0  # dropped, not dead


def test_s077_a_deleted_queue_tells_its_consumers_and_takes_answers_in_silence(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(x_delivery_limit=0, **DEAD)
    consumer = FakeConsumer(queue, credit=3)
    bench.publish("q", *letters(4))
    a, b, c = consumer.held
    assert bench.host.delete_queue(queue) == 1
    assert (consumer.ended, consumer.attached) == (1, False)
    consumer.accept(a)
    consumer.release(b)
    consumer.reject(c)
    bench.settle()
    assert (queue.ready, queue.unsettled, dead.ready) == (0, 0, 0)
    assert consumer.bodies() == "a b c"


def test_s076_a_queue_in_use_or_not_empty_can_be_spared(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a")
    with pytest.raises(PreconditionFailed, match="queue 'q' in vhost '/' not empty"):
        bench.host.delete_queue(queue, if_empty=True)
    FakeConsumer(queue)
    with pytest.raises(PreconditionFailed, match="queue 'q' in vhost '/' in use"):
        bench.host.delete_queue(queue, if_unused=True)
    assert bench.host.queue("q") is queue


def test_a_profile_may_want_the_messages_of_a_deleted_queue_to_die() -> None:
    bench = CoreBench(compat=Compat(dead_letter_on_delete=True))
    dead = morgue(bench)
    queue = bench.queue(x_max_priority=1, **DEAD)
    bench.publish("q", b"a", priority=0)
    bench.publish("q", b"b", priority=1)
    bench.host.delete_queue(queue)
    bench.settle()
    assert reasons(dead) == ["b rejected", "a rejected"]

"""Consumers that browse: they read what waits, and nobody is the worse for it.

Everything at once: test_queue_properties.py. Streams, where all consumers do so: test_stream.py."""

from __future__ import annotations

import pytest

from leveret.broker import Outcome
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.outbox import OVERHEAD
from leveret.queues.discarded_messages import PAUSE_S
from leveret.queues.queue import Queue
from leveret.queues.search import TESTS
from leveret.queues.searched_lane import SearchedLane
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import (
    DEAD,
    FakeConsumer,
    Only,
    SharedWindow,
    fetched,
    letters,
    morgue,
    reasons,
    waiting,
)
from tests.harness.bench import CoreBench, message


def browser(
    queue: Queue, wants: bytes | None = None, credit: int = 100, limit: int = 1 << 40
) -> FakeConsumer:
    """It has seen what there is for it."""
    selector = None if wants is None else Only(wants)
    found = FakeConsumer(queue, credit=credit, limit=limit, selector=selector, browses=True)
    queue.virtual_host.broker.settle()
    return found


# What it sees.


def test_it_sees_what_waits_in_order_and_later_what_arrives(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a", b"b", b"c")
    looks = browser(queue)
    assert (looks.bodies(), looks.batches) == ("a b c", [3])
    bench.publish("q", b"d", b"e")
    bench.settle()
    assert looks.bodies() == "a b c d e"


def test_it_changes_nothing(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a", b"b")
    browser(queue)
    assert (queue.ready, queue.ready_bytes, queue.unsettled) == (2, 2, 0)
    assert (queue.delivered, queue.accepted, len(queue.consumers)) == (0, 0, 0)
    for delivery in queue.waiting():
        assert (delivery.consumer, delivery.given_at, delivery.redelivered) == (None, 0.0, False)
    taker = FakeConsumer(queue)
    bench.settle()
    assert taker.bodies() == "a b"
    assert not any(delivery.redelivered or delivery.attempts for delivery in taker.got)


def test_it_sees_what_others_take_in_the_same_moment(bench: CoreBench, queue: Queue) -> None:
    taker = FakeConsumer(queue, priority=1000)
    looks = browser(queue)
    bench.publish("q", b"a", b"b")
    assert looks.bodies() == taker.bodies() == "a b"


def test_what_was_gone_before_it_came_there_it_does_not_see(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *letters(4))
    looks = browser(queue, credit=1)
    assert [fetched(queue, settled=True).message.body for _ in range(3)] == [b"a", b"b", b"c"]
    looks.grant(5)
    bench.settle()
    assert looks.bodies() == "a d"


def test_what_it_has_seen_and_comes_back_it_does_not_see_again(bench: CoreBench, queue: Queue) -> None:
    looks, taker = browser(queue), FakeConsumer(queue)
    bench.publish("q", *letters(3))
    taker.pause()
    for delivery in list(taker.held):
        taker.release(delivery)
    bench.publish("q", b"d")
    assert (looks.bodies(), waiting(queue)) == ("a b c d", "a b c d")


def test_what_somebody_else_had_meanwhile_it_sees_when_it_comes_back(bench: CoreBench, queue: Queue) -> None:
    taker = FakeConsumer(queue, credit=2)
    bench.publish("q", *letters(4))
    looks = browser(queue)
    assert looks.bodies() == "c d"
    taker.pause()
    for _ in range(3):  # and then it has seen it
        for delivery in reversed(list(taker.held)):
            taker.release(delivery)
        bench.settle()
        taker.resume()
        bench.settle()
    assert looks.bodies() == "c d a b"


def test_each_of_several_sees_everything_at_its_own_pace(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *letters(3))
    quick, slow = browser(queue), browser(queue, credit=1)
    taker = FakeConsumer(queue, credit=2)
    bench.settle()
    taker.pause()
    for delivery in list(taker.held):
        taker.release(delivery)
    slow.grant(5)
    bench.settle()
    assert (quick.bodies(), slow.bodies()) == ("a b c", "a b c")


def test_one_that_comes_back_begins_anew(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a", b"b")
    browser(queue).leave()
    stays = browser(queue)
    browser(queue).leave()
    assert (stays.bodies(), browser(queue).bodies()) == ("a b", "a b")


def test_it_sees_higher_priorities_first_and_those_that_arrive_later_in_their_turn(bench: CoreBench) -> None:
    queue = bench.queue(x_max_priority=2)
    for body, priority in ((b"a", 0), (b"b", 2), (b"c", 1)):
        bench.publish("q", body, priority=priority)
    looks = browser(queue, credit=2)
    bench.publish("q", b"d", priority=2)
    looks.grant(5)
    bench.settle()
    assert looks.bodies() == "b c d a"


def test_it_may_want_only_some_of_them(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a1", b"b1", b"a2", b"b2")
    looks = browser(queue, wants=b"b")
    bench.publish("q", b"b3", b"a3")
    assert (looks.bodies(), queue.ready) == ("b1 b2 b3", 6)


def test_a_long_search_is_gone_on_with(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *[b"a"] * (2 * TESTS), b"b")
    looks = browser(queue, wants=b"b")
    assert looks.searching
    for _ in range(2):
        bench.advance(PAUSE_S)
    assert (looks.bodies(), looks.searching) == ("b", False)


def test_credit_and_room_bound_what_it_sees_at_once(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *letters(6))
    window = SharedWindow(3)
    looks = FakeConsumer(queue, window=window, browses=True)
    small = browser(queue, limit=2 * OVERHEAD)
    assert (looks.bodies(), looks.shared.credit, small.bodies()) == ("a b c", 0, "a b")
    window.credit += 2
    looks.wake()
    small.drain()
    bench.settle()
    assert (looks.bodies(), small.bodies()) == ("a b c d e", "a b c d")


def test_whether_it_would_answer_says_nothing(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a")
    FakeConsumer(queue, settled=True, browses=True)
    bench.settle()
    assert (queue.ready, queue.accepted, queue.delivered) == (1, 0, 0)


# What others notice of it.


def test_it_holds_nobody_up(bench: CoreBench, queue: Queue) -> None:
    looks = browser(queue)
    looks.pause()
    one, two = FakeConsumer(queue), FakeConsumer(queue)
    bench.publish("q", *letters(4))
    assert (one.bodies(), two.bodies(), looks.bodies()) == ("a c", "b d", "")


def test_s099_exclusivity_is_no_concern_of_its(bench: CoreBench, queue: Queue) -> None:
    looks = FakeConsumer(queue, exclusive=True, credit=10, browses=True)
    alone = FakeConsumer(queue, exclusive=True)
    bench.publish("q", b"a")
    more = browser(queue)
    assert (looks.bodies(), alone.bodies(), more.attached) == ("a", "a", True)
    with pytest.raises(AccessRefused):
        FakeConsumer(queue)


def test_s083_it_is_not_the_single_active_consumer(bench: CoreBench) -> None:
    queue = bench.queue(x_single_active_consumer=True)
    bench.publish("q", b"a")
    looks = browser(queue)
    first, second = FakeConsumer(queue), FakeConsumer(queue)
    bench.publish("q", b"b")
    assert (looks.bodies(), first.bodies(), second.bodies()) == ("a b", "a b", "")
    first.leave()
    bench.publish("q", b"c")
    assert (looks.bodies(), second.bodies()) == ("a b c", "c")


def test_s068_an_auto_delete_queue_neither_stays_nor_goes_for_it(bench: CoreBench) -> None:
    queue = bench.host.declare_queue("q", auto_delete=True)
    browser(queue).leave()
    assert "q" in bench.host.queues
    looks, taker = browser(queue), FakeConsumer(queue)
    taker.leave()
    assert ("q" in bench.host.queues, looks.ended, looks.attached) == (False, 1, False)


def test_s076_a_queue_that_is_only_looked_at_is_not_in_use(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a")
    browser(queue)
    with pytest.raises(PreconditionFailed, match="not empty"):
        bench.host.delete_queue(queue, if_empty=True)
    assert bench.host.delete_queue(queue, if_unused=True) == 1


def test_s077_it_is_told_when_the_queue_is_deleted(bench: CoreBench, queue: Queue) -> None:
    looks, taker = browser(queue), FakeConsumer(queue)
    bench.host.delete_queue(queue)
    looks.leave()
    assert (looks.ended, taker.ended, looks.attached, looks.able) == (1, 1, False, False)


def test_s081_a_queue_that_is_looked_at_is_not_disused(bench: CoreBench) -> None:
    looks = browser(bench.queue(x_expires=1000))
    bench.advance(5)
    assert "q" in bench.host.queues
    looks.leave()
    bench.advance(1)
    assert "q" not in bench.host.queues


def test_s086_a_message_is_not_delivered_to_who_only_looks(bench: CoreBench) -> None:
    browser(bench.queue())
    exchange = bench.host.default_exchange
    assert bench.broker.publish_immediate(exchange, message("q", b"a")) is Outcome.UNDELIVERABLE


def test_when_the_last_one_leaves_the_queue_is_as_before(bench: CoreBench, queue: Queue) -> None:
    assert isinstance(queue, WorkQueue)
    bench.publish("q", b"a", b"b")
    one, two = browser(queue), browser(queue)
    one.leave()
    queue.remove_consumer(one)  # twice is harmless
    assert isinstance(queue.lanes[0], SearchedLane)
    two.leave()
    assert (queue.search, queue.rings, waiting(queue)) == (None, [], "a b")
    assert not isinstance(queue.lanes[0], SearchedLane)


# What happens meanwhile.


def test_s074_a_purge_takes_what_it_has_not_seen(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *letters(3))
    looks = browser(queue, credit=1)
    assert queue.purge() == 3
    bench.publish("q", b"d")
    looks.grant(5)
    bench.settle()
    assert looks.bodies() == "a d"


def test_s080_what_has_expired_is_not_shown_and_dies_in_its_turn(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(**DEAD)
    bench.publish("q", b"a")
    bench.publish("q", b"b", ttl_ms=1000)
    bench.publish("q", b"c", ttl_ms=9000)
    bench.advance(2)
    assert (browser(queue).bodies(), waiting(queue), reasons(dead)) == ("a c", "a b c", [])
    fetched(queue, settled=True)
    bench.settle()
    assert (waiting(queue), reasons(dead)) == ("c", ["b expired"])
    bench.advance(10)
    assert reasons(dead) == ["b expired", "c expired"]


def test_s082_what_is_too_much_is_dropped_though_it_is_looked_at(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=2)
    looks = browser(queue)
    bench.publish("q", *letters(4))
    assert (looks.bodies(), waiting(queue)) == ("a b c d", "c d")

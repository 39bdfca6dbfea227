"""Consumers with selectors: what they get, and what stays for others.

The language: test_selector.py. What it costs: test_searches.py. Everything at once: test_queue_properties.py.
"""

from __future__ import annotations

import pytest

from leveret.broker import Outcome
from leveret.delivery import Delivery
from leveret.errors import AccessRefused
from leveret.outbox import OVERHEAD
from leveret.queues.queue import Queue
from leveret.queues.search import TESTS
from leveret.queues.searched_lane import SearchedLane
from leveret.queues.work_queue import WorkQueue
from leveret.selectors.parser import compile_selector
from leveret.testing.fakes import fake_message
from leveret.values import Value
from tests.core.fakes import DEAD, FakeConsumer, Only, fetched, morgue, reasons, waiting
from tests.harness.bench import CoreBench, message


def work_queue(bench: CoreBench, **said: Value) -> WorkQueue:
    queue = bench.queue(**said)
    assert isinstance(queue, WorkQueue)
    return queue


# What they get.


def test_what_does_not_match_stays_for_others_in_order(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a1", b"b1", b"c1", b"a2", b"b2")
    picky = FakeConsumer(queue, selector=Only(b"b"))
    bench.settle()
    assert (picky.bodies(), waiting(queue), queue.ready, queue.ready_bytes) == ("b1 b2", "a1 c1 a2", 3, 6)
    assert picky.batches == [2]  # a lone consumer gets a batch in one call
    bench.publish("q", b"c2", b"b3")
    other = FakeConsumer(queue)
    bench.settle()
    assert (picky.bodies(), other.bodies()) == ("b1 b2 b3", "a1 c1 a2 c2")
    assert (queue.ready, queue.ready_bytes, queue.unsettled) == (0, 0, 7)


def test_selectors_are_about_properties(bench: CoreBench, queue: Queue) -> None:
    blue = FakeConsumer(queue, selector=compile_selector("color = 'blue' AND weight > 3"))
    for n, color in enumerate(["blue", "red", "blue", "blue"]):
        queue.push(fake_message(headers={"color": color, "weight": 5 - n}, body=b"%d" % n))
    bench.settle()
    assert (blue.bodies(), waiting(queue)) == ("0", "1 2 3")


def test_consumers_with_and_without_selectors_take_turns(bench: CoreBench, queue: Queue) -> None:
    picky, plain = FakeConsumer(queue, selector=Only(b"b")), FakeConsumer(queue)
    bench.publish("q", b"a1", b"b1", b"b2", b"b3", b"a2", b"b4")
    assert (picky.bodies(), plain.bodies()) == ("b1 b2 b4", "a1 b3 a2")
    for body in (b"b5", b"b6", b"b7"):
        bench.publish("q", body)
    assert (picky.bodies(), plain.bodies()) == (
        "b1 b2 b4 b5 b7",
        "a1 b3 a2 b6",
    )  # turns go on where they stopped


def test_what_nobody_with_a_higher_priority_wants_is_for_the_next(bench: CoreBench, queue: Queue) -> None:
    low = FakeConsumer(queue, priority=-1)
    high = FakeConsumer(queue, priority=1, selector=Only(b"bc"), credit=3)
    middle = FakeConsumer(queue, selector=Only(b"c"))
    bench.publish("q", b"a", b"c1", b"b1", b"c2", b"b2", b"c3")
    assert (high.bodies(), middle.bodies(), low.bodies()) == ("c1 b1 c2", "c3", "a b2")


def test_of_higher_message_priorities_come_first_those_that_match(bench: CoreBench) -> None:
    queue = bench.queue(x_max_priority=2)
    picky = FakeConsumer(queue, selector=Only(b"b"), credit=2)
    picky.pause()
    for body, priority in ((b"b0", 0), (b"a2", 2), (b"b1", 1), (b"b2", 2), (b"a1", 1)):
        bench.publish("q", body, priority=priority)
    picky.resume()
    bench.settle()
    assert (picky.bodies(), waiting(queue)) == ("b2 b1", "a2 a1 b0")
    bench.publish("q", b"b3", priority=2)
    picky.grant(2)
    bench.settle()
    assert picky.bodies() == "b2 b1 b3 b0"


def test_what_is_returned_is_offered_again_at_its_old_place(bench: CoreBench, queue: Queue) -> None:
    picky = FakeConsumer(queue, selector=Only(b"b"), credit=3)
    bench.publish("q", b"b1", b"a1", b"b2", b"a2", b"b3", b"b4")
    picky.pause()
    b1, _, b3 = picky.held
    picky.release(b3)
    picky.release(b1)
    assert waiting(queue) == "b1 a1 a2 b3 b4"
    picky.resume()
    bench.settle()
    assert picky.bodies() == "b1 b2 b3 b1 b3"
    assert [delivery.redelivered for delivery in picky.got] == [True, False, True, True, True]


def test_what_another_returns_behind_it_is_offered_to_it(bench: CoreBench, queue: Queue) -> None:
    other = FakeConsumer(queue)
    bench.publish("q", b"b1", b"a1", b"b2")
    other.pause()
    picky = FakeConsumer(queue, selector=Only(b"b"))
    bench.publish("q", b"b3")
    assert picky.bodies() == "b3"
    for delivery in reversed(list(other.held)):
        other.release(delivery)
    bench.settle()
    assert (picky.bodies(), waiting(queue)) == ("b3 b1 b2", "a1")


def test_what_was_taken_before_its_turn_comes_back_to_its_place_among_the_others(bench: CoreBench) -> None:
    queue = bench.queue()
    bench.publish("q", b"b1", b"c2", b"b3", b"c4")
    waits = FakeConsumer(queue, selector=Only(b"bc"), credit=0)
    picky = FakeConsumer(queue, selector=Only(b"c"), credit=2)
    bench.settle()
    picky.pause()
    for delivery in list(picky.held):
        picky.release(delivery)
    waits.grant(9)
    bench.settle()
    assert waits.bodies() == "b1 c2 b3 c4"


def test_who_does_not_want_what_came_back_twice_is_asked_once(bench: CoreBench, queue: Queue) -> None:
    wants = Only(b"b")
    idle, taker = FakeConsumer(queue, selector=wants, credit=0), FakeConsumer(queue)
    bench.publish("q", b"a")
    for _ in range(3):
        taker.pause()
        taker.release(taker.held[0])
        taker.resume()
        bench.settle()
    taker.pause()
    taker.release(taker.held[0])
    idle.grant(1)
    bench.settle()
    assert (wants.looks[b"a"], waiting(queue)) == (1, "a")


def test_one_message_may_come_back_again_and_again(bench: CoreBench, queue: Queue) -> None:
    wants = Only(b"b")
    picky = FakeConsumer(queue, selector=wants, credit=1)
    bench.publish("q", b"a", b"b", b"c")
    for _ in range(200):
        picky.release(picky.held[0])
        bench.settle()
    assert (len(picky.got), queue.ready, queue.unsettled) == (201, 2, 1)
    assert wants.looks == {b"a": 1, b"b": 201}  # c is behind what it has credit for


def test_credit_and_room_bound_what_it_gets(bench: CoreBench, queue: Queue) -> None:
    settled = FakeConsumer(queue, settled=True, credit=2, selector=Only(b"b"))
    small = FakeConsumer(queue, selector=Only(b"c"), limit=OVERHEAD)
    bench.publish("q", b"b1", b"c1", b"b2", b"c2", b"b3")
    assert (settled.bodies(), small.bodies(), waiting(queue)) == ("b1 b2", "c1", "c2 b3")
    settled.grant(1)
    small.drain()
    bench.settle()
    assert (settled.bodies(), small.bodies(), queue.accepted) == ("b1 b2 b3", "c1 c2", 3)


def test_messages_are_fetched_from_the_front_meanwhile(bench: CoreBench, queue: Queue) -> None:
    picky = FakeConsumer(queue, selector=Only(b"b"), credit=1)
    bench.publish("q", b"a1", b"b1", b"b2", b"a2")
    assert [fetched(queue, settled=True).message.body for _ in range(3)] == [b"a1", b"b2", b"a2"]
    assert queue.take_one(settled=True) is None
    picky.accept_all()
    bench.publish("q", b"b3")
    assert picky.bodies() == "b1 b3"


def test_s083_a_single_active_consumer_may_be_picky_and_the_others_wait_for_its_end(bench: CoreBench) -> None:
    queue = bench.queue(x_single_active_consumer=True)
    first, second = FakeConsumer(queue, selector=Only(b"b")), FakeConsumer(queue, selector=Only(b"a"))
    bench.publish("q", b"a1", b"b1", b"a2")
    assert (first.bodies(), second.bodies()) == ("b1", "")
    first.leave()
    bench.settle()
    assert second.bodies() == "a1 a2"


def test_s099_a_picky_consumer_can_be_exclusive(bench: CoreBench, queue: Queue) -> None:
    FakeConsumer(queue, exclusive=True, selector=Only(b"b"))
    with pytest.raises(AccessRefused, match="in exclusive use"):
        FakeConsumer(queue, selector=Only(b"a"))
    assert len(queue.consumers) == 1
    bench.publish("q", b"a")  # whoever was refused has left nothing behind
    assert waiting(queue) == "a"


def test_s086_a_message_can_be_delivered_now_to_who_wants_it(bench: CoreBench, queue: Queue) -> None:
    picky = FakeConsumer(queue, selector=Only(b"b"), credit=1)
    bench.publish("q", b"a")  # what waits for somebody else does not count
    publish, exchange = bench.broker.publish_immediate, bench.host.default_exchange
    assert publish(exchange, message("q", b"a2")) is Outcome.UNDELIVERABLE
    assert publish(exchange, message("q", b"b")) is Outcome.TAKEN
    bench.settle()
    assert publish(exchange, message("q", b"b2")) is Outcome.UNDELIVERABLE
    assert (picky.bodies(), waiting(queue)) == ("b", "a")


# Limits, time, and the end.


def test_s080_what_has_expired_is_passed_by_and_dies_at_the_front(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(**DEAD)
    bench.publish("q", b"a1")
    bench.publish("q", b"b1", ttl_ms=1000)
    bench.publish("q", b"b2")
    bench.advance(2)
    picky = FakeConsumer(queue, selector=Only(b"b"))
    bench.settle()
    assert (picky.bodies(), waiting(queue), reasons(dead)) == ("b2", "a1 b1", [])
    fetched(queue, settled=True)
    bench.settle()
    assert (queue.ready, reasons(dead)) == (0, ["b1 expired"])


def test_s082_the_head_is_dropped_whatever_was_taken_behind_it(bench: CoreBench) -> None:
    dead = morgue(bench)
    queue = bench.queue(x_max_length=2, **DEAD)
    picky = FakeConsumer(queue, selector=Only(b"b"))
    bench.publish("q", b"a1", b"b1", b"a2", b"b2", b"a3")
    assert (picky.bodies(), waiting(queue)) == ("b1 b2", "a2 a3")
    assert reasons(dead) == ["a1 maxlen"]


def test_s082_a_full_queue_gives_what_is_wanted_before_it_refuses(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=2, x_overflow="reject-publish")
    picky = FakeConsumer(queue, selector=Only(b"b"))
    assert bench.publish("q", b"a1", b"b1", b"a2", b"a3") == [Outcome.TAKEN] * 3 + [Outcome.REFUSED]
    assert (picky.bodies(), waiting(queue)) == ("b1", "a1 a2")


def test_s074_a_purge_empties_a_searched_queue(bench: CoreBench) -> None:
    queue = work_queue(bench, x_max_priority=1)
    picky = FakeConsumer(queue, selector=Only(b"b"), credit=1)
    bench.publish("q", b"b1", b"a1", b"a2", b"b2", ttl_ms=60_000)
    queue.push(message(body=b"a3", priority=1))  # not looked at yet
    assert queue.purge() == 4
    assert (queue.ready, queue.ready_bytes, waiting(queue)) == (0, 0, "")
    picky.pause()
    picky.release(picky.held[0])
    assert (waiting(queue), queue.purge()) == ("b1", 1)
    low = queue.lanes[0]
    assert isinstance(low, SearchedLane)
    assert not low
    assert not any(cursor.returned for cursor in low.cursors)
    bench.publish("q", b"a4", b"b3")
    picky.resume()
    bench.settle()
    assert (picky.bodies(), waiting(queue)) == ("b1 b3", "a4")


def test_when_the_last_picky_consumer_leaves_everything_is_where_it_was(bench: CoreBench) -> None:
    queue = work_queue(bench, x_max_priority=1)
    picky = FakeConsumer(queue, selector=Only(b"b"), credit=2)
    bench.publish("q", b"a1", b"b1", b"a2", b"b2", b"b3")
    bench.publish("q", b"c1", priority=1)
    picky.pause()
    picky.release(picky.held[0])
    picky.leave()
    assert queue.search is None
    assert waiting(queue) == "c1 a1 b1 a2 b3"
    plain = FakeConsumer(queue)
    bench.publish("q", b"d")
    picky.release(picky.held[0])
    bench.settle()
    assert plain.bodies() == "c1 a1 b1 a2 b3 d b2"


def test_s077_a_deleted_queue_tells_them_and_forgets_the_search(bench: CoreBench, queue: Queue) -> None:
    picky = FakeConsumer(queue, selector=Only(b""))
    bench.publish("q", *[b"x"] * (TESTS + 1))
    assert bench.broker.timers.next_at() is not None
    bench.host.delete_queue(queue)
    assert (picky.ended, picky.attached, bench.broker.timers.next_at()) == (1, False, None)


class Clumsy(FakeConsumer):
    """Fails on the first delivery."""

    def deliver(self, deliveries: list[Delivery]) -> None:
        if not self.got:
            self.got += deliveries
            raise RuntimeError("a mistake of ours")
        super().deliver(deliveries)


def test_a_consumer_that_raises_keeps_nobody_else_from_his_place(bench: CoreBench, queue: Queue) -> None:
    picky, unhappy = FakeConsumer(queue, selector=Only(b"b")), Clumsy(queue)
    with pytest.raises(RuntimeError):
        bench.publish("q", b"a")
    bench.publish("q", b"b1", b"b2")
    assert (picky.bodies(), unhappy.bodies()) == ("b2", "a b1")

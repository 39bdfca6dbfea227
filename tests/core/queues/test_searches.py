"""What it costs to look for what consumers want: once for each message, nothing when idle, a portion at a time.

What they get: test_filters.py."""

from __future__ import annotations

from collections import Counter

from leveret.message import Facts, Message
from leveret.queues.discarded_messages import PAUSE_S
from leveret.queues.queue import Queue
from leveret.queues.search import TEST_OCTETS, TESTS
from leveret.queues.searched_lane import GAPS, SearchedLane
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import FakeConsumer, Only, letters, waiting
from tests.harness.bench import ENCODING, CoreBench, message
from tests.harness.call_count import calls


def test_a_message_is_tested_once_however_long_the_queue_and_however_often_it_is_served(bench: CoreBench):
    queue = bench.queue()
    wants = Only(b"b")
    picky = FakeConsumer(queue, selector=wants, credit=1)
    bench.publish("q", *(b"x%d" % n for n in range(TESTS - 100)))
    for n in range(40):
        bench.publish("q", b"a%d" % n, b"b%d" % n)
        picky.accept_all()
        bench.settle()
    assert (len(picky.got), queue.ready) == (40, TESTS - 60)
    assert max(wants.looks.values()) == 1


def served_behind(backlog: int) -> Counter[str]:
    """The calls that ten messages cost, of which it wants five, when so many wait that it does not want."""
    bench = CoreBench()
    FakeConsumer(bench.queue(), selector=Only(b"b"), credit=1000)
    for _ in range(backlog // 100):
        bench.publish("q", *[b"x"] * 100)
        bench.advance(PAUSE_S)
    return calls(lambda: bench.publish("q", *[b"a", b"b"] * 5))


def test_an_arrival_costs_the_same_behind_100_and_100_000_messages_that_nobody_wants() -> None:
    assert served_behind(100) == served_behind(100_000)


def test_who_has_no_credit_is_not_asked_what_he_wants(bench: CoreBench, queue: Queue) -> None:
    wants = Only(b"b")
    idle = [FakeConsumer(queue, credit=0, selector=wants) for _ in range(500)]
    able = FakeConsumer(queue, selector=Only(b"b"))
    bench.publish("q", b"b")
    looks = sum(consumer.looks for consumer in idle)
    bench.publish("q", *[b"b"] * 50)
    assert (len(able.got), wants.looks.total()) == (51, 0)
    assert sum(consumer.looks for consumer in idle) == looks


def test_a_queue_that_is_not_searched_any_more_costs_what_others_do() -> None:
    def cost(searched: bool) -> Counter[str]:
        bench = CoreBench()
        queue = bench.queue()
        bench.publish("q", b"a", b"b")
        if searched:
            picky = FakeConsumer(queue, selector=Only(b"x"))
            bench.settle()
            picky.leave()
        FakeConsumer(queue)
        return calls(lambda: bench.publish("q", *letters(20)))

    assert cost(searched=True) == cost(searched=False)


def test_places_that_messages_have_left_are_closed_up(bench: CoreBench, queue: Queue) -> None:
    assert isinstance(queue, WorkQueue)
    picky, slow = FakeConsumer(queue, selector=Only(b"b")), FakeConsumer(queue, selector=Only(b"x"), credit=1)
    bench.publish("q", b"a", b"x")
    slow.pause()
    slow.release(slow.held[0])
    for n in range(300):
        bench.publish("q", b"b%d" % n, *([b"x2"] if n == 250 else []))
        picky.release(picky.held[0])
        bench.advance(PAUSE_S)
        picky.accept_all()
    lane = queue.lanes[0]
    assert isinstance(lane, SearchedLane)
    assert waiting(queue) == "a x x2"
    assert sum(len(part.slots) for part in lane.parts()) <= GAPS + 2
    assert all(len(cursor.returned) <= GAPS + 2 for cursor in lane.cursors)
    slow.resume()
    bench.settle()
    slow.accept_all()
    bench.settle()
    assert slow.bodies() == "x x x2"


# A long search.


def test_a_long_search_is_done_in_portions_and_others_have_their_turn(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *[b"a"] * (2 * TESTS), b"b1")
    wants = Only(b"b")
    picky = FakeConsumer(queue, selector=wants)
    bench.settle()
    assert (wants.looks.total(), picky.searching, picky.bodies()) == (TESTS, True, "")
    plain = FakeConsumer(queue, credit=3)
    bench.publish("q", b"b2")  # time has not moved on: no more is tested in this batch
    assert (wants.looks.total(), plain.bodies()) == (TESTS, "a a a")
    bench.advance(PAUSE_S)
    assert (picky.searching, picky.bodies()) == (True, "")
    bench.advance(PAUSE_S)
    assert (picky.searching, picky.bodies(), wants.looks.total()) == (False, "b1 b2", 2 * TESTS + 2)
    assert bench.broker.timers.next_at() is None


def test_s086_who_is_still_searching_takes_nothing_at_once(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *[b"a"] * (2 * TESTS))
    picky = FakeConsumer(queue, selector=Only(b"b"))
    bench.settle()
    assert picky.searching
    assert not queue.can_deliver_now(message(body=b"b"))
    bench.advance(PAUSE_S)
    bench.advance(PAUSE_S)
    assert not picky.searching
    assert queue.can_deliver_now(message(body=b"b"))


def test_a_search_that_ends_with_its_portion_has_come_to_the_end(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *[b"a"] * TESTS)
    picky = FakeConsumer(queue, selector=Only(b"b"))
    bench.settle()
    assert not picky.searching


def test_what_is_found_is_given_before_the_search_goes_on(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"b1", b"b2", *[b"a"] * (2 * TESTS))
    picky = FakeConsumer(queue, selector=Only(b"b"))
    bench.settle()
    assert (picky.bodies(), picky.searching) == ("b1 b2", True)


def test_a_search_ends_with_the_queues_messages(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *[b"a"] * (2 * TESTS))
    picky = FakeConsumer(queue, selector=Only(b"b"))
    bench.settle()
    queue.purge()
    bench.advance(PAUSE_S)
    assert not picky.searching


def test_a_search_without_credit_is_not_gone_on_with(bench: CoreBench, queue: Queue) -> None:
    wants = Only(b"b")
    bench.publish("q", b"b1", *[b"a"] * (2 * TESTS), b"b2")
    picky = FakeConsumer(queue, selector=wants, credit=1)
    bench.settle()
    assert (wants.looks.total(), picky.searching, bench.broker.timers.next_at()) == (1, False, None)


def test_several_searches_take_turns(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *[b"a"] * (3 * TESTS), b"b", b"c")
    selectors = [Only(b"b"), Only(b"c")]
    consumers = [FakeConsumer(queue, selector=wants) for wants in selectors]
    bench.settle()
    bench.advance(PAUSE_S)
    assert [wants.looks.total() for wants in selectors] == [TESTS, TESTS]
    for _ in range(6):
        bench.advance(PAUSE_S)
    assert [consumer.bodies() for consumer in consumers] == ["b", "c"]


def test_messages_with_many_properties_take_more_of_a_portion(bench: CoreBench, queue: Queue) -> None:
    wants = Only(b"b")
    FakeConsumer(queue, selector=wants)
    for _ in range(TESTS):
        queue.push(Message(ENCODING, "", "q", bytes(3 * TEST_OCTETS), b"a", Facts()))
    bench.settle()
    assert wants.looks.total() == TESTS // 4

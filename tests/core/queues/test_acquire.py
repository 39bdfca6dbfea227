"""What was shown to somebody who browses becomes his, if it still waits: in memory, on disk, and out of order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.delivery import Delivery
from leveret.queues.queue import Queue
from tests.core.fakes import FakeConsumer, fetched, letters, waiting
from tests.durable.paged import PagedBench, paged_out, pages_of
from tests.harness.bench import CoreBench
from tests.harness.call_count import calls


def browser(queue: Queue) -> FakeConsumer:
    found = FakeConsumer(queue, browses=True)
    queue.virtual_host.broker.settle()
    return found


def acquired(queue: Queue, position: int) -> Delivery:
    delivery = queue.acquire(position)
    assert delivery is not None
    return delivery


def test_it_is_taken_and_has_to_be_answered(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *letters(4))
    taken = acquired(queue, browser(queue).got[2].position)
    assert (taken.message.body, taken.consumer) == (b"c", None)
    assert (queue.ready, queue.ready_bytes, queue.unsettled, waiting(queue)) == (3, 3, 1, "a b d")
    queue.accept(taken)
    assert (queue.unsettled, queue.accepted) == (0, 1)


def test_a_second_time_it_waits_no_more(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *letters(2))
    browser(queue)
    fetched(queue, settled=True)
    assert queue.acquire(0) is None
    acquired(queue, 1)
    assert queue.acquire(1) is None
    assert queue.acquire(99) is None
    assert (queue.ready, queue.unsettled) == (0, 1)


def test_what_has_come_back_can_be_acquired(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *letters(3))
    taken = fetched(queue, settled=False)
    browser(queue)
    queue.release(taken)
    assert acquired(queue, 0) is taken
    assert waiting(queue) == "b c"


def test_what_has_expired_dies_instead(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a")
    bench.publish("q", b"b", ttl_ms=1000)
    browser(queue)
    bench.advance(2)
    assert queue.acquire(1) is None
    assert (waiting(queue), queue.expiring, queue.unsettled) == ("a", 0, 0)


def test_it_is_found_when_nobody_browses_any_more(bench: CoreBench) -> None:
    queue = bench.queue(x_max_priority=2)
    bench.publish("q", b"a", b"b", b"c")
    bench.publish("q", b"d", priority=1)
    browser(queue).leave()
    taken = acquired(queue, 1)
    assert waiting(queue) == "d a c"
    assert acquired(queue, 3).message.body == b"d"
    queue.release(taken)
    assert acquired(queue, 1) is taken


def test_a_message_given_back_is_marked_only_if_it_is_said_so(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", b"a")
    browser(queue)
    queue.release(taken := acquired(queue, 0), failed=False, redelivered=False)
    assert not taken.redelivered
    queue.release(acquired(queue, 0), failed=False)
    assert taken.redelivered
    queue.release(acquired(queue, 0), failed=False, redelivered=False)
    assert taken.redelivered


def test_others_get_what_was_not_acquired_and_browsers_go_on(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *letters(5))
    looks = FakeConsumer(queue, credit=2, browses=True)
    bench.settle()
    acquired(queue, 1)
    acquired(queue, 2)  # not seen yet by who browses
    looks.grant(9)
    takes = FakeConsumer(queue)
    bench.settle()
    assert looks.bodies() == "a b d e"
    assert takes.bodies() == "a d e"


def test_a_row_of_them_costs_each_the_same(bench: CoreBench, queue: Queue) -> None:
    bench.publish("q", *([b"x"] * 4000))
    browser(queue)

    def row(begin: int) -> int:
        return sum(calls(lambda: [acquired(queue, each) for each in range(begin, begin + 20)]).values())

    row(1900)  # the first of them is looked for
    assert row(1920) == row(1940) < 20 * 12


@pytest.mark.usefixtures("small")
def test_what_is_on_disk_is_read_and_the_rest_of_it_stays(bench: CoreBench) -> None:
    bench = PagedBench()
    queue = bench.queue()
    bench.put(*letters(10))
    looks = FakeConsumer(queue, browses=True, credit=10)
    bench.settle()
    assert len(looks.got) == 10
    paged_out(queue)
    assert [acquired(queue, each).message.body for each in (4, 5, 9, 0)] == [b"e", b"f", b"j", b"a"]
    assert queue.acquire(5) is None
    assert (waiting(queue), queue.ready, queue.unsettled) == ("b c d g h i", 6, 4)
    looks.leave()
    assert waiting(queue) == "b c d g h i"
    assert queue.backlog is not None
    assert queue.backlog.messages == sum(len(page) for page in pages_of(queue))


@pytest.mark.usefixtures("small")
@given(
    st.lists(st.tuples(st.sampled_from("aaarpob"), st.integers(0, 14)), max_size=20), st.sampled_from([0, 2])
)
def test_in_any_order_each_message_is_acquired_once(steps: list[tuple[str, int]], priority: int) -> None:
    """a: acquire, r: release, p: put on disk, o: one more arrives, b: browse, or no more."""
    bench = PagedBench()
    queue = bench.queue(**({"x_max_priority": priority} if priority else {}))
    for number, body in enumerate(letters(12)):
        bench.put(body, priority=number % 3 if priority else 0)
    left = {number: body.decode() for number, body in enumerate(letters(12))}
    held: dict[int, Delivery] = {}
    looks: list[FakeConsumer] = []
    for step, number in steps:
        if step == "a":
            delivery = queue.acquire(number)
            expected = left.pop(number, None)
            if delivery is None:
                assert expected is None or not looks  # what is on disk, and nobody browses, is not looked for
                if expected is not None:
                    left[number] = expected
            else:
                assert delivery.message.body.decode() == expected
                held[number] = delivery
        elif step == "r" and held:
            position = sorted(held)[number % len(held)]
            queue.release(held[position])
            left[position] = held.pop(position).message.body.decode()
        elif step == "p":
            paged_out(queue, number % 3)
        elif step == "o":
            left[queue.position] = "z"
            bench.put(b"z")
        elif step == "b":
            if looks:
                looks.pop().leave()
            else:
                looks.append(FakeConsumer(queue, browses=True))
        bench.read_all()
        assert queue.ready == len(left)
        assert queue.ready_bytes == sum(map(len, left.values()))
        assert {each.position: each.message.body.decode() for each in queue.waiting()} == left
        assert queue.unsettled == len(held)

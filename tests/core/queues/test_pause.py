"""A paused queue: its consumers get nothing, everything else goes on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker import TAKEN
from leveret.exchanges.explain import explain
from leveret.queues.queue import Queue
from leveret.values import Value
from tests.core.fakes import FakeConsumer, Only, waiting
from tests.harness.bench import CoreBench, message, spelled

KINDS: list[dict[str, Value]] = [
    {},
    {"x_max_priority": 3},
    {"x_queue_type": "quorum"},
    {"x_single_active_consumer": True},
    {"x_message_group_key": "k"},
]


def pause(bench: CoreBench, queue: Queue, paused: bool = True) -> None:
    queue.virtual_host.pause_queue(queue, paused)
    bench.settle()


@pytest.mark.parametrize("arguments", KINDS)
def test_consumers_get_nothing_until_the_queue_goes_on(bench: CoreBench, arguments: dict[str, Value]) -> None:
    queue = bench.host.declare_queue("k", durable=True, arguments=spelled(arguments))
    consumer = FakeConsumer(queue)
    pause(bench, queue)
    bench.publish("k", b"a", b"b")
    bench.settle()
    assert (consumer.bodies(), queue.ready) == ("", 2)
    pause(bench, queue, False)
    assert consumer.bodies() == "a b"
    bench.publish("k", b"c")
    bench.settle()
    assert consumer.bodies() == "a b c"


def test_what_a_consumer_holds_it_may_answer_and_what_comes_back_waits(
    bench: CoreBench, queue: Queue
) -> None:
    consumer = FakeConsumer(queue, credit=2)
    bench.publish("q", b"a", b"b", b"c")
    bench.settle()
    pause(bench, queue)
    consumer.release(consumer.held[1])
    consumer.accept(consumer.held[0])
    bench.settle()
    assert (consumer.bodies(), waiting(queue), queue.unsettled) == ("a b", "b c", 0)
    pause(bench, queue, False)
    assert consumer.bodies() == "a b b c"


def test_consumers_may_come_and_go_meanwhile(bench: CoreBench, queue: Queue) -> None:
    pause(bench, queue)
    bench.publish("q", b"a")
    early, late = FakeConsumer(queue), FakeConsumer(queue)
    early.leave()
    bench.settle()
    pause(bench, queue, False)
    assert (early.bodies(), late.bodies()) == ("", "a")


def test_selectors_and_browsers_wait_as_well(bench: CoreBench, queue: Queue) -> None:
    chooser = FakeConsumer(queue, selector=Only(b"a"))
    browser = FakeConsumer(queue, credit=10, browses=True)
    pause(bench, queue)
    bench.publish("q", b"a", b"b")
    bench.settle()
    assert (chooser.bodies(), browser.bodies()) == ("", "")
    assert not queue.seeks_for(chooser)
    pause(bench, queue, False)
    assert (chooser.bodies(), browser.bodies()) == ("a", "a b")


def test_limits_and_times_to_live_are_kept(bench: CoreBench) -> None:
    queue = bench.queue("k", x_max_length=2, x_message_ttl=5000)
    FakeConsumer(queue)
    pause(bench, queue)
    bench.publish("k", b"a", b"b", b"c")
    bench.settle()
    assert waiting(queue) == "b c"
    bench.advance(6)
    assert waiting(queue) == ""


def test_an_immediate_message_cannot_be_delivered_now(bench: CoreBench, queue: Queue) -> None:
    FakeConsumer(queue)
    pause(bench, queue)
    publish = bench.broker.publish_immediate
    assert publish(bench.host.default_exchange, message("q", b"a")) is not TAKEN
    pause(bench, queue, False)
    assert publish(bench.host.default_exchange, message("q", b"a")) is TAKEN


def test_the_readers_of_a_stream_wait_where_they_are(bench: CoreBench) -> None:
    queue = bench.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    reader = FakeConsumer(queue, credit=100, arguments={"x-stream-offset": "first"})
    bench.publish("s", b"a")
    bench.settle()
    pause(bench, queue)
    bench.publish("s", b"b", b"c")
    bench.settle()
    assert reader.bodies() == "a"
    pause(bench, queue, False)
    assert reader.bodies() == "a b c"


def test_an_explanation_names_queues_that_are_paused(bench: CoreBench, queue: Queue) -> None:
    pause(bench, queue)
    assert (explain(bench.host, "", "q").queues, explain(bench.host, "", "q").paused) == (("q",), ("q",))
    pause(bench, queue, False)
    assert explain(bench.host, "", "q").paused == ()


def test_pausing_twice_is_pausing_once(bench: CoreBench, queue: Queue) -> None:
    for paused in (True, True, False, False):
        pause(bench, queue, paused)
    counts = bench.broker.events.counts
    assert (counts["queue.paused"], counts["queue.resumed"]) == (1, 1)


STEPS = st.lists(st.sampled_from(["publish", "pause", "resume", "accept", "release", "leave"]), max_size=60)


@given(STEPS)
def test_whatever_happens_nothing_is_delivered_while_paused_and_nothing_is_lost(steps: list[str]) -> None:
    bench = CoreBench()
    queue = bench.queue()
    consumer = FakeConsumer(queue, credit=3)
    published = accepted = 0
    for step in steps:
        before, was_paused = len(consumer.got), queue.paused
        if step == "publish":
            bench.publish("q", b"%d" % published)
            published += 1
        elif step in ("pause", "resume"):
            queue.virtual_host.pause_queue(queue, step == "pause")
        elif step == "leave":
            consumer.leave()
            held = consumer.held
            consumer = FakeConsumer(queue, credit=3)
            before = 0
            for delivery in held:
                queue.release(delivery)
        elif consumer.held:
            if step == "accept":
                consumer.accept(consumer.held[0])
                accepted += 1
            else:
                consumer.release(consumer.held[0])
        bench.settle()
        if queue.paused and was_paused:
            assert len(consumer.got) == before
        assert queue.ready + queue.unsettled + accepted == published
    queue.virtual_host.pause_queue(queue, False)
    for _ in range(published + 1):
        bench.settle()
        accepted += len(consumer.held)
        consumer.accept_all()
    assert accepted == published

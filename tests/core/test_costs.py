"""What things cost, in calls and looks, which are the same on every machine: more of what is idle costs nothing."""

from __future__ import annotations

import gc
import tracemalloc
from collections import Counter

import pytest

from leveret.clock import Timers
from leveret.delivery import Delivery
from leveret.exchanges.exchange_type import Exchange
from leveret.queues.lane import Lane
from leveret.queues.queue import Queue
from tests.core.fakes import FakeConsumer
from tests.harness.bench import CoreBench, message
from tests.harness.call_count import calls
from tests.harness.plain import plain_only

MESSAGES = 50


def test_a_message_does_not_look_at_consumers_without_credit(bench: CoreBench, queue: Queue) -> None:
    idle = [FakeConsumer(queue, credit=0) for _ in range(9_999)]
    able = FakeConsumer(queue)
    bench.publish("q", b"a")  # each is looked at once, and steps out
    before = sum(consumer.looks for consumer in idle)
    for _ in range(MESSAGES):
        bench.publish("q", b"a")
    assert sum(consumer.looks for consumer in idle) == before <= len(idle)
    assert len(able.got) == MESSAGES + 1


def publishes(exchange: Exchange, keys: list[str]) -> Counter[str]:
    """The calls that publishing to each of the keys takes, once before and once after the routes are known."""
    broker = exchange.virtual_host.broker
    messages = [message(key) for key in keys]

    def publish_twice() -> None:
        for each in messages * 2:
            broker.publish(exchange, each)
        broker.settle()

    return calls(publish_twice)


def to_queues(count: int) -> Counter[str]:
    bench = CoreBench()
    for n in range(count):
        bench.queue(f"q{n}")
    bench.settle()
    return publishes(bench.host.default_exchange, ["q0"] * MESSAGES)


def test_a_message_costs_the_same_with_1_and_10_000_queues() -> None:
    assert to_queues(1) == to_queues(10_000)


def through_bindings(kind: str, count: int) -> Counter[str]:
    """`count` bindings from one exchange to ten queues; a tenth of those of a topic exchange are patterns."""
    bench = CoreBench()
    exchange = bench.host.declare_exchange("x", kind)
    queues = [bench.queue(f"q{n}") for n in range(10)]
    keys = [f"region{n % 100}.device{n}.reading" for n in range(count)]
    for n, key in enumerate(keys):
        pattern = key.replace("reading", "*") if kind == "topic" and n % 10 == 0 else key
        bench.host.bind(exchange, queues[n % 10], pattern)
    bench.settle()
    return publishes(exchange, keys[:10])


@pytest.mark.parametrize("kind", ["direct", "topic"])
def test_a_message_costs_the_same_with_10_and_100_000_bindings(kind: str) -> None:
    assert through_bindings(kind, 10) == through_bindings(kind, 100_000)


def of_a_run(count: int) -> Counter[str]:
    """The calls that a run of so many messages takes, from its publishing to its acceptance."""
    bench = CoreBench()
    queue = bench.queue()
    consumer = FakeConsumer(queue)
    bench.publish("q", b"a")  # now the way is known
    consumer.accept_all()
    run = [message("q", b"a") for _ in range(count)]

    def pass_through() -> None:
        assert bench.broker.publish_run(bench.host.default_exchange, run) == count
        bench.broker.settle()
        queue.accept_run(consumer.held)

    return calls(pass_through)


@plain_only
def test_a_message_of_a_run_costs_its_place_and_no_call_more() -> None:
    few, many = of_a_run(10), of_a_run(10 + MESSAGES)
    own = {"FakeConsumer.deliver.<locals>.<listcomp>", "FakeConsumer.deliver.<locals>.<genexpr>"}
    more = {name: many[name] - few[name] for name in many if many[name] != few[name] and name not in own}
    assert more == {"Delivery.__init__": MESSAGES}


def test_a_queue_in_which_nothing_waits_takes_less_than_1_kib(bench: CoreBench) -> None:
    names = [f"queue-{n}" for n in range(1_000)]
    gc.collect()
    tracemalloc.start()
    try:
        for name in names:
            bench.host.declare_queue(name)
        octets, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert octets / len(names) < 1024


@plain_only
def test_settling_looks_at_touched_queues_only(bench: CoreBench) -> None:
    for n in range(1_000):
        FakeConsumer(bench.queue(f"q{n}"))
    bench.settle()
    assert calls(lambda: bench.publish("q7", b"a"))["WorkQueue.dispatch"] == 1


@plain_only
def test_messages_to_a_full_queue_are_settled_once(bench: CoreBench) -> None:
    FakeConsumer(bench.queue(x_max_length=1), credit=1)
    bench.publish("q", b"a", b"b")
    assert calls(lambda: bench.publish("q", *[b"c"] * MESSAGES))["WorkQueue.dispatch"] == MESSAGES + 1


def test_the_memory_of_cancelled_timers_is_bounded() -> None:
    timers = Timers()
    for n in range(10_000):
        timers.cancel(timers.at(1_000.0 + n, lambda now: None))
    assert len(timers._heap) < 200
    kept = [timers.at(n, lambda now: None) for n in range(1_000)]
    for n in range(10_000):
        timers.cancel(timers.at(1_000.0 + n, lambda now: None))
    assert len(timers._heap) <= 2 * len(kept) + 200


def test_what_comes_back_finds_its_place_in_logarithmic_time() -> None:
    queue = CoreBench().queue()
    lane = Lane()
    for position in range(0, 20_000, 2):
        lane.put_back(Delivery(message(), queue, position, 0.0))
    for back in (19_999, 9_999, 1):
        returns = calls(lambda back=back: lane.put_back(Delivery(message(), queue, back, 0.0)))  # type: ignore[misc]
        assert returns["Delivery.__lt__"] <= 15
        assert calls(lane.take)["Delivery.__lt__"] <= 30

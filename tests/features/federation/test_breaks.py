"""Links that break at any moment: nothing that was published upstream is missing afterwards."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from .region import Regions, bodies, consumer_of

STEPS = st.lists(st.sampled_from(["publish", "cut", "carry", "wait"]), min_size=3, max_size=15)


def walk(side: Regions, exchange: str, key: str, steps: list[str]) -> list[bytes]:
    """Publish upstream and break the connection as the steps say; return what was published."""
    network, published = side.both.network, list[bytes]()
    for step in steps:
        if step == "publish":
            for _ in range(3):
                published.append(b"%d" % len(published))
                message = side.message(exchange, key, published[-1])
                side.up.broker.publish(side.up.exchanges[exchange], message)
            side.up.broker.settle()
        elif step == "cut":
            for line in list(network.lines):
                network.cut(line)
        elif step == "carry":
            side.run(0.004)
        else:
            side.run(1.0)
    for _ in range(4):
        side.run(40)  # in steps that are shorter than a heartbeat
    return published


@given(STEPS)
@settings(max_examples=15, deadline=None)
def test_an_exchange_gets_everything_over_any_breaks(steps: list[str]) -> None:
    side = Regions()
    exchange = side.host.declare_exchange("f", "topic", durable=True)
    side.host.bind(exchange, side.host.declare_queue("q", durable=True), "a.#")
    side.upstream(reconnect_delay=0.5, prefetch_count=2)
    side.federate()
    published = walk(side, "f", "a.b", steps)
    assert set(bodies(side.host.queues["q"])) == set(published)
    (queue,) = (each for name, each in side.up.queues.items() if name.startswith("federation: "))
    assert (queue.ready, queue.unsettled) == (0, 0)


@given(STEPS)
@settings(max_examples=15, deadline=None)
def test_a_consumer_gets_everything_of_the_other_queue_over_any_breaks(steps: list[str]) -> None:
    side = Regions()
    queue = side.host.declare_queue("f", durable=True)
    there = side.up.declare_queue("f", durable=True)
    side.upstream(reconnect_delay=0.5, prefetch_count=2)
    side.federate()
    consumer = consumer_of(queue)
    side.run()
    published = walk(side, "", "f", steps)
    assert {delivery.message.body for delivery in consumer.got} == set(published)
    assert (there.ready, there.unsettled) == (0, 0)

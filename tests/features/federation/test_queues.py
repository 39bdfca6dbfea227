"""Federated queues: they get messages of the upstream queue while they are empty and have consumers that want some."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.features.federation.demand import QueueDemand

from .region import Downstream, Region, Regions, bodies, consumer_of

SIDES = pytest.mark.parametrize("make", [Region, Regions], ids=["local", "remote"])
Make = Callable[[], Downstream]


def federated(side: Downstream) -> Downstream:
    side.host.declare_queue("f", durable=True)
    side.up.declare_queue("f", durable=True)
    side.upstream(prefetch_count=2)
    side.federate()
    return side


@SIDES
def test_messages_stay_upstream_until_a_consumer_here_wants_them(make: Make) -> None:
    side = federated(make())
    side.publish(side.up, "", "f", b"1", b"2", b"3")
    assert bodies(side.up.queues["f"]) == [b"1", b"2", b"3"]
    assert side.link.state == "running"
    consumer = consumer_of(side.host.queues["f"])
    side.run()
    assert [delivery.message.body for delivery in consumer.got] == [b"1", b"2", b"3"]
    assert bodies(side.up.queues["f"]) == []


@SIDES
def test_a_queue_with_messages_of_its_own_asks_for_none(make: Make) -> None:
    side = federated(make())
    side.publish(side.host, "", "f", b"here")
    side.publish(side.up, "", "f", b"there")
    consumer = consumer_of(side.host.queues["f"], credit=1)
    side.run()
    assert [delivery.message.body for delivery in consumer.got] == [b"here"]
    assert bodies(side.up.queues["f"]) == [b"there"]
    consumer.credit += 1
    consumer.wake()
    side.run()
    assert [delivery.message.body for delivery in consumer.got] == [b"here", b"there"]


@SIDES
def test_when_the_consumer_leaves_the_rest_stays_upstream(make: Make) -> None:
    side = federated(make())
    consumer = consumer_of(side.host.queues["f"])
    side.run()
    side.publish(side.up, "", "f", b"1")
    side.host.queues["f"].remove_consumer(consumer)
    side.run()
    assert list(side.up.queues["f"].consumers) == []
    side.publish(side.up, "", "f", b"2")
    assert [delivery.message.body for delivery in consumer.got] == [b"1"]
    assert bodies(side.up.queues["f"]) == [b"2"]


@SIDES
def test_consumers_upstream_come_first_and_those_of_links_are_not_counted(make: Make) -> None:
    side = federated(make())
    consumer_of(side.host.queues["f"], priority=-1)
    side.run()
    assert list(side.up.queues["f"].consumers) == []
    consumer_of(side.host.queues["f"])
    side.run()
    (link,) = side.up.queues["f"].consumers
    assert link.priority == -1
    near = consumer_of(side.up.queues["f"])
    side.publish(side.up, "", "f", b"1")
    assert [delivery.message.body for delivery in near.got] == [b"1"]


@SIDES
def test_a_message_tells_where_it_was_published_and_does_not_obey_its_cc_again(make: Make) -> None:
    side = federated(make())
    other = side.host.declare_queue("other")
    consumer = consumer_of(side.host.queues["f"])
    side.run()
    side.publish(side.up, "amq.fanout", "k", b"not bound")
    side.publish(side.up, "", "f", b"1", CC=["other"])
    (delivery,) = consumer.got
    headers = delivery.message.headers
    assert (headers["x-original-exchange"], headers["x-original-routing-key"]) == ("", "f")
    (record,) = headers["x-received-from"]  # type: ignore[misc]
    assert (record["queue"], record["redelivered"], record["visit-count"]) == ("f", False, 1)
    assert list(headers["x-original-cc"]) == ["other"]  # type: ignore[arg-type]
    assert other.ready == 0


@SIDES
def test_a_queue_that_is_missing_upstream_is_declared_like_the_one_here(make: Make) -> None:
    side = make()
    side.host.declare_queue("f", durable=True, arguments={"x-max-length": 5})
    side.upstream(queue="g")
    side.federate()
    there = side.up.queues["g"]
    assert (there.durable, there.arguments) == (True, {"x-max-length": 5})


def test_what_links_have_upstream_exclusive_queues_and_streams_have_no_links() -> None:
    side = Region()
    side.host.declare_queue("f1", arguments={"x-internal-purpose": "federation"})
    side.host.declare_queue("f2", durable=True, arguments={"x-queue-type": "stream"})
    queue = side.host.declare_queue("f3")
    side.upstream()
    side.federate()
    assert [link.name for link in side.federation] == ["f3"]
    side.host.delete_queue(queue)
    side.run()
    assert list(side.federation) == []


def test_a_link_that_another_has_replaced_is_not_kept() -> None:
    side = federated(Region())
    before = side.link
    side.upstream(prefetch_count=3)
    demand = side.host.queues["f"].demand
    assert isinstance(demand, QueueDemand)
    assert list(demand.links) == [side.link] != [before]


def test_a_queue_that_is_not_federated_has_no_observer_and_no_link() -> None:
    side = Region()
    queue = side.host.declare_queue("plain")
    side.upstream()
    side.federate()
    assert queue.demand is None
    side.host.declare_queue("f")
    side.run()
    assert side.host.queues["f"].demand is not None
    side.stop_federating()
    assert side.host.queues["f"].demand is None

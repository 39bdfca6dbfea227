"""Whose turn it is (§5 of the acceptance list): priorities, fairness, the single active consumer."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.amqp091.peer import channel_of, with_queue
from tests.harness.bench import ClientBench

from .peer import ClientChannel

SINGLE = {"x-single-active-consumer": True}


def publish(channel: ClientChannel, body: str, priority: int | None = None, settle: bool = True) -> None:
    channel.publish("", "q", body.encode(), BasicProperties(priority=priority), settle=settle)


def fill(channel: ClientChannel, count: int) -> None:
    for number in range(count):
        publish(channel, str(number), settle=False)
    channel.peer.bench.settle()


def bodies(channel: ClientChannel) -> list[str]:
    return [delivery.body.decode() for delivery in channel.deliveries()]


def by_consumer(channel: ClientChannel) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for delivery in channel.deliveries():
        found.setdefault(delivery.method.consumer_tag, []).append(delivery.body.decode())
    return found


def priority_queue(most: int = 10) -> ClientChannel:
    return with_queue(arguments={"x-max-priority": most})


# Messages.


def test_s114_higher_priorities_first_and_in_order_of_arrival_within_one() -> None:
    channel = priority_queue()
    for body, priority in (("a", 1), ("b", 5), ("c", None), ("d", 1), ("e", 9), ("f", 5), ("g", 0)):
        publish(channel, body, priority)
    assert b"".join(channel.bodies("q")) == b"ebfadcg"


def test_s114_priorities_above_the_maximum_are_the_maximum() -> None:
    channel = priority_queue(3)
    for body, priority in (("a", 3), ("b", 200), ("c", 4), ("d", 2), ("e", 255)):
        publish(channel, body, priority)
    assert b"".join(channel.bodies("q")) == b"abced"
    publish(channel, "kept", 200)
    content = channel.get("q")
    assert content is not None
    assert content.properties.priority == 200


@pytest.mark.parametrize("arguments", [{}, {"x-max-priority": 0}])
def test_s114_without_a_maximum_priorities_mean_nothing(arguments: dict[str, int]) -> None:
    channel = with_queue(arguments=arguments)
    for body, priority in (("a", 1), ("b", 9), ("c", 5)):
        publish(channel, body, priority)
    assert b"".join(channel.bodies("q")) == b"abc"


def test_s114_a_requeued_message_keeps_its_place_among_its_priority() -> None:
    channel = priority_queue()
    for body, priority in (("a", 5), ("b", 5), ("c", 1)):
        publish(channel, body, priority)
    channel.get("q", no_ack=False)
    publish(channel, "d", 5)
    publish(channel, "e", 7)
    channel.nack(1)
    assert b"".join(channel.bodies("q")) == b"eabdc"


def test_s114_consumers_are_served_by_priority_as_their_credit_comes_back() -> None:
    channel = priority_queue()
    channel.prefetch(1)
    channel.consume("q")
    publish(channel, "first", 0)
    for body, priority in (("low", 1), ("high", 8), ("middle", 4)):
        publish(channel, body, priority)
    seen = []
    while deliveries := channel.deliveries():
        seen += [d.body.decode() for d in deliveries]
        channel.ack(deliveries[-1].method.delivery_tag)
    assert seen == ["first", "high", "middle", "low"]


def test_a_full_priority_queue_drops_the_oldest_of_the_lowest() -> None:
    channel = with_queue(arguments={"x-max-priority": 5, "x-max-length": 3})
    for body, priority in (("a", 1), ("b", 5), ("c", 1), ("d", 3), ("e", 5)):
        publish(channel, body, priority)
    assert b"".join(channel.bodies("q")) == b"bed"


# Consumers.


def test_s115_consumers_of_higher_priority_with_credit_get_everything() -> None:
    channel = with_queue()
    channel.prefetch(2)
    channel.consume("q", "low")
    channel.consume("q", "high", arguments={"x-priority": 10})
    channel.consume("q", "lowest", arguments={"x-priority": -5})
    fill(channel, 5)
    assert by_consumer(channel) == {"high": ["0", "1"], "low": ["2", "3"], "lowest": ["4"]}
    channel.ack(1)  # the first of `high`
    fill(channel, 1)
    assert by_consumer(channel) == {"high": ["0"]}


def test_s115_equals_take_turns_below_those_without_credit() -> None:
    channel = with_queue()
    channel.prefetch(1)
    channel.consume("q", "high", arguments={"x-priority": 1})
    channel.prefetch(0)
    channel.consume("q", "a")
    channel.consume("q", "b")
    fill(channel, 5)
    assert by_consumer(channel) == {"high": ["0"], "a": ["1", "3"], "b": ["2", "4"]}


def test_s115_message_and_consumer_priorities_work_together() -> None:
    channel = priority_queue()
    for body, priority in (("low", 1), ("high", 9), ("middle", 5)):
        publish(channel, body, priority)
    channel.prefetch(1)
    channel.consume("q", "first")
    channel.consume("q", "preferred", arguments={"x-priority": 1})
    assert by_consumer(channel) == {"first": ["high"], "preferred": ["middle"]}
    channel.ack(1)
    channel.ack(2)
    assert by_consumer(channel) == {"first": ["low"]}


def test_s115_a_priority_that_is_no_number_is_refused() -> None:
    channel = with_queue()
    method = m.BasicConsume("q", arguments={"x-priority": "high"})
    assert channel.closed_with(method).startswith("406 PRECONDITION_FAILED - invalid arg 'x-priority'")


@pytest.mark.parametrize("batch", [1, 3, 12])
def test_consumers_take_turns(batch: int) -> None:
    channel = with_queue()
    for tag in "abc":
        channel.consume("q", tag)
    for _ in range(0, 12, batch):
        fill(channel, batch)
    assert {tag: len(found) for tag, found in by_consumer(channel).items()} == {"a": 4, "b": 4, "c": 4}


def test_consumers_of_several_connections_take_turns() -> None:
    bench = ClientBench()
    channels = [channel_of(bench) for _ in range(4)]
    channels[0].declare("q")
    for channel in channels:
        channel.prefetch(2)
        channel.consume("q")
    fill(channels[0], 8)
    assert [bodies(channel) for channel in channels] == [[str(n), str(n + 4)] for n in range(4)]


def test_consumers_that_share_a_prefetch_take_turns_also_over_several_queues() -> None:
    channel = channel_of()
    channel.does(m.BasicQos(0, 1, True))
    for name in "pq":
        channel.declare(name)
        for number in range(3):
            channel.publish("", name, str(number).encode())
    for tag, name in (("1", "p"), ("2", "p"), ("3", "q")):
        channel.consume(name, tag)
    served = []
    for _ in range(6):
        (delivery,) = channel.deliveries()
        served.append(delivery.method.consumer_tag)
        channel.ack(delivery.method.delivery_tag)
    assert served == ["1", "2", "3", "1", "3", "3"]


def test_a_slow_consumer_does_not_hold_up_a_fast_one() -> None:
    bench = ClientBench()
    slow, fast = channel_of(bench), channel_of(bench)
    slow.declare("q")
    for channel in (slow, fast):
        channel.prefetch(1)
        channel.consume("q")
    fill(slow, 10)
    seen = 0
    while deliveries := fast.deliveries():
        seen += len(deliveries)
        fast.ack(deliveries[-1].method.delivery_tag)
    assert (seen, len(slow.deliveries())) == (9, 1)


# A paused channel, and a full outbox.


def test_a_paused_channel_gets_no_deliveries_and_others_do() -> None:
    channel = with_queue()
    channel.consume("q", "a")
    assert channel.does(m.ChannelFlow(False)) == m.ChannelFlowOk(False)
    fill(channel, 2)
    assert channel.all() == []
    content = channel.get("q")  # fetching is not concerned
    assert content is not None
    assert content.body == b"0"
    other = channel.peer.channel(2)
    other.consume("q", "b")
    assert bodies(other) == ["1"]
    fill(channel, 3)
    assert bodies(other) == ["0", "1", "2"]
    other.does(m.BasicCancel("b"))
    fill(channel, 1)
    assert channel.does(m.ChannelFlow(True)) == m.ChannelFlowOk(True)
    assert bodies(channel) == ["0"]


def test_a_client_that_does_not_read_is_passed_over_until_it_does() -> None:
    bench = ClientBench("[limits]\noutbox_size_max = 10000")
    idle, reading = channel_of(bench), channel_of(bench)
    idle.declare("q")
    idle.consume("q")
    for _ in range(10):
        reading.publish("", "q", b"x" * 5000)
    assert bench.queue("q").ready > 0
    reading.consume("q")
    read = len(reading.deliveries())
    assert bench.queue("q").ready == 0
    assert read > 0
    assert read + len(idle.deliveries()) == 10
    reading.publish("", "q", b"again")
    reading.publish("", "q", b"again")
    assert [len(reading.deliveries()), len(idle.deliveries())] == [1, 1]


# One consumer at a time.


def single_active() -> tuple[ClientChannel, list[ClientChannel]]:
    bench = ClientBench()
    channel = with_queue(bench, arguments=SINGLE)
    return channel, [channel_of(bench) for _ in range(4)]


def test_s083_one_consumer_gets_everything_and_the_first_of_the_highest_priority_follows() -> None:
    channel, (first, second, third, fourth) = single_active()
    for at, (consumer, priority) in enumerate(((first, 0), (second, 1), (third, 5), (fourth, 5))):
        consumer.consume("q", str(at), arguments={"x-priority": priority})
    fill(channel, 2)
    assert bodies(first) == ["0", "1"]  # it came first, whatever the priorities of those who wait
    first.does(m.BasicCancel("0"))
    fill(channel, 2)
    assert bodies(third) == ["0", "1"]
    third.peer.drop()
    assert bodies(fourth) == ["0", "1"]  # again, since nobody has answered
    fourth.does(m.ChannelClose())
    assert bodies(second) == ["0", "1"]
    assert [bodies(each) for each in (first,)] == [[]]


def test_s083_the_active_one_without_credit_is_waited_for() -> None:
    channel, (first, second, *_) = single_active()
    first.prefetch(1)
    first.consume("q", "first")
    second.consume("q", "second")
    fill(channel, 3)
    assert (bodies(first), bodies(second)) == (["0"], [])
    first.ack(1)
    assert (bodies(first), bodies(second)) == (["1"], [])
    first.does(m.BasicCancel("first"))
    assert bodies(second) == ["2"]
    first.nack(2)
    assert bodies(second) == ["1"]


def test_s083_the_order_is_kept_over_a_hand_over() -> None:
    channel, (first, second, *_) = single_active()
    first.prefetch(3)
    first.consume("q", "first")
    second.consume("q", "second")
    fill(channel, 6)
    assert bodies(first) == ["0", "1", "2"]
    first.ack(2)
    first.peer.drop()
    assert bodies(second) == ["0", "2", "3", "4", "5"]


def test_s083_fetching_is_not_possible() -> None:
    channel, _ = single_active()
    assert channel.closed_with(m.BasicGet("q")) == (
        "405 RESOURCE_LOCKED - cannot obtain access to locked queue 'q' in vhost '/'. basic.get operations are "
        "not supported by classic queues with single active consumer"
    )

"""Consuming and fetching (§5 of the acceptance list): who gets what, in which order, and how many at a time."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from tests.amqp091.peer import channel_of
from tests.harness.bench import ClientBench

from .numbered import fill, filled, numbers, tags, taken
from .peer import CAPABILITIES, ClientChannel

# Starting and stopping.


def test_s096_a_consumer_tag_is_used_once_on_a_channel() -> None:
    channel = filled(0)
    channel.consume("q", "t")
    channel.send(m.BasicConsume("q", "t"))
    assert channel.peer.refusal() == "530 NOT_ALLOWED - attempt to reuse consumer tag 't'"


def test_s096_it_may_be_used_on_another_channel_and_again_after_its_end() -> None:
    channel = filled(0)
    assert channel.consume("q", "t") == "t"
    assert channel.peer.channel(2).consume("q", "t") == "t"
    channel.does(m.BasicCancel("t"))
    assert channel.consume("q", "t") == "t"


def test_s097_an_empty_tag_gets_a_name_of_its_own() -> None:
    channel = filled(0)
    first, second = channel.consume("q"), channel.consume("q")
    assert first.startswith("amq.ctag-")
    assert second.startswith("amq.ctag-")
    assert first != second


@pytest.mark.parametrize("method", [m.BasicConsume("q"), m.BasicGet("q")])
def test_s098_a_missing_queue_is_not_found(method: m.Method) -> None:
    assert channel_of().closed_with(method) == "404 NOT_FOUND - no queue 'q' in vhost '/'"


@pytest.mark.parametrize("method", [m.BasicConsume("q"), m.BasicGet("q")])
def test_s098_taking_needs_read_on_the_queue(method: m.Method) -> None:
    bench = ClientBench()
    filled(0, bench)
    channel = channel_of(bench, bench.user("u", read="^other$"))
    text = "403 ACCESS_REFUSED - read access to queue 'q' in vhost '/' refused for user 'u'"
    assert channel.closed_with(method) == text


IN_USE = "403 ACCESS_REFUSED - queue 'q' in vhost '/' in exclusive use"


def test_s099_an_exclusive_consumer_wants_the_queue_for_itself() -> None:
    channel = filled(0)
    channel.consume("q")
    assert channel.peer.channel(2).closed_with(m.BasicConsume("q", exclusive=True)) == IN_USE


def test_s099_and_has_it_for_itself_as_long_as_it_is_there() -> None:
    channel = filled(0)
    channel.consume("q", "t", exclusive=True)
    other = channel_of(channel.peer.bench)
    assert other.refused(m.BasicConsume("q")) == IN_USE
    assert other.get("q") is None  # fetching is no consumer
    channel.does(m.BasicCancel("t"))
    assert other.consume("q", "u") == "u"


def test_s100_cancelling_an_unknown_tag_is_fine() -> None:
    channel = channel_of()
    assert channel.does(m.BasicCancel("unknown")) == m.BasicCancelOk("unknown")
    channel.send(m.BasicCancel("unknown", no_wait=True))
    assert channel.all() == []


def test_s100_deliveries_may_come_before_cancel_ok_and_none_after() -> None:
    channel = filled(0)
    channel.consume("q", "t", no_ack=True)
    channel.publish("", "q", b"1", settle=False)
    channel.send(m.BasicCancel("t"), settle=False)
    channel.publish("", "q", b"2")
    delivered, cancelled = channel.all()
    assert delivered.body == b"1"
    assert cancelled == m.BasicCancelOk("t")
    assert channel.bodies("q") == [b"2"]


def test_s100_what_is_unanswered_at_the_cancel_stays_with_the_channel() -> None:
    channel = filled(2)
    channel.consume("q", "t")
    assert tags(channel.deliveries()) == [1, 2]
    channel.does(m.BasicCancel("t"))
    channel.ack(1)
    channel.reject(2, requeue=True)
    assert channel.bodies("q") == [b"1"]


def test_consume_without_wait_is_not_answered() -> None:
    channel = filled(1)
    channel.send(m.BasicConsume("q", "t", no_wait=True))
    assert taken(channel) == [0]


def test_s116_the_broker_cancels_without_waiting_for_an_answer() -> None:
    channel = filled(0)
    channel.consume("q", "t")
    channel.peer.channel(2).does(m.QueueDelete("q"))
    assert channel.all() == [m.BasicCancel("t", True)]


def test_s116_an_answer_does_no_harm() -> None:
    channel = filled(0)
    channel.consume("q", "t")
    channel.peer.channel(2).does(m.QueueDelete("q"))
    channel.all()
    channel.send(m.BasicCancelOk("t"))
    assert channel.declare("r").queue == "r"


def test_s116_and_only_tells_those_who_want_to_know() -> None:
    channel = channel_of(capabilities={**CAPABILITIES, "consumer_cancel_notify": False})
    channel.declare("q")
    channel.consume("q", "t")
    channel.peer.channel(2).does(m.QueueDelete("q"))
    assert channel.all() == []


def test_x025_the_consumers_of_a_channel_may_be_limited() -> None:
    channel = filled(0, ClientBench("[limits]\nconsumers_per_channel_max = 2"))
    channel.consume("q")
    channel.consume("q", "second")
    channel.does(m.BasicCancel("second"))
    channel.consume("q")
    assert channel.peer.channel(2).consume("q")
    text = "530 NOT_ALLOWED - reached maximum (2) of consumers per channel"
    assert channel.peer.closed_with(1, m.BasicConsume("q")) == text


# How many at a time.


def test_s101_prefetch_is_counted_in_messages_only() -> None:
    channel = channel_of()
    text = "540 NOT_IMPLEMENTED - prefetch_size!=0 (100)"
    assert channel.peer.closed_with(1, m.BasicQos(100, 1)) == text


def test_s102_prefetch_holds_for_consumers_started_later() -> None:
    channel = filled(20)
    channel.prefetch(3)
    channel.consume("q", "three")
    assert taken(channel) == [0, 1, 2]
    channel.prefetch(2)
    assert taken(channel) == []
    channel.consume("q", "two")
    assert taken(channel) == [3, 4]
    channel.ack(0, multiple=True)
    assert sorted(taken(channel)) == [5, 6, 7, 8, 9]  # three and two again


def test_s102_zero_is_no_limit() -> None:
    channel = filled(10)
    channel.prefetch(1)
    channel.prefetch(0)
    channel.consume("q")
    assert taken(channel) == list(range(10))


def test_s103_global_prefetch_is_shared_by_the_channels_consumers() -> None:
    channel = filled(5)
    channel.declare("r")
    fill(channel, range(10, 15), "r")
    channel.prefetch(3, of_channel=True)
    channel.consume("q", "a")
    channel.consume("r", "b")
    first = channel.deliveries()
    assert numbers(first) == [0, 1, 2]
    channel.ack(1)
    assert numbers(channel.deliveries()) == [10]  # to the consumer that had nothing yet
    channel.peer.channel(2).consume("r", "c")
    assert taken(ClientChannel(channel.peer, 2)) == [11, 12, 13, 14]  # another channel is not concerned
    channel.ack(0, multiple=True)
    assert taken(channel) == [3, 4]


def test_s103_credit_of_one_consumer_can_go_to_another() -> None:
    channel = filled(1)
    channel.declare("r")
    fill(channel, range(10, 12), "r")
    channel.prefetch(1, of_channel=True)
    channel.consume("q", "a")
    channel.consume("r", "b")
    assert taken(channel) == [0]
    channel.ack(1)
    assert taken(channel) == [10]
    channel.nack(2, requeue=False)
    assert taken(channel) == [11]


def test_s103_global_prefetch_can_be_changed_while_messages_are_out() -> None:
    channel = filled(10)
    channel.consume("q", "a", arguments={})
    assert taken(channel) == list(range(10))
    fill(channel, range(10, 20))
    assert taken(channel) == list(range(10, 20))
    channel.prefetch(5, of_channel=True)
    fill(channel, range(20, 30))
    assert taken(channel) == []
    channel.ack(15, multiple=True)
    assert taken(channel) == []  # five are out still
    channel.ack(16)
    assert taken(channel) == [20]
    channel.prefetch(7, of_channel=True)
    assert taken(channel) == [21, 22]
    channel.prefetch(0, of_channel=True)
    assert taken(channel) == list(range(23, 30))


def test_s103_both_limits_hold_together() -> None:
    channel = filled(10)
    channel.prefetch(4)
    channel.prefetch(6, of_channel=True)
    channel.consume("q", "a")
    assert len(channel.deliveries()) == 4
    channel.consume("q", "b")
    assert len(channel.deliveries()) == 2


def test_s103_a_consumer_that_does_not_answer_uses_none_of_the_prefetch_and_waits_while_it_is_used_up() -> (
    None
):
    channel = filled(4)
    channel.declare("r")
    fill(channel, range(10, 15), "r")
    channel.prefetch(1)
    channel.prefetch(2, of_channel=True)
    channel.consume("r", "c", no_ack=True)
    assert taken(channel) == [10, 11, 12, 13, 14]
    channel.consume("q", "a")
    channel.consume("q", "b")
    assert taken(channel) == [0, 1]
    fill(channel, range(15, 18), "r")
    assert taken(channel) == []
    channel.ack(6)
    assert taken(channel) == [15, 16, 17, 2]  # the one that was served longest ago comes first
    fill(channel, range(18, 20), "r")
    assert taken(channel) == []
    channel.does(m.BasicCancel("a"))
    channel.does(m.BasicCancel("b"))
    assert taken(channel) == []  # the client has the messages still
    channel.ack(0, multiple=True)
    assert taken(channel) == [18, 19]


@pytest.mark.parametrize("lift", [0, 3])
def test_s103_a_consumer_that_does_not_answer_goes_on_when_the_prefetch_is_raised(lift: int) -> None:
    channel = filled(2)
    channel.declare("r")
    channel.prefetch(2, of_channel=True)
    channel.consume("q", "a")
    channel.consume("r", "c", no_ack=True)
    assert taken(channel) == [0, 1]
    fill(channel, range(10, 12), "r")
    assert taken(channel) == []
    channel.prefetch(lift, of_channel=True)
    assert taken(channel) == [10, 11]


def test_s103_next_to_consumers_of_one_queue_that_answer_it_gets_its_turn_only() -> None:
    channel = filled(0)
    channel.prefetch(2, of_channel=True)
    channel.consume("q", "a")
    channel.consume("q", "c", no_ack=True)
    fill(channel, range(8))
    assert taken(channel) == [0, 1, 2]  # a, c, a


def test_s103_direct_replies_do_not_wait_for_the_prefetch() -> None:
    channel = filled(1)
    channel.prefetch(1, of_channel=True)
    channel.consume("q", "a")
    channel.consume("amq.rabbitmq.reply-to", "replies", no_ack=True)
    assert taken(channel) == [0]
    waiting = channel.peer.front.channels[1].reply_consumer
    assert waiting is not None
    fill(channel, range(10, 12), waiting.queue.name)
    assert taken(channel) == [10, 11]


def test_s103_the_prefetch_that_kombu_means_for_its_channel_is_not_for_consumers_that_do_not_answer() -> None:
    channel = filled(1)
    channel.peer.front.wire.client_properties["product"] = "py-amqp"
    channel.declare("r")
    channel.prefetch(1)
    channel.consume("q", "a")
    channel.consume("r", "c", no_ack=True)
    assert taken(channel) == [0]
    fill(channel, range(10, 12), "r")
    assert taken(channel) == [10, 11]


def test_s103_what_is_answered_in_a_transaction_counts_until_commit() -> None:
    channel = filled(5)
    channel.does(m.TxSelect())
    channel.prefetch(2, of_channel=True)
    channel.consume("q")
    assert taken(channel) == [0, 1]
    channel.ack(1)
    channel.prefetch(2, of_channel=True)
    assert taken(channel) == []
    channel.does(m.TxCommit())
    assert taken(channel) == [2]


def test_s103_in_the_rabbitmq_4_profile_global_is_for_each_consumer() -> None:
    channel = filled(10, ClientBench('[compat]\nprofile = "rabbitmq-4"'), exclusive=True)
    channel.prefetch(2, of_channel=True)
    channel.consume("q", "a")
    channel.consume("q", "b")
    assert taken(channel) == [0, 1, 2, 3]


def test_x027_a_quorum_queue_has_no_prefetch_of_a_channel() -> None:
    channel = filled(0, durable=True, arguments={"x-queue-type": "quorum"})
    channel.prefetch(2, of_channel=True)
    text = "540 NOT_IMPLEMENTED - queue 'q' in vhost '/' does not support global qos"
    assert channel.peer.closed_with(1, m.BasicConsume("q")) == text


def test_x027_it_can_be_consumed_once_the_limit_is_off() -> None:
    channel = filled(1, durable=True, arguments={"x-queue-type": "quorum"})
    channel.prefetch(2, of_channel=True)
    channel.prefetch(0, of_channel=True)
    channel.prefetch(2)
    channel.consume("q")
    assert taken(channel) == [0]


def test_s104_no_consumer_has_more_than_its_prefetch() -> None:
    channel = filled(50)
    channel.prefetch(4)
    channel.consume("q", "a")
    channel.consume("q", "b")
    out: dict[str, list[int]] = {"a": [], "b": []}
    seen = 0
    while deliveries := channel.deliveries():
        for delivery in deliveries:
            out[delivery.method.consumer_tag].append(delivery.method.delivery_tag)
        seen += len(deliveries)
        assert max(map(len, out.values())) <= 4
        fullest = max(out.values(), key=len)
        channel.ack(fullest.pop(0))
    assert seen == 50

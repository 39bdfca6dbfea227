"""Consuming and fetching (semantics.md §5): who gets what, in which order, and how many at a time."""

from __future__ import annotations

import pytest

from protocols.amqp091 import methods as m
from protocols.amqp091.wire import BasicProperties

from .peer import CAPABILITIES, ClientChannel, Content, Peer, World

PERSISTENT = BasicProperties(delivery_mode=2)


def filled(count: int, world: World | None = None, queue: str = "q", **properties: object) -> ClientChannel:
    """A channel, and a queue with the messages 0, 1, 2, ..."""
    channel = (world or World()).channel()
    channel.declare(queue, **properties)
    fill(channel, range(count), queue)
    return channel


def fill(channel: ClientChannel, numbers: range, queue: str = "q") -> None:
    for number in numbers:
        channel.publish("", queue, str(number).encode())


def numbers(deliveries: list[Content]) -> list[int]:
    return [int(delivery.body) for delivery in deliveries]


def taken(channel: ClientChannel) -> list[int]:
    """The numbers delivered since the last look."""
    return numbers(channel.deliveries())


def tags(deliveries: list[Content]) -> list[int]:
    return [delivery.method.delivery_tag for delivery in deliveries]


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
    assert World().channel().closed_with(method) == "404 NOT_FOUND - no queue 'q' in vhost '/'"


@pytest.mark.parametrize("method", [m.BasicConsume("q"), m.BasicGet("q")])
def test_s098_taking_needs_read_on_the_queue(method: m.Method) -> None:
    world = World()
    filled(0, world)
    channel = world.channel(world.user("u", read="^other$"))
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
    other = channel.peer.world.channel()
    assert other.refused(m.BasicConsume("q")) == IN_USE
    assert other.get("q") is None  # fetching is no consumer
    channel.does(m.BasicCancel("t"))
    assert other.consume("q", "u") == "u"


def test_s100_cancelling_an_unknown_tag_is_fine() -> None:
    channel = World().channel()
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


def test_s116_and_only_tells_those_who_want_to_know() -> None:
    channel = World().channel(capabilities={**CAPABILITIES, "consumer_cancel_notify": False})
    channel.declare("q")
    channel.consume("q", "t")
    channel.peer.channel(2).does(m.QueueDelete("q"))
    assert channel.all() == []


def test_x025_the_consumers_of_a_channel_may_be_limited() -> None:
    channel = filled(0, World("[limits]\nconsumers_per_channel_max = 2"))
    channel.consume("q")
    channel.consume("q", "second")
    channel.does(m.BasicCancel("second"))
    channel.consume("q")
    assert channel.peer.channel(2).consume("q")
    text = "530 NOT_ALLOWED - reached maximum (2) of consumers per channel"
    assert channel.peer.closed_with(1, m.BasicConsume("q")) == text


# How many at a time.


def test_s101_prefetch_is_counted_in_messages_only() -> None:
    channel = World().channel()
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
    assert len(channel.deliveries()) == 1
    channel.peer.channel(2).consume("r", "c")
    assert taken(ClientChannel(channel.peer, 2)) == [10, 11, 12, 13, 14]  # another channel is not concerned
    channel.ack(0, multiple=True)
    assert taken(channel) == [4]


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


def test_s103_prefetch_is_not_for_consumers_that_do_not_answer() -> None:
    channel = filled(3)
    channel.declare("r")
    fill(channel, range(10, 15), "r")
    channel.prefetch(1)
    channel.prefetch(2, of_channel=True)
    channel.consume("q", "a")
    channel.consume("q", "b")
    assert taken(channel) == [0, 1]
    channel.consume("r", "c", no_ack=True)
    assert taken(channel) == [10, 11, 12, 13, 14]


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
    channel = filled(10, World('[compat]\nprofile = "rabbitmq-4"'), exclusive=True)
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


# Delivery tags and answers.


def test_s105_delivery_tags_count_from_1_on_each_channel() -> None:
    channel = filled(6)
    channel.prefetch(2)
    channel.consume("q")
    other = channel.peer.channel(2)
    fetched = [other.get("q", no_ack) for no_ack in (True, False, True)]
    assert tags(channel.deliveries()) == [1, 2]
    assert tags([content for content in fetched if content]) == [1, 2, 3]
    channel.ack(1)
    assert tags(channel.deliveries()) == [3]


def test_s105_a_delivery_says_where_it_comes_from() -> None:
    channel = filled(0)
    channel.bind("q", "amq.topic", "#")
    channel.consume("q", "t")
    channel.publish("amq.topic", "a.b", b"x")
    [delivered] = channel.deliveries()
    assert delivered.method == m.BasicDeliver("t", 1, False, "amq.topic", "a.b")


ANSWERS = [m.BasicAck(7), m.BasicNack(7), m.BasicReject(7), m.BasicAck(7, True), m.BasicNack(7, True)]


@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize("method", ANSWERS)
def test_s106_an_unknown_delivery_tag_closes_the_channel(method: m.Method, transaction: bool) -> None:
    channel = filled(1)
    if transaction:
        channel.does(m.TxSelect())
    channel.consume("q")
    channel.deliveries()
    assert channel.closed_with(method) == "406 PRECONDITION_FAILED - unknown delivery tag 7"
    again = channel.peer.channel(1).get("q")
    assert again is not None
    assert again.method.redelivered


@pytest.mark.parametrize("transaction", [False, True])
@pytest.mark.parametrize("method", [m.BasicAck(1), m.BasicNack(1), m.BasicReject(1), m.BasicAck(1, True)])
def test_s106_a_tag_is_answered_once(method: m.Method, transaction: bool) -> None:
    channel = filled(1)
    if transaction:
        channel.does(m.TxSelect())
    channel.get("q", no_ack=False)
    channel.ack(1)
    assert channel.closed_with(method) == "406 PRECONDITION_FAILED - unknown delivery tag 1"


def test_s106_what_needs_no_answer_has_no_tag_to_answer() -> None:
    channel = filled(1)
    channel.get("q", no_ack=True)
    assert channel.closed_with(m.BasicAck(1)) == "406 PRECONDITION_FAILED - unknown delivery tag 1"


def test_s107_tag_0_with_multiple_is_everything_also_when_there_is_nothing() -> None:
    channel = filled(3)
    channel.ack(0, multiple=True)
    channel.consume("q")
    channel.deliveries()
    channel.ack(0, multiple=True)
    channel.nack(0, multiple=True)
    assert channel.all() == []
    assert (channel.peer.world.queue("q").unsettled, channel.peer.world.queue("q").ready) == (0, 0)


def test_s107_tag_0_without_multiple_is_no_tag() -> None:
    channel = filled(1)
    channel.get("q", no_ack=False)
    assert channel.closed_with(m.BasicAck(0)) == "406 PRECONDITION_FAILED - unknown delivery tag 0"


def test_s107_multiple_is_everything_up_to_the_tag() -> None:
    channel = filled(5)
    channel.consume("q", "t")
    channel.deliveries()
    channel.ack(2)
    channel.ack(4, multiple=True)
    assert channel.peer.world.queue("q").unsettled == 1
    channel.does(m.BasicCancel("t"))
    channel.nack(5)
    assert channel.bodies("q") == [b"4"]


@pytest.mark.parametrize("method", [m.BasicAck(1), m.BasicNack(1), m.BasicReject(1)])
def test_s108_a_tag_is_known_on_its_own_channel_only(method: m.Method) -> None:
    channel = filled(1)
    channel.get("q", no_ack=False)
    other = channel.peer.channel(2)
    assert other.closed_with(method) == "406 PRECONDITION_FAILED - unknown delivery tag 1"
    assert channel.peer.world.queue("q").unsettled == 1


@pytest.mark.parametrize("method", [m.BasicReject(1, True), m.BasicNack(1, False, True)])
def test_s109_requeued_it_is_first_again_and_marked_as_redelivered(method: m.Method) -> None:
    channel = filled(3)
    channel.get("q", no_ack=False)
    channel.send(method)
    found = [channel.get("q") for _ in range(3)]
    assert numbers([c for c in found if c]) == [0, 1, 2]
    assert [c.method.redelivered for c in found if c] == [True, False, False]


@pytest.mark.parametrize("method", [m.BasicReject(1, False), m.BasicNack(1, False, False)])
def test_s109_not_requeued_it_is_gone(method: m.Method) -> None:
    channel = filled(2)
    channel.get("q", no_ack=False)
    channel.send(method)
    assert channel.bodies("q") == [b"1"]


def requeue_one_by_one(channel: ClientChannel) -> None:
    for tag in (4, 1, 3, 2):
        channel.nack(tag)


def requeue_at_once(channel: ClientChannel) -> None:
    channel.nack(4, multiple=True)


def requeue_in_two_ways(channel: ClientChannel) -> None:
    channel.reject(3, requeue=True)
    channel.nack(2, multiple=True)
    channel.nack(4)


@pytest.mark.parametrize("requeue", [requeue_one_by_one, requeue_at_once, requeue_in_two_ways])
def test_s109_whatever_the_order_of_the_answers_the_order_of_the_queue_stays(requeue: object) -> None:
    channel = filled(8)
    for _ in range(4):
        channel.get("q", no_ack=False)
    requeue(channel)  # type: ignore[operator]
    fill(channel, range(8, 10))
    assert channel.bodies("q") == [str(number).encode() for number in range(10)]


def test_s109_requeued_between_new_and_waiting_ones_they_return_to_their_places() -> None:
    channel = filled(6)
    contents = [channel.get("q", no_ack=False) for _ in range(4)]
    channel.ack(2)
    channel.nack(3)
    fill(channel, range(6, 8))
    assert channel.bodies("q") == [b"2", b"4", b"5", b"6", b"7"]
    channel.nack(4)
    channel.nack(1)
    assert channel.bodies("q") == [b"0", b"3"]
    assert len(contents) == 4


def test_s109_a_requeued_message_may_come_back_to_the_same_consumer() -> None:
    channel = filled(1)
    channel.consume("q")
    channel.deliveries()
    channel.nack(1)
    [again] = channel.deliveries()
    assert (again.method.delivery_tag, again.method.redelivered) == (2, True)


def test_s109_a_consumer_with_no_credit_left_lets_it_go_to_another() -> None:
    channel = filled(2)
    channel.prefetch(1)
    channel.consume("q", "a")
    [first] = channel.deliveries()
    other = channel.peer.world.channel()
    other.consume("q", "b")
    assert taken(other) == [1]
    other.nack(1)
    [again] = other.deliveries()
    assert (first.body, again.body, again.method.redelivered) == (b"0", b"1", True)


def close_channel(channel: ClientChannel) -> None:
    channel.does(m.ChannelClose())


def close_connection(channel: ClientChannel) -> None:
    channel.peer.call(0, m.ConnectionClose())


def lose_connection(channel: ClientChannel) -> None:
    channel.peer.drop()


def fail(channel: ClientChannel) -> None:
    channel.closed_with(m.BasicAck(99))


@pytest.mark.parametrize("end", [close_channel, close_connection, lose_connection, fail])
def test_s110_the_end_of_a_channel_requeues_what_it_has_not_answered(end: object) -> None:
    channel = filled(5)
    channel.consume("q")
    channel.deliveries()
    channel.ack(2)
    end(channel)  # type: ignore[operator]
    other = channel.peer.world.channel()
    found = [other.get("q") for _ in range(4)]
    assert numbers([c for c in found if c]) == [0, 2, 3, 4]
    assert all(c and c.method.redelivered for c in found)


def test_s111_recover_requeues_everything_and_says_so() -> None:
    channel = filled(3)
    for _ in range(3):
        channel.get("q", no_ack=False)
    channel.ack(2)
    assert channel.call(m.BasicRecover(True)) == m.BasicRecoverOk()
    content = channel.get("q", no_ack=False)
    assert content is not None
    assert (content.method.redelivered, content.method.delivery_tag) == (True, 4)
    assert channel.bodies("q") == [b"2"]
    assert channel.closed_with(m.BasicAck(1)) == "406 PRECONDITION_FAILED - unknown delivery tag 1"


def test_s111_recover_async_does_the_same_without_a_word() -> None:
    channel = filled(2)
    channel.consume("q", "t")
    channel.deliveries()
    channel.send(m.BasicRecoverAsync(True))
    again = channel.deliveries()
    assert (numbers(again), tags(again)) == ([0, 1], [3, 4])
    assert all(delivery.method.redelivered for delivery in again)


@pytest.mark.parametrize("method", [m.BasicRecover(False), m.BasicRecoverAsync(False)])
def test_s111_recover_without_requeue_is_not_implemented(method: m.Method) -> None:
    peer = Peer(World()).open()
    peer.channel()
    assert peer.closed_with(1, method) == "540 NOT_IMPLEMENTED - requeue=false"


def test_s112_fetching_tells_how_many_are_left() -> None:
    channel = filled(3)
    counts = []
    while (content := channel.get("q", no_ack=False)) is not None:
        counts.append(content.method.message_count)
    assert counts == [2, 1, 0]
    assert channel.call(m.BasicGet("q")) == m.BasicGetEmpty()


@pytest.mark.parametrize("end", [lose_connection])
def test_s113_what_needs_no_answer_is_gone_when_it_is_sent(end: object) -> None:
    channel = filled(5)
    channel.get("q", no_ack=True)
    channel.consume("q", no_ack=True)
    queue = channel.peer.world.queue("q")
    assert (queue.ready, queue.unsettled, queue.accepted) == (0, 0, 5)
    end(channel)  # type: ignore[operator]
    assert channel.peer.world.channel().bodies("q") == []

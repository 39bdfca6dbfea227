"""Answers to deliveries (§5 of the acceptance list): tags, acks, requeueing, and the end of a channel."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from tests.amqp091.peer import channel_of

from .endings import Step, close_channel, close_connection, lose_connection
from .numbered import fill, filled, numbers, tags, taken
from .peer import ClientChannel, Peer


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


def test_s106_of_single_acks_that_come_together_those_before_an_unknown_tag_are_taken() -> None:
    channel = filled(4)
    channel.consume("q")
    channel.deliveries()
    acks = [wire.method_frame(1, m.BasicAck(tag).encode()) for tag in (2, 1, 7, 3)]
    channel.peer.send_bytes(b"".join(acks))
    assert channel.refusal() == "406 PRECONDITION_FAILED - unknown delivery tag 7"
    again = channel.peer.channel(1)
    again.consume("q")
    assert taken(again) == [2, 3]


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
    assert (channel.peer.bench.queue("q").unsettled, channel.peer.bench.queue("q").ready) == (0, 0)


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
    assert channel.peer.bench.queue("q").unsettled == 1
    channel.does(m.BasicCancel("t"))
    channel.nack(5)
    assert channel.bodies("q") == [b"4"]


@pytest.mark.parametrize("method", [m.BasicAck(1), m.BasicNack(1), m.BasicReject(1)])
def test_s108_a_tag_is_known_on_its_own_channel_only(method: m.Method) -> None:
    channel = filled(1)
    channel.get("q", no_ack=False)
    other = channel.peer.channel(2)
    assert other.closed_with(method) == "406 PRECONDITION_FAILED - unknown delivery tag 1"
    assert channel.peer.bench.queue("q").unsettled == 1


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
def test_s109_whatever_the_order_of_the_answers_the_order_of_the_queue_stays(requeue: Step) -> None:
    channel = filled(8)
    for _ in range(4):
        channel.get("q", no_ack=False)
    requeue(channel)
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
    other = channel_of(channel.peer.bench)
    other.consume("q", "b")
    assert taken(other) == [1]
    other.nack(1)
    [again] = other.deliveries()
    assert (first.body, again.body, again.method.redelivered) == (b"0", b"1", True)


def fail(channel: ClientChannel) -> None:
    channel.closed_with(m.BasicAck(99))


@pytest.mark.parametrize("end", [close_channel, close_connection, lose_connection, fail])
def test_s110_the_end_of_a_channel_requeues_what_it_has_not_answered(end: Step) -> None:
    channel = filled(5)
    channel.consume("q")
    channel.deliveries()
    channel.ack(2)
    end(channel)
    other = channel_of(channel.peer.bench)
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
    peer = Peer().open()
    peer.channel()
    assert peer.closed_with(1, method) == "540 NOT_IMPLEMENTED - requeue=false"


def test_s112_fetching_tells_how_many_are_left() -> None:
    channel = filled(3)
    counts = []
    while (content := channel.get("q", no_ack=False)) is not None:
        counts.append(content.method.message_count)
    assert counts == [2, 1, 0]
    assert channel.call(m.BasicGet("q")) == m.BasicGetEmpty()


def test_s113_what_needs_no_answer_is_gone_when_it_is_sent() -> None:
    channel = filled(5)
    channel.get("q", no_ack=True)
    channel.consume("q", no_ack=True)
    queue = channel.peer.bench.queue("q")
    assert (queue.ready, queue.unsettled, queue.accepted) == (0, 0, 5)
    lose_connection(channel)
    assert channel_of(channel.peer.bench).bodies("q") == []

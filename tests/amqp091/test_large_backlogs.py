"""Long backlogs settled in every way: each tag once, in order, and never more in an outbox than it has room for."""

from __future__ import annotations

import random

import pytest

from broker_core.work_queue import WorkQueue
from protocols.amqp091 import methods as m
from protocols.amqp091.wire import BasicProperties
from tests.amqp091.numbered import filled, numbers, tags
from tests.amqp091.peer import ClientChannel, Peer, World

MANY = 1500  # tags: more than are ever looked at one by one


def unsettled(channel: ClientChannel) -> list[int]:
    return list(channel.peer.front.channels[channel.number].unsettled)


@pytest.mark.parametrize("step", [1, 7, 400])
def test_a_backlog_is_acknowledged_in_steps_from_its_front(step: int) -> None:
    channel = filled(MANY)
    channel.consume("q")
    assert tags(channel.deliveries()) == list(range(1, MANY + 1))
    for tag in range(step, MANY, step):
        channel.ack(tag, multiple=True)
        assert unsettled(channel)[0] == tag + 1
    channel.ack(0, multiple=True)
    assert unsettled(channel) == []


def test_the_last_of_many_is_acknowledged_where_all_others_have_been() -> None:
    channel = filled(MANY)
    channel.consume("q")
    order = list(range(1, MANY))
    random.Random(1).shuffle(order)
    for tag in order:
        channel.ack(tag)
    assert unsettled(channel) == [MANY]
    channel.ack(MANY, multiple=True)
    assert unsettled(channel) == []


def test_tags_that_want_no_answer_lie_between_those_that_do() -> None:
    channel = filled(MANY)
    for number in range(MANY):
        channel.get("q", no_ack=number % 500 != 0)
    assert unsettled(channel) == [1, 501, 1001]
    channel.nack(501, multiple=True)
    assert unsettled(channel) == [1001]
    assert channel.closed_with(m.BasicAck(1, True)) == "406 PRECONDITION_FAILED - unknown delivery tag 1"


def test_what_a_rollback_brings_back_can_be_settled_up_to_a_tag() -> None:
    channel = filled(4)
    channel.does(m.TxSelect())
    channel.consume("q")
    assert len(channel.deliveries()) == 4
    for _ in range(2):
        channel.ack(3, multiple=True)
        assert unsettled(channel) == [4]
        channel.does(m.TxRollback())
        assert unsettled(channel) == [1, 2, 3, 4]
    channel.ack(0, multiple=True)
    channel.does(m.TxCommit())
    assert channel.peer.world.queue("q").unsettled == 0


def test_recover_brings_all_back_in_order_and_again() -> None:
    channel = filled(5)
    channel.consume("q")
    channel.deliveries()
    channel.ack(2)
    for _ in range(2):
        channel.send(m.BasicRecoverAsync(True))
        assert numbers(channel.deliveries()) == [0, 2, 3, 4]


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "stream"}])
def test_long_headers_count_against_the_room_in_an_outbox(arguments: dict[str, str]) -> None:
    """A queue of empty bodies with 100 KiB of headers each filled an outbox of 1 MiB with 1.6 GiB at once."""
    limit = 1 << 20
    world = World()
    publisher, consumer = world.channel(), world.channel()
    publisher.declare("q", durable=True, arguments=arguments)
    long = BasicProperties(headers={"h": "x" * 100_000})
    for _ in range(50):
        publisher.publish("", "q", b"", long)
    consumer.prefetch(1000)
    consumer.peer.read()
    consumer.send(m.BasicConsume("q", "t", arguments={"x-stream-offset": "first"}))
    assert limit <= consumer.peer.outbox.size < limit + 200_000
    assert len(consumer.all()) == 51  # consume-ok and, read bit by bit, everything


def test_the_heir_of_a_single_active_consumer_is_found_once_for_all_who_leave_together() -> None:
    world = World()
    leaving, staying = Peer(world).open(), world.channel()
    going = leaving.channel()
    going.declare("q", arguments={"x-single-active-consumer": True})
    for number in range(20):
        going.consume("q", f"goes {number}")
    staying.consume("q", "first heir")
    staying.consume("q", "second heir")
    going.consume("q", "goes too", arguments={"x-priority": 9})
    queue = world.queue("q")
    assert isinstance(queue, WorkQueue)
    leaving.drop()
    assert queue.active is not None
    assert queue.active.tag == "first heir"
    staying.publish("", "q", b"0")
    assert [content.method.consumer_tag for content in staying.deliveries()] == ["first heir"]


def test_who_comes_while_an_heir_is_sought_stands_behind_the_others() -> None:
    world = World()
    channel = world.channel()
    channel.declare("q", arguments={"x-single-active-consumer": True})
    for tag in ("active", "heir"):
        channel.consume("q", tag)
    channel.send(m.BasicCancel("active", True), settle=False)
    channel.send(m.BasicConsume("q", "newcomer", no_wait=True), settle=False)
    channel.publish("", "q", b"0")
    assert [content.method.consumer_tag for content in channel.deliveries()] == ["heir"]

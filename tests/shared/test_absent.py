"""Clients answer messages that are on disk only as they answer all others, in three protocols."""

from __future__ import annotations

import attrs
import pytest

from leveret.config.compat import RecoverToConsumer
from leveret.delivery import Delivery
from leveret.message import AbsentMessage
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from leveret.queues import absent
from leveret.queues.work_queue import WorkQueue
from tests.amqp010 import peer as peer010
from tests.amqp091.peer import ClientChannel, channel_of
from tests.amqp10 import peer as peer10
from tests.harness.bench import StoredBench

BODIES = [b"a", b"b", b"c", b"d"]


@pytest.fixture
def bench() -> StoredBench:
    """A bench with a store, and four messages in its queue."""
    bench = StoredBench()
    bench.host.declare_queue("q", durable=True)
    channel = channel_of(bench)
    for body in BODIES:
        channel.publish("", "q", body, BasicProperties(delivery_mode=2, headers={"h": body.decode()}))
    bench.settle()
    return bench


def put_away(bench: StoredBench) -> WorkQueue:
    """Have all that clients have not answered on disk only."""
    queue = bench.queue("q")
    assert isinstance(queue, WorkQueue)
    for consumer in queue.consumers:
        held = [each for each in consumer.unanswered().values() if isinstance(each, Delivery)]
        absent.put_away(queue, held)
        assert held
        assert all(isinstance(each.message, AbsentMessage) for each in held)
    bench.settle()
    return queue


def bodies(queue: WorkQueue) -> list[bytes]:
    return [each.message.body for each in queue.waiting()]


def consuming(bench: StoredBench) -> ClientChannel:
    channel = channel_of(bench)
    channel.consume("q")
    assert [each.body for each in channel.deliveries()] == BODIES
    return channel


def test_channels_that_close_give_them_back(bench: StoredBench) -> None:
    channel = consuming(bench)
    queue = put_away(bench)
    channel.call(m.ChannelClose(200, "", 0, 0))
    bench.settle()
    assert (bodies(queue), queue.unsettled) == (BODIES, 0)


def test_connections_that_are_lost_give_them_back_after_a_restart(bench: StoredBench) -> None:
    channel = consuming(bench)
    put_away(bench)
    channel.ack(1)
    channel.peer.drop()
    again = bench.again()
    assert [each.message.body for each in again.queue("q").waiting()] == BODIES[1:]


def test_basic_recover_sends_them_again(bench: StoredBench) -> None:
    bench.broker.compat = attrs.evolve(bench.broker.compat, recover_to_consumer=RecoverToConsumer.SERVE)
    channel = consuming(bench)
    put_away(bench)
    channel.send(m.BasicRecover(False))
    again = [each for each in channel.all() if not isinstance(each, m.BasicRecoverOk)]
    assert [(each.body, each.method.redelivered, each.properties.headers) for each in again] == [
        (body, True, {"h": body.decode()}) for body in BODIES
    ]


def test_basic_nack_and_reject_give_them_back(bench: StoredBench) -> None:
    channel = consuming(bench)
    channel.peer.bench.host.queues["q"].pause(True)
    queue = put_away(bench)
    channel.send(m.BasicNack(2, True, True))
    channel.send(m.BasicReject(3, True))
    bench.settle()
    assert bodies(queue) == BODIES[:3]


def test_a_transaction_answers_them_at_its_commit(bench: StoredBench) -> None:
    channel = channel_of(bench)
    channel.call(m.TxSelect())
    channel.consume("q")
    assert len(channel.deliveries()) == 4
    queue = put_away(bench)
    queue.pause(True)
    channel.ack(2, multiple=True)
    channel.send(m.BasicNack(3, False, True))
    assert queue.unsettled == 4
    channel.call(m.TxCommit())
    bench.settle()
    assert (bodies(queue), queue.unsettled) == ([b"c"], 1)


@pytest.mark.parametrize(
    "state",
    [p.Released(), p.Modified(delivery_failed=True), p.Modified(message_annotations={Symbol("x-a"): 1})],
)
def test_receivers_give_them_back(bench: StoredBench, state: p.DeliveryState) -> None:
    session = peer10.session_of(bench)
    receiver = session.receiver("/queues/q", credit=100)
    had = receiver.all()
    queue = put_away(bench)
    queue.pause(True)
    for delivery in had:
        receiver.answer(state, delivery)
    bench.settle()
    assert bodies(queue) == BODIES


def test_receivers_accept_them(bench: StoredBench) -> None:
    session = peer10.session_of(bench)
    receiver = session.receiver("/queues/q", credit=100)
    had = receiver.all()
    queue = put_away(bench)
    for delivery in had:
        receiver.accept(delivery)
    bench.settle()
    assert (queue.ready, queue.unsettled) == (0, 0)


def test_subscriptions_give_them_back_or_accept_them(bench: StoredBench) -> None:
    session = peer010.session_of(bench)
    had = session.subscribe("q").all()
    queue = put_away(bench)
    queue.pause(True)
    session.release(had[0].id)
    session.accept(had[1].id)
    session.sync()
    bench.settle()
    assert (bodies(queue), queue.unsettled) == ([b"a"], 2)

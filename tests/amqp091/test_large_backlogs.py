"""Long backlogs settled in every way: each tag once, in order, and never more in an outbox than it has room for."""

from __future__ import annotations

import random

import pytest

from leveret.broker import WORK_MAX
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.queues.work_queue import WorkQueue
from tests.amqp091.numbered import filled, numbers, tags
from tests.amqp091.peer import ClientChannel, Peer, channel_of, with_queue
from tests.harness.bench import ClientBench

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
    assert channel.peer.bench.queue("q").unsettled == 0


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
    bench = ClientBench()
    publisher, consumer = channel_of(bench), channel_of(bench)
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
    bench = ClientBench()
    leaving, staying = Peer(bench).open(), channel_of(bench)
    going = leaving.channel()
    going.declare("q", arguments={"x-single-active-consumer": True})
    for number in range(20):
        going.consume("q", f"goes {number}")
    staying.consume("q", "first heir")
    staying.consume("q", "second heir")
    going.consume("q", "goes too", arguments={"x-priority": 9})
    queue = bench.queue("q")
    assert isinstance(queue, WorkQueue)
    leaving.drop()
    assert queue.single is not None
    assert queue.single.active is not None
    assert queue.single.active.tag == "first heir"
    staying.publish("", "q", b"0")
    assert [content.method.consumer_tag for content in staying.deliveries()] == ["first heir"]


def test_who_comes_while_an_heir_is_sought_stands_behind_the_others() -> None:
    bench = ClientBench()
    channel = with_queue(bench, arguments={"x-single-active-consumer": True})
    for tag in ("active", "heir"):
        channel.consume("q", tag)
    channel.send(m.BasicCancel("active", True), settle=False)
    channel.send(m.BasicConsume("q", "newcomer", no_wait=True), settle=False)
    channel.publish("", "q", b"0")
    assert [content.method.consumer_tag for content in channel.deliveries()] == ["heir"]


SMALL_ANSWERS = "[limits]\noutbox_size_max = 4096\nmessage_size_max = 10000\n"


def test_small_requests_for_large_messages_wait_until_the_peer_has_read() -> None:
    """In one read fit 3000 times basic.get and basic.reject: 48 GiB of answers, of a single message of 16 MiB."""
    channel = filled(0, ClientBench(SMALL_ANSWERS))
    peer, times = channel.peer, 100
    channel.publish("", "q", b"x" * 10_000)
    data = b""
    for tag in range(1, times + 1):
        data += wire.method_frame(1, m.BasicGet("q").encode())
        data += wire.method_frame(1, m.BasicReject(tag, True).encode())
    data += wire.method_frame(1, m.QueuePurge("q").encode())
    peer.read()
    peer.send_bytes(data)
    assert peer.front.halted
    got = 0
    while peer.front.halted:
        assert peer.outbox.size < 4096 + 2 * 10_100
        got += len(channel.all())
        peer.send_bytes(b"")
    *last, purged = channel.all()
    assert got + len(last) == times
    assert purged == m.QueuePurgeOk(1)


def test_what_follows_a_halt_may_be_half_a_frame() -> None:
    channel = filled(
        2, ClientBench(SMALL_ANSWERS.replace("message_size_max = 10000", "message_size_max = 1")), "empty"
    )
    peer = channel.peer
    get = wire.method_frame(1, m.BasicGet("empty").encode())
    peer.outbox.limit = 0
    peer.send_bytes(get * 3 + get[:5])
    assert peer.front.halted
    while peer.front.halted:
        peer.read()
        peer.send_bytes(b"")
    peer.send_bytes(get[5:])
    assert len(channel.all()) == 4


def test_a_publisher_to_many_queues_lets_others_have_a_turn_before_it_goes_on() -> None:
    """In one read fit 2600 publishes; to 2000 queues those took 5.7 s, and nobody else was served."""
    channel = channel_of()
    peer, queues, times = channel.peer, 50, 60
    channel.exchange("x", "fanout")
    for number in range(queues):
        channel.declare(f"q{number}")
        channel.bind(f"q{number}", "x")
    out: list[bytes] = []
    wire.append_content(out, 1, m.BasicPublish("x", "").encode(), bytes(2), b"1", 131072)
    peer.front.receive(b"".join(out) * times, peer.bench.broker.tick())
    turns = 1
    while peer.front.halted:
        assert peer.bench.broker.work <= WORK_MAX + queues
        peer.front.receive(b"", peer.bench.broker.tick())
        turns += 1
    assert turns == 2
    assert peer.bench.queue("q0").ready == peer.bench.queue(f"q{queues - 1}").ready == times

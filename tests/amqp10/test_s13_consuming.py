"""Messages on their way to AMQP 1.0 receivers (§13 of the acceptance list), and what a delivery costs."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from leveret.message import Message
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import UInt
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties
from tests.amqp091.peer import channel_of
from tests.amqp10.client import SETTLED, Session
from tests.amqp10.consuming import QUEUE, filled, mourned, source, taken
from tests.amqp10.parts import data, frame
from tests.amqp10.peer import Peer, declare, declared, session_of, waiting
from tests.harness.bench import ClientBench
from tests.harness.call_count import calls

MESSAGES = 100


# Headers (S228).


def test_s228_a_message_without_header_is_transient_and_new() -> None:
    bench = declared(ClientBench(), ["q"])
    session = session_of(bench)
    session.sender(QUEUE).send(data(b"plain"))
    header = session.receiver(QUEUE, credit=1).get().header
    assert (header.durable, header.priority, header.ttl) == (False, None, None)
    assert (header.first_acquirer, header.delivery_count) == (True, None)


def test_s228_durable_priority_and_ttl_arrive_as_they_were_sent() -> None:
    bench = declared(ClientBench(), ["q"])
    session = session_of(bench)
    session.sender(QUEUE).send(p.Header(durable=True, priority=7, ttl=90_000), data(b"urgent"))
    header = session.receiver(QUEUE, credit=1).get().header
    assert (header.durable, header.priority, header.ttl) == (True, 7, 90_000)


def test_s228_what_a_publisher_claims_of_earlier_deliveries_is_not_believed() -> None:
    bench = declared(ClientBench(), ["q"])
    session = session_of(bench)
    session.sender(QUEUE).send(p.Header(first_acquirer=False, delivery_count=9), data(b"fresh"))
    header = session.receiver(QUEUE, credit=1).get().header
    assert (header.first_acquirer, header.delivery_count) == (True, None)


# From one protocol to the other.


def test_a_message_of_0_9_1_is_read_over_1_0() -> None:
    bench = declared(ClientBench(), ["q"])
    properties = BasicProperties(delivery_mode=2, message_id="id", headers={"colour": "red"})
    channel_of(bench).publish("", "q", b"hello", properties)
    delivery = session_of(bench).receiver(QUEUE, credit=1).get()
    assert delivery.body == b"hello"
    assert delivery.header.durable
    assert delivery.properties.message_id == "id"
    assert delivery.application_properties == {"colour": "red"}
    assert (delivery.annotations["x-exchange"], delivery.annotations["x-routing-key"]) == ("", "q")


def test_a_message_of_1_0_is_read_over_0_9_1() -> None:
    bench = declared(ClientBench(), ["q"])
    sender = session_of(bench).sender(QUEUE)
    sender.send(p.Header(durable=True), p.Properties(message_id="id"), data(b"hello"))
    content = channel_of(bench).get("q")
    assert content is not None
    assert (content.body, content.properties.delivery_mode, content.properties.message_id) == (
        b"hello",
        2,
        "id",
    )


def test_what_one_protocol_gives_back_the_other_gets() -> None:
    bench = filled(2)
    link = session_of(bench).receiver(QUEUE, credit=2)
    first, second = link.all()
    link.answer(p.Modified(delivery_failed=True), first)
    link.answer(p.Released(), second)
    channel = channel_of(bench)
    channel.consume("q")
    deliveries = channel.deliveries()
    assert [(delivery.body, delivery.method.redelivered) for delivery in deliveries] == [
        (b"0", True),
        (b"1", True),
    ]
    channel.nack(2, multiple=True)
    link.want(2)
    assert taken(link) == []  # whose turn it is: the other's
    channel.peer.drop()
    assert [(d.header.first_acquirer, d.header.delivery_count > 0) for d in link.all()] == [(False, True)] * 2


def test_a_dead_letter_of_one_protocol_is_read_over_the_other() -> None:
    bench = mourned(1)
    channel = channel_of(bench)
    channel.get("q", no_ack=False)
    channel.reject(1)
    delivery = session_of(bench).receiver("/queues/dead", credit=1).get()
    [death] = delivery.annotations["x-opt-deaths"].items
    assert (death["queue"], death["reason"]) == ("q", "rejected")


# Many frames.


def test_a_large_message_comes_in_as_many_frames_as_it_takes() -> None:
    bench = declared(ClientBench(), ["q"])
    body = bytes(range(256)) * 4000
    channel_of(bench).publish("", "q", body)
    session = Peer(bench).open(max_frame_size=4096).begin()
    link = session.receiver(QUEUE, credit=1)
    delivery = link.get()
    assert delivery.body == body
    transfers = session.peer.taken(p.Transfer)
    assert len(transfers) > 250
    link.accept(delivery)
    assert bench.queue("q").unsettled == 0


def test_a_large_message_waits_for_the_window_and_nobody_comes_between() -> None:
    bench = declared(ClientBench(), ["q"])
    declare(bench, "small")
    channel_of(bench).publish("", "q", bytes(100_000))
    channel_of(bench).publish("", "small", b"0")
    session = Peer(bench).open(max_frame_size=10_000).begin(incoming_window=3)
    large, small = session.receiver(QUEUE, credit=1), session.receiver("/queues/small", credit=1)
    assert (large.get(), small.get()) == (None, None)
    for _ in range(4):
        session.window = 3
        session.flow()
        session.peer.read()
    assert len(large.get().body) == 100_000
    assert small.get().body == b"0"


def test_a_large_message_that_was_not_sent_to_its_end_is_not_lost() -> None:
    bench = declared(ClientBench(), ["q"])
    channel_of(bench).publish("", "q", bytes(100_000))
    session = Peer(bench).open(max_frame_size=10_000).begin(incoming_window=3)
    link = session.receiver(QUEUE, credit=1)
    assert link.get() is None
    link.detach()
    queue = bench.queue("q")
    assert (queue.ready, queue.unsettled) == (1, 0)
    assert len(session_of(bench).receiver(QUEUE, credit=1).get().body) == 100_000


# What cannot be read.


class Unreadable(FakeEncoding):
    def read(self, properties: bytes) -> Properties:
        raise ValueError("not ours")


def put(bench: ClientBench, *messages: Message) -> None:
    for each in messages:
        bench.broker.publish(bench.host.default_exchange, each)
    bench.settle()


@pytest.mark.parametrize("mode", ["unsettled", "settled", "copy"])
def test_a_message_that_cannot_be_read_is_rejected_and_the_others_come(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    bench = mourned(1)
    put(bench, Message(Unreadable(Properties()), "", "q", b"", b"1"))
    channel_of(bench).publish("", "q", b"2")
    asked = source(distribution_mode="copy" if mode == "copy" else None)
    fields = {"snd_settle_mode": SETTLED} if mode == "settled" else {}
    link = session_of(bench).receiver(asked, credit=3, **fields)
    with caplog.at_level(logging.ERROR):
        bench.settle()
    assert taken(link) == [0, 2]
    assert "cannot deliver a message of queue 'q'" in caplog.text
    queue = bench.queue("q")
    if mode == "unsettled":
        assert waiting(bench, "dead") == [b"1"]
        assert (queue.ready, queue.unsettled) == (0, 2)
    elif mode == "settled":
        assert (queue.ready, queue.unsettled) == (0, 0)
    else:
        assert waiting(bench, "q") == [b"0", b"1", b"2"]
    put(bench, Message(Unreadable(Properties()), "", "q", b"", b"3"))
    channel_of(bench).publish("", "q", b"4")
    assert taken(link) == [4]  # the credit that the unreadable ones did not use


# What it costs.


def batch(session: Session) -> bytes:
    """As many small messages, settled, as octets."""
    transfers = []
    for _ in range(MESSAGES):
        transfer = p.Transfer(
            handle=0,
            delivery_id=session.next_delivery,
            delivery_tag=session.next_delivery.to_bytes(4),
            message_format=UInt(0),
            settled=True,
        )
        session.next_delivery += 1
        transfers.append(frame(session.channel, transfer, data(bytes(100))))
    return b"".join(transfers)


def test_a_delivery_and_its_outcome_cost_seven_python_calls_at_most() -> None:
    bench = declared(ClientBench(), ["q"])
    publisher, consumer = session_of(bench), session_of(bench)
    publisher.sender(QUEUE, snd_settle_mode=SETTLED)
    link = consumer.receiver(QUEUE, credit=1000)

    def publish() -> None:
        publisher.peer.front.receive(batch(publisher), bench.broker.tick())

    def round_trip() -> None:
        """Messages that wait are delivered, and accepted with one disposition."""
        bench.broker.settle()
        octets = b"".join(consumer.peer.outbox.take())
        assert len(octets) > MESSAGES * 100
        first = consumer.next_delivery
        consumer.next_delivery += MESSAGES
        accepted = p.Disposition(
            role=True, first=first, last=first + MESSAGES - 1, settled=True, state=p.Accepted()
        )
        consumer.peer.front.receive(frame(consumer.channel, accepted), bench.broker.tick())
        bench.broker.settle()

    publish()
    round_trip()
    assert link.session.peer.outbox.size > 0
    publish()
    counted: Counter[str] = calls(round_trip)
    for ours in ("frame", "Record.encode"):
        counted.pop(ours, None)
    assert bench.queue("q").unsettled == 0
    assert bench.queue("q").accepted == 2 * MESSAGES
    assert counted.total() / MESSAGES < 7.8, counted.most_common(20)


def test_s185_the_first_delivery_waits_a_moment_if_the_profile_says_so() -> None:
    bench = declared(ClientBench("compat.first_delivery_pause_ms = 20"), ["q"])
    session = session_of(bench)
    session.sender("/queues/q").publish(data(b"one"))
    receiver = session.receiver("/queues/q", credit=2)
    assert receiver.get() is None
    bench.advance(0.019)
    assert receiver.get() is None
    bench.advance(0.002)
    first = receiver.get()
    assert first is not None
    session.sender("/queues/q").publish(data(b"two"))
    assert receiver.get() is not None, "only the first one waits"


def test_s185_a_receiver_that_leaves_while_it_waits_leaves_the_message() -> None:
    bench = declared(ClientBench("compat.first_delivery_pause_ms = 20"), ["q"])
    session = session_of(bench)
    session.sender("/queues/q").publish(data(b"one"))
    session.receiver("/queues/q", credit=2).detach()
    bench.advance(1)
    queue = bench.queue("q")
    assert (queue.ready, queue.unsettled) == (1, 0)

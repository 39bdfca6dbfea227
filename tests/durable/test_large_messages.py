"""A large message that the disk has no room for is refused, or it would wait for room with all that makes room."""

from __future__ import annotations

import pytest

from leveret.durability import LITTLE_OCTETS
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, append_content
from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp010.client import SessionEnded
from tests.amqp010.peer import session_of as session_010
from tests.amqp091.peer import ClientChannel, confirming
from tests.amqp10.parts import data
from tests.amqp10.peer import session_of as session_10
from tests.harness.bench import StoredBench

PERSISTENT = BasicProperties(delivery_mode=2)
BODY = bytes(LITTLE_OCTETS + 1)


@pytest.fixture
def bench() -> StoredBench:
    """A broker with a durable queue `q`, on a disk with room for one and a half of these messages."""
    bench = StoredBench()
    bench.host.declare_queue("q", durable=True)
    bench.settle()
    bench.store.measure_room = lambda: LITTLE_OCTETS * 3 // 2  # type: ignore[method-assign]
    return bench


def answer(channel: ClientChannel, queue: str, properties: BasicProperties, body: bytes = BODY) -> type:
    """Publish, and return the kind of the answer."""
    channel.publish("", queue, body, properties)
    return type(channel.next())


def test_it_is_not_confirmed_and_what_needs_no_room_is(bench: StoredBench) -> None:
    channel = confirming(bench)
    channel.declare("fleeting")
    assert answer(channel, "q", PERSISTENT) is m.BasicNack
    assert answer(channel, "q", BasicProperties()) is m.BasicAck
    assert answer(channel, "fleeting", PERSISTENT) is m.BasicAck
    assert answer(channel, "q", PERSISTENT, b"small") is m.BasicAck
    bench.store.measure_room = lambda: 2 * len(BODY)  # type: ignore[method-assign]
    assert answer(channel, "q", PERSISTENT) is m.BasicAck
    assert bench.queue("q").ready == 3


@pytest.mark.parametrize("exchange", ["", "amq.fanout"])
@pytest.mark.parametrize("named", [False, True], ids=["alike", "with ids"])
def test_so_it_is_among_others_in_one_read(bench: StoredBench, exchange: str, named: bool) -> None:
    """Also where the messages before it, which are like it but for their size, were taken together."""
    channel = confirming(bench)
    bench.host.declare_queue("other", durable=True)
    for name in ("q", "other"):
        channel.bind(name, "amq.fanout", "q")
    sizes = [1, 1, 1, 1, len(BODY), 1, 1]
    octets: list[bytes] = []
    for number, size in enumerate(sizes):
        method = m.BasicPublish(exchange, "q").encode()
        properties = BasicProperties(delivery_mode=2, message_id=str(number) if named else None).encode()
        append_content(octets, 1, method, properties, bytes(size), 131_072)
    channel.peer.send_bytes(b"".join(octets))
    assert [answer for answer in channel.all() if isinstance(answer, m.BasicNack)] == [
        m.BasicNack(5, False, False)
    ]
    assert bench.queue("q").ready == 6


def test_so_it_is_where_duplicates_are_dropped(bench: StoredBench) -> None:
    channel = confirming(bench)
    channel.exchange("once", durable=True, arguments={"x-message-deduplication": True, "x-cache-size": 10})
    channel.bind("q", "once", "q")
    headers = BasicProperties(delivery_mode=2, headers={"x-deduplication-header": "1"})
    channel.publish("once", "q", BODY, headers)
    assert type(channel.next()) is m.BasicNack
    bench.store.measure_room = lambda: 2 * len(BODY)  # type: ignore[method-assign]
    channel.publish("once", "q", BODY, headers)
    assert type(channel.next()) is m.BasicAck
    assert bench.queue("q").ready == 1


def test_the_reason_is_told_where_the_protocol_can(bench: StoredBench) -> None:
    sender = session_10(bench).sender("/queues/q")
    rejection = sender.rejection(p.Header(durable=True), data(BODY))
    assert rejection == "amqp:precondition-failed the disk has no room for the message"
    session = session_010(bench)
    session.publish("q", BODY, delivery=c.DeliveryProperties(routing_key="q", delivery_mode=2))
    with pytest.raises(SessionEnded, match="the disk has no room for the message"):
        session.sync()
    assert bench.queue("q").ready == 0

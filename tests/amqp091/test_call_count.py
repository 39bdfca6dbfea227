"""The price of a message in Python calls: free of noise, and it only ever goes down."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

from protocols.amqp091 import methods as m
from protocols.amqp091 import wire
from protocols.amqp091.wire import BasicProperties
from tests.amqp091.peer import Peer, World

MESSAGES = 100


def test_a_confirmed_and_acknowledged_message_costs_nine_python_calls_at_most() -> None:
    world = World()
    publisher, consumer = Peer(world).open(), Peer(world).open()
    publishing, consuming = publisher.channel(), consumer.channel()
    publishing.declare("q")
    publishing.confirms()
    consuming.call(m.BasicQos(0, 2 * MESSAGES))
    consuming.consume("q")
    out: list[bytes] = []
    properties = BasicProperties(delivery_mode=1).encode()
    wire.append_content(out, 1, m.BasicPublish("", "q").encode(), properties, bytes(100), 131072)
    batch = b"".join(out) * MESSAGES

    def round_trip(last_tag: int) -> int:
        """A batch in, confirms and deliveries out, one ack for all of them. Returns the octets delivered."""
        publisher.front.receive(batch, world.broker.tick())
        world.broker.settle()
        delivered = sum(map(len, consumer.outbox.take()))
        publisher.outbox.take()
        ack = wire.method_frame(1, m.BasicAck(last_tag, True).encode())
        consumer.front.receive(ack, world.broker.tick())
        world.broker.settle()
        return delivered

    round_trip(MESSAGES)
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        delivered = round_trip(2 * MESSAGES)
    finally:
        sys.setprofile(before)
    assert delivered > MESSAGES * 100
    assert world.queue("q").unsettled == 0
    assert calls.total() / MESSAGES < 9, calls.most_common(20)

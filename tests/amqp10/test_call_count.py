"""The price of a published message in Python calls: free of noise, and it only ever goes down."""

from __future__ import annotations

import sys
from collections import Counter
from types import FrameType

import pytest

from protocols.amqp10.codec import performatives as p

from .peer import Sender, World, data, declared, frame, session_of

MESSAGES = 150


def batch(sender: Sender, first: int, settled: bool, *sections: bytes) -> bytes:
    """So many small messages, as a client sends them."""
    sender.session.next_delivery = first + MESSAGES
    channel = sender.session.channel
    return b"".join(
        frame(
            channel,
            p.Transfer(
                handle=sender.handle,
                delivery_id=number,
                delivery_tag=number.to_bytes(4),
                message_format=0,
                settled=settled,
            ),
            b"".join(sections),
        )
        for number in range(first, first + MESSAGES)
    )


@pytest.mark.parametrize(
    ("address", "sections", "settled", "at_most"),
    [
        ("/queues/q", (data(bytes(100)),), False, 7.0),
        ("/queues/q", (data(bytes(100)),), True, 7.0),
        (None, (p.Properties(to="/queues/q").encode(), data(bytes(100))), False, 7.0),
    ],
)
def test_a_published_message_costs_few_python_calls(
    address: str | None, sections: tuple[bytes, ...], settled: bool, at_most: float
) -> None:
    world = declared(World("protocols.amqp10.link_credit = 1000"), ["q"])
    sender = session_of(world).sender(address)
    front = sender.peer.front

    def publish(octets: bytes) -> None:
        front.receive(octets, world.broker.tick())
        world.broker.settle()

    publish(batch(sender, 0, settled, *sections))
    octets = batch(sender, MESSAGES, settled, *sections)
    calls: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            calls[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        publish(octets)
    finally:
        sys.setprofile(before)
    assert world.queue("q").ready == 2 * MESSAGES
    sender.peer.read()
    assert len(sender.session.settled) == (0 if settled else 2 * MESSAGES)
    assert calls.total() / MESSAGES < at_most, calls.most_common(20)

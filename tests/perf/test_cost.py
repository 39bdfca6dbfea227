"""A load must not be what is measured: Python calls for each message, at both ends, without a broker."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import attrs
import pytest

from leveret.perf.amqp091 import delivery_shape, publish_pattern
from leveret.perf.amqp10 import address_of, message_of, transfer_pattern
from leveret.perf.block import Block
from leveret.perf.deliveries import Run, Strides
from leveret.perf.ends import ConsumerEnd, PublisherEnd, Tally, count_run
from leveret.perf.mqtt import publish_pattern as mqtt_pattern
from leveret.perf.plan import Plan, Url
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties

MESSAGES = 10_000
PLAN = Plan(Url("localhost", 5672, "guest", "guest", "/"), confirms=1000)


def calls_of(work: Callable[[], object]) -> int:
    """Calls of Python and C functions."""
    count = 0

    def seen(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(seen)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


PATTERNS = {
    "0-9-1": publish_pattern(PLAN, 1, 0, "perf-0", 100, 131072),
    "1.0": transfer_pattern(PLAN, 0, message_of(PLAN, 0, address_of(PLAN, "perf-0"), 100), 100, 131072),
    "mqtt": mqtt_pattern(attrs.evolve(PLAN, protocol="mqtt", by_topic=True), 0, "perf-0", 100),
}


@pytest.mark.parametrize("protocol", PATTERNS)
def test_publishing_costs_less_than_a_fifth_of_a_call(protocol: str):
    tally = Tally(0)
    source = PublisherEnd(Block([PATTERNS[protocol]], 128 << 10, False), tally, MESSAGES, 1000, None)

    def publish() -> None:
        while source.sent < MESSAGES:
            while source.next(1) is not None:
                pass
            source.confirm(source.sent, True, 2)

    calls = calls_of(publish)
    assert tally.confirmed == MESSAGES
    assert calls / MESSAGES < 0.2


def test_consuming_costs_less_than_a_call():
    out: list[bytes] = []
    for tag in range(MESSAGES):
        method = m.BasicDeliver("perf-00001", tag + 1, False, "", "perf-0").encode()
        body = (5).to_bytes(8, "little") + b"x" * 92
        wire.append_content(out, 1, method, BasicProperties(delivery_mode=1).encode(), body, 131072)
    octets = b"".join(out)
    tally = Tally(0)
    subscription = ConsumerEnd("q", tally, 50, 0, None)

    def on_run(run: Run) -> None:
        count_run(run, {1: subscription}, tally, 9)
        subscription.to_acknowledge()

    strides = Strides(delivery_shape, on_run)

    def consume() -> None:
        for start in range(0, len(octets), 100 * len(out[0])):  # as a hundred come at a time
            part = bytearray(octets[start : start + 100 * len(out[0])])
            strides.take(part, len(part))

    calls = calls_of(consume)
    assert (tally.received, tally.delivery_times.count) == (MESSAGES, MESSAGES)
    assert subscription.acknowledged > MESSAGES - 50
    assert calls / MESSAGES < 1

"""Volatile queues: a reply is delivered at once, or dropped."""

from __future__ import annotations

import pytest

from leveret.client import Client
from leveret.queues.volatile import VolatileQueue, volatile_queue
from tests.core.fakes import FakeConsumer
from tests.harness.bench import CoreBench


@pytest.fixture
def queue(bench: CoreBench) -> VolatileQueue:
    user = bench.broker.access.add_user("u", None)
    client = Client(bench.broker, user)
    client.host = bench.host
    return volatile_queue(client)


def reply(bench: CoreBench, queue: VolatileQueue, *bodies: bytes) -> None:
    bench.publish(queue.name, *bodies)


def test_a_reply_is_delivered_in_its_batch(bench: CoreBench, queue: VolatileQueue) -> None:
    consumer = FakeConsumer(queue, settled=True)
    reply(bench, queue, b"1", b"2")
    assert [each.message.body for each in consumer.got] == [b"1", b"2"]
    assert queue.name not in bench.host.queues


def test_what_a_consumer_has_no_credit_for_is_dropped(bench: CoreBench, queue: VolatileQueue) -> None:
    consumer = FakeConsumer(queue, settled=True, credit=2)
    reply(bench, queue, b"1", b"2", b"3")
    reply(bench, queue, b"4")
    consumer.credit = 1
    consumer.wake()
    bench.settle()
    assert [each.message.body for each in consumer.got] == [b"1", b"2"]
    assert (queue.ready, queue.ready_bytes, queue.published) == (0, 0, 4)
    reply(bench, queue, b"5")
    assert consumer.got[-1].message.body == b"5"


def test_without_a_consumer_nothing_waits(bench: CoreBench, queue: VolatileQueue) -> None:
    reply(bench, queue, b"1")
    assert (queue.ready, queue.published) == (0, 1)

"""Overflow that refuses nothing, with clients over real sockets: publishers wait, or messages are on disk only."""

from __future__ import annotations

import threading

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from leveret.queues.overfull import in_memory
from leveret.queues.work_queue import WorkQueue
from tests.interop.conftest import RunningNode, Start, wait_until
from tests.interop.proton_peer import connect, data

pytestmark = pytest.mark.interop

LONGEST = 100
COUNT = 5000
BODY = b"x" * 1000  # a read brings some 250
WAITS = {"x-max-length": LONGEST, "x-overflow": "producer-flow-control"}


def opened(node: RunningNode) -> BlockingChannel:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)).channel()


def longest_seen(node: RunningNode, channel: BlockingChannel, count: int) -> int:
    """Take so many messages, with a small prefetch; return how long the queue was at most."""
    longest = 0
    channel.basic_qos(prefetch_count=10)
    for got, (method, _, _) in enumerate(channel.consume("q"), 1):
        channel.basic_ack(method.delivery_tag)
        if not got % 50:
            longest = max(longest, node.ready("q"))
        if got == count:
            return longest
    raise AssertionError("the consumer was cancelled")


def test_a_flood_makes_the_queue_no_longer_than_its_limit_and_a_read(node: RunningNode) -> None:
    publisher, consumer = opened(node), opened(node)
    publisher.queue_declare("q", arguments=WAITS)

    def flood() -> None:
        for _ in range(COUNT):
            publisher.basic_publish("", "q", BODY)
        publisher.connection.close()

    thread = threading.Thread(target=flood)
    thread.start()
    wait_until(lambda: node.ready("q") > LONGEST, "the queue is full")
    assert longest_seen(node, consumer, COUNT) < LONGEST + 600
    thread.join(60)
    assert not thread.is_alive()
    consumer.connection.close()


def test_one_connection_that_publishes_and_consumes_gets_through(node: RunningNode) -> None:
    channel = opened(node)
    channel.queue_declare("q", arguments=WAITS)
    got: list[bytes] = []

    def on_message(channel: BlockingChannel, method: object, properties: object, body: bytes) -> None:
        got.append(body)
        channel.basic_ack(method.delivery_tag)  # type: ignore[attr-defined]

    channel.basic_qos(prefetch_count=10)
    channel.basic_consume("q", on_message)
    for _ in range(3 * LONGEST):
        channel.basic_publish("", "q", b"x")
    while len(got) < 3 * LONGEST:
        channel.connection.process_data_events(0.1)
    channel.connection.close()


def test_a_sender_of_1_0_waits_as_well(node: RunningNode) -> None:
    channel = opened(node)
    channel.queue_declare("q", arguments={**WAITS, "x-max-length": 3})
    connection = connect(node)
    sender = connection.create_sender("/queues/q")
    done = threading.Event()

    def send() -> None:
        for _ in range(8):
            sender.send(data(b"x"))
        done.set()

    thread = threading.Thread(target=send)
    thread.start()
    wait_until(lambda: node.ready("q") == 4, "the queue is over its limit")
    assert not done.wait(0.2)
    channel.queue_purge("q")
    wait_until(lambda: node.ready("q") == 4, "it goes on")
    channel.queue_purge("q")
    thread.join(60)
    assert done.is_set()
    connection.close()
    channel.connection.close()


def test_credit_bounds_every_queue(node_with: Start) -> None:
    node = node_with("[flow]\ncredit = 50\n")
    publisher, consumer = opened(node), opened(node)
    publisher.queue_declare("q")
    for _ in range(500):
        publisher.basic_publish("", "q", BODY)
    wait_until(lambda: node.ready("q") > 50, "the queue is full")
    assert longest_seen(node, consumer, 500) < 50 + 600
    publisher.connection.close()
    consumer.connection.close()


def test_what_is_over_the_limit_is_on_disk_and_survives(node_with: Start, tmp_path: object) -> None:
    toml = f'[node]\ndata_dir = "{tmp_path}"\n'
    node = node_with(toml)
    channel = opened(node)
    channel.queue_declare("q", durable=True, arguments={"x-max-length": 20, "x-overflow": "flow-to-disk"})
    channel.confirm_delivery()
    for number in range(500):
        channel.basic_publish("", "q", b"%d" % number, pika.BasicProperties(delivery_mode=2))

    queue = node.find("q")
    assert isinstance(queue, WorkQueue)
    wait_until(lambda: node.call(lambda: in_memory(queue)) <= 20, "the rest is on disk only")
    assert node.ready("q") == 500
    channel.connection.close()
    node.stop()
    node = node_with(toml)
    channel = opened(node)
    for number in range(500):
        assert channel.basic_get("q", auto_ack=True)[2] == b"%d" % number
    channel.connection.close()

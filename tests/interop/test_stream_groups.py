"""Groups of consumers of streams and super streams, with pika and proton: who is active, and where the next goes on."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.interop.conftest import RunningNode, need_module, wait_until

proton = need_module("proton")

from proton import Described, symbol  # noqa: E402
from proton.reactor import Filter  # noqa: E402

from tests.interop.proton_peer import connect  # noqa: E402

pytestmark = pytest.mark.interop


class Worker:
    """A program that reads the partitions of a super stream as a member of a group, over 0-9-1."""

    def __init__(self, node: RunningNode, partitions: int) -> None:
        self.connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
        self.channel = self.connection.channel()
        self.channel.basic_qos(prefetch_count=2)
        self.got: list[tuple[str, int]] = []
        self.unanswered: list[int] = []
        for number in range(partitions):
            self.channel.basic_consume(
                f"events-{number}",
                self.take,
                consumer_tag=f"events-{number}",
                arguments={"x-stream-offset": "first", "x-stream-group": "billing"},
            )

    def take(self, channel: BlockingChannel, method: object, properties: object, body: bytes) -> None:
        offset = properties.headers["x-stream-offset"]  # type: ignore[attr-defined]
        self.got.append((method.consumer_tag, offset))  # type: ignore[attr-defined]
        self.unanswered.append(method.delivery_tag)  # type: ignore[attr-defined]

    def die(self) -> None:
        """End without a word."""
        self.connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
        with suppress(pika.exceptions.AMQPError):
            self.connection.process_data_events(1)

    def work(self, answers: bool = True) -> list[tuple[str, int]]:
        """Take what is there, and return all that it ever got."""
        self.connection.process_data_events(0.02)
        if answers and self.unanswered:
            self.channel.basic_ack(self.unanswered[-1], multiple=True)
            self.unanswered.clear()
        return self.got


@pytest.fixture
def events(node: RunningNode) -> Iterator[BlockingChannel]:
    """A super stream with two partitions of four messages each."""
    with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.exchange_declare("events", "direct", durable=True, arguments={"x-super-stream": True})
        for number in range(2):
            channel.queue_declare(f"events-{number}", durable=True, arguments={"x-queue-type": "stream"})
            order = {"x-stream-partition-order": number}
            channel.queue_bind(f"events-{number}", "events", str(number), order)
            for _ in range(4):
                channel.basic_publish("events", str(number), b"m")
        yield channel


def test_pika_partitions_are_shared_and_taken_over_where_a_dead_member_was(
    node: RunningNode, events: BlockingChannel
) -> None:
    first = Worker(node, 2)
    wait_until(lambda: len(first.work()) == 8, "the only member reads both partitions")
    second = Worker(node, 2)
    for number in (0, 1):
        for _ in range(3):
            events.basic_publish("events", str(number), b"m")
    wait_until(lambda: len(first.work()) == 11, "the first member keeps partition 0")
    wait_until(lambda: len(second.work(answers=False)) == 2, "the second has partition 1, up to its prefetch")
    assert set(first.got[8:]) == {("events-0", 4), ("events-0", 5), ("events-0", 6)}
    assert second.got == [("events-1", 4), ("events-1", 5)]
    second.die()  # with both messages unanswered
    wait_until(lambda: len(first.work()) == 14, "the first member goes on where the second was")
    assert first.got[11:] == [("events-1", 4), ("events-1", 5), ("events-1", 6)]
    first.connection.close()


class Group(Filter):
    def __init__(self, offset: str) -> None:
        kinds = {"leveret:stream-group": "billing", "rabbitmq:stream-offset-spec": offset}
        super().__init__({symbol(kind): Described(symbol(kind), value) for kind, value in kinds.items()})


def test_proton_and_pika_are_members_of_one_group(node: RunningNode, events: BlockingChannel) -> None:
    connection = connect(node)
    receiver = connection.create_receiver("/queues/events-0", credit=2, options=Group("first"))
    assert receiver.link.remote_source.filter  # what is applied is told
    first = receiver.receive(timeout=30)
    receiver.accept()
    assert first.annotations["x-stream-offset"] == 0
    worker = Worker(node, 1)
    assert worker.work() == []
    connection.close()  # offset 1, and perhaps 2, were not answered
    wait_until(lambda: len(worker.work()) == 3, "the other member goes on")
    assert worker.got == [("events-0", 1), ("events-0", 2), ("events-0", 3)]
    worker.connection.close()

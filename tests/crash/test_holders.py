"""kill -9 while streams grow and delayed messages come and go: what was confirmed is there, once, and in order."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.harness.seldom import elsewhere, one_feature

from .node import Node

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROUNDS = 4
SOME_ROUNDS = 2
PUBLISHERS = 4
ENOUGH = 150  # confirms, before the node is killed
DELAYS_MS = (1, 7, 20)
MARKER = b"last"


class Publishers:
    """Threads that publish to the stream and to the delayed exchange in turn, until the node is gone."""

    def __init__(self, port: int, round_: int) -> None:
        self.port = port
        self.sent: dict[str, list[list[bytes]]] = {"s": [], "later": []}
        self.confirmed: dict[str, list[bytes]] = {"s": [], "later": []}
        self._enough = threading.Event()
        self._threads = [
            threading.Thread(target=self._publish, args=(f"{round_}.{number}",))
            for number in range(PUBLISHERS)
        ]

    def run_until_enough(self, node: Node) -> None:
        for thread in self._threads:
            thread.start()
        assert self._enough.wait(30)
        node.kill()
        for thread in self._threads:
            thread.join()

    def _publish(self, name: str) -> None:
        mine: dict[str, list[bytes]] = {"s": [], "later": []}
        for where, bodies in mine.items():
            self.sent[where].append(bodies)
        number = 0
        try:
            with connected(self.port) as channel:
                while True:
                    number += 1
                    body = f"{name} {number}".encode()
                    where = ("s", "later")[number % 2]
                    mine[where].append(body)
                    publish(channel, where, body, DELAYS_MS[number % 3])
                    self.confirmed[where].append(body)
                    if sum(map(len, self.confirmed.values())) >= ENOUGH:
                        self._enough.set()
        except AMQPError:
            pass


class connected:  # noqa: N801 - used as a verb
    """A channel with confirms, closed if the node is still there."""

    def __init__(self, port: int) -> None:
        self._connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port))

    def __enter__(self) -> BlockingChannel:
        channel = self._connection.channel()
        channel.confirm_delivery()
        return channel

    def __exit__(self, *raised: object) -> None:
        if self._connection.is_open:
            self._connection.close()


def publish(channel: BlockingChannel, where: str, body: bytes, delay_ms: int) -> None:
    headers = {"x-delay": delay_ms} if where == "later" else None
    properties = pika.BasicProperties(delivery_mode=2, headers=headers)
    exchange, key = ("", "s") if where == "s" else ("later", "")
    channel.basic_publish(exchange, key, body, properties)


def declare(channel: BlockingChannel) -> None:
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.queue_declare("q", durable=True)
    channel.exchange_declare(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    channel.queue_bind("q", "later")


def in_stream(channel: BlockingChannel) -> Iterator[tuple[int, bytes]]:
    """Offsets and bodies, from the first to the last that is there now."""
    count = channel.queue_declare("s", passive=True).method.message_count
    assert count, "the stream is empty"
    channel.basic_qos(prefetch_count=100)
    for method, properties, body in channel.consume("s", arguments={"x-stream-offset": "first"}):
        yield properties.headers["x-stream-offset"], body
        channel.basic_ack(method.delivery_tag)
        count -= 1
        if not count:
            break
    channel.cancel()


def delayed(channel: BlockingChannel) -> Iterator[bytes]:
    """Everything that was held or has come out; all of it is due before the marker."""
    publish(channel, "later", MARKER, 2 * max(DELAYS_MS))
    for method, _, body in channel.consume("q"):
        channel.basic_ack(method.delivery_tag)
        if body == MARKER:
            break
        yield body
    channel.cancel()
    channel.queue_declare("last", durable=True)  # its answer says that the acknowledgements are on disk, too:
    channel.queue_delete("last")  # a change does, since it waits for the disk itself


@pytest.mark.parametrize("rounds", [SOME_ROUNDS, pytest.param(ROUNDS, marks=elsewhere)])
@one_feature
def test_confirmed_messages_in_streams_and_delayed_exchanges_survive_a_kill(rounds: int, tmp_path: Path):
    confirmed: list[bytes] = []
    sent: list[list[bytes]] = []
    for round_ in range(rounds):
        node = Node(tmp_path / "data")
        try:
            with connected(node.port) as channel:
                declare(channel)
            publishers = Publishers(node.port, round_)
            publishers.run_until_enough(node)
        finally:
            node.kill()
        confirmed += publishers.confirmed["s"]
        sent += publishers.sent["s"]
        node = Node(tmp_path / "data")
        try:
            with connected(node.port) as channel:
                offsets, bodies = zip(*in_stream(channel), strict=True)
                came = list(delayed(channel))
        finally:
            node.kill()
        assert list(offsets) == list(range(len(offsets)))
        assert set(confirmed) <= set(bodies)
        for line in sent:
            assert [body for body in bodies if body in set(line)] == line[: len(set(line) & set(bodies))]
        assert len(bodies) == len(set(bodies))
        held_back = {body for line in publishers.sent["later"] for body in line}
        assert set(publishers.confirmed["later"]) <= set(came) <= held_back
        assert len(came) == len(set(came))


def valued(channel: BlockingChannel) -> Iterator[bytes]:
    """The messages of one value, from the first on."""
    properties = pika.BasicProperties(headers={"x-stream-filter-value": "a"})
    channel.basic_publish("", "valued", MARKER, properties)
    channel.basic_qos(prefetch_count=100)
    arguments = {"x-stream-offset": "first", "x-stream-filter": "a"}
    for method, _, body in channel.consume("valued", arguments=arguments):
        channel.basic_ack(method.delivery_tag)
        if body == MARKER:
            break
        yield body
    channel.cancel()


@one_feature
def test_a_filtered_reader_misses_nothing_that_was_confirmed(tmp_path: Path):
    """Two publishers with a value each, kill -9 in between, and a reader of one value."""
    confirmed: list[bytes] = []
    for round_ in range(ROUNDS):
        node = Node(tmp_path / "data")
        stop = threading.Event()

        def publish(
            value: str, port: int = node.port, round_: int = round_, stop: threading.Event = stop
        ) -> None:
            properties = pika.BasicProperties(headers={"x-stream-filter-value": value})
            with contextlib.suppress(AMQPError, OSError), connected(port) as channel:
                channel.queue_declare("valued", durable=True, arguments={"x-queue-type": "stream"})
                for number in range(10_000):
                    body = f"{value} {round_} {number}".encode()
                    channel.basic_publish("", "valued", body, properties)
                    if value == "a":
                        confirmed.append(body)
                        if number >= ENOUGH:
                            stop.set()

        threads = [threading.Thread(target=publish, args=(value,)) for value in ("a", "b")]
        for thread in threads:
            thread.start()
        assert stop.wait(60)
        node.kill()
        for thread in threads:
            thread.join()
    node = Node(tmp_path / "data")
    try:
        with connected(node.port) as channel:
            seen = list(valued(channel))
    finally:
        node.kill()
    assert all(body.startswith(b"a ") for body in seen)
    assert len(seen) == len(set(seen))
    in_order = iter(seen)
    assert all(body in in_order for body in confirmed)

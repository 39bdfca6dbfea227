"""kill -9 while dead letters are held for a full queue: each arrives in every target, and once."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from leveret.server.cli.control_client import ControlClient
from tests.harness.seldom import one_feature

from .node import Node
from .test_holders import connected, in_stream

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROUNDS = 4
PUBLISHERS = 3
ENOUGH = 150  # confirms, before the node is killed
PAUSE_S = 0.1  # after each message that is taken from the full target
PERSISTENT = pika.BasicProperties(delivery_mode=2)
SOURCE = {
    "x-queue-type": "quorum",
    "x-dead-letter-exchange": "dlx",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


def declare(channel: BlockingChannel) -> None:
    channel.queue_declare("q", durable=True, arguments=SOURCE)
    channel.queue_declare("all", durable=True)
    channel.queue_declare("few", durable=True, arguments={"x-max-length": 10, "x-overflow": "reject-publish"})
    channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
    channel.exchange_declare("dlx", "fanout", durable=True)
    for target in ("all", "few", "s"):
        channel.queue_bind(target, "dlx")


class Load:
    """Threads that publish, reject everything, and take something from the full target, until the node is gone."""

    def __init__(self, port: int, round_: int) -> None:
        self.port = port
        self.confirmed: list[bytes] = []
        self.few: list[bytes] = []
        self._enough = threading.Event()
        names = [f"{round_}.{number}" for number in range(PUBLISHERS)]
        self._threads = [threading.Thread(target=self._publish, args=(name,)) for name in names]
        self._threads += [threading.Thread(target=each) for each in (self._reject, self._take)]

    def run_until_enough(self, node: Node) -> None:
        for thread in self._threads:
            thread.start()
        assert self._enough.wait(60)
        node.kill()
        for thread in self._threads:
            thread.join()

    def _publish(self, name: str) -> None:
        number = 0
        try:
            with connected(self.port) as channel:
                while True:
                    number += 1
                    body = f"{name} {number}".encode()
                    channel.basic_publish("", "q", body, PERSISTENT)
                    self.confirmed.append(body)
                    if len(self.confirmed) >= ENOUGH:
                        self._enough.set()
        except AMQPError:
            pass

    def _reject(self) -> None:
        try:
            with connected(self.port) as channel:
                for method, _, _ in channel.consume("q"):
                    channel.basic_reject(method.delivery_tag, requeue=False)
        except AMQPError:
            pass

    def _take(self) -> None:
        try:
            with connected(self.port) as channel:
                channel.basic_qos(prefetch_count=1)
                for method, _, body in channel.consume("few"):
                    self.few.append(body)
                    channel.basic_ack(method.delivery_tag)
                    time.sleep(PAUSE_S)
        except AMQPError:
            pass


def held(node: Node) -> int:
    client = ControlClient(f"http://127.0.0.1:{node.http}", "guest", "guest")
    count: int = json.loads(client.ask("GET", "/api/queues/%2F/q").text)["messages_dlx"]
    return count


def fetched_all(channel: BlockingChannel, queue: str) -> list[bytes]:
    bodies: list[bytes] = []
    while (answer := channel.basic_get(queue, auto_ack=True))[0] is not None:
        bodies.append(answer[2])
    return bodies


@one_feature
def test_dead_letters_that_are_held_survive_a_kill_and_arrive_once(tmp_path: Path) -> None:
    confirmed: list[bytes] = []
    few: list[bytes] = []
    most = 0
    for round_ in range(ROUNDS):
        node = Node(tmp_path / "data")
        try:
            with connected(node.port) as channel:
                declare(channel)
            most = max(most, held(node))
            load = Load(node.port, round_)
            load.run_until_enough(node)
        finally:
            node.kill()
        confirmed += load.confirmed
        few += load.few
    node = Node(tmp_path / "data")
    try:
        with connected(node.port) as channel:
            while (answer := channel.basic_get("q"))[0] is not None:
                channel.basic_reject(answer[0].delivery_tag, requeue=False)
            while held(node) or channel.queue_declare("few", passive=True).method.message_count:
                few += fetched_all(channel, "few")
            everything = fetched_all(channel, "all")
            _, streamed = zip(*in_stream(channel), strict=True)
    finally:
        node.kill()
    assert most, "no dead letter was held when a node was killed"
    for bodies in (everything, streamed):
        assert set(confirmed) <= set(bodies)
        assert [body for body, times in Counter(bodies).items() if times > 1] == []
    assert set(everything) == set(streamed) == set(few)

"""kill -9 beside what RabbitMQ 4 applications declare: paused queues, super streams, default types, priorities.

Each round declares all of it again, as an application would at its start, publishes with confirms, and kills the node
while more is on its way. What was confirmed is there in the end, as it was declared, and nothing is left of replies.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from leveret.server.cli.control_client import ControlClient
from tests.harness.seldom import one_feature

from .node import Node, damage_in
from .test_dead_letters import fetched_all
from .test_holders import connected

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROUNDS: Final = 3
ENOUGH: Final = 200  # confirms, before the node is killed
PARTITIONS: Final = 3
PRIORITIES: Final = 32
REPLY_TO: Final = "amq.rabbitmq.reply-to"


def asked(node: Node, method: str, path: str, content: object = None) -> Any:
    body = None if content is None else json.dumps(content).encode()
    answer = ControlClient(f"http://127.0.0.1:{node.http}", "guest", "guest").ask(method, path, body=body)
    assert answer.status < 400, answer.text
    return json.loads(answer.text) if answer.text else None


def declare(node: Node, channel: BlockingChannel) -> None:
    asked(node, "PUT", "/api/vhosts/%2F", {"default_queue_type": "quorum"})
    channel.queue_declare("paused", durable=True)
    channel.queue_declare("ranked", durable=True, arguments={"x-queue-type": "quorum"})
    for n in range(PARTITIONS):
        channel.queue_declare(f"events-{n}", durable=True, arguments={"x-queue-type": "stream"})
    channel.exchange_declare("events", "x-super-stream", durable=True, arguments={"x-super-stream": True})
    for n in range(PARTITIONS):
        order = {"x-stream-partition-order": n}
        channel.queue_bind(f"events-{n}", "events", str(n), arguments=order)


class Load:
    """A thread that publishes to all of them, and one that asks and is answered directly, until the node is gone."""

    def __init__(self, port: int, round_: int) -> None:
        self.port, self.round = port, round_
        self.confirmed: list[tuple[str, str, int]] = []  # exchange or queue, body, priority
        self.replies = 0
        self._enough = threading.Event()
        self._threads = [threading.Thread(target=each) for each in (self._publish, self._ask)]

    def run_until_enough(self, node: Node) -> None:
        for thread in self._threads:
            thread.start()
        assert self._enough.wait(60)
        node.kill()
        for thread in self._threads:
            thread.join()

    def _publish(self) -> None:
        with contextlib.suppress(AMQPError, OSError), connected(self.port) as channel:
            channel.confirm_delivery()
            for number in range(100_000):
                place = ("paused", "ranked", "events")[number % 3]
                body, priority = f"{self.round}.{number}", number * 7 % PRIORITIES
                exchange, key = ("events", body) if place == "events" else ("", place)
                properties = pika.BasicProperties(delivery_mode=2, priority=priority)
                channel.basic_publish(exchange, key, body.encode(), properties, mandatory=True)
                self.confirmed.append((place, body, priority))
                if len(self.confirmed) >= ENOUGH and self.replies:
                    self._enough.set()

    def _ask(self) -> None:
        with contextlib.suppress(AMQPError, OSError), connected(self.port) as channel:
            channel.queue_declare("service", exclusive=True)
            answers: list[bytes] = []
            channel.basic_consume(REPLY_TO, lambda *delivery: answers.append(delivery[3]), auto_ack=True)
            requests = channel.connection.channel()
            while True:
                persistent = pika.BasicProperties(reply_to=REPLY_TO, delivery_mode=2)
                channel.basic_publish("", "service", b"?", persistent)
                while (properties := requests.basic_get("service", auto_ack=True)[1]) is None:
                    pass  # the request is on its way over the other channel
                requests.basic_publish("", properties.reply_to, b"!", pika.BasicProperties(delivery_mode=2))
                while len(answers) == self.replies:
                    channel.connection.process_data_events(1)
                self.replies += 1


def partitions(channel: BlockingChannel) -> list[str]:
    """All messages of the super stream, each from the partition that its key is in."""
    found: list[str] = []
    for n in range(PARTITIONS):
        name = f"events-{n}"
        count = channel.queue_declare(name, passive=True).method.message_count
        channel.basic_qos(prefetch_count=100)
        arguments = {"x-stream-offset": "first"}
        while count:
            for method, _, body in channel.consume(name, arguments=arguments):
                found.append(body.decode())
                channel.basic_ack(method.delivery_tag)
                count -= 1
                if not count:
                    break
        channel.cancel()
    return found


@one_feature
def test_what_applications_declare_survives_kills_with_all_that_was_confirmed(tmp_path: Path) -> None:
    confirmed: list[tuple[str, str, int]] = []
    prefixed: set[str] = set()
    for round_ in range(ROUNDS):
        node = Node(tmp_path / "data")
        try:
            with connected(node.port) as channel:
                declare(node, channel)
                named = channel.queue_declare("", durable=True, arguments={"x-name-prefix": "jobs."})
                prefixed.add(named.method.queue)
            if round_ == 0:
                asked(node, "PUT", "/api/queues/%2F/paused/pause")
            load = Load(node.port, round_)
            load.run_until_enough(node)
        finally:
            node.kill()
        confirmed += load.confirmed
    node = Node(tmp_path / "data")
    try:
        queues = {each["name"]: each for each in asked(node, "GET", "/api/queues")}
        assert {queues[name]["state"] for name in ("paused", "ranked")} == {"paused", "running"}
        assert queues["paused"]["state"] == "paused"
        assert all(name.startswith("jobs.") for name in prefixed)
        assert set(queues) == {"paused", "ranked", *prefixed, *(f"events-{n}" for n in range(PARTITIONS))}
        assert {queues[name]["type"] for name in ("paused", *prefixed)} == {"quorum"}
        with connected(node.port) as channel:
            consumed: list[bytes] = []
            channel.basic_consume("paused", lambda *delivery: consumed.append(delivery[3]), auto_ack=True)
            channel.connection.process_data_events(0.2)
            assert not consumed, "a queue that was paused delivers after a kill"
            channel.cancel()
        with connected(node.port) as channel:
            asked(node, "PUT", "/api/queues/%2F/paused/resume")
            here = {
                "paused": [body.decode() for body in fetched_all(channel, "paused")],
                "ranked": [body.decode() for body in fetched_all(channel, "ranked")],
                "events": partitions(channel),
            }
        node.stop()
    finally:
        node.kill()
    for place, bodies in here.items():
        assert {body for at, body, _ in confirmed if at == place} <= set(bodies)
        assert [body for body, times in Counter(bodies).items() if times > 1] == []
    ranks = {body: (-priority, confirmed.index((at, body, priority))) for at, body, priority in confirmed}
    told = [ranks[body] for body in here["ranked"] if body in ranks]
    assert told == sorted(told)
    assert damage_in(tmp_path / "data") == []

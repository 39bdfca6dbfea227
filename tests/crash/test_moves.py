"""kill -9 while messages move from queue to queue: what a consumer of the last one gets twice says so."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError

from tests.harness.seldom import one_feature, planted

from .node import Node
from .planted import program
from .test_holders import connected

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

ROUNDS_MAX = 20
ENOUGH = 100  # messages that have arrived in the last queue, before the node is killed
WAIT_MS = 50  # in the first place: the message is on disk there
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "last"}
WAYS = ("brief", "unwanted", "later")  # by expiry, by rejection, by a delayed exchange


def declare(channel: BlockingChannel) -> None:
    channel.queue_declare("last", durable=True)
    channel.queue_declare("brief", durable=True, arguments={"x-message-ttl": WAIT_MS, **DEAD})
    channel.queue_declare("unwanted", durable=True, arguments=DEAD)
    channel.exchange_declare(
        "later", "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"}
    )
    channel.queue_bind("last", "later")


class Round:
    """Threads that publish each way, reject, and take what has moved, until the node is gone."""

    def __init__(self, port: int, number: int) -> None:
        self.port = port
        self.number = number
        self.taken: list[tuple[bytes, bool]] = []  # with its flag
        self._enough = threading.Event()
        self._threads = [threading.Thread(target=self._publish, args=(way,)) for way in WAYS]
        self._threads += [threading.Thread(target=each) for each in (self._reject, self._take)]

    def run_until_enough(self, node: Node) -> None:
        for thread in self._threads:
            thread.start()
        assert self._enough.wait(60)
        node.kill()
        for thread in self._threads:
            thread.join()

    def _publish(self, way: str) -> None:
        properties = pika.BasicProperties(
            delivery_mode=2, headers={"x-delay": WAIT_MS} if way == "later" else None
        )
        exchange, key = (way, "") if way == "later" else ("", way)
        number = 0
        try:
            with connected(self.port) as channel:
                while True:
                    number += 1
                    body = f"{way} {self.number} {number}".encode()
                    channel.basic_publish(exchange, key, body, properties)
        except AMQPError:
            pass

    def _reject(self) -> None:
        try:
            with connected(self.port) as channel:
                for method, _, _ in channel.consume("unwanted"):
                    channel.basic_reject(method.delivery_tag, requeue=False)
        except AMQPError:
            pass

    def _take(self) -> None:
        try:
            with connected(self.port) as channel:
                channel.basic_qos(prefetch_count=50)
                for method, _, body in channel.consume("last"):
                    self.taken.append((body, method.redelivered))
                    channel.basic_ack(method.delivery_tag)
                    if len(self.taken) >= ENOUGH:
                        self._enough.set()
        except AMQPError:
            pass


def run(folder: Path, number: int, name: str) -> list[tuple[bytes, bool]]:
    """One round: what was taken from the last queue, and whether it said that it may come for the second time."""
    node = Node(folder, program(name))
    try:
        with connected(node.port) as channel:
            declare(channel)
        round_ = Round(node.port, number)
        round_.run_until_enough(node)
    finally:
        node.kill()
    return round_.taken


def unmarked(rounds: Sequence[Sequence[tuple[bytes, bool]]]) -> list[bytes]:
    """What came again without saying so."""
    seen: set[bytes] = set()
    found: list[bytes] = []
    for taken in rounds:
        found += [body for body, redelivered in taken if body in seen and not redelivered]
        seen.update(body for body, _ in taken)
    return found


def repeated(rounds: Sequence[Sequence[tuple[bytes, bool]]]) -> bool:
    """Whether something came for the first time in a round, and again in the next one."""
    pairs = pairwise(rounds)
    return any((body, False) in before for before, after in pairs for body, _ in after)


@one_feature
def test_what_moved_before_a_kill_and_comes_again_says_so(tmp_path: Path) -> None:
    rounds: list[list[tuple[bytes, bool]]] = []
    while not repeated(rounds):
        assert len(rounds) < ROUNDS_MAX, "nothing came twice"
        rounds.append(run(tmp_path / "data", len(rounds), "slow_store"))
        assert unmarked(rounds) == []


@planted
def test_forgetting_that_it_may_have_moved_is_found(tmp_path: Path) -> None:
    rounds = [run(tmp_path / "data", 0, "no_repeats")]
    while not unmarked(rounds) and len(rounds) < ROUNDS_MAX:
        rounds.append(run(tmp_path / "data", len(rounds), "no_repeats"))
    assert unmarked(rounds)

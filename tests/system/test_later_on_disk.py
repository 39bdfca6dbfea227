"""Messages that wait for a time, and a node that is killed: none is lost, none early, none twice without its flag."""

from __future__ import annotations

import random
import time
from contextlib import suppress
from pathlib import Path

import attrs
import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.crash.node import Node, damage_in
from tests.harness.seldom import elsewhere

pytestmark = pytest.mark.system

ROUNDS = 6
SOME_ROUNDS = 2
MESSAGES = 60  # in each round
WAIT_MS = 400
ARGUMENTS = {
    "x-delayed-retry-type": "all",
    "x-delayed-retry-min": WAIT_MS,
    "x-delayed-retry-max": WAIT_MS,
    "x-delayed-message": True,
}
SLACK_S = 0.01  # between the test's clock and the node's


@attrs.define
class Book:
    """What the test knows of one message that was confirmed."""

    due: float = 0.0  # time of day before which it must not come
    seen: bool = False  # it was delivered before
    accepted: bool = False
    settling: bool = False  # it was accepted, and the node may not have noted that on disk


class Client:
    """A connection to a node that will be killed."""

    def __init__(self, node: Node) -> None:
        self.connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))
        self.publishing = self._channel()
        self.publishing.confirm_delivery()
        self.consuming = self._channel()

    def _channel(self) -> BlockingChannel:
        return self.connection.channel()


class Trial:
    """One folder through several kills."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.chance = random.Random(seed)
        self.books: dict[str, Book] = {}

    def publish(self, client: Client) -> None:
        for _ in range(MESSAGES):
            name = str(len(self.books))
            delay_ms = self.chance.choice([0, WAIT_MS, 2 * WAIT_MS])
            properties = pika.BasicProperties(delivery_mode=2, headers={"x-delay": delay_ms})
            due = time.time() + delay_ms / 1000
            client.publishing.basic_publish("", "q", name.encode(), properties)
            self.books[name] = Book(due)  # confirmed

    def consume(self, client: Client, seconds: float, accept: float) -> None:
        """Take messages for a while; accept some, and give others back, for later."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            method, _, body = client.consuming.basic_get("q")
            if method is None:
                client.connection.sleep(0.02)
                continue
            book = self.books[body.decode()]
            now = time.time()
            assert not book.accepted, "it was accepted, and that was on disk"
            assert now >= book.due - SLACK_S, "it comes before its time"
            assert method.redelivered or not book.seen, "it comes again without its flag"
            book.seen = True
            if self.chance.random() < accept:
                book.settling = True
                client.consuming.basic_ack(method.delivery_tag)
            else:
                book.due = now + WAIT_MS / 1000
                client.consuming.basic_reject(method.delivery_tag, requeue=True)

    def note(self, client: Client) -> None:
        """Have all that was said so far noted on disk: what is confirmed after it is in the same commit, or later."""
        client.consuming.basic_get("empty")  # the answers before it have arrived
        client.publishing.basic_publish("", "empty", b"", pika.BasicProperties(delivery_mode=2))
        client.consuming.basic_get("empty", auto_ack=True)
        for book in self.books.values():
            book.accepted = book.accepted or book.settling

    def forget(self) -> None:
        """The node was killed: what it was told last may not be on disk."""
        for book in self.books.values():
            if not book.accepted:
                book.settling = False

    def run(self) -> None:
        node = Node(self.folder)
        try:
            client = Client(node)
            client.publishing.queue_declare("q", durable=True, arguments=ARGUMENTS)
            client.publishing.queue_declare("empty", durable=True)
            self.publish(client)
            self.consume(client, self.chance.uniform(0.2, 1.0), accept=0.2)
            self.note(client)
        finally:
            node.kill()
        with suppress(pika.exceptions.AMQPError):
            client.connection.process_data_events()  # it finds that the node is gone
        self.forget()

    def finish(self) -> None:
        """Everything that was not accepted comes, and nothing else."""
        node = Node(self.folder)
        try:
            client = Client(node)
            end = time.monotonic() + 30
            while not all(book.settling for book in self.books.values()):
                assert time.monotonic() < end, "messages are lost"
                self.consume(client, 0.5, accept=1.0)
            client.connection.close()
            node.stop()
        finally:
            node.kill()
        assert damage_in(self.folder) == []


@pytest.mark.parametrize(
    ("seed", "rounds"), [(1, SOME_ROUNDS), *(pytest.param(seed, ROUNDS, marks=elsewhere) for seed in (1, 2))]
)
@pytest.mark.timeout(240)
def test_messages_that_wait_survive_kills(seed: int, rounds: int, tmp_path: Path):
    trial = Trial(tmp_path / "data", seed)
    for _ in range(rounds):
        trial.run()
    trial.finish()
    assert len(trial.books) == rounds * MESSAGES

"""A full disk heals by draining: what consumers settle is kept, and makes room, and then publishers go on."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from threading import Thread

import pika
import pika.exceptions
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from tests.crash.failing import NO_WARNING, fill, small_disk, why_no_small_disk
from tests.crash.node import Node

pytestmark = [pytest.mark.system, pytest.mark.timeout(120)]

BODY = bytes(16_000)
NUMBER = 8  # bytes
PERSISTENT = pika.BasicProperties(delivery_mode=2)
PATIENCE_S = 30.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The data folder on a disk of 32 MiB."""
    if reason := why_no_small_disk(tmp_path):
        pytest.skip(reason)
    with small_disk(tmp_path) as folder:
        yield folder


def connected(node: Node) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port, heartbeat=0))


class Flood(Thread):
    """A publisher that goes on until it is stopped, or its node is killed. Each message begins with its number."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self._connection = connected(node)
        self._goes_on = True
        self.start()

    def run(self) -> None:
        with suppress(pika.exceptions.AMQPConnectionError), closing(self._connection):
            channel = self._connection.channel()
            channel.queue_declare("q", durable=True)
            numbers = count()
            while self._goes_on:
                channel.basic_publish("", "q", next(numbers).to_bytes(NUMBER) + BODY, PERSISTENT)

    def stop(self) -> None:
        """Let it end as soon as its node reads from it."""
        self._goes_on = False


class Hunger(Thread):
    """Another program that takes whatever room a disk has, at any moment, until it is stopped."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._goes_on = True
        self.start()

    def run(self) -> None:
        with self._path.open("wb", buffering=0) as file:
            while self._goes_on:
                with suppress(OSError):
                    file.write(bytes(4096))

    def stop(self) -> None:
        self._goes_on = False
        self.join()


def until(claim: Callable[[], bool]) -> None:
    begun = time.monotonic()
    while not claim():
        assert time.monotonic() - begun < PATIENCE_S
        time.sleep(0.02)


def holds_back(node: Node) -> bool:
    """Return whether an alarm is raised."""
    with closing(http.client.HTTPConnection("127.0.0.1", node.http)) as asked:
        asked.request("GET", "/api/health/checks/alarms", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
        return asked.getresponse().status == http.HTTPStatus.SERVICE_UNAVAILABLE


def waiting(node: Node) -> int:
    with closing(connected(node)) as connection:
        return int(connection.channel().queue_declare("q", durable=True).method.message_count)


def take(channel: BlockingChannel) -> tuple[int, int]:
    """Return the delivery tag and the number of the first message that waits."""
    method, _, body = channel.basic_get("q")
    assert method is not None
    assert body is not None
    return int(method.delivery_tag), int.from_bytes(body[:NUMBER])


def first(node: Node) -> int:
    """Return the number of the first message that waits, which stays."""
    with closing(connected(node)) as connection:
        return take(connection.channel())[1]


def drain(node: Node, messages: int) -> int:
    """Settle so many messages, and wait until that is on disk. Return the number of the last."""
    number = -1
    with closing(connected(node)) as connection:
        channel = connection.channel()
        for _ in range(messages):
            tag, number = take(channel)
            channel.basic_ack(tag)
        # the answer waits for the disk, after what was settled
        channel.queue_declare("settled", durable=True)
        channel.queue_delete("settled")
    return number


def test_draining_ends_the_alarm_of_a_disk_that_publishers_have_filled(disk: Path):
    """Nothing that was settled comes back when the node is killed, and it starts on what is left."""
    node = Node(disk, settings=NO_WARNING)
    try:
        flood = Flood(node)
        until(lambda: holds_back(node))
        flood.stop()
        while flood.is_alive() or waiting(node):
            drain(node, waiting(node))
        until(lambda: not holds_back(node))
        node.kill()
        node = Node(disk, settings=NO_WARNING)
        assert waiting(node) == 0
        assert not holds_back(node)
        assert "damaged" not in node.log
    finally:
        node.kill()


def test_what_is_settled_on_a_disk_that_others_have_filled_stays_settled(disk: Path, tmp_path: Path):
    """Across kills and starts on the full disk; and when they make room, publishers go on."""
    filler = tmp_path / "filler"
    node = Node(disk, settings=NO_WARNING)
    try:
        flood = Flood(node)
        until(lambda: waiting(node) > 300)
        fill(filler)
        until(lambda: holds_back(node))
        for _ in range(2):
            settled = drain(node, waiting(node) // 2)
            node.kill()
            node = Node(disk, settings=NO_WARNING)
            assert first(node) > settled
        filler.unlink()
        until(lambda: not holds_back(node))
        flood.join()
    finally:
        node.kill()


def test_what_is_settled_stays_settled_while_others_take_whatever_room_there_is(disk: Path, tmp_path: Path):
    node = Node(disk, settings=NO_WARNING)
    try:
        flood = Flood(node)
        until(lambda: waiting(node) > 300)
        hunger = Hunger(tmp_path / "taken")
        try:
            until(lambda: holds_back(node))
            for _ in range(2):
                settled = drain(node, waiting(node) // 2)
        finally:
            hunger.stop()
        node.kill()
        node = Node(disk, settings=NO_WARNING)
        assert first(node) > settled
        (tmp_path / "taken").unlink()
        until(lambda: not holds_back(node))
        flood.join()
    finally:
        node.kill()


def test_a_transaction_that_no_disk_has_room_for_is_refused_as_a_whole(disk: Path):
    """It would wait for room for ever, and with it whatever makes room."""
    node = Node(disk, settings=NO_WARNING)
    try:
        with closing(connected(node)) as connection:
            channel = connection.channel()
            channel.queue_declare("q", durable=True)
            channel.tx_select()
            for _ in range(1500):
                channel.basic_publish("", "q", BODY, PERSISTENT)
            with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="the disk has no room"):
                channel.tx_commit()
            again = connection.channel()
            again.tx_select()
            again.basic_publish("", "q", BODY, PERSISTENT)
            again.tx_commit()
        assert waiting(node) == 1
        assert not holds_back(node)
    finally:
        node.kill()

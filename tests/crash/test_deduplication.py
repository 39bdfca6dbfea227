"""kill -9 while a client publishes messages with ids, and publishes again what was not confirmed: each arrives once."""

from __future__ import annotations

import random
import time
from collections import Counter
from pathlib import Path
from typing import Final

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.fields import FieldTable
from leveret.protocols.amqp091.codec.wire import BasicProperties, Method
from tests.harness.seldom import one_feature

from .line import Content, Line091, wait_for
from .node import Node, damage_in

pytestmark = pytest.mark.system

ROUNDS: Final = 10
WINDOW: Final = 100  # messages that are not confirmed
SWITCH: Final[FieldTable] = {"x-message-deduplication": True}


class Unsure:
    """A client that publishes numbers, each with itself as its id, until all are confirmed, over many connections."""

    def __init__(self) -> None:
        self.following = 0
        self.unconfirmed: dict[int, None] = {}
        self.repeated = 0
        self._sent: list[int] = []  # over this connection, by tag
        self._low = 0  # tags up to this one are confirmed

    def begin(self, line: Line091) -> None:
        """Publish again what may have got lost, over a new connection."""
        line.channel(1, self._hear)
        line.send(1, m.ConfirmSelect())
        self._sent, self._low = [], 0
        self.repeated += len(self.unconfirmed)
        for number in list(self.unconfirmed):
            self._publish(line, number)

    def act(self, line: Line091) -> None:
        while len(self._sent) - self._low < WINDOW:
            self.unconfirmed[self.following] = None
            self._publish(line, self.following)
            self.following += 1

    def _publish(self, line: Line091, number: int) -> None:
        properties = BasicProperties(headers={"x-deduplication-header": number}, delivery_mode=2)
        where = ("known", "") if number % 2 else ("", "present")
        line.publish(1, *where, properties, b"%d" % number)
        self._sent.append(number)

    def _hear(self, channel: int, what: Method | Content) -> None:
        if not isinstance(what, m.BasicAck):
            assert isinstance(what, m.ConfirmSelectOk), what
            return
        tags = range(self._low, what.delivery_tag) if what.multiple else [what.delivery_tag - 1]
        for tag in tags:
            self.unconfirmed.pop(self._sent[tag], None)
        if what.multiple or what.delivery_tag == self._low + 1:
            self._low = what.delivery_tag


def declare(line: Line091) -> None:
    line.channel(9)
    line.call(9, m.ExchangeDeclare("known", "fanout", durable=True, arguments=SWITCH))
    line.call(9, m.QueueDeclare("plain", durable=True))
    line.call(9, m.QueueDeclare("present", durable=True, arguments=SWITCH))
    line.call(9, m.QueueBind("plain", "known"))


def contents(line: Line091, queue: str) -> list[int]:
    """All numbers in a queue, which are settled."""
    found: list[int] = []
    ready = line.call(9, m.QueueDeclare(queue, passive=True))
    assert isinstance(ready, m.QueueDeclareOk)

    def hear(channel: int, what: Method | Content) -> None:
        if isinstance(what, Content):
            found.append(int(what.body))

    channel = {"plain": 11, "present": 12}[queue]
    line.channel(channel, hear)
    line.send(channel, m.BasicConsume(queue, no_ack=True))
    line.wait(lambda: len(found) == ready.message_count, f"what is in {queue}")
    return found


@pytest.mark.timeout(300)
@one_feature
@pytest.mark.parametrize("seed", [3])
def test_what_an_unsure_client_publishes_again_is_delivered_exactly_once(seed: int, tmp_path: Path) -> None:
    chance, client, folder = random.Random(seed), Unsure(), tmp_path / "data"
    for number in range(ROUNDS):
        is_deaf, node = number % 2 == 0, Node(folder)
        try:
            line = Line091(node.port)
            declare(line)
            client.begin(line)
            until = client.following + chance.randrange(50, 1500)
            while client.following < until:
                client.act(line)
                line.pump()
                wait_for([line], 0.05)
            if is_deaf:  # a window is on its way, of which it hears nothing
                line.wait(lambda: not client.unconfirmed, "confirms")
                client.act(line)
                del line.outgoing[: line.socket.send(line.outgoing)]
            time.sleep(chance.random() * 0.005)
        finally:
            node.kill()
        if not is_deaf:
            line.read_to_the_end()
        line.drop()
    node = Node(folder)
    try:
        line = Line091(node.port)
        declare(line)
        client.begin(line)
        line.wait(lambda: not client.unconfirmed, "the last confirms")
        found = Counter(contents(line, "plain") + contents(line, "present"))
        assert found == Counter(range(client.following))
        assert client.repeated >= WINDOW * ROUNDS // 2
        line.drop()
        node.stop()
    finally:
        node.kill()
    assert damage_in(folder) == []

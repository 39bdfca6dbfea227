"""The queues that the tests load, and what clients take out of them again after a restart."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import attrs

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import FieldTable, Method, UInt8
from leveret.queues.quorum_queue import LEVEL_MAX, USUAL_LEVEL
from leveret.server.cli.control_client import ControlClient

from .ledger import Ledger
from .line import TIMEOUT_S, Content, Line091, wait_for
from .messages import Found, Message, name_in
from .node import Inside, Node

FAR_MS: Final = 24 * 3_600_000  # longer than any run takes
HIGHEST: Final = 3
PRIORITIES: Final = (None, *range(HIGHEST + 3))  # in a quorum queue, none is 4 and not 0
QUEUES: Final[Mapping[str, FieldTable]] = {
    "plain": {},
    "work": {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "dead": {},
    "quorum": {"x-queue-type": "quorum", "x-delivery-limit": 1_000_000},
    "ranked": {"x-max-priority": UInt8(HIGHEST)},
    "short": {"x-max-length": 30, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "overflow"},
    "overflow": {},
    "brief": {"x-message-ttl": FAR_MS},
    "fan1": {},
    "fan2": {},
    "fan3": {},
    "desk": {},  # consumed in transactions
    "ten": {},  # consumed by 1.0
    "log": {"x-queue-type": "stream"},
}
STREAMS: Final = ("log",)
PORTION: Final = 200  # messages of a stream that are read at once
FAN: Final = ("fan1", "fan2", "fan3")
SIZES: Final = (0, 10, 100, 100, 100, 1000, 1000, 5000, 20_000)
INSPECTOR: Final = "inspector"
TAKING, COUNTING, CONFIRMING, KNOWING = 1, 2, 3, 99  # channels
SHORT: Final = 1000
LARGE: Final = 300_000  # more than a frame; once in a while
HUGE: Final = 6 << 20  # some of them are more than a small disk has room for


def ledger() -> Ledger:
    return Ledger(
        QUEUES,
        dead_letters={"work": "dead", "short": "overflow"},
        spilling={"short"},
        counting={"quorum"},
        shuffled={"dead"},
        ranked={"ranked": HIGHEST, "quorum": LEVEL_MAX},
        usual={"quorum": USUAL_LEVEL},
        streams=STREAMS,
    )


@attrs.define
class Scene:
    """What lasts over all starts of one node: the books, and what chance decides next."""

    seed: int
    ledger: Ledger = attrs.field(factory=ledger)
    numbers: Counter[str] = attrs.field(factory=Counter)
    random: random.Random = attrs.field(init=False)
    size_min: int = 0  # octets of each message, at least

    def __attrs_post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def message(self, publisher: str, persistent: bool = True, size_max: int = HUGE) -> Message:
        """The next message of a publisher."""
        chance = self.random
        size = LARGE if chance.random() < 0.003 else chance.choice(SIZES)
        size = min(size_max, max(self.size_min, size))
        expiration = str(FAR_MS) if chance.random() < 0.1 else ""
        self.numbers[publisher] += 1
        return Message(
            publisher, self.numbers[publisher], size, chance.choice(PRIORITIES), expiration, persistent
        )


def declare(line: Line091, channel: int) -> None:
    """Everything that the load publishes to; it is there, or comes into being."""
    for name, arguments in QUEUES.items():
        line.call(channel, m.QueueDeclare(name, durable=True, arguments=arguments))
    line.call(channel, m.ExchangeDeclare("all", "fanout", durable=True))
    for name in FAN:
        line.call(channel, m.QueueBind(name, "all"))


class Inspector:
    """A client that takes everything out of all queues without answering, and tells the ledger."""

    def __init__(self, scene: Scene, node: Node | Inside) -> None:
        self.scene = scene
        self.node = node
        self.line = Line091(node.port)
        self.channel = self.line.channel(TAKING)
        self.line.channel(COUNTING)
        self.contents: dict[str, list[Found]] = {}  # what it has taken

    def compare(self) -> None:
        """The queues of the scene must be there; everything in them is compared with the books, and held."""
        ledger = self.scene.ledger
        contents = {queue: self._all_of(queue) for queue in QUEUES}
        ledger.compare(contents, set(self._things()))
        self.contents = {queue: found for queue, found in contents.items() if queue not in STREAMS}
        for found in self._found():
            if (copy := ledger.copy_of(found)) is not None:
                copy.holder = INSPECTOR

    def _found(self) -> Iterator[Found]:
        for waiting in self.contents.values():
            yield from waiting

    def _all_of(self, queue: str) -> list[Found]:
        """Everything in a queue. Of a work queue, until nothing waits there: damaged messages are never delivered."""
        begun: list[Method] = []
        came: list[Found] = []
        count = self._waiting_in(queue)

        def hear(_: int, what: Method | Content) -> None:
            if isinstance(what, Content):
                assert isinstance(what.method, m.BasicDeliver), what
                tag, redelivered = what.method.delivery_tag, what.method.redelivered
                came.append(Found(queue, what.body, what.properties, redelivered, tag))
                if queue in STREAMS:
                    self.line.send(self.channel, m.BasicAck(tag))
            else:
                begun.append(what)

        self.line.call(self.channel, m.BasicQos(0, PORTION if queue in STREAMS else 0))
        self.line.handlers[self.channel] = hear
        arguments: FieldTable = {"x-stream-offset": "first"} if queue in STREAMS else {}
        self.line.send(self.channel, m.BasicConsume(queue, queue, arguments=arguments))
        deadline = time.monotonic() + TIMEOUT_S
        while not begun or (len(came) < count if queue in STREAMS else self._waiting_in(queue)):
            self.line.pump()
            assert time.monotonic() < deadline, f"'{queue}' does not give out all its messages"
            wait_for([self.line], 0.01)
        del self.line.handlers[self.channel]
        self.line.call(self.channel, m.BasicCancel(queue))
        return came

    def _waiting_in(self, queue: str) -> int:
        declared = self.line.call(COUNTING, m.QueueDeclare(queue, passive=True))
        assert isinstance(declared, m.QueueDeclareOk)
        return declared.message_count

    def _things(self) -> Iterator[tuple[str, str]]:
        """Which of the things in the books are there."""
        routes = cache(self._routes)
        for kind, name in self.scene.ledger.things:
            if kind == "binding":
                exchange, queue = name.split(" to ")
                is_there = f'"{queue}"' in routes(exchange)
            elif kind == "queue":
                is_there = self._knows(m.QueueDeclare(name, passive=True))
            else:
                is_there = self._knows(m.ExchangeDeclare(name, passive=True))
            if is_there:
                yield kind, name

    def _knows(self, passive: Method) -> bool:
        channel = self.line.channel(KNOWING)
        self.line.send(channel, passive)
        self.line.wait(lambda: self.line.answers, "an answer to a passive declaration")
        _, answer = self.line.answers.popleft()
        if isinstance(answer, m.ChannelClose):
            assert answer.reply_code == m.NOT_FOUND, answer
            self.line.send(channel, m.ChannelCloseOk())
            return False
        self.line.call(channel, m.ChannelClose(200))
        return True

    def _routes(self, exchange: str) -> str:
        """Where it would send a message."""
        client = ControlClient(f"http://127.0.0.1:{self.node.http}", "guest", "guest")
        answer = client.ask("GET", f"/api/leveret/explain?exchange={exchange}&key=key")
        return "" if answer.refused else answer.text

    # What becomes of what it holds.

    def answer(self, wanted: float) -> None:
        """Ack about that share of everything: here and there, or up to some message.

        Of messages that count how often they came back more are left, to come back."""
        chance = self.scene.random
        for queue, waiting in self.contents.items():
            share = wanted / 3 if queue in self.scene.ledger.counting else wanted
            if chance.random() < 0.5:
                acked = [found for found in waiting if chance.random() < share]
            else:
                acked = waiting[: int(len(waiting) * share)]
            for found in acked:
                self._ack(found, queue)

    def _ack(self, found: Found, queue: str) -> None:
        ledger = self.scene.ledger
        copy = ledger.copy_of(found)
        if copy is None:
            return
        ledger.settled(copy, ledger.deed(INSPECTOR, f"ack of {name_in(found.body)} of '{queue}'", True))
        self.line.send(self.channel, m.BasicAck(found.tag))

    def leave(self) -> None:
        """Give back what is left, and go; what it did is safe then, since something after it is."""
        ledger, line = self.scene.ledger, self.line
        back = ledger.deed(INSPECTOR, "close", True)
        left = [
            copy for found in self._found() if (copy := ledger.copy_of(found)) and copy.holder == INSPECTOR
        ]
        ledger.left(left, back)
        line.call(self.channel, m.ChannelClose(200))
        self._confirm(line.channel(CONFIRMING))
        line.drop()

    def _confirm(self, channel: int) -> None:
        """Publish something, and wait until it is safe.

        A node that is low on disk takes what came with the beginning of a connection's first message, and reads no
        more: the message is so short that it comes in one piece."""
        ledger, message = self.scene.ledger, self.scene.message(INSPECTOR, size_max=SHORT)
        self.line.call(channel, m.ConfirmSelect())
        deed = ledger.deed(INSPECTOR, f"publish of {message.name}")
        ledger.published(message, ["plain"], deed)
        self.line.publish(channel, "", "plain", message.properties, message.body)
        self.line.wait(lambda: self.line.answers, "a confirm")
        _, answer = self.line.answers.popleft()
        assert isinstance(answer, m.BasicAck), answer
        ledger.safe(deed)


def compare(scene: Scene, folder: Path, program: Sequence[str]) -> str:
    """Have a node of its own look at a folder, and the ledger complain of what is wrong. Returns the node's log."""
    node = Node(folder, program)
    try:
        inspector = Inspector(scene, node)
        inspector.compare()
        inspector.line.drop()
    finally:
        node.kill()
    return node.log

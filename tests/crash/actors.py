"""Clients that load a node: each does one thing at a time, by chance, and tells the ledger what it asks for and hears.

`act` sends something, or returns False if it has to wait for an answer first. Nothing waits here: what comes is heard
when the connection is pumped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import Final

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import Method

from .history import NOWHERE, THERE, Deed, History
from .line import Content, Line, Line091
from .messages import Found, Message
from .scene import FAN, STREAMS, Scene

WINDOW: Final = 100  # publishes without a confirm, unless somebody wants more commits than that
PREFETCH: Final = 60
STEPS_MAX: Final = 30  # in a transaction
PURGED: Final = "fan3"  # nobody consumes from it
CONFIRMS, CONSUMING, TX = 1, 2, 3  # channels


class Actor(ABC):
    """A client on a connection of its own."""

    line: Line

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.ledger = scene.ledger
        self.chance = scene.random
        self.name = name
        self.window = WINDOW
        self.promises = 0  # confirms, commits and the like that it has read

    @abstractmethod
    def act(self) -> bool:
        """Do something. False: not now."""

    def deed(self, text: str, implied: bool = False) -> Deed:
        return self.ledger.deed(self.name, text, implied)

    def promised(self, deed: Deed) -> None:
        self.promises += 1
        self.ledger.safe(deed)


class Actor091(Actor):
    """A client that publishes with confirms."""

    line: Line091

    def __init__(self, scene: Scene, port: int, name: str) -> None:
        super().__init__(scene, name)
        self.line = Line091(port)
        self.line.channel(CONFIRMS)
        self.line.call(CONFIRMS, m.ConfirmSelect())
        self.line.handlers[CONFIRMS] = self._hear_confirm
        self.published = 0
        self.unconfirmed: dict[int, Deed | None] = {}  # None: a message that promises nothing

    def publish(self, message: Message, exchange: str, key: str, queues: Iterable[str]) -> None:
        deed = self.deed(f"publish of {message.name}") if message.persistent else None
        self.ledger.published(message, queues, deed or Deed(self.name, -1, "publish, not persistent"))
        self.published += 1
        self.unconfirmed[self.published] = deed
        self.line.publish(CONFIRMS, exchange, key, message.properties, message.body)

    def _hear_confirm(self, channel: int, what: Method | Content) -> None:
        if isinstance(what, m.BasicNack):
            for tag in _tags(what, self.unconfirmed):
                if (refused := self.unconfirmed.pop(tag)) is not None:
                    self.ledger.refused(refused)
            return
        assert isinstance(what, m.BasicAck), what
        for tag in _tags(what, self.unconfirmed):
            deed = self.unconfirmed.pop(tag)
            if deed is not None:
                self.promised(deed)


def _tags(method: m.BasicAck | m.BasicNack, open_ones: dict[int, Deed | None]) -> list[int]:
    if not method.multiple:
        return [method.delivery_tag]
    return [tag for tag in open_ones if tag <= method.delivery_tag]


class Publisher(Actor091):
    """Publishes everywhere."""

    TARGETS: Final = ("plain", "work", "quorum", "ranked", "short", "brief", "desk", "ten", "log")

    def act(self) -> bool:
        room = self.window - len(self.unconfirmed)
        if room <= 0 or len(self.line.outgoing) > 1 << 20:
            return False
        for _ in range(min(room, self.chance.randrange(1, 20))):
            message = self.scene.message(self.name, self.chance.random() > 0.05)
            if self.chance.random() < 0.2:
                self.publish(message, "all", "", FAN)
            else:
                queue = self.chance.choice(self.TARGETS if message.persistent else self.TARGETS[:-1])
                self.publish(message, "", queue, [queue])
        return True


class Worker(Actor091):
    """Consumes from some queues, answers in every way there is, goes and comes back."""

    # With prefetch: what comes back to the last one should not be gone at once, for it counts that.
    QUEUES: Final = {"plain": PREFETCH, "work": PREFETCH, "quorum": 3}

    def __init__(self, scene: Scene, port: int, name: str) -> None:
        super().__init__(scene, port, name)
        self.held: dict[int, tuple[str, History]] = {}  # queue and copy, by delivery tag
        self.answers: list[Callable[[], None]] = [self._ack, self._ack_all, self._requeue, self._reject]
        self._opens = False
        self._closing: Deed | None = None
        self._consume()

    def _consume(self) -> None:
        line = self.line
        line.handlers[CONSUMING] = self._hear
        line.send(CONSUMING, m.ChannelOpen())
        for queue, prefetch in self.QUEUES.items():
            line.send(CONSUMING, m.BasicQos(0, prefetch))
            line.send(CONSUMING, m.BasicConsume(queue, queue))
        line.send(CONSUMING, m.BasicConsume("log", "log", arguments={"x-stream-offset": "next"}))

    @property
    def is_closing(self) -> bool:
        return self._closing is not None

    def act(self) -> bool:
        if self.is_closing:
            return False
        if self.chance.random() < 0.2 and len(self.unconfirmed) < self.window:
            queue = self.chance.choice(list(self.QUEUES))
            self.publish(self.scene.message(self.name), "", queue, [queue])
        elif self.chance.random() < 0.02:
            self._closing = self.deed("close of the channel", True)
            self.line.send(CONSUMING, m.ChannelClose(200))
        elif self.held:
            self.chance.choice(self.answers)()
        else:
            return False
        return True

    def _hear(self, channel: int, what: Method | Content) -> None:
        if isinstance(what, m.ChannelCloseOk):
            assert self._closing is not None
            self.ledger.left([copy for _, copy in self.held.values()], self._closing)
            self.held.clear()
            self._closing = None
            self._consume()
        if not isinstance(what, Content):
            return
        method = what.method
        assert isinstance(method, m.BasicDeliver)
        found = Found(method.consumer_tag, what.body, what.properties, method.redelivered)
        copy = self.ledger.delivered(found, self.name)
        if found.queue in STREAMS:
            self.line.send(CONSUMING, m.BasicAck(method.delivery_tag))  # for credit only
        elif copy is not None:
            self.held[method.delivery_tag] = found.queue, copy

    def has(self, queue: str) -> list[int]:
        """The delivery tags of what it holds of a queue."""
        return [tag for tag, (of, _) in self.held.items() if of == queue]

    def _some(self) -> int:
        return self.chance.choice(list(self.held))

    def _ack(self) -> None:
        for _ in range(min(len(self.held), self.chance.randrange(1, 10))):
            self._ack_tag(self._some())

    def ack_one(self, queue: str) -> None:
        """The oldest that it has of a queue."""
        self._ack_tag(self.has(queue)[0])

    def _ack_tag(self, tag: int) -> None:
        self._settle(tag)
        self.line.send(CONSUMING, m.BasicAck(tag))

    def _ack_all(self) -> None:
        """Up to one of them; now and then in one go with those after it."""
        last = self._some()
        for tag in [tag for tag in self.held if tag <= last]:
            self._settle(tag)
        self.line.send(CONSUMING, m.BasicAck(last, multiple=True))

    def _settle(self, tag: int) -> None:
        _, copy = self.held.pop(tag)
        self.ledger.settled(copy, self.deed(f"ack of {copy.name}", True))

    def _requeue(self) -> None:
        self._requeue_tag(self._some(), self.chance.random() < 0.3)

    def requeue_one(self, queue: str) -> None:
        self._requeue_tag(self.has(queue)[0], False)

    def _requeue_tag(self, last: int, multiple: bool) -> None:
        tags = [tag for tag in self.held if tag <= last] if multiple else [last]
        back = self.deed("requeue", True)
        self.ledger.left([self.held.pop(tag)[1] for tag in tags], back)
        if multiple or self.chance.random() < 0.5:
            self.line.send(CONSUMING, m.BasicNack(last, multiple, requeue=True))
        else:
            self.line.send(CONSUMING, m.BasicReject(last, requeue=True))

    def _reject(self) -> None:
        self._reject_tag(self._some())

    def reject_one(self, queue: str) -> None:
        self._reject_tag(self.has(queue)[0])

    def _reject_tag(self, tag: int) -> None:
        """Where there is a queue for dead letters, it gets them."""
        queue, copy = self.held.pop(tag)
        self.ledger.died(copy, queue, self.deed(f"reject of {copy.name}", True))
        self.line.send(CONSUMING, m.BasicReject(tag, requeue=False))


class Clerk(Actor091):
    """Works in transactions: publishes to several queues and acks what it had, all or nothing."""

    TARGETS: Final = ("plain", "quorum", "fan1", "ranked", "desk")
    PUBLISHER: Final = "clerk's"

    def __init__(self, scene: Scene, port: int, name: str) -> None:
        super().__init__(scene, port, name)
        self.held: dict[int, History] = {}  # by delivery tag
        self.ending: Deed | None = None
        self._drafts: list[tuple[Message, str]] = []  # published in this transaction
        self._acked: dict[int, History] = {}
        self.refused_commits = 0
        self.line.handlers[TX] = self._hear
        self._open()

    def _open(self) -> None:
        line = self.line
        line.send(TX, m.ChannelOpen())
        line.send(TX, m.TxSelect())
        line.send(TX, m.BasicQos(0, PREFETCH))
        line.send(TX, m.BasicConsume("desk", "desk"))

    def act(self) -> bool:
        if not self.is_idle:
            return False
        for _ in range(self.chance.randrange(1, STEPS_MAX)):
            if self.held and self.chance.random() < 0.5:
                self.ack_in_transaction()
            else:
                self.publish_in_transaction()
        if self.chance.random() < 0.2:
            self.roll_back()
        else:
            self.commit()
        return True

    @property
    def is_idle(self) -> bool:
        """The last commit or rollback has been answered."""
        return self.ending is None

    def ack_in_transaction(self) -> None:
        tag = self.chance.choice(list(self.held))
        self._acked[tag] = self.held.pop(tag)
        self.line.send(TX, m.BasicAck(tag))

    def publish_in_transaction(self) -> None:
        message, queue = self.scene.message(self.PUBLISHER), self.chance.choice(self.TARGETS)
        self.ledger.prepared(message)
        self._drafts.append((message, queue))
        self.line.publish(TX, "", queue, message.properties, message.body)

    def roll_back(self) -> None:
        self.ending = self.deed("rollback", True)
        self.line.send(TX, m.TxRollback())

    def commit(self) -> None:
        self.ending = commit = self.deed("commit")
        for message, queue in self._drafts:
            self.ledger.published(message, [queue], commit)
        for copy in self._acked.values():
            self.ledger.settled(copy, commit)
        self._acked.clear()
        self._drafts.clear()
        self.line.send(TX, m.TxCommit())

    def _hear(self, channel: int, what: Method | Content) -> None:
        if isinstance(what, m.TxCommitOk):
            assert self.ending is not None
            self.promised(self.ending)
            self.ending = None
        elif isinstance(what, m.TxRollbackOk):
            self.held |= self._acked
            self._acked.clear()
            self._drafts.clear()
            self.ending = None
        elif isinstance(what, m.ChannelClose):
            self._hear_refusal(what)
        elif isinstance(what, Content):
            method = what.method
            assert isinstance(method, m.BasicDeliver)
            found = Found("desk", what.body, what.properties, method.redelivered)
            if (copy := self.ledger.delivered(found, self.name)) is not None:
                self.held[method.delivery_tag] = copy

    def _hear_refusal(self, closed: m.ChannelClose) -> None:
        """The disk had no room for what was to be committed: the channel is gone, and all that it held comes back."""
        assert closed.reply_code == m.PRECONDITION_FAILED, closed
        assert "no room" in closed.reply_text, closed
        assert self.ending is not None
        self.ledger.refused(self.ending)
        self.refused_commits += 1
        self.ending = None
        self.ledger.left(self.held.values(), self.deed("end of the channel", True))
        self.held.clear()
        self.line.send(TX, m.ChannelCloseOk())
        self._open()


class Architect(Actor091):
    """Declares, binds and deletes durable things, and purges a queue.

    Things have books of their own: they are on disk before the messages of the same moment are."""

    NAMES: Final = 12  # of queues and exchanges each

    def __init__(self, scene: Scene, port: int, name: str) -> None:
        super().__init__(scene, port, name)
        self.line.channel(CONSUMING, self._hear)
        self._waiting: tuple[Deed, type[Method]] | None = None  # for what answer

    @property
    def is_idle(self) -> bool:
        """Every question has been answered."""
        return self._waiting is None

    def act(self) -> bool:
        if not self.is_idle:
            return False
        number = self.chance.randrange(self.NAMES)
        chance = self.chance.random()
        if chance < 0.3:
            self.queue(f"queue-{number}")
        elif chance < 0.5:
            self.exchange(f"exchange-{number}")
        elif chance < 0.9:
            self.binding(f"exchange-{number}", f"queue-{self.chance.randrange(self.NAMES)}")
        elif chance < 0.95:
            self.purge()
        else:
            self.publish(self.scene.message(self.name), "", PURGED, [PURGED])
        return True

    def _ask(self, method: Method, answer: type[Method], deed: Deed) -> None:
        self.line.send(CONSUMING, method)
        self._waiting = deed, answer

    def _hear(self, channel: int, what: Method | Content) -> None:
        assert self._waiting is not None
        deed, answer = self._waiting
        assert isinstance(what, answer), (deed, what)
        self._waiting = None
        if answer is m.QueuePurgeOk:
            self.ledger.purged(PURGED)  # nobody promises that this is on disk
        else:
            self.promised(deed)

    def _plan(self, text: str) -> Deed:
        return self.ledger.deed(f"{self.name}'s plans", text)

    def _there(self, kind: str, name: str) -> History | None:
        thing = self.ledger.thing(kind, name)
        return thing if thing.place == THERE else None

    def _gone(self, kind: str, name: str) -> History | None:
        thing = self.ledger.thing(kind, name)
        return thing if thing.place == NOWHERE else None

    def queue(self, name: str) -> None:
        """Declare it, or delete it if it is there."""
        if thing := self._gone("queue", name):
            thing.goes(THERE, deed := self._plan(f"declare of '{name}'"))
            self._ask(m.QueueDeclare(name, durable=True), m.QueueDeclareOk, deed)
        else:
            deed = self._deleted("queue", name)
            self._ask(m.QueueDelete(name), m.QueueDeleteOk, deed)

    def exchange(self, name: str) -> None:
        """Declare it, or delete it if it is there."""
        if thing := self._gone("exchange", name):
            thing.goes(THERE, deed := self._plan(f"declare of '{name}'"))
            self._ask(m.ExchangeDeclare(name, "direct", durable=True), m.ExchangeDeclareOk, deed)
        else:
            deed = self._deleted("exchange", name)
            self._ask(m.ExchangeDelete(name), m.ExchangeDeleteOk, deed)

    def _deleted(self, kind: str, name: str) -> Deed:
        """It goes, with its bindings."""
        deed = self._plan(f"delete of '{name}'")
        self.ledger.thing(kind, name).goes(NOWHERE, deed)
        for (other, ends), thing in self.ledger.things.items():
            if other == "binding" and name in ends.split(" to ") and thing.place == THERE:
                thing.goes(NOWHERE, deed)
        return deed

    def binding(self, exchange: str, queue: str) -> None:
        """Bind, or unbind, if both are there."""
        if not (self._there("exchange", exchange) and self._there("queue", queue)):
            return
        if thing := self._gone("binding", f"{exchange} to {queue}"):
            thing.goes(THERE, deed := self._plan(f"bind of '{queue}'"))
            self._ask(m.QueueBind(queue, exchange, "key"), m.QueueBindOk, deed)
        elif thing := self._there("binding", f"{exchange} to {queue}"):
            thing.goes(NOWHERE, deed := self._plan(f"unbind of '{queue}'"))
            self._ask(m.QueueUnbind(queue, exchange, "key"), m.QueueUnbindOk, deed)

    def purge(self) -> None:
        deed = self.deed(f"purge of '{PURGED}'", True)
        self.ledger.purging(PURGED, deed)
        self.line.send(CONSUMING, m.QueuePurge(PURGED))
        self._waiting = deed, m.QueuePurgeOk

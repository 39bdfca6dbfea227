"""Clients of one thread that never wait: they publish with confirms, and take what is in queues in every way there is.

`act` sends what may be sent now, and returns False if that is nothing. What has come is heard as the lines are pumped.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from typing import Final

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import Method
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from leveret.protocols.amqp10.codec.values import Described
from tests.amqp10.client import Receiver
from tests.crash.line import Content, Line, Line091, Line10
from tests.crash.messages import Message
from tests.living.books import Books, Copy
from tests.living.plan import PRIORITIES

CHANNEL: Final = 1
CREDIT: Final = 200
OUTGOING_MAX: Final = 1 << 20
PREFETCHES: Final = (10, 100, 1000)
REJECTED: Final = 0.3  # the share of messages for which a picky consumer has no use
RETURNED: Final = 0.1  # the share that it gives back, the first time


class Client(ABC):
    """A client on a connection of its own."""

    line: Line

    @abstractmethod
    def act(self) -> bool:
        """Send something. False: there is nothing to send now."""


class Publisher(Client):
    """Publishes to an exchange or a queue, under two names in turn, with few messages unconfirmed at a time."""

    line: Line091

    def __init__(
        self,
        port: int,
        books: Books,
        chance: random.Random,
        name: str,
        address: tuple[str, str],
        targets: Sequence[str],
        window: int,
        sizes: Sequence[int],
        messages_max: int,
    ) -> None:
        """`address` is an exchange and a routing key, `targets` are the queues from which the messages have to come."""
        self.line = Line091(port)
        self.line.call(self.line.channel(CHANNEL), m.ConfirmSelect())
        self.line.handlers[CHANNEL] = self._hear
        self._books = books
        self._chance = chance
        self._names = (f"{name}.a", f"{name}.b")
        self._address = address
        self._targets = targets
        self._window = window
        self._messages_max = messages_max
        self._sizes = sizes
        self.published = 0
        self.confirmed = 0
        self._unconfirmed: dict[int, Message] = {}  # by delivery tag

    def stop(self) -> None:
        """Publish nothing more."""
        self._messages_max = self.published

    @property
    def is_over(self) -> bool:
        return self.published >= self._messages_max

    @property
    def is_confirmed(self) -> bool:
        return not self._unconfirmed

    def act(self) -> bool:
        """Publish as many as may be unconfirmed, once all before them are: commits then have so many."""
        if self.is_over or self._unconfirmed or len(self.line.outgoing) > OUTGOING_MAX:
            return False
        for _ in range(self._window):
            self._publish()
        return True

    def _publish(self) -> None:
        self.published += 1
        chance, number = self._chance, self.published
        message = Message(
            self._names[number % 2], number, chance.choice(self._sizes), chance.choice(PRIORITIES)
        )
        self._books.sent(message, self._targets)
        self._unconfirmed[number] = message
        self.line.publish(CHANNEL, *self._address, message.properties, message.body)

    def _hear(self, channel: int, what: Method | Content) -> None:
        assert isinstance(what, m.BasicAck), what
        tags = [
            tag
            for tag in self._unconfirmed
            if tag == what.delivery_tag or (what.multiple and tag < what.delivery_tag)
        ]
        self.confirmed += len(tags)
        for tag in tags:
            self._books.confirmed(self._unconfirmed.pop(tag), self._targets)


class Consumer(Client):
    """Consumes from one queue over AMQP 0-9-1, and acknowledges what has come so far in one go; or nothing at all."""

    line: Line091

    def __init__(
        self, port: int, books: Books, chance: random.Random, queue: str, is_holding: bool = False
    ) -> None:
        self.line = Line091(port)
        self.line.call(self.line.channel(CHANNEL), m.BasicQos(0, chance.choice(PREFETCHES)))
        self.line.handlers[CHANNEL] = self._hear
        self.line.send(CHANNEL, m.BasicConsume(queue))
        self._books = books
        self._queue = queue
        self._is_holding = is_holding
        self.held: dict[int, Copy] = {}  # by delivery tag

    def _hear(self, channel: int, what: Method | Content) -> None:
        if not isinstance(what, Content):
            assert isinstance(what, m.BasicConsumeOk), what
            return
        assert isinstance(what.method, m.BasicDeliver), what
        copy = self._books.came(self._queue, what.body, what.method.redelivered)
        if copy is None:
            self.line.send(CHANNEL, m.BasicAck(what.method.delivery_tag))
        else:
            self.held[what.method.delivery_tag] = copy

    def act(self) -> bool:
        if self._is_holding or not self.held:
            return False
        self._books.settled(self.held.values())
        self.line.send(CHANNEL, m.BasicAck(max(self.held), multiple=True))
        self.held.clear()
        return True


class PickyConsumer(Consumer):
    """Acknowledges each message by itself, rejects some, and gives some back, once."""

    def __init__(self, port: int, books: Books, chance: random.Random, queue: str, heir: str) -> None:
        """`heir` is the queue that gets what is rejected."""
        super().__init__(port, books, chance, queue)
        self._chance = chance
        self._heir = heir
        self._returned: set[str] = set()  # names

    def act(self) -> bool:
        if not self.held:
            return False
        for tag, copy in self.held.items():
            self._answer(tag, copy)
        self.held.clear()
        return True

    def _answer(self, tag: int, copy: Copy) -> None:
        chance, name = self._chance.random(), copy.message.name
        if chance < REJECTED:
            self._books.moved(copy, self._heir)
            self.line.send(CHANNEL, m.BasicReject(tag, requeue=False))
        elif chance < REJECTED + RETURNED and name not in self._returned:
            self._returned.add(name)
            self._books.left([copy])
            self.line.send(CHANNEL, m.BasicReject(tag, requeue=True))
        else:
            self._books.settled([copy])
            self.line.send(CHANNEL, m.BasicAck(tag))


class Selector(Client):
    """Receives from one queue over AMQP 1.0 what suits a selector."""

    line: Line10

    def __init__(self, port: int, books: Books, queue: str, condition: str) -> None:
        self.line = Line10(port)
        self._books = books
        self._queue = queue
        self._condition = condition
        self._receiver = Receiver(self.line.session, condition)
        wanted = {Symbol("selector"): Described(Symbol("apache.org:selector-filter:string"), condition)}
        self.line.session.attach(self._receiver, source=p.Source(address=f"/queues/{queue}", filter=wanted))
        self.line.wait(lambda: self._receiver.attached, "an answer to attach")
        self._receiver.want(CREDIT)

    def act(self) -> bool:
        came: deque = self._receiver.deliveries
        if not came:
            return False
        while came:
            delivery = came.popleft()
            redelivered = delivery.header.first_acquirer is False
            copy = self._books.came(self._queue, delivery.body, redelivered, self._condition)
            if copy is not None:
                self._books.settled([copy])
            self._receiver.accept(delivery)
        if self._receiver.credit < CREDIT // 2:
            self._receiver.want(CREDIT)
        return True

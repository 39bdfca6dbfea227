"""Clients of each protocol with one set of verbs: publish, consume, hear what has come, answer it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final, Literal, TypeAlias

import attrs

from protocols.amqp010.codec import commands as c
from protocols.amqp091.codec import methods as m
from protocols.amqp091.codec.wire import BasicProperties
from protocols.amqp10.codec import performatives as p
from tests.amqp010.peer import Peer as Peer010
from tests.amqp091.peer import Content
from tests.amqp091.peer import Peer as Peer091
from tests.amqp10.client import Receiver, Sender
from tests.amqp10.parts import Delivery as Delivery10
from tests.amqp10.parts import data
from tests.amqp10.peer import Peer as Peer10
from tests.harness.bench import ClientBench
from tests.harness.peer import JoinedPeer

Outcome: TypeAlias = Literal["accept", "reject", "requeue"]
PERSISTENT: Final = BasicProperties(delivery_mode=2)
EMPTY_FRAME: Final = b"\0\0\0\x08\x02\0\0\0"  # a heartbeat of AMQP 1.0
PREFETCH: Final = 5  # messages that each consumer has at most


@attrs.frozen
class Given:
    """A delivery, and what its client answers it by."""

    queue: str
    body: bytes
    redelivered: bool
    token: object


class Client(ABC):
    """One connection, which publishes with confirms and consumes with answers."""

    def __init__(self, peer: JoinedPeer) -> None:
        self.peer = peer
        self.confirmed: list[bytes] = []  # bodies, since the last look
        self.refused: list[bytes] = []
        self.given: list[Given] = []
        self.consumes: set[str] = set()

    @abstractmethod
    def publish(self, queue: str, body: bytes) -> None:
        """Publish a persistent message."""

    @abstractmethod
    def consume(self, queue: str) -> None:
        """Begin to consume, with answers and a prefetch."""

    @abstractmethod
    def hear(self) -> None:
        """Work in what has come."""

    @abstractmethod
    def answer(self, given: Given, outcome: Outcome) -> None:
        """Answer a delivery."""

    def beat(self) -> None:
        """Send a heartbeat."""


class Client091(Client):
    def __init__(self, bench: ClientBench) -> None:
        super().__init__(peer := Peer091(bench))
        self._channel = peer.open().channel()
        self._channel.call(m.ConfirmSelect())
        self._channel.prefetch(PREFETCH)
        self._waiting: dict[int, bytes] = {}  # by tag
        self._last = 0

    def publish(self, queue: str, body: bytes) -> None:
        self._last += 1
        self._waiting[self._last] = body
        self._channel.publish("", queue, body, PERSISTENT)

    def consume(self, queue: str) -> None:
        self.consumes.add(queue)
        self._channel.send(m.BasicConsume(queue=queue, consumer_tag=queue))

    def hear(self) -> None:
        for what in self._channel.all():
            if isinstance(what, Content) and isinstance(what.method, m.BasicDeliver):
                method = what.method
                self.given.append(
                    Given(method.consumer_tag, what.body, method.redelivered, method.delivery_tag)
                )
            elif isinstance(what, m.BasicAck | m.BasicNack):
                into = self.confirmed if isinstance(what, m.BasicAck) else self.refused
                tags = [
                    tag
                    for tag in self._waiting
                    if tag == what.delivery_tag or (what.multiple and tag < what.delivery_tag)
                ]
                into += [self._waiting.pop(tag) for tag in tags]

    def answer(self, given: Given, outcome: Outcome) -> None:
        tag = given.token
        assert isinstance(tag, int)
        if outcome == "accept":
            self._channel.send(m.BasicAck(tag, False))
        else:
            self._channel.send(m.BasicReject(tag, outcome == "requeue"))


class Client10(Client):
    def __init__(self, bench: ClientBench) -> None:
        super().__init__(peer := Peer10(bench))
        self._peer10 = peer
        self._session = peer.open("guest").begin()
        self._senders: dict[str, Sender] = {}
        self._receivers: dict[str, Receiver] = {}
        self._waiting: dict[int, bytes] = {}  # by delivery id

    def publish(self, queue: str, body: bytes) -> None:
        if queue not in self._senders:
            self._senders[queue] = self._session.sender(f"/queues/{queue}")
        number = self._senders[queue].send(p.Header(durable=True), data(body))
        self._waiting[number] = body

    def consume(self, queue: str) -> None:
        self.consumes.add(queue)
        receiver = self._receivers[queue] = self._session.receiver(f"/queues/{queue}")
        receiver.want(PREFETCH)

    def hear(self) -> None:
        self._peer10.read()
        for number in [each for each in self._waiting if self._session.outcomes.get(each) is not None]:
            is_taken = isinstance(self._session.outcomes[number], p.Accepted)
            (self.confirmed if is_taken else self.refused).append(self._waiting.pop(number))
        for queue, receiver in self._receivers.items():
            for delivery in receiver.all():
                redelivered = bool(delivery.header.delivery_count) or not delivery.header.first_acquirer
                self.given.append(Given(queue, delivery.body, redelivered, delivery))

    def beat(self) -> None:
        self.peer.send_bytes(EMPTY_FRAME)

    def answer(self, given: Given, outcome: Outcome) -> None:
        state: p.DeliveryState = p.Accepted()
        if outcome == "reject":
            state = p.Rejected()
        elif outcome == "requeue":
            state = p.Modified(delivery_failed=True)
        receiver = self._receivers[given.queue]
        assert isinstance(given.token, Delivery10)
        receiver.answer(state, given.token)
        receiver.want(PREFETCH - len(receiver.unsettled))


class Client010(Client):
    def __init__(self, bench: ClientBench, name: str) -> None:
        super().__init__(peer := Peer010(bench))
        self._peer010 = peer
        self._session = peer.open("guest", "guest").attach(name)
        self._waiting: dict[int, bytes] = {}  # by command id

    def publish(self, queue: str, body: bytes) -> None:
        delivery = c.DeliveryProperties(routing_key=queue, delivery_mode=2)
        self._waiting[self._session.publish(queue, body, delivery=delivery, sync=True)] = body

    def consume(self, queue: str) -> None:
        self.consumes.add(queue)
        self._session.subscribe(queue, messages=PREFETCH)

    def hear(self) -> None:
        self._peer010.read()
        for number in [each for each in self._waiting if each in self._session.completed]:
            self.confirmed.append(self._waiting.pop(number))
        for queue, inbox in self._session.inboxes.items():
            for message in inbox.all():
                self.given.append(Given(queue, message.body, bool(message.delivery.redelivered), message.id))

    def beat(self) -> None:
        self._peer010.control(c.ConnectionHeartbeat())

    def answer(self, given: Given, outcome: Outcome) -> None:
        number = given.token
        assert isinstance(number, int)
        transfers = c.SequenceSet()
        transfers.add(number)
        if outcome == "accept":
            self._session.send(c.MessageAccept(transfers))
        elif outcome == "reject":
            self._session.send(c.MessageReject(transfers, 0, ""))
        else:
            self._session.send(c.MessageRelease(transfers, True))
        self._session.complete(number)

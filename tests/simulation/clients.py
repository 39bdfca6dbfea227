"""Clients of each protocol with one set of verbs: publish, consume, hear what has come, answer it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from random import Random
from typing import Final, Literal, TypeAlias

import attrs

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import ULong
from tests.amqp010.client import ClientSession
from tests.amqp010.peer import Peer as Peer010
from tests.amqp091.peer import ClientChannel, Content
from tests.amqp091.peer import Peer as Peer091
from tests.amqp10.client import Receiver, Sender
from tests.amqp10.controller import Control, in_tx
from tests.amqp10.parts import VALUE, data, section
from tests.amqp10.parts import Delivery as Delivery10
from tests.amqp10.parts import annotations as annotations_of
from tests.amqp10.peer import Peer as Peer10
from tests.harness.peer import JoinedPeer

from .node import Connection, SimulatedNode

Outcome: TypeAlias = Literal["accept", "reject", "requeue"]
PERSISTENT: Final = BasicProperties(delivery_mode=2)
EMPTY_FRAME: Final = b"\0\0\0\x08\x02\0\0\0"  # a heartbeat of AMQP 1.0
UNDELIVERABLE: Final = p.Modified(delivery_failed=True, undeliverable_here=True)
PREFETCH: Final = 5  # messages that each consumer has at most


@attrs.frozen
class Given:
    """A delivery, and what its client answers it by."""

    queue: str
    body: bytes
    redelivered: bool
    token: object
    is_fetched: bool = False  # by the connection for transactions, to be answered in one


class Client(ABC):
    """One connection, which publishes with confirms and consumes with answers."""

    def __init__(self, node: SimulatedNode, name: str, peer: JoinedPeer, random: Random) -> None:
        self.peer, self.name = peer, name
        self._node, self._random = node, random
        self.connections = [Connection(node, peer, random)]
        self.confirmed: list[bytes] = []  # bodies, since the last look
        self.refused: list[bytes] = []
        self.given: list[Given] = []
        self.consumes: set[str] = set()
        self.held_back: list[tuple[str, bytes]] = []  # queues and bodies of its open transaction,
        self.answers: dict[bytes, Outcome] = {}  # and its answers, by body
        self.is_in_transaction = False
        self.fetches: set[str] = set()  # queues of which it has fetched messages

    @abstractmethod
    def publish(self, queue: str, body: bytes, delay_ms: int = 0) -> None:
        """Publish a persistent message, which may ask to wait."""

    def _second(self, peer: JoinedPeer) -> None:
        """Have a second connection, for transactions: what a commit holds back holds up no deliveries."""
        self.connections.append(Connection(self._node, peer, self._random))

    @property
    def waits(self) -> bool:
        """Return whether the broker does not read from it."""
        return any(each.waits for each in self.connections)

    def promised(self) -> int:
        """Return the commit for which the broker holds back the last of what was heard since the last call."""
        found = max(each.promised for each in self.connections)
        for each in self.connections:
            each.promised = 0
        return found

    def go(self) -> None:
        """Its connections break off."""
        for each in self.connections:
            each.end()

    @abstractmethod
    def begin(self) -> None:
        """Begin a transaction."""

    @abstractmethod
    def publish_held(self, queue: str, body: bytes) -> None:
        """Publish a persistent message in the transaction."""

    @abstractmethod
    def fetch(self, queue: str) -> None:
        """Ask for one message, to be answered in a transaction."""

    @abstractmethod
    def answer_held(self, given: Given, outcome: Outcome) -> None:
        """Answer a message that was fetched, in the transaction."""

    def is_given_up(self, given: Given) -> bool:
        """Return whether a delivery goes back to its queue if the transaction that answers it is rolled back."""
        return False

    @abstractmethod
    def end(self, is_committed: bool) -> None:
        """Commit the transaction, or roll it back. What is committed counts as confirmed once that is answered."""

    @abstractmethod
    def consume(self, queue: str) -> None:
        """Begin to consume, with answers and a prefetch."""

    @abstractmethod
    def hear(self) -> None:
        """Work in what has come."""

    @abstractmethod
    def answer(self, given: Given, outcome: Outcome) -> None:
        """Answer a delivery."""

    def avoids(self, given: Given) -> bool:
        """Return whether a delivery that it has answered by `requeue` must not come to the same link again."""
        return False

    def beat(self) -> None:
        """Send a heartbeat."""


class Client091(Client):
    def __init__(self, node: SimulatedNode, name: str, random: Random) -> None:
        super().__init__(node, name, peer := Peer091(node), random)
        self._channel = peer.open().channel()
        self._transactional: ClientChannel | None = None
        self._fetched_from: list[str] = []  # queues, of fetches that are not answered yet
        self._committed: list[list[bytes]] = []  # whose commits are not answered yet
        self._channel.call(m.ConfirmSelect())
        self._channel.prefetch(PREFETCH)
        self._waiting: dict[int, bytes] = {}  # by tag
        self._last = 0

    def publish(self, queue: str, body: bytes, delay_ms: int = 0, exchange: str = "") -> None:
        self._last += 1
        self._waiting[self._last] = body
        headers = {"x-delay": delay_ms} if delay_ms else None
        self._channel.publish(exchange, queue, body, BasicProperties(delivery_mode=2, headers=headers))

    def begin(self) -> None:
        if self._transactional is None:
            peer = Peer091(self._node)
            self._second(peer)
            self._transactional = peer.open().channel()
            self._transactional.call(m.TxSelect())

    def publish_held(self, queue: str, body: bytes) -> None:
        assert self._transactional is not None
        self._transactional.publish("", queue, body, PERSISTENT)

    def fetch(self, queue: str) -> None:
        assert self._transactional is not None
        self.fetches.add(queue)
        self._fetched_from.append(queue)
        self._transactional.send(m.BasicGet(queue, False))

    def answer_held(self, given: Given, outcome: Outcome) -> None:
        assert self._transactional is not None
        self._answer(self._transactional, given, outcome)

    def end(self, is_committed: bool) -> None:
        assert self._transactional is not None
        if is_committed:
            self._committed.append([body for _, body in self.held_back])
        self._transactional.send(m.TxCommit() if is_committed else m.TxRollback())

    def consume(self, queue: str) -> None:
        self.consumes.add(queue)
        self._channel.send(m.BasicConsume(queue=queue, consumer_tag=queue))

    def hear(self) -> None:
        for what in self._transactional.all() if self._transactional is not None else ():
            if isinstance(what, m.TxCommitOk):
                self.confirmed += self._committed.pop(0)
            elif isinstance(what, Content) and isinstance(what.method, m.BasicGetOk):
                found, queue = what.method, self._fetched_from.pop(0)
                self.given.append(Given(queue, what.body, found.redelivered, found.delivery_tag, True))
            elif isinstance(what, m.BasicGetEmpty):
                self._fetched_from.pop(0)
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
        self._answer(self._channel, given, outcome)

    @staticmethod
    def _answer(channel: ClientChannel, given: Given, outcome: Outcome) -> None:
        tag = given.token
        assert isinstance(tag, int)
        if outcome == "accept":
            channel.send(m.BasicAck(tag, False))
        elif outcome == "requeue" and tag % 2:
            channel.send(m.BasicNack(tag, False, True))
        else:
            channel.send(m.BasicReject(tag, outcome == "requeue"))


class Client10(Client):
    def __init__(self, node: SimulatedNode, name: str, random: Random) -> None:
        super().__init__(node, name, peer := Peer10(node), random)
        self._peer10 = peer
        self._session = peer.open("guest").begin()
        self._control: Control | None = None
        self._transaction = b""
        self._discharges: dict[int, list[bytes]] = {}  # by delivery id, with what they commit
        self._senders: dict[str, Sender] = {}
        self._held_senders: dict[str, Sender] = {}
        self._receivers: dict[str, Receiver] = {}
        self._fetching: dict[str, Receiver] = {}
        self._waiting: dict[int, bytes] = {}  # by delivery id

    def _sender(self, queue: str) -> Sender:
        if queue not in self._senders:
            self._senders[queue] = self._session.sender(f"/queues/{queue}")
        return self._senders[queue]

    def publish(self, queue: str, body: bytes, delay_ms: int = 0) -> None:
        wish = [annotations_of({"x-opt-delivery-delay": ULong(delay_ms)})] if delay_ms else []
        number = self._sender(queue).send(p.Header(durable=True), *wish, data(body))
        self._waiting[number] = body

    def begin(self) -> None:
        if self._control is None:
            peer = Peer10(self._node)
            self._second(peer)
            self._control = Control(peer.open("guest").begin())
        self._transaction = self._control.declare()

    def publish_held(self, queue: str, body: bytes) -> None:
        assert self._control is not None
        if queue not in self._held_senders:
            self._held_senders[queue] = self._control.session.sender(f"/queues/{queue}")
        sender = self._held_senders[queue]
        sender.send(p.Header(durable=True), data(body), state=in_tx(self._transaction))

    def fetch(self, queue: str) -> None:
        assert self._control is not None
        if queue not in self._fetching:
            self.fetches.add(queue)
            self._fetching[queue] = self._control.session.receiver(f"/queues/{queue}")
        receiver = self._fetching[queue]
        receiver.want(receiver.credit + 1)

    def answer_held(self, given: Given, outcome: Outcome) -> None:
        assert isinstance(given.token, Delivery10)
        state = in_tx(self._transaction, state_of(outcome))
        self._fetching[given.queue].answer(state, given.token, settled=self.is_given_up(given))

    def is_given_up(self, given: Given) -> bool:
        assert isinstance(given.token, Delivery10)
        return given.token.id % 2 == 1

    def end(self, is_committed: bool) -> None:
        assert self._control is not None
        discharge = p.Discharge(txn_id=self._transaction, fail=not is_committed)
        number = self._control.link.send(section(VALUE, discharge))
        if is_committed:
            self._discharges[number] = [body for _, body in self.held_back]

    def consume(self, queue: str) -> None:
        self.consumes.add(queue)
        receiver = self._receivers[queue] = self._session.receiver(f"/queues/{queue}")
        receiver.want(PREFETCH)

    def hear(self) -> None:
        self._peer10.read()
        if self._control is not None:
            self._control.link.peer.read()
            outcomes = self._control.session.outcomes
            for number in [each for each in self._discharges if each in outcomes]:
                assert isinstance(outcomes[number], p.Accepted), outcomes[number]
                self.confirmed += self._discharges.pop(number)
        for number in [each for each in self._waiting if self._session.outcomes.get(each) is not None]:
            is_taken = isinstance(self._session.outcomes[number], p.Accepted)
            (self.confirmed if is_taken else self.refused).append(self._waiting.pop(number))
        for receivers, is_fetched in ((self._receivers, False), (self._fetching, True)):
            for queue, receiver in receivers.items():
                for delivery in receiver.all():
                    redelivered = bool(delivery.header.delivery_count) or not delivery.header.first_acquirer
                    self.given.append(Given(queue, delivery.body, redelivered, delivery, is_fetched))

    def avoids(self, given: Given) -> bool:
        assert isinstance(given.token, Delivery10)
        return given.token.id % 2 == 1

    def beat(self) -> None:
        for each in self.connections:
            each.send(EMPTY_FRAME)

    def answer(self, given: Given, outcome: Outcome) -> None:
        receiver = self._receivers[given.queue]
        assert isinstance(given.token, Delivery10)
        state = UNDELIVERABLE if outcome == "requeue" and self.avoids(given) else state_of(outcome)
        receiver.answer(state, given.token)
        receiver.want(PREFETCH - len(receiver.unsettled))


def state_of(outcome: Outcome) -> p.DeliveryState:
    if outcome == "accept":
        return p.Accepted()
    return p.Rejected() if outcome == "reject" else p.Modified(delivery_failed=True)


class Client010(Client):
    def __init__(self, node: SimulatedNode, name: str, random: Random) -> None:
        super().__init__(node, name, peer := Peer010(node), random)
        self._peer010 = peer
        self._session = peer.open("guest", "guest").attach(name)
        self._transactional: ClientSession | None = None
        self._commits: dict[int, list[bytes]] = {}  # by command id, with what they commit
        self._waiting: dict[int, bytes] = {}  # by command id

    def publish(self, queue: str, body: bytes, delay_ms: int = 0) -> None:
        delivery = c.DeliveryProperties(routing_key=queue, delivery_mode=2)
        wish = c.MessageProperties(application_headers={"x-delay": delay_ms}) if delay_ms else None
        number = self._session.publish(queue, body, properties=wish, delivery=delivery, sync=True)
        self._waiting[number] = body

    def begin(self) -> None:
        if self._transactional is None:
            peer = Peer010(self._node)
            self._second(peer)
            self._transactional = peer.open("guest", "guest").attach(f"{self.name}-tx")
            self._transactional.call(c.TxSelect())

    def publish_held(self, queue: str, body: bytes) -> None:
        assert self._transactional is not None
        delivery = c.DeliveryProperties(routing_key=queue, delivery_mode=2)
        self._transactional.publish(queue, body, delivery=delivery)

    def fetch(self, queue: str) -> None:
        session = self._transactional
        assert session is not None
        if queue not in self.fetches:
            self.fetches.add(queue)
            session.subscribe(queue, messages=None, flow_mode=c.FLOW_MODE_CREDIT)
        session.flow(queue, 1)

    def answer_held(self, given: Given, outcome: Outcome) -> None:
        """Accept; other answers are not part of a transaction."""
        assert self._transactional is not None
        assert outcome == "accept"
        assert isinstance(given.token, int)
        self._transactional.accept(given.token)

    def end(self, is_committed: bool) -> None:
        assert self._transactional is not None
        number = self._transactional.send(c.TxCommit() if is_committed else c.TxRollback(), sync=True)
        if is_committed:
            self._commits[number] = [body for _, body in self.held_back]

    def consume(self, queue: str) -> None:
        self.consumes.add(queue)
        self._session.subscribe(queue, messages=PREFETCH)

    def hear(self) -> None:
        self._peer010.read()
        if self._transactional is not None:
            self._transactional.client.read()
            for number in [each for each in self._commits if each in self._transactional.completed]:
                self.confirmed += self._commits.pop(number)
        for number in [each for each in self._waiting if each in self._session.completed]:
            self.confirmed.append(self._waiting.pop(number))
        for session in (self._session, self._transactional):
            for queue, inbox in session.inboxes.items() if session is not None else ():
                for message in inbox.all():
                    redelivered, is_fetched = bool(message.delivery.redelivered), session is not self._session
                    self.given.append(Given(queue, message.body, redelivered, message.id, is_fetched))

    def beat(self) -> None:
        for each in self.connections:
            assert isinstance(each.peer, Peer010)
            each.peer.control(c.ConnectionHeartbeat())

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

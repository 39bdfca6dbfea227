"""A 1.0 client that loads a node: it sends durable messages, and answers what it gets with every outcome."""

from __future__ import annotations

from typing import Final

from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp10.client import Receiver, Sender
from tests.amqp10.parts import VALUE, Delivery, application_properties, data, section

from .actors import Actor
from .history import Deed, History
from .line import Line10
from .messages import Found, Message, name_in
from .scene import Scene

CREDIT: Final = 40
TARGETS: Final = ("ten", "quorum", "plain")
ACCEPTED_MAX: Final = 3  # messages accepted in a transaction
SENT_AS: Final = "application/x-test"


class Actor10(Actor):
    """Sends to some queues and consumes from one."""

    def __init__(self, scene: Scene, port: int, name: str) -> None:
        super().__init__(scene, name)
        self.line: Line10 = Line10(port)
        session = self.line.session
        self.senders = {queue: Sender(session, f"to {queue}") for queue in TARGETS}
        for queue, sender in self.senders.items():
            session.attach(sender, target=p.Target(address=f"/queues/{queue}"), initial_delivery_count=0)
        self.receiver = Receiver(session, "from ten")
        session.attach(self.receiver, source=p.Source(address="/queues/ten"))
        self.line.wait(lambda: all(s.credit for s in self.senders.values()), "credit to send")
        self.line.wait(lambda: self.receiver.attached, "an answer to attach")
        self.unconfirmed: dict[int, Deed] = {}  # by delivery id
        self.held: dict[int, tuple[Delivery, History]] = {}  # by delivery id
        self.receiver.want(CREDIT)
        self.control = Sender(session, "control")
        session.attach(self.control, target=p.Coordinator(), initial_delivery_count=0)
        self.line.wait(lambda: self.control.credit, "credit for transactions")
        self._asked: int | None = None  # delivery id of the request that the coordinator has not answered
        self._commit: Deed | None = None  # what it is
        self.refused_commits = 0

    def act(self) -> bool:
        self.hear()
        if self.is_idle and self.chance.random() < 0.1:
            self.begin()
            return True
        if self.chance.random() < 0.5:
            return self._send()
        return self._answer()

    @property
    def is_idle(self) -> bool:
        """No transaction has begun."""
        return self._asked is None

    def begin(self) -> None:
        """Begin a transaction; the rest of it follows by itself."""
        self._asked = self.control.send(section(VALUE, p.Declare()))

    def hear(self) -> None:
        """What has come since the last time."""
        outcomes = self.line.session.outcomes
        for number in [number for number in self.unconfirmed if number in outcomes]:
            deed = self.unconfirmed.pop(number)
            if isinstance(outcomes.pop(number), p.Accepted):
                self.promised(deed)
            else:
                self.ledger.refused(deed)
        if self._asked in outcomes:
            self._go_on(outcomes.pop(self._asked))
        while self.receiver.deliveries:
            self._take(self.receiver.deliveries.popleft())
        if self.receiver.credit < CREDIT // 2:
            self.receiver.want(CREDIT)

    def _go_on(self, outcome: p.DeliveryState | None) -> None:
        """The coordinator has answered: a transaction has begun, is committed, or finds no room on the disk.

        What was accepted in that one comes back, as it was settled by that."""
        if self._commit is None:
            assert isinstance(outcome, p.Declared), outcome
            self._transact(outcome.txn_id)
            return
        if isinstance(outcome, p.Accepted):
            self.promised(self._commit)
        else:
            assert isinstance(outcome, p.Rejected), outcome
            assert outcome.error is not None
            assert "no room" in (outcome.error.description or ""), outcome
            self.ledger.refused(self._commit)
            self.refused_commits += 1
        self._asked = self._commit = None

    def _transact(self, transaction: bytes) -> None:
        """Send some, accept some, and commit."""
        self._commit = commit = self.deed("commit")
        within = p.TransactionalState(txn_id=transaction)
        for queue in TARGETS:
            if self.senders[queue].credit > 0:
                message = self.scene.message(f"{self.name}'s")
                self.ledger.published(message, [queue], commit)
                self._transfer(message, queue, within)
        for number in list(self.held)[:ACCEPTED_MAX]:
            delivery, copy = self.held.pop(number)
            self.ledger.settled(copy, commit)
            accepted = p.TransactionalState(txn_id=transaction, outcome=p.Accepted())
            self.receiver.answer(accepted, delivery)
        self._asked = self.control.send(section(VALUE, p.Discharge(txn_id=transaction, fail=False)))

    def _take(self, delivery: Delivery) -> None:
        message = self.ledger.messages.get(name_in(delivery.body))
        said = Message("nobody", 0) if message is None else message
        redelivered = delivery.header.first_acquirer is False
        found = Found("ten", delivery.body, said.properties, redelivered)
        if (copy := self.ledger.delivered(found, self.name)) is not None:
            self.held[delivery.id] = delivery, copy

    def _send(self) -> bool:
        queue = self.chance.choice(TARGETS)
        sender = self.senders[queue]
        if len(self.unconfirmed) >= self.window or sender.credit < 1 or len(self.line.outgoing) > 1 << 20:
            return False
        message = self.scene.message(self.name)
        deed = self.deed(f"publish of {message.name}")
        self.ledger.published(message, [queue], deed)
        self.unconfirmed[self._transfer(message, queue)] = deed
        return True

    def _transfer(self, message: Message, queue: str, state: p.DeliveryState | None = None) -> int:
        """Send it: its delivery id."""
        said = message.properties
        ttl = int(message.expiration) if message.expiration else None
        return self.senders[queue].send(
            p.Header(durable=True, priority=said.priority, ttl=ttl),
            p.Properties(message_id=message.name, content_type=SENT_AS),
            application_properties(dict(said.headers or {})),
            data(message.body),
            state=state,
        )

    def _answer(self) -> bool:
        if not self.held:
            return False
        delivery, copy = self.held.pop(self.chance.choice(list(self.held)))
        chance = self.chance.random()
        if chance < 0.7:
            self.ledger.settled(copy, self.deed(f"accepted {copy.name}", True))
            self.receiver.accept(delivery)
        elif chance < 0.8:
            self.ledger.died(copy, "ten", self.deed(f"rejected {copy.name}", True))
            self.receiver.answer(p.Rejected(), delivery)
        else:
            self.ledger.left([copy], self.deed(f"released {copy.name}", True))
            failed = p.Modified(delivery_failed=True)
            self.receiver.answer(p.Released() if chance < 0.9 else failed, delivery)
        return True

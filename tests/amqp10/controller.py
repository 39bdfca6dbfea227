"""The controller's side of transactions: a control link, and states that name a transaction.

control = Control(session)
tx = control.declare()
sender.publish(data(b"a"), state=in_tx(tx)) == in_tx(tx, p.Accepted())
control.commit(tx) == p.Accepted()
"""

from __future__ import annotations

from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp10.client import Session
from tests.amqp10.parts import VALUE, Delivery, data, section
from tests.amqp10.peer import session_of, waiting
from tests.harness.bench import ClientBench


class Control:
    """A control link."""

    def __init__(self, session: Session, **fields: object) -> None:
        self.session = session
        self.link = session.sender(p.Coordinator(), **fields)

    def ask(self, request: p.Declare | p.Discharge):
        """The outcome of a request."""
        return self.link.publish(section(VALUE, request))

    def declare(self) -> bytes:
        outcome = self.ask(p.Declare())
        assert isinstance(outcome, p.Declared), outcome
        return outcome.txn_id

    def commit(self, tx: bytes):
        return self.ask(p.Discharge(txn_id=tx, fail=False))

    def roll_back(self, tx: bytes):
        return self.ask(p.Discharge(txn_id=tx, fail=True))


def in_tx(tx: bytes, outcome: p.DeliveryState | None = None) -> p.TransactionalState:
    return p.TransactionalState(txn_id=tx, outcome=outcome)


def fill(bench: ClientBench, queue: str, *bodies: bytes) -> None:
    sender = session_of(bench).sender(f"/queues/{queue}")
    for body in bodies:
        assert sender.publish(data(body)) == p.Accepted()


def bodies_of(bench: ClientBench, queue: str) -> list[bytes]:
    """The bodies that wait in a queue."""
    return [Delivery(0, b"", True, octets).body for octets in waiting(bench, queue)]

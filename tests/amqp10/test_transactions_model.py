"""Transactions in any order, against a model that keeps nothing but lists: what is where, and who may still answer."""

from __future__ import annotations

import attrs
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp10.client import SETTLED
from tests.amqp10.controller import Control, bodies_of, in_tx
from tests.amqp10.parts import Delivery, data
from tests.amqp10.peer import declare, session_of
from tests.harness.bench import ClientBench

OUTCOMES = (p.Accepted(), p.Rejected(), p.Released(), p.Modified(delivery_failed=True))
OPEN_MAX = 4


@attrs.define
class Held:
    """A message that the receiver has."""

    delivery: Delivery | None  # as it came last; None: it is about to come
    tx: bytes | None = None  # the transaction that holds its outcome
    outcome: p.DeliveryState | None = None
    settled: bool = False


class Transactions(RuleBasedStateMachine):
    """One receiver that has all of `in`, whose dead are in `dead`; senders to `in` and `out`; one control link."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = ClientBench()
        declare(self.bench, "out")
        declare(self.bench, "dead")
        declare(
            self.bench, "in", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        )
        self.session = session_of(self.bench)
        self.control = Control(self.session)
        self.receiver = self.session.receiver("/queues/in", credit=10_000)
        self.senders = {
            (queue, mode): self.session.sender(f"/queues/{queue}", snd_settle_mode=mode)
            for queue in ("in", "out")
            for mode in (0, SETTLED)
        }
        self.bodies = 0
        self.open: dict[bytes, list[tuple[str, bytes]]] = {}  # what is posted, by transaction
        self.held: dict[bytes, Held] = {}  # by body
        self.out: list[bytes] = []
        self.dead: list[bytes] = []

    # What the broker is told.

    @precondition(lambda self: len(self.open) < OPEN_MAX)
    @rule()
    def declare(self) -> None:
        self.open[self.control.declare()] = []

    @rule(choice=st.data(), queue=st.sampled_from(["in", "out"]), settled=st.booleans())
    def post(self, choice: st.DataObject, queue: str, settled: bool) -> None:
        tx = choice.draw(st.sampled_from([None, *self.open]), "transaction")
        self.bodies += 1
        body = b"%d" % self.bodies
        state = None if tx is None else in_tx(tx)
        answer = self.senders[queue, int(settled)].publish(data(body), state=state)
        if not settled:
            assert answer == (p.Accepted() if tx is None else in_tx(tx, p.Accepted()))
        if tx is None:
            self.arrived(queue, body)
        else:
            self.open[tx].append((queue, body))

    @precondition(lambda self: any(not held.settled for held in self.held.values()))
    @rule(choice=st.data(), outcome=st.sampled_from(OUTCOMES), settled=st.booleans())
    def answer(self, choice: st.DataObject, outcome: p.DeliveryState, settled: bool) -> None:
        body = choice.draw(
            st.sampled_from([body for body, held in self.held.items() if not held.settled]), "body"
        )
        held = self.held[body]
        may = [None, held.tx] if held.tx is not None else [None, *self.open]
        tx = choice.draw(st.sampled_from(may), "transaction")
        assert held.delivery is not None
        self.receiver.answer(outcome if tx is None else in_tx(tx, outcome), held.delivery, settled)
        if tx is None:
            self.has(body, outcome)
        else:
            held.tx, held.outcome, held.settled = tx, outcome, settled

    @precondition(lambda self: any(not held.settled for held in self.held.values()))
    @rule(choice=st.data())
    def settle_silently(self, choice: st.DataObject) -> None:
        body = choice.draw(
            st.sampled_from([body for body, held in self.held.items() if not held.settled]), "body"
        )
        held = self.held[body]
        assert held.delivery is not None
        self.receiver.answer(None, held.delivery)
        if held.tx is None:
            self.has(body, p.Released())
        else:
            held.settled = True

    @precondition(lambda self: self.open)
    @rule(choice=st.data())
    def commit(self, choice: st.DataObject) -> None:
        tx = choice.draw(st.sampled_from([*self.open]), "transaction")
        assert self.control.commit(tx) == p.Accepted()
        posted = self.open.pop(tx)
        for body, held in list(self.held.items()):
            if held.tx == tx:
                assert held.outcome is not None
                if not held.settled:
                    assert self.session.told.pop(held.delivery.id) == held.outcome
                self.has(body, held.outcome)
        for queue, body in posted:
            self.arrived(queue, body)

    @precondition(lambda self: self.open)
    @rule(choice=st.data())
    def roll_back(self, choice: st.DataObject) -> None:
        tx = choice.draw(st.sampled_from([*self.open]), "transaction")
        assert self.control.roll_back(tx) == p.Accepted()
        self.forget(tx)

    @rule(closed=st.booleans())
    def lose_the_control_link(self, closed: bool) -> None:
        self.control.link.detach(closed=closed)
        for tx in list(self.open):
            self.forget(tx)
        self.control = Control(self.session)

    # What should come of it.

    def arrived(self, queue: str, body: bytes) -> None:
        if queue == "out":
            self.out.append(body)
        else:
            self.held[body] = Held(None)

    def has(self, body: bytes, outcome: p.DeliveryState) -> None:
        """An outcome has taken effect."""
        del self.held[body]
        if isinstance(outcome, p.Rejected):
            self.dead.append(body)
        elif not isinstance(outcome, p.Accepted):
            self.held[body] = Held(None)

    def forget(self, tx: bytes) -> None:
        del self.open[tx]
        for body, held in list(self.held.items()):
            if held.tx == tx and held.settled:
                self.has(body, p.Released())
            elif held.tx == tx:
                held.tx = held.outcome = None

    @invariant()
    def everything_is_where_it_should_be(self) -> None:
        self.session.peer.read()
        come = {delivery.body: delivery for delivery in self.receiver.all()}
        assert sorted(come) == sorted(body for body, held in self.held.items() if held.delivery is None)
        for body, delivery in come.items():
            self.held[body].delivery = delivery
        queue = self.bench.queue("in")
        assert (queue.ready, queue.unsettled) == (0, len(self.held))
        assert bodies_of(self.bench, "out") == self.out
        assert sorted(bodies_of(self.bench, "dead")) == sorted(self.dead)
        assert self.session.ended is None

    def teardown(self) -> None:
        """With the connection, everything that was not committed is as it was."""
        self.session.peer.drop()
        assert sorted(bodies_of(self.bench, "in")) == sorted(self.held)
        assert self.bench.queue("in").unsettled == 0
        assert bodies_of(self.bench, "out") == self.out


TestTransactions = Transactions.TestCase

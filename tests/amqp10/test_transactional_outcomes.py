"""Outcomes in transactions (AMQP 1.0 part 4, section 4.4.2): they wait for the discharge, or come to nothing."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.broker.transactions import Transactions
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described, Symbol
from tests.amqp10.client import Receiver, Sender, Session
from tests.amqp10.controller import Control, bodies_of, fill, in_tx
from tests.amqp10.parts import data, told
from tests.amqp10.peer import SECOND, Peer, declare, declared
from tests.harness.bench import ClientBench

FAILED = p.Modified(delivery_failed=True)


@pytest.fixture
def bench(bench: ClientBench) -> ClientBench:
    return declared(bench, ["r"])


def received(session: Session, *bodies: bytes, queue: str = "q", **fields: object) -> Receiver:
    """A receiver with a message for each body, unsettled."""
    fill(session.peer.bench, queue, *bodies)
    receiver = session.receiver(f"/queues/{queue}", credit=len(bodies), **fields)
    assert [each.body for each in receiver.all()] == list(bodies)
    return receiver


def test_an_outcome_waits_for_the_commit_which_settles(
    bench: ClientBench, session: Session, control: Control
) -> None:
    receiver, tx = received(session, b"a", b"b"), control.declare()
    first, second = receiver.unsettled
    session.dispose(in_tx(tx, p.Accepted()), first, second, settled=False)
    assert bench.queue("q").unsettled == 2
    session.peer.read()
    assert not session.told
    assert control.commit(tx) == p.Accepted()
    assert (bench.queue("q").unsettled, bench.queue("q").ready) == (0, 0)
    assert session.told == {first: p.Accepted(), second: p.Accepted()}


def test_an_outcome_that_is_settled_waits_as_well(
    bench: ClientBench, session: Session, control: Control
) -> None:
    receiver, tx = received(session, b"a"), control.declare()
    receiver.answer(in_tx(tx, p.Accepted()))
    assert bench.queue("q").unsettled == 1
    control.commit(tx)
    assert (bench.queue("q").unsettled, bench.queue("q").ready) == (0, 0)
    assert not session.told


def test_after_a_rollback_a_delivery_is_still_the_receivers(
    bench: ClientBench, session: Session, control: Control
) -> None:
    """It is answered in another transaction, or plainly. Nobody else gets it meanwhile."""
    receiver = received(session, b"a", b"b")
    first, second = receiver.unsettled.values()
    tx = control.declare()
    for delivery in (first, second):
        receiver.answer(in_tx(tx, p.Accepted()), delivery, settled=False)
    control.roll_back(tx)
    assert bench.queue("q").unsettled == 2
    assert session.receiver("/queues/q", credit=5).get() is None
    again = control.declare()
    receiver.answer(in_tx(again, p.Accepted()), first, settled=False)
    control.commit(again)
    assert bench.queue("q").unsettled == 1
    receiver.answer(p.Released(), second)
    assert (bench.queue("q").unsettled, bench.queue("q").ready) == (1, 0)  # the other receiver has it now


@pytest.mark.parametrize(("default", "count"), [(None, 0), (p.Released(), 0), (FAILED, 1)])
@pytest.mark.parametrize("ends", [lambda c, tx: c.roll_back(tx), lambda c, tx: c.link.detach()])
def test_after_a_rollback_what_the_receiver_has_settled_gets_the_default_outcome(
    bench: ClientBench,
    session: Session,
    control: Control,
    default: p.Released | p.Modified | None,
    count: int,
    ends: object,
) -> None:
    """4.4.4.2: it cannot say anything of it any more."""
    source = p.Source(address="/queues/q", default_outcome=default)
    fill(bench, "q", b"a")
    receiver, tx = session.receiver(source, credit=1), control.declare()
    receiver.answer(in_tx(tx, p.Accepted()))
    assert bodies_of(bench, "q") == []
    ends(control, tx)
    assert bodies_of(bench, "q") == [b"a"]
    receiver.want(1)
    again = receiver.all()[-1]
    assert (again.body, again.header.delivery_count or 0) == (b"a", count)


def test_consuming_and_publishing_are_one(bench: ClientBench, session: Session, control: Control) -> None:
    """From one queue to another: never in both, never in none."""
    receiver, sender = received(session, b"a", b"b"), session.sender("/queues/r")
    for delivery, commit in zip(list(receiver.unsettled.values()), (False, True), strict=True):
        tx = control.declare()
        sender.publish(data(delivery.body), state=in_tx(tx))
        receiver.answer(in_tx(tx, p.Accepted()), delivery)
        assert bodies_of(bench, "r") == []
        control.commit(tx) if commit else control.roll_back(tx)
    assert (bodies_of(bench, "q"), bodies_of(bench, "r")) == ([b"a"], [b"b"])


@pytest.mark.parametrize(
    ("outcome", "left", "dead"),
    [
        (p.Accepted(), [], []),
        (p.Rejected(), [], [b"a"]),
        (p.Released(), [b"a"], []),
        (p.Modified(delivery_failed=True), [b"a"], []),
        (p.Modified(undeliverable_here=True), [b"a"], []),
    ],
)
def test_s227_every_outcome_waits(
    bench: ClientBench, session: Session, outcome: p.DeliveryState, left: list[bytes], dead: list[bytes]
) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "r"}
    declare(bench, "mortal", arguments=arguments)
    control, receiver = Control(session), received(session, b"a", queue="mortal")
    tx = control.declare()
    receiver.answer(in_tx(tx, outcome), settled=False)
    assert (bodies_of(bench, "mortal"), bodies_of(bench, "r")) == ([], [])
    control.commit(tx)
    assert (bodies_of(bench, "mortal"), bodies_of(bench, "r")) == (left, dead)
    assert list(session.told.values()) == [outcome]


def test_outcomes_of_one_delivery_in_two_transactions_end_the_control_link(
    bench: ClientBench, session: Session, control: Control
) -> None:
    """4.4.2: both transactions are rolled back."""
    receiver, sender = received(session, b"a", b"b"), session.sender("/queues/r")
    first, second = receiver.unsettled.values()
    one, two = control.declare(), control.declare()
    sender.publish(data(b"c"), state=in_tx(two))
    receiver.answer(in_tx(one, p.Accepted()), first, settled=False)
    session.dispose(in_tx(two, p.Accepted()), first.id, second.id)
    assert control.link.refusal().startswith(
        "amqp:transaction:rollback a delivery has outcomes of two transactions"
    )
    assert bodies_of(bench, "q") == [b"a", b"b"]  # they were settled
    assert (bodies_of(bench, "r"), bench.queue("q").unsettled) == ([], 0)


def test_each_control_link_ends_if_the_two_transactions_are_not_of_one(session: Session) -> None:
    receiver, controls = received(session, b"a"), (Control(session), Control(session))
    for control in controls:
        receiver.answer(in_tx(control.declare(), p.Accepted()), settled=False)
    for control in controls:
        assert control.link.refusal().startswith("amqp:transaction:rollback")
    receiver.accept()
    assert session.peer.bench.queue("q").unsettled == 0


def test_in_one_transaction_the_last_outcome_counts(
    bench: ClientBench, session: Session, control: Control
) -> None:
    receiver, tx = received(session, b"a"), control.declare()
    for outcome in (p.Accepted(), p.Released()):
        receiver.answer(in_tx(tx, outcome), settled=False)
    control.commit(tx)
    assert bodies_of(bench, "q") == [b"a"]


def test_an_outcome_outside_counts_instead_of_one_in_a_transaction(
    bench: ClientBench, session: Session, control: Control
) -> None:
    receiver, tx = received(session, b"a"), control.declare()
    (delivery,) = receiver.unsettled.values()
    receiver.answer(in_tx(tx, p.Released()), delivery, settled=False)
    receiver.accept(delivery)
    assert bench.queue("q").unsettled == 0
    control.commit(tx)
    assert (bench.queue("q").unsettled, bench.queue("q").ready) == (0, 0)


def test_settling_without_an_outcome_leaves_it_to_the_transaction(
    bench: ClientBench, session: Session, control: Control
) -> None:
    """Some clients say the outcome first and settle then."""
    receiver, tx, lost = received(session, b"a", b"b"), control.declare(), control.declare()
    first, second = receiver.unsettled.values()
    receiver.answer(in_tx(tx, p.Accepted()), first, settled=False)
    receiver.answer(in_tx(lost, p.Accepted()), second, settled=False)
    receiver.answer(None, first)
    receiver.answer(None, second)
    assert bench.queue("q").unsettled == 2
    control.commit(tx)
    assert bench.queue("q").unsettled == 1
    control.roll_back(lost)
    assert bodies_of(bench, "q") == [b"b"]


def test_a_transaction_without_an_outcome_says_nothing(
    bench: ClientBench, session: Session, control: Control
) -> None:
    """Unless it settles: then that is the default outcome."""
    receiver, tx = received(session, b"a"), control.declare()
    (delivery,) = receiver.unsettled.values()
    receiver.answer(in_tx(tx), delivery, settled=False)
    receiver.answer(in_tx(tx), delivery)
    assert (bench.queue("q").unsettled, bodies_of(bench, "q")) == (1, [])
    control.commit(tx)
    assert (bench.queue("q").unsettled, bodies_of(bench, "q")) == (0, [b"a"])


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(("commit", "left"), [(True, []), (False, [b"a"])])
def test_an_outcome_waits_though_its_link_has_gone(
    bench: ClientBench,
    session: Session,
    control: Control,
    settled: bool,
    closed: bool,
    commit: bool,
    left: list[bytes],
) -> None:
    receiver, tx = received(session, b"a"), control.declare()
    receiver.answer(in_tx(tx, p.Accepted()), settled=settled)
    receiver.detach(closed=closed)
    assert (bench.queue("q").unsettled, bodies_of(bench, "q")) == (1, [])
    control.commit(tx) if commit else control.roll_back(tx)
    assert (bench.queue("q").unsettled, bodies_of(bench, "q")) == (0, left)


def test_an_outcome_waits_though_its_session_has_gone(
    bench: ClientBench, session: Session, control: Control
) -> None:
    other = session.peer.begin()
    receiver, tx = received(other, b"a", b"b"), control.declare()
    receiver.answer(in_tx(tx, p.Accepted()), settled=False)
    other.end()
    assert (bench.queue("q").unsettled, bodies_of(bench, "q")) == (1, [b"b"])
    control.commit(tx)
    assert (bench.queue("q").unsettled, bodies_of(bench, "q")) == (0, [b"b"])


def test_an_outcome_waits_though_its_queue_has_gone(
    bench: ClientBench, session: Session, control: Control
) -> None:
    receiver, tx = received(session, b"a"), control.declare()
    receiver.answer(in_tx(tx, p.Released()), settled=False)
    bench.host.delete_queue(bench.queue("q"))
    assert receiver.refusal().startswith("amqp:resource-deleted")
    assert control.commit(tx) == p.Accepted()


@pytest.mark.parametrize("settled", [True, False])
def test_an_unknown_id_ends_the_link_whose_delivery_it_is_said_of(
    bench: ClientBench, session: Session, settled: bool
) -> None:
    receiver = received(session, b"a")
    receiver.answer(in_tx(b"?", p.Accepted()), settled=settled)
    assert receiver.refusal() == "amqp:transaction:unknown-id no transaction 3f"
    assert (bench.queue("q").unsettled, bodies_of(bench, "q")) == (0, [b"a"])


@pytest.mark.parametrize("settled", [True, False])
def test_x069_what_is_no_outcome_is_none_in_a_transaction(
    bench: ClientBench, session: Session, control: Control, settled: bool
) -> None:
    receiver, tx = received(session, b"a"), control.declare()
    receiver.answer(in_tx(tx, Described(Symbol("x:other"), [])), settled=settled)
    assert session.refusal().startswith("amqp:invalid-field Unrecognised state: ")
    assert (bench.queue("q").unsettled, bodies_of(bench, "q")) == (0, [b"a"])


def test_x068_what_an_outcome_must_not_say_it_must_not_say_in_a_transaction(
    bench: ClientBench, session: Session, control: Control
) -> None:
    receiver, tx = received(session, b"a"), control.declare()
    receiver.answer(in_tx(tx, p.Modified(message_annotations={Symbol("reserved"): 1})), settled=False)
    assert session.refusal().startswith("amqp:invalid-field")
    assert (bench.queue("q").unsettled, bodies_of(bench, "q")) == (0, [b"a"])


def test_s180_a_receiver_drains_while_its_outcomes_wait(
    bench: ClientBench, session: Session, control: Control
) -> None:
    receiver, tx = received(session, b"a"), control.declare()
    receiver.answer(in_tx(tx, p.Accepted()), settled=False)
    fill(bench, "q", b"b")
    receiver.want(5, drain=True)
    assert receiver.drained
    assert receiver.bodies() == [b"b"]
    control.roll_back(tx)
    assert bench.queue("q").unsettled == 2


def test_deliveries_are_not_acquired_in_transactions(session: Session, control: Control) -> None:
    """4.4.3: a flow that asks for it ends its link."""
    receiver = session.receiver("/queues/q")
    session.flow(handle=receiver.handle, link_credit=1, properties={Symbol("txn-id"): control.declare()})
    assert receiver.refusal().startswith("amqp:not-implemented")


def test_transactions_that_hold_too_much_fail(bench: ClientBench) -> None:
    """What they hold is let go at once; what they are told to do comes to nothing."""
    peer = Peer(bench).open()
    peer.front.transactions = Transactions(bench.broker, held_size_max=10_000)
    session = peer.begin()
    control = Control(session)
    receiver, sender, tx, other = (
        received(session, b"a"),
        session.sender("/queues/r"),
        control.declare(),
        control.declare(),
    )
    sender.publish(data(b"o" * 1000), state=in_tx(other))
    assert sender.publish(data(b"x" * 5000), state=in_tx(tx)) == in_tx(tx, p.Accepted())
    state = sender.publish(data(b"x" * 5000), state=in_tx(tx))
    assert state.outcome.error.condition == "amqp:transaction:rollback"
    receiver.answer(in_tx(tx, p.Accepted()))
    assert bodies_of(bench, "q") == [b"a"]
    assert told(control.commit(tx).error).endswith("transactions hold more than 10000 octets")
    assert bodies_of(bench, "r") == []
    control.commit(other)
    assert bodies_of(bench, "r") == [b"o" * 1000]
    tx = control.declare()
    assert sender.publish(data(b"x" * 9000), state=in_tx(tx)) == in_tx(tx, p.Accepted())


# A receiver that settles second (4.4.4.1).


@pytest.mark.parametrize("commit", [True, False])
def test_an_unsettled_message_has_the_outcome_that_the_discharge_has_brought(
    bench: ClientBench, session: Session, control: Control, commit: bool
) -> None:
    tx, sender = (
        control.declare(),
        session.sender(p.Target(address="/queues/q", timeout=5), rcv_settle_mode=SECOND),
    )
    id = sender.send(data(b"a"), state=in_tx(tx))
    assert sender.outcome(id) == in_tx(tx, p.Accepted())
    assert id not in session.settled
    control.commit(tx) if commit else control.roll_back(tx)
    assert sender.outcome(id) == (p.Accepted() if commit else None)
    assert id not in session.settled


def test_work_goes_on_after_a_thousand_transactions(
    bench: ClientBench, session: Session, control: Control
) -> None:
    """Nothing of them is left behind."""
    receiver = session.receiver("/queues/q", credit=1000)
    sender: Sender = session.sender("/queues/q")
    peer: Peer = session.peer
    for number in range(1000):
        tx = control.declare()
        sender.publish(data(b"%d" % number), state=in_tx(tx))
        for delivery in receiver.all():
            receiver.answer(in_tx(tx, p.Accepted()), delivery)
        control.commit(tx)
    transactions = peer.front.transactions
    assert not transactions._open
    assert not transactions.hold_outcomes
    assert transactions._size == 0

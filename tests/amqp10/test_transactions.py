"""Transactions (AMQP 1.0 part 4): declared and discharged on a control link; messages and outcomes that wait for it."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.broker.transactions import OPEN_MAX
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described, Symbol, ULong
from tests.amqp10.client import SETTLED, Session
from tests.amqp10.controller import Control, bodies_of, fill, in_tx
from tests.amqp10.parts import VALUE, data, section, told
from tests.amqp10.peer import declare, declared, session_of
from tests.harness.bench import ClientBench

FAILED = p.Modified(delivery_failed=True)


@pytest.fixture
def bench(bench: ClientBench) -> ClientBench:
    return declared(bench, ["r"])


# Declaring (4.2).


def test_s175_a_coordinator_is_a_target_that_says_what_it_can(session: Session) -> None:
    control = Control(session)
    assert isinstance(control.link.attached.target, p.Coordinator)
    assert control.link.attached.target.capabilities == [
        p.TXN_CAPABILITY_LOCAL_TRANSACTIONS,
        p.TXN_CAPABILITY_MULTI_TXNS_PER_SSN,
        p.TXN_CAPABILITY_MULTI_SSNS_PER_TXN,
    ]


def test_s175_a_declare_is_answered_with_an_id_of_its_own(control: Control) -> None:
    ids = {control.declare() for _ in range(10)}
    assert len(ids) == 10
    assert all(isinstance(each, bytes) and 0 < len(each) <= 32 for each in ids)


@pytest.mark.parametrize("wish", ["amqp:distributed-transactions", "amqp:promotable-transactions", "other"])
def test_s175_other_kinds_of_transactions_are_refused(session: Session, wish: str) -> None:
    wishes = [Symbol("amqp:local-transactions"), Symbol(wish)]
    link = session.ask_sender(p.Coordinator(capabilities=wishes))
    assert link.attached.target is None
    assert link.refusal() == f"amqp:not-implemented Transactions not supported: {wish}"


def test_a_transaction_of_somebody_else_cannot_be_joined(control: Control) -> None:
    rejected = control.ask(p.Declare(global_id=b"xa"))
    assert told(rejected.error) == "amqp:not-implemented Transactions not supported: distributed ones"


def test_there_is_an_end_to_the_transactions_of_a_connection(bench: ClientBench, control: Control) -> None:
    """A discharge makes room again. Other connections have their own."""
    ids = [control.declare() for _ in range(OPEN_MAX)]
    assert told(control.ask(p.Declare()).error).startswith("amqp:resource-limit-exceeded")
    Control(session_of(bench)).declare()
    control.commit(ids[3])
    control.declare()


def test_what_comes_before_the_request_in_its_message_does_not_matter(control: Control) -> None:
    id = control.link.send(p.Header(durable=True), p.Properties(to="x"), section(VALUE, p.Declare()))
    assert isinstance(control.link.outcome(id), p.Declared)


@pytest.mark.parametrize(
    ("message", "condition"),
    [
        (b"", "amqp:not-implemented"),
        (data(b"declare"), "amqp:not-implemented"),
        (section(VALUE, "declare"), "amqp:decode-error"),
        (section(VALUE, p.Accepted()), "amqp:not-implemented"),
        (section(VALUE, Described(ULong(0x31), [None, None])), "amqp:invalid-field"),
        (section(VALUE, Described(ULong(0x32), [])), "amqp:invalid-field"),
        (section(VALUE, p.Declare())[:-1], "amqp:decode-error"),
        (b"\x00", "amqp:decode-error"),
        (section(VALUE, p.Declare(global_id=b"x" * 5000)), "amqp:link:message-size-exceeded"),
    ],
)
def test_what_is_neither_declare_nor_discharge_is_rejected_and_the_link_goes_on(
    control: Control, message: bytes, condition: str
) -> None:
    assert control.link.rejection(message).startswith(condition)
    control.declare()


def test_a_request_that_is_sent_settled_ends_the_link(control: Control) -> None:
    """4.2: nobody would hear the answer."""
    control.link.send(section(VALUE, p.Declare()), settled=True)
    assert control.link.refusal() == "amqp:not-allowed a message to the coordinator is sent unsettled"


def test_a_request_is_no_part_of_a_transaction(control: Control) -> None:
    control.link.send(section(VALUE, p.Declare()), state=in_tx(control.declare()))
    assert (
        control.link.refusal() == "amqp:not-allowed a message to the coordinator is not part of a transaction"
    )


@pytest.mark.parametrize("request_", [p.Declare(global_id=b"xa"), p.Discharge(txn_id=b"?")])
def test_who_does_not_know_rejected_is_told_by_the_end_of_the_link(
    session: Session, request_: p.Declare | p.Discharge
) -> None:
    """4.2, 4.3: the source says which outcomes it knows, if any."""
    accepted, rejected = Symbol(p.Accepted.NAME), Symbol(p.Rejected.NAME)
    knows = Control(session, source=p.Source(outcomes=[accepted, rejected]))
    assert isinstance(knows.ask(request_), p.Rejected)
    control = Control(session, source=p.Source(outcomes=[accepted]))
    control.link.send(section(VALUE, request_))
    expected = "amqp:transaction:unknown-id" if isinstance(request_, p.Discharge) else "amqp:not-implemented"
    assert control.link.refusal().startswith(expected)


def test_s176_a_control_link_is_not_resumed(session: Session) -> None:
    link = session.ask_sender(p.Coordinator(), unsettled={b"tag": None})
    assert link.refusal() == "amqp:not-implemented Link recovery not supported"


# Posting (4.4.1).


def test_a_message_waits_for_the_commit_and_its_sender_is_told_what_would_become_of_it(
    bench: ClientBench, session: Session, control: Control
) -> None:
    tx, sender = control.declare(), session.sender("/queues/q")
    for body in (b"a", b"b"):
        assert sender.publish(data(body), state=in_tx(tx)) == in_tx(tx, p.Accepted())
    assert bodies_of(bench, "q") == []
    assert sender.publish(data(b"plain")) == p.Accepted()
    assert control.commit(tx) == p.Accepted()
    assert bodies_of(bench, "q") == [b"plain", b"a", b"b"]


def test_a_rollback_forgets_messages(bench: ClientBench, session: Session, control: Control) -> None:
    tx = control.declare()
    session.sender("/queues/q").publish(data(b"a"), state=in_tx(tx))
    assert control.roll_back(tx) == p.Accepted()
    assert bodies_of(bench, "q") == []


def test_s122_messages_are_routed_when_they_are_posted(
    bench: ClientBench, session: Session, control: Control
) -> None:
    tx, sender = control.declare(), session.sender("/exchanges/amq.fanout")
    assert sender.publish(data(b"early"), state=in_tx(tx)) == in_tx(tx, p.Released())
    bench.host.bind(bench.host.exchange("amq.fanout"), bench.queue("q"), "")
    assert sender.publish(data(b"late"), state=in_tx(tx)) == in_tx(tx, p.Accepted())
    assert control.commit(tx) == p.Accepted()
    assert bodies_of(bench, "q") == [b"late"]


def test_a_message_sent_settled_waits_as_well(bench: ClientBench, session: Session, control: Control) -> None:
    tx, sender = control.declare(), session.sender("/queues/q", snd_settle_mode=SETTLED)
    assert sender.publish(data(b"a"), state=in_tx(tx)) is None
    assert bodies_of(bench, "q") == []
    control.commit(tx)
    assert bodies_of(bench, "q") == [b"a"]


def test_what_is_refused_by_itself_does_not_stand_in_the_way_of_a_commit(
    bench: ClientBench, session: Session, control: Control
) -> None:
    """The sender has been told; the link to the anonymous terminus goes on."""
    tx, sender = control.declare(), session.sender()
    state = sender.publish(p.Properties(to="/exchanges/nowhere"), data(b"a"), state=in_tx(tx))
    assert state.txn_id == tx
    assert told(state.outcome.error) == "amqp:not-found no exchange 'nowhere' in vhost '/'"
    assert sender.publish(p.Properties(to="/queues/q"), data(b"b"), state=in_tx(tx)) == in_tx(
        tx, p.Accepted()
    )
    assert control.commit(tx) == p.Accepted()
    assert bodies_of(bench, "q") == [b"b"]


def test_what_is_refused_though_it_was_settled_makes_a_commit_impossible(
    bench: ClientBench, session: Session, control: Control
) -> None:
    """4.4.4.1: there is no other way to tell."""
    tx, sender = control.declare(), session.sender(snd_settle_mode=SETTLED)
    sender.publish(p.Properties(to="/queues/q"), data(b"a"), state=in_tx(tx))
    sender.publish(p.Properties(to="/exchanges/nowhere"), data(b"b"), state=in_tx(tx))
    rejected = control.commit(tx)
    assert told(rejected.error).startswith(
        "amqp:transaction:rollback the transaction was rolled back: no exchange"
    )
    assert bodies_of(bench, "q") == []


def test_a_transaction_that_failed_takes_no_more_messages_and_can_be_rolled_back(
    bench: ClientBench, session: Session, control: Control
) -> None:
    tx, sender = control.declare(), session.sender()
    sender.send(p.Properties(to="/exchanges/nowhere"), data(b"a"), state=in_tx(tx), settled=True)
    state = sender.publish(p.Properties(to="/queues/q"), data(b"b"), state=in_tx(tx))
    assert (state.txn_id, state.outcome.error.condition) == (tx, "amqp:transaction:rollback")
    assert control.roll_back(tx) == p.Accepted()
    assert bodies_of(bench, "q") == []


def test_a_commit_that_a_full_queue_would_refuse_in_part_is_refused_as_a_whole(
    bench: ClientBench, session: Session
) -> None:
    """4.4.4.1: what was promised can not be kept, so nothing of it happens."""
    declare(bench, "full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    fill(bench, "q", b"consumed")
    control, sender = Control(session), session.sender()
    tx, receiver = control.declare(), session.receiver("/queues/q", credit=1)
    receiver.answer(in_tx(tx, p.Accepted()), settled=False)
    for queue in ("r", "full", "full"):
        state = sender.publish(p.Properties(to=f"/queues/{queue}"), data(b"a"), state=in_tx(tx))
        assert state == in_tx(tx, p.Accepted())
    rejected = control.commit(tx)
    assert told(rejected.error) == (
        "amqp:transaction:rollback the transaction was rolled back: "
        "queue 'full' in vhost '/' has no room for all of its messages"
    )
    assert bodies_of(bench, "r") == bodies_of(bench, "full") == []
    assert bench.queue("q").unsettled == 1
    receiver.accept()
    assert (bench.queue("q").unsettled, bench.queue("q").ready) == (0, 0)


@pytest.mark.parametrize("settled", [True, False])
def test_s125_a_message_whose_queue_is_gone_rolls_its_transaction_back(
    bench: ClientBench, session: Session, control: Control, settled: bool
) -> None:
    """Its outcome, accepted, cannot be kept."""
    tx, sender = control.declare(), session.sender()
    for queue in ("q", "r"):
        sender.publish(p.Properties(to=f"/queues/{queue}"), data(b"a"), state=in_tx(tx), settled=settled)
    bench.host.delete_queue(bench.queue("q"))
    rejected = control.commit(tx)
    assert told(rejected.error) == (
        "amqp:transaction:rollback the transaction was rolled back: "
        "nothing takes a message to exchange '' with key 'q' any more"
    )
    assert bodies_of(bench, "r") == []


def test_s125_a_queue_that_was_declared_again_gets_its_messages(
    bench: ClientBench, session: Session, control: Control
) -> None:
    tx, sender = control.declare(), session.sender()
    sender.publish(p.Properties(to="/queues/q"), data(b"a"), state=in_tx(tx))
    bench.host.delete_queue(bench.queue("q"))
    declare(bench, "q")
    assert control.commit(tx) == p.Accepted()
    assert bodies_of(bench, "q") == [b"a"]


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("txn_id", [b"?", b"", b"x" * 100])
def test_an_unknown_id_ends_the_link_that_posts(
    bench: ClientBench, session: Session, settled: bool, txn_id: bytes
) -> None:
    sender = session.sender("/queues/q")
    sender.send(data(b"a"), state=in_tx(txn_id), settled=settled)
    assert sender.refusal().startswith("amqp:transaction:unknown-id no transaction ")
    assert bodies_of(bench, "q") == []


def test_a_discharged_transaction_is_unknown(bench: ClientBench, session: Session, control: Control) -> None:
    tx = control.declare()
    control.commit(tx)
    for fail in (False, True):
        rejected = control.ask(p.Discharge(txn_id=tx, fail=fail))
        assert told(rejected.error).startswith("amqp:transaction:unknown-id")
    sender = session.sender("/queues/q")
    sender.send(data(b"a"), state=in_tx(tx))
    assert sender.refusal().startswith("amqp:transaction:unknown-id")


def test_a_message_in_several_transfers_is_posted_as_one(
    bench: ClientBench, session: Session, control: Control
) -> None:
    tx, sender = control.declare(), session.sender("/queues/q")
    assert sender.publish(data(b"abcdef"), state=in_tx(tx), frames=3) == in_tx(tx, p.Accepted())
    control.commit(tx)
    assert bodies_of(bench, "q") == [b"abcdef"]


@pytest.mark.parametrize("fail", [True, False])
def test_a_discharge_in_the_middle_of_a_message_ends_the_control_link(
    bench: ClientBench, session: Session, control: Control, fail: bool
) -> None:
    """4.4.1: whatever the discharge says, the transaction is rolled back; other links do not matter."""
    tx, sender, other = control.declare(), session.sender("/queues/q"), session.sender("/queues/r")
    sender.publish(data(b"whole"), state=in_tx(tx))
    first = {
        "handle": sender.handle,
        "delivery_id": session.next_delivery,
        "delivery_tag": b"t",
        "more": True,
    }
    session.next_delivery += 1
    session.send(p.Transfer(**first, state=in_tx(tx)), b"part")
    control.link.send(section(VALUE, p.Discharge(txn_id=tx, fail=fail)))
    assert control.link.refusal().startswith("amqp:transaction:rollback")
    assert bodies_of(bench, "q") == []
    assert other.publish(data(b"a")) == p.Accepted()


def test_transactions_do_not_know_each_other(bench: ClientBench, session: Session, control: Control) -> None:
    sender = session.sender("/queues/q")
    one, two, three = (control.declare() for _ in range(3))
    for tx, body in ((one, b"1"), (two, b"2"), (one, b"11"), (three, b"3")):
        sender.publish(data(body), state=in_tx(tx))
    control.commit(two)
    control.roll_back(three)
    assert bodies_of(bench, "q") == [b"2"]
    control.commit(one)
    assert bodies_of(bench, "q") == [b"2", b"1", b"11"]


def test_a_transaction_spans_the_sessions_of_its_connection(
    bench: ClientBench, session: Session, control: Control
) -> None:
    other = session.peer.begin()
    tx = control.declare()
    other.sender("/queues/q").publish(data(b"a"), state=in_tx(tx))
    session.sender("/queues/q").publish(data(b"b"), state=in_tx(tx))
    other.end()
    control.commit(tx)
    assert bodies_of(bench, "q") == [b"a", b"b"]


def test_a_transaction_is_its_connections_own(bench: ClientBench, control: Control) -> None:
    tx, stranger = control.declare(), session_of(bench)
    sender = stranger.sender("/queues/q")
    sender.send(data(b"a"), state=in_tx(tx))
    assert sender.refusal().startswith("amqp:transaction:unknown-id")
    rejected = Control(stranger).ask(p.Discharge(txn_id=tx))
    assert told(rejected.error).startswith("amqp:transaction:unknown-id")


def test_a_transaction_is_discharged_where_it_was_declared(
    bench: ClientBench, session: Session, control: Control
) -> None:
    tx, other = control.declare(), Control(session)
    session.sender("/queues/q").publish(data(b"a"), state=in_tx(tx))
    for fail in (True, False):
        assert told(other.ask(p.Discharge(txn_id=tx, fail=fail)).error).startswith(
            "amqp:transaction:unknown-id"
        )
    control.commit(tx)
    assert bodies_of(bench, "q") == [b"a"]


@pytest.mark.parametrize(
    "end", [lambda c: c.link.detach(), lambda c: c.link.detach(closed=False), lambda c: c.session.end()]
)
def test_what_is_not_discharged_is_rolled_back_with_its_control_link(
    bench: ClientBench, session: Session, end: object
) -> None:
    """Also with the session of that link. Other control links keep what is theirs."""
    control, other = Control(session.peer.begin()), Control(session)
    sender = session.sender("/queues/q")
    lost, kept = control.declare(), other.declare()
    for tx in (lost, kept):
        sender.publish(data(b"a"), state=in_tx(tx))
    end(control)
    sender.publish(data(b"b"), state=in_tx(kept))
    sender.send(data(b"c"), state=in_tx(lost))
    assert sender.refusal().startswith("amqp:transaction:unknown-id")
    other.commit(kept)
    assert bodies_of(bench, "q") == [b"a", b"b"]


def test_what_is_not_discharged_is_rolled_back_with_its_connection(
    bench: ClientBench, session: Session
) -> None:
    fill(bench, "q", b"a")
    control = Control(session)
    tx, receiver = control.declare(), session.receiver("/queues/q", credit=1)
    session.sender("/queues/r").publish(data(b"b"), state=in_tx(tx))
    receiver.answer(in_tx(tx, p.Accepted()))
    session.peer.drop()
    assert (bodies_of(bench, "q"), bodies_of(bench, "r")) == ([b"a"], [])
    assert bench.queue("q").unsettled == 0


def test_a_commit_is_answered_when_all_is_safe_and_after_the_messages(
    bench: ClientBench, session: Session
) -> None:
    """Other requests do not wait for that."""
    control, sender = Control(session), session.sender("/queues/q")
    tx = control.declare()
    message = sender.send(data(b"a"), state=in_tx(tx), settle=False)
    commit = control.link.send(section(VALUE, p.Discharge(txn_id=tx)), settle=False)
    again = control.link.send(section(VALUE, p.Declare()), settle=False)
    session.peer.hear(session.peer.take_bytes())
    assert session.outcomes[message] == in_tx(tx, p.Accepted())
    assert isinstance(session.outcomes[again], p.Declared)
    assert commit not in session.outcomes
    bench.settle()
    session.peer.read()
    assert session.outcomes[commit] == p.Accepted()

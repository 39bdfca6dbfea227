"""Senders that come back (AMQP 1.0 part 2, section 2.6.13): with rcv-settle-mode second, nothing is published twice."""

from __future__ import annotations

from struct import pack

import pytest

from leveret.protocols.amqp10.broker.termini import TARGETS_MAX, Termini, Terminus, termini_of
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol, Value, encode
from tests.amqp10.client import SENDER, Sender, Session
from tests.amqp10.controller import Control, bodies_of, in_tx
from tests.amqp10.parts import data
from tests.amqp10.peer import SECOND, Peer, declare, declared, session_of
from tests.harness.bench import ClientBench, StoredBench

NEVER = p.TERMINUS_EXPIRY_POLICY_NEVER
PATIENT = "[protocols.amqp10]\nidle_timeout_s = 0\n"


@pytest.fixture
def bench() -> ClientBench:
    bench = declared(ClientBench(PATIENT), ["q"])
    declare(bench, "full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    return bench


def tag(number: int) -> bytes:
    return b"t%d" % number


def sender_of(
    session: Session,
    unsettled: dict[bytes, p.DeliveryState | None] | None = None,
    address: str | None = "/queues/q",
    expiry: str = NEVER,
    timeout: int = 0,
    mode: int = SECOND,
    name: str = "s",
    **fields: object,
) -> Sender:
    target = p.Target(address=address, expiry_policy=Symbol(expiry), timeout=timeout)
    return session.sender(target, name=name, rcv_settle_mode=mode, unsettled=unsettled, **fields)


def resume(sender: Sender, tag: bytes, settled: bool = False) -> int:
    return sender.send(tag=tag, settled=settled, resume=True)


def known_to(sender: Sender) -> dict[bytes, object] | None:
    """What we told of deliveries when we attached."""
    told = sender.attached.unsettled
    return None if told is None else {tag: state and state_in(state) for tag, state in told.items()}


def state_in(value: Value) -> p.DeliveryState:
    octets = encode(value)
    return p.decode(octets, 0, len(octets))[0]


def sent(session: Session, count: int = 2) -> list[int]:
    """Messages on a link that is then detached, none of them settled by us."""
    sender = sender_of(session)
    ids = [sender.send(data(b"%d" % number), tag=tag(number)) for number in range(count)]
    assert [sender.outcome(id) for id in ids] == [p.Accepted()] * count
    assert not session.settled
    sender.detach(closed=False)
    return ids


def test_a_sender_that_comes_back_is_told_what_became_of_its_deliveries(
    bench: ClientBench, session: Session
) -> None:
    sent(session, 3)
    sender = sender_of(session, {tag(1): None, tag(2): p.Accepted(), tag(7): None})
    assert known_to(sender) == {tag(1): p.Accepted(), tag(2): p.Accepted()}


def test_what_is_resumed_is_answered_and_not_published_again(bench: ClientBench, session: Session) -> None:
    """Also from another connection. What we do not know of is sent anew."""
    sent(session)
    session.peer.drop()
    session = session_of(bench)
    sender = sender_of(session, {tag(0): None, tag(1): None, tag(2): None})
    id = resume(sender, tag(0))
    assert sender.outcome(id) == p.Accepted()
    assert id not in session.settled
    session.dispose(p.Accepted(), id, role=SENDER)
    resume(sender, tag(1), settled=True)
    assert sender.outcome(sender.send(data(b"2"), tag=tag(2))) == p.Accepted()
    assert bodies_of(bench, "q") == [b"0", b"1", b"2"]
    sender.detach(closed=False)
    assert known_to(sender_of(session, {tag(0): None, tag(1): None})) is None


def test_a_tag_is_free_again_once_it_was_resumed(bench: ClientBench, session: Session) -> None:
    sent(session, 1)
    sender = sender_of(session, {tag(0): None})
    resume(sender, tag(0), settled=True)
    assert sender.outcome(sender.send(data(b"new"), tag=tag(0))) == p.Accepted()
    assert bodies_of(bench, "q") == [b"0", b"new"]


def test_what_is_not_resumed_is_kept_for_the_next_time(bench: ClientBench, session: Session) -> None:
    sent(session)
    unsettled = {tag(0): None, tag(1): None}
    sender = sender_of(session, unsettled)
    resume(sender, tag(0), settled=True)
    sender.detach(closed=False)
    assert known_to(sender_of(session, unsettled)) == {tag(1): p.Accepted()}


@pytest.mark.parametrize("wonders", [None, {}, {b"other": None}])
def test_what_the_sender_does_not_ask_about_it_has_forgotten(
    session: Session, wonders: dict[bytes, None] | None
) -> None:
    sent(session, 1)
    sender = sender_of(session, wonders)
    assert known_to(sender) is None
    sender.detach(closed=False)
    assert known_to(sender_of(session, {tag(0): None})) is None


def test_what_the_sender_has_settled_is_not_kept(session: Session) -> None:
    sender = sender_of(session)
    ids = [sender.send(data(b"%d" % number), tag=tag(number)) for number in range(3)]
    session.dispose(p.Accepted(), ids[1], role=SENDER)
    sender.detach(closed=False)
    sender = sender_of(session, {tag(number): None for number in range(3)})
    assert known_to(sender) == {tag(0): p.Accepted(), tag(2): p.Accepted()}


def test_every_outcome_is_kept(bench: ClientBench, session: Session) -> None:
    sender = sender_of(session, address=None)
    for number, to in enumerate(("/queues/q", "/queues/gone", "/queues/full", "/exchanges/gone")):
        sender.send(p.Properties(to=to), data(b"x"), tag=tag(number))
    sender.detach(closed=False)
    unsettled = {tag(number): None for number in range(4)}
    known = known_to(sender_of(session, unsettled, address=None))
    assert [type(known[each]) for each in unsettled] == [p.Accepted, p.Released, p.Rejected, p.Rejected]


def test_a_message_that_was_not_answered_yet_is_not_published_again(
    bench: ClientBench, session: Session
) -> None:
    """The link goes in the read in which it came."""
    sender = sender_of(session)
    sender.send(data(b"0"), tag=tag(0), settle=False)
    session.send(p.Detach(handle=sender.handle, closed=False), settle=False)
    bench.settle()
    session.peer.read()
    assert known_to(sender_of(session, {tag(0): None})) == {tag(0): p.Accepted()}
    assert bodies_of(bench, "q") == [b"0"]


def test_what_had_come_in_part_is_not_known(bench: ClientBench, session: Session) -> None:
    sender = sender_of(session)
    transfer = p.Transfer(handle=sender.handle, delivery_id=0, delivery_tag=tag(0), more=True)
    session.next_delivery += 1
    session.send(transfer, b"part")
    sender.detach(closed=False)
    assert known_to(sender_of(session, {tag(0): None})) is None


def test_a_link_that_is_closed_leaves_nothing(bench: ClientBench, session: Session) -> None:
    sender = sender_of(session)
    sender.send(data(b"0"), tag=tag(0))
    sender.detach(closed=True)
    assert known_to(sender_of(session, {tag(0): None})) is None
    assert not termini_of(bench.host).targets


def test_with_mode_first_we_have_settled_and_know_of_nothing(bench: ClientBench, session: Session) -> None:
    """The sender sends again what it wonders about. To resume that is a mistake."""
    sender = sender_of(session, mode=0)
    sender.send(data(b"0"), tag=tag(0))
    sender.detach(closed=False)
    sender = sender_of(session, {tag(0): None}, mode=0)
    assert known_to(sender) is None
    assert sender.publish(data(b"0"), tag=tag(0)) == p.Accepted()
    resume(sender, tag(0))
    assert sender.refusal() == "amqp:not-implemented Link recovery not supported"
    assert bodies_of(bench, "q") == [b"0", b"0"]


@pytest.mark.parametrize("fields", [{"unsettled": {b"tag": None}}, {"incomplete_unsettled": True}])
def test_s176_what_cannot_be_recovered_is_refused(session: Session, fields: dict[str, object]) -> None:
    """The links of management and of transactions."""
    text = "amqp:not-implemented Link recovery not supported"
    assert session.ask_receiver("/management", properties={"paired": True}, **fields).refusal() == text
    assert session.ask_sender(p.Coordinator(), **fields).refusal() == text


def test_what_a_sender_cannot_list_in_one_attach_is_kept_for_the_next(
    bench: ClientBench, session: Session
) -> None:
    sent(session, 3)
    sender = sender_of(session, {tag(1): None}, incomplete_unsettled=True)
    assert known_to(sender) == {tag(1): p.Accepted()}
    resume(sender, tag(1), settled=True)
    sender.detach(closed=False)
    sender = sender_of(session, {tag(0): None, tag(2): None})
    assert known_to(sender) == {tag(0): p.Accepted(), tag(2): p.Accepted()}
    assert bodies_of(bench, "q") == [b"0", b"1", b"2"]


def test_what_we_cannot_tell_in_one_attach_is_told_by_the_next(bench: ClientBench) -> None:
    """Until then nothing new may come (part 2, section 2.7.3)."""
    session = session_of(bench)
    sender = sender_of(session)
    for number in range(100):
        sender.send(data(b""), tag=tag(number))
    session.peer.drop()
    small = Peer(bench).open(max_frame_size=512).begin()
    unsettled = {tag(number): None for number in range(100)}
    sender = sender_of(small, unsettled)
    known = known_to(sender)
    assert sender.attached.incomplete_unsettled
    assert 10 < len(known) < 100
    for each in known:
        resume(sender, each, settled=True)
        del unsettled[each]
    sender.send(data(b"new"), tag=b"new")
    assert sender.refusal().startswith("amqp:not-allowed")
    sender = sender_of(session_of(bench), unsettled)
    assert known_to(sender) == {each: p.Accepted() for each in unsettled}
    assert bench.queue("q").ready == 100


def test_what_the_sender_aborts_it_has_settled(bench: ClientBench, session: Session) -> None:
    sent(session)
    unsettled = {tag(0): None, tag(1): None}
    sender = sender_of(session, unsettled)
    aborted = p.Transfer(
        handle=sender.handle,
        delivery_id=session.next_delivery,
        delivery_tag=tag(0),
        resume=True,
        aborted=True,
    )
    session.next_delivery += 1
    session.send(aborted)
    sender.detach(closed=False)
    assert known_to(sender_of(session, unsettled)) == {tag(1): p.Accepted()}
    assert bodies_of(bench, "q") == [b"0", b"1"]


def test_a_sender_that_comes_back_with_mode_first_resumes_what_it_left_with_second(
    bench: ClientBench, session: Session
) -> None:
    sent(session, 1)
    sender = sender_of(session, {tag(0): None}, mode=0)
    id = resume(sender, tag(0))
    assert sender.outcome(id) == p.Accepted()
    assert bodies_of(bench, "q") == [b"0"]


def test_containers_and_links_have_their_own_deliveries(bench: ClientBench, session: Session) -> None:
    sent(session, 1)
    unsettled = {tag(0): None}
    assert known_to(sender_of(session, unsettled, name="other")) is None
    other = Peer(bench).open(container_id="other").begin()
    assert known_to(sender_of(other, unsettled)) is None
    assert known_to(sender_of(session, unsettled)) == {tag(0): p.Accepted()}


@pytest.mark.parametrize(
    ("expiry", "timeout"),
    [("link-detach", 30), ("session-end", 30), ("connection-close", 0), ("connection-close", 30)],
)
def test_they_are_kept_as_the_target_asks(
    bench: ClientBench, session: Session, expiry: str, timeout: int
) -> None:
    sender = sender_of(session, expiry=expiry, timeout=timeout)
    sender.send(data(b"0"), tag=tag(0))
    sender.detach(closed=False)
    kept = termini_of(bench.host).targets
    if expiry != "link-detach":
        bench.advance(1000)
        assert len(kept) == 1
        session.peer.close() if expiry == "connection-close" else session.end()
    assert len(kept) == (1 if timeout else 0)
    bench.advance(timeout)
    assert not kept


def test_s174_the_default_policy_alone_asks_for_nothing_to_keep(bench: ClientBench, session: Session) -> None:
    sender = sender_of(session, expiry="session-end")
    id = sender.send(data(b"0"), tag=tag(0))
    assert (sender.outcome(id), id in session.settled) == (p.Accepted(), True)
    sender.detach(closed=False)
    assert not termini_of(bench.host).targets


def test_a_link_that_is_kept_under_a_name_is_not_lost_with_another_of_that_name(bench: ClientBench) -> None:
    """Two connections, one name: who leaves last is remembered."""
    first, second = session_of(bench), session_of(bench)
    senders = [sender_of(each, expiry="connection-close") for each in (first, second)]
    for sender in senders:
        sender.send(data(b""), tag=tag(0))
        sender.detach(closed=False)
    first.peer.close()
    assert len(termini_of(bench.host).targets) == 1
    second.peer.close()
    assert not termini_of(bench.host).targets


class Noted(Terminus):
    """A terminus that is in a list as long as it is kept."""

    has_gone = False

    def __init__(self, termini: Termini, name: str, kept: list[str]) -> None:
        super().__init__(termini, ("", "", name))
        self.kept = kept
        kept.append(name)
        termini.keep_target(self)

    def expire(self) -> None:
        self._termini.forget_target(self)
        self.kept.remove(self.key[-1])


def test_only_so_many_links_are_kept_and_the_oldest_goes_first(bench: ClientBench) -> None:
    kept: list[str] = []
    for number in range(TARGETS_MAX + 2):
        Noted(termini_of(bench.host), f"s{number}", kept)
    assert (len(kept), kept[0], kept[-1]) == (TARGETS_MAX, "s2", f"s{TARGETS_MAX + 1}")


# In transactions.


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_what_a_transaction_promised_is_known_once_it_is_discharged(
    bench: ClientBench, session: Session, commit: bool, late: bool
) -> None:
    """Rolled back, it is to be sent again. `late`: the sender comes back before the discharge."""
    control = Control(session)
    tx, sender = control.declare(), sender_of(session)
    sender.send(data(b"0"), tag=tag(0), state=in_tx(tx))
    sender.detach(closed=False)
    if not late:
        control.commit(tx) if commit else control.roll_back(tx)
    sender = sender_of(session, {tag(0): None})
    known = in_tx(tx, p.Accepted()) if late else p.Accepted()
    assert known_to(sender) == ({tag(0): known} if late or commit else None)
    if late:
        id = resume(sender, tag(0))
        assert sender.outcome(id) == known
        control.commit(tx) if commit else control.roll_back(tx)
        assert sender.outcome(id) == (p.Accepted() if commit else None)
    elif commit:
        assert sender.outcome(resume(sender, tag(0))) == p.Accepted()
    assert bodies_of(bench, "q") == ([b"0"] if commit else [])


def test_a_link_of_many_messages_keeps_no_more_than_is_unsettled(
    bench: ClientBench, session: Session
) -> None:
    sender = sender_of(session)
    for number in range(500):
        id = sender.send(data(b""), tag=pack(">I", number))
        session.peer.read()
        session.dispose(None, id, role=SENDER)
    sender.detach(closed=False)
    assert not termini_of(bench.host).targets
    assert bench.queue("q").ready == 500


# A restart.


@pytest.mark.parametrize(("asked", "told"), [(0, 0), (1, 1), (2, 1)])
def test_a_target_that_ends_with_its_link_tells_that_nothing_of_deliveries_outlives_the_node(
    session: Session, asked: int, told: int
) -> None:
    """Part 3, section 3.5.5."""
    sender = session.sender(p.Target(address="/queues/q", durable=asked), rcv_settle_mode=SECOND)
    assert sender.attached.target.durable == told


def test_without_durable_state_we_know_of_none_after_a_restart_and_what_was_on_disk_is_there_twice() -> None:
    bench = StoredBench(PATIENT)
    declare(bench, "q", durable=True)
    sender = sender_of(session_of(bench))
    for number in range(2):
        sender.send(p.Header(durable=True), data(b"%d" % number), tag=tag(number))
    after = bench.again()
    sender = sender_of(session_of(after), {tag(0): None, tag(1): p.Accepted()})
    assert not known_to(sender)
    for number in range(2):
        id = sender.send(p.Header(durable=True), data(b"%d" % number), tag=tag(number))
        assert sender.outcome(id) == p.Accepted()
    assert bodies_of(after, "q") == [b"0", b"1", b"0", b"1"]

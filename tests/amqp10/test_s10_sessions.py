"""AMQP 1.0 sessions and links from the client's side, §10 of the acceptance list: alarms, windows, credit, refusals."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp091.peer import channel_of
from tests.harness.bench import ClientBench

from .client import MIXED, SETTLED, UNSETTLED, Sender, Session
from .parts import data, frame
from .peer import Peer, declared, session_of

ALARM = "low on memory"


def window(session: Session) -> int:
    """The incoming window that the broker told last."""
    session.peer.read()
    assert session.begun is not None
    return session.flows[-1].incoming_window if session.flows else session.begun.incoming_window


def windows(session: Session) -> list[int]:
    """Those told since the last look."""
    session.peer.read()
    told = [flow.incoming_window for flow in session.flows]
    session.flows.clear()
    return told


# Alarms.


def test_s162_during_an_alarm_the_window_is_shut(bench: ClientBench) -> None:
    session = session_of(bench)
    assert window(session) == 400
    bench.broker.alarms.set(ALARM)
    assert window(session) == 0
    bench.broker.alarms.set("low on disk")
    bench.broker.alarms.clear(ALARM)
    assert window(session) == 0
    bench.broker.alarms.clear("low on disk")
    assert window(session) == 400


def test_s162_what_was_under_way_when_the_window_was_shut_is_taken(bench: ClientBench) -> None:
    bench = declared(ClientBench("protocols.amqp10.link_credit = 1000"), ["q"])
    sender = session_of(bench).sender("/queues/q")
    bench.broker.alarms.set(ALARM)
    assert windows(sender.session)[-1] == 0
    for _ in range(400):
        sender.send(data(b"x"), settle=False)
    bench.settle()
    assert bench.queue("q").ready == 400
    assert set(windows(sender.session)) <= {0}
    sender.send(data(b"one too many"))
    assert sender.session.refusal().startswith("amqp:session:window-violation")
    assert bench.queue("q").ready == 400


def test_s162_the_alarm_clears_and_publishing_goes_on(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q")
    bench.broker.alarms.set(ALARM)
    sender.publish(data(b"x"))
    assert window(sender.session) == 0
    bench.broker.alarms.clear(ALARM)
    assert window(sender.session) == 400
    for _ in range(1000):
        assert sender.publish(data(b"x")) == p.Accepted()


def test_s163_a_session_that_begins_during_an_alarm_has_no_window(bench: ClientBench) -> None:
    bench.broker.alarms.set(ALARM)
    session = session_of(bench)
    assert session.begun.incoming_window == 0
    sender = session.sender("/queues/q")
    assert window(session) == 0
    bench.broker.alarms.clear(ALARM)
    assert window(session) == 400
    assert sender.publish(data(b"x")) == p.Accepted()


def test_s162_consumers_go_on_during_an_alarm(bench: ClientBench) -> None:
    """S155."""
    bench.broker.alarms.set(ALARM)
    channel_of(bench).publish("", "q", b"before")
    receiver = session_of(bench).receiver("/queues/q", credit=10)
    assert receiver.get().body == b"before"
    receiver.accept()
    assert bench.queue("q").unsettled == 0
    assert not receiver.peer.front.blocked


def test_s162_sessions_of_many_connections_are_told(bench: ClientBench) -> None:
    sessions = [session_of(bench) for _ in range(3)] + [Peer(bench).open().begin() for _ in range(2)]
    sessions.append(sessions[0].peer.begin())
    bench.broker.alarms.set(ALARM)
    assert [window(session) for session in sessions] == [0] * 6
    sessions[0].end()
    sessions[1].peer.drop()
    bench.broker.alarms.clear(ALARM)
    assert [window(session) for session in sessions[2:]] == [400] * 4


# Windows and credit.


def test_s170_more_transfers_than_the_window_end_the_session() -> None:
    bench = declared(ClientBench("protocols.amqp10.incoming_window = 3"), ["q"])
    for count in (3, 4):
        session = session_of(bench)
        session.sender("/queues/q")
        session.peer.send_bytes(b"".join(transfer(session, number) for number in range(count)))
        session.peer.read()
        assert (session.ended is None) == (count == 3)
    assert session.refusal().startswith("amqp:session:window-violation")
    assert bench.queue("q").ready == 6


def transfer(session: Session, number: int) -> bytes:
    """A small message on the session's first link."""
    transfer = p.Transfer(handle=0, delivery_id=number, delivery_tag=b"%d" % number, message_format=0)
    return frame(session.channel, transfer, data(b"x"))


def test_x055_a_sender_gets_170_credits_and_more_when_half_is_used(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q")
    assert sender.credit == 170
    for _ in range(84):
        sender.publish(data(b"x"))
    assert sender.credit == 86
    sender.publish(data(b"x"))
    assert sender.credit == 170
    for _ in range(1000):
        assert sender.publish(data(b"x")) == p.Accepted()
        assert sender.credit >= 85


def test_x055_the_credit_can_be_configured() -> None:
    bench = declared(ClientBench("protocols.amqp10.link_credit = 10"), ["q"])
    sender = session_of(bench).sender("/queues/q")
    assert sender.credit == 10
    for _ in range(5):
        sender.publish(data(b"x"))
    assert sender.credit == 10


def test_x055_settled_messages_bring_new_credit_too(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q", snd_settle_mode=SETTLED)
    for _ in range(1000):
        sender.send(data(b"x"))
        sender.peer.read()
        assert sender.credit > 0
    assert bench.queue("q").ready == 1000


def test_x055_no_credit_while_too_much_is_unanswered(bench: ClientBench) -> None:
    """What the broker has not settled is not answered: 85 were when credit was granted again, 170 are no more."""
    sender = session_of(bench).sender("/queues/q")
    sent = use_up(sender)
    assert sent == 170 + 85
    assert sender.session.outcomes == {}
    bench.settle()
    sender.peer.read()
    assert sender.credit == 170
    assert len(sender.session.settled) == sent


def test_s171_a_transfer_without_credit_ends_the_link(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q")
    sent = use_up(sender)
    sender.send(data(b"one too many"), settle=False)
    bench.settle()
    assert sender.refusal().startswith("amqp:link:transfer-limit-exceeded")
    assert bench.queue("q").ready == sent


def use_up(sender: Sender) -> int:
    """Send as long as there is credit, while the broker does not settle; how much that was."""
    sent = 0
    while sender.credit:
        sender.send(data(b"x"), settle=False)
        sent += 1
        sender.peer.hear(sender.peer.take_bytes())
    return sent


@pytest.mark.parametrize("ends", ["link", "session"])
def test_s172_a_message_that_is_too_large_ends_the_link_or_the_session(ends: str) -> None:
    toml = f'limits.message_size_max = 1000\ncompat.link_errors = "{ends}"'
    bench = declared(ClientBench(toml), ["q"])
    sender = session_of(bench).sender("/queues/q")
    assert sender.attached.max_message_size == 1000
    largest = data(bytes(1000 - 8))
    assert len(largest) == 1000
    assert sender.publish(largest) == p.Accepted()
    sender.send(data(bytes(1000 - 7)))
    why = "message size (1001 bytes) > maximum message size (1000 bytes) (limits.message_size_max)"
    ended = sender if ends == "link" else sender.session
    assert ended.refusal() == f"amqp:link:message-size-exceeded {why}"
    assert bench.queue("q").ready == 1


@pytest.mark.parametrize(
    ("mode", "name", "settled"), [(SETTLED, "settled", False), (UNSETTLED, "unsettled", True)]
)
def test_s173_transfers_keep_to_the_settle_mode_of_their_link(
    bench: ClientBench, mode: int, name: str, settled: bool
) -> None:
    sender = session_of(bench).sender("/queues/q", snd_settle_mode=mode)
    assert sender.attached.snd_settle_mode == mode
    sender.send(data(b"x"), settled=settled)
    said = str(settled).lower()
    why = f"sender settle mode is '{name}' but transfer settled flag is interpreted as being '{said}'"
    assert sender.refusal() == f"amqp:invalid-field {why}"
    assert bench.queue("q").ready == 0


def test_s173_a_mixed_link_takes_both(bench: ClientBench) -> None:
    sender = session_of(bench).sender("/queues/q", snd_settle_mode=MIXED)
    assert sender.publish(data(b"x"), settled=False) == p.Accepted()
    assert sender.publish(data(b"x"), settled=True) is None
    assert bench.queue("q").ready == 2


# Handles and links.


def test_s168_a_handle_in_use_ends_the_session(bench: ClientBench) -> None:
    session = session_of(bench)
    session.sender("/queues/q", handle=5)
    session.ask_sender("/queues/q", handle=5)
    why = "handle 5 is already associated with a link"
    assert session.refusal() == f"amqp:session:handle-in-use {why}"


def test_s169_an_unknown_handle_ends_the_session(bench: ClientBench) -> None:
    for performative in (
        p.Transfer(handle=7, delivery_id=0, delivery_tag=b"x"),
        p.Flow(next_incoming_id=0, incoming_window=1, next_outgoing_id=0, outgoing_window=1, handle=7),
    ):
        session = session_of(bench)
        session.send(performative)
        assert session.refusal() == "amqp:session:unattached-handle Unattached link handle: 7"


def test_x053_handles_end_where_the_configuration_says() -> None:
    bench = declared(ClientBench("protocols.amqp10.link_max = 2"), ["q"])
    session = session_of(bench)
    assert session.begun.handle_max == 1
    session.sender("/queues/q", handle=1)
    session.ask_sender("/queues/q", handle=2)
    why = "link handle value (2) exceeds maximum link handle value (1)"
    assert session.peer.refusal() == f"amqp:connection:framing-error {why}"


def test_s177_a_refused_sender_is_told_by_a_missing_target_and_then_why(bench: ClientBench) -> None:
    session = session_of(bench)
    sender = session.ask_sender("/queues/nowhere")
    assert [type(what) for what in session.peer.taken(p.Attach, p.Detach)] == [p.Attach, p.Detach]
    assert sender.attached.target is None
    assert sender.detached.closed
    assert sender.refusal() == "amqp:not-found no queue 'nowhere' in vhost '/'"
    assert sender.credit == 0


def test_s177_a_refused_receiver_is_told_by_a_missing_source_and_then_why(bench: ClientBench) -> None:
    session = session_of(bench)
    receiver = session.ask_receiver("/queues/nowhere")
    assert [type(what) for what in session.peer.taken(p.Attach, p.Detach)] == [p.Attach, p.Detach]
    assert receiver.attached.source is None
    assert receiver.detached.closed
    assert receiver.refusal() == "amqp:not-found no queue 'nowhere' in vhost '/'"


def test_many_links_of_one_session_are_answered_each_its_own(bench: ClientBench) -> None:
    session = session_of(bench)
    senders = [session.sender("/queues/q") for _ in range(20)]
    ids = [sender.send(data(b"x"), settle=False) for _ in range(5) for sender in senders]
    bench.settle()
    session.peer.read()
    assert session.settled == set(ids)
    assert set(map(type, session.outcomes.values())) == {p.Accepted}
    for sender in senders[::2]:
        sender.detach()
    assert [sender.publish(data(b"x")) for sender in senders[1::2]] == [p.Accepted()] * 10


def test_a_session_ends_with_its_links_and_others_go_on(bench: ClientBench) -> None:
    first = session_of(bench)
    second = first.peer.begin()
    first.receiver("/queues/q", credit=1)
    receiver = second.receiver("/queues/q", credit=1)
    first.end()
    assert len(bench.queue("q").consumers) == 1
    sender: Sender = second.sender("/queues/q")
    assert sender.publish(data(b"x")) == p.Accepted()
    assert receiver.get().body == b"x"

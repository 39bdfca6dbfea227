"""What qpidd was seen to answer in odd cases, one test each. Where Leveret differs on purpose, the test says so.

The session is called p1 and is on channel 5, as it was when qpidd was asked.
"""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.sequences import SequenceSet

from .client import ClientSession, SessionEnded, frame, ids
from .peer import Peer


@pytest.fixture
def peer() -> Peer:
    return Peer().open()


@pytest.fixture
def p1(peer: Peer) -> ClientSession:
    session = peer.attach("p1", channel=5)
    session.taken()
    return session


def declared(p1: ClientSession) -> None:
    """A queue that one test after the other works on."""
    p1.declare("probe-q", auto_delete=True)
    p1.taken()


def completed(*ranges: int | tuple[int, int], timely_reply: bool = False) -> c.SessionCompleted:
    return c.SessionCompleted(ids(*ranges), timely_reply)


def test_attach_is_answered_by_attached_and_then_the_command_point(peer: Peer) -> None:
    session = peer.attach("p1", channel=5)
    assert session.taken() == [c.SessionAttached(b"p1"), c.SessionCommandPoint(0, 0)]


def test_the_same_attach_again_is_not_answered(p1: ClientSession) -> None:
    p1.control(c.SessionAttach(b"p1"))
    assert p1.taken() == []


def test_another_session_on_the_channel_finds_it_busy(p1: ClientSession) -> None:
    p1.control(c.SessionAttach(b"p2"))
    assert p1.taken() == [c.SessionDetached(b"p2", c.DETACH_CODE_TRANSPORT_BUSY)]


def test_a_name_in_use_on_another_channel_is_busy(p1: ClientSession) -> None:
    with pytest.raises(SessionEnded) as ended:
        p1.client.attach("p1", channel=6)
    assert ended.value.detached == c.SessionDetached(b"p1", c.DETACH_CODE_SESSION_BUSY)


def test_a_timeout_is_granted(p1: ClientSession) -> None:
    """Another answer than qpidd's, which grants 0 to everybody: sessions are resumed here."""
    p1.control(c.SessionRequestTimeout(300))
    assert p1.taken() == [c.SessionTimeout(300)]


def test_a_fresh_session_answers_a_flush_with_three_controls(p1: ClientSession) -> None:
    p1.control(c.SessionFlush(expected=True, confirmed=True, completed=True))
    expected, confirmed, done = p1.taken()
    assert isinstance(expected, c.SessionExpected)
    assert isinstance(confirmed, c.SessionConfirmed)
    assert isinstance(done, c.SessionCompleted)
    assert not confirmed.commands
    assert not done.commands


def test_a_flush_asks_for_completion_that_nothing_else_asked_for(p1: ClientSession) -> None:
    p1.send(c.QueueDeclare("probe-q", auto_delete=True))
    p1.control(c.SessionFlush(completed=True))
    assert p1.taken(c.SessionCompleted)[-1].commands == ids(0)


def test_a_query_with_sync_is_answered_by_its_result_and_then_completed(p1: ClientSession) -> None:
    declared(p1)
    p1.send(c.QueueQuery("probe-q"), sync=True)
    result, done = p1.taken()
    assert result.command_id == 1
    assert result.value.queue == "probe-q"
    assert result.value.auto_delete
    assert (result.value.message_count or 0, result.value.subscriber_count or 0) == (0, 0)
    assert done.commands == ids((0, 1))


def test_a_query_for_a_missing_queue_is_answered_by_nothing_but_absent_fields(p1: ClientSession) -> None:
    p1.send(c.QueueQuery("none"), sync=True)
    result, done = p1.taken()
    assert result == c.ExecutionResult(0, c.QueueQueryResult())
    assert done.commands == ids(0)


def test_bound_says_what_does_not_match(p1: ClientSession) -> None:
    declared(p1)
    p1.send(c.ExchangeBound("amq.direct", "probe-q", "nowhere"), sync=True)
    result, _ = p1.taken()
    assert result.value == c.ExchangeBoundResult(queue_not_matched=True, key_not_matched=True)


def test_a_transfer_in_explicit_mode_is_accepted_and_then_completed(p1: ClientSession) -> None:
    declared(p1)
    id = p1.publish("probe-q", b"m1", accept_mode=c.ACCEPT_MODE_EXPLICIT, sync=True)
    accept, done = p1.taken()
    assert accept == c.MessageAccept(ids(id))
    assert done.commands == ids((0, id))


def test_a_transfer_without_acceptance_is_completed_by_the_next_sync(p1: ClientSession) -> None:
    declared(p1)
    p1.publish("probe-q", b"m2")
    p1.send(c.ExecutionSync(), sync=True)
    said = p1.taken()
    assert set(map(type, said)) == {c.SessionCompleted}
    assert said[-1].commands == ids((0, 2))


def test_a_transfer_that_goes_nowhere_is_accepted_and_completed(p1: ClientSession) -> None:
    p1.publish("nowhere", b"m3", accept_mode=c.ACCEPT_MODE_EXPLICIT, sync=True)
    accept, done = p1.taken()
    assert accept == c.MessageAccept(ids(0))
    assert done.commands == ids(0)


def test_one_message_of_credit_brings_one_message(p1: ClientSession) -> None:
    declared(p1)
    p1.publish("probe-q", b"m1", properties=c.MessageProperties(application_headers={"a": 1}))
    p1.publish("probe-q", b"m2")
    inbox = p1.subscribe("probe-q", "d", messages=1)
    (message,) = inbox.all()
    assert (message.body, message.headers) == (b"m1", {"a": 1})
    assert (message.delivery.exchange or "", message.delivery.routing_key) == ("", "probe-q")
    assert (message.transfer.accept_mode or 0, message.transfer.acquire_mode or 0) == (0, 0)


def test_a_flush_of_the_subscription_is_completed(p1: ClientSession) -> None:
    declared(p1)
    p1.subscribe("probe-q", "d", messages=1)
    p1.call(c.MessageFlush("d"))


def test_accepting_before_completing_is_fine_and_gives_no_credit_back(p1: ClientSession) -> None:
    declared(p1)
    for body in (b"m1", b"m2"):
        p1.publish("probe-q", body)
    inbox = p1.subscribe("probe-q", "d", messages=1)
    first = inbox.get()
    p1.accept(first.id)
    assert inbox.bodies() == []


def test_completing_gives_the_window_its_credit_back(p1: ClientSession) -> None:
    """qpidd was not seen to: it had nothing left to send."""
    declared(p1)
    for body in (b"m1", b"m2"):
        p1.publish("probe-q", body)
    inbox = p1.subscribe("probe-q", "d", messages=1)
    p1.complete(inbox.get().id)
    assert inbox.bodies() == [b"m2"]


def test_a_gap_is_what_it_says(p1: ClientSession) -> None:
    """Another answer than qpidd's, which has not implemented it: ids that never come are done with."""
    declared(p1)
    p1.control(c.SessionGap(ids((1, 3))))
    p1.next_id = 4
    p1.sync()
    assert p1.completed.ranges == [(0, 4)]


def test_detach_is_answered(p1: ClientSession) -> None:
    p1.control(c.SessionDetach(b"p1"))
    assert p1.taken() == [c.SessionDetached(b"p1", c.DETACH_CODE_NORMAL)]


def test_to_subscribe_to_a_missing_queue_ends_the_session(p1: ClientSession) -> None:
    p1.answers = False
    p1.send(c.MessageSubscribe("nope", "d"))
    exception, detach = p1.taken(c.ExecutionException, c.SessionDetach)
    assert (exception.error_code, exception.command_id) == (c.ERROR_CODE_NOT_FOUND, 0)
    assert (exception.class_code, exception.command_code) == (4, 7)
    assert "nope" in exception.description
    assert detach == c.SessionDetach(b"p1")


def test_the_channel_of_an_ended_session_is_free_once_detached_has_been_said(p1: ClientSession) -> None:
    p1.answers = False
    p1.send(c.MessageSubscribe("nope", "d"))
    p1.send(c.QueueDeclare("not heard"))
    p1.control(c.SessionDetached(b"p1", c.DETACH_CODE_NORMAL))
    assert p1.client.attach("p2", channel=5).attached
    assert "not heard" not in p1.client.bench.host.queues


def test_a_command_on_a_channel_without_a_session_does_nothing_and_is_not_answered(peer: Peer) -> None:
    peer.send_bytes(frame(c.QueueDeclare("not heard").encode(True), 9, segment=1))
    peer.send_bytes(frame(c.QueueDeclare("not heard").encode(True), 9, segment=1))
    heard = len(peer.heard)
    peer.read()
    assert len(peer.heard) == heard
    assert "not heard" not in peer.bench.host.queues
    assert peer.attach(channel=9).attached


def test_a_command_before_the_command_point_ends_the_session(peer: Peer) -> None:
    session = peer.sessions[1] = ClientSession(peer, 1, b"p4")
    session.answers = False
    session.control(c.SessionAttach(b"p4"))
    session.send(c.QueueDeclare("not heard"))
    exception, detach = session.taken(c.ExecutionException, c.SessionDetach)
    assert exception.error_code == c.ERROR_CODE_ILLEGAL_STATE
    assert (exception.class_code, exception.command_code) == (8, 1)
    assert detach == c.SessionDetach(b"p4")
    assert "not heard" not in peer.bench.host.queues


@pytest.mark.parametrize(
    "octets",
    [
        bytes.fromhex("4f00 0010 0000 0000 00000000 010a 0000"),  # another version of framing
        bytes.fromhex("1f00 0010 0000 0000 00000000 010a 0000"),  # a reserved flag
        bytes.fromhex("0f00 000b 0000 0000 00000000"),  # shorter than a frame's head
        bytes.fromhex("0f00 0010 0100 0000 00000000 010a 0000"),  # a reserved octet
        bytes.fromhex("0f00 0010 0010 0000 00000000 010a 0000"),  # the reserved half of the track's octet
        bytes.fromhex("0f04 0010 0000 0000 00000000 010a 0000"),  # a fifth kind of segment
    ],
)
def test_reserved_bits_end_the_connection(peer: Peer, octets: bytes) -> None:
    """Unlike qpidd, which only leaves, we say why before we do."""
    peer.send_bytes(octets)
    peer.read()
    assert peer.closed is not None
    assert peer.closed.reply_code == c.CLOSE_CODE_FRAMING_ERROR
    assert peer.front.closed


def test_the_last_reserved_octets_of_a_frame_are_not_looked_at(peer: Peer) -> None:
    peer.send_bytes(bytes.fromhex("0f00 0010 0000 0000 ffffffff 010a 0000"))
    assert peer.attach().attached


def test_close_is_answered(peer: Peer) -> None:
    peer.close()
    assert peer.close_ok == c.ConnectionCloseOk()
    assert peer.front.closed


def test_a_command_segment_may_be_in_several_frames(p1: ClientSession) -> None:
    """Unlike qpidd, which ends the session."""
    octets = c.QueueDeclare("probe-q", auto_delete=True).encode(True)
    pieces = [octets[at : at + 5] for at in range(0, len(octets), 5)]
    for n, piece in enumerate(pieces):
        flags = 0x0C | (2 if n == 0 else 0) | (1 if n == len(pieces) - 1 else 0)
        p1.client.send_bytes(frame(piece, 5, flags, segment=1))
    assert p1.taken(c.SessionCompleted)[0].commands == ids(0)
    assert "probe-q" in p1.client.bench.host.queues


def test_ids_that_are_not_held_are_accepted_in_silence(p1: ClientSession) -> None:
    p1.accept(list(range(100, 110)))
    p1.call(c.MessageRelease(SequenceSet()))
    assert not p1.is_over


def test_the_session_name_need_not_be_text(peer: Peer) -> None:
    name = b"\xff\x00caf\xe9"
    assert peer.attach(name).attached
    assert peer.sessions[1].taken()[0] == c.SessionAttached(name)


def test_the_name_of_a_session_can_be_used_again_at_once(peer: Peer) -> None:
    """The tests of one client have one name for all their sessions, and a timeout of 0."""
    for _ in range(3):
        session = peer.attach("test-session", channel=1)
        session.declare("mine", exclusive=True, auto_delete=True)
        session.detach()
        del peer.sessions[1]
        assert "mine" not in peer.bench.host.queues

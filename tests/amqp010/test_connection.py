"""The connection's machine: how it begins, how it ends, its clocks, and which session is on which channel."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.machine.connection import State
from leveret.protocols.amqp010.machine.contract import AmqpError, AttachRefused
from leveret.protocols.amqp010.machine.greeting import recognise

from .client import HEADER, frame
from .machine import START_OK, Machine

CLOSE = c.ConnectionClose(c.CLOSE_CODE_NORMAL, "bye")


# The beginning.


def test_the_header_is_answered_with_itself_and_start() -> None:
    header, start = Machine(server_properties={"product": "us"}).receive(HEADER)
    assert header == HEADER
    assert start == c.ConnectionStart({"product": "us"}, ["PLAIN", "DEMO"], ["en_US"])


@pytest.mark.parametrize(
    ("octets", "spoken"),
    [
        (b"AMQP\x00\x00\x09\x01", "AMQP 0-9-1"),
        (b"AMQP\x01\x01\x00\x09", "AMQP 0-9"),
        (b"AMQP\x03\x01\x00\x00", "AMQP 1.0 with SASL"),
        (b"AMQP\x01\x01\x00\x0b", "an unknown version of AMQP"),
        (b"GET / HT", "HTTP GET"),
        (b"\x16\x03\x01\x00\x00\x00\x00\x00", "TLS"),
        (b"whatever", "an unknown protocol"),
    ],
)
def test_who_speaks_something_else_is_told_what_is_spoken_and_left(octets: bytes, spoken: str) -> None:
    machine = Machine()
    assert machine.receive(octets) == [HEADER]
    assert machine.wire.closed
    assert machine.wire.peer_spoke == recognise(octets) == spoken
    assert machine.told == ["closed"]


def test_tune_says_all_of_its_fields() -> None:
    """One client fails without a channel-max, so the zero is said as well."""
    machine = Machine(session_max=7, frame_max=5000, heartbeat_s=9).start()
    (tune,) = machine.say(START_OK)
    assert tune == c.ConnectionTune(7, 5000, 0, 9)


def test_a_login_of_several_steps() -> None:
    machine = Machine().start()
    machine.handler.challenges = [b"who?", b"really?"]
    assert machine.say(c.ConnectionStartOk({}, "DEMO", b"", "en_US")) == [c.ConnectionSecure(b"who?")]
    assert machine.say(c.ConnectionSecureOk(b"me")) == [c.ConnectionSecure(b"really?")]
    assert isinstance(machine.say(c.ConnectionSecureOk())[0], c.ConnectionTune)
    assert machine.told == ["start-ok DEMO b''", "secure-ok b'me'", "secure-ok b''"]


def test_an_absent_response_is_told_from_an_empty_one() -> None:
    machine = Machine().start()
    machine.say(c.ConnectionStartOk({}, "PLAIN"))
    assert machine.told == ["start-ok PLAIN None"]


@pytest.mark.parametrize("mechanism", ["GSSAPI", None])
def test_a_mechanism_that_was_not_offered_ends_it(mechanism: str | None) -> None:
    (close,) = Machine().start().say(c.ConnectionStartOk({}, mechanism, b""))
    assert close.reply_code == c.CLOSE_CODE_CONNECTION_FORCED
    assert "unknown authentication mechanism" in close.reply_text


def test_everything_clients_leave_out_may_be_left_out() -> None:
    machine = Machine().start()
    machine.say(c.ConnectionStartOk(None, "PLAIN", b"\0ann\0secret"))
    assert machine.say(c.ConnectionTuneOk()) == []
    assert machine.say(c.ConnectionOpen()) == [c.ConnectionOpenOk([])]
    assert machine.told[-1] == "open ''"
    assert machine.wire.frame_max == 65535
    assert machine.wire.deadline() is None


@pytest.mark.parametrize(("asked", "agreed"), [(4096, 4096), (5000, 5000), (65535, 9000), (0, 9000)])
def test_frames_are_no_longer_than_both_want(asked: int, agreed: int) -> None:
    machine = Machine(frame_max=9000).log_in()
    machine.say(c.ConnectionTuneOk(max_frame_size=asked))
    assert machine.wire.frame_max == agreed


def test_frames_of_less_than_4096_octets_are_no_agreement() -> None:
    (close,) = Machine().log_in().say(c.ConnectionTuneOk(max_frame_size=4095))
    assert close.reply_code == c.CLOSE_CODE_CONNECTION_FORCED


def test_frames_are_taken_up_to_65535_octets_whatever_was_agreed() -> None:
    machine = Machine(frame_max=4096).open().attach()
    machine.command(c.MessageTransfer(), body=b"x" * (65535 - 12))
    assert machine.told[0] == f"s: message.transfer {b'x' * (65535 - 12)!r}"


def test_a_refusal_is_told_with_its_code() -> None:
    machine = Machine().start()
    machine.handler.error = AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, "no")
    assert machine.say(START_OK) == [c.ConnectionClose(320, "no")]
    assert machine.wire.state is State.CLOSING


def test_a_long_text_is_cut_to_what_a_close_can_hold() -> None:
    machine = Machine().start()
    machine.handler.error = AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, "ä" * 200)
    assert machine.say(START_OK) == [c.ConnectionClose(320, "ä" * 127)]


def test_bytes_of_the_peer_that_are_no_text_do_not_stand_in_the_way_of_a_close() -> None:
    machine = Machine().start()
    machine.handler.error = AmqpError(c.CLOSE_CODE_INVALID_PATH, "no vhost 'a\udcf2'")
    assert machine.say(START_OK) == [c.ConnectionClose(402, "no vhost 'a?'")]


# The end.


def test_a_close_is_answered_after_everything_has_ended() -> None:
    machine = Machine().open().attach()
    assert machine.say(CLOSE) == [c.ConnectionCloseOk()]
    assert machine.wire.closed
    assert machine.told == ["s: detached None", "detached b's'", "closed"]
    assert machine.wire.ended_because == "the client closed it: 200 bye"


def test_our_close_waits_for_its_answer() -> None:
    machine = Machine().open()
    machine.wire.fail(AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, "shutting down"))
    assert machine.heard() == [c.ConnectionClose(320, "shutting down")]
    assert not machine.wire.closed
    machine.say(c.ConnectionCloseOk())
    assert machine.wire.closed
    assert machine.told == ["closed"]


def test_crossing_closes_are_both_answered() -> None:
    machine = Machine().open()
    machine.wire.fail(AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, "shutting down"))
    machine.heard()
    assert machine.say(CLOSE) == [c.ConnectionCloseOk()]
    assert not machine.wire.closed
    machine.say(c.ConnectionCloseOk())
    assert machine.wire.closed


def test_while_closing_only_closes_are_heard() -> None:
    machine = Machine().open().attach()
    machine.wire.fail(AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, "no more"))
    machine.heard()
    machine.told  # noqa: B018 - looked at
    assert machine.say(c.SessionAttach(b"t"), 2) == []
    assert machine.say(c.SessionDetach(b"s"), 1) == []
    assert machine.command(c.ExecutionSync()) == []
    assert machine.say(START_OK) == []
    assert machine.told == []


def test_a_close_that_nobody_answers_is_waited_for_no_longer_than_a_handshake() -> None:
    machine = Machine(handshake_timeout_s=10.0).open()
    machine.wire.fail(AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, "no more"))
    machine.advance(9.9)
    assert not machine.wire.closed
    machine.advance(0.2)
    assert machine.wire.closed


def test_a_lost_transport_ends_everything_once() -> None:
    machine = Machine().open().attach()
    machine.wire.lost()
    machine.wire.lost()
    assert machine.told == ["s: detached None", "detached b's'", "closed"]
    assert machine.heard() == []


def test_lost_framing_is_said_and_nothing_is_waited_for() -> None:
    machine = Machine().open().attach()
    (close,) = machine.receive(b"\xff" * 12)
    assert close.reply_code == c.CLOSE_CODE_FRAMING_ERROR
    assert machine.wire.closed


# Time.


@pytest.mark.parametrize("state", ["start", "log_in", "tune"])
def test_a_handshake_has_its_time(state: str) -> None:
    machine = Machine(handshake_timeout_s=10.0)
    getattr(machine, state)()
    machine.advance(9.9)
    assert not machine.wire.closed
    assert machine.advance(0.2) == []
    assert machine.wire.closed


def test_an_open_connection_without_heartbeats_has_no_clock() -> None:
    machine = Machine().open()
    assert machine.wire.deadline() is None
    machine.advance(1e6)
    assert not machine.wire.closed


def test_we_beat_when_nothing_was_said_for_half_an_interval() -> None:
    machine = Machine().open(heartbeat=10)
    machine.advance(0.1)
    beats = machine.advance(15.0)
    assert beats
    assert set(map(type, beats)) == {c.ConnectionHeartbeat}


def test_who_is_silent_for_two_intervals_is_left() -> None:
    machine = Machine().open(heartbeat=10)
    for seconds in (10.0, 10.0, 9.9):
        machine.advance(seconds)
        assert not machine.wire.closed
    machine.advance(0.2)
    assert machine.wire.closed
    assert "missed heartbeats" in machine.wire.ended_because


def test_every_octet_is_a_sign_of_life() -> None:
    machine = Machine().open(heartbeat=10)
    for octet in c.ConnectionHeartbeat().encode() * 5:
        machine.advance(15.0)
        machine.receive(bytes([octet]) if octet == 0x0F else b"")
    assert not machine.wire.closed


def test_a_heartbeat_is_not_answered() -> None:
    """One client echoes each of ours; if we echoed his, there were no end."""
    assert Machine().open(heartbeat=10).say(c.ConnectionHeartbeat()) == []


def test_who_is_not_read_from_may_be_silent() -> None:
    machine = Machine().open(heartbeat=10)
    machine.wire.pause_monitor()
    machine.advance(100.0)
    assert not machine.wire.closed
    machine.wire.resume_monitor(machine.now)
    machine.advance(19.0)
    assert not machine.wire.closed
    machine.advance(2.0)
    assert machine.wire.closed


# Sessions and channels.


@pytest.mark.parametrize("channel", [0, 1, 65535])
def test_a_session_is_attached_to_any_channel(channel: int) -> None:
    machine = Machine().open()
    answer = machine.say(c.SessionAttach(b"s"), channel)
    assert answer == [(channel, c.SessionAttached(b"s")) if channel else c.SessionAttached(b"s")]
    assert machine.told == ["attach b's'", f"s: attach {channel}"]


def test_to_attach_it_again_where_it_is_changes_nothing() -> None:
    machine = Machine().open().attach()
    assert machine.say(c.SessionAttach(b"s"), 1) == []
    assert machine.told == []


def test_a_channel_carries_one_session() -> None:
    machine = Machine().open().attach()
    detached = c.SessionDetached(b"t", c.DETACH_CODE_TRANSPORT_BUSY)
    assert machine.say(c.SessionAttach(b"t"), 1) == [(1, detached)]
    assert machine.told == []


def test_a_session_that_may_not_be_attached_is_told_why() -> None:
    machine = Machine().open()
    machine.handler.error = AttachRefused(c.DETACH_CODE_SESSION_BUSY)
    assert machine.say(c.SessionAttach(b"s"), 1) == [(1, c.SessionDetached(b"s", c.DETACH_CODE_SESSION_BUSY))]
    assert machine.command(c.ExecutionSync()) == []
    assert not machine.wire.sessions


def test_force_is_handed_on() -> None:
    machine = Machine().open()
    machine.say(c.SessionAttach(b"s", True), 1)
    assert machine.told[0] == "attach b's' by force"


def test_there_are_no_more_sessions_than_were_offered() -> None:
    machine = Machine(session_max=2).open().attach(b"a", 1).attach(b"b", 900)
    refused = c.SessionDetached(b"c", c.DETACH_CODE_TRANSPORT_BUSY)
    assert machine.say(c.SessionAttach(b"c"), 3) == [(3, refused)]
    machine.say(c.SessionDetach(b"a"), 1)
    assert machine.say(c.SessionAttach(b"c"), 3) == [(3, c.SessionAttached(b"c"))]


def test_a_detached_session_frees_its_channel() -> None:
    machine = Machine().open().attach()
    assert machine.say(c.SessionDetach(b"s"), 1) == [(1, c.SessionDetached(b"s", c.DETACH_CODE_NORMAL))]
    assert machine.told == ["s: session.detach", "detached b's'"]
    assert machine.say(c.SessionAttach(b"t"), 1) == [(1, c.SessionAttached(b"t"))]


def test_what_follows_an_attach_in_one_read_is_the_sessions() -> None:
    machine = Machine().open()
    octets = frame(c.SessionAttach(b"s").encode(), 1) + frame(c.SessionCommandPoint(0, 0).encode(), 1)
    machine.receive(octets + frame(c.ExecutionSync().encode(), 1, segment=1))
    assert machine.told[1:] == ["s: attach 1", "s: session.command-point", "s: execution.sync", "s: settle"]


def test_on_a_channel_without_a_session_commands_do_nothing() -> None:
    machine = Machine().open().attach()
    assert machine.command(c.ExecutionSync(), channel=9) == []
    assert machine.command(c.MessageTransfer(), channel=9, body=b"x") == []
    for control in (
        c.SessionGap(),
        c.SessionFlush(True, True, True),
        c.SessionCompleted(),
        c.SessionDetached(),
    ):
        assert machine.say(control, 9) == []
    assert machine.told == []
    assert not machine.wire.closed


def test_who_leaves_a_session_that_is_not_there_reads_that() -> None:
    machine = Machine().open()
    detached = c.SessionDetached(b"s", c.DETACH_CODE_NOT_ATTACHED)
    assert machine.say(c.SessionDetach(b"s"), 9) == [(9, detached)]


def test_sessions_that_heard_something_are_settled_once_at_the_end_of_the_read() -> None:
    machine = Machine().open().attach(b"a", 1).attach(b"b", 2)
    machine.wire.flush()
    machine.told  # noqa: B018 - looked at
    sync = frame(c.ExecutionSync().encode(), 1, segment=1)
    machine.receive(sync + sync)
    assert machine.told == ["a: execution.sync", "a: execution.sync", "a: settle"]


def test_an_unknown_command_fails_its_session_only() -> None:
    machine = Machine().open().attach(b"a", 1).attach(b"b", 2)
    machine.receive(frame(b"\x77\x01\x01\x00\x00\x00", 1, segment=1))
    assert machine.told[0] == f"a: fail {c.ERROR_CODE_NOT_IMPLEMENTED}"
    machine.command(c.ExecutionSync(), channel=2)
    assert machine.told[0] == "b: execution.sync"


def test_a_command_that_cannot_be_read_fails_its_session_only() -> None:
    machine = Machine().open().attach()
    # a name of nine octets, and one is there
    machine.receive(frame(b"\x08\x01\x01\x00\x01\x00\x09q", 1, segment=1))
    assert machine.told[0] == f"s: fail {c.ERROR_CODE_COMMAND_INVALID}"
    assert not machine.wire.closed


def test_a_message_that_is_too_large_fails_its_session() -> None:
    machine = Machine(body_size_max=100).open().attach()
    machine.command(c.MessageTransfer(), body=b"x" * 101)
    assert machine.told[0] == f"s: fail {c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED}"


@pytest.mark.parametrize("payload", [b"\x01", b"\x01\x63\x00\x00", b"\x02\x63\x00\x00", b"\x63\x01\x00\x00"])
def test_a_control_that_cannot_be_read_or_is_unknown_ends_the_connection(payload: bytes) -> None:
    machine = Machine().open().attach()
    (close,) = machine.receive(frame(payload, 0))
    assert close.reply_code == c.CLOSE_CODE_FRAMING_ERROR


def test_others_have_their_turn_when_it_is_enough() -> None:
    machine = Machine().open().attach()
    machine.handler.enough = True
    transfer = frame(c.MessageTransfer().encode(), 1, segment=1)
    machine.receive(transfer * 2, flush=False)
    assert machine.wire.halted
    assert machine.told == ["s: message.transfer None"]
    machine.handler.enough = False
    machine.receive(b"")
    assert machine.told == ["s: message.transfer None", "s: settle"]
    assert not machine.wire.halted
    assert machine.wire.published == 2


def test_who_does_not_read_is_not_heard() -> None:
    machine = Machine().open().attach()
    machine.outbox.is_full = True
    machine.receive(frame(c.ExecutionSync().encode(), 1, segment=1) * 3, flush=False)
    assert machine.told == ["s: execution.sync"]

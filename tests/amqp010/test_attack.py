"""Sequences that no client says and that brought a broker down once, and their neighbours: each ends in a clean error.

Three were reported as CVE-2015-0203: a set with a range that ends before it begins, a header or a body behind a command
that has none, and session.gap before there is a session. An error is clean if it ends the session, or the connection,
with the code that it should have; if nobody else notices; and if nothing is left behind. `attack` looks after that.
"""

from __future__ import annotations

from struct import pack
from typing import Final

import pytest

from leveret.protocols.amqp010.broker.sessions import Sessions
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.sequences import SequenceSet
from tests.harness.bench import ClientBench

from . import attack as a
from .attack import PROPERTIES, TRANSFER, attack, command
from .client import WHOLE, ClientSession, SessionEnded, frame, ids
from .peer import Peer

FIRST, MIDDLE, LAST = 0x0B, 0x03, 0x07  # segments of one frame each
EVERYTHING: Final = (0, 0x7FFF_FFFF)  # half of the circle: a range that is wider ends before it begins
TROUBLE: Final = {
    "a range that ends before it begins": ((5, 4),),
    "a range that ends half the circle before it begins": ((0x7000_0000, 0),),
    "ranges that overlap": ((0, 5), (3, 9)),
    "ranges in the wrong order": ((10, 12), (0, 5)),
    "the same range twice": ((0, 1), (0, 1)),
}


def octets_of(ranges: tuple[tuple[int, int], ...]) -> bytes:
    return pack(">H", 8 * len(ranges)) + b"".join(pack(">II", *each) for each in ranges)


def ending(peer: Peer) -> tuple[str, int]:
    """What the broker has ended, and with which code."""
    peer.read()
    if peer.closed is not None:
        return "connection", peer.closed.reply_code or 0
    session = peer.sessions.get(1)
    if session is not None and session.exception is not None:
        return "session", session.exception.error_code or 0
    return "nothing", 0


# Sets.

COMMANDS_WITH_SETS: Final = (c.MessageAccept, c.MessageReject, c.MessageRelease, c.MessageAcquire)
CONTROLS_WITH_SETS: Final = (
    c.SessionExpected,
    c.SessionConfirmed,
    c.SessionCompleted,
    c.SessionKnownCompleted,
    c.SessionGap,
)


@pytest.mark.parametrize("ranges", TROUBLE.values(), ids=TROUBLE.keys())
@pytest.mark.parametrize("kind", COMMANDS_WITH_SETS, ids=lambda kind: kind.NAME)
def test_a_wrong_set_in_a_command_ends_the_session(
    kind: type[c.Command], ranges: tuple[tuple[int, int], ...]
) -> None:
    payload = bytes((kind.CLASS_CODE, kind.CODE, 1, 1, 1, 0)) + octets_of(ranges)
    peer = attack(a.receiving, [frame(payload, 1, segment=1)])
    assert ending(peer) == ("session", c.ERROR_CODE_COMMAND_INVALID)


@pytest.mark.parametrize("ranges", TROUBLE.values(), ids=TROUBLE.keys())
@pytest.mark.parametrize("kind", CONTROLS_WITH_SETS, ids=lambda kind: kind.NAME)
def test_a_wrong_set_in_a_control_ends_the_connection(
    kind: type[c.Control], ranges: tuple[tuple[int, int], ...]
) -> None:
    payload = bytes((kind.CLASS_CODE, kind.CODE, 1, 0)) + octets_of(ranges)
    peer = attack(a.receiving, [frame(payload, 1)])
    assert ending(peer) == ("connection", c.CLOSE_CODE_FRAMING_ERROR)


@pytest.mark.parametrize("size", [1, 7, 9, 12, 15, 17])
def test_a_set_of_half_a_range_ends_the_session(size: int) -> None:
    payload = bytes((4, 2, 1, 1, 1, 0)) + pack(">H", size) + bytes(size)
    assert ending(attack(a.receiving, [frame(payload, 1, segment=1)])) == ("session", 503)


@pytest.mark.parametrize("kind", [c.MessageAccept, c.MessageReject, c.MessageRelease, c.MessageAcquire])
def test_every_id_there_is_costs_no_more_than_those_there_are(kind: type[c.Command]) -> None:
    """Two thousand million ids in eight octets: whoever counted them would not be back within a minute."""
    peer = attack(a.receiving, [command(kind(ids(EVERYTHING)))] * 20)
    assert ending(peer) == ("nothing", 0)


@pytest.mark.parametrize("kind", CONTROLS_WITH_SETS, ids=lambda kind: kind.NAME)
def test_every_id_there_is_in_a_control(kind: type[c.Control]) -> None:
    peer = attack(a.receiving, [frame(kind(ids(EVERYTHING)).encode(), 1)] * 20)
    may = kind is c.SessionExpected  # to everything else belongs that it was sent
    assert ending(peer) == (("nothing", 0) if may else ("session", c.ERROR_CODE_ILLEGAL_STATE))


@pytest.mark.parametrize("kind", CONTROLS_WITH_SETS, ids=lambda kind: kind.NAME)
def test_as_many_ranges_as_a_set_can_have(kind: type[c.Control]) -> None:
    ranges = tuple((2 * n, 2 * n) for n in range(8190))
    payload = bytes((kind.CLASS_CODE, kind.CODE, 1, 0)) + octets_of(ranges)
    peer = attack(a.receiving, [frame(payload[:40_000], 1, 0x0E) + frame(payload[40_000:], 1, 0x0D)] * 5)
    may = kind in (c.SessionExpected, c.SessionGap)
    assert ending(peer) == (("nothing", 0) if may else ("session", c.ERROR_CODE_ILLEGAL_STATE))


def test_completing_what_was_never_sent_ends_the_session() -> None:
    peer = attack(a.receiving, [frame(c.SessionCompleted(ids((1000, 2000))).encode(), 1)])
    assert ending(peer) == ("session", c.ERROR_CODE_ILLEGAL_STATE)


# Headers and bodies.

WITHOUT_CONTENT: Final = (
    c.QueueDeclare("q2"),
    c.QueueDelete("q"),
    c.ExchangeQuery("x"),
    c.MessageAccept(ids(0)),
    c.MessageFlow("d", 0, 1),
    c.MessageSubscribe("q", "d2"),
    c.TxSelect(),
    c.DtxSelect(),
    c.ExecutionSync(),
    c.ExecutionResult(0),
    c.ExecutionException(404, 0),
)


@pytest.mark.parametrize("content", ["header", "body", "both"])
@pytest.mark.parametrize("wrong", WITHOUT_CONTENT, ids=lambda wrong: wrong.NAME)
def test_content_behind_a_command_that_has_none_ends_the_session(wrong: c.Command, content: str) -> None:
    header = PROPERTIES if content != "body" else None
    body = b"body" if content != "header" else None
    peer = attack(a.receiving, [command(wrong, header, body)])
    assert ending(peer) == ("session", c.ERROR_CODE_COMMAND_INVALID)
    assert "q2" not in peer.bench.host.queues
    assert "q" in peer.bench.host.queues


@pytest.mark.parametrize("wrong", [c.FileReturn(), c.StreamPublish(), c.FileStage()])
def test_content_of_classes_that_are_not_there_is_not_implemented(wrong: c.Command) -> None:
    peer = attack(a.receiving, [command(wrong, PROPERTIES, b"body")])
    assert ending(peer) == ("session", c.ERROR_CODE_NOT_IMPLEMENTED)


OUT_OF_ORDER: Final = {
    "a header without a command": [frame(PROPERTIES, 1, WHOLE, 2)],
    "a body without a command": [frame(b"x", 1, LAST, 3)],
    "the last frame of a command without its first": [frame(TRANSFER, 1, 0x0D, 1)],
    "a command within a command": [frame(TRANSFER, 1, FIRST, 1), frame(TRANSFER, 1, FIRST, 1)],
    "two headers": [
        frame(TRANSFER, 1, FIRST, 1),
        frame(PROPERTIES, 1, MIDDLE, 2),
        frame(PROPERTIES, 1, MIDDLE, 2),
    ],
    "a header behind a body": [
        frame(TRANSFER, 1, FIRST, 1),
        frame(b"x", 1, MIDDLE, 3),
        frame(PROPERTIES, 1, LAST, 2),
    ],
    "two bodies": [frame(TRANSFER, 1, FIRST, 1), frame(b"x", 1, MIDDLE, 3), frame(b"x", 1, LAST, 3)],
    "a segment that begins twice": [frame(TRANSFER[:3], 1, 0x0A, 1), frame(TRANSFER[3:], 1, 0x0B, 1)],
    "a header on the track of controls": [frame(PROPERTIES, 1, WHOLE, 2, track=0)],
    "a body on the track of controls": [frame(b"x", 1, WHOLE, 3, track=0)],
    "a command on the track of controls": [frame(c.ExecutionSync().encode(), 1, WHOLE, 1, track=0)],
    "a control on the track of commands": [frame(c.SessionGap().encode(), 1, WHOLE, 0, track=1)],
    "a control that goes on": [
        frame(c.SessionGap().encode(), 1, FIRST, 0),
        frame(PROPERTIES, 1, LAST, 2, track=0),
    ],
    "a third track": [frame(c.SessionGap().encode(), 1, WHOLE, 0, track=2)],
}


@pytest.mark.parametrize("frames", OUT_OF_ORDER.values(), ids=OUT_OF_ORDER.keys())
def test_frames_that_do_not_fit_end_the_connection(frames: list[bytes]) -> None:
    assert ending(attack(a.with_session, frames)) == ("connection", c.CLOSE_CODE_FRAMING_ERROR)
    assert ending(attack(a.with_session, [b"".join(frames)])) == ("connection", c.CLOSE_CODE_FRAMING_ERROR)


def test_a_header_that_is_no_struct_ends_the_session() -> None:
    for header in (b"\x00", b"\xff\xff\xff\xff\x04\x01\x00\x00", b"\x00\x00\x00\x00", PROPERTIES[:-1]):
        peer = attack(a.with_session, [command(c.MessageTransfer(), header, b"x")])
        assert ending(peer) == ("session", c.ERROR_CODE_ILLEGAL_ARGUMENT)


def test_a_transfer_that_never_ends_is_too_large_before_it_has_been_kept() -> None:
    begin = frame(TRANSFER, 1, FIRST, 1) + frame(PROPERTIES, 1, MIDDLE, 2) + frame(b"x" * 60_000, 1, 0x06, 3)
    peer = attack(a.with_session, [begin, *[frame(b"x" * 60_000, 1, 0x04, 3)] * 100])
    assert ending(peer) == ("session", c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED)


@pytest.mark.parametrize("segment", [1, 2])
def test_a_command_or_header_that_never_ends_is_too_large(segment: int) -> None:
    begin = (
        frame(TRANSFER, 1, 0x0A, 1) if segment == 1 else frame(TRANSFER, 1, FIRST, 1) + frame(b"", 1, 0x02, 2)
    )
    more = frame(b"x" * 60_000, 1, 0x08 if segment == 1 else 0x00, segment)
    peer = attack(a.with_session, [begin, *[more] * 40])
    assert ending(peer) == ("session", c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED)


def test_controls_that_never_end_are_bounded_for_all_channels_together() -> None:
    part = frame(c.SessionAttach(b"x").encode() + b"x" * 1000, 0, 0x0E)
    pieces = [part[:6] + pack(">H", channel) + part[8:] for channel in range(2000)]
    assert ending(attack(a.opened, [b"".join(pieces)])) == ("connection", c.CLOSE_CODE_FRAMING_ERROR)


# Sessions that are not there.

BEFORE_ATTACH: Final = {
    "gap": c.SessionGap(ids(0)),
    "command-point": c.SessionCommandPoint(0, 0),
    "expected": c.SessionExpected(),
    "confirmed": c.SessionConfirmed(ids(0)),
    "completed": c.SessionCompleted(ids(0), True),
    "known-completed": c.SessionKnownCompleted(ids(0)),
    "flush": c.SessionFlush(True, True, True),
    "request-timeout": c.SessionRequestTimeout(10),
    "timeout": c.SessionTimeout(10),
    "attached": c.SessionAttached(b"x"),
    "detach": c.SessionDetach(b"x"),
    "detached": c.SessionDetached(b"x", 0),
}


@pytest.mark.parametrize("control", BEFORE_ATTACH.values(), ids=BEFORE_ATTACH.keys())
def test_a_control_before_attach_does_nothing(control: c.Control) -> None:
    peer = attack(a.opened, [frame(control.encode(), 1)])
    assert ending(peer) == ("nothing", 0)


@pytest.mark.parametrize("control", BEFORE_ATTACH.values(), ids=BEFORE_ATTACH.keys())
def test_a_control_of_a_session_before_open_ends_the_connection(control: c.Control) -> None:
    for state in (a.started, a.authenticated, a.tuned):
        assert ending(attack(state, [frame(control.encode(), 1)])) == ("connection", 501)


@pytest.mark.parametrize("state", [a.started, a.authenticated, a.tuned])
def test_a_command_before_open_ends_the_connection(state: object) -> None:
    assert ending(attack(state, [command(c.QueueDeclare("early"))])) == ("connection", 501)


def test_a_session_attached_before_open_ends_the_connection() -> None:
    octets = frame(c.SessionAttach(b"early").encode(), 1)
    assert ending(attack(a.tuned, [octets])) == ("connection", 501)


def test_a_gap_right_after_attach_is_before_anything_was_counted() -> None:
    peer = attack(a.attached, [frame(c.SessionGap(ids(0)).encode(), 1)])
    assert ending(peer) == ("session", c.ERROR_CODE_ILLEGAL_STATE)


def test_a_command_right_after_attach_ends_the_session() -> None:
    assert ending(attack(a.attached, [command(c.QueueDeclare("early"))])) == ("session", 409)


def test_a_gap_gives_up_the_transfer_that_has_begun() -> None:
    """The command behind it is the next one; before there is a session a gap has nothing to give up."""
    gap = frame(c.SessionGap(ids(1)).encode(), 1)
    peer = attack(a.transferring, [gap, command(c.QueueDeclare("after"))])
    assert ending(peer) == ("nothing", 0)
    assert "after" in peer.bench.host.queues
    assert peer.bench.queue("q").ready == 0


def test_a_command_point_that_goes_back_means_that_commands_come_again() -> None:
    again = [frame(c.SessionCommandPoint(0, 0).encode(), 1), command(c.QueueDelete("q"))]
    peer = attack(a.with_session, again)
    assert ending(peer) == ("nothing", 0)
    assert "q" in peer.bench.host.queues  # the first command has been executed, whatever it is now


def test_a_command_point_within_a_command_is_not_implemented() -> None:
    peer = attack(
        a.with_session, [frame(c.SessionCommandPoint(1, 7).encode(), 1), command(c.ExecutionSync())]
    )
    assert ending(peer) == ("session", c.ERROR_CODE_NOT_IMPLEMENTED)


# Answers to what nobody asked.


@pytest.mark.parametrize("id", [0, 77, 0xFFFF_FFFF])
def test_a_result_that_nobody_waits_for_ends_the_session(id: int) -> None:
    """0 is complete already, the others were never sent."""
    peer = attack(a.receiving, [command(c.ExecutionResult(id, c.QueueQueryResult("q")))])
    assert ending(peer) == ("session", c.ERROR_CODE_ILLEGAL_STATE)


def test_an_exception_of_the_peer_ends_the_session() -> None:
    bench = ClientBench()
    peer, session = a.session_of(bench)
    session.send(c.ExecutionException(c.ERROR_CODE_NOT_FOUND, 0, 8, 1, 0, "not here", {}))
    session.send(c.QueueDeclare("late"))
    session.control(c.SessionDetach(b"attacker"))
    peer.read()
    assert session.detached == c.SessionDetached(b"attacker", c.DETACH_CODE_NORMAL)
    assert not peer.front.closed
    assert "late" not in bench.host.queues
    assert len(bench.host.guest(Sessions)) == 0


def test_unknown_classes_and_commands_are_not_implemented() -> None:
    for payload in (b"\x63\x01\x01\x00\x00\x00", b"\x08\x63\x01\x00\x00\x00"):
        peer = attack(a.with_session, [frame(payload, 1, segment=1)])
        assert ending(peer) == ("session", c.ERROR_CODE_NOT_IMPLEMENTED)


def test_a_command_that_cannot_be_read_is_named_in_the_exception() -> None:
    peer = attack(a.with_session, [frame(b"\x08\x01\x01\x00\x01\x00\x09q", 1, segment=1)])
    exception = peer.sessions[1].exception
    assert exception is not None
    assert (exception.class_code, exception.command_code) == (8, 1)


def test_an_empty_command_ends_the_session() -> None:
    for size in range(4):
        peer = attack(a.with_session, [frame(b"\x08\x01\x01\x00"[:size], 1, segment=1)])
        assert ending(peer) == ("session", c.ERROR_CODE_COMMAND_INVALID)


# Counts.


def test_a_connection_has_no_more_sessions_than_it_may_and_no_channel_is_remembered() -> None:
    bench = ClientBench("protocols.amqp010.session_max = 10")
    peer = Peer(bench).open()
    for channel in range(1, 3000):
        peer.send_bytes(frame(c.SessionAttach(b"%d" % channel).encode(), channel), settle=False)
        peer.take_bytes()
    assert len(peer.front.wire.sessions) == len(bench.host.guest(Sessions)) == 10


def test_maps_that_claim_more_than_they_have_end_the_session() -> None:
    claims = b"\x00\x00\x00\x08\xff\xff\xff\xff\x01a\x01\x00"
    payload = bytes((8, 1, 1, 1, 0x41, 0)) + b"\x01q" + claims
    assert ending(attack(a.with_session, [frame(payload, 1, segment=1)])) == ("session", 503)


def test_maps_within_maps_have_an_end() -> None:
    deep = b""
    for _ in range(2000):
        body = pack(">I", 1) + b"\x01a\xa8" + (deep or pack(">I", 0))
        deep = pack(">I", len(body)) + body
    payload = bytes((8, 1, 1, 1, 0x41, 0)) + b"\x01q" + deep
    assert ending(attack(a.with_session, [frame(payload, 1, segment=1)])) == ("session", 503)


def test_a_failed_session_is_heard_no_more_until_it_is_detached() -> None:
    bench = ClientBench()
    peer = a.session_failed(bench)
    session = peer.sessions[1]
    session.send(c.QueueDeclare("late"))
    session.control(c.SessionGap(SequenceSet()))
    session.control(c.SessionFlush(True, True, True))
    session.control(c.SessionAttach(b"other"))
    peer.read()
    assert "late" not in bench.host.queues
    assert peer.front.wire.sessions
    session.control(c.SessionDetached(b"attacker", 0))
    assert not peer.front.wire.sessions


def test_two_who_want_the_same_session_by_force_do_not_loop() -> None:
    bench = ClientBench()
    first, second = Peer(bench).open(), Peer(bench).open()
    for n in range(20):
        peer, other = (first, second) if n % 2 else (second, first)
        peer.sessions.clear()
        session = peer.attach("mine", 1, force=True)
        assert session.attached
        other.read()
        if n:
            with pytest.raises(SessionEnded):
                other.sessions[1].until(lambda: False, "nothing")
    assert len(bench.host.guest(Sessions)) == 1


def test_a_session_that_is_taken_away_is_heard_no_more() -> None:
    bench = ClientBench()
    old, new = Peer(bench).open(), Peer(bench).open()
    stolen: ClientSession = old.attach("mine")
    new.attach("mine", force=True)
    stolen.send(c.QueueDeclare("late"))
    old.read()
    assert stolen.detached == c.SessionDetached(b"mine", c.DETACH_CODE_SESSION_BUSY)
    assert "late" not in bench.host.queues
    assert not old.front.closed

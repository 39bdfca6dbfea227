"""What a session keeps to send it again: how much, for how long, and what happens when it is too much."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Control
from leveret.protocols.amqp010.codec.sequences import MASK
from leveret.protocols.amqp010.machine.contract import SessionError, SessionLimits
from leveret.protocols.amqp010.machine.replay import ENTRY, Replay

from .session_ends import NAME, NOTHING, End, ids, kept, resumed, send, transfer_octets

TIMEOUT = c.SessionRequestTimeout(60)


def test_without_a_timeout_nothing_is_kept() -> None:
    end = End(timeout_max_s=60)
    send(end, b"0")
    assert end.session._replay is None
    end.say(TIMEOUT)
    assert end.session._replay is not None
    end.say(c.SessionRequestTimeout(0))
    assert end.session._replay is None


def test_a_timeout_taken_back_while_resuming_still_sends_what_was_kept() -> None:
    end = kept()
    send(end, b"0")
    resumed(end)
    end.say(c.SessionRequestTimeout(0), c.SessionExpected(ids((0, 0))))
    send(end, b"1")
    assert end.wire.bodies == [b"0", b"1"]
    assert end.session._replay is None


def octets_of(end: End) -> int:
    assert end.session._replay is not None
    return end.session._replay.octets


@pytest.mark.parametrize(
    ("said", "left"),
    [
        (c.SessionConfirmed(ids((0, 1))), 2),
        (c.SessionCompleted(ids((0, 2))), 1),
        (c.SessionConfirmed(ids((1, 2))), 4),
        (c.SessionCompleted(ids((1, 3))), 4),
        (c.SessionConfirmed(NOTHING), 4),
        (c.SessionConfirmed(ids((0, 0), (2, 2))), 3),
    ],
)
def test_what_the_peer_has_is_let_go(said: Control, left: int) -> None:
    """From the beginning on: what was confirmed out of order may be asked for once more."""
    end = kept()
    send(end, b"0", b"1", b"2", b"3")
    one = octets_of(end) // 4
    end.say(said)
    assert octets_of(end) == left * one


def test_the_peer_is_asked_what_it_has_after_every_so_many_octets() -> None:
    """Even if its answers say little: what is under way may be more than it had."""
    end = kept(SessionLimits(replay_soft_bytes=1000, replay_max_bytes=100_000))
    for count in range(1, 101):
        send(end, bytes(100))
        if count % 10 == 0:
            end.say(c.SessionConfirmed(ids((0, count // 10))))
    asked = end.heard().count(c.SessionFlush(confirmed=True, completed=True))
    size = ENTRY + len(transfer_octets()) + 100
    assert asked == 100 // (1000 // size + 1)


@pytest.mark.parametrize("soft", [50, 1000, 1_000_000])
def test_deliveries_that_wait_go_on_when_the_peer_has_answered(soft: int) -> None:
    """Whatever the limits are: it is asked before they wait, and for most of what they wait for."""
    end = kept(SessionLimits(replay_soft_bytes=soft, replay_max_bytes=2000))
    flush = c.SessionFlush(confirmed=True, completed=True)
    answered = -1
    while end.session.room():
        send(end, bytes(50))
        if flush in end.heard():
            answered = end.session.next_id - 1
    assert answered >= 0
    end.say(c.SessionConfirmed(ids((0, answered))))
    assert end.session.room() > 0


def test_deliveries_wait_when_half_of_the_buffer_is_full() -> None:
    end = kept(SessionLimits(replay_soft_bytes=100, replay_max_bytes=1000))
    end.wire.left = 77
    assert end.session.room() == 77
    send(end, bytes(250), bytes(250))
    assert end.session.room() == 0
    end.say(c.SessionConfirmed(ids((0, 0))))
    assert end.session.room() == 77
    assert end.owner.told == ["attached", "room"]
    end.say(c.SessionCompleted(ids((0, 1))))
    assert end.owner.told == ["attached", "room"]


def test_a_session_that_nobody_confirms_ends_at_the_hard_limit() -> None:
    end = kept(SessionLimits(replay_soft_bytes=100, replay_max_bytes=1000))
    send(end, bytes(5000))
    assert end.settled()
    assert not end.session.ended
    send(end, b"one more")
    exception, detach = end.settled()[-2:]
    assert isinstance(exception, c.ExecutionException)
    assert exception.error_code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED
    assert detach == c.SessionDetach(NAME)


def test_what_does_not_fit_while_there_is_no_line_cannot_be_resumed() -> None:
    end = kept(SessionLimits(replay_soft_bytes=100, replay_max_bytes=1000))
    end.session.detached()
    for _ in range(100):
        send(end, bytes(500))
    assert octets_of(end) < 2000
    end.attach()
    end.heard()
    end.say(c.SessionExpected(ids((0, 0))))
    assert end.heard() == [c.SessionDetached(NAME, c.DETACH_CODE_UNKNOWN_IDS)]


def test_an_ended_session_keeps_nothing() -> None:
    end = kept()
    send(end, b"0")
    end.session.fail(SessionError(c.ERROR_CODE_NOT_FOUND, "gone"))
    send(end, b"1")
    assert end.session._replay is None


def test_the_buffer_counts_what_it_holds() -> None:
    replay = Replay(MASK, soft=100, hard=1000)
    replay.keep(b"12", None, b"345")
    replay.keep(b"12", b"3", None)
    assert (replay.octets, replay.next_id) == (2 * ENTRY + 8, 1)
    assert replay.holds_from(MASK)
    assert replay.holds_from(1)
    assert not replay.holds_from(2)
    assert not replay.holds_from(MASK - 1)
    replay.trim(0)
    assert list(replay) == [(b"12", b"3", None)]
    replay.trim(MASK)
    replay.trim(5)
    assert (replay.first_id, replay.octets) == (0, ENTRY + 3)

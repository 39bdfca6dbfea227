"""A session that outlives its transport: what is kept, said and sent again. Each command takes effect exactly once.

The published specification calls it resume with replay; X092: the draft has only its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.sequences import HALF, MASK, Id
from leveret.protocols.amqp010.machine.contract import SessionError

from .session_ends import NAME, NOTHING, End, Joined, ids, kept, names, resumed, send, transfer_octets

ALL = c.SessionFlush(expected=True, confirmed=True, completed=True)
TIMEOUT = c.SessionRequestTimeout(60)
STARTS = [0, MASK, MASK - 3, HALF - 2]


# Loss at every point.


def conversation(joined: Joined, hold: bool) -> Iterator[None]:
    """Both ends talk, and answer; a step is one packet."""
    for owner in joined.owners:
        owner.hold = hold
    for number in range(3):
        for end in (0, 1):
            joined.send(end, sync=number == 1)
            joined.send(end)
        for end in (1, 0, 1, 0, 1):
            joined.carry(end)
            joined.settle()
            yield
    while joined.carry(0) or joined.carry(1):
        joined.settle()
        yield
    complete_all(joined)
    while joined.carry(1) or joined.carry(0):
        joined.settle()
        yield


def complete_all(joined: Joined) -> None:
    """Last come, first served."""
    for owner in joined.owners:
        owner.hold = False
        for id, _ in reversed(owner.had):
            owner.session.complete(id)
    joined.settle()


def steps(hold: bool) -> int:
    return sum(1 for _ in conversation(Joined(), hold))


def lose(joined: Joined, again_after: int | None = None) -> None:
    """The transport goes, more is sent meanwhile, it comes again; and once more after so many packets."""
    joined.cut()
    joined.send(0)
    joined.send(1, sync=True)
    joined.connect()
    if again_after is not None:
        for _ in range(again_after):
            joined.settle()
            if not joined.carry(0):
                joined.carry(1)
        joined.cut()
        joined.connect()


@pytest.mark.parametrize("hold", [False, True])
@pytest.mark.parametrize("start", STARTS)
def test_a_loss_at_any_point_takes_nothing_and_repeats_nothing(start: Id, hold: bool) -> None:
    for lost_at in range(steps(hold)):
        joined = Joined(start)
        for step, _ in enumerate(conversation(joined, hold)):
            if step == lost_at:
                lose(joined)
        complete_all(joined)
        joined.drain()
        joined.check()


@pytest.mark.parametrize("hold", [False, True])
def test_a_loss_at_any_point_of_resuming_does_not_either(hold: bool) -> None:
    for lost_at in range(0, steps(hold), 3):
        for again_after in range(14):
            joined = Joined(MASK - 3)
            for step, _ in enumerate(conversation(joined, hold)):
                if step == lost_at:
                    lose(joined, again_after)
            complete_all(joined)
            joined.drain()
            joined.check()


def test_s235_marks_never_go_back_over_a_loss() -> None:
    joined = Joined(MASK - 5)
    marks = []
    for packets in range(30):
        joined.send(0)
        joined.send(1)
        for _ in range(packets):
            joined.carry(0)
            joined.carry(1)
            joined.settle()
        joined.cut()
        joined.connect()
        marks.append([session.execution.first_incomplete for session in joined.sessions])
    for before, after in pairwise(marks):
        assert all((b - a) & MASK < HALF for a, b in zip(before, after, strict=True))
    assert marks[0] != marks[-1]
    joined.drain()
    joined.check()


def test_a_loss_before_anything_was_said_changes_nothing() -> None:
    joined = Joined()
    joined.cut()
    joined.connect()
    joined.cut()
    joined.connect()
    joined.send(0)
    joined.send(1)
    joined.drain()
    joined.check()


# What a resumed session says.


def test_a_resumed_session_asks_what_the_peer_has() -> None:
    end = kept()
    send(end, b"0", b"1")
    assert resumed(end) == [c.SessionAttached(NAME), ALL]
    assert end.owner.told == ["attached", "detached"]
    assert end.session.room() == 0
    end.say(c.SessionExpected(ids((1, 1))))
    assert names(end.heard()) == "command-point transfer"
    assert end.wire.bodies == [b"1"]
    assert end.owner.told == ["attached", "detached", "attached"]
    assert end.session.room() > 0


def test_what_is_sent_again_has_its_id_and_its_octets() -> None:
    end = kept()
    end.session.send(c.ExchangeQuery("a"))
    end.session.send(c.ExchangeQuery("b"), sync=True)
    end.session.send_transfer(transfer_octets(), b"", b"body")
    resumed(end)
    end.wire.sync.clear()
    end.say(c.SessionExpected(ids((1, 1))))
    assert end.heard() == [c.SessionCommandPoint(1, 0), c.ExchangeQuery("b"), c.MessageTransfer("d")]
    assert end.wire.sync == [True, False]
    assert end.wire.bodies == [b"body"]


def test_many_that_are_sent_at_once_have_ids_one_after_the_other_kept_or_not() -> None:
    for end in (End(), kept()):
        contents = [(b"", b"0"), (b"", b"1")]
        assert end.session.send_transfers(transfer_octets(), contents) == 0
        assert end.session.send_transfers(transfer_octets(), contents) == 2
        assert end.session.next_id == 4
        assert end.wire.bodies == [b"0", b"1", b"0", b"1"]
        end.say(c.SessionCompleted(ids((0, 3))))
        assert end.owner.completed == [0, 1, 2, 3]


def test_what_is_sent_without_a_line_or_too_early_waits_in_order() -> None:
    end = kept()
    send(end, b"0")
    end.session.detached()
    send(end, b"1")
    end.attach()
    send(end, b"2")
    assert end.wire.bodies == []
    end.say(c.SessionExpected(ids((0, 0))))
    send(end, b"3")
    assert end.wire.bodies == [b"0", b"1", b"2", b"3"]


def test_a_resumed_session_answers_what_it_expects_even_if_nothing_came() -> None:
    """Only a session that is new expects nothing."""
    end = kept()
    resumed(end)
    end.say(ALL)
    assert end.heard() == [
        c.SessionExpected(ids((0, 0))),
        c.SessionConfirmed(NOTHING),
        c.SessionCompleted(NOTHING, True),
    ]


def test_what_came_before_the_loss_is_told_after_it() -> None:
    end = kept()
    end.owner.hold = True
    end.transfer(sync=True)
    end.transfer()
    end.session.detached()
    end.session.complete(0)
    end.attach()
    end.heard()
    end.say(ALL)
    assert end.heard() == [
        c.SessionExpected(ids((2, 2))),
        c.SessionConfirmed(ids((0, 1))),
        c.SessionCompleted(ids((0, 0)), True),
    ]


def test_a_peer_that_does_not_ask_may_just_begin_again() -> None:
    """What comes again is passed over, and its sync answered again."""
    end = kept()
    for body in (b"0", b"1", b"2"):
        end.transfer(body, sync=True)
    end.settled()
    resumed(end)
    end.say(c.SessionCommandPoint(1, 0))
    end.transfer(b"1", sync=True)
    end.transfer(b"2")
    end.transfer(b"3")
    assert [body for _, body in end.owner.had] == [b"0", b"1", b"2", b"3"]
    assert end.settled() == [c.SessionCompleted(ids((0, 3)))]


def test_what_was_told_and_lost_is_told_again_although_nobody_asks() -> None:
    end = kept()
    end.transfer()
    assert end.settled() == [c.SessionCompleted(ids((0, 0)))]
    resumed(end)
    end.say(c.SessionCommandPoint(1, 0))
    assert end.settled() == [c.SessionCompleted(ids((0, 0)))]
    assert end.settled() == []


def test_nothing_is_told_again_where_nothing_is_complete() -> None:
    end = kept()
    end.owner.hold = True
    end.transfer()
    resumed(end)
    assert end.settled() == []


def test_a_gap_among_what_comes_again_needs_a_new_command_point() -> None:
    """Its count would be wrong, and a new command mistaken for an old one."""
    end = kept()
    for body in (b"0", b"1", b"2"):
        end.transfer(body)
    resumed(end)
    end.say(c.SessionCommandPoint(0, 0))
    end.transfer(b"0")
    end.say(c.SessionGap(ids((1, 1))))
    assert end.wire.abandoned == 1
    end.say(c.SessionCommandPoint(2, 0))
    end.transfer(b"2")
    end.transfer(b"3")
    assert [body for _, body in end.owner.had] == [b"0", b"1", b"2", b"3"]
    end.say(c.SessionCommandPoint(2, 0), c.SessionGap(ids((3, 4))))
    assert end.wire.abandoned == 1
    end.transfer(b"2")
    assert end.session.ended


def test_commands_before_the_new_command_point_are_illegal() -> None:
    end = kept()
    end.transfer()
    resumed(end)
    end.transfer()
    assert names(end.heard()) == "completed command-point exception detach"


def test_an_exception_while_resuming_has_its_command_point() -> None:
    """A client that counts asserts that it knows where."""
    end = kept()
    send(end, b"0", b"1")
    resumed(end)
    end.session.fail(SessionError(c.ERROR_CODE_NOT_FOUND, "gone"))
    assert end.heard()[0] == c.SessionCommandPoint(2, 0)


# When it cannot be.


@pytest.mark.parametrize("expected", [NOTHING, ids((0, 0)), ids((5, 5)), ids((HALF, HALF))])
def test_a_peer_that_expects_what_is_not_here_begins_afresh(expected: c.SequenceSet) -> None:
    """The empty set says that it has lost everything; 0 was confirmed; 5 was never sent."""
    end = kept()
    send(end, b"0", b"1", b"2")
    end.say(c.SessionConfirmed(ids((0, 0))))
    resumed(end)
    end.say(c.SessionExpected(expected))
    assert end.heard() == [c.SessionDetached(NAME, c.DETACH_CODE_UNKNOWN_IDS)]
    assert end.session.ended
    assert end.wire.free
    assert end.owner.told == ["attached", "detached", "ended"]


def test_a_peer_that_has_lost_what_it_sent_is_not_mistaken_for_one_that_repeats_it() -> None:
    """Its new commands have the old ids, and were passed over: it must hear of that."""
    end = kept()
    end.transfer(b"old")
    resumed(end)
    end.say(c.SessionCommandPoint(0, 0))
    end.transfer(b"new")
    assert [body for _, body in end.owner.had] == [b"old"]
    end.say(c.SessionExpected(NOTHING))
    assert end.heard() == [c.SessionDetached(NAME, c.DETACH_CODE_UNKNOWN_IDS)]
    assert end.session.ended


def test_two_ends_without_any_state_go_on() -> None:
    end = kept()
    resumed(end)
    end.say(c.SessionExpected(NOTHING))
    assert end.heard() == [c.SessionCommandPoint(0, 0)]
    assert not end.session.ended


def test_an_answer_that_nobody_asked_for_is_passed_over() -> None:
    end = kept()
    send(end, b"0")
    end.heard()
    end.say(c.SessionExpected(NOTHING), c.SessionExpected(ids((0, 0))))
    assert end.heard() == []


def test_what_was_sent_before_a_timeout_was_asked_for_is_not_kept() -> None:
    end = End(timeout_max_s=60)
    send(end, b"0")
    end.say(TIMEOUT)
    send(end, b"1")
    resumed(end)
    end.say(c.SessionExpected(ids((0, 0))))
    assert end.heard() == [c.SessionDetached(NAME, c.DETACH_CODE_UNKNOWN_IDS)]


def test_the_ids_it_begins_again_with_must_follow_those_that_came() -> None:
    end = kept()
    end.transfer()
    resumed(end)
    end.say(c.SessionCommandPoint(2, 0))
    assert names(end.heard()).endswith("exception detach")

"""Every control and command in every state a session can be in: a table with no pair missing.

And what real clients rely on when a session begins, ends, and fails. What is told of commands is in
test_session_completion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Command, Control
from leveret.protocols.amqp010.codec.sequences import HALF, MASK
from leveret.protocols.amqp010.machine.contract import SessionError
from leveret.protocols.amqp010.machine.session import SessionState

from .session_ends import NAME, NOTHING, End, ids, names, transfer_octets

INPUTS: Final[dict[str, Callable[[], Control | Command]]] = {
    "attach": lambda: c.SessionAttach(NAME),
    "attach other": lambda: c.SessionAttach(b"other"),
    "attached": lambda: c.SessionAttached(NAME),
    "detach": lambda: c.SessionDetach(NAME),
    "detach other": lambda: c.SessionDetach(b"other"),
    "detached": lambda: c.SessionDetached(NAME, c.DETACH_CODE_NORMAL),
    "request-timeout": lambda: c.SessionRequestTimeout(0),
    "timeout": lambda: c.SessionTimeout(5),
    "command-point": lambda: c.SessionCommandPoint(0, 0),
    "command-point offset": lambda: c.SessionCommandPoint(0, 1),
    "expected": lambda: c.SessionExpected(ids((0, 0))),
    "expected nothing": lambda: c.SessionExpected(NOTHING),
    "confirmed": lambda: c.SessionConfirmed(ids((0, 0))),
    "completed": lambda: c.SessionCompleted(ids((0, 0))),
    "completed timely": lambda: c.SessionCompleted(ids((0, 0)), True),
    "known-completed": lambda: c.SessionKnownCompleted(NOTHING),
    "flush": lambda: c.SessionFlush(expected=True, confirmed=True, completed=True),
    "gap": lambda: c.SessionGap(ids((0, 2))),
    "transfer": lambda: c.MessageTransfer("x"),
    "command": c.TxSelect,
    "sync": c.ExecutionSync,
    "result": lambda: c.ExecutionResult(0, c.Acquired(NOTHING)),
    "exception": lambda: c.ExecutionException(c.ERROR_CODE_NOT_FOUND),
}
LINES: Final = ("ATTACHED", "OPEN", "RESUMING", "REOPENED", "FAILED")  # states with a channel
STATES: Final = (*LINES, "DETACHED", "ENDED")
SAME: Final = ("same", "")
FAILS: Final = ("FAILED", "exception detach")
LATE: Final = ("FAILED", "command-point exception detach")  # resumed, and not begun to send yet


def rows(
    attached: tuple[str, str], open_: tuple[str, str], *resumed: tuple[str, str]
) -> dict[str, tuple[str, str]]:
    """The state after and what is sent, with a channel; a resumed session does the same unless it is said."""
    resuming, reopened = resumed or (attached, open_)
    late = {FAILS: LATE}
    return {
        "ATTACHED": attached,
        "OPEN": open_,
        "RESUMING": late.get(resuming, resuming),
        "REOPENED": late.get(reopened, reopened),
    }


def always(after: str, sent: str) -> dict[str, tuple[str, str]]:
    return rows((after, sent), (after, sent))


LEAVES: Final = dict.fromkeys(LINES, ("ENDED", "detached"))
KEPT: Final = dict.fromkeys(("RESUMING", "REOPENED"), ("DETACHED", "detached"))
AGAIN: Final = ("same", "command-point select")
# Where a session is deaf there is no row: nothing happens then.
TABLE: Final[dict[str, dict[str, tuple[str, str]]]] = {
    "attach": always("same", ""),
    "attach other": always("same", "detached"),
    "attached": always(*FAILS),
    "detach": LEAVES | KEPT,
    "detach other": always("same", "detached") | {"FAILED": ("same", "detached")},
    "detached": {state: (after, "") for state, (after, _) in (LEAVES | KEPT).items()},
    "request-timeout": always("same", "timeout"),
    "timeout": always("same", ""),
    "command-point": rows(("OPEN", ""), SAME, ("REOPENED", ""), SAME),
    "command-point offset": always(*FAILS),
    "expected": rows(SAME, SAME, AGAIN, AGAIN),
    "expected nothing": rows(SAME, SAME, ("ENDED", "detached"), ("ENDED", "detached")),
    "confirmed": always("same", ""),
    "completed": always("same", ""),
    "completed timely": always("same", "known-completed"),
    "known-completed": always("same", ""),
    "flush": always("same", "expected confirmed completed"),
    "gap": rows(FAILS, SAME),
    "transfer": rows(FAILS, SAME),
    "command": rows(FAILS, SAME),
    "sync": rows(FAILS, SAME),
    "result": rows(FAILS, SAME),
    "exception": rows(FAILS, ("FAILED", "")),
}


def in_state(state: str) -> End:
    """A session that has sent one command, and is in that state."""
    end = End(timeout_max_s=60, point=None if state == "ATTACHED" else 0)
    if state in {"DETACHED", "RESUMING", "REOPENED"}:
        end.say(c.SessionRequestTimeout(60))
    end.session.send(c.TxSelect())
    match state:
        case "FAILED":
            end.session.fail(SessionError(c.ERROR_CODE_NOT_FOUND, "gone"))
        case "ENDED":
            end.say(c.SessionDetach(NAME))
        case "DETACHED":
            end.session.detached()
        case "RESUMING" | "REOPENED":
            end.session.detached()
            end.attach()
            if state == "REOPENED":
                end.say(c.SessionCommandPoint(0, 0))
    end.heard()
    assert state_of(end) == state
    return end


def state_of(end: End) -> str:
    state: SessionState = end.session._state
    if end.session._attachments == 1 or state not in {SessionState.ATTACHED, SessionState.OPEN}:
        return state.name
    return "RESUMING" if state is SessionState.ATTACHED else "REOPENED"


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("name", INPUTS)
def test_x092_every_input_in_every_state(name: str, state: str) -> None:
    """S236 among them: an exception is sent before detach, and never a mark with the command's id."""
    after, sent = TABLE[name].get(state, SAME)
    end = in_state(state)
    said = INPUTS[name]()
    if isinstance(said, Control):
        end.say(said)
    else:
        end.command(said)
    assert state_of(end) == (state if after == "same" else after)
    assert names(end.heard()) == sent
    over = state_of(end) in {"FAILED", "ENDED"}
    assert end.session.ended is over
    assert end.owner.told.count("ended") == over
    assert end.session.attached is (state_of(end) in LINES)
    assert end.wire.free is (state_of(end) not in LINES and state != "DETACHED")


def test_the_table_has_every_input_and_every_control_of_the_class() -> None:
    assert TABLE.keys() == INPUTS.keys()
    assert all(row.keys() >= {"ATTACHED", "OPEN", "RESUMING", "REOPENED"} for row in TABLE.values())
    said = {type(make()) for make in INPUTS.values()}
    assert {control for control in c.CONTROLS.values() if control.CLASS_CODE == 2} <= said
    assert {command for command in c.COMMANDS.values() if command.CLASS_CODE == 3} <= said


# Attach.


def test_a_new_session_says_attached_and_where_it_begins_at_once() -> None:
    end = End(point=None)
    assert end.greeting == [c.SessionAttached(NAME), c.SessionCommandPoint(0, 0)]
    assert end.owner.told == ["attached"]


def test_the_peer_may_say_everything_in_one_burst() -> None:
    end = End(point=None)
    end.say(c.SessionRequestTimeout(0), c.SessionCommandPoint(0, 0))
    end.command(c.ExchangeQuery("q"), sync=True)
    end.transfer(b"one")
    end.say(c.SessionFlush(completed=True))
    end.command(c.ExecutionSync(), sync=True)
    assert end.owner.had == [(0, b"exchange.query"), (1, b"one")]
    assert end.settled() == [
        c.SessionTimeout(0),
        c.SessionCompleted(ids((0, 1)), True),
        c.SessionCompleted(ids((0, 2))),
    ]


@pytest.mark.parametrize("start", [5, MASK, HALF])
def test_s233_the_peer_says_where_its_ids_begin(start: int) -> None:
    """A client that replays into a new session does not begin at 0."""
    end = End(point=start)
    end.transfer()
    end.transfer()
    assert [id for id, _ in end.owner.had] == [start, (start + 1) & MASK]
    assert end.settled() == [c.SessionCompleted(ids((start, (start + 1) & MASK)))]


def test_a_command_before_command_point_ends_the_session() -> None:
    end = End(point=None)
    end.command(c.QueueDeclare("q"))
    exception, detach = end.heard()
    assert isinstance(exception, c.ExecutionException)
    assert (exception.error_code, exception.command_id) == (c.ERROR_CODE_ILLEGAL_STATE, None)
    assert (exception.class_code, exception.command_code) == (8, 1)
    assert detach == c.SessionDetach(NAME)
    assert end.owner.had == []


def test_a_session_that_is_taken_away_says_so_on_its_old_channel() -> None:
    end = End()
    end.session.detached(c.DETACH_CODE_SESSION_BUSY)
    assert end.heard() == [c.SessionDetached(NAME, c.DETACH_CODE_SESSION_BUSY)]
    assert end.wire.free
    assert end.owner.told == ["attached", "ended"]
    end.session.detached(c.DETACH_CODE_SESSION_BUSY)
    assert end.heard() == []


def test_a_lost_transport_is_told_nothing() -> None:
    end = End()
    end.session.detached()
    assert end.heard() == []
    assert not end.wire.free
    assert not end.session.attached


# Timeouts.


@pytest.mark.parametrize(
    ("asked", "longest", "granted"),
    [(0, 60, 0), (30, 60, 30), (300, 60, 60), (300, 0, 0), (None, 60, 60), (None, 0, 0), (MASK, 60, 60)],
)
def test_a_timeout_is_granted_up_to_the_longest(asked: int | None, longest: int, granted: int) -> None:
    end = End(timeout_max_s=longest)
    end.say(c.SessionRequestTimeout(asked))
    assert end.heard() == [c.SessionTimeout(granted)]
    assert end.session.timeout_s == granted


def test_a_session_is_kept_as_long_as_it_was_granted() -> None:
    end = End(timeout_max_s=60)
    end.say(c.SessionRequestTimeout(30))
    end.session.detached()
    assert (end.session.timeout_s, end.session.ended) == (30, False)
    assert end.owner.told == ["attached", "detached"]


def test_a_kept_session_ends_when_its_time_is_over() -> None:
    end = End(timeout_max_s=60)
    end.say(c.SessionRequestTimeout(30), c.SessionDetach(NAME))
    assert not end.session.ended
    end.session.end("its timeout is over")
    end.session.end("again")
    assert end.session.ended
    assert end.owner.told == ["attached", "detached", "ended"]


def test_a_timeout_taken_back_is_none() -> None:
    end = End(timeout_max_s=60)
    end.say(c.SessionRequestTimeout(30), c.SessionRequestTimeout(0))
    end.session.send_transfer(transfer_octets(), None, b"m")
    assert end.wire.bodies == [b"m"]
    end.session.detached()
    assert end.session.ended


def test_a_session_can_be_ended_while_it_is_attached() -> None:
    end = End(timeout_max_s=60)
    end.say(c.SessionRequestTimeout(30))
    end.heard()
    end.session.end("the virtual host is deleted")
    exception, _ = end.heard()
    assert isinstance(exception, c.ExecutionException)
    assert exception.error_code == c.ERROR_CODE_RESOURCE_DELETED
    assert exception.description == "the virtual host is deleted"
    end.say(c.SessionDetached(NAME, 0))
    assert end.wire.free


# Exceptions.


def test_s236_a_refused_command_is_named_and_its_mark_never_comes() -> None:
    end = End()
    end.transfer()
    end.owner.refuse = SessionError(c.ERROR_CODE_NOT_FOUND, "no queue x" * 1000, 3)
    end.command(c.QueueDelete("x"), sync=True)
    completed, exception, detach = end.heard()
    assert completed == c.SessionCompleted(ids((0, 0)))
    assert isinstance(exception, c.ExecutionException)
    assert (exception.error_code, exception.command_id) == (c.ERROR_CODE_NOT_FOUND, 1)
    assert (exception.class_code, exception.command_code, exception.field_index) == (8, 2, 3)
    assert exception.description == ("no queue x" * 1000)[:1024]
    assert detach == c.SessionDetach(NAME)
    assert end.settled() == []
    assert end.owner.told == ["attached", "ended"]


def test_s236_an_exception_has_an_id_of_its_own() -> None:
    end = End()
    end.session.send(c.TxSelect())
    end.session.fail(SessionError(c.ERROR_CODE_NOT_ALLOWED, "no"))
    assert end.session.next_id == 2


def test_after_an_exception_only_detach_and_detached_are_heard() -> None:
    end = End()
    end.session.fail(SessionError(c.ERROR_CODE_NOT_ALLOWED, "no"))
    end.heard()
    end.transfer(sync=True)
    end.say(c.SessionFlush(completed=True), c.SessionRequestTimeout(9), c.SessionAttach(b"other"))
    end.session.send(c.TxSelect())
    end.session.send_transfer(transfer_octets(), None, b"m")
    end.session.fail(SessionError(c.ERROR_CODE_NOT_ALLOWED, "again"))
    assert end.settled() == []
    assert end.owner.had == []
    assert end.session.room() == 0
    assert not end.wire.free
    end.say(c.SessionDetached(NAME, 0))
    assert end.wire.free
    assert end.heard() == []
    assert end.owner.told == ["attached", "ended"]


def test_a_detach_that_crosses_the_exception_is_answered() -> None:
    end = End()
    end.session.fail(SessionError(c.ERROR_CODE_NOT_ALLOWED, "no"))
    end.heard()
    end.say(c.SessionDetach(NAME))
    assert end.heard() == [c.SessionDetached(NAME, c.DETACH_CODE_NORMAL)]
    assert end.wire.free


def test_s236_an_exception_of_the_peer_ends_the_session() -> None:
    end = End()
    end.session.send(c.TxSelect())
    end.heard()
    end.command(c.ExecutionException(c.ERROR_CODE_NOT_FOUND, 0))
    assert end.owner.told == ["attached", "exception 404", "ended"]
    end.transfer(sync=True)
    assert end.settled() == []
    end.say(c.SessionDetach(NAME))
    assert end.heard() == [c.SessionDetached(NAME, c.DETACH_CODE_NORMAL)]


def test_content_after_a_command_that_has_none_is_refused() -> None:
    for header, body in ((b"", None), (None, b"")):
        end = End()
        end.session.on_command(c.QueueDeclare("q"), False, header, body)
        exception, _ = end.heard()
        assert isinstance(exception, c.ExecutionException)
        assert exception.error_code == c.ERROR_CODE_COMMAND_INVALID
        assert end.owner.had == []


def test_a_transfer_without_a_body_is_told_from_one_with_an_empty_one() -> None:
    end = End()
    end.session.on_command(c.MessageTransfer("x"), False, None, None)
    end.session.on_command(c.MessageTransfer("x"), False, None, b"")
    assert end.owner.had == [(0, None), (1, b"")]


def test_the_owner_may_fail_the_session_later() -> None:
    end = End()
    end.owner.hold = True
    end.transfer()
    end.transfer()
    end.session.fail(SessionError(c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, "full"), 0, c.MessageTransfer())
    exception, _ = end.heard()
    assert isinstance(exception, c.ExecutionException)
    assert exception.command_id == 0
    end.session.complete(1)
    assert end.settled() == []

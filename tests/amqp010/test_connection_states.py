"""Every input in every state of a connection: a table of what follows, and nothing but that."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Control
from leveret.protocols.amqp010.codec.frames import control_frame
from leveret.protocols.amqp010.machine.connection import State
from leveret.protocols.amqp010.machine.contract import AmqpError

from .client import HEADER, frame
from .machine import START_OK, Machine, kinds


def awaiting() -> Machine:
    return Machine()


def starting() -> Machine:
    return Machine().start()


def securing() -> Machine:
    machine = Machine().start()
    machine.handler.challenges = [b"?"]
    machine.say(START_OK)
    return machine


def checking() -> Machine:
    machine = Machine().start()
    machine.handler.checking = True
    machine.say(START_OK)
    return machine


def tuning() -> Machine:
    return Machine().log_in()


def opening() -> Machine:
    return Machine().tune()


def running() -> Machine:
    return Machine().open().attach()


def closing() -> Machine:
    machine = Machine().open().attach()
    machine.wire.fail(AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, "no more"))
    machine.heard()
    return machine


def closed() -> Machine:
    machine = running()
    machine.wire.lost()
    return machine


STATES = {
    State.AWAITING_HEADER: awaiting,
    State.STARTING: starting,
    State.SECURING: securing,
    State.CHECKING: checking,
    State.TUNING: tuning,
    State.OPENING: opening,
    State.OPEN: running,
    State.CLOSING: closing,
    State.CLOSED: closed,
}
QUIET = (State.CHECKING, State.CLOSING, State.CLOSED)  # what comes is not answered, or not yet
BEFORE_OPEN = (State.STARTING, State.SECURING, State.TUNING, State.OPENING)

CONTROLS: dict[str, Control] = {
    "start": c.ConnectionStart({}, ["PLAIN"], ["en_US"]),
    "start-ok": START_OK,
    "secure": c.ConnectionSecure(b"x"),
    "secure-ok": c.ConnectionSecureOk(b"x"),
    "tune": c.ConnectionTune(1, 4096, 0, 0),
    "tune-ok": c.ConnectionTuneOk(),
    "open": c.ConnectionOpen("/"),
    "open-ok": c.ConnectionOpenOk([]),
    "redirect": c.ConnectionRedirect("elsewhere", []),
    "heartbeat": c.ConnectionHeartbeat(),
    "close": c.ConnectionClose(200, ""),
    "close-ok": c.ConnectionCloseOk(),
}
CONTROLS_OF_SESSIONS: tuple[Control, ...] = (
    c.SessionAttach(b"t"),
    c.SessionAttached(b"t"),
    c.SessionDetach(b"t"),
    c.SessionDetached(b"t", 0),
    c.SessionRequestTimeout(1),
    c.SessionTimeout(1),
    c.SessionCommandPoint(0, 0),
    c.SessionExpected(),
    c.SessionConfirmed(),
    c.SessionCompleted(),
    c.SessionKnownCompleted(),
    c.SessionFlush(True, True, True),
    c.SessionGap(),
)

# What is welcome: the state it leads to, and what is answered. All else is a framing error, where anybody listens.
WELCOME: dict[tuple[State, str], tuple[State, list[type]]] = {
    (State.STARTING, "start-ok"): (State.TUNING, [c.ConnectionTune]),
    (State.SECURING, "secure-ok"): (State.TUNING, [c.ConnectionTune]),
    (State.TUNING, "tune-ok"): (State.OPENING, []),
    (State.OPENING, "open"): (State.OPEN, [c.ConnectionOpenOk]),
    (State.CLOSING, "close"): (State.CLOSING, [c.ConnectionCloseOk]),
    (State.CLOSING, "close-ok"): (State.CLOSED, []),
    **{(state, "heartbeat"): (state, []) for state in (*BEFORE_OPEN, State.OPEN)},
    **{(state, "close"): (State.CLOSED, [c.ConnectionCloseOk]) for state in (*BEFORE_OPEN, State.OPEN)},
}


def follows(state: State, name: str) -> tuple[State, list[type]]:
    if state in QUIET:
        return WELCOME.get((state, name), (state, []))
    return WELCOME.get((state, name), (State.CLOSING, [c.ConnectionClose]))


AFTER_THE_HEADER = [state for state in STATES if state is not State.AWAITING_HEADER]
READING = [state for state in AFTER_THE_HEADER if state is not State.CHECKING]


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("state", AFTER_THE_HEADER)
def test_a_control_of_the_connection(state: State, name: str) -> None:
    machine = STATES[state]()
    answer = machine.say(CONTROLS[name])
    assert (machine.wire.state, kinds(answer)) == follows(state, name)
    if kinds(answer) == [c.ConnectionClose]:
        assert answer[0].reply_code == c.CLOSE_CODE_FRAMING_ERROR
        assert f"connection.{name}" in answer[0].reply_text


@pytest.mark.parametrize("name", CONTROLS)
@pytest.mark.parametrize("state", AFTER_THE_HEADER)
def test_a_control_of_the_connection_on_another_channel(state: State, name: str) -> None:
    machine = STATES[state]()
    answer = machine.say(CONTROLS[name], 1)
    assert kinds(answer) == ([] if state in QUIET else [c.ConnectionClose])
    assert machine.wire.state is (state if state in QUIET else State.CLOSING)


@pytest.mark.parametrize("control", CONTROLS_OF_SESSIONS, ids=lambda control: control.NAME)
@pytest.mark.parametrize("state", AFTER_THE_HEADER)
def test_a_control_of_a_session_that_is_not_there(state: State, control: Control) -> None:
    machine = STATES[state]()
    machine.told  # noqa: B018 - looked at
    answer = machine.say(control, 2)
    if state in BEFORE_OPEN:
        assert kinds(answer) == [c.ConnectionClose]
        assert answer[0].reply_code == c.CLOSE_CODE_FRAMING_ERROR
        assert machine.told == ["closed"]
    elif state is State.OPEN and isinstance(control, c.SessionAttach):
        assert answer == [(2, c.SessionAttached(b"t"))]
    elif state is State.OPEN and isinstance(control, c.SessionDetach):
        assert answer == [(2, c.SessionDetached(b"t", c.DETACH_CODE_NOT_ATTACHED))]
    else:
        assert answer == []
        assert machine.told == []


@pytest.mark.parametrize("attached", [True, False])
@pytest.mark.parametrize("state", AFTER_THE_HEADER)
def test_a_command(state: State, attached: bool) -> None:
    machine = STATES[state]()
    machine.told  # noqa: B018 - looked at
    answer = machine.command(c.MessageTransfer(), 1 if attached else 2, body=b"x")
    if state in BEFORE_OPEN:
        assert kinds(answer) == [c.ConnectionClose]
        assert machine.told == ["closed"]
    else:
        heard = state is State.OPEN and attached
        assert machine.told == (["s: message.transfer b'x'", "s: settle"] if heard else [])
        assert answer == []


@pytest.mark.parametrize("state", READING)
def test_lost_framing(state: State) -> None:
    machine = STATES[state]()
    answer = machine.receive(b"\xff" * 12)
    assert machine.wire.closed
    ending = state in (State.CLOSING, State.CLOSED)
    assert kinds(answer) == ([] if ending else [c.ConnectionClose])


@pytest.mark.parametrize("state", READING)
def test_a_second_header(state: State) -> None:
    """It is no frame: its first octet has reserved bits."""
    machine = STATES[state]()
    machine.receive(HEADER + bytes(8))
    assert machine.wire.closed


@pytest.mark.parametrize("state", STATES)
def test_the_end_of_the_transport(state: State) -> None:
    machine = STATES[state]()
    machine.wire.lost()
    assert machine.wire.closed
    assert machine.heard() == []
    assert machine.wire.deadline() is None
    assert machine.told.count("closed") == 1


@pytest.mark.parametrize("state", STATES)
def test_an_end_of_ours(state: State) -> None:
    machine = STATES[state]()
    machine.wire.fail(AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, "no more"))
    said = kinds(machine.heard())
    silent = state in (State.AWAITING_HEADER, State.CLOSING, State.CLOSED)
    assert said == ([] if silent else [c.ConnectionClose])
    assert machine.told.count("closed") == 1
    assert not machine.wire.sessions


@pytest.mark.parametrize("state", STATES)
def test_a_deadline_that_comes_early_does_nothing(state: State) -> None:
    machine = STATES[state]()
    machine.heard()
    machine.wire.on_deadline(0.0)
    assert machine.heard() == []
    assert machine.wire.state is state


# However the octets of a beginning are cut.


def beginning() -> bytes:
    said = (START_OK, c.ConnectionTuneOk(32767, 65535, 0), c.ConnectionOpen("/", [], True))
    session = control_frame(3, c.SessionAttach(b"s").encode())
    sync = frame(c.ExecutionSync().encode(), 3, segment=1)
    return HEADER + b"".join(control_frame(0, control.encode()) for control in said) + session + sync


def whole() -> tuple[list, list[str]]:
    machine = Machine()
    return machine.receive(beginning()), machine.told


def test_everything_may_be_said_before_anything_is_answered() -> None:
    answer, _ = whole()
    kinds_of = kinds(answer[1:])
    assert answer[0] == HEADER
    assert kinds_of == [c.ConnectionStart, c.ConnectionTune, c.ConnectionOpenOk, c.SessionAttached]


@pytest.mark.parametrize("at", range(1, len(beginning())))
def test_a_beginning_in_two_pieces(at: int) -> None:
    machine, octets = Machine(), beginning()
    assert machine.receive(octets[:at], flush=False) + machine.receive(octets[at:]) == whole()[0]
    assert machine.told == whole()[1]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 11, 13])
def test_a_beginning_in_many_pieces(size: int) -> None:
    machine, octets = Machine(), beginning()
    answer = []
    for at in range(0, len(octets), size):
        answer += machine.receive(octets[at : at + size], flush=False)
    machine.wire.flush()
    assert (answer, machine.told) == whole()

"""A connection whose password is being checked: what comes meanwhile is kept, in order and bounded, whatever it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import control_frame
from leveret.protocols.amqp010.machine.connection import State
from leveret.protocols.amqp010.machine.contract import AmqpError
from leveret.protocols.shared.machine.connection_machine import KEPT_MAX

from .client import HEADER
from .machine import START_OK, Machine, kinds

REST = b"".join(
    control_frame(channel, control.encode())
    for channel, control in (
        (0, c.ConnectionTuneOk()),
        (0, c.ConnectionOpen("/")),
        (1, c.SessionAttach(b"s")),
    )
)


def checking() -> Machine:
    machine = Machine().start()
    machine.handler.checking = True
    machine.say(START_OK)
    machine.handler.told.clear()
    return machine


def checked(machine: Machine, with_more: bytes = b"") -> list:
    """The password has been checked; the connection is told by a read, which may bring something."""
    machine.handler.checking = False
    return machine.receive(with_more)


def test_nothing_is_said_until_it_is_known_who_it_is() -> None:
    machine = checking()
    assert (machine.receive(b""), machine.wire.state) == ([], State.CHECKING)
    assert (kinds(checked(machine)), machine.wire.state) == ([c.ConnectionTune], State.TUNING)


@pytest.mark.parametrize("cut", range(0, len(REST), 5))
def test_what_comes_meanwhile_is_taken_in_its_order(cut: int) -> None:
    machine = checking()
    assert machine.receive(REST[:cut]) == []
    assert (machine.receive(b""), machine.told) == ([], [])
    assert kinds(checked(machine, REST[cut:]))[:2] == [c.ConnectionTune, c.ConnectionOpenOk]
    assert machine.told[:3] == ["checked", "open '/'", "attach b's'"]


def test_what_stands_behind_the_password_in_the_same_read_is_kept_too() -> None:
    machine = Machine()
    machine.handler.checking = True
    answer = machine.receive(HEADER + control_frame(0, START_OK.encode()) + REST)
    assert kinds(answer) == [bytes, c.ConnectionStart]
    assert kinds(checked(machine))[:2] == [c.ConnectionTune, c.ConnectionOpenOk]


def test_a_challenge_may_follow_a_check_and_a_check_a_challenge() -> None:
    machine = checking()
    machine.handler.challenges = [b"and?"]
    assert checked(machine) == [c.ConnectionSecure(b"and?")]
    machine.handler.checking = True
    assert (machine.say(c.ConnectionSecureOk(b"that")), machine.wire.state) == ([], State.CHECKING)
    assert kinds(checked(machine)) == [c.ConnectionTune]


def test_a_refusal_is_said_and_the_rest_is_not_looked_at() -> None:
    machine = checking()
    machine.receive(REST)
    machine.handler.error = AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, "no")
    assert checked(machine) == [c.ConnectionClose(c.CLOSE_CODE_CONNECTION_FORCED, "no")]
    assert machine.told == ["checked", "closed"]


def test_what_is_kept_is_bounded() -> None:
    machine = checking()
    machine.receive(bytes(KEPT_MAX))
    assert not machine.wire.closed
    machine.receive(b"x")
    assert machine.wire.closed
    assert machine.wire.ended_because == "too much came while its password was checked"
    assert machine.told == ["closed"]


def test_the_handshake_has_to_be_over_in_time_though_the_password_is_still_being_checked() -> None:
    machine = checking()
    machine.advance(9.9)
    assert not machine.wire.closed
    machine.advance(0.2)
    assert machine.wire.closed
    assert machine.wire.ended_because == "the handshake took too long (in state checking the password)"


def test_the_answer_may_come_when_the_connection_has_ended() -> None:
    machine = checking()
    machine.wire.lost()
    assert machine.told == ["closed"]
    assert (checked(machine, REST), machine.told) == ([], [])


def test_the_node_may_end_it_meanwhile() -> None:
    machine = checking()
    machine.receive(REST)
    machine.wire.fail(AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, "bye"))
    assert kinds(machine.heard()) == [c.ConnectionClose]
    assert checked(machine, control_frame(0, c.ConnectionCloseOk().encode())) == []
    assert (machine.told, machine.wire.closed) == (["closed"], True)


@given(octets=st.binary(max_size=80), cut=st.integers(0, 80))
def test_random_bytes_are_never_an_exception_when_their_turn_comes(octets: bytes, cut: int) -> None:
    machine = checking()
    machine.receive(octets[:cut])
    checked(machine, octets[cut:])

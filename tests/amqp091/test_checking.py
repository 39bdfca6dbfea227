"""A connection whose password is being checked: what comes meanwhile is kept, in order and bounded, whatever it is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import Method, heartbeat_frame, method_frame
from leveret.protocols.amqp091.machine.connection import AmqpError, State
from leveret.protocols.shared.machine.connection_machine import KEPT_MAX
from tests.amqp091.machine import HEADER, Peer, in_state, opened, start_ok, tune_ok
from tests.harness.machine import must_end_at

OPEN = 0, m.ConnectionOpen("/")
REST = b"".join(
    method_frame(channel, method.encode())
    for channel, method in (tune_ok(), OPEN, (1, m.ChannelOpen()), (1, m.QueueDeclare("q")))
)


def checking() -> Peer:
    return in_state(State.CHECKING)


def checked(peer: Peer, with_more: bytes = b"") -> Peer:
    """The password has been checked; the connection is told by a read, which may bring something."""
    peer.handler.checking = False
    return peer.says(with_more)


def names(methods: list[tuple[int, Method]]) -> list[str]:
    return [method.name for _, method in methods]


def test_nothing_is_said_until_it_is_known_who_it_is() -> None:
    peer = checking().says(b"")
    assert (peer.hears(), peer.connection.state) == ([], State.CHECKING)
    checked(peer)
    assert (names(peer.hears()), peer.connection.state) == (["connection.tune"], State.TUNING)


@pytest.mark.parametrize("cut", range(0, len(REST), 7))
def test_what_comes_meanwhile_is_taken_in_its_order(cut: int) -> None:
    peer = checking().says(REST[:cut], b"").says(b"")
    assert peer.handler.taken() == []
    checked(peer, REST[cut:])
    assert names(peer.hears()) == ["connection.tune", "connection.open-ok", "channel.open-ok"]
    assert [call[0] for call in peer.handler.taken()] == ["checked", "open", "channel_open", "method"]


def test_what_stands_behind_the_password_in_the_same_read_is_kept_too() -> None:
    peer = Peer()
    peer.handler.checking = True
    peer.says(HEADER, start_ok(), REST)
    assert names(peer.hears()) == ["connection.start"]
    checked(peer)
    assert names(peer.hears()) == ["connection.tune", "connection.open-ok", "channel.open-ok"]


def test_a_challenge_may_follow_a_check_and_a_check_a_challenge() -> None:
    peer = checking()
    peer.handler.challenges.append(b"and?")
    checked(peer)
    [(_, secure)] = peer.hears()
    assert isinstance(secure, m.ConnectionSecure)
    peer.handler.checking = True
    peer.says((0, m.ConnectionSecureOk(b"that")))
    assert (peer.hears(), peer.connection.state) == ([], State.CHECKING)
    assert names(checked(peer).hears()) == ["connection.tune"]


@pytest.mark.parametrize(("method", "number"), [("start", 11), ("secure", 21)])
def test_a_refusal_names_the_method_that_brought_the_password(method: str, number: int) -> None:
    peer = in_state(State.STARTING if method == "start" else State.SECURING)
    peer.handler.checking = True
    peer.says(start_ok() if method == "start" else (0, m.ConnectionSecureOk(b"p")), REST)
    peer.handler.refusals["checked"] = AmqpError(m.ACCESS_REFUSED, "no")
    close = checked(peer).close_heard()
    assert (close.reply_code, close.failing_class_id, close.failing_method_id) == (403, 10, number)
    assert [call[0] for call in peer.handler.taken()][1:] == ["checked", "closed"]  # and nothing of the rest


def test_who_cannot_be_told_of_a_refusal_is_left_in_silence() -> None:
    peer = Peer()
    peer.handler.checking = True
    peer.says(HEADER, start_ok({}))
    peer.frames()
    peer.handler.refusals["checked"] = AmqpError(m.ACCESS_REFUSED, "no")
    assert (checked(peer).hears(), peer.gone()) == ([], True)


def test_what_is_kept_is_bounded() -> None:
    peer = checking().says(bytes(KEPT_MAX))
    assert not peer.gone()
    peer.says(b"x")
    assert peer.gone()
    assert peer.connection.ended_because == "too much came while its password was checked"
    assert peer.handler.taken() == [("closed",)]


def test_the_handshake_has_to_be_over_in_time_though_the_password_is_still_being_checked() -> None:
    peer = checking()
    must_end_at(peer, 10.0)
    assert peer.connection.ended_because == "the handshake took too long (in state checking the password)"


def test_the_answer_may_come_when_the_connection_has_ended() -> None:
    peer = checking()
    peer.connection.lost()
    assert peer.handler.taken() == [("closed",)]
    checked(peer, REST)
    assert (peer.hears(), peer.handler.taken()) == ([], [])


def test_the_node_may_end_it_meanwhile() -> None:
    peer = checking().says(REST)
    peer.connection.fail(AmqpError(m.CONNECTION_FORCED, "bye"))
    assert peer.close_heard().reply_code == 320
    checked(peer, method_frame(0, m.ConnectionCloseOk().encode()))
    assert (peer.handler.taken(), peer.gone()) == ([("closed",)], True)


def test_heartbeats_and_a_close_wait_for_their_turn() -> None:
    peer = checking().says(heartbeat_frame(), (0, m.ConnectionClose(200, "bye")))
    assert (peer.hears(), peer.gone()) == ([], False)
    assert names(checked(peer).hears()) == ["connection.tune", "connection.close-ok"]
    assert peer.gone()


@given(octets=st.binary(max_size=80), cut=st.integers(0, 80))
def test_random_bytes_are_never_an_exception_when_their_turn_comes(octets: bytes, cut: int) -> None:
    checked(checking().says(octets[:cut]), octets[cut:])


# A new secret, on a connection that goes on meanwhile.


def test_a_new_secret_is_confirmed_when_it_has_been_checked() -> None:
    peer = opened()
    peer.handler.checking = True
    peer.says((0, m.ConnectionUpdateSecret(b"s", "r")), (1, m.QueueDeclare("q")))
    assert peer.hears() == []
    assert [call[0] for call in peer.handler.taken()] == ["update_secret", "method"]
    peer.connection.secret_updated()
    assert names(peer.hears()) == ["connection.update-secret-ok"]


def test_a_secret_that_was_checked_too_late_is_not_confirmed() -> None:
    peer = opened()
    peer.handler.checking = True
    peer.says((0, m.ConnectionUpdateSecret(b"s", "r")))
    peer.connection.lost()
    peer.connection.secret_updated()
    assert peer.hears() == []

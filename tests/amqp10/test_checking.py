"""A login whose password is being checked: what the peer has sent meanwhile is kept, in order and bounded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.machine.connection import State
from leveret.protocols.shared.machine.connection_machine import KEPT_MAX
from tests.amqp10.machine import AMQP_HEADER, LOGIN, SASL, SASL_HEADER, Peer, begin, frame, open_, sasl
from tests.harness.machine import must_end_at

INIT = sasl(p.SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0guest"))
RESPONSE = sasl(p.SaslResponse(response=b"me"))
REST = AMQP_HEADER + frame(open_()) + frame(begin(), channel=1)
HEADER = -1
FORCED = AmqpError("amqp:connection:forced", "shut down", Ends.CONNECTION)
REFUSED = AmqpError("amqp:unauthorized-access", "no", Ends.CONNECTION)


def checking() -> Peer:
    peer = Peer()
    peer.handler.checking = True
    peer.says(SASL_HEADER, INIT)
    return peer.forget()


def checked(peer: Peer, with_more: bytes = b"") -> Peer:
    """The password has been checked; the connection is told by a read, which may bring something."""
    peer.handler.checking = False
    return peer.says(with_more)


def kinds(peer: Peer) -> list[int]:
    return [kind for kind, _, _ in peer.frames()]


def calls(peer: Peer) -> list[object]:
    return [call[0] for call in peer.called()]


def test_nothing_is_said_until_it_is_known_who_it_is() -> None:
    peer = checking().says(b"")
    assert (kinds(peer), peer.connection.state) == ([], State.GREETING)
    [(_, _, body)] = checked(peer).frames()
    assert p.decode(body, 0, len(body))[0] == p.SaslOutcome(code=0)


@pytest.mark.parametrize("cut", range(0, len(REST), 5))
def test_what_comes_meanwhile_is_taken_in_its_order(cut: int) -> None:
    peer = checking().says(REST[:cut]).says(b"")
    assert calls(peer) == []
    checked(peer, REST[cut:])
    assert kinds(peer) == [SASL, HEADER, 0, 0]
    assert calls(peer) == ["checked", "open", "begin"]


def test_who_says_all_at_once_is_answered_when_the_password_has_been_checked() -> None:
    peer = Peer()
    peer.handler.checking = True
    peer.says(LOGIN, frame(open_()))
    assert kinds(peer) == [HEADER, SASL]
    assert kinds(checked(peer)) == [SASL, HEADER, 0]
    assert peer.connection.state is State.OPEN


def test_a_challenge_may_follow_a_check_and_a_check_a_challenge() -> None:
    peer = checking()
    peer.handler.challenges.append(b"and?")
    [(_, _, body)] = checked(peer).frames()
    assert p.decode(body, 0, len(body))[0] == p.SaslChallenge(challenge=b"and?")
    peer.handler.checking = True
    assert kinds(peer.says(RESPONSE)) == []
    assert kinds(checked(peer)) == [SASL]


@pytest.mark.parametrize("rest", [b"", b"AMQP", REST])
def test_a_refusal_is_the_outcome_and_the_rest_is_not_looked_at(rest: bytes) -> None:
    peer = checking().says(rest)
    peer.notes.refusals["checked"] = REFUSED
    [(_, _, body)] = checked(peer).frames()
    assert p.decode(body, 0, len(body))[0] == p.SaslOutcome(code=1)
    assert (calls(peer), peer.gone()) == (["checked", "closed"], True)
    assert peer.connection.ended_because == "no"


def test_the_last_words_of_a_mechanism_are_in_the_outcome() -> None:
    peer = checking()
    peer.handler.last = b"v=signature"
    [(_, _, body)] = checked(peer).frames()
    assert p.decode(body, 0, len(body))[0] == p.SaslOutcome(code=0, additional_data=b"v=signature")


def test_what_is_kept_is_bounded() -> None:
    peer = checking().says(bytes(KEPT_MAX))
    assert not peer.gone()
    assert peer.says(b"x").gone()
    assert peer.connection.ended_because == "too much came while its password was checked"
    assert (kinds(peer), calls(peer)) == ([], ["closed"])


def test_the_handshake_has_to_be_over_in_time_though_the_password_is_still_being_checked() -> None:
    peer = checking()
    must_end_at(peer, 10.0)
    assert peer.connection.ended_because == "the handshake took too long (checking the password)"


def test_the_answer_may_come_when_the_connection_has_ended() -> None:
    peer = checking()
    peer.connection.lost()
    assert calls(peer) == ["closed"]
    assert (kinds(checked(peer, REST)), calls(peer)) == ([], [])


def test_the_node_may_end_it_meanwhile() -> None:
    peer = checking().says(REST)
    peer.connection.fail(FORCED)
    assert (kinds(checked(peer)), calls(peer), peer.gone()) == ([], ["closed"], True)


@given(octets=st.binary(max_size=80), cut=st.integers(0, 80))
def test_random_bytes_are_never_an_exception_when_their_turn_comes(octets: bytes, cut: int) -> None:
    checked(checking().says(octets[:cut]), octets[cut:])


@pytest.mark.parametrize("of", [p.SaslMechanisms, p.SaslInit, p.SaslResponse, p.SaslOutcome, p.Open, p.Close])
def test_no_performative_is_looked_at_before_its_turn(of: type[p.Record]) -> None:
    said: dict[type[p.Record], p.Record] = {
        p.SaslMechanisms: p.SaslMechanisms(sasl_server_mechanisms=["PLAIN"]),
        p.SaslInit: p.SaslInit(mechanism="PLAIN"),
        p.SaslResponse: p.SaslResponse(response=b""),
        p.SaslOutcome: p.SaslOutcome(code=0),
        p.Open: open_(),
        p.Close: p.Close(),
    }
    peer = checking().says(sasl(said[of]))
    assert (kinds(peer), calls(peer), peer.gone()) == ([], [], False)
    checked(peer)  # and then it is not welcome
    assert peer.gone()

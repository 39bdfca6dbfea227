"""How a connection begins: headers and the login, in any pieces, and how it does not (S002, S003, S004, S164)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.machine.connection import State
from leveret.protocols.amqp10.machine.contract import Tuning
from tests.harness.machine import must_end_at

from .machine import AMQP_HEADER, LOGIN, SASL, SASL_HEADER, Peer, frame, open_, sasl

INIT = sasl(p.SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0guest"))
RESPONSE = sasl(p.SaslResponse(response=b"me"))
HEADER = -1


def told(peer: Peer) -> list[object]:
    """Protocol headers and SASL performatives heard."""
    found: list[object] = []
    for kind, channel, body in peer.frames():
        assert channel == 0
        assert kind in (HEADER, SASL)
        found.append(body if kind == HEADER else p.decode(body, 0, len(body))[0])
    return found


def greeted() -> Peer:
    """The mechanisms have been heard."""
    peer = Peer().says(SASL_HEADER)
    peer.outbox.take()
    return peer


# The way it goes.


def test_s002_s164_a_peer_that_wants_sasl_gets_the_header_and_the_mechanisms_in_order_of_preference() -> None:
    peer = Peer(Tuning(mechanisms=("EXTERNAL", "PLAIN"))).says(SASL_HEADER)
    assert told(peer) == [SASL_HEADER, p.SaslMechanisms(sasl_server_mechanisms=["EXTERNAL", "PLAIN"])]
    assert peer.connection.peer_spoke == "AMQP 1.0"


def test_a_login_at_once_gets_its_outcome_and_then_the_second_header() -> None:
    peer = greeted().says(INIT)
    assert peer.called() == [("init", "PLAIN", b"\0guest\0guest")]
    assert told(peer) == [p.SaslOutcome(code=0)]
    assert told(peer.says(AMQP_HEADER)) == [AMQP_HEADER]
    assert peer.connection.state is State.OPENING


def test_no_initial_response_is_an_empty_one() -> None:
    peer = greeted().says(sasl(p.SaslInit(mechanism="ANONYMOUS")))
    assert peer.called() == [("init", "ANONYMOUS", b"")]


def test_challenges_go_on_until_there_is_no_other() -> None:
    peer = greeted()
    peer.handler.challenges += [b"who?", b"really?"]
    assert told(peer.says(INIT)) == [p.SaslChallenge(challenge=b"who?")]
    assert told(peer.says(RESPONSE)) == [p.SaslChallenge(challenge=b"really?")]
    assert told(peer.says(RESPONSE)) == [p.SaslOutcome(code=0)]
    assert peer.called()[1:] == [("response", b"me"), ("response", b"me")]


def test_a_client_that_says_all_at_once_is_answered_all_at_once() -> None:
    peer = Peer().says(LOGIN, open_())
    kinds = [kind for kind, _, _ in peer.frames()]
    assert kinds == [HEADER, SASL, SASL, HEADER, 0]
    assert peer.connection.state is State.OPEN


@given(st.lists(st.integers(0, len(LOGIN)), max_size=5).map(sorted))
def test_a_login_comes_apart_anywhere(cuts: list[int]) -> None:
    peer = Peer()
    edges = [0, *cuts, len(LOGIN)]
    for place, edge in enumerate(edges[1:]):
        peer.says(LOGIN[edges[place] : edge])
    assert peer.connection.state is State.OPENING
    assert len(peer.frames()) == 4


def test_a_sasl_frame_may_have_an_extended_header() -> None:
    init = p.SaslInit(mechanism="PLAIN", initial_response=b"")
    peer = greeted().says(frame(init, kind=SASL, extended=b"\xff" * 8))
    assert told(peer) == [p.SaslOutcome(code=0)]


# Other first octets.


@pytest.mark.parametrize(
    ("header", "spoke"),
    [
        (AMQP_HEADER, "AMQP 1.0 without SASL"),
        (b"AMQP\x02\x01\x00\x00", "AMQP 1.0 with TLS"),
        (b"AMQP\x00\x00\x09\x01", "AMQP 0-9-1"),
        (b"AMQP\x03\x01\x01\x00", "an unknown protocol"),
        (b"GET / HTTP", "an unknown protocol"),
    ],
)
def test_s002_s003_any_other_header_is_answered_with_that_of_sasl_and_left(header: bytes, spoke: str) -> None:
    peer = Peer().says(header)
    assert told(peer) == [SASL_HEADER]
    assert peer.gone()
    assert peer.connection.peer_spoke == spoke
    assert peer.called() == [("closed",)]


def test_the_second_header_must_be_that_of_amqp() -> None:
    peer = greeted().says(INIT)
    peer.outbox.take()
    assert told(peer.says(SASL_HEADER)) == [AMQP_HEADER]
    assert peer.gone()
    assert peer.connection.ended_because == "the peer speaks AMQP 1.0 (awaiting the second protocol header)"


# Logins that fail.


@pytest.mark.parametrize(
    ("condition", "code"),
    [
        ("amqp:unauthorized-access", 1),
        ("amqp:invalid-field", 1),
        ("amqp:internal-error", 2),
        ("amqp:not-implemented", 3),
        ("amqp:resource-limit-exceeded", 4),
    ],
)
@pytest.mark.parametrize("step", ["init", "response"])
def test_s164_a_login_that_is_refused_gets_an_outcome_and_the_end(
    step: str, condition: str, code: int
) -> None:
    peer = greeted()
    peer.handler.challenges.append(b"who?")
    peer.notes.refusals[step] = AmqpError(condition, "no", Ends.CONNECTION)
    peer.says(INIT, RESPONSE)
    assert told(peer)[-1] == p.SaslOutcome(code=code)
    assert peer.gone()
    assert peer.connection.ended_because == "no"
    assert peer.called()[-1] == ("closed",)


def test_a_login_that_ends_the_connection_gets_no_outcome() -> None:
    peer = greeted()
    peer.notes.doings["init"] = lambda: peer.connection.fail(AmqpError("amqp:connection:forced", "shut down"))
    assert told(peer.says(INIT, AMQP_HEADER)) == []
    assert peer.gone()
    assert peer.connection.ended_because == "amqp:connection:forced: shut down"
    assert [call[0] for call in peer.called()] == ["init", "closed"]


def awaiting_choice() -> Peer:
    return greeted()


def awaiting_response() -> Peer:
    peer = greeted()
    peer.handler.challenges.append(b"who?")
    peer.says(INIT)
    return peer.forget()


STAGES = pytest.mark.parametrize("reach", [awaiting_choice, awaiting_response])
SASL_TYPES = (p.SaslMechanisms, p.SaslInit, p.SaslChallenge, p.SaslResponse, p.SaslOutcome)
SAID: dict[type[p.Record], p.Record] = {
    p.SaslMechanisms: p.SaslMechanisms(sasl_server_mechanisms=["PLAIN"]),
    p.SaslInit: p.SaslInit(mechanism="PLAIN"),
    p.SaslChallenge: p.SaslChallenge(challenge=b""),
    p.SaslResponse: p.SaslResponse(response=b""),
    p.SaslOutcome: p.SaslOutcome(code=0),
}
WELCOME = {(awaiting_choice, p.SaslInit), (awaiting_response, p.SaslResponse)}


@STAGES
@pytest.mark.parametrize("of", [*SASL_TYPES, p.Open, p.Source])
def test_every_performative_at_every_stage(reach: Callable[[], Peer], of: type[p.Record]) -> None:
    said = SAID.get(of) or (p.Source() if of is p.Source else open_())
    peer = reach().says(sasl(said))
    if (reach, of) in WELCOME:
        assert told(peer) == [p.SaslOutcome(code=0)]
    else:
        assert told(peer) == []
        assert peer.gone()
        assert peer.called() == [("closed",)]


@STAGES
@pytest.mark.parametrize(
    "octets",
    [
        frame(open_()),  # of AMQP
        b"\x00\x00\x20\x01\x02\x01\x00\x00",  # larger than initial_frame_size_max: refused by its size alone
        b"\x00\x00\x00\x07\x02\x01\x00\x00",
        b"\x00\x00\x00\x08\x01\x01\x00\x00",
        b"\x00\x00\x00\x08\x03\x01\x00\x00",
        b"\xff\xff\xff\xff\xff\x01\x00\x00",
    ],
    ids=["type", "too large", "too small", "offset", "offset behind the end", "all ones"],
)
def test_octets_that_are_no_sasl_frame_end_it_without_a_word(
    reach: Callable[[], Peer], octets: bytes
) -> None:
    peer = reach().says(octets)
    assert told(peer) == []
    assert peer.gone()


@STAGES
@pytest.mark.parametrize(
    "body", [b"", b"\x00\x53\x41\xc0\x05\x01", b"\x00\x53\x41\x45", b"\x00\x53\x43\x45", b"\xff"]
)
def test_a_frame_that_cannot_be_read_is_a_login_that_failed(reach: Callable[[], Peer], body: bytes) -> None:
    peer = reach().says(frame(body, kind=SASL))
    assert told(peer) == [p.SaslOutcome(code=1)]
    assert peer.gone()


def test_a_frame_of_the_largest_size_is_read() -> None:
    init = p.SaslInit(mechanism="PLAIN", initial_response=bytes(8192))
    excess = len(sasl(init)) - 8192
    init.initial_response = bytes(8192 - excess)
    assert told(greeted().says(sasl(init))) == [p.SaslOutcome(code=0)]


# Time.


@pytest.mark.parametrize("octets", [b"", SASL_HEADER, SASL_HEADER + INIT[:-1], SASL_HEADER + INIT, LOGIN])
def test_s004_who_is_not_open_in_time_is_left(octets: bytes) -> None:
    peer = Peer(Tuning(handshake_timeout_s=10.0)).says(octets)
    must_end_at(peer, 10.0)
    assert peer.connection.ended_because.startswith("the handshake took too long (")
    assert peer.connection.deadline() is None


# Anything.


@given(st.binary(max_size=60), st.integers(0, 60))
@pytest.mark.parametrize("before", [b"", SASL_HEADER, SASL_HEADER + INIT, LOGIN])
def test_random_octets_are_never_an_exception(before: bytes, octets: bytes, cut: int) -> None:
    Peer().says(before, octets[:cut]).says(octets[cut:])


@given(st.lists(st.tuples(st.integers(0, len(LOGIN) - 1), st.integers(0, 255)), max_size=4))
def test_a_login_with_mutated_octets_is_never_an_exception(changes: list[tuple[int, int]]) -> None:
    octets = bytearray(LOGIN)
    for at, value in changes:
        octets[at] = value
    peer = Peer().says(bytes(octets))
    assert peer.gone() or peer.connection.state in (State.GREETING, State.OPENING)

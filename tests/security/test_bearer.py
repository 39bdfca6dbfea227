"""OAUTHBEARER and XOAUTH2: who comes in, what a refused client is told, and what is reported. No network."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.clock import ManualClock
from leveret.config.config import parse
from leveret.errors import Failure
from leveret.front_end import Peer
from leveret.observability.events import Event, EventListener
from leveret.protocols.amqp10.codec import performatives as p
from leveret.security.login import Login
from leveret.security.sasl import Challenge, MalformedResponse, Mechanisms, Success, UnknownMechanism
from leveret.security.tokens import Tokens
from leveret.server.node.start_check import rehearse
from leveret.values import Value
from tests.amqp10.peer import Peer as Peer10
from tests.harness.bench import ClientBench
from tests.harness.peer import ELSEWHERE

from .issuer import settings, token, write_keys

BOTH = ("OAUTHBEARER", "XOAUTH2")


@pytest.fixture
def bench(tmp_path: Path) -> ClientBench:
    return ClientBench(settings(write_keys(tmp_path)))


def login(bench: ClientBench, peer: Peer = ELSEWHERE) -> Login:
    from leveret.protocols.amqp091.broker.adapter import log

    return Login(bench.broker, Mechanisms(bench.broker.access, BOTH), peer, "AMQP 0-9-1", log)


def response(mechanism: str, given: str, name: str = "") -> bytes:
    if mechanism == "XOAUTH2":
        return b"user=%b\x01auth=Bearer %b\x01\x01" % (name.encode(), given.encode())
    acting_as = b"a=" + name.encode() if name else b""
    return b"n,%b,\x01host=broker\x01port=5672\x01auth=Bearer %b\x01\x01" % (acting_as, given.encode())


class Reports(EventListener):
    def __init__(self, bench: ClientBench) -> None:
        self.seen: list[tuple[str, Value]] = []
        bench.broker.events.listeners.append(self)

    def on_event(self, event: Event) -> None:
        if event.name.startswith("user.auth"):
            self.seen.append((event.name.rpartition(".")[2], event.facts.get("error", "")))


@pytest.mark.parametrize("mechanism", BOTH)
@pytest.mark.parametrize("name", ["", "shop"])
def test_a_token_logs_its_bearer_in(bench: ClientBench, mechanism: str, name: str):
    found = login(bench).begin(mechanism, response(mechanism, token(), name))
    assert isinstance(found, Success)
    assert found.user.name == "shop"


@pytest.mark.parametrize("mechanism", BOTH)
def test_the_initial_response_may_come_after_an_empty_challenge(bench: ClientBench, mechanism: str):
    attempt = login(bench)
    assert attempt.begin(mechanism, b"") == Challenge(b"")
    assert isinstance(attempt.answer(response(mechanism, token())), Success)


@pytest.mark.parametrize("mechanism", BOTH)
@pytest.mark.parametrize("made", ["expired", "other", "no token", ""])
def test_a_refused_client_is_told_in_json_and_then_fails(bench: ClientBench, mechanism: str, made: str):
    given = {"expired": token(exp=1), "other": token(aud="other")}.get(made, made)
    attempt, reports = login(bench), Reports(bench)
    told = attempt.begin(mechanism, response(mechanism, given))
    assert isinstance(told, Challenge)
    assert json.loads(told.octets)["status"] == {"OAUTHBEARER": "invalid_token", "XOAUTH2": "401"}[mechanism]
    assert reports.seen == [("failure", "invalid_credentials")], "reported at once, as it may hang up"
    for answer in (b"\x01", response(mechanism, token())):
        with pytest.raises(Failure, match="Login was refused"):
            attempt.answer(answer)
    assert len(reports.seen) == 1


@pytest.mark.parametrize("mechanism", BOTH)
def test_a_token_does_not_let_its_bearer_act_as_another(bench: ClientBench, mechanism: str):
    reports = Reports(bench)
    assert isinstance(login(bench).begin(mechanism, response(mechanism, token(), "guest")), Challenge)
    assert reports.seen == [("failure", "other_identity")]


def test_the_bearer_of_a_loopback_users_name_has_to_be_on_this_machine(bench: ClientBench):
    reports = Reports(bench)
    assert isinstance(login(bench).begin("XOAUTH2", response("XOAUTH2", token(sub="guest"))), Challenge)
    assert reports.seen == [("failure", "not_loopback")]


@pytest.mark.parametrize(
    ("mechanism", "octets"),
    [
        ("OAUTHBEARER", b"n,,\x01auth=Bearer x\x01"),
        ("OAUTHBEARER", b"p=tls,,\x01auth=Bearer x\x01\x01"),
        ("OAUTHBEARER", b"n,shop,\x01auth=Bearer x\x01\x01"),
        ("OAUTHBEARER", b"n,a=shop\x01auth=Bearer x\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth=Basic x\x01\x01"),
        ("OAUTHBEARER", b"n,,\x01auth\x01\x01"),
        ("OAUTHBEARER", b"n,a=\xff,\x01auth=Bearer x\x01\x01"),
        ("OAUTHBEARER", b"n,," + bytes(20_000)),
        ("XOAUTH2", b"shop\x01auth=Bearer x\x01\x01"),
        ("XOAUTH2", b"\x01\x01"),
    ],
)
def test_malformed_responses_are_refused(bench: ClientBench, mechanism: str, octets: bytes):
    with pytest.raises(MalformedResponse):
        login(bench).begin(mechanism, octets)


def test_a_name_may_have_commas_and_equals_signs(bench: ClientBench):
    octets = response("OAUTHBEARER", token(sub="a,b=c"), "a=2Cb=3Dc")
    assert isinstance(login(bench).begin("OAUTHBEARER", octets), Success)


@given(octets=st.binary(max_size=60) | st.text("n,a=\x01uth Bearer:x").map(str.encode))
@pytest.mark.parametrize("mechanism", BOTH)
def test_whatever_comes_nobody_comes_in(
    tmp_path_factory: pytest.TempPathFactory, mechanism: str, octets: bytes
):
    bench = BENCHES.setdefault(mechanism, ClientBench(settings(write_keys(tmp_path_factory.mktemp("keys")))))
    with contextlib.suppress(MalformedResponse):
        assert isinstance(login(bench).begin(mechanism, octets), Challenge)


BENCHES: dict[str, ClientBench] = {}


def test_they_are_not_offered_where_tokens_are_not_accepted():
    bench = ClientBench("")
    mechanisms = Mechanisms(bench.broker.access, ("PLAIN", *BOTH))
    assert mechanisms.offered == ("PLAIN",)
    with pytest.raises(UnknownMechanism):
        mechanisms.begin("XOAUTH2", peer_is_loopback=True)


def test_a_client_is_told_where_the_issuer_describes_itself(bench: ClientBench):
    more = '[oauth]\ndiscovery = true\nissuer = "https://i.example"\nresource_server_id = "leveret"'
    bench.broker.access.tokens = Tokens(parse(more).oauth, ManualClock())
    attempt = login(bench)
    told = attempt.begin("OAUTHBEARER", response("OAUTHBEARER", "no.to.ken"))
    assert isinstance(told, Challenge)
    assert json.loads(told.octets) == {
        "status": "invalid_token",
        "openid-configuration": "https://i.example/.well-known/openid-configuration",
    }


@pytest.mark.parametrize("mechanism", BOTH)
def test_over_1_0_a_refused_client_gets_a_challenge_and_then_an_outcome(tmp_path: Path, mechanism: str):
    offered = f'protocols.amqp10.mechanisms = ["PLAIN", "{mechanism}"]\n'
    bench = ClientBench(offered + settings(write_keys(tmp_path)))
    peer = Peer10(bench, ELSEWHERE)
    peer.greet()
    assert peer.authenticate(mechanism, response(mechanism, token())) == p.SaslOutcome(code=p.SASL_CODE_OK)
    peer = Peer10(bench, ELSEWHERE)
    peer.greet()
    told = peer.authenticate(mechanism, response(mechanism, token(exp=1)))
    assert isinstance(told, p.SaslChallenge)
    assert "status" in json.loads(told.challenge)
    assert peer.respond(b"\x01") == p.SaslOutcome(code=p.SASL_CODE_AUTH)


@pytest.mark.parametrize("mechanism", BOTH)
def test_check_tells_of_a_mechanism_that_is_not_offered(mechanism: str):
    said = f'protocols.amqp10.mechanisms = ["PLAIN", "{mechanism}"]\n'
    assert rehearse(parse(said)) == [
        f"protocols.amqp10.mechanisms names {mechanism}, which is offered only where [oauth] accepts tokens"
    ]

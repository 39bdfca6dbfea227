"""Logins over 1.0 whose passwords take long to check, against a real broker, and SCRAM with its outcome."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp10.parts import SASL, frame
from tests.amqp10.peer import HEADER, SASL_HEADER, Peer, plain
from tests.core.security.test_scram import final
from tests.harness.bench import ClientBench
from tests.harness.threads import make_slow, slow_bench, woken

SCRAM = '[protocols.amqp10]\nmechanisms = ["SCRAM-SHA-256", "PLAIN"]\n'
CHECKED = 'compat.update_secret = "check"'
OK, REFUSED = p.SaslOutcome(code=0), p.SaslOutcome(code=1)


def test_a_client_that_says_all_at_once_is_opened_when_its_password_has_been_checked() -> None:
    bench, threads = slow_bench()
    peer = Peer(bench)
    init = p.SaslInit(mechanism="PLAIN", initial_response=plain("ann", "secret"), hostname="localhost")
    rest = HEADER + frame(0, p.Open(container_id="test", hostname="localhost"))
    peer.send_bytes(SASL_HEADER + frame(0, init, kind=SASL) + rest)
    peer.read()
    assert peer.opened is None
    assert (peer.front.waits, peer.front.halted) == (True, False)
    threads.run()
    woken(peer)
    assert peer.opened is not None
    assert peer.sasl[-1] == OK
    assert peer.front.description == "user 'ann', vhost '/'"


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "secret"), ("guest", "wrong")])
def test_a_refusal_says_the_same_of_everybody_and_takes_as_long(user: str, password: str) -> None:
    bench, threads = slow_bench()
    peer = Peer(bench)
    peer.greet()
    assert peer.authenticate("PLAIN", plain(user, password)) is None
    assert threads.run() == 1
    woken(peer)
    assert list(peer.sasl) == [REFUSED]
    assert peer.front.closed


def test_where_too_many_are_being_checked_the_outcome_says_that_it_will_pass(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("leveret.security.password_checks.JOBS_MAX", 0)
    bench, _ = slow_bench()
    peer = Peer(bench)
    peer.greet()
    assert peer.authenticate("PLAIN", plain("ann", "secret")) == p.SaslOutcome(code=4)


def test_a_client_that_has_gone_is_not_waited_for() -> None:
    bench, threads = slow_bench()
    peer = Peer(bench)
    peer.greet()
    peer.authenticate("PLAIN", plain("ann", "secret"))
    peer.front.lost()
    threads.run()
    assert not peer.front.waits


def test_x086_a_fresh_secret_is_answered_when_it_has_been_checked() -> None:
    bench, threads = slow_bench(CHECKED)
    peer = Peer(bench)
    peer.greet()
    peer.authenticate("PLAIN", plain("ann", "secret"))
    threads.run()
    woken(peer)
    peer.sasl.clear()
    peer.ask_open()
    make_slow(bench.broker.access, ann="fresh")
    done: list[str] = []
    assert not peer.front.change_secret(b"fresh", lambda: done.append("renewed"))
    assert done == []
    threads.run()
    woken(peer)
    assert done == ["renewed"]
    assert peer.front.client.user is bench.broker.access.user("ann")


def test_x086_a_secret_that_is_wrong_by_then_ends_the_connection() -> None:
    bench, threads = slow_bench(CHECKED)
    peer = Peer(bench)
    peer.greet()
    peer.authenticate("PLAIN", plain("ann", "secret"))
    threads.run()
    woken(peer)
    peer.ask_open()
    make_slow(bench.broker.access, ann="fresh")
    peer.front.change_secret(b"stale")
    threads.run()
    woken(peer)
    assert peer.closed is not None
    assert isinstance(peer.closed.error, p.Error)
    assert peer.closed.error.condition == "amqp:unauthorized-access"


def test_scram_logs_in_and_the_outcome_shows_that_the_broker_knows_the_password() -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    assert peer.greet() == ["SCRAM-SHA-256", "PLAIN"]
    challenge = peer.authenticate("SCRAM-SHA-256", b"n,,n=ann,r=client")
    assert isinstance(challenge, p.SaslChallenge)
    outcome = peer.respond(final(challenge.challenge, b"ann", "ann"))
    assert isinstance(outcome, p.SaslOutcome)
    assert outcome.code == 0
    assert outcome.additional_data is not None
    assert outcome.additional_data.startswith(b"v=")
    peer.ask_open()
    assert peer.opened is not None


@pytest.mark.parametrize(("user", "password"), [("ann", b"wrong"), ("nobody", b"ann")])
def test_scram_says_the_same_of_everybody_who_does_not_know_the_password(user: str, password: bytes) -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    peer.greet()
    challenge = peer.authenticate("SCRAM-SHA-256", f"n,,n={user},r=client".encode())
    assert peer.respond(final(challenge.challenge, password, user)) == REFUSED

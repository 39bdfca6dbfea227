"""Logins over 0-9-1 whose passwords take long to check, against a real broker: when, by whom, and who is told."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp091.codec import methods as m
from leveret.security.passwords import PasswordHash
from tests.amqp091.peer import Peer, start_ok
from tests.core.security.test_scram import final
from tests.harness.bench import ClientBench
from tests.harness.threads import LoginEvents, Threads, make_slow, slow_bench

SCRAM = '[protocols.amqp091]\nmechanisms = ["SCRAM-SHA-256", "PLAIN"]\n'


def asking(bench: ClientBench, password: str = "secret", user: str = "ann") -> Peer:
    """A client whose password is being checked."""
    peer = Peer(bench)
    peer.start()
    peer.send(0, start_ok("PLAIN", f"\0{user}\0{password}".encode()))
    assert peer.next() is None
    assert peer.front.waits
    assert not peer.front.halted
    return peer


def told_by(peer: Peer) -> m.Method | object | None:
    """The node gives a connection that was woken its turn."""
    if peer.front.halted:
        peer.send_bytes(b"")
    return peer.next()


def test_the_first_login_waits_for_a_thread_and_the_next_does_not() -> None:
    bench, threads = slow_bench()
    peer = asking(bench)
    woken: list[str] = []
    peer.front.on_wake = lambda: woken.append("woken")
    threads.run()
    assert (woken, peer.front.waits, peer.front.halted) == (["woken"], False, True)
    assert isinstance(told_by(peer), m.ConnectionTune)
    assert isinstance(Peer(bench).log_in("ann", "secret"), m.ConnectionTune)
    assert threads.run() == 0


def test_what_a_client_says_meanwhile_is_answered_then() -> None:
    bench, threads = slow_bench()
    peer = asking(bench)
    peer.tune()
    peer.send(0, m.ConnectionOpen("/"))
    assert peer.next() is None
    threads.run()
    assert isinstance(told_by(peer), m.ConnectionTune)
    assert isinstance(peer.next(), m.ConnectionOpenOk)


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "secret"), ("guest", "wrong")])
def test_a_refusal_says_the_same_of_everybody_and_takes_as_long(user: str, password: str) -> None:
    bench, threads = slow_bench()
    peer = asking(bench, password, user)
    assert threads.run() == 1
    peer.send_bytes(b"")
    assert peer.refusal() == (
        "403 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile."
    )


def test_nothing_is_checked_for_a_client_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    bench, threads = slow_bench()
    peer = asking(bench)
    peer.drop()
    monkeypatch.setattr(PasswordHash, "matches", lambda *_: pytest.fail("for nobody"))
    assert threads.run() == 1


def test_a_client_that_takes_too_long_is_let_go_though_the_check_is_ours() -> None:
    bench, threads = slow_bench()
    peer = asking(bench)
    bench.advance(10)
    assert (peer.front.closed, peer.front.waits) == (True, False)
    threads.run()
    peer.send_bytes(b"")
    assert peer.next() is None


def test_who_logs_in_and_who_does_not_is_told() -> None:
    bench, threads = slow_bench()
    told = LoginEvents()
    bench.broker.events.listeners.append(told)
    for password in ("secret", "wrong"):
        peer = asking(bench, password)
        threads.run()
        peer.send_bytes(b"")
    success, failure = told.events
    assert (success.name, success.virtual_host) == ("user.authentication.success", "")
    assert success.facts == {
        "name": "ann",
        "connection_type": "network",
        "connection_name": "127.0.0.1:40000 -> 127.0.0.1:5672",
        "peer_host": "127.0.0.1",
        "peer_port": 40000,
        "host": "127.0.0.1",
        "port": 5672,
        "ssl": False,
        "protocol": "AMQP 0-9-1",
        "auth_mechanism": "PLAIN",
    }
    assert failure.name == "user.authentication.failure"
    assert failure.facts == {**success.facts, "error": "invalid_credentials"}


@pytest.mark.parametrize(
    ("mechanism", "response", "name", "error"),
    [
        ("PLAIN", b"no", "", "malformed_response"),
        ("PLAIN", b"bob\0ann\0secret", "ann", "other_identity"),
        ("PLAIN", b"\0" + b"x" * 1000 + b"\0y", "x" * 255, "invalid_credentials"),
    ],
)
def test_why_a_login_failed_is_one_word(mechanism: str, response: bytes, name: str, error: str) -> None:
    bench = ClientBench()
    told = LoginEvents()
    bench.broker.events.listeners.append(told)
    peer = Peer(bench)
    peer.start()
    peer.send(0, start_ok(mechanism, response))
    [event] = told.events
    assert (event.facts["name"], event.facts["error"]) == (name, error)


# A new secret.


def renewing(bench: ClientBench) -> Peer:
    """A client whose new secret is being checked."""
    peer = Peer(bench)
    peer.log_in("ann", "secret")
    peer.tune()
    peer.call(0, m.ConnectionOpen("/"))
    make_slow(bench.broker.access, ann="fresh")
    peer.send(0, m.ConnectionUpdateSecret(b"fresh", "rotation"))
    assert peer.next() is None
    return peer


def opened_bench() -> tuple[ClientBench, Threads]:
    bench, threads = slow_bench('compat.update_secret = "check"')
    asking(bench)
    threads.run()
    return bench, threads


def test_x008_a_secret_is_confirmed_when_it_has_been_checked_and_others_go_on() -> None:
    bench, threads = opened_bench()
    peer = renewing(bench)
    peer.channel()
    threads.run()
    assert isinstance(told_by(peer), m.ConnectionUpdateSecretOk)
    assert peer.front.client.user is bench.broker.access.user("ann")


def test_x008_a_secret_that_is_wrong_by_then_ends_the_connection() -> None:
    bench, threads = opened_bench()
    peer = renewing(bench)
    make_slow(bench.broker.access, ann="fresher")
    threads.run()
    peer.send_bytes(b"")
    assert peer.refusal() == "530 NOT_ALLOWED - New secret was refused by one of the backends"


def test_x008_one_new_secret_at_a_time() -> None:
    bench, _ = opened_bench()
    peer = renewing(bench)
    text = peer.closed_with(0, m.ConnectionUpdateSecret(b"fresh", "again"))
    assert text == "530 NOT_ALLOWED - another new secret is being checked"
    assert not peer.front.waits


# SCRAM.


def test_scram_logs_in_and_shows_that_the_broker_knows_the_password() -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    assert peer.start().mechanisms == b"SCRAM-SHA-256 PLAIN"
    secure = peer.call(0, start_ok("SCRAM-SHA-256", b"n,,n=ann,r=client"))
    assert isinstance(secure, m.ConnectionSecure)
    proof = final(secure.challenge, b"ann", "ann")
    last = peer.call(0, m.ConnectionSecureOk(proof))
    assert isinstance(last, m.ConnectionSecure)
    assert last.challenge.startswith(b"v=")
    assert isinstance(peer.call(0, m.ConnectionSecureOk(b"")), m.ConnectionTune)


@pytest.mark.parametrize(("user", "password"), [("ann", b"wrong"), ("nobody", b"ann")])
def test_scram_says_the_same_of_everybody_who_does_not_know_the_password(user: str, password: bytes) -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    peer.start()
    secure = peer.call(0, start_ok("SCRAM-SHA-256", f"n,,n={user},r=client".encode()))
    assert isinstance(secure, m.ConnectionSecure)
    text = peer.closed_with(0, m.ConnectionSecureOk(final(secure.challenge, password, user)))
    assert text.startswith(
        "403 ACCESS_REFUSED - Login was refused using authentication mechanism SCRAM-SHA-256."
    )


def test_scram_has_nothing_to_hear_behind_its_last_words() -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    peer.start()
    secure = peer.call(0, start_ok("SCRAM-SHA-256", b"n,,n=ann,r=client"))
    assert isinstance(secure, m.ConnectionSecure)
    peer.call(0, m.ConnectionSecureOk(final(secure.challenge, b"ann", "ann")))
    assert peer.closed_with(0, m.ConnectionSecureOk(b"more")).startswith("502 SYNTAX_ERROR")


def test_scram_is_off_unless_it_is_asked_for() -> None:
    assert b"SCRAM" not in Peer().start().mechanisms

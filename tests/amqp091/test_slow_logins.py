"""Logins over 0-9-1 whose passwords take long to check, against a real broker: when, by whom, and who is told."""

from __future__ import annotations

import pytest

from broker_core.observability.events import Event, Listener
from broker_core.security.passwords import PasswordHash
from protocols.amqp091.codec import methods as m
from tests.amqp091.peer import Peer, World, start_ok
from tests.core.test_scram import final
from tests.core.threads import Threads, make_slow

SCRAM = '[protocols.amqp091]\nmechanisms = ["SCRAM-SHA-256", "PLAIN"]\n'


class Told(Listener):
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        if event.name.startswith("user.authentication"):
            self.events.append(event)


def slow_world(toml: str = "") -> tuple[World, Threads]:
    """`ann`, whose password is `secret`, and threads that work when told."""
    world = World(toml)
    world.user("ann")
    make_slow(world.broker.access, ann="secret")
    world.broker.access.off_thread = threads = Threads()
    return world, threads


def asking(world: World, password: str = "secret", user: str = "ann") -> Peer:
    """A client whose password is being checked."""
    peer = Peer(world)
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
    world, threads = slow_world()
    peer = asking(world)
    woken: list[str] = []
    peer.front.on_wake = lambda: woken.append("woken")
    threads.run()
    assert (woken, peer.front.waits, peer.front.halted) == (["woken"], False, True)
    assert isinstance(told_by(peer), m.ConnectionTune)
    assert isinstance(Peer(world).log_in("ann", "secret"), m.ConnectionTune)
    assert threads.run() == 0


def test_what_a_client_says_meanwhile_is_answered_then() -> None:
    world, threads = slow_world()
    peer = asking(world)
    peer.tune()
    peer.send(0, m.ConnectionOpen("/"))
    assert peer.next() is None
    threads.run()
    assert isinstance(told_by(peer), m.ConnectionTune)
    assert isinstance(peer.next(), m.ConnectionOpenOk)


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "secret"), ("guest", "wrong")])
def test_a_refusal_says_the_same_of_everybody_and_takes_as_long(user: str, password: str) -> None:
    world, threads = slow_world()
    peer = asking(world, password, user)
    assert threads.run() == 1
    peer.send_bytes(b"")
    assert peer.refusal() == (
        "403 ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN. "
        "For details see the broker logfile."
    )


def test_nothing_is_checked_for_a_client_that_has_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    world, threads = slow_world()
    peer = asking(world)
    peer.drop()
    monkeypatch.setattr(PasswordHash, "matches", lambda *_: pytest.fail("for nobody"))
    assert threads.run() == 1


def test_a_client_that_takes_too_long_is_let_go_though_the_check_is_ours() -> None:
    world, threads = slow_world()
    peer = asking(world)
    world.advance(10)
    assert (peer.front.closed, peer.front.waits) == (True, False)
    threads.run()
    peer.send_bytes(b"")
    assert peer.next() is None


def test_who_logs_in_and_who_does_not_is_told() -> None:
    world, threads = slow_world()
    told = Told()
    world.broker.events.listeners.append(told)
    for password in ("secret", "wrong"):
        peer = asking(world, password)
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
    world = World()
    told = Told()
    world.broker.events.listeners.append(told)
    peer = Peer(world)
    peer.start()
    peer.send(0, start_ok(mechanism, response))
    [event] = told.events
    assert (event.facts["name"], event.facts["error"]) == (name, error)


# A new secret.


def renewing(world: World) -> Peer:
    """A client whose new secret is being checked."""
    peer = Peer(world)
    peer.log_in("ann", "secret")
    peer.tune()
    peer.call(0, m.ConnectionOpen("/"))
    make_slow(world.broker.access, ann="fresh")
    peer.send(0, m.ConnectionUpdateSecret(b"fresh", "rotation"))
    assert peer.next() is None
    return peer


def opened_world() -> tuple[World, Threads]:
    world, threads = slow_world()
    asking(world)
    threads.run()
    return world, threads


def test_x008_a_secret_is_confirmed_when_it_has_been_checked_and_others_go_on() -> None:
    world, threads = opened_world()
    peer = renewing(world)
    peer.channel()
    threads.run()
    assert isinstance(told_by(peer), m.ConnectionUpdateSecretOk)
    assert peer.front.client.user is world.broker.access.user("ann")


def test_x008_a_secret_that_is_wrong_by_then_ends_the_connection() -> None:
    world, threads = opened_world()
    peer = renewing(world)
    make_slow(world.broker.access, ann="fresher")
    threads.run()
    peer.send_bytes(b"")
    assert peer.refusal() == "530 NOT_ALLOWED - New secret was refused by one of the backends"


def test_x008_one_new_secret_at_a_time() -> None:
    world, _ = opened_world()
    peer = renewing(world)
    text = peer.closed_with(0, m.ConnectionUpdateSecret(b"fresh", "again"))
    assert text == "530 NOT_ALLOWED - another new secret is being checked"
    assert not peer.front.waits


# SCRAM.


def test_scram_logs_in_and_shows_that_the_broker_knows_the_password() -> None:
    world = World(SCRAM)
    world.user("ann")
    peer = Peer(world)
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
    world = World(SCRAM)
    world.user("ann")
    peer = Peer(world)
    peer.start()
    secure = peer.call(0, start_ok("SCRAM-SHA-256", f"n,,n={user},r=client".encode()))
    assert isinstance(secure, m.ConnectionSecure)
    text = peer.closed_with(0, m.ConnectionSecureOk(final(secure.challenge, password, user)))
    assert text.startswith(
        "403 ACCESS_REFUSED - Login was refused using authentication mechanism SCRAM-SHA-256."
    )


def test_scram_has_nothing_to_hear_behind_its_last_words() -> None:
    world = World(SCRAM)
    world.user("ann")
    peer = Peer(world)
    peer.start()
    secure = peer.call(0, start_ok("SCRAM-SHA-256", b"n,,n=ann,r=client"))
    assert isinstance(secure, m.ConnectionSecure)
    peer.call(0, m.ConnectionSecureOk(final(secure.challenge, b"ann", "ann")))
    assert peer.closed_with(0, m.ConnectionSecureOk(b"more")).startswith("502 SYNTAX_ERROR")


def test_scram_is_off_unless_it_is_asked_for() -> None:
    assert b"SCRAM" not in Peer(World()).start().mechanisms

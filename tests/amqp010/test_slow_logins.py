"""Logins over 0-10 whose passwords take long to check, against a real broker, and SCRAM."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from tests.amqp010.peer import Peer
from tests.core.security.test_scram import final
from tests.harness.bench import ClientBench
from tests.harness.threads import slow_bench, woken

SCRAM = '[protocols.amqp010]\nmechanisms = ["SCRAM-SHA-256", "PLAIN"]\n'


def asking(bench: ClientBench, user: str = "ann", password: str = "secret", asked: bool = False) -> Peer:
    """A client whose password is being checked."""
    peer = Peer(bench)
    peer.greet()
    response = f"\0{user}\0{password}".encode()
    peer.control(c.ConnectionStartOk({}, "PLAIN", None if asked else response, "en_US"))
    if asked:
        peer.control(c.ConnectionSecureOk(response))
    peer.read()
    assert (peer.tune, peer.closed) == (None, None)
    assert (peer.front.waits, peer.front.halted) == (True, False)
    return peer


@pytest.mark.parametrize("asked", [False, True], ids=["at once", "when asked"])
def test_what_a_client_says_meanwhile_is_answered_when_its_password_has_been_checked(asked: bool) -> None:
    bench, threads = slow_bench()
    peer = asking(bench, asked=asked)
    peer.control(c.ConnectionTuneOk(32767, 65535, 0))
    peer.control(c.ConnectionOpen("", [], True))
    peer.read()
    assert peer.tune is None
    threads.run()
    woken(peer)
    assert peer.tune is not None
    assert peer.open_ok is not None
    assert peer.front.description == "user 'ann', vhost '/'"


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "secret"), ("guest", "wrong")])
def test_a_refusal_says_the_same_of_everybody_and_takes_as_long(user: str, password: str) -> None:
    bench, threads = slow_bench()
    peer = asking(bench, user, password)
    assert threads.run() == 1
    woken(peer)
    assert peer.closed is not None
    assert peer.closed.reply_text == (
        "Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
    )


def test_a_client_that_has_gone_is_not_waited_for() -> None:
    bench, threads = slow_bench()
    peer = asking(bench)
    peer.drop()
    threads.run()
    assert not peer.front.waits


def scram(user: str, password: bytes) -> Peer:
    """A client that has sent its proof."""
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    peer.greet()
    heard: list[bytes] = []
    answer = peer.front.on_start_ok("SCRAM-SHA-256", f"n,,n={user},r=client".encode(), {})
    assert isinstance(answer, bytes)
    heard.append(answer)
    peer.proof = final(answer, password, user)
    return peer


def test_scram_logs_in_and_shows_that_the_broker_knows_the_password() -> None:
    peer = scram("ann", b"ann")
    last = peer.front.on_secure_ok(peer.proof)
    assert isinstance(last, bytes)
    assert last.startswith(b"v=")
    assert peer.front.on_secure_ok(b"") is None
    assert peer.front.client.user.name == "ann"


@pytest.mark.parametrize(("user", "password"), [("ann", b"wrong"), ("nobody", b"ann")])
def test_scram_says_the_same_of_everybody_who_does_not_know_the_password(user: str, password: bytes) -> None:
    peer = scram(user, password)
    with pytest.raises(Exception, match=r"authentication mechanism SCRAM-SHA-256\. For details") as refused:
        peer.front.on_secure_ok(peer.proof)
    assert user not in str(refused.value)

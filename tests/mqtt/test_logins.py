"""Logins: passwords that take long to check, enhanced authentication, certificates, and anonymous clients."""

from __future__ import annotations

import attrs
import pytest

from leveret.front_end import TlsFacts
from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.packets import Ack, Auth, Connect, Disconnect, Publish
from leveret.protocols.mqtt.codec.properties import Properties
from tests.core.security.test_scram import final
from tests.harness.bench import ClientBench
from tests.harness.peer import LOOPBACK
from tests.harness.threads import slow_bench, woken
from tests.mqtt.peer import Peer

SCRAM = '[protocols.mqtt]\nmechanisms = ["SCRAM-SHA-256", "PLAIN"]\n'
METHOD = "SCRAM-SHA-256"


def test_what_a_client_says_meanwhile_is_answered_when_its_password_has_been_checked() -> None:
    bench, threads = slow_bench()
    peer = Peer(bench)
    peer.send(Connect(5, "me", user_name="ann", password=b"secret"))
    peer.send(Publish("a", b"1", 1, False, False, 1))
    peer.read()
    assert (peer.connected, peer.front.waits, peer.front.halted) == (None, True, False)
    threads.run()
    woken(peer)
    assert peer.connected is not None
    assert peer.connected.reason_code == 0
    assert [each.packet_id for each in peer.taken(Ack)] == [1]
    assert peer.front.description == "user 'ann', vhost '/'"


def test_a_wrong_password_that_takes_long() -> None:
    bench, threads = slow_bench()
    peer = Peer(bench)
    peer.send(Connect(5, "me", user_name="ann", password=b"wrong"))
    threads.run()
    woken(peer)
    assert peer.connected is not None
    assert peer.connected.reason_code == r.BAD_USER_NAME_OR_PASSWORD


def test_a_client_that_has_gone_is_not_waited_for() -> None:
    bench, threads = slow_bench()
    peer = Peer(bench)
    peer.send(Connect(5, "me", user_name="ann", password=b"secret"))
    peer.drop()
    threads.run()
    assert not peer.front.waits


def scram(peer: Peer, password: bytes, again: bool = False) -> list[Auth]:
    """Begin, prove, and return the answers in AUTH."""
    first = b"n,,n=ann,r=client"
    said = Properties(authentication_method=METHOD, authentication_data=first)
    peer.send(Auth(r.REAUTHENTICATE, said) if again else Connect(5, "me", properties=said))
    (challenge,) = peer.taken(Auth)
    assert challenge.reason_code == r.CONTINUE_AUTHENTICATION
    proof = final(challenge.properties.authentication_data or b"", password, "ann")
    return peer.auth(r.CONTINUE_AUTHENTICATION, METHOD, proof)


def test_scram_logs_in_and_again() -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    scram(peer, b"ann")
    assert peer.connected is not None
    assert (peer.connected.reason_code, peer.connected.properties.authentication_method) == (0, METHOD)
    assert (peer.connected.properties.authentication_data or b"").startswith(b"v=")
    (answer,) = scram(peer, b"ann", again=True)
    assert answer.reason_code == 0
    assert (answer.properties.authentication_data or b"").startswith(b"v=")
    peer.publish("a", b"x")
    assert not peer.front.closed


def test_scram_with_a_wrong_password() -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    scram(peer, b"wrong")
    assert peer.front.closed
    assert peer.connected is not None
    assert peer.connected.reason_code == r.BAD_USER_NAME_OR_PASSWORD
    peer = Peer(bench)
    scram(peer, b"ann")
    scram(peer, b"wrong", again=True)
    assert peer.taken(Disconnect)[0].reason_code == r.NOT_AUTHORIZED


def test_another_user_cannot_take_a_connection_over() -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    said = Properties(authentication_method="PLAIN", authentication_data=b"\0ann\0ann")
    peer.send(Connect(5, "me", properties=said))
    peer.read()
    assert peer.connected is not None
    peer.auth(r.REAUTHENTICATE, "PLAIN", b"\0guest\0guest")
    assert peer.taken(Disconnect)[0].reason_code == r.NOT_AUTHORIZED


@pytest.mark.parametrize("method", ["NONE", "SCRAM-SHA-512"])
def test_an_unknown_method(method: str) -> None:
    peer = Peer()
    peer.send(Connect(5, "me", properties=Properties(authentication_method=method)))
    peer.read()
    assert peer.connected is not None
    assert peer.connected.reason_code == r.BAD_AUTHENTICATION_METHOD


def test_a_client_without_a_name_is_the_anonymous_user() -> None:
    bench = ClientBench()
    bench.user("nobody")
    bench.broker.access.anonymous_user = "nobody"
    peer = Peer(bench).connect(user=None, password=None)
    assert peer.front.client.user.name == "nobody"
    bench.broker.access.anonymous_user = None
    other = Peer(bench).connect(user=None, password=None)
    assert other.connected is not None
    assert other.connected.reason_code == r.BAD_AUTHENTICATION_METHOD


def test_a_client_without_a_name_is_the_user_of_its_certificate() -> None:
    bench = ClientBench('[protocols.mqtt]\nmechanisms = ["PLAIN", "ANONYMOUS", "EXTERNAL"]')
    bench.user("lamp")
    address = attrs.evolve(LOOPBACK, tls=TlsFacts("TLSv1.3", "x", "CN=lamp", "lamp"))
    peer = Peer(bench, address=address).connect(user=None, password=None)
    assert peer.front.client.user.name == "lamp"


def test_a_client_that_may_not_read_any_more_is_disconnected_when_it_authenticates_itself_again() -> None:
    bench = ClientBench(SCRAM)
    bench.user("ann")
    peer = Peer(bench)
    scram(peer, b"ann")
    assert peer.subscribe("a", qos=1) == (1,)
    (answer,) = scram(peer, b"ann", again=True)
    assert answer.reason_code == 0
    bench.broker.access.set_permissions("ann", "/", ".*", ".*", "^none$")
    scram(peer, b"ann", again=True)
    assert peer.taken(Disconnect)[0].reason_code == r.NOT_AUTHORIZED

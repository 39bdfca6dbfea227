"""EXTERNAL in each protocol, in memory: what is offered to whom, and who is let in."""

from __future__ import annotations

import attrs
import pytest

from leveret.front_end import TlsFacts
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp010.peer import Peer as Peer010
from tests.amqp091.peer import Peer, start_ok
from tests.amqp10.peer import Peer as Peer10
from tests.harness.bench import ClientBench
from tests.harness.peer import ELSEWHERE, LOOPBACK

USERS = """
protocols.amqp091.mechanisms = ["PLAIN", "EXTERNAL"]
protocols.amqp10.mechanisms = ["PLAIN", "EXTERNAL"]
protocols.amqp010.mechanisms = ["PLAIN", "EXTERNAL"]
users = [{ name = "guest", password = "guest" }, { name = "shop" }]
"""


def facts(login: str | None) -> TlsFacts:
    return TlsFacts("TLSv1.3", "TLS_AES_256_GCM_SHA384", "CN=whoever", login)


def peer_091(login: str | None, address=LOOPBACK) -> Peer:
    return Peer(ClientBench(USERS), attrs.evolve(address, tls=facts(login)))


def peer_10(login: str | None, address=LOOPBACK) -> Peer10:
    return Peer10(ClientBench(USERS), attrs.evolve(address, tls=facts(login)))


def peer_010(login: str | None, address=LOOPBACK) -> Peer010:
    peer = Peer010(ClientBench(USERS), attrs.evolve(address, tls=facts(login)))
    peer.greet()
    return peer


def log_in_010(peer: Peer010, acting_as: bytes | None) -> Peer010:
    peer.control(c.ConnectionStartOk(mechanism="EXTERNAL", response=acting_as))
    peer.read()
    return peer


def test_external_is_offered_last_and_only_to_those_whom_a_certificate_names():
    assert peer_091("shop").start().mechanisms.split()[-1] == b"EXTERNAL"
    assert b"EXTERNAL" not in peer_091(None).start().mechanisms
    assert peer_10("shop").greet()[-1] == "EXTERNAL"
    assert "EXTERNAL" not in peer_10(None).greet()
    assert mechanisms_010("shop")[-1] == "EXTERNAL"
    assert "EXTERNAL" not in mechanisms_010(None)


def mechanisms_010(login: str | None) -> list[str]:
    start = peer_010(login).start
    assert start is not None
    return start.mechanisms or []


def test_external_is_offered_where_it_is_configured_or_the_profile_says_so():
    tls = attrs.evolve(LOOPBACK, tls=facts("shop"))
    for toml, offered in (("", False), ('compat.external = "certificate"', True)):
        assert (b"EXTERNAL" in Peer(ClientBench(toml), tls).start().mechanisms) is offered
        assert ("EXTERNAL" in Peer10(ClientBench(toml), tls).greet()) is offered
        peer = Peer010(ClientBench(toml), tls)
        peer.greet()
        assert peer.start is not None
        assert ("EXTERNAL" in (peer.start.mechanisms or [])) is offered


@pytest.mark.parametrize("acting_as", [b"", b"shop"])
@pytest.mark.parametrize("address", [LOOPBACK, ELSEWHERE], ids=["here", "elsewhere"])
def test_a_user_without_a_password_logs_in_by_his_certificate(acting_as: bytes, address):
    peer = peer_091("shop", address)
    peer.start()
    peer.send(0, start_ok("EXTERNAL", acting_as))
    assert isinstance(peer.next(0), m.ConnectionTune)
    assert peer.front.client.user.name == "shop"
    other = peer_10("shop", address)
    other.greet()
    assert other.authenticate("EXTERNAL", acting_as) == p.SaslOutcome(code=p.SASL_CODE_OK)
    assert other.front.client.user.name == "shop"
    third = log_in_010(peer_010("shop", address), acting_as)
    assert third.tune is not None
    assert third.front.client.user.name == "shop"


REFUSED = [
    ("nobody", b"", LOOPBACK),  # no user
    ("shop", b"guest", LOOPBACK),  # somebody else
    ("guest", b"", ELSEWHERE),  # from this machine only
]


@pytest.mark.parametrize(("login", "acting_as", "address"), REFUSED)
def test_others_are_refused_as_after_a_wrong_password(login: str, acting_as: bytes, address):
    peer = peer_091(login, address)
    peer.start()
    peer.send(0, start_ok("EXTERNAL", acting_as, {"authentication_failure_close": True}))
    close = peer.next(0)
    assert isinstance(close, m.ConnectionClose)
    assert (close.reply_code, "Login was refused" in close.reply_text) == (403, True)
    other = peer_10(login, address)
    other.greet()
    assert other.authenticate("EXTERNAL", acting_as) == p.SaslOutcome(code=p.SASL_CODE_AUTH)
    third = log_in_010(peer_010(login, address), acting_as)
    assert third.closed is not None
    assert third.closed.reply_code == c.CLOSE_CODE_CONNECTION_FORCED


def test_a_client_of_0_10_that_says_nothing_is_asked_and_may_say_nothing_again():
    peer = log_in_010(peer_010("shop"), None)
    peer.control(c.ConnectionSecureOk(b""))
    peer.read()
    assert peer.front.client.user.name == "shop"


def test_an_empty_password_is_still_nobodys():
    peer = peer_10("shop")
    peer.greet()
    assert peer.authenticate("PLAIN", b"\0shop\0") == p.SaslOutcome(code=p.SASL_CODE_AUTH)

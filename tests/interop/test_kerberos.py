"""Tickets of a Kerberos of our own, with MIT's KDC and library: GSSAPI step by step."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from leveret.config.config import ConfigError, parse
from leveret.front_end import Peer
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp10.codec import performatives as p
from leveret.security.login import Login
from leveret.security.sasl import (
    AuthenticationFailed,
    Challenge,
    MalformedResponse,
    Mechanisms,
    Success,
)
from tests.amqp091.peer import Peer as Peer091
from tests.amqp091.peer import start_ok
from tests.amqp10.peer import Peer as Peer10
from tests.harness.bench import ClientBench
from tests.harness.peer import ELSEWHERE
from tests.interop.conftest import missing

pytestmark = pytest.mark.interop

REMEDY: Final = "run `make test`, or apt-get install krb5-kdc krb5-admin-server krb5-user libkrb5-dev"
if not shutil.which("krb5kdc"):
    missing("krb5kdc", REMEDY)
try:
    import gssapi
    import k5test
except ModuleNotFoundError:
    missing("gssapi and k5test", REMEDY)
if TYPE_CHECKING:
    from k5test import K5Realm


@pytest.fixture(scope="module")
def realm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[K5Realm]:
    found = k5test.K5Realm(
        get_creds=False, krb5_conf={"libdefaults": {"rdns": "false", "dns_canonicalize_hostname": "false"}}
    )
    found.addprinc("amqp/localhost")
    found.addprinc("ann", "hush-ann")
    found.addprinc("bob", "hush-bob")
    found.extract_keytab("amqp/localhost", found.keytab + ".amqp")
    known = {name: value for name, value in found.env.items() if name.startswith("KRB5")}
    before = {name: os.environ.get(name) for name in known}
    os.environ.update(known)
    yield found
    for name, value in before.items():
        if value is None:
            del os.environ[name]
        else:
            os.environ[name] = value
    found.stop()


def settings(realm: K5Realm, more: str = "") -> str:
    return (
        'protocols.amqp091.mechanisms = ["GSSAPI", "PLAIN"]\nprotocols.amqp10.mechanisms = ["GSSAPI"]\n'
        f'[kerberos]\nkeytab = "{realm.keytab}.amqp"\nprincipal = "amqp/localhost"\nrealm = "{realm.realm}"\n{more}\n'
        '[[users]]\nname = "ann"\npermissions = { "/" = { configure = ".*", write = ".*", read = ".*" } }\n'
    )


@pytest.fixture
def bench(realm: K5Realm) -> ClientBench:
    return ClientBench(settings(realm))


class Client:
    """The client's side of RFC 4752."""

    def __init__(self, realm: K5Realm, name: str = "ann", service: str = "amqp") -> None:
        realm.kinit(name, f"hush-{name}")
        host = gssapi.Name(f"{service}@localhost", gssapi.NameType.hostbased_service)
        self.context = gssapi.SecurityContext(name=host, usage="initiate", mech=gssapi.MechType.kerberos)

    def first(self) -> bytes:
        return bytes(self.context.step())

    def chosen(self, octets: bytes) -> bytes:
        return bytes(self.context.wrap(octets, False).message)

    def log_in(self, bench: ClientBench, choice: bytes = b"\1\0\0\0") -> Any:
        login = attempt(bench)
        answer = login.begin("GSSAPI", self.first())
        assert isinstance(answer, Challenge)
        self.context.step(answer.octets)
        assert self.context.complete
        offer = login.answer(b"")
        assert isinstance(offer, Challenge)
        assert self.context.unwrap(offer.octets).message == b"\1\0\0\0"
        return login.answer(self.chosen(choice))


def attempt(bench: ClientBench, peer: Peer = ELSEWHERE) -> Login:
    mechanisms = Mechanisms(bench.broker.access, ["GSSAPI", "PLAIN"], (), None, peer.host)
    return Login(bench.broker, mechanisms, peer, "AMQP", logging.getLogger("leveret.test"))


@pytest.mark.parametrize("acting_as", [b"", b"ann", b"ann@KRBTEST.COM"])
def test_a_ticket_logs_its_principal_in(realm: K5Realm, bench: ClientBench, acting_as: bytes):
    found = Client(realm).log_in(bench, b"\1\0\0\0" + acting_as)
    assert isinstance(found, Success)
    assert found.user.name == "ann"


@pytest.mark.parametrize(
    ("name", "choice", "why"),
    [
        ("bob", b"\1\0\0\0", "the ticket is of 'bob', which is no user here"),
        ("ann", b"\1\0\0\0guest", "user 'ann' may not act as another"),
    ],
)
def test_a_ticket_lets_nobody_else_in(realm: K5Realm, bench: ClientBench, name: str, choice: bytes, why: str):
    with pytest.raises(AuthenticationFailed) as refused:
        Client(realm, name).log_in(bench, choice)
    assert refused.value.reason == why


@pytest.mark.parametrize("choice", [b"\2\0\0\0", b"\1", b""])
def test_no_other_security_layer_is_taken(realm: K5Realm, bench: ClientBench, choice: bytes):
    with pytest.raises(MalformedResponse):
        Client(realm).log_in(bench, choice)


def test_principals_of_other_realms_are_refused(realm: K5Realm):
    bench = ClientBench(settings(realm).replace(realm.realm, "OTHER.COM"))
    with pytest.raises(AuthenticationFailed, match="refused"):
        Client(realm).log_in(bench)


def test_what_was_overheard_lets_nobody_in(realm: K5Realm, bench: ClientBench):
    login, client = attempt(bench), Client(realm)
    token = client.first()
    answer = login.begin("GSSAPI", token)
    assert isinstance(answer, Challenge)
    client.context.step(answer.octets)
    login.answer(b"")
    assert isinstance(login.answer(client.chosen(b"\1\0\0\0")), Success)
    again = attempt(bench)
    again.begin("GSSAPI", token)
    with pytest.raises(AuthenticationFailed) as refused:
        again.answer(b"")
    assert "Request is a replay" in refused.value.reason


@pytest.mark.parametrize("octets", [b"x", b"\x60\x03\x06\x01\x2a", b"\0" * 70_000, os.urandom(500)])
def test_what_is_no_ticket_is_refused(bench: ClientBench, octets: bytes):
    with pytest.raises((AuthenticationFailed, MalformedResponse)):
        attempt(bench).begin("GSSAPI", octets)


def test_a_message_of_another_context_is_refused(realm: K5Realm, bench: ClientBench):
    login, client = attempt(bench), Client(realm)
    login.begin("GSSAPI", client.first())
    login.answer(b"")
    with pytest.raises(AuthenticationFailed):
        login.answer(b"\1\0\0\0")


def test_the_initial_response_may_come_after_an_empty_challenge(realm: K5Realm, bench: ClientBench):
    login = attempt(bench)
    assert login.begin("GSSAPI", b"") == Challenge(b"")
    assert isinstance(login.answer(Client(realm).first()), Challenge)


def test_it_is_offered_where_there_is_a_keytab(realm: K5Realm, bench: ClientBench, tmp_path: Path):
    assert Mechanisms(bench.broker.access, ["GSSAPI", "PLAIN"]).offered == ("GSSAPI", "PLAIN")
    assert Mechanisms(ClientBench().broker.access, ["GSSAPI", "PLAIN"]).offered == ("PLAIN",)
    for wrong in (f'keytab = "{tmp_path}/none"', f'keytab = "{realm.keytab}.amqp"\nprincipal = "x/y"'):
        with pytest.raises(ConfigError, match=r"kerberos\.keytab"):
            ClientBench(f'[kerberos]\n{wrong}\nrealm = "{realm.realm}"\n')
    with pytest.raises(ConfigError, match=r"kerberos\.realm"):
        parse('[kerberos]\nkeytab = "x"\n')


def test_over_0_9_1_a_ticket_opens_a_connection(realm: K5Realm, bench: ClientBench):
    peer, client = Peer091(bench, ELSEWHERE), Client(realm)
    peer.start()
    peer.send(0, start_ok("GSSAPI", client.first()))
    told = peer.next(0)
    assert isinstance(told, m.ConnectionSecure)
    client.context.step(told.challenge)
    peer.send(0, m.ConnectionSecureOk(b""))
    assert isinstance(peer.next(0), m.ConnectionSecure)
    peer.send(0, m.ConnectionSecureOk(client.chosen(b"\1\0\0\0")))
    assert isinstance(peer.next(0), m.ConnectionTune)
    assert peer.front.client.user.name == "ann"


def test_over_1_0_a_ticket_opens_a_connection(realm: K5Realm, bench: ClientBench):
    peer, client = Peer10(bench, ELSEWHERE), Client(realm)
    peer.greet()
    told = peer.authenticate("GSSAPI", client.first())
    assert isinstance(told, p.SaslChallenge)
    client.context.step(told.challenge)
    assert isinstance(peer.respond(b""), p.SaslChallenge)
    assert peer.respond(client.chosen(b"\1\0\0\0")) == p.SaslOutcome(code=p.SASL_CODE_OK)
    assert peer.front.client.user.name == "ann"

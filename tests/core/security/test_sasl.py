"""SASL exchanges as scripts: responses in, a challenge, a user or a refusal out."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import AccessRefused
from leveret.security.access import Access
from leveret.security.sasl import (
    Answer,
    AuthenticationFailed,
    Challenge,
    MalformedResponse,
    Mechanism,
    Mechanisms,
    Success,
    UnknownMechanism,
)

ALL = ("RABBIT-CR-DEMO", "PLAIN", "ANONYMOUS")


def known() -> Access:
    access = Access()
    access.add_user("guest", "guest")
    access.add_user("u", "pässword")
    return access


def begun(name: str, access: Access | None = None, peer_is_loopback: bool = True) -> Mechanism:
    return Mechanisms(access or known(), ALL).begin(name, peer_is_loopback)


def user_in(answer: Answer) -> str:
    assert isinstance(answer, Success)
    return answer.user.name


@pytest.mark.parametrize("acting_as", ["", "u"])
def test_plain_logs_in(acting_as: str) -> None:
    assert user_in(begun("PLAIN").start(f"{acting_as}\0u\0pässword".encode())) == "u"


MALFORMED = [b"", b"u", b"u\0password", b"\0u\0pass\0word", b"\0\xff\0p", b"\xff\0u\0p"]


@pytest.mark.parametrize("response", MALFORMED)
def test_x003_a_malformed_plain_response_is_the_clients_mistake(response: bytes) -> None:
    with pytest.raises(MalformedResponse):
        begun("PLAIN").start(response)


@given(st.binary(max_size=11))  # every right one is longer
def test_x003_no_response_gets_in_by_chance_or_breaks_anything(response: bytes) -> None:
    with pytest.raises((MalformedResponse, AuthenticationFailed)):
        begun("PLAIN").start(response)


WRONG = [b"\0u\0wrong", b"\0nobody\0secret", b"\0u\0", b"\0\0", b"guest\0u\0p\xc3\xa4ssword"]


@pytest.mark.parametrize("response", WRONG)
def test_s007_a_failure_tells_the_peer_nothing_and_the_log_no_secret(response: bytes) -> None:
    with pytest.raises(AuthenticationFailed) as raised:
        begun("PLAIN").start(response)
    failure = raised.value
    assert isinstance(failure, AccessRefused)
    assert str(failure) == (
        "Login was refused using authentication mechanism PLAIN. For details see the broker logfile."
    )
    for secret in ("wrong", "secret", "pässword"):
        assert secret not in failure.reason + repr(failure)


def test_s008_a_loopback_user_from_elsewhere_is_refused_in_the_same_words() -> None:
    with pytest.raises(AuthenticationFailed, match="Login was refused") as raised:
        begun("PLAIN", peer_is_loopback=False).start(b"\0guest\0guest")
    assert raised.value.reason == "user 'guest' can only connect via localhost"
    assert user_in(begun("PLAIN").start(b"\0guest\0guest")) == "guest"


def test_anonymous_is_the_configured_user() -> None:
    access = known()
    assert user_in(begun("ANONYMOUS", access).start(b"trace@example.org")) == "guest"
    access.set_anonymous_user("u")
    assert user_in(begun("ANONYMOUS", access, peer_is_loopback=False).start(b"")) == "u"


def test_s008_anonymous_obeys_the_loopback_rule() -> None:
    with pytest.raises(AuthenticationFailed):
        begun("ANONYMOUS", peer_is_loopback=False).start(b"")


def test_anonymous_is_not_offered_when_nobody_stands_for_it() -> None:
    access = known()
    mechanisms = Mechanisms(access, ALL)
    started = mechanisms.begin("ANONYMOUS", peer_is_loopback=True)
    access.set_anonymous_user(None)
    assert mechanisms.offered == ("RABBIT-CR-DEMO", "PLAIN")
    with pytest.raises(AuthenticationFailed):
        started.start(b"")
    access.set_anonymous_user("deleted")
    assert mechanisms.offered == ("RABBIT-CR-DEMO", "PLAIN")


def test_x004_the_demonstration_takes_two_steps() -> None:
    mechanism = begun("RABBIT-CR-DEMO")
    assert mechanism.start(b"u") == Challenge(b"Please tell me your password")
    assert user_in(mechanism.step("My password is pässword".encode())) == "u"


def test_x004_the_demonstration_refuses_what_is_wrong() -> None:
    mechanism = begun("RABBIT-CR-DEMO")
    with pytest.raises(MalformedResponse):
        mechanism.step(b"My password is guest")
    mechanism.start(b"u")
    with pytest.raises(AuthenticationFailed):
        mechanism.step(b"My password is guest")
    with pytest.raises(MalformedResponse):
        mechanism.step("My password is pässword".encode())


def test_a_mechanism_of_one_response_has_no_further_step() -> None:
    mechanism = begun("PLAIN")
    mechanism.start(b"\0guest\0guest")
    with pytest.raises(MalformedResponse):
        mechanism.step(b"\0guest\0guest")


def test_mechanisms_are_offered_in_the_configured_order() -> None:
    assert Mechanisms(known(), ALL).offered == ALL
    assert Mechanisms(known()).offered == ("PLAIN", "ANONYMOUS")
    assert Mechanisms(known(), ["ANONYMOUS"]).offered == ("ANONYMOUS",)


@pytest.mark.parametrize("name", ["RABBIT-CR-DEMO", "GSSAPI", "plain", ""])
def test_s006_a_mechanism_that_is_not_offered_is_refused(name: str) -> None:
    with pytest.raises(UnknownMechanism) as raised:
        Mechanisms(known()).begin(name, peer_is_loopback=True)
    assert str(raised.value) == f"unknown authentication mechanism '{name}'"


class Swapped(Mechanism):
    """What a protocol adds: its own encoding of the same two strings."""

    name = "AMQPLAIN"

    def start(self, response: bytes) -> Answer:
        password, name = response.split(b",")
        return self.login(name.decode(), password)


def test_a_protocol_brings_a_mechanism_of_its_own() -> None:
    mechanisms = Mechanisms(known(), more=[Swapped])
    assert mechanisms.offered == ("PLAIN", "AMQPLAIN", "ANONYMOUS")
    assert user_in(mechanisms.begin("AMQPLAIN", peer_is_loopback=True).start(b"guest,guest")) == "guest"
    with pytest.raises(AuthenticationFailed, match="mechanism AMQPLAIN"):
        mechanisms.begin("AMQPLAIN", peer_is_loopback=True).start(b"guest,u")


# Certificates.


def external(certified: str | None, peer_is_loopback: bool = True) -> Mechanism:
    mechanisms = Mechanisms(known(), ("EXTERNAL", "PLAIN"), certified=certified)
    return mechanisms.begin("EXTERNAL", peer_is_loopback)


@pytest.mark.parametrize("acting_as", [b"", b"u"])
def test_external_logs_in_who_the_certificate_names(acting_as: bytes) -> None:
    assert user_in(external("u").start(acting_as)) == "u"


def test_external_is_offered_only_with_a_certificate_that_was_verified() -> None:
    assert Mechanisms(known(), ("EXTERNAL", "PLAIN"), certified="u").offered == ("EXTERNAL", "PLAIN")
    assert Mechanisms(known(), ("EXTERNAL", "PLAIN")).offered == ("PLAIN",)
    with pytest.raises(UnknownMechanism):
        external(None)


def test_a_mechanism_of_a_plug_in_may_need_a_certificate_too() -> None:
    class ByCertificate(Mechanism):
        name = "X-CERTIFICATE"
        needs_certificate = True

        def start(self, response: bytes) -> Answer:
            return Challenge((self.certified or "").encode())

    def offered(certified: str | None) -> Mechanisms:
        return Mechanisms(known(), ("X-CERTIFICATE",), [ByCertificate], certified)

    assert offered(None).offered == ()
    assert offered("u").begin("X-CERTIFICATE", peer_is_loopback=True).start(b"") == Challenge(b"u")


REFUSALS = [
    ("nobody", b"", "the certificate names 'nobody', which is not a user"),
    ("nobody", b"u", "the certificate names 'nobody', which is not a user"),
    ("u", b"guest", "user 'u' may not act as another"),
]


@pytest.mark.parametrize(("certified", "acting_as", "why"), REFUSALS)
def test_external_lets_in_nobody_else(certified: str, acting_as: bytes, why: str) -> None:
    with pytest.raises(AuthenticationFailed) as raised:
        external(certified).start(acting_as)
    assert raised.value.reason == why


def test_a_certificate_does_not_bring_a_loopback_user_in_from_elsewhere() -> None:
    with pytest.raises(AuthenticationFailed):
        external("guest", peer_is_loopback=False).start(b"")


def test_external_takes_one_response_that_is_text() -> None:
    with pytest.raises(MalformedResponse):
        external("u").start(b"\xff")
    with pytest.raises(MalformedResponse):
        external("u").step(b"")

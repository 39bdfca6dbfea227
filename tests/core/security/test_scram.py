"""SCRAM-SHA-256 as scripts: the exchange of RFC 7677, every malformed message, and what it tells of who is unknown."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.security.access import Access
from leveret.security.passwords import Hashing, PasswordHash
from leveret.security.sasl import (
    AuthenticationFailed,
    Challenge,
    MalformedResponse,
    Mechanism,
    Mechanisms,
    Success,
)
from leveret.security.scram import (
    ITERATIONS_MIN,
    ClientFirst,
    ScramExchange,
    Verifier,
    prepared,
    saslprep,
)

# The example of RFC 7677, section 3.
NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
CHALLENGE = f"r=rOprNGfwEbeRWgbNEkqO{NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()
WITHOUT_PROOF = f"c=biws,r=rOprNGfwEbeRWgbNEkqO{NONCE}"
FINAL = f"{WITHOUT_PROOF},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def verifier() -> Verifier:
    return Verifier.of(b"pencil", SALT, 4096)


def exchange() -> ScramExchange:
    begun = ScramExchange(ClientFirst.parse(FIRST), NONCE)
    assert begun.challenge(verifier()) == CHALLENGE
    return begun


def test_the_exchange_of_rfc_7677() -> None:
    assert exchange().answer(FINAL) == LAST


def test_another_password_is_no_proof() -> None:
    begun = ScramExchange(ClientFirst.parse(FIRST), NONCE)
    begun.challenge(Verifier.of(b"pencils", SALT, 4096))
    assert begun.answer(FINAL) is None


def test_a_verifier_survives_a_store_and_shows_no_key() -> None:
    kept = verifier()
    assert Verifier.parse(kept.text) == kept
    assert kept.text.startswith("SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$")
    for part in kept.text.split("$")[2].split(":"):
        assert part not in repr(kept)
    assert repr(kept.stored_key) not in repr(kept)


BAD_VERIFIERS = [
    "",
    "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==",
    verifier().text.replace("4096", "4095"),
    verifier().text.replace("4096", "1000001"),
    verifier().text.replace("SHA-256", "SHA-512"),
    verifier().text[:-4] + "====",
    verifier().text + "\n",
]


@pytest.mark.parametrize("text", BAD_VERIFIERS)
def test_a_verifier_that_cannot_be_used_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"SCRAM|base64"):
        Verifier.parse(text)


# The messages.


NAMES = [(b"n,,n=a=2Cb=3Dc,r=x", "a,b=c"), ("n,,n=Jörg,r=x".encode(), "Jörg"), (b"y,,n=a,r=x", "a")]


@pytest.mark.parametrize(("message", "name"), NAMES)
def test_names_have_their_commas_and_equals_signs_written_otherwise(message: bytes, name: str) -> None:
    assert ClientFirst.parse(message).user == name


def test_extensions_that_are_optional_are_passed_over() -> None:
    first = ClientFirst.parse(b"n,a=u,n=u,r=x,z=1")
    assert (first.acting_as, first.user, first.bare) == ("u", "u", b"n=u,r=x,z=1")


BAD_FIRSTS = {
    "nothing": b"",
    "no comma": b"n",
    "one comma": b"n,",
    "no name": b"n,,",
    "no nonce": b"n,,n=u",
    "another flag": b"x,,n=u,r=x",
    "a flag in capitals": b"N,,n=u,r=x",
    "channel binding": b"p=tls-unique,,n=u,r=x",
    "an extension that is mandatory": b"n,,m=1,n=u,r=x",
    "a name without its letter": b"n,,u,r=x",
    "another order": b"n,,r=x,n=u",
    "an empty name": b"n,,n=,r=x",
    "an equals sign in the name": b"n,,n=a=b,r=x",
    "small hexadecimal digits": b"n,,n=a=2c,r=x",
    "an identity without its letter": b"n,u,n=u,r=x",
    "an empty identity": b"n,a=,n=u,r=x",
    "an empty nonce": b"n,,n=u,r=",
    "a space in the nonce": b"n,,n=u,r=a b",
    "a nonce that is not ASCII": "n,,n=u,r=é".encode(),
    "a nonce that is too long": b"n,,n=u,r=" + b"x" * 513,
    "not UTF-8": b"n,,n=\xff,r=x",
    "a NUL": b"n,,n=u\0,r=x",
    "a name that is too long": b"n,,n=" + b"u" * 4096 + b",r=x",
}


@pytest.mark.parametrize("message", BAD_FIRSTS.values(), ids=BAD_FIRSTS)
def test_a_malformed_first_message_is_refused_and_not_repeated(message: bytes) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is looked at below
        ClientFirst.parse(message)
    said = message.decode(errors="replace")
    assert not said or len(said) < 3 or said not in str(raised.value)


PROOF = "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
WHOLE_NONCE = f"r=rOprNGfwEbeRWgbNEkqO{NONCE}"
BAD_FINALS = {
    "nothing": "",
    "no proof": WITHOUT_PROOF,
    "only a proof": PROOF,
    "no nonce": f"c=biws,{PROOF}",
    "no header": f"{WHOLE_NONCE},{PROOF}",
    "another order": f"{WHOLE_NONCE},c=biws,{PROOF}",
    "another header": f"c=eSws,{WHOLE_NONCE},{PROOF}",  # y,,
    "channel binding": f"c=biwsAAAA,{WHOLE_NONCE},{PROOF}",
    "a header that is no base64": f"c=b!ws,{WHOLE_NONCE},{PROOF}",
    "the client's nonce alone": f"c=biws,r=rOprNGfwEbeRWgbNEkqO,{PROOF}",
    "a longer nonce": f"c=biws,{WHOLE_NONCE}x,{PROOF}",
    "something behind the proof": f"{WITHOUT_PROOF},{PROOF},z=1",
    "a proof that is no base64": f"{WITHOUT_PROOF},p=!",
    "an empty proof": f"{WITHOUT_PROOF},p=",
    "a proof that is too short": f"{WITHOUT_PROOF},p=AAAA",
    "a proof that is too long": f"{WITHOUT_PROOF},p={base64.b64encode(bytes(33)).decode()}",
    "a NUL": f"{WITHOUT_PROOF}\0,{PROOF}",
    "too much": f"{WITHOUT_PROOF},z={'x' * 4096},{PROOF}",
}


@pytest.mark.parametrize("message", BAD_FINALS.values(), ids=BAD_FINALS)
def test_a_malformed_second_message_is_refused_and_not_repeated(message: str) -> None:
    with pytest.raises(ValueError) as raised:  # noqa: PT011 - the text is looked at below
        exchange().answer(message.encode())
    assert "dHzb" not in str(raised.value)


@given(st.binary(max_size=60))
def test_no_message_breaks_anything_or_is_a_proof(message: bytes) -> None:
    for step in (ClientFirst.parse, exchange().answer):
        with contextlib.suppress(ValueError):
            assert isinstance(step(message), ClientFirst | None)


@given(st.integers(0, 31), st.integers(1, 255))
def test_no_other_proof_fits(place: int, change: int) -> None:
    proof = bytearray(base64.b64decode(PROOF[2:]))
    proof[place] ^= change
    assert exchange().answer(f"{WITHOUT_PROOF},p={base64.b64encode(proof).decode()}".encode()) is None


# SASLprep (RFC 4013, section 3, and its tables).


PREPARED = [
    ("I\u00adX", "IX"),
    ("user", "user"),
    ("USER", "USER"),
    ("\u00aa", "a"),
    ("\u2168", "IX"),
    ("a\u00a0b\u3000c", "a b c"),
    ("\u0627\u0031\u0628", "\u0627\u0031\u0628"),
    ("", ""),
]
PROHIBITED = ["\u0007", "\u0627\u0031", "a\u0627", "\ue000", "\ufff9", "\u2ff0", "\U000e0001", "\u0221"]


@pytest.mark.parametrize(("given_text", "expected"), PREPARED)
def test_saslprep(given_text: str, expected: str) -> None:
    assert saslprep(given_text) == expected


@pytest.mark.parametrize("text", PROHIBITED)
def test_saslprep_prohibits(text: str) -> None:
    with pytest.raises(ValueError, match=r"character|directions"):
        saslprep(text)


@pytest.mark.parametrize("octets", [b"\xff\x00", "a\u0627".encode(), b"\x07"])
def test_a_password_that_cannot_be_prepared_is_taken_as_it_is(octets: bytes) -> None:
    assert prepared(octets) == octets
    assert prepared("\u2168".encode()) == b"IX"


# The mechanism.


ITERATED = Hashing(scram_iterations=ITERATIONS_MIN)


def known() -> Access:
    """`user`, who has a verifier, and `old`, who has none."""
    access = Access(random_octets=lambda size: bytes(size))
    access.hashing = Hashing()
    access.add_user("old", "pencil")
    access.hashing = ITERATED
    access.add_user("user", "pencil")
    return access


@pytest.fixture
def access() -> Access:
    return known()


def begun(access: Access, loopback: bool = True) -> Mechanism:
    return Mechanisms(access, ["SCRAM-SHA-256"]).begin("SCRAM-SHA-256", loopback)


def challenge(mechanism: Mechanism, name: str = "user", header: str = "n,,") -> bytes:
    answer = mechanism.start(f"{header}n={name},r=client".encode())
    assert isinstance(answer, Challenge)
    return answer.octets


def parts(octets: bytes) -> tuple[str, bytes, int]:
    """Nonce, salt and iterations."""
    nonce, salt, iterations = octets.decode().split(",")
    return nonce[2:], base64.b64decode(salt[2:]), int(iterations[2:])


def final(octets: bytes, password: bytes, name: str = "user", header: str = "n,,") -> bytes:
    """What a client answers that follows the RFC step by step, and shares no code with ours."""
    nonce, salt, iterations = parts(octets)
    without_proof = f"c={base64.b64encode(header.encode()).decode()},r={nonce}"
    salted = hashlib.pbkdf2_hmac("sha256", password, salt, iterations)
    client_key = hmac.new(salted, b"Client Key", "sha256").digest()
    stored_key = hashlib.sha256(client_key).digest()
    messages = f"n={name},r=client,{octets.decode()},{without_proof}".encode()
    signature = hmac.new(stored_key, messages, "sha256").digest()
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("header", ["n,,", "y,,", "n,a=user,"])
def test_the_right_password_logs_in_and_the_server_shows_that_it_knows_it(header: str) -> None:
    mechanism = begun(known())
    answer = mechanism.step(final(challenge(mechanism, header=header), b"pencil", header=header))
    assert isinstance(answer, Success)
    assert answer.user.name == "user"
    assert answer.octets.startswith(b"v=")


@pytest.mark.parametrize(("name", "password"), [("user", b"pen"), ("nobody", b"pencil"), ("old", b"pencil")])
def test_others_do_not(name: str, password: bytes) -> None:
    mechanism = begun(known())
    octets = challenge(mechanism, name)
    with pytest.raises(AuthenticationFailed) as raised:
        mechanism.step(final(octets, password, name))
    assert name not in str(raised.value)


def test_who_is_unknown_is_asked_like_everybody_and_always_in_the_same_way(access: Access) -> None:
    of_nobody = parts(challenge(begun(access), "nobody"))
    assert of_nobody == parts(challenge(begun(access), "nobody"))
    assert of_nobody[1] != parts(challenge(begun(access), "somebody"))[1]
    of_user = parts(challenge(begun(access)))
    assert [len(part) for part in of_nobody[:2]] == [len(part) for part in of_user[:2]]
    assert of_nobody[2] == of_user[2]


def test_the_unknown_are_asked_with_the_iterations_that_users_have_after_these_have_changed() -> None:
    access = known()
    access.add_user("another", "pencil")
    access.hashing = Hashing(scram_iterations=2 * ITERATIONS_MIN)
    access.add_user("new", "pencil")

    def asked(name: str) -> int:
        return parts(challenge(begun(access), name))[2]

    assert [asked(name) for name in ("user", "another", "new")] == [4096, 4096, 8192]
    unknown = [f"nobody {number}" for number in range(200)]
    first = list(map(asked, unknown))
    assert {4096, 8192} == set(first)
    assert 100 < first.count(4096) < 170, "two of three"
    assert first == list(map(asked, unknown)), "the same each time"
    access.delete_user("another")
    access.delete_user("user")
    assert set(map(asked, unknown)) == {8192}
    access.delete_user("new")
    assert set(map(asked, unknown)) == {8192}, "those of the setting"


def test_a_verifier_that_is_made_at_a_login_counts_among_those_of_users() -> None:
    access = known()
    access.hashing = Hashing(scram_iterations=2 * ITERATIONS_MIN)
    access.delete_user("user")
    access.authenticate("old", "pencil")
    access.hashing = ITERATED
    assert parts(challenge(begun(access), "old"))[2] == 8192
    assert parts(challenge(begun(access), "nobody"))[2] == 8192


def test_salts_of_the_unknown_differ_from_node_to_node() -> None:
    one, other = Access(), Access()
    one.hashing = other.hashing = ITERATED
    assert len({parts(challenge(begun(access), "nobody"))[1] for access in (one, other)}) == 2


def test_the_server_has_a_nonce_of_its_own_in_each_exchange() -> None:
    access = Access()
    access.hashing = ITERATED
    nonces = {parts(challenge(begun(access)))[0] for _ in range(3)}
    assert len(nonces) == 3
    assert all(nonce.startswith("client") and len(nonce) == len("client") + 24 for nonce in nonces)


def test_nobody_acts_as_another() -> None:
    with pytest.raises(AuthenticationFailed):
        begun(known()).start(b"n,a=old,n=user,r=x")


def test_who_could_have_begun_and_has_not_is_asked_to_once() -> None:
    mechanism = begun(known())
    assert mechanism.start(b"") == Challenge(b"")
    assert isinstance(mechanism.step(b"n,,n=user,r=x"), Challenge)
    mechanism = begun(known())
    mechanism.start(b"")
    with pytest.raises(MalformedResponse):
        mechanism.step(b"")


@pytest.mark.parametrize("message", BAD_FIRSTS.values(), ids=BAD_FIRSTS)
def test_a_malformed_message_is_the_clients_mistake(message: bytes) -> None:
    mechanism = begun(known())
    mechanism.start(b"")
    with pytest.raises(MalformedResponse):
        mechanism.step(message)


def test_a_proof_cannot_be_used_again(access: Access) -> None:
    nonces = iter([b"a" * 18, b"b" * 18])
    access.random_octets = lambda size: next(nonces)
    mechanism = begun(access)
    proof = final(challenge(mechanism), b"pencil")
    assert isinstance(mechanism.step(proof), Success)
    again = begun(access)
    challenge(again)
    with pytest.raises(MalformedResponse):
        again.step(proof)


def test_who_changes_his_password_meanwhile_is_not_let_in_by_the_old_one(access: Access) -> None:
    mechanism = begun(access)
    octets = challenge(mechanism)
    access.add_user("user", "pencils")
    with pytest.raises(AuthenticationFailed):
        mechanism.step(final(octets, b"pencil"))


def test_guests_of_this_machine_only_do_not_come_from_elsewhere(access: Access) -> None:
    access.set_loopback_users(["user"])
    mechanism = begun(access, loopback=False)
    octets = challenge(mechanism)
    with pytest.raises(AuthenticationFailed) as raised:
        mechanism.step(final(octets, b"pencil"))
    assert raised.value.word == "not_loopback"


def test_it_is_not_offered_unless_something_is_kept_for_it(access: Access) -> None:
    assert Mechanisms(access, ["SCRAM-SHA-256", "PLAIN"]).offered == ("SCRAM-SHA-256", "PLAIN")
    access.hashing = Hashing()
    assert Mechanisms(access, ["SCRAM-SHA-256", "PLAIN"]).offered == ("PLAIN",)


# Where verifiers come from.


def scram_of(access: Access, name: str) -> Verifier | None:
    user = access.user(name)
    assert user is not None
    assert user.password is not None
    return user.password.scram


def test_a_verifier_is_made_at_the_next_login_with_the_password(access: Access) -> None:
    assert scram_of(access, "old") is None
    revision = access.revision
    access.authenticate("old", "pen")
    assert scram_of(access, "old") is None
    access.authenticate("old", "pencil")
    made = scram_of(access, "old")
    assert made is not None
    assert access.revision == revision  # nobody's permissions have changed
    mechanism = begun(access)
    assert isinstance(mechanism.step(final(challenge(mechanism, "old"), b"pencil", "old")), Success)
    access.authenticate("old", "pencil")
    assert scram_of(access, "old") is made


def test_a_verifier_of_a_password_that_has_changed_since_is_not_taken(access: Access) -> None:
    completed = ITERATED.with_scram(PasswordHash.of("other", b"salt"), "other")
    access.note_verifier("old", completed)
    access.note_verifier("nobody", completed)
    assert scram_of(access, "old") is None


def test_a_user_with_a_verifier_is_the_same_user_with_the_same_password() -> None:
    user = known().user("old")
    assert user is not None
    assert user.password is not None
    completed = ITERATED.with_scram(user.password, "pencil")
    assert completed.scram is not None
    assert (completed, attrs.evolve(user, password=completed)) == (user.password, user)


def test_without_scram_no_verifier_is_made() -> None:
    access = Access()
    access.add_user("u", "p")
    access.authenticate("u", "p")
    assert scram_of(access, "u") is None

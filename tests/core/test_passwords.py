"""Passwords to what is kept of them, and back to yes or no: which hashes, at what cost, and who waits for them."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_core.access import Access, User
from broker_core.passwords import DIGESTS, PasswordHash

SALT = b"salt"


def open_access() -> Access:
    access = Access(random_octets=lambda size: (SALT * size)[:size])
    access.add_user("u", "secret")
    return access


def user_of(access: Access, name: str = "u") -> User:
    user = access.user(name)
    assert user is not None
    return user


def test_a_password_is_kept_as_rabbitmq_keeps_it() -> None:
    kept = user_of(open_access()).password
    assert kept is not None
    assert kept.text == base64.b64encode(SALT + hashlib.sha256(SALT + b"secret").digest()).decode()


# A password and its hash from RabbitMQ's guide on passwords.
GUIDE = ("test12", "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR")


def test_a_hash_from_a_definition_file_is_accepted() -> None:
    password, text = GUIDE
    kept = PasswordHash.parse(text)
    assert kept.matches(password)
    assert not kept.matches("test13")
    assert kept.text == text


@given(st.text(), st.text(), st.binary(min_size=4, max_size=4), st.sampled_from(["256", "512"]))
def test_a_hash_matches_its_password_only_and_survives_a_definition_file(
    password: str, other: str, salt: bytes, size: str
) -> None:
    algorithm = f"rabbit_password_hashing_sha{size}"
    kept = PasswordHash.parse(PasswordHash.of(password, salt, algorithm).text, algorithm)
    assert kept.matches(password)
    assert kept.matches(other) == (other == password)


BAD_HASHES = [
    ("no base64!", "rabbit_password_hashing_sha256", "is not base64"),
    (base64.b64encode(bytes(20)).decode(), "rabbit_password_hashing_sha256", "has 20 octets"),
    (GUIDE[1], "rabbit_password_hashing_sha512", "has 36 octets, rabbit_password_hashing_sha512 needs 68"),
    (
        GUIDE[1],
        "rabbit_password_hashing_md5",
        "hashing algorithm 'rabbit_password_hashing_md5' is not one of",
    ),
]


@pytest.mark.parametrize(("text", "algorithm", "reason"), BAD_HASHES)
def test_a_hash_that_cannot_be_used_is_refused(text: str, algorithm: str, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)) as raised:
        PasswordHash.parse(text, algorithm)
    assert text not in str(raised.value)


def test_only_the_right_password_logs_in() -> None:
    access = open_access()
    assert access.authenticate_password("u", "secret") is access.user("u")
    assert access.authenticate_password("u", b"secret") is access.user("u")
    for name, password in (("u", "Secret"), ("u", ""), ("v", "secret"), ("", "")):
        assert access.authenticate_password(name, password) is None


@pytest.mark.parametrize("password", [None, "", b""])
def test_a_user_without_a_password_cannot_log_in_by_password(password: str | bytes | None) -> None:
    access = Access()
    access.add_user("u", password)
    for guess in ("", "None", b"\0"):
        assert access.authenticate_password("u", guess) is None


def test_nothing_shows_a_secret() -> None:
    user = user_of(open_access())
    assert user.password is not None
    shown = repr(user) + str(user) + repr(user.password) + str(user.password) + repr(open_access())
    assert "secret" not in shown
    assert user.password.text not in shown
    assert repr(user.password.kept) not in shown


def test_salts_come_from_the_outside_and_differ() -> None:
    salts = iter([b"for the cache", b"for nobody", b"aaaa", b"bbbb"])
    access = Access(random_octets=lambda size: next(salts))
    one, other = access.add_user("a", "same").password, access.add_user("b", "same").password
    assert one is not None
    assert other is not None
    assert one.kept != other.kept


def test_a_hash_without_a_named_algorithm_is_taken_for_the_one_it_fits() -> None:
    for algorithm in DIGESTS:
        text = PasswordHash.of("secret", b"salt", algorithm).text
        assert PasswordHash.parse(text, None).algorithm == algorithm

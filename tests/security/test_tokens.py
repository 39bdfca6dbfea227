"""Tokens to users: what a good one says, and why each bad one is not believed. No protocol."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path

import pytest

from leveret.clock import ManualClock
from leveret.config.config import Config, ConfigError, parse
from leveret.config.oauth import OAuthSettings
from leveret.security import signing_keys
from leveret.security.key_sources import LOOK_INTERVAL_S
from leveret.security.tokens import Tokens
from leveret.security.trusted_issuer import TOKEN_SIZE_MAX, TokenRefused
from tests.harness.bench import ClientBench

from .issuer import ALL, LASTS_S, WALL, pasted, private, public_jwk, settings, signed, token, write_keys

SECRET = {"kty": "oct", "kid": "HS256", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldC0xMjM"}


def made(tmp_path: Path, more: str = "", keys: list[dict[str, object]] | None = None) -> Tokens:
    file = write_keys(tmp_path, keys)
    return Tokens(parse(settings(file, more)).oauth, ManualClock(wall=WALL))


def refusal(known: Tokens, given: str | bytes) -> str:
    with pytest.raises(TokenRefused) as refused:
        known.user(given)
    return str(refused.value)


# Good ones.


@pytest.mark.parametrize("name", [None, "x" * 256, ""])
def test_a_token_without_a_name_is_that_of_unknown_or_refused(tmp_path: Path, name: str | None):
    """RabbitMQ's OAuth 2 plug-in calls such a user `unknown`."""
    assert made(tmp_path).user(token(sub=name)).name == "unknown"
    strict = Tokens(parse(settings(write_keys(tmp_path))).oauth, ManualClock(wall=WALL), nameless=None)
    assert refusal(strict, token(sub=name)) == "it has no name in preferred_username, sub, client_id"


def test_the_row_of_compat_decides_about_tokens_without_a_name(tmp_path: Path):
    for row, name in (("unknown", "unknown"), ("refuse", None)):
        bench = ClientBench(f'compat.nameless_token = "{row}"\n' + settings(write_keys(tmp_path)))
        user = bench.broker.access.authenticate("", token(sub=None))
        assert (None if user is None else user.name) == name


@pytest.mark.parametrize("algorithm", [*ALL, "PS256", "RS512"])
def test_a_token_signed_with_a_key_of_the_file_says_who_its_bearer_is(tmp_path: Path, algorithm: str):
    known = made(tmp_path, keys=[public_jwk(algorithm)])
    user = known.user(token(algorithm, scope="leveret.read:%2F/q leveret.tag:management"))
    assert (user.name, user.tags) == ("shop", ("management",))
    assert user.expires_at == WALL + LASTS_S + 5
    assert user.scopes is not None
    assert user.scopes.allow("read", "/", "q")
    assert not user.scopes.allow("write", "/", "q")


@pytest.mark.parametrize(
    ("claims", "name"),
    [
        ({"preferred_username": "ann"}, "ann"),
        ({"preferred_username": 7}, "shop"),
        ({"sub": None, "client_id": "app"}, "app"),
        ({"sub": "", "client_id": "app"}, "app"),
    ],
)
def test_the_first_claim_with_a_name_holds(tmp_path: Path, claims: dict[str, object], name: str):
    assert made(tmp_path).user(token(**claims)).name == name


@pytest.mark.parametrize(
    ("more", "claims"),
    [
        ("", {"scope": ["leveret.read:*/*"]}),
        ('scope_prefix = ""', {"scope": "read:*/*"}),
        ('additional_scopes_claim = "roles"', {"scope": None, "roles": "leveret.read:*/*"}),
        ('additional_scopes_claim = "roles"', {"scope": "", "roles": {"leveret": ["leveret.read:*/*"]}}),
        ('scope_aliases = { reader = ["leveret.read:*/*"] }', {"scope": "reader"}),
    ],
)
def test_scopes_stand_in_several_places(tmp_path: Path, more: str, claims: dict[str, object]):
    user = made(tmp_path, more).user(token(**claims))
    assert user.scopes is not None
    assert user.scopes.allow("read", "/", "q")


def test_an_audience_may_be_one_word(tmp_path: Path):
    assert made(tmp_path).user(token(aud="leveret")).name == "shop"


def test_without_a_name_of_the_key_the_only_one_that_fits_is_taken(tmp_path: Path):
    given = token("ES256", {"kid": None})
    assert made(tmp_path).user(given).name == "shop"
    twice = made(tmp_path, keys=[public_jwk("ES256"), public_jwk("ES256", kid="other")])
    assert refusal(twice, given).startswith("2 keys fit")


def test_the_clocks_may_differ_a_little(tmp_path: Path):
    known = made(tmp_path, "leeway_s = 10")
    assert known.user(token(exp=WALL - 9, nbf=WALL + 10, iat=WALL + 10)).name == "shop"
    assert "expired" in refusal(known, token(exp=WALL - 10))
    assert "(nbf)" in refusal(known, token(nbf=WALL + 11))


# Bad ones. Each is refused for a reason of its own, so that none is refused by chance.

CLAIMS = [
    ({"exp": WALL - 60}, "it has expired, 60 s ago"),
    ({"exp": None}, "it does not say when it expires (exp)"),
    ({"exp": "tomorrow"}, 'its exp is "tomorrow", not a time'),
    ({"exp": True}, "its exp is true, not a time"),
    ({"exp": 10**400}, "its exp is not a time"),
    ({"nbf": WALL + 60}, "it is not valid for another 60 s (nbf)"),
    ({"iat": WALL + 60}, "it is not valid for another 60 s (iat)"),
    ({"aud": "other"}, 'its audience is "other"'),
    ({"aud": ["leveret2"]}, "its audience is a list or an object"),
    ({"aud": None}, "its audience is not said"),
    ({"aud": {"leveret": 1}}, "its aud is neither a text nor a list of texts"),
    ({"aud": ["leveret", 1]}, "its aud is neither a text nor a list of texts"),
    ({"iss": "https://elsewhere.example"}, 'its issuer is "https://elsewhere.example"'),
    ({"iss": None}, "its issuer is not said"),
    ({"iss": ["https://issuer.example"]}, "its issuer is a list or an object"),
    ({"scope": 1}, "its scope is neither a text nor a list of texts"),
    ({"scope": [["leveret.read:*/*"]]}, "its scope is neither a text nor a list of texts"),
]


@pytest.mark.parametrize(("claims", "why"), CLAIMS)
def test_a_token_for_others_or_another_time_is_refused(tmp_path: Path, claims: dict[str, object], why: str):
    assert refusal(made(tmp_path, 'issuer = "https://issuer.example"'), token(**claims)) == why


PAYLOAD = json.dumps({"sub": "shop"}).encode()


FORGED = [
    (lambda: pasted(b'{"alg":"none"}', PAYLOAD), 'its algorithm is "none"'),
    (lambda: pasted(b'{"alg":"None"}', PAYLOAD, b"x"), 'its algorithm is "None"'),
    (lambda: pasted(b'{"typ":"JWT"}', PAYLOAD, b"x"), "its algorithm is not said"),
    (lambda: pasted(b'{"alg":["RS256"]}', PAYLOAD, b"x"), "its algorithm is a list or an object"),
    (lambda: pasted(b'{"alg":"RS256","kid":"RS256"}', PAYLOAD), "its signature is wrong"),
    (lambda: pasted(b'{"alg":"RS256","kid":"nobody"}', PAYLOAD, b"x"), 'there is no key "nobody"'),
    (lambda: pasted(b'{"alg":"RS256","kid":1}', PAYLOAD, b"x"), "there is no key 1"),
    (
        lambda: pasted(b'{"alg":"ES256","kid":"RS256"}', PAYLOAD, b"x"),
        '0 keys fit: its algorithm is ES256, its key "RS256"',
    ),
    (lambda: token() + "AA", "its signature is wrong"),
    (lambda: token("RS256", {"crit": ["exp"], "exp": 1}), "its signature is wrong"),
    (lambda: token("RS256", {"b64": False}), "it does not have three parts in base64"),
    (lambda: swapped(token(), token(sub="admin")), "its signature is wrong"),
    (lambda: pasted(b'{"alg":"RS256","alg":"none"}', PAYLOAD), "its header is not JSON, or not plain JSON"),
    (lambda: pasted(b'{"a":' * 1200, PAYLOAD), "its header is not JSON, or not plain JSON"),
    (lambda: pasted(b'{"alg":NaN}', PAYLOAD), "its header is not JSON, or not plain JSON"),
    (lambda: pasted(b'{"alg":' + b"9" * 5000 + b"}", PAYLOAD), "its header is not JSON, or not plain JSON"),
    (lambda: pasted(b'{"\xff":1}', PAYLOAD), "its header is not JSON, or not plain JSON"),
    (lambda: pasted(b"[1]", PAYLOAD), "its header is not JSON, or not plain JSON"),
    (lambda: signed(b'{"sub":"a","sub":"b"}'), "its payload is not JSON, or not plain JSON"),
    (lambda: signed(b"[" * 5000), "its payload is not JSON, or not plain JSON"),
    (lambda: signed(b'{"exp":Infinity}'), "its payload is not JSON, or not plain JSON"),
    (lambda: signed(b'"shop"'), "its payload is not JSON, or not plain JSON"),
    (lambda: token(more="x" * TOKEN_SIZE_MAX), f"it has more than {TOKEN_SIZE_MAX} octets"),
    (lambda: "eyJ.a", "it does not have three parts in base64"),
    (lambda: "eyJ.a.b.c", "it does not have three parts in base64"),
    (lambda: "eyJ .a.b", "it does not have three parts in base64"),
    (lambda: "eyJ\u00e9.a.b", "it does not have three parts in base64"),
    (lambda: "..", "it does not have three parts in base64"),
]


def swapped(one: str, other: str) -> str:
    """The claims of one token with the signature of another."""
    return one.rpartition(".")[0] + "." + other.rpartition(".")[2]


@pytest.mark.parametrize(
    ("forge", "why"), FORGED, ids=[why[:30] + str(n) for n, (_, why) in enumerate(FORGED)]
)
def test_what_is_forged_is_refused(tmp_path: Path, forge, why: str):
    assert refusal(made(tmp_path), forge()) == why


def test_a_public_key_is_no_secret_to_sign_with(tmp_path: Path):
    import hashlib
    import hmac

    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = private("RS256").public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head, payload, _ = pasted(b'{"alg":"HS256","kid":"RS256"}', PAYLOAD).split(".")
    tag = hmac.digest(public, f"{head}.{payload}".encode(), hashlib.sha256)
    forged = f"{head}.{payload}." + pasted(tag, b"").split(".")[0]
    assert refusal(made(tmp_path), forged) == 'its algorithm is "HS256"'
    allowed = made(tmp_path, 'algorithms = ["RS256", "HS256"]')
    assert refusal(allowed, forged).startswith("0 keys fit")


def test_secrets_are_believed_only_where_they_are_listed_and_in_the_file(tmp_path: Path):
    key = b"secret-secret-secret-secret-secret-123"
    given = signed(json.dumps({"sub": "a", "exp": WALL + 9, "aud": "leveret"}).encode(), "HS256", key=key)
    assert made(tmp_path, 'algorithms = ["HS256"]', keys=[SECRET]).user(given).name == "a"
    assert refusal(made(tmp_path, keys=[SECRET, public_jwk("RS256")]), given) == 'its algorithm is "HS256"'


def test_a_key_with_an_algorithm_of_its_own_is_good_for_no_other(tmp_path: Path):
    known = made(tmp_path, keys=[public_jwk("RS256", alg="RS512")])
    assert refusal(known, token("RS256")).startswith("0 keys fit")


# What is a token, and what a password.


def test_only_what_looks_like_a_token_is_taken_for_one(tmp_path: Path):
    known = made(tmp_path)
    assert known.recognises(token())
    assert known.recognises(token().encode())
    assert not known.recognises("guest")
    assert not known.recognises("a.b.c")
    assert not known.recognises("eyJ.b")


def test_neither_the_log_nor_the_refusal_has_the_token(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    known, given = made(tmp_path), token(sub="somebody", exp=WALL - 1000)
    with caplog.at_level(logging.DEBUG):
        assert known.authenticate("ann", given) is None
    assert "the token of user 'ann' is refused: it has expired, 1000 s ago" in caplog.text
    assert not any(part in caplog.text for part in given.split("."))


# The file of the keys.

BROKEN = [
    ("", "a JWK Set"),
    ("[]", "a JWK Set"),
    ('{"keys": {}}', "a JWK Set"),
    ("[" * 100_000, "a JWK Set"),
    ('{"keys": []}', "a file with a key"),
    ('{"keys": [1, {"kty": "oct", "k": "c2hvcnQ"}, {"kty": ["RSA"]}]}', "a file with a key"),
    ('{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}]}', "a key"),
    ('{"keys": [{"kty": "RSA"}]}', "a key"),
    ('{"keys": [{"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}]}', "a key"),
    ("x" * (1 << 20) + "x", "a JWK Set"),
]


@pytest.mark.parametrize(("text", "accepted"), BROKEN, ids=range(len(BROKEN)))
def test_a_file_without_keys_is_a_problem_of_the_configuration(tmp_path: Path, text: str, accepted: str):
    file = tmp_path / "keys.json"
    file.write_text(text)
    with pytest.raises(ConfigError) as refused:
        signing_keys.read_keys(file, ALL)
    assert refused.value.problems[0].where.startswith("oauth.jwks_file")
    assert accepted in refused.value.problems[0].accepted


def test_a_file_that_is_not_there_is_one_too(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"No such file"):
        signing_keys.read_keys(tmp_path / "none.json", ALL)


def test_keys_of_the_same_name_and_kind_are_a_problem(tmp_path: Path):
    file = write_keys(tmp_path, [public_jwk("RS256"), public_jwk("RS256")])
    with pytest.raises(ConfigError, match=r"several keys"):
        signing_keys.read_keys(file, ALL)


def test_of_a_private_key_the_public_part_is_enough(tmp_path: Path):
    import jwt

    whole = jwt.PyJWS().get_algorithm_by_name("RS256").to_jwk(private("RS256"), as_dict=True)
    known = made(tmp_path, keys=[{**whole, "kid": "RS256"}])
    assert known.user(token()).name == "shop"


def test_a_key_to_encrypt_with_is_none_to_sign_with(tmp_path: Path):
    file = write_keys(tmp_path, [public_jwk("RS256", use="enc"), public_jwk("ES256")])
    assert [key.name for key in signing_keys.read_keys(file, ALL)] == ["ES256"]


def test_a_changed_file_is_read_again_within_a_minute(tmp_path: Path):
    file = write_keys(tmp_path, [public_jwk("RS256")])
    clock = ManualClock(wall=WALL)
    known = Tokens(parse(settings(file)).oauth, clock)
    write_keys(tmp_path, [public_jwk("ES256")])
    os.utime(file, ns=(1, 1))
    clock.advance(LOOK_INTERVAL_S - 1)
    assert known.user(token("RS256")).name == "shop", "it has not been looked at yet"
    clock.advance(1)
    assert refusal(known, token("RS256")) == 'there is no key "RS256"'
    assert known.user(token("ES256")).name == "shop"


def test_a_file_that_cannot_be_read_any_more_leaves_the_keys(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    file = write_keys(tmp_path)
    clock = ManualClock(wall=WALL)
    known = Tokens(parse(settings(file)).oauth, clock)
    file.write_text("broken")
    clock.advance(LOOK_INTERVAL_S)
    assert known.user(token()).name == "shop"
    assert "keys of tokens not reloaded" in caplog.text
    file.unlink()
    clock.advance(LOOK_INTERVAL_S)
    assert known.user(token()).name == "shop"


def test_without_the_extra_the_problem_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = write_keys(tmp_path)
    monkeypatch.setattr(signing_keys, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install .*leveret\[oauth\]"):
        signing_keys.read_keys(file, ALL)


def test_the_audience_needs_a_name(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"oauth\.resource_server_id"):
        parse(f'[oauth]\njwks_file = "{write_keys(tmp_path)}"')
    assert Config().oauth == OAuthSettings()

"""Keys that the issuer is asked for: when it is asked, and what holds meanwhile. No network, and time by hand."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.clock import ManualClock
from leveret.config.config import ConfigError, parse
from leveret.errors import LimitReached
from leveret.security import tokens
from leveret.security.http_requests import HttpRequest, HttpResponse, NoResponse, Outcome
from leveret.security.password_checks import Waiting
from leveret.security.tokens import Tokens
from leveret.security.users import User

from .issuer import WALL, public_jwk, token

ISSUER = "https://issuer.example"
AT_URL = f'jwks_url = "{ISSUER}/keys"'
DISCOVERED = f'discovery = true\nissuer = "{ISSUER}"'
DOCUMENT = {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
FOREVER = WALL * 3


def jwks(*algorithms: str) -> Outcome:
    return HttpResponse(200, json.dumps({"keys": [public_jwk(each) for each in algorithms]}).encode())


def fitting(algorithm: str = "RS256") -> str:
    return token(algorithm, exp=FOREVER)


class Issuer:
    """Tokens of an issuer, whose answers the test gives when it wants to."""

    def __init__(self, more: str = AT_URL) -> None:
        self.clock = ManualClock(wall=WALL)
        self.asked: list[tuple[HttpRequest, Callable[[Outcome], None]]] = []
        self.urls: list[str] = []
        settings = parse(f'[oauth]\nresource_server_id = "leveret"\n{more}\n').oauth
        self.tokens = Tokens(settings, self.clock, fetch=self._fetch)

    def _fetch(self, request: HttpRequest, then: Callable[[Outcome], None]) -> None:
        self.asked.append((request, then))
        self.urls.append(request.url)

    def answers(self, *outcomes: Outcome) -> None:
        for outcome in outcomes:
            _, then = self.asked.pop(0)
            then(outcome)

    def shown(self, algorithm: str = "RS256") -> User | Waiting | None:
        return self.tokens.authenticate("shop", fitting(algorithm))

    def believes(self, algorithm: str = "RS256") -> bool:
        return isinstance(self.shown(algorithm), User)


def test_a_token_waits_for_the_keys_and_is_checked_by_them():
    issuer = Issuer()
    told: list[str] = []
    first, second, forged = issuer.shown(), issuer.shown(), issuer.shown("ES256")
    for each in (first, second, forged):
        assert isinstance(each, Waiting)
        each.tell(lambda: told.append("told"))
    assert issuer.urls == [f"{ISSUER}/keys"], "they share one request"
    issuer.answers(jwks("RS256"))
    assert told == ["told"] * 3
    assert isinstance(first, Waiting)
    assert first.user is not None
    assert first.user.name == "shop"
    assert isinstance(forged, Waiting)
    assert forged.user is None
    assert issuer.believes(), "the keys are there now"


def test_the_discovery_document_says_where_the_keys_are():
    issuer = Issuer(DISCOVERED)
    waiting = issuer.shown()
    issuer.answers(HttpResponse(200, json.dumps(DOCUMENT).encode()), jwks("RS256"))
    assert issuer.urls == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"]
    assert isinstance(waiting, Waiting)
    assert waiting.user is not None


@pytest.mark.parametrize(
    "document",
    [
        {**DOCUMENT, "issuer": "https://other.example"},
        {"issuer": ISSUER},
        {**DOCUMENT, "jwks_uri": "http://issuer.example/keys"},
        {**DOCUMENT, "jwks_uri": "http://127.0.0.1:8500/keys"},
        {**DOCUMENT, "jwks_uri": "http://localhost/keys"},
        {**DOCUMENT, "jwks_uri": "http://[::1]/keys"},
        {**DOCUMENT, "jwks_uri": "gopher://issuer.example/keys"},
        {**DOCUMENT, "jwks_uri": "file:///etc/passwd"},
        {**DOCUMENT, "jwks_uri": 5},
        [DOCUMENT],
    ],
)
def test_a_discovery_document_that_is_wrong_is_not_followed(document: object):
    issuer = Issuer(DISCOVERED)
    waiting = issuer.shown()
    issuer.answers(HttpResponse(200, json.dumps(document).encode()))
    assert issuer.asked == []
    assert isinstance(waiting, Waiting)
    assert waiting.is_there
    assert waiting.user is None


def test_strangers_with_unknown_keys_cannot_make_the_node_ask_for_each_login():
    issuer = Issuer()
    issuer.tokens.prepare()
    issuer.answers(jwks("RS256"))
    for _ in range(100):
        assert issuer.shown("ES256") is None, "the issuer has just been asked"
    assert issuer.asked == []
    issuer.clock.advance(10)
    waiting = [issuer.shown("ES256") for _ in range(100)]
    assert len(issuer.asked) == 1
    issuer.answers(jwks("RS256"))
    assert all(isinstance(each, Waiting) and each.user is None for each in waiting)
    assert issuer.shown("ES256") is None
    assert issuer.asked == []


def test_a_rotation_takes_the_new_key_and_drops_the_old_one():
    issuer = Issuer()
    issuer.tokens.prepare()
    issuer.answers(jwks("RS256"))
    issuer.clock.advance(10)
    waiting = issuer.shown("ES256")
    issuer.answers(jwks("ES256"))
    assert isinstance(waiting, Waiting)
    assert waiting.user is not None
    assert issuer.believes("ES256")
    assert not issuer.believes("RS256")


def test_old_keys_are_fetched_again_while_they_go_on():
    issuer = Issuer(AT_URL + "\nrefresh_s = 100")
    issuer.tokens.prepare()
    issuer.answers(jwks("RS256"))
    issuer.clock.advance(99)
    assert issuer.believes()
    assert not issuer.asked
    issuer.clock.advance(1)
    assert issuer.believes()
    assert len(issuer.asked) == 1
    assert issuer.believes()
    assert len(issuer.asked) == 1


def test_while_the_issuer_is_away_the_keys_go_on_for_the_stated_time(caplog: pytest.LogCaptureFixture):
    issuer = Issuer(AT_URL + "\nrefresh_s = 100\nkeys_kept_s = 1000")
    issuer.tokens.prepare()
    issuer.answers(jwks("RS256"))
    asked = 0
    for _ in range(99):
        issuer.clock.advance(10)
        assert issuer.believes()
        if issuer.asked:
            asked += 1
            issuer.answers(NoResponse("Connection refused"))
    assert 10 < asked < 40, "less and less often"
    assert "does not give its keys: no keys: Connection refused; those from before go on for" in caplog.text
    issuer.clock.advance(60)
    assert isinstance(issuer.shown(), Waiting), "now the keys are too old"
    issuer.answers(NoResponse("Connection refused"))
    assert issuer.shown() is None
    assert "there are no keys of the issuer" in caplog.text
    issuer.clock.advance(60)
    back = issuer.shown()
    issuer.answers(jwks("RS256"))
    assert isinstance(back, Waiting)
    assert back.user is not None


@pytest.mark.parametrize(
    "outcome",
    [
        NoResponse("no response in 5 s"),
        HttpResponse(500, b""),
        HttpResponse(302, b""),
        HttpResponse(200, b"<html>"),
        HttpResponse(200, b"[]"),
        HttpResponse(200, b'{"keys": 5}'),
        HttpResponse(200, b'{"keys": [{"kty": "RSA", "kid": "RS256", "n": "!", "e": "!"}]}'),
        HttpResponse(200, b"[" * 100_000),
    ],
)
def test_an_answer_without_keys_leaves_those_from_before(outcome: Outcome):
    issuer = Issuer(AT_URL + "\nrefresh_s = 100")
    issuer.tokens.prepare()
    issuer.answers(jwks("RS256"))
    issuer.clock.advance(100)
    assert issuer.believes()
    issuer.answers(outcome)
    assert issuer.believes()
    assert (issuer.tokens.asked_sources()[0].fetched, issuer.tokens.asked_sources()[0].failed) == (1, 1)


def test_one_malformed_key_does_not_cost_the_others():
    keys = [{"kty": "RSA", "kid": "x", "n": "!", "e": "!"}, public_jwk("RS256")]
    issuer = Issuer()
    issuer.tokens.prepare()
    issuer.answers(HttpResponse(200, json.dumps({"keys": keys}).encode()))
    assert issuer.believes()


def test_without_a_network_nobody_waits():
    settings = parse(f'[oauth]\nresource_server_id = "leveret"\n{AT_URL}\n').oauth
    assert Tokens(settings, ManualClock(wall=WALL)).authenticate("shop", fitting()) is None


def test_after_a_failure_the_document_is_asked_for_again():
    issuer = Issuer(DISCOVERED)
    issuer.tokens.prepare()
    document = HttpResponse(200, json.dumps(DOCUMENT).encode())
    issuer.answers(document, HttpResponse(404, b""))
    issuer.clock.advance(60)
    issuer.tokens.prepare()
    issuer.answers(document, jwks("RS256"))
    assert issuer.believes()


def test_a_client_that_has_gone_waits_no_more(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tokens, "WAITING_MAX", 2)
    issuer = Issuer()
    gone, there = issuer.shown(), issuer.shown()
    with pytest.raises(LimitReached):
        issuer.shown()
    assert isinstance(gone, Waiting)
    gone.drop()
    issuer.shown()
    issuer.answers(jwks("RS256"))
    assert not gone.is_there
    assert isinstance(there, Waiting)
    assert there.is_there


def test_new_settings_of_the_same_issuer_keep_its_keys():
    before, after, other = (
        Issuer(),
        Issuer(AT_URL + "\nleeway_s = 7"),
        Issuer('jwks_url = "https://b.example"'),
    )
    before.tokens.prepare()
    before.answers(jwks("RS256"))
    after.tokens.follow(before.tokens)
    other.tokens.follow(before.tokens)
    assert after.believes()
    assert not other.believes()


SECONDS = st.integers(0, 30 * 1024).map(lambda parts: parts / 1024)  # sums of these are exact


@given(st.lists(st.tuples(SECONDS, st.booleans(), st.booleans()), max_size=60))
def test_whatever_comes_the_issuer_is_asked_seldom(steps: list[tuple[float, bool, bool]]):
    """No two requests are closer than the interval, and there is never a second one under way."""
    issuer = Issuer(AT_URL + "\nrefresh_s = 20\nkeys_kept_s = 50")
    begun: list[float] = []
    for seconds, known, answers in steps:
        issuer.clock.advance(seconds)
        before = len(issuer.urls)
        issuer.shown("RS256" if known else "ES256")
        if len(issuer.urls) > before:
            begun.append(issuer.clock.now())
        assert len(issuer.asked) <= 1
        if issuer.asked:
            issuer.answers(jwks("RS256") if answers else NoResponse("no"))
    assert all(later - earlier >= 10 for earlier, later in itertools.pairwise(begun))


@pytest.mark.parametrize(
    ("more", "where"),
    [
        ('jwks_url = "http://issuer.example/keys"', r"oauth\.jwks_url"),
        ('jwks_url = "https://me:hush@issuer.example/keys"', r"oauth\.jwks_url"),
        ('jwks_url = "https://issuer.example/a b"', r"oauth\.jwks_url"),
        ("discovery = true", r"oauth\.issuer: found nothing"),
        ('discovery = true\nissuer = "issuer"', r"oauth\.issuer: found one that cannot be asked"),
        (AT_URL + '\nclient_id = "page"', r"oauth\.issuer: found none that a browser"),
        (
            AT_URL + '\nclient_id = "page"\nissuer = "https://a;b"',
            r"oauth\.issuer: found none that a browser",
        ),
        (AT_URL + '\njwks_file = "a.json"', r"oauth\.jwks_url: found jwks_file as well"),
        (AT_URL + "\nkeys_kept_s = 5", r"oauth\.keys_kept_s"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(more: str, where: str):
    with pytest.raises(ConfigError, match=where) as refused:
        parse(f'[oauth]\nresource_server_id = "leveret"\n{more}\n')
    assert "hush" not in str(refused.value)

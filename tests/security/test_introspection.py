"""Opaque tokens: when the issuer is asked, what of its answers counts, and what is remembered. No network."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from urllib.parse import parse_qs

import pytest

from leveret.clock import ManualClock
from leveret.config.config import ConfigError, parse
from leveret.errors import LimitReached
from leveret.security import remote_logins
from leveret.security.http_requests import HttpRequest, HttpResponse, NoResponse, Outcome
from leveret.security.password_checks import CheckOrigin, Waiting
from leveret.security.tokens import TOKEN_SIZE_MAX, Tokens
from leveret.security.users import User

from .issuer import CLAIMS, LASTS_S, WALL, token

SETTINGS = """
[oauth]
resource_server_id = "leveret"
introspection_url = "https://issuer.example/introspect"
introspection_client_id = "the node"
introspection_client_secret = "hush:hush"
"""


class Issuer:
    """Tokens of an issuer, whose answers the test gives when it wants to."""

    def __init__(self, more: str = "") -> None:
        self.clock = ManualClock(wall=WALL)
        self.asked: list[tuple[HttpRequest, Callable[[Outcome], None]]] = []
        self.tokens = Tokens(parse(SETTINGS + more).oauth, self.clock, fetch=self._fetch, secret=b"key")
        assert self.tokens.introspection is not None
        self.introspection = self.tokens.introspection

    def _fetch(self, request: HttpRequest, then: Callable[[Outcome], None]) -> None:
        self.asked.append((request, then))

    def answers(self, outcome: Outcome) -> None:
        _, then = self.asked.pop(0)
        then(outcome)

    def says(self, **claims: object) -> None:
        said = {
            name: value for name, value in {"active": True, **CLAIMS, **claims}.items() if value is not None
        }
        self.answers(HttpResponse(200, json.dumps(said).encode()))

    def shown(self, given: str = "opaque", place: str = "") -> User | Waiting | None:
        return self.tokens.authenticate("", given, CheckOrigin(place, lambda: True))

    def waiting(self, given: str = "opaque") -> Waiting:
        found = self.shown(given)
        assert isinstance(found, Waiting)
        return found


def test_the_issuer_is_asked_with_the_nodes_name_and_secret():
    issuer = Issuer()
    issuer.shown("a b")
    [(request, _)] = issuer.asked
    assert (request.method, request.url) == ("POST", "https://issuer.example/introspect")
    assert parse_qs(request.body.decode()) == {"token": ["a b"], "token_type_hint": ["access_token"]}
    scheme, encoded = dict(request.headers)["Authorization"].split()
    assert (scheme, b64decode(encoded)) == ("Basic", b"the+node:hush%3Ahush")
    assert not any(word in repr(request) for word in ("hush", "a b", encoded))


def test_equal_tokens_share_an_answer_that_is_remembered_for_a_while():
    issuer = Issuer()
    first, second = issuer.waiting(), issuer.waiting()
    assert len(issuer.asked) == 1
    issuer.says()
    for each in (first, second):
        assert each.user is not None
        assert (each.user.name, each.user.expires_at) == ("shop", WALL + LASTS_S + 5)
        assert each.user.scopes is not None
        assert each.user.scopes.allow("read", "/", "q")
    issuer.clock.advance(59)
    assert isinstance(issuer.shown(), User)
    issuer.clock.advance(1)
    issuer.waiting()
    assert (issuer.introspection.asked, issuer.introspection.hits) == (2, 1)


@pytest.mark.parametrize(
    "claims",
    [
        {"active": False},
        {"active": "true"},
        {"active": None},
        {"exp": WALL - 60},
        {"exp": None},
        {"nbf": WALL + 60},
        {"aud": "other"},
        {"aud": None},
        {"scope": 5},
    ],
)
def test_what_does_not_hold_is_refused_and_that_is_remembered(claims: dict[str, object]):
    issuer = Issuer()
    waiting = issuer.waiting()
    issuer.says(**claims)
    assert waiting.is_there
    assert waiting.user is None
    assert issuer.shown() is None
    assert issuer.asked == []


def test_the_issuer_counts_where_it_is_given():
    issuer = Issuer('issuer = "https://issuer.example"')
    good, bad = issuer.waiting("good"), issuer.waiting("bad")
    issuer.says()
    issuer.says(iss="https://other.example")
    assert good.user is not None
    assert bad.user is None


def test_the_name_may_be_in_username():
    issuer = Issuer()
    waiting = issuer.waiting()
    issuer.says(username="till", sub="4711")
    assert waiting.user is not None
    assert waiting.user.name == "till"


@pytest.mark.parametrize(
    "outcome",
    [
        NoResponse("no response in 5 s"),
        HttpResponse(401, b"{}"),
        HttpResponse(200, b"[]"),
        HttpResponse(200, b"<"),
    ],
)
def test_no_answer_is_a_refusal_that_is_not_remembered(outcome: Outcome, caplog: pytest.LogCaptureFixture):
    issuer = Issuer()
    waiting = issuer.waiting("secret-token")
    issuer.answers(outcome)
    assert waiting.is_there
    assert waiting.user is None
    assert "no answer from the server" in caplog.text
    assert "secret-token" not in caplog.text
    again = issuer.waiting("secret-token")
    issuer.says()
    assert again.user is not None
    assert issuer.introspection.failed == 1


def test_a_token_is_remembered_no_longer_than_it_is_valid():
    issuer = Issuer("introspection_cache_s = 3600")
    issuer.waiting()
    issuer.says(exp=WALL + 20)
    issuer.clock.advance(24)
    assert isinstance(issuer.shown(), User)
    issuer.clock.advance(1)
    issuer.waiting()


def test_nothing_is_remembered_where_the_time_is_zero_or_after_forgetting():
    issuer = Issuer("introspection_cache_s = 0")
    issuer.waiting()
    issuer.says()
    issuer.waiting()
    issuer = Issuer()
    issuer.waiting()
    issuer.says()
    assert issuer.introspection.forget() == 1
    issuer.waiting()


def test_guessers_have_the_issuer_asked_at_a_rate_and_hold_up_nobody_elsewhere():
    issuer = Issuer()
    for number in range(20):
        issuer.shown(f"guess {number}", "10.0.0.1")
    with pytest.raises(LimitReached):
        issuer.shown("guess 20", "10.0.0.1")
    assert isinstance(issuer.shown("guess 0", "10.0.0.1"), Waiting), "that is being asked already"
    assert isinstance(issuer.shown("mine", "10.0.0.2"), Waiting)
    issuer.clock.advance(0.1)
    assert isinstance(issuer.shown("guess 20", "10.0.0.1"), Waiting)


def test_what_waits_and_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(remote_logins, "ASKED_MAX", 2)
    monkeypatch.setattr(remote_logins, "ANSWERS_MAX", 1)
    issuer = Issuer()
    issuer.waiting("a")
    issuer.waiting("b")
    with pytest.raises(LimitReached):
        issuer.shown("c")
    issuer.says()
    issuer.says()
    assert issuer.introspection.remembered == 1
    assert isinstance(issuer.shown("b"), User)


@pytest.mark.parametrize("given", ["", "x" * (TOKEN_SIZE_MAX + 1)])
def test_the_issuer_is_not_asked_about_what_can_be_no_token(given: str):
    issuer = Issuer()
    assert issuer.shown(given) is None
    assert issuer.asked == []


def test_a_client_that_has_gone_waits_no_more():
    issuer = Issuer()
    gone, there = issuer.waiting(), issuer.waiting()
    gone.drop()
    issuer.says()
    assert not gone.is_there
    assert there.is_there


def test_signed_tokens_are_checked_by_keys_where_there_are_keys():
    with_keys, without = Issuer('jwks_url = "https://issuer.example/keys"'), Issuer()
    with_keys.shown(token())
    without.shown(token())
    assert with_keys.asked[0][0].method == "GET"
    assert without.asked[0][0].method == "POST"


def test_the_node_needs_a_name_at_the_issuer():
    with pytest.raises(ConfigError, match=r"oauth\.introspection_client_id"):
        parse('[oauth]\nresource_server_id = "leveret"\nintrospection_url = "https://issuer.example/"')

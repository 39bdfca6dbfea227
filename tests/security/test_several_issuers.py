"""Tokens of several issuers: each is checked by the keys and settings of its own issuer, and by no other's."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from leveret.clock import ManualClock
from leveret.config.config import ConfigError, parse
from leveret.security.http_requests import HttpRequest, HttpResponse, NoResponse, Outcome
from leveret.security.password_checks import Waiting
from leveret.security.tokens import Tokens
from leveret.security.trusted_issuer import TokenRefused
from leveret.security.users import User

from .issuer import WALL, public_jwk, token

HOME, PARTNERS, LAB = "https://issuer.example", "https://partners.example", "https://lab.example"
SETTINGS = f"""
[oauth]
issuer = "{HOME}"
jwks_url = "{HOME}/keys"
resource_server_id = "leveret"
refresh_s = 100

[oauth.providers.partners]
issuer = "{PARTNERS}"
jwks_url = "{PARTNERS}/keys"
resource_server_id = "shared-broker"
username_claims = ["email"]
algorithms = ["ES256"]

[oauth.providers.lab]
issuer = "{LAB}"
discovery = true

[oauth.providers.lab-test]
issuer = "{LAB}"
jwks_url = "{LAB}/test/keys"
resource_server_id = "leveret-test"
scope_aliases = {{ tester = ["leveret-test.read:*/*"] }}
"""
KEYS = {HOME: ("RS256",), PARTNERS: ("ES256",), f"{LAB}/test": ("EdDSA",), LAB: ("RS256",)}


def jwks(*algorithms: str) -> Outcome:
    return HttpResponse(200, json.dumps({"keys": [public_jwk(each) for each in algorithms]}).encode())


class Issuers:
    """Tokens whose issuers answer when the test says so."""

    def __init__(self, settings: str = SETTINGS) -> None:
        self.clock = ManualClock(wall=WALL)
        self.asked: dict[str, Callable[[Outcome], None]] = {}
        self.tokens = Tokens(parse(settings).oauth, self.clock, fetch=self._fetch)

    def _fetch(self, request: HttpRequest, then: Callable[[Outcome], None]) -> None:
        self.asked[request.url] = then

    def answer(self, url: str, outcome: Outcome) -> None:
        self.asked.pop(url)(outcome)

    def publish(self) -> None:
        """Have every issuer give its keys."""
        self.tokens.prepare()
        document = {"issuer": LAB, "jwks_uri": f"{LAB}/keys"}
        self.answer(
            f"{LAB}/.well-known/openid-configuration", HttpResponse(200, json.dumps(document).encode())
        )
        for place, algorithms in KEYS.items():
            self.answer(f"{place}/keys", jwks(*algorithms))

    def refusal(self, given: str) -> str:
        with pytest.raises(TokenRefused) as refused:
            self.tokens.user(given)
        return str(refused.value)


@pytest.fixture
def issuers() -> Issuers:
    found = Issuers()
    found.publish()
    return found


def test_each_token_is_checked_by_its_own_issuer(issuers: Issuers):
    assert issuers.tokens.user(token()).name == "shop"
    partner = token(
        "ES256", iss=PARTNERS, aud="shared-broker", email="a@b.example", scope="shared-broker.tag:a"
    )
    assert (issuers.tokens.user(partner).name, issuers.tokens.user(partner).tags) == ("a@b.example", ("a",))
    assert issuers.tokens.user(token(iss=LAB)).name == "shop"


def test_of_two_names_at_one_issuer_the_audience_decides(issuers: Issuers):
    found = issuers.tokens.user(token("EdDSA", iss=LAB, aud="leveret-test", scope="tester"))
    assert found.scopes is not None
    assert found.scopes.allow("read", "/", "any")
    assert issuers.refusal(token(iss=LAB, aud="nobody")) == 'its audience is "nobody"'
    assert "which 2 of the settings fit" in issuers.refusal(token(iss=LAB, aud=["leveret", "leveret-test"]))


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"algorithm": "ES256"}, "there is no key"),  # a partner's key, in a token that says it is ours
        ({"iss": PARTNERS, "aud": "shared-broker"}, "its algorithm is"),
        ({"iss": LAB, "aud": "leveret-test"}, "there is no key"),
        ({"algorithm": "ES256", "iss": PARTNERS, "aud": "leveret"}, "its audience is"),
        ({"iss": "https://other.example"}, "its issuer is"),
        ({"iss": None}, "its issuer is"),
        ({"iss": [HOME]}, "its issuer is"),
    ],
)
def test_no_issuer_speaks_for_another(issuers: Issuers, given: dict[str, object], why: str):
    algorithm = str(given.pop("algorithm", "RS256"))
    assert why in issuers.refusal(token(algorithm, **given))


def test_an_issuer_that_is_away_delays_its_own_tokens_only():
    issuers = Issuers()
    ours, theirs = token(), token("ES256", iss=PARTNERS, aud="shared-broker", email="a@b.example")
    first, second = (issuers.tokens.authenticate("", each) for each in (ours, theirs))
    assert isinstance(first, Waiting)
    assert isinstance(second, Waiting)
    issuers.answer(f"{HOME}/keys", jwks("RS256"))
    assert (first.is_there, second.is_there) == (True, False)
    assert isinstance(first.user, User)
    issuers.answer(f"{PARTNERS}/keys", NoResponse("it is away"))
    assert (second.is_there, second.user) == (True, None)


def test_a_reload_keeps_the_keys_of_each_issuer(issuers: Issuers):
    again = Issuers(SETTINGS.replace("refresh_s = 100", "refresh_s = 200"))
    again.tokens.follow(issuers.tokens)
    assert again.tokens.user(token("EdDSA", iss=LAB, aud="leveret-test")).name == "shop"
    assert again.tokens.user(token()).name == "shop"


def test_the_section_itself_need_not_have_keys():
    issuers = Issuers(
        f'[oauth.providers.only]\nissuer = "{HOME}"\njwks_url = "{HOME}/keys"\nresource_server_id = "leveret"\n'
    )
    issuers.tokens.prepare()
    issuers.answer(f"{HOME}/keys", jwks("RS256"))
    assert issuers.tokens.user(token()).name == "shop"
    assert "its issuer is" in issuers.refusal(token(iss=PARTNERS))


@pytest.mark.parametrize(
    ("more", "where", "accepted"),
    [
        ('issuer = "https://a"', "oauth.providers.x", "one of jwks_file, jwks_url, discovery"),
        ('jwks_url = "https://a"', "oauth.providers.x.issuer", "a string"),
        ('issuer = "https://a"\njwks_url = "http://a"', "oauth.providers.x.jwks_url", "https://"),
        ('issuer = "a"\ndiscovery = true', "oauth.providers.x.issuer", "https://"),
        (f'issuer = "{HOME}"\ndiscovery = true', "oauth.providers.x.resource_server_id", "of its own"),
        ('issuer = "https://a"\ndiscovery = true\nissuers = 1', "oauth.providers.x.issuers", "issuer, "),
    ],
)
def test_what_is_wrong_with_a_provider_is_said(more: str, where: str, accepted: str):
    beginning = SETTINGS.partition("[oauth.providers")[0]
    with pytest.raises(ConfigError) as refused:
        parse(f"{beginning}\n[oauth.providers.x]\n{more}\n")
    assert any(each.where == where and accepted in each.accepted for each in refused.value.problems)

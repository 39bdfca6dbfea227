"""Opaque tokens to users: the issuer is asked what a token says (RFC 7662, OAuth 2.0 Token Introspection).

The claims in its answer are checked as those of a signed token are.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from urllib.parse import quote_plus, urlencode

from leveret.clock import Clock
from leveret.config.oauth import OAuthSettings
from leveret.security.http_requests import Ask, HttpRequest, HttpResponse, NoResponse, Outcome
from leveret.security.remote_logins import HttpLogins, NoAnswer
from leveret.security.signing_keys import Claims, strict
from leveret.security.tokens import log_refusal
from leveret.security.trusted_issuer import TokenRefused
from leveret.security.users import User


class Introspection(HttpLogins):
    """The opaque tokens of one issuer."""

    def __init__(
        self, settings: OAuthSettings, clock: Clock, ask: Ask, key: bytes, user_of: Callable[[Claims], User]
    ) -> None:
        """`user_of` checks claims and returns the user whom they name; it raises TokenRefused."""
        super().__init__(clock, ask, key, settings.introspection_cache_s, cache_refusals=True)
        self._settings = settings
        self._user_of = user_of

    def request(self, name: str, secret: bytes) -> HttpRequest:
        settings = self._settings
        assert settings.introspection_url is not None, "only then it is made"
        parts = (settings.introspection_client_id or "", settings.introspection_client_secret or "")
        client = ":".join(map(quote_plus, parts))
        return HttpRequest(
            settings.introspection_url,
            "POST",
            (
                ("Authorization", "Basic " + b64encode(client.encode()).decode()),  # RFC 6749, 2.3.1
                ("Content-Type", "application/x-www-form-urlencoded"),
            ),
            urlencode({"token": secret, "token_type_hint": "access_token"}).encode(),
            timeout_s=settings.timeout_s,
            tls=settings.tls,
        )

    def decided(self, name: str, outcome: Outcome) -> User | None:
        claims = claims_in(outcome)
        try:
            if claims.get("active") is not True:
                raise TokenRefused("the issuer says that it is not active")
            if isinstance(claims.get("username"), str):
                claims.setdefault("preferred_username", claims["username"])
            return self._user_of(claims)
        except TokenRefused as refused:
            log_refusal(name, refused)
            return None


def claims_in(outcome: Outcome) -> Claims:
    """Return the claims of an answer. Raises NoAnswer."""
    if isinstance(outcome, NoResponse):
        raise NoAnswer(outcome.reason)
    assert isinstance(outcome, HttpResponse)
    if outcome.status != 200:
        raise NoAnswer(f"the status is {outcome.status}")
    try:
        return strict(outcome.body)
    except (ValueError, RecursionError):
        raise NoAnswer("it is not a JSON object, or not plain JSON") from None

"""Tokens to users: find the issuer of a signed JSON Web Token (RFC 7519), and have it check the token.

    password or bearer ─> recognises ─> its issuer, by `iss` and `aud` ─> `TrustedIssuer.user` ─> User with scopes

What a token says before its signature has been checked decides by whose keys it is checked, and nothing else. A token
never appears in a log or an error text.

A token whose key is missing waits while its issuer is asked for keys, if it is one that can be asked.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from leveret.clock import Clock
from leveret.config.oauth import OAuthSettings, PageLogin
from leveret.errors import LimitReached
from leveret.security.http_requests import Ask, no_network
from leveret.security.key_sources import IssuerKeys
from leveret.security.password_checks import ANYWHERE, CheckOrigin, Waiting
from leveret.security.signing_keys import Claims, shown
from leveret.security.trusted_issuer import (
    TOKEN_SIZE_MAX,
    KeyMissing,
    SignedToken,
    TokenRefused,
    TrustedIssuer,
)
from leveret.security.users import User

if TYPE_CHECKING:
    from leveret.security.introspection import Introspection

log: Final = logging.getLogger("leveret.security")

WAITING_MAX: Final = 1000  # logins that wait for an issuer's keys
UNKNOWN: Final = "unknown"  # RabbitMQ's name for the user of a token without a name
BEGINNINGS: Final = (
    b"eyJ",
    b"eyA",
    b"ewo",
    b"ew0",
)  # of tokens: base64 of a brace and a quote or white space


class Tokens:
    """Authenticates users by their tokens."""

    def __init__(
        self,
        settings: OAuthSettings,
        clock: Clock,
        nameless: str | None = UNKNOWN,
        fetch: Ask = no_network,
        secret: bytes = b"",
    ) -> None:
        """Read the keys, if they are in files. `nameless` is the name of users whose tokens have none; None: such
        tokens are refused. `fetch` asks issuers. `secret` is a key by which opaque tokens are remembered.

        Raises ConfigError if a file cannot be read or holds no usable key, or a library is missing."""
        self._settings = settings
        # with the name of each login
        self._waiting: dict[Waiting, tuple[TrustedIssuer, str, SignedToken]] = {}
        # With keys of their own; the one of the section itself is the first.
        self.issuers: Sequence[TrustedIssuer] = tuple(
            TrustedIssuer(each, clock, nameless, fetch, self._on_keys) for each in settings.with_keys()
        )
        self.introspection: Introspection | None = None  # None: opaque tokens are not accepted
        if settings.introspection_url is not None:
            from leveret.security.introspection import Introspection

            trusted = TrustedIssuer(settings.without_keys(), clock, nameless, fetch, self._on_keys)
            self.introspection = Introspection(settings, clock, fetch, secret, trusted.user_of)

    def follow(self, before: Tokens | None) -> None:
        """Take over what an earlier configuration's tokens have fetched, as far as it is of use."""
        for source in self.asked_sources():
            for other in () if before is None else before.asked_sources():
                source.adopt(other)

    def prepare(self) -> None:
        """Ask the issuers for their keys, before the first token comes and after the settings may have changed."""
        for issuer in self.issuers:
            issuer.source.ask()

    def asked_sources(self) -> Sequence[IssuerKeys]:
        """Return the keys that issuers are asked for."""
        return [each.source for each in self.issuers if isinstance(each.source, IssuerKeys)]

    @property
    def discovery_url(self) -> str | None:
        """The address of the issuer's discovery document, which clients whose token is refused are told."""
        return self._settings.discovery_url

    @property
    def page_login(self) -> PageLogin | None:
        """The way in which users of the web page log in at the issuer; None if they cannot."""
        return self._settings.page_login

    def recognises(self, password: str | bytes) -> bool:
        """Return whether a password has the form of a token; then it is never checked as a password."""
        octets = password.encode(errors="replace") if isinstance(password, str) else password
        return octets.startswith(BEGINNINGS) and octets.count(b".") == 2

    def is_opaque(self, token: str | bytes) -> bool:
        """Return whether the issuer would have to be asked what a token says."""
        return self.introspection is not None and not (self.issuers and self.recognises(token))

    def authenticate(
        self, name: str, token: str | bytes, place: CheckOrigin = ANYWHERE
    ) -> User | Waiting | None:
        """Return the token's user, None if it is refused, or `Waiting` while the issuer is asked for its key, or for
        what an opaque token says.

        `name` is what the client claims, and is only logged. Raises LimitReached if too many logins wait.
        """
        octets = token.encode(errors="replace") if isinstance(token, str) else token
        if self.introspection is not None and self.is_opaque(octets):
            if not 0 < len(octets) <= TOKEN_SIZE_MAX:
                log_refusal(name, TokenRefused(f"it is empty, or has more than {TOKEN_SIZE_MAX} octets"))
                return None
            return self.introspection.check("", octets, place)
        try:
            signed = SignedToken(octets)
            issuer = self._issuer_of(signed.claims)
            try:
                return issuer.user(signed)
            except KeyMissing:
                if not issuer.source.ask():
                    raise
            return self._wait(issuer, name, signed)
        except TokenRefused as refused:
            log_refusal(name, refused)
            return None

    def _issuer_of(self, claims: Claims) -> TrustedIssuer:
        """Return the issuer that has to check a token: the only one, or the one that `iss` names, and of several that
        with which this node has the name in `aud`. Raises TokenRefused."""
        found: Sequence[TrustedIssuer] = self.issuers
        if len(found) > 1:
            value = claims.get("iss")
            named = [each for each in found if each.settings.issuer == value]
            found = named or [each for each in found if each.settings.issuer is None]
            if not found:
                raise TokenRefused(f"its issuer is {shown(value)}")
        if len(found) > 1:
            found = [each for each in found if each.is_addressed(claims)]
            if len(found) != 1:
                many = f", which {len(found)} of the settings fit" if found else ""
                raise TokenRefused(f"its audience is {shown(claims.get('aud'))}{many}")
        if not found:
            raise TokenRefused("there are no keys of any issuer")
        return found[0]

    def _wait(self, issuer: TrustedIssuer, name: str, token: SignedToken) -> Waiting:
        if len(self._waiting) >= WAITING_MAX:
            raise LimitReached("too many tokens wait for the issuer's keys; try again later")
        waiting = Waiting(self._leave)
        self._waiting[waiting] = issuer, name, token
        return waiting

    def _leave(self, waiting: Waiting) -> None:
        self._waiting.pop(waiting, None)

    def _on_keys(self, issuer: TrustedIssuer) -> None:
        """Check the tokens that waited for this issuer, once more and for good."""
        for each in [waiting for waiting, (whose, _, _) in self._waiting.items() if whose is issuer]:
            found = self._waiting.pop(each, None)
            if found is None:  # given up by what another one's end has caused
                continue
            _, name, token = found
            user = None
            try:
                user = issuer.user(token)
            except TokenRefused as refused:
                log_refusal(name, refused)
            each.end(user)

    def user(self, token: str | bytes) -> User:
        """Check a signed token and return its user. Raises TokenRefused."""
        signed = SignedToken(token.encode(errors="replace") if isinstance(token, str) else token)
        return self._issuer_of(signed.claims).user(signed)


def log_refusal(name: str, refused: TokenRefused) -> None:
    log.warning("the token of user '%s' is refused: %s", name, refused)

"""One issuer whose tokens are accepted: a signed token to the user and the scopes that it names.

    token ─> signature by a key (`key_sources.py`) ─> claims ─> User with scopes

The key decides which algorithms may sign a token, not the token: `none` is never accepted, and a public key is never
taken for a shared secret. A token never appears in a log or an error text.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from typing import Final

from leveret.clock import Clock
from leveret.config.oauth import OAuthSettings
from leveret.security import scopes
from leveret.security.http_requests import Ask
from leveret.security.key_sources import FileKeys, IssuerKeys, KeySource, NoKeys
from leveret.security.signing_keys import Claim, Claims, SigningKey, shown, strict
from leveret.security.users import User

TOKEN_SIZE_MAX: Final = 8192
NAME_MAX: Final = 255
FORM: Final = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)


class TokenRefused(Exception):  # noqa: N818 - a refusal, not an error of ours
    """Raised if a token is not accepted; the text says why, for the log."""


class KeyMissing(TokenRefused):
    """Raised if there is no key of the name that a token gives; the issuer may have a new one."""


class SignedToken:
    """The parts of a signed token, none of which has been checked."""

    __slots__ = ("claims", "header", "octets")

    def __init__(self, octets: bytes) -> None:
        """Read the parts. Raises TokenRefused if these octets are not a token."""
        if len(octets) > TOKEN_SIZE_MAX:
            raise TokenRefused(f"it has more than {TOKEN_SIZE_MAX} octets")
        if not FORM.fullmatch(octets):
            raise TokenRefused("it does not have three parts in base64")
        header, payload, _ = octets.split(b".")
        self.octets = octets
        self.header = content(header, "header")
        self.claims = content(payload, "payload")


class TrustedIssuer:
    """An issuer, its keys, and the name that this node has in its tokens."""

    def __init__(
        self,
        settings: OAuthSettings,
        clock: Clock,
        nameless: str | None,
        fetch: Ask,
        on_keys: Callable[[TrustedIssuer], None],
    ) -> None:
        """Read the keys, if they are in a file. `on_keys` is called whenever the issuer has been asked for them.

        Raises ConfigError if the file cannot be read or holds no usable key, or a library is missing."""
        self.settings = settings
        self._clock = clock
        self._nameless = nameless
        self.source: KeySource
        if settings.jwks_file is not None:
            self.source = FileKeys(settings.jwks_file, settings, clock)
        elif settings.has_keys:
            self.source = IssuerKeys(settings, clock, fetch, lambda: on_keys(self))
        else:
            self.source = NoKeys()

    @property
    def name(self) -> str:
        """The name for operators: the `iss` of its tokens, or nothing if that may be any."""
        return self.settings.issuer or ""

    def is_addressed(self, claims: Claims) -> bool:
        """Return whether a token is for the name that this node has at this issuer. Raises TokenRefused."""
        settings = self.settings
        return not settings.verify_audience or settings.resource_server_id in words(claims.get("aud"), "aud")

    def user(self, token: SignedToken) -> User:
        """Check a token and return its user. Raises TokenRefused."""
        self._verify(token)
        return self.user_of(token.claims)

    def _verify(self, token: SignedToken) -> None:
        algorithm, name = token.header.get("alg"), token.header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self.settings.algorithms:
            raise TokenRefused(f"its algorithm is {shown(algorithm)}")
        keys: tuple[SigningKey, ...] = self.source.keys()
        named = [key for key in keys if name is None or key.name == name]
        fitting = [key for key in named if algorithm in key.algorithms]
        if not named:
            raise KeyMissing(f"there is no key {shown(name)}" if keys else "there are no keys of the issuer")
        if len(fitting) != 1:
            raise TokenRefused(
                f"{len(fitting)} keys fit: its algorithm is {algorithm}, its key {shown(name)}"
            )
        if not fitting[0].verify(token.octets, algorithm):
            raise TokenRefused("its signature is wrong")

    def user_of(self, claims: Claims) -> User:
        """Return the user whom claims name that are the issuer's own. Raises TokenRefused."""
        expires_at = self._check_times(claims)
        self._check_parties(claims)
        granted, tags = scopes.parse(self._scopes_of(claims), self.settings.prefix)
        return User(self._name_of(claims), tags, scopes=granted, expires_at=expires_at)

    def _check_times(self, claims: Claims) -> float:
        """Return when the token expires, in seconds since the epoch. Raises TokenRefused if it is not valid now."""
        now, leeway_s = self._clock.wall(), self.settings.leeway_s
        expires_at = moment(claims, "exp")
        if expires_at is None:
            raise TokenRefused("it does not say when it expires (exp)")
        if expires_at + leeway_s <= now:
            raise TokenRefused(f"it has expired, {now - expires_at:.0f} s ago")
        for claim in ("nbf", "iat"):
            begins_at = moment(claims, claim)
            if begins_at is not None and begins_at > now + leeway_s:
                raise TokenRefused(f"it is not valid for another {begins_at - now:.0f} s ({claim})")
        return expires_at + leeway_s

    def _check_parties(self, claims: Claims) -> None:
        settings = self.settings
        if settings.issuer is not None and claims.get("iss") != settings.issuer:
            raise TokenRefused(f"its issuer is {shown(claims.get('iss'))}")
        if not self.is_addressed(claims):
            raise TokenRefused(f"its audience is {shown(claims.get('aud'))}")

    def _name_of(self, claims: Claims) -> str:
        for claim in self.settings.username_claims:
            name = claims.get(claim)
            if isinstance(name, str) and 0 < len(name) <= NAME_MAX:
                return name
        if self._nameless is not None:
            return self._nameless
        raise TokenRefused(f"it has no name in {', '.join(self.settings.username_claims)}")

    def _scopes_of(self, claims: Claims) -> Iterator[str]:
        given = words(claims.get("scope"), "scope")
        if (more := self.settings.additional_scopes_claim) is not None:
            found = claims.get(more)
            if isinstance(found, dict):  # the scopes are listed by resource server
                found = found.get(self.settings.resource_server_id or "")
            given = [*given, *words(found, more)]
        for word in given:
            yield word
            yield from self.settings.scope_aliases.get(word, ())


def content(part: bytes, what: str) -> Claims:
    """Return the JSON object that a part of a token encodes. Raises TokenRefused if it does not."""
    try:
        found = strict(urlsafe_b64decode(part + b"=" * (-len(part) % 4)))
    except (ValueError, RecursionError):
        raise TokenRefused(f"its {what} is not JSON, or not plain JSON") from None
    return found


def moment(claims: Claims, claim: str) -> float | None:
    """Return a claim in seconds since the epoch, None if it is absent. Raises TokenRefused if it is not a number."""
    found = claims.get(claim)
    if found is None:
        return None
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise TokenRefused(f"its {claim} is {shown(found)}, not a time")
    try:
        seconds = float(found)
    except OverflowError:
        seconds = float("inf")
    if not isfinite(seconds):
        raise TokenRefused(f"its {claim} is not a time")
    return seconds


def words(claim: Claim, name: str) -> Sequence[str]:
    """Return the words of a claim: a text with spaces, or a list of texts. Raises TokenRefused for other types."""
    if claim is None:
        return ()
    if isinstance(claim, str):
        return claim.split()
    if isinstance(claim, list) and all(isinstance(each, str) for each in claim):
        return [each for each in claim if isinstance(each, str)]
    raise TokenRefused(f"its {name} is neither a text nor a list of texts")

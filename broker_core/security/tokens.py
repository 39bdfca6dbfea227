"""Tokens to users: check a signed JSON Web Token (RFC 7519) and return the user and the scopes that it names.

    password or bearer ─> recognises ─> signature by a key (`key_sources.py`) ─> claims ─> User with scopes

The key decides which algorithms may sign a token, not the token: `none` is never accepted, and a public key is never
taken for a shared secret. Before the signature is checked, only the algorithm and the key's name are read from a token.
A token never appears in a log or an error text.

A token whose key is missing waits while the issuer is asked for its keys, if it is one that can be asked.
"""

from __future__ import annotations

import logging
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Final

from broker_core.clock import Clock
from broker_core.config.oauth import OAuthSettings, PageLogin
from broker_core.errors import LimitReached
from broker_core.security import scopes
from broker_core.security.access import User
from broker_core.security.http_requests import Ask, no_network
from broker_core.security.key_sources import FileKeys, IssuerKeys, KeySource, NoKeys
from broker_core.security.password_checks import ANYWHERE, CheckOrigin, Waiting
from broker_core.security.signing_keys import Claim, Claims, SigningKey, shown, strict

if TYPE_CHECKING:
    from broker_core.security.introspection import Introspection

log: Final = logging.getLogger("leveret.security")

TOKEN_SIZE_MAX: Final = 8192
WAITING_MAX: Final = 1000  # logins that wait for the issuer's keys
NAME_MAX: Final = 255
UNKNOWN: Final = "unknown"  # RabbitMQ's name for the user of a token without a name
FORM: Final = re.compile(rb"[\w-]+\.[\w-]+\.[\w-]*", re.ASCII)
BEGINNINGS: Final = (
    b"eyJ",
    b"eyA",
    b"ewo",
    b"ew0",
)  # of tokens: base64 of a brace and a quote or white space


class TokenRefused(Exception):  # noqa: N818 - a refusal, not an error of ours
    """Raised if a token is not accepted; the text says why, for the log."""


class KeyMissing(TokenRefused):
    """Raised if there is no key of the name that a token gives; the issuer may have a new one."""


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
        """Read the keys, if they are in a file. `nameless` is the name of users whose tokens have none; None: such
        tokens are refused. `fetch` asks the issuer. `secret` is a key by which opaque tokens are remembered.

        Raises ConfigError if the file cannot be read or holds no usable key, or a library is missing."""
        self._settings = settings
        self._nameless = nameless
        self._clock = clock
        self._waiting: dict[Waiting, tuple[str, bytes]] = {}  # with the name and token of each login
        self.source: KeySource
        if settings.jwks_file is not None:
            self.source = FileKeys(settings.jwks_file, settings, clock)
        elif settings.has_keys:
            self.source = IssuerKeys(settings, clock, fetch, self._on_keys)
        else:
            self.source = NoKeys()
        self.introspection: Introspection | None = None  # None: opaque tokens are not accepted
        if settings.introspection_url is not None:
            from broker_core.security.introspection import Introspection

            self.introspection = Introspection(settings, clock, fetch, secret, self._user_of)

    def follow(self, before: Tokens | None) -> None:
        """Take over what an earlier configuration's tokens have fetched, as far as it is of use."""
        if (
            before is not None
            and isinstance(self.source, IssuerKeys)
            and isinstance(before.source, IssuerKeys)
        ):
            self.source.adopt(before.source)

    def prepare(self) -> None:
        """Ask the issuer for its keys, before the first token comes and after the settings may have changed."""
        self.source.ask()

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
        return self.introspection is not None and not (self._settings.has_keys and self.recognises(token))

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
            return self.user(octets)
        except KeyMissing as missing:
            if self.source.ask():
                return self._wait(name, octets)
            log_refusal(name, missing)
        except TokenRefused as refused:
            log_refusal(name, refused)
        return None

    def _wait(self, name: str, token: bytes) -> Waiting:
        if len(self._waiting) >= WAITING_MAX:
            raise LimitReached("too many tokens wait for the issuer's keys; try again later")
        waiting = Waiting(self._leave)
        self._waiting[waiting] = (name, token)
        return waiting

    def _leave(self, waiting: Waiting) -> None:
        self._waiting.pop(waiting, None)

    def _on_keys(self) -> None:
        """Check the tokens that waited for the issuer, once more and for good."""
        waiting, self._waiting = self._waiting, {}
        for each, (name, token) in waiting.items():
            user = None
            try:
                user = self.user(token)
            except TokenRefused as refused:
                log_refusal(name, refused)
            each.end(user)

    def user(self, token: str | bytes) -> User:
        """Check a token and return its user. Raises TokenRefused."""
        octets = token.encode(errors="replace") if isinstance(token, str) else token
        if len(octets) > TOKEN_SIZE_MAX:
            raise TokenRefused(f"it has more than {TOKEN_SIZE_MAX} octets")
        if not FORM.fullmatch(octets):
            raise TokenRefused("it does not have three parts in base64")
        header, payload, _ = octets.split(b".")
        self._verify(octets, content(header, "header"))
        return self._user_of(content(payload, "payload"))

    def _verify(self, token: bytes, header: Claims) -> None:
        algorithm, name = header.get("alg"), header.get("kid")
        if not isinstance(algorithm, str) or algorithm not in self._settings.algorithms:
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
        if not fitting[0].verify(token, algorithm):
            raise TokenRefused("its signature is wrong")

    def _user_of(self, claims: Claims) -> User:
        expires_at = self._check_times(claims)
        self._check_parties(claims)
        granted, tags = scopes.parse(self._scopes_of(claims), self._settings.prefix)
        return User(self._name_of(claims), tags, scopes=granted, expires_at=expires_at)

    def _check_times(self, claims: Claims) -> float:
        """Return when the token expires, in seconds since the epoch. Raises TokenRefused if it is not valid now."""
        now, leeway_s = self._clock.wall(), self._settings.leeway_s
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
        settings = self._settings
        if settings.issuer is not None and claims.get("iss") != settings.issuer:
            raise TokenRefused(f"its issuer is {shown(claims.get('iss'))}")
        audience = claims.get("aud")
        if settings.verify_audience and settings.resource_server_id not in words(audience, "aud"):
            raise TokenRefused(f"its audience is {shown(audience)}")

    def _name_of(self, claims: Claims) -> str:
        for claim in self._settings.username_claims:
            name = claims.get(claim)
            if isinstance(name, str) and 0 < len(name) <= NAME_MAX:
                return name
        if self._nameless is not None:
            return self._nameless
        raise TokenRefused(f"it has no name in {', '.join(self._settings.username_claims)}")

    def _scopes_of(self, claims: Claims) -> Iterator[str]:
        given = words(claims.get("scope"), "scope")
        if (more := self._settings.additional_scopes_claim) is not None:
            found = claims.get(more)
            if isinstance(found, dict):  # the scopes are listed by resource server
                found = found.get(self._settings.resource_server_id or "")
            given = [*given, *words(found, more)]
        for word in given:
            yield word
            yield from self._settings.scope_aliases.get(word, ())


def log_refusal(name: str, refused: TokenRefused) -> None:
    log.warning("the token of user '%s' is refused: %s", name, refused)


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

"""Sources of the keys of tokens: a file, or the issuer itself, asked over the network.

    issuer ─ discovery document ─> `jwks_uri` ─> JWK Set ─> keys, which replace those from before

The issuer is asked when a token is checked and the keys are older than `refresh_s`; the token is checked by the present
keys meanwhile. It is asked, too, when a token names a key that is not there, as after a rotation; that token waits. As
anybody can show such a token, the issuer is asked at most once in `unknown_key_interval_s`, and seldom while it fails.
While it does not answer, the keys go on for `keys_kept_s` after they were fetched.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Final

from leveret.clock import Clock
from leveret.config.config import ConfigError
from leveret.config.oauth import OAuthSettings
from leveret.config.types import Place
from leveret.config.urls import HttpUrl, parted
from leveret.security.http_requests import (
    Ask,
    HttpRequest,
    NoResponse,
    Outcome,
    json_in,
)
from leveret.security.signing_keys import (
    JWKS_SIZE_MAX,
    SigningKey,
    keys_in,
    read_keys,
    require_library,
)

log: Final = logging.getLogger("leveret.security")

LOOK_INTERVAL_S: Final = 60.0  # between checks whether the file of keys has changed
RETRY_MAX_S: Final = 60.0  # between requests to an issuer that does not answer


class KeySource(ABC):
    """The keys that tokens may be signed with, at present."""

    is_asked = False  # True: the issuer is asked for them
    fetched = 0  # how often keys were fetched
    failed = 0  # how often the issuer could not be asked

    @abstractmethod
    def keys(self) -> tuple[SigningKey, ...]:
        """Return the keys that may be used now."""

    def ask(self) -> bool:
        """Called when a key is missing: return whether keys are being fetched, after which a token is checked again."""
        return False

    def age_s(self) -> float | None:
        """Return how long ago the keys were fetched; None if they come from a file, or never were."""
        return None


class NoKeys(KeySource):
    """No keys: every token is one that the issuer is asked about."""

    def keys(self) -> tuple[SigningKey, ...]:
        return ()


class FileKeys(KeySource):
    """Keys from a file, which is read again when it has changed."""

    def __init__(self, file: Path, settings: OAuthSettings, clock: Clock) -> None:
        """Read the keys. Raises ConfigError if the file cannot be read or holds no usable key."""
        self._file = file
        self._settings = settings
        self._clock = clock
        self._keys = read_keys(self._file, settings.algorithms)
        self._version = version(self._file)
        self._looked_at = clock.now()

    def keys(self) -> tuple[SigningKey, ...]:
        """Return the keys, read again if the file has changed; if it cannot be read, they stay as they were."""
        now = self._clock.now()
        if now >= self._looked_at + LOOK_INTERVAL_S:
            self._looked_at = now
            self._look()
        return self._keys

    def _look(self) -> None:
        found = version(self._file)
        if found == self._version:
            return
        self._version = found
        try:
            self._keys = read_keys(self._file, self._settings.algorithms)
        except ConfigError as failure:
            log.error("keys of tokens not reloaded, those from before stay\n%s", failure)
        else:
            log.info("keys of tokens reloaded: %s", len(self._keys))


class IssuerKeys(KeySource):
    """Keys that the issuer publishes. `on_end` is called whenever it has been asked, with or without success."""

    is_asked = True

    def __init__(self, settings: OAuthSettings, clock: Clock, fetch: Ask, on_end: Callable[[], None]) -> None:
        """Hold no keys as yet. Raises ConfigError if the library is missing that checks signatures."""
        require_library(Place([], "oauth"))
        self._settings = settings
        self._clock = clock
        self._fetch = fetch
        self._on_end = on_end
        self._keys: tuple[SigningKey, ...] = ()
        self._fetched_at: float | None = None
        self._url = settings.jwks_url  # None: it has to be discovered
        self._asking = False
        self._next_at = float("-inf")  # the issuer is not asked before
        self._failures = 0  # one after the other

    def adopt(self, other: IssuerKeys) -> None:
        """Take over the keys of a source that asked the same issuer in the same way."""
        if self._place() == other._place():
            self._keys, self._fetched_at, self._url = other._keys, other._fetched_at, other._url

    def _place(self) -> tuple[object, ...]:
        settings = self._settings
        return (
            settings.jwks_url,
            settings.discovery_url,
            settings.issuer,
            settings.tls,
            settings.algorithms,
        )

    def keys(self) -> tuple[SigningKey, ...]:
        now, fetched_at = self._clock.now(), self._fetched_at
        if fetched_at is None or now >= fetched_at + self._settings.keys_kept_s:
            return ()
        if now >= fetched_at + self._settings.refresh_s:
            self.ask()
        return self._keys

    def age_s(self) -> float | None:
        return None if self._fetched_at is None else self._clock.now() - self._fetched_at

    def ask(self) -> bool:
        if self._asking:
            return True
        now = self._clock.now()
        if now < self._next_at:
            return False
        self._asking = True
        self._next_at = now + self._settings.unknown_key_interval_s
        if self._url is None:
            assert self._settings.discovery_url is not None, "the settings name one of both"
            self._fetch(self._request(self._settings.discovery_url), self._on_document)
        else:
            self._fetch(self._request(self._url), self._on_keys)
        return self._asking  # False: the answer is there already

    def _request(self, url: str) -> HttpRequest:
        settings = self._settings
        return HttpRequest(url, timeout_s=settings.timeout_s, size_max=JWKS_SIZE_MAX, tls=settings.tls)

    def _on_document(self, outcome: Outcome) -> None:
        """Go on with the address in the discovery document (OpenID Connect Discovery 1.0, sections 3 and 4.3)."""
        document = json_in(outcome)
        if isinstance(document, NoResponse):
            self._fail(f"no discovery document: {document.reason}")
            return
        if document.get("issuer") != self._settings.issuer:
            self._fail("the discovery document is another issuer's")
            return
        try:
            self._url = self._asked_like_the_document(HttpUrl().convert(document.get("jwks_uri")))
        except ValueError:
            self._fail("the discovery document has no `jwks_uri` that can be asked")
            return
        self._fetch(self._request(self._url), self._on_keys)

    def _asked_like_the_document(self, url: str) -> str:
        """Return a URL over TLS, or any if the document itself came without. Raises ValueError for another one.

        Without that, an issuer elsewhere could lead to a port of this machine, where every local program may answer.
        """
        assert self._settings.discovery_url is not None, "the document was asked for"
        if parted(self._settings.discovery_url).scheme == "https" != parted(url).scheme:
            raise ValueError
        return url

    def _on_keys(self, outcome: Outcome) -> None:
        found = json_in(outcome)
        if isinstance(found, NoResponse):
            self._url = self._settings.jwks_url
            self._fail(f"no keys: {found.reason}")
            return
        place = Place([], "keys")
        listed = found.get("keys")
        keys = tuple(keys_in(listed, self._settings.algorithms, place)) if isinstance(listed, list) else ()
        if not keys:
            self._fail("there is no key that may sign tokens")
            return
        for problem in place.problems:
            log.warning("a key of the issuer is skipped: %s", problem)
        if {key.name for key in keys} != {key.name for key in self._keys}:
            log.info("keys of tokens fetched: %s", len(keys))
        self._keys, self._fetched_at = keys, self._clock.now()
        self._failures = 0
        self.fetched += 1
        self._end()

    def _fail(self, reason: str) -> None:
        """Count a failure, and wait longer after each before the issuer is asked again."""
        self._failures += 1
        self.failed += 1
        pause_s = min(2.0 ** min(self._failures, 10), RETRY_MAX_S)
        self._next_at = max(self._next_at, self._clock.now() + pause_s)
        age_s = self.age_s()
        left_s = 0.0 if age_s is None else max(0.0, self._settings.keys_kept_s - age_s)
        log.warning(
            "the issuer of tokens does not give its keys: %s; those from before go on for %.0f s",
            reason,
            left_s,
        )
        self._end()

    def _end(self) -> None:
        self._asking = False
        self._on_end()


def version(file: Path) -> tuple[int, int] | None:
    """Return the modification time in ns and the size of a file, to notice changes; None if it is missing."""
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size

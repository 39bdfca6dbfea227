"""The section about tokens: which issuer and audience they need, and which claims are read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import ClassVar, Final

import attrs

from leveret.config.records import Record, RecordOf, key, keys_of
from leveret.config.tls import SYSTEM, PeerTlsSettings
from leveret.config.types import (
    FilePath,
    Flag,
    ListOf,
    OneOf,
    Problem,
    Secret,
    TableOf,
    Text,
    Whole,
    printed,
)
from leveret.config.urls import HttpUrl, parted

ASYMMETRIC: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
SYMMETRIC: Final = ("HS256", "HS384", "HS512")
DAY_S: Final = 86_400
SOURCES: Final = ("jwks_file", "jwks_url", "discovery")
HOST: Final = re.compile(r"[A-Za-z0-9.-]+(:[0-9]+)?|\[[0-9A-Fa-f:.]+\](:[0-9]+)?")  # fits a page's policy
NO_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {}
ALGORITHMS: Final = ListOf(OneOf(*ASYMMETRIC, *SYMMETRIC), least=1)
DISCOVERY_PATH: Final = Text("a path that begins with a slash", r"/[!-~]*")
ANY_TEXT: Final = Text("a string", r"(?s).*")
SCOPE_ALIASES: Final = TableOf(ListOf(Text()), "a table with a list of scopes for each name")


def is_host_of_page(issuer: str | None) -> bool:
    """Return whether a browser can be sent to this issuer: over TLS, or to this machine."""
    try:
        return bool(HOST.fullmatch(parted(HttpUrl().convert(issuer)).netloc))
    except ValueError:
        return False


@attrs.frozen
class PageLogin:
    """The way in which the web page lets users log in at the issuer (OpenID Connect)."""

    issuer: str
    origin: str  # of the issuer: the page talks with it
    metadata: str  # the address of its discovery document
    client_id: str
    scopes: str  # separated by blanks


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ProviderSettings(Record):
    """A further issuer, or a further name that this node has at one. What is left out is as in `[oauth]`, but for the
    place of the keys.
    """

    renamed: ClassVar[Mapping[str, str]] = {"ca_file": "tls.ca"}

    issuer: str = key(Text(), "The `iss` of its tokens.", reload=True)
    jwks_file: Path | None = key(FilePath(), "The file with its keys.", None, reload=True)
    jwks_url: str | None = key(HttpUrl(), "Where it publishes its keys.", None, reload=True)
    discovery: bool = key(
        Flag(), "Whether its keys are found through its discovery document.", False, reload=True
    )
    discovery_path: str | None = key(DISCOVERY_PATH, "The path of that document.", None, reload=True)
    tls: PeerTlsSettings | None = key(RecordOf(PeerTlsSettings), "TLS with it.", None)
    resource_server_id: str | None = key(
        Text(), "The node's name in its tokens: it has to be in their `aud`.", None, reload=True
    )
    algorithms: tuple[str, ...] | None = key(
        ALGORITHMS, "The algorithms that may sign its tokens.", None, reload=True
    )
    username_claims: tuple[str, ...] | None = key(
        ListOf(Text(), least=1), "The claims with the user's name.", None, reload=True
    )
    scope_prefix: str | None = key(
        ANY_TEXT, "The prefix of the scopes that are meant for this node.", None, reload=True
    )
    additional_scopes_claim: str | None = key(Text(), "Another claim with scopes.", None, reload=True)
    scope_aliases: Mapping[str, tuple[str, ...]] | None = key(
        SCOPE_ALIASES, "The scopes that other names stand for.", None, reload=True
    )

    @property
    def has_keys(self) -> bool:
        """True if it is said where the keys are."""
        return any(getattr(self, name) for name in SOURCES)


NO_PROVIDERS: Final[Mapping[str, ProviderSettings]] = {}


@attrs.frozen(kw_only=True, eq=False, repr=False)
class OAuthSettings(Record):
    """Tokens (OAuth 2, JWT) instead of passwords. They are accepted once there is a `jwks_file`, a `jwks_url` or
    an `introspection_url`, or `discovery` is true, or there are `providers`.

    They need the extra `oauth`: `pip install "leveret[oauth]"`.
    """

    renamed: ClassVar[Mapping[str, str]] = {"ca_file": "tls.ca"}

    jwks_file: Path | None = key(
        FilePath(),
        "The file with the keys that tokens are signed with (JWK Set, RFC 7517). It is read at the start, at every "
        "reload, and when it has changed, within a minute. For a node that cannot reach the issuer.",
        None,
        reload=True,
    )
    jwks_url: str | None = key(
        HttpUrl(), "Where the issuer publishes these keys; instead of a `jwks_file`.", None, reload=True
    )
    discovery: bool = key(
        Flag(),
        "Whether the keys are found through the document that the `issuer` publishes (OpenID Connect Discovery); "
        "instead of a `jwks_file` or `jwks_url`.",
        False,
        reload=True,
    )
    discovery_path: str = key(
        DISCOVERY_PATH,
        "The path of that document, after the `issuer`. Another for issuers that have it elsewhere.",
        "/.well-known/openid-configuration",
        reload=True,
    )
    tls: PeerTlsSettings = key(RecordOf(PeerTlsSettings), "TLS with the issuer.", SYSTEM)
    timeout_s: int = key(
        Whole(1, 60),
        "Seconds that the issuer has for an answer. More for a slow one, on which logins wait.",
        5,
        reload=True,
    )
    refresh_s: int = key(
        Whole(1, 7 * DAY_S),
        "Seconds after which keys are fetched again, when a token is checked. Fewer where keys that are withdrawn "
        "must end sooner.",
        3600,
        reload=True,
    )
    keys_kept_s: int = key(
        Whole(1, 30 * DAY_S),
        "Seconds that fetched keys are used while the issuer does not answer. More to outlast longer failures, fewer "
        "where withdrawn keys must end then, too.",
        DAY_S,
        reload=True,
    )
    unknown_key_interval_s: int = key(
        Whole(1, 3600),
        "The fewest seconds between two requests for keys that tokens with unknown keys cause. Fewer where issuers "
        "change their keys often.",
        10,
        reload=True,
    )
    introspection_url: str | None = key(
        HttpUrl(),
        "Where the issuer says what an opaque token means (RFC 7662); without it, only signed tokens are accepted. "
        "Without any keys, it is asked about every token.",
        None,
        reload=True,
    )
    introspection_client_id: str | None = key(
        Text(), "The node's name when it asks there.", None, reload=True
    )
    introspection_client_secret: str | None = key(Secret(), "Its secret there.", None, reload=True)
    introspection_cache_s: int = key(
        Whole(0, DAY_S),
        "Seconds that such an answer is remembered, also a refusal; 0: it is not. Fewer where withdrawn tokens must "
        "end sooner.",
        60,
        reload=True,
    )
    resource_server_id: str | None = key(
        Text(), "The node's name in tokens: it has to be in their `aud`.", None, reload=True
    )
    verify_audience: bool = key(
        Flag(),
        "Whether `aud` is checked. False for an issuer that writes no `aud`.",
        True,
        reload=True,
    )
    issuer: str | None = key(
        Text(),
        "The `iss` that tokens must have; without it, any issuer with a key that is none of the `providers`.",
        None,
        reload=True,
    )
    algorithms: tuple[str, ...] = key(
        ALGORITHMS,
        "The algorithms that may sign tokens. Those that begin with HS need a secret in the file of keys. Fewer where "
        "the issuers' are known.",
        ASYMMETRIC,
        reload=True,
    )
    leeway_s: int = key(
        Whole(0, 300),
        "Seconds that the issuer's clock may differ from this one. More where clocks are not kept right.",
        5,
        reload=True,
    )
    username_claims: tuple[str, ...] = key(
        ListOf(Text(), least=1),
        "The claims with the user's name; the first that a token has is used. Others where your issuer has the name "
        "elsewhere.",
        ("preferred_username", "sub", "client_id"),
        reload=True,
    )
    scope_prefix: str | None = key(
        ANY_TEXT,
        "The prefix of scopes that are meant for this node; without it, the `resource_server_id` and a dot. Empty for "
        "an issuer that writes none.",
        None,
        reload=True,
    )
    additional_scopes_claim: str | None = key(
        Text(),
        "Another claim with scopes, besides `scope`. The one in which your issuer has roles or groups.",
        None,
        reload=True,
    )
    scope_aliases: Mapping[str, tuple[str, ...]] = key(
        SCOPE_ALIASES,
        "The scopes that other names stand for. Those of an issuer that grants roles by names of its own.",
        NO_ALIASES,
        reload=True,
    )

    client_id: str | None = key(
        Text(),
        "The web page's name at the `issuer`, where it is a public client. With it the page lets users log in there "
        "(OpenID Connect, authorization code with PKCE).",
        None,
        reload=True,
    )
    client_scopes: tuple[str, ...] = key(
        ListOf(Text(), least=1),
        "The scopes that the page asks the issuer for. More where the issuer puts permissions into tokens only if "
        "asked for them.",
        ("openid",),
        reload=True,
    )
    providers: Mapping[str, ProviderSettings] = key(
        TableOf(RecordOf(ProviderSettings), "a table with a table for each issuer"),
        "Further issuers, by any name.",
        NO_PROVIDERS,
        reload=True,
    )

    def with_keys(self) -> Iterator[OAuthSettings]:
        """Yield the settings of each issuer whose signed tokens are accepted, this section's own first."""
        if self.has_keys:
            yield self
        yield from map(self._provided, self.providers.values())

    def without_keys(self) -> OAuthSettings:
        """Return these settings for an issuer that is asked about tokens instead of for keys."""
        return attrs.evolve(self, jwks_file=None, jwks_url=None, discovery=False)

    def _provided(self, provider: ProviderSettings) -> OAuthSettings:
        """Return the settings of a further issuer."""
        own = {
            name: value
            for name in keys_of(ProviderSettings)
            if (value := getattr(provider, name)) is not None
        }
        plain = attrs.evolve(
            self.without_keys(), client_id=None, introspection_url=None, providers=NO_PROVIDERS
        )
        return attrs.evolve(plain, **own)

    @property
    def page_login(self) -> PageLogin | None:
        """The way in which users of the web page log in at the issuer; None if they cannot."""
        if self.client_id is None or self.issuer is None:
            return None
        parts = parted(self.issuer)
        return PageLogin(
            self.issuer,
            f"{parts.scheme}://{parts.netloc}",
            self.issuer.rstrip("/") + self.discovery_path,
            self.client_id,
            " ".join(self.client_scopes),
        )

    @property
    def prefix(self) -> str:
        """The prefix of scopes that are meant for this node."""
        return f"{self.resource_server_id}." if self.scope_prefix is None else self.scope_prefix

    @property
    def is_on(self) -> bool:
        """True if tokens are accepted."""
        return self.has_keys or self.introspection_url is not None or bool(self.providers)

    @property
    def has_keys(self) -> bool:
        """True if there are keys, by which signed tokens are checked."""
        return self.jwks_file is not None or self.jwks_url is not None or self.discovery

    @property
    def discovery_url(self) -> str | None:
        """The address of the issuer's discovery document; None if it is not to be asked."""
        return self.issuer.rstrip("/") + self.discovery_path if self.discovery and self.issuer else None

    def _undiscoverable(self) -> Iterator[Problem]:
        kind = HttpUrl()
        try:
            kind.convert(self.discovery_url)
        except ValueError:
            found = "nothing" if self.issuer is None else "one that cannot be asked"
            yield Problem("issuer", found, kind.accepted)

    def contradictions(self) -> Iterator[Problem]:
        sources = [name for name in SOURCES if getattr(self, name)]
        if len(sources) > 1:
            yield Problem(sources[1], f"{sources[0]} as well", "one of " + ", ".join(SOURCES))
        if self.discovery:
            yield from self._undiscoverable()
        if self.client_id is not None and not is_host_of_page(self.issuer):
            yield Problem("issuer", "none that a browser can be sent to", HttpUrl().accepted)
        if self.introspection_url is not None and self.introspection_client_id is None:
            yield Problem("introspection_client_id", "nothing", "the node's name at the issuer")
        if self.keys_kept_s < self.refresh_s:
            yield Problem(
                "keys_kept_s", f"{self.keys_kept_s}", f"at least refresh_s, which is {self.refresh_s}"
            )
        needed = self.verify_audience or self.scope_prefix is None
        is_used = self.has_keys or self.introspection_url is not None
        if is_used and self.resource_server_id is None and needed:
            yield Problem("resource_server_id", "nothing", "the node's name in tokens")
        yield from self._contradictory_providers()

    def _contradictory_providers(self) -> Iterator[Problem]:
        taken = {(self.issuer, self.resource_server_id): "oauth itself"} if self.has_keys else {}
        for name, provider in self.providers.items():
            where = f"providers.{name}"
            if not provider.has_keys:
                yield Problem(where, "no place of its keys", "one of " + ", ".join(SOURCES))
            found = self._provided(provider)
            for problem in found.contradictions():
                yield attrs.evolve(problem, where=f"{where}.{problem.where}")
            key = found.issuer, found.resource_server_id
            if key in taken:
                accepted = f"an issuer, or a name there, of its own: {taken[key]} has these"
                yield Problem(f"{where}.resource_server_id", f"{printed(key[1])} at {key[0]}", accepted)
            taken[key] = where

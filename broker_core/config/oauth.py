"""The section about tokens: whose they have to be, and what is read from them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs

from broker_core.config.records import Record, key
from broker_core.config.types import FilePath, Flag, ListOf, OneOf, Problem, TableOf, Text, Whole

ASYMMETRIC: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA"),
)
SYMMETRIC: Final = ("HS256", "HS384", "HS512")
NO_ALIASES: Final[Mapping[str, tuple[str, ...]]] = {}


@attrs.frozen(kw_only=True)
class OAuthSettings(Record):
    """Tokens (OAuth 2, JWT) in place of passwords. They are accepted once there is a `jwks_file`.

    It takes the extra `oauth`: `pip install "leveret[oauth]"`.
    """

    jwks_file: Path | None = key(
        FilePath(),
        "The file with the keys that tokens are signed with (JWK Set, RFC 7517). It is read at the start, at every "
        "reload, and when it has changed, within a minute.",
        None,
        reload=True,
    )
    resource_server_id: str | None = key(
        Text(), "What tokens call this node: it has to be in their `aud`.", None, reload=True
    )
    verify_audience: bool = key(Flag(), "Whether `aud` is looked at.", True, reload=True)
    issuer: str | None = key(
        Text(), "The `iss` that tokens must have; without it, whoever has a key.", None, reload=True
    )
    algorithms: tuple[str, ...] = key(
        ListOf(OneOf(*ASYMMETRIC, *SYMMETRIC), least=1),
        "How tokens may be signed. Those that begin with HS need a secret in the file of the keys.",
        ASYMMETRIC,
        reload=True,
    )
    leeway_s: int = key(
        Whole(0, 300), "Seconds that the issuer's clock may differ from this one.", 5, reload=True
    )
    username_claims: tuple[str, ...] = key(
        ListOf(Text(), least=1),
        "Where the user's name stands; the first that is there holds.",
        ("preferred_username", "sub", "client_id"),
        reload=True,
    )
    scope_prefix: str | None = key(
        Text("a string", r"(?s).*"),
        "How the scopes begin that are meant for this node; without it, the `resource_server_id` and a dot.",
        None,
        reload=True,
    )
    additional_scopes_claim: str | None = key(
        Text(), "Another claim with scopes, besides `scope`.", None, reload=True
    )
    scope_aliases: Mapping[str, tuple[str, ...]] = key(
        TableOf(ListOf(Text()), "a table with a list of scopes for each name"),
        "What scopes of other names stand for.",
        NO_ALIASES,
        reload=True,
    )

    @property
    def prefix(self) -> str:
        """How scopes begin."""
        return f"{self.resource_server_id}." if self.scope_prefix is None else self.scope_prefix

    def contradictions(self) -> Iterator[Problem]:
        needed = self.verify_audience or self.scope_prefix is None
        if self.jwks_file is not None and self.resource_server_id is None and needed:
            yield Problem("resource_server_id", "nothing", "what tokens call this node")

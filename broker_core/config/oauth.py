"""The section about tokens: which issuer and audience they need, and which claims are read."""

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
    """Tokens (OAuth 2, JWT) instead of passwords. They are accepted once there is a `jwks_file`.

    They need the extra `oauth`: `pip install "leveret[oauth]"`.
    """

    jwks_file: Path | None = key(
        FilePath(),
        "The file with the keys that tokens are signed with (JWK Set, RFC 7517). It is read at the start, at every "
        "reload, and when it has changed, within a minute.",
        None,
        reload=True,
    )
    resource_server_id: str | None = key(
        Text(), "The node's name in tokens: it has to be in their `aud`.", None, reload=True
    )
    verify_audience: bool = key(Flag(), "Whether `aud` is checked.", True, reload=True)
    issuer: str | None = key(
        Text(), "The `iss` that tokens must have; without it, any issuer with a key.", None, reload=True
    )
    algorithms: tuple[str, ...] = key(
        ListOf(OneOf(*ASYMMETRIC, *SYMMETRIC), least=1),
        "The algorithms that may sign tokens. Those that begin with HS need a secret in the file of keys.",
        ASYMMETRIC,
        reload=True,
    )
    leeway_s: int = key(
        Whole(0, 300), "Seconds that the issuer's clock may differ from this one.", 5, reload=True
    )
    username_claims: tuple[str, ...] = key(
        ListOf(Text(), least=1),
        "The claims with the user's name; the first that a token has is used.",
        ("preferred_username", "sub", "client_id"),
        reload=True,
    )
    scope_prefix: str | None = key(
        Text("a string", r"(?s).*"),
        "The prefix of scopes that are meant for this node; without it, the `resource_server_id` and a dot.",
        None,
        reload=True,
    )
    additional_scopes_claim: str | None = key(
        Text(), "Another claim with scopes, besides `scope`.", None, reload=True
    )
    scope_aliases: Mapping[str, tuple[str, ...]] = key(
        TableOf(ListOf(Text()), "a table with a list of scopes for each name"),
        "The scopes that other names stand for.",
        NO_ALIASES,
        reload=True,
    )

    @property
    def prefix(self) -> str:
        """The prefix of scopes that are meant for this node."""
        return f"{self.resource_server_id}." if self.scope_prefix is None else self.scope_prefix

    def contradictions(self) -> Iterator[Problem]:
        needed = self.verify_audience or self.scope_prefix is None
        if self.jwks_file is not None and self.resource_server_id is None and needed:
            yield Problem("resource_server_id", "nothing", "the node's name in tokens")

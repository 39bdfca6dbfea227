"""The section about Kerberos, for the SASL mechanism GSSAPI."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import attrs

from leveret.config.records import Record, key
from leveret.config.types import FilePath, Problem, Text


@attrs.frozen(kw_only=True, eq=False, repr=False)
class KerberosSettings(Record):
    """Logging in by a ticket of Kerberos, where `mechanisms` of a protocol name GSSAPI. It is on once there is a
    `keytab`, and needs the extra `kerberos`: `pip install "leveret[kerberos]"`.
    """

    keytab: Path | None = key(
        FilePath(),
        "The file with the keys of the node's principal, which it can read alone.",
        None,
        reload=True,
    )
    principal: str | None = key(
        Text("a principal such as amqp/broker.example@EXAMPLE.ORG", r"[^\s/@]+/[^\s/@]+(@[^\s/@]+)?"),
        "The node's principal; without it, any in the keytab. Set it where the keytab has others, too.",
        None,
        reload=True,
    )
    realm: str | None = key(
        Text("a realm such as EXAMPLE.ORG", r"[^\s/@]+"),
        "The realm of users: `ann@REALM` logs in as the user `ann`. Principals of other realms are refused.",
        None,
        reload=True,
    )

    @property
    def is_on(self) -> bool:
        """True if tickets are accepted."""
        return self.keytab is not None

    def contradictions(self) -> Iterator[Problem]:
        if self.is_on and self.realm is None:
            yield Problem("realm", "nothing", "the realm of the users")
        if self.is_on and find_spec("gssapi") is None:
            yield Problem(
                "keytab", "a file, but no gssapi to use it", 'the extra: pip install "leveret[kerberos]"'
            )

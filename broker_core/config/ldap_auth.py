"""The section about an LDAP directory that says whose passwords are right, and in which groups users are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from typing import ClassVar, Final
from urllib.parse import urlsplit

import attrs

from leveret.config.http_auth import remembered_refusals, remembered_s
from leveret.config.records import Record, RecordOf, key
from leveret.config.tls import SYSTEM, PeerTlsSettings
from leveret.config.types import (
    Flag,
    ListOf,
    Problem,
    RegularExpression,
    Secret,
    SingleValue,
    Text,
    Whole,
    printed,
)
from leveret.config.urls import is_this_machine

USERNAME: Final = "{username}"
DN: Final = "{dn}"
VIRTUAL_HOST: Final = "{vhost}"


class DirectoryUrl(SingleValue[str]):
    """The URL of a directory: a scheme, a host and perhaps a port."""

    accepted = "a URL such as ldaps://ldap.example, or ldap://ldap.example:389"

    def convert(self, value: object) -> str:
        if not isinstance(value, str):
            raise ValueError
        parts = urlsplit(value)
        is_whole = parts.path in ("", "/") and not (parts.query or parts.fragment or "@" in parts.netloc)
        if parts.scheme not in ("ldap", "ldaps") or not parts.hostname or not is_whole or parts.port == 0:
            raise ValueError
        return value.rstrip("/")

    def from_text(self, text: str) -> object:
        return text


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LdapGroup(Record):
    """A group, whose members get tags, and permissions in virtual hosts.

    Where no group has permissions, what users may do is in the permissions of the accounts here.
    """

    dn: str = key(
        Text(),
        "The distinguished name of the group; `{vhost}` in it stands for the virtual host that is to be entered.",
        reload=True,
    )
    tags: tuple[str, ...] = key(ListOf(Text()), "The tags of its members.", (), reload=True)
    virtual_hosts: tuple[str, ...] | None = key(
        ListOf(Text(), least=1), "Where these permissions hold; without it, everywhere.", None, reload=True
    )
    configure: str | None = key(
        RegularExpression(), "What members may declare and delete; without it, nothing.", None, reload=True
    )
    write: str | None = key(
        RegularExpression(), "Where members may publish; without it, nowhere.", None, reload=True
    )
    read: str | None = key(
        RegularExpression(), "What members may consume; without it, nothing.", None, reload=True
    )

    @property
    def lets_in(self) -> bool:
        """True if there is a permission, with which members enter the virtual hosts."""
        return not (self.configure is None and self.write is None and self.read is None)

    def contradictions(self) -> Iterator[Problem]:
        if self.tags and VIRTUAL_HOST in self.dn:
            yield Problem(
                "tags", "tags of a group for each virtual host", "a group without {vhost} in its `dn`"
            )
        if not self.tags and not self.lets_in:
            yield Problem(
                "dn", "a group that grants nothing", "`tags`, `configure`, `write` or `read` besides"
            )


@attrs.frozen(kw_only=True, eq=False, repr=False)
class LdapAuthSettings(Record):
    """A directory that passwords are checked by, where `security.backends` names `ldap`. It needs the extra `ldap`:
    `pip install "leveret[ldap]"`.
    """

    renamed: ClassVar[Mapping[str, str]] = {"ca_file": "tls.ca"}

    servers: tuple[str, ...] = key(
        ListOf(DirectoryUrl()),
        "The servers, tried in this order.",
        (),
        reload=True,
    )
    start_tls: bool = key(
        Flag(),
        "Whether a plain connection (`ldap://`) begins TLS. True for directories without `ldaps://`.",
        False,
        reload=True,
    )
    tls: PeerTlsSettings = key(RecordOf(PeerTlsSettings), "TLS with the servers.", SYSTEM)
    user_dn: str | None = key(
        Text("a string with {username} in it", r"(?s).*\{username\}.*"),
        "The name that a user is bound by, such as `uid={username},ou=people,dc=example,dc=org`; with Active Directory "
        "also `{username}@example.org`, with a `lookup_base`.",
        None,
        reload=True,
    )
    lookup_base: str | None = key(
        Text(),
        "Where users are searched for, to learn their distinguished names. Set it where users are in several "
        "branches.",
        None,
        reload=True,
    )
    lookup_filter: str = key(
        Text("an LDAP filter with {username} in it", r"(?s)\(.*\{username\}.*\)"),
        "The filter that finds one user. `(sAMAccountName={username})` with Active Directory.",
        "(uid={username})",
        reload=True,
    )
    bind_dn: str | None = key(
        Text(),
        "The account that searches; without it, each user does it after the login by `user_dn`. Set it where users "
        "may not search.",
        None,
        reload=True,
    )
    bind_password: str | None = key(Secret(), "The password of that account.", None, reload=True)
    group_base: str | None = key(Text(), "Where groups are searched for.", None, reload=True)
    group_filter: str = key(
        Text("an LDAP filter with {dn} or {username} in it", r"(?s)\(.*\{(dn|username)\}.*\)"),
        "The filter that finds the groups of a user. With Active Directory, "
        "`(member:1.2.840.113556.1.4.1941:={dn})` finds groups in groups, too.",
        "(|(member={dn})(uniqueMember={dn}))",
        reload=True,
    )
    groups: tuple[LdapGroup, ...] = key(
        ListOf(RecordOf(LdapGroup)), "What groups grant to their members.", (), reload=True
    )
    timeout_s: int = key(
        Whole(1, 60),
        "Seconds that the directory has for each answer. More for a slow one, on which logins wait.",
        5,
        reload=True,
    )
    cache_s: int = remembered_s()
    cache_refusals: bool = remembered_refusals()

    @property
    def grants_permissions(self) -> bool:
        """True if groups say what users may do, instead of the permissions here."""
        return any(group.lets_in for group in self.groups)

    def missing(self) -> Iterator[Problem]:
        """Yield what a node needs that has passwords checked by the directory."""
        if not self.servers:
            yield Problem("servers", "nothing", "the directory's URLs, as security.backends names ldap")
        if self.user_dn is None and (self.lookup_base is None or self.bind_dn is None):
            yield Problem("user_dn", "nothing", "a name with {username}, or a lookup_base and a bind_dn")
        if find_spec("ldap") is None:
            yield Problem("servers", "no python-ldap to ask them", 'the extra: pip install "leveret[ldap]"')

    def contradictions(self) -> Iterator[Problem]:
        for index, url in enumerate(self.servers):
            parts = urlsplit(url)
            is_safe = parts.scheme == "ldaps" or self.start_tls or is_this_machine(parts.hostname or "")
            if not is_safe:
                yield Problem(f"servers[{index}]", printed(url), "ldaps://, or start_tls: passwords go there")
        if self.groups and self.group_base is None:
            yield Problem("group_base", "nothing", "where groups are searched for")
        if (self.bind_dn is None) != (self.bind_password is None):
            name = "bind_password" if self.bind_password is None else "bind_dn"
            yield Problem(name, "nothing", "both, or neither")

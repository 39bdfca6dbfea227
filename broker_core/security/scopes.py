"""Scopes of a token to what its bearer may do, in the form of RabbitMQ's OAuth 2 plug-in.

    read:VHOST/NAME    write:VHOST/NAME/KEY    configure:VHOST/NAME    tag:administrator

Each part is percent-encoded, and `*` in it stands for any text, also for none; a slash of the name is written `%2F`, a
star `%2A`. Without a KEY, every routing key is meant. What is not of this form is no scope of ours and grants nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final
from urllib.parse import unquote_to_bytes

import attrs

PERMISSIONS: Final = frozenset(("configure", "write", "read"))
TAG: Final = "tag"
WRITE: Final = "write"
NO_OCTET: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


@attrs.frozen
class Wildcard:
    """A text with gaps: its parts stand in this order, the first at the beginning, the last at the end."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Wildcard:
        """Raises ValueError for what is not percent-encoded UTF-8."""
        return cls(tuple(map(decoded, text.split("*"))))

    @property
    def is_free(self) -> bool:
        """Whether it matches everything."""
        return self.parts == ("", "")

    def matches(self, text: str) -> bool:
        """In one pass, whatever the pattern: each part is taken where it first fits."""
        first, *between = self.parts
        if not between:
            return text == first
        last = between.pop()
        end = len(text) - len(last)
        if not (text.startswith(first) and text.endswith(last) and len(first) <= end):
            return False
        at = len(first)
        for part in between:
            at = text.find(part, at, end)
            if at < 0:
                return False
            at += len(part)
        return True


def decoded(part: str) -> str:
    """Raises ValueError."""
    if NO_OCTET.search(part):
        raise ValueError(f"'{part}' is not percent-encoded")
    return unquote_to_bytes(part.replace("+", " ")).decode()


@attrs.frozen
class Scope:
    """One permission for the things that match."""

    permission: str
    virtual_host: Wildcard
    name: Wildcard
    key: Wildcard

    def allows(self, permission: str, virtual_host: str, name: str) -> bool:
        return (
            permission == self.permission
            and self.virtual_host.matches(virtual_host)
            and self.name.matches(name)
        )


@attrs.frozen(eq=False)
class Scopes:
    """All that one token grants. Each is itself only, so that answers can be remembered by it."""

    granted: tuple[Scope, ...] = ()

    def enter(self, virtual_host: str) -> bool:
        """Whether they let into a virtual host: where anything at all is granted."""
        return any(scope.virtual_host.matches(virtual_host) for scope in self.granted)

    def allow(self, permission: str, virtual_host: str, name: str) -> bool:
        """Whether they permit that on the exchange or queue `name`."""
        return any(scope.allows(permission, virtual_host, name) for scope in self.granted)

    def allow_key(self, permission: str, virtual_host: str, exchange: str, key: str) -> bool:
        """Whether they permit a routing key on a topic exchange."""
        return any(
            scope.allows(permission, virtual_host, exchange) and scope.key.matches(key)
            for scope in self.granted
        )

    def guard_keys(self, virtual_host: str, exchange: str) -> bool:
        """Whether some routing keys may not be published with."""
        return not any(
            scope.key.is_free and scope.allows(WRITE, virtual_host, exchange) for scope in self.granted
        )


def parse(words: Iterable[str], prefix: str) -> tuple[Scopes, frozenset[str]]:
    """What the words that begin with the prefix grant: scopes, and tags."""
    granted: list[Scope] = []
    tags: set[str] = set()
    for word in dict.fromkeys(words):
        kind, colon, rest = word.removeprefix(prefix).partition(":")
        if not word.startswith(prefix) or not colon:
            continue
        if kind == TAG and rest:
            tags.add(rest)
        elif kind in PERMISSIONS and (scope := _scope(kind, rest)) is not None:
            granted.append(scope)
    return Scopes(tuple(granted)), frozenset(tags)


def _scope(permission: str, pattern: str) -> Scope | None:
    parts = pattern.split("/")
    if len(parts) not in (2, 3):
        return None
    try:
        virtual_host, name, key = map(Wildcard.parse, (*parts, "*")[:3])
    except ValueError:
        return None
    return Scope(permission, virtual_host, name, key)

"""Scopes of a token to permissions and tags, in the form of RabbitMQ's OAuth 2 plug-in.

    read:VHOST/NAME    write:VHOST/NAME/KEY    configure:VHOST/NAME    tag:administrator

Each part is percent-encoded, and `*` in it stands for any text, also for none; a slash of the name is written `%2F`, a
star `%2A`. Without a KEY, every routing key is allowed. A scope of any other form is ignored and grants nothing.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import ClassVar, Final
from urllib.parse import unquote_to_bytes

import attrs

PERMISSIONS: Final = frozenset(("configure", "write", "read"))
TAG: Final = "tag"
WRITE: Final = "write"
NO_OCTET: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


@attrs.frozen
class Wildcard:
    """A pattern with gaps: its parts occur in this order, the first at the beginning, the last at the end."""

    parts: tuple[str, ...]

    @classmethod
    def parse(cls, text: str) -> Wildcard:
        """Parse a pattern with `*` as its gap. Raises ValueError if a part is not percent-encoded UTF-8."""
        return cls(tuple(map(decoded, text.split("*"))))

    @property
    def is_free(self) -> bool:
        """True if the pattern matches everything."""
        return self.parts == ("", "")

    def matches(self, text: str) -> bool:
        """Return whether the text matches. One pass suffices: each part is taken where it first fits."""
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
    """Decode a percent-encoded part. Raises ValueError if it is malformed."""
    if NO_OCTET.search(part):
        raise ValueError(f"'{part}' is not percent-encoded")
    return unquote_to_bytes(part.replace("+", " ")).decode()


@attrs.frozen
class Scope:
    """A permission for the names that match."""

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


class Grants(ABC):
    """The grants that a login brings along; they decide instead of the permissions of the user's name.

    Compared by identity, so that answers can be cached by it.
    """

    is_lasting: ClassVar[bool] = True  # the answers stay as they are

    @abstractmethod
    def enter(self, virtual_host: str, address: str = "") -> bool:
        """Return whether the user may enter a virtual host; `address` is where the client comes from."""

    @abstractmethod
    def allow(self, permission: str, virtual_host: str, name: str, kind: str = "queue") -> bool:
        """Return whether the user has this access to the exchange or queue `name`."""

    @abstractmethod
    def allow_key(self, permission: str, virtual_host: str, exchange: str, key: str) -> bool:
        """Return whether the user has this access with a routing key on a topic exchange."""

    @abstractmethod
    def guard_keys(self, virtual_host: str, exchange: str) -> bool:
        """Return whether some routing keys may not be allowed for publishing to the exchange."""


@attrs.frozen(eq=False)
class Scopes(Grants):
    """All that one token grants."""

    granted: tuple[Scope, ...] = ()

    def enter(self, virtual_host: str, address: str = "") -> bool:
        """Return whether the token grants anything at all in a virtual host, and so lets into it."""
        return any(scope.virtual_host.matches(virtual_host) for scope in self.granted)

    def allow(self, permission: str, virtual_host: str, name: str, kind: str = "queue") -> bool:
        return any(scope.allows(permission, virtual_host, name) for scope in self.granted)

    def allow_key(self, permission: str, virtual_host: str, exchange: str, key: str) -> bool:
        return any(
            scope.allows(permission, virtual_host, exchange) and scope.key.matches(key)
            for scope in self.granted
        )

    def guard_keys(self, virtual_host: str, exchange: str) -> bool:
        return not any(
            scope.key.is_free and scope.allows(WRITE, virtual_host, exchange) for scope in self.granted
        )


def parse(words: Iterable[str], prefix: str) -> tuple[Scopes, tuple[str, ...]]:
    """Return the scopes and the tags that the words with the prefix grant."""
    granted: list[Scope] = []
    tags: dict[str, None] = {}
    for word in dict.fromkeys(words):
        kind, colon, rest = word.removeprefix(prefix).partition(":")
        if not word.startswith(prefix) or not colon:
            continue
        if kind == TAG and rest:
            tags[rest] = None
        elif kind in PERMISSIONS and (scope := _scope(kind, rest)) is not None:
            granted.append(scope)
    return Scopes(tuple(granted)), tuple(tags)


def _scope(permission: str, pattern: str) -> Scope | None:
    parts = pattern.split("/")
    if len(parts) not in (2, 3):
        return None
    try:
        virtual_host, name, key = map(Wildcard.parse, (*parts, "*")[:3])
    except ValueError:
        return None
    return Scope(permission, virtual_host, name, key)

"""Users and their permissions, and what those who check passwords need of the place where these are kept."""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from typing import TYPE_CHECKING, Protocol

import attrs

from leveret.catalogue import USER
from leveret.errors import PreconditionFailed
from leveret.limits import UserLimits
from leveret.security.passwords import Hashing, PasswordHash
from leveret.selectors import pcre_translation
from leveret.selectors.pcre_translation import ExpressionError

if TYPE_CHECKING:
    from leveret.security.http_requests import Ask
    from leveret.security.password_checks import OffThread
    from leveret.security.remote_permissions import HeldInputs
    from leveret.security.scopes import Grants


class Permission(Enum):
    """The kinds of access. The values are the words of the error texts."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


def in_order(tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags in the order given, each once."""
    return tuple(dict.fromkeys(tags))


@attrs.frozen
class User:
    """An account. Without `password`, login by password is refused."""

    name: str
    tags: tuple[str, ...] = attrs.field(default=(), converter=in_order)
    password: PasswordHash | None = attrs.field(default=None, repr=False)
    limits: UserLimits = attrs.field(factory=UserLimits)
    scopes: Grants | None = None  # of the login: they decide instead of the permissions
    expires_at: float | None = None  # of that token, in seconds since the epoch

    @property
    def stored_as(self) -> tuple[str, ...]:
        return USER, self.name


@attrs.frozen
class Permissions:
    """The permissions of one user in one virtual host: an expression for each `Permission`."""

    configure: str
    write: str
    read: str

    def expression(self, permission: Permission) -> str:
        if permission is Permission.CONFIGURE:
            return self.configure
        return self.write if permission is Permission.WRITE else self.read


@attrs.frozen
class TopicPermissions:
    """The routing keys that one user may use on one topic exchange, as regular expressions.

    `{username}`, `{vhost}` and `{client_id}` stand for the connection's own; their values are matched literally.
    """

    write: str
    read: str

    def expression(self, permission: Permission) -> str:
        return self.write if permission is Permission.WRITE else self.read


class Accounts(Protocol):
    """The users of a node, as backends that check passwords and permissions see them (`access.py`)."""

    hashing: Hashing
    off_thread: OffThread
    fetch: Ask

    @property
    def has_slow_hashes(self) -> bool:
        """Return whether any user's password takes long to check."""

    def user(self, name: str) -> User | None:
        """Return the user of this name, if there is one."""

    def note_verifier(self, name: str, completed: PasswordHash) -> None:
        """Store a user's hash that was completed with a SCRAM verifier."""

    def forget_answers(self) -> None:
        """Forget what is known of permissions, as answers have changed."""

    def require_held_inputs(self) -> HeldInputs:
        """Return what lets the input of a connection wait for an answer. Raises LimitReached if nothing does."""


def compiled(expression: str) -> re.Pattern[str]:
    """Compile a permission's expression; the last thousand are cached. Raises PreconditionFailed."""
    try:
        return pcre_translation.compiled(expression or r"\A\z")
    except ExpressionError as error:
        raise PreconditionFailed(f"'{expression}' is not a regular expression ({error})") from None

"""Users and permissions: answer whether a user may configure, write to, or read from a name in a virtual host.

`Access` owns the users and their logins, and, in `permission_book.py`, their permissions.
`passwords.py` describes how passwords are stored, `password_checks.py` how they are checked.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from leveret.catalogue import USER
from leveret.errors import LimitReached, PreconditionFailed
from leveret.limits import UserLimits
from leveret.security.backends import Backend, BackendChain
from leveret.security.decoys import Decoys
from leveret.security.guards import Logins
from leveret.security.http_requests import Ask, no_network
from leveret.security.password_checks import ANYWHERE, CheckOrigin, Checks, OffThread, Waiting, inline
from leveret.security.passwords import SALT_SIZE, Hashing, PasswordHash, octets_of
from leveret.security.permission_book import PermissionBook
from leveret.security.remote_permissions import HeldInputs
from leveret.security.users import User

if TYPE_CHECKING:
    from leveret.security.http_users import HttpUsers
    from leveret.security.kerberos import Acceptor
    from leveret.security.ldap_users import LdapUsers
    from leveret.security.tokens import Tokens

IMPERSONATOR: Final = "impersonator"  # the tag of users that may publish under any user-id (S089)
KEY_SIZE: Final = 32


class Remembering(Protocol):
    """A server that decides about logins or permissions, and whose answers are remembered."""

    asked: int
    failed: int
    hits: int

    @property
    def remembered(self) -> int:
        """The number of answers that are remembered."""

    def forget(self) -> int:
        """Forget every answer, and return how many there were."""


class Access(PermissionBook):
    """Every user, permission and topic permission of the node."""

    def __init__(self, random_octets: Callable[[int], bytes] = os.urandom) -> None:
        super().__init__()
        self.on_limits: Callable[[str], None] | None = None  # called when the limits of a user have changed
        self.on_deleted: Callable[[str], None] | None = None  # called when a user has been deleted
        self.loopback_users: frozenset[str] = frozenset({"guest"})
        self.anonymous_user: str | None = "guest"
        self.checks_policies = False  # a policy may only do what its maker might do to every queue
        self.logins = Logins()
        self.now: Callable[[], float] = float  # monotonic seconds; a broker replaces it by its clock
        self.tokens: Tokens | None = None  # None: tokens are not accepted
        self.off_thread: OffThread = inline  # replaced by a node, which has threads
        self.fetch: Ask = no_network  # replaced by a node, which has a network
        self.hashing = Hashing()
        self.checks = Checks(self, random_octets(KEY_SIZE))
        self.backends: Sequence[Backend] = (self.checks.check,)  # asked about passwords, in this order
        self.http_users: HttpUsers | None = None  # None: no server is asked about passwords
        self.ldap_users: LdapUsers | None = None  # None: no directory is
        self.kerberos: Acceptor | None = None  # None: tickets are not accepted
        self.held_input: HeldInputs | None = None  # None: no server is asked for permissions
        self.decoys = Decoys(random_octets(KEY_SIZE))
        self.random_octets = random_octets
        self._slow_hashes = 0  # users with one

    def add_user(
        self,
        name: str,
        password: str | bytes | None = None,
        tags: Iterable[str] = (),
        limits: UserLimits | None = None,
    ) -> User:
        """Add a user, or replace one; permissions stay. Without a password, login by password is refused.

        The password gets the quick hash: for users from files and programs. For clients there is `hash_soon`.
        """
        kept = self.hashing.quick(password, self.random_octets(SALT_SIZE)) if password else None
        return self.put_user(User(name, tags, kept, limits or UserLimits()))

    def put_user(self, user: User) -> User:
        """Add or replace a user as `add_user` does, with a known password hash (`PasswordHash.parse`)."""
        before = self._users.get(user.name)
        self._users[user.name] = user
        self._count_hash(before, -1)
        self._count_hash(user, 1)
        if self.catalogue is not None:
            self.catalogue.keep(user)
        self._tell_of_user(before, user)
        self._changed()
        if self.on_limits is not None and before is not None and before.limits != user.limits:
            self.on_limits(user.name)
        return user

    def _tell_of_user(self, before: User | None, user: User) -> None:
        if before is None:
            self.events.happened("user.created", "", {"name": user.name})
        elif before.password != user.password:
            self.events.happened("user.password.changed", "", {"name": user.name})
        if (before is None and user.tags) or (before is not None and before.tags != user.tags):
            self.events.happened("user.tags.set", "", {"name": user.name, "tags": list(user.tags)})

    def _count_hash(self, user: User | None, change: int) -> None:
        if user is None or user.password is None:
            return
        self._slow_hashes += change * user.password.is_slow
        self.decoys.count(user.password, change)

    @property
    def has_slow_hashes(self) -> bool:
        """True if any user's password takes long to check."""
        return self._slow_hashes > 0

    def delete_user(self, name: str) -> bool:
        """Delete a user with all permissions. Returns False if there is no such user."""
        if (gone := self._users.pop(name, None)) is None:
            return False
        self._count_hash(gone, -1)
        if self.catalogue is not None:
            self.catalogue.forget(gone)
        self.events.happened("user.deleted", "", {"name": name})
        if self.on_deleted is not None:
            self.on_deleted(name)
        self._drop_permissions(lambda user, host: user == name)
        self._changed()
        return True

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    def may_know(self, name: str) -> bool:
        """Return whether a user of that name may log in: it has an account, or users are also checked elsewhere."""
        elsewhere = (self.tokens, self.http_users, self.ldap_users)
        return name in self._users or any(each is not None for each in elsewhere)

    def users(self) -> list[User]:
        return sorted(self._users.values(), key=lambda user: user.name)

    def set_loopback_users(self, names: Iterable[str]) -> None:
        """Set the users that may connect only from this machine (S008)."""
        self.loopback_users = frozenset(names)
        self._changed()

    def set_anonymous_user(self, name: str | None) -> None:
        """Set the user that the mechanism ANONYMOUS logs in as; None disables it."""
        self.anonymous_user = name
        self._changed()

    def hash_soon(self, password: str | bytes, then: Callable[[PasswordHash | None], None]) -> None:
        """Hash a password that a client sets, in a thread if that takes long, and call `then` in the broker's thread.

        Without a node `then` is called before this returns. It gets None if there was not enough memory. The caller
        goes on with `put_user(User(name, tags, hash))`.
        """
        hashing = self.hashing

        def work() -> PasswordHash | None:
            try:
                return hashing.kept(password)
            except MemoryError:
                return None

        self.off_thread(work, then)

    def is_token(self, password: str | bytes, name: str | None = None) -> bool:
        """Return whether a password is to be checked as a token: by its form, or as it comes with an empty name."""
        tokens = self.tokens
        if tokens is None:
            return False
        return tokens.recognises(password) or (name == "" and tokens.introspection is not None)

    def authenticate(
        self, name: str, password: str | bytes, place: CheckOrigin = ANYWHERE
    ) -> User | Waiting | None:
        """Return the user if the password or token is right, None if not, or `Waiting` if a thread has to check it.

        `place` says where the request comes from. An empty password is always wrong. Raises LimitReached if too many
        passwords are being checked.
        """
        if self.tokens is not None and self.is_token(password, name):
            return self.tokens.authenticate(name, password, place)
        if not password or (self.http_users is None and self.ldap_users is None):
            return self.checks.check(name, octets_of(password), place)
        return BackendChain(self.backends, name, octets_of(password), place).begin()

    def set_backends(
        self, names: Sequence[str], http_users: HttpUsers | None, ldap_users: LdapUsers | None
    ) -> None:
        """Set the backends that passwords are checked by, in order: `internal`, the users here, `http` and `ldap`."""
        known: dict[str, Backend] = {"internal": self.checks.check}
        if http_users is not None:
            known["http"] = http_users.check
        if ldap_users is not None:
            known["ldap"] = ldap_users.check
        self.backends = tuple(known[name] for name in names if name in known)
        self.http_users, self.ldap_users = http_users, ldap_users

    def authenticate_token(
        self, name: str, token: bytes, place: CheckOrigin = ANYWHERE
    ) -> User | Waiting | None:
        """Return the user of what was shown as a token, None if it is refused, or `Waiting`. Raises LimitReached."""
        return None if self.tokens is None else self.tokens.authenticate(name, token, place)

    def remembered_logins(self) -> dict[str, int]:
        """Return how many logins are remembered, and how servers were asked about others."""
        found = {"passwords": self.checks.remembered}
        for name, server in self._servers():
            found |= {
                f"{name}s": server.remembered,
                f"{name}_hits": server.hits,
                f"{name}_requests": server.asked,
                f"{name}_requests_failed": server.failed,
            }
        return found

    def require_held_inputs(self) -> HeldInputs:
        """Return what lets the input of a connection wait for an answer. Raises LimitReached if nothing does."""
        if self.held_input is None:
            raise LimitReached("permissions cannot be asked for now")
        return self.held_input

    def _servers(self) -> Iterator[tuple[str, Remembering]]:
        """Yield the servers that decide about logins, each with the name of what it decides about."""
        if self.tokens is not None and self.tokens.introspection is not None:
            yield "token", self.tokens.introspection
        if self.http_users is not None:
            yield "http_user", self.http_users
            if self.http_users.permissions is not None:
                yield "http_permission", self.http_users.permissions
        if self.ldap_users is not None:
            yield "ldap_user", self.ldap_users

    def forget_logins(self) -> dict[str, int]:
        """Forget the logins that are remembered: the next ones are checked anew. Return how many there were.

        Connections that have logged in go on.
        """
        found = {"passwords": self.checks.forget()}
        return found | {f"{name}s": server.forget() for name, server in self._servers()}

    def note_verifier(self, name: str, completed: PasswordHash) -> None:
        """Store a user's hash that was completed with a SCRAM verifier, unless the password has changed meanwhile."""
        user = self._users.get(name)
        if user is None or user.password != completed:
            return
        if completed.scram is None or user.password.scram is not None:
            return
        self._users[name] = attrs.evolve(user, password=completed)
        self.decoys.count(completed, 1)
        if self.catalogue is not None and self.catalogue.has(USER, name):
            self.catalogue.keep(self._users[name])

    def may_connect(self, user: User, peer_is_loopback: bool) -> bool:
        """Return whether the user may connect from there: loopback users only from this machine (S008)."""
        return peer_is_loopback or user.name not in self.loopback_users

    def check_user_id(self, user: User, claimed: str) -> None:
        """Check that the user-id of a message is the publisher's own, or that the publisher is an impersonator (S089).

        Raises PreconditionFailed if it is neither.
        """
        if claimed != user.name and IMPERSONATOR not in self._tags_of(user):
            raise PreconditionFailed(
                f"user_id property set to '{claimed}' but authenticated user was '{user.name}'"
            )

    def _tags_of(self, user: User) -> tuple[str, ...]:
        """Return the user's present tags, or those of the token that the user logged in with."""
        return user.tags if user.scopes is not None else self._users.get(user.name, user).tags

"""Users and permissions: answer whether a user may configure, write to, or read from a name in a virtual host.

For each virtual host that a user may enter there are three regular expressions: for the names that the user may
configure, write to and read from. They are searched for, not matched whole, and the empty expression means `^$`. The
default exchange is looked up as `amq.default`. On a topic exchange two more expressions can restrict the routing keys;
if none are set for that exchange, every key is allowed.

`Access` owns all of it. `revision` rises on every change, so that a cached answer needs one comparison to be validated.
`passwords.py` describes how passwords are stored, `password_checks.py` how they are checked.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, Protocol

import attrs

from leveret.catalogue import PERMISSIONS, TOPIC_PERMISSIONS, USER, Named
from leveret.errors import AccessRefused, LimitReached, NotFound, PreconditionFailed
from leveret.limits import UserLimits
from leveret.observability.events import Events
from leveret.security.backends import Backend, BackendChain
from leveret.security.guards import Logins
from leveret.security.http_requests import Ask, no_network
from leveret.security.password_checks import ANYWHERE, CheckOrigin, Checks, OffThread, Waiting, inline
from leveret.security.passwords import SALT_SIZE, Hashing, PasswordHash, octets_of
from leveret.security.users import Permission, Permissions, TopicPermissions, User, compiled

if TYPE_CHECKING:
    from leveret.catalogue import Catalogue
    from leveret.front_end import FrontEndInputs
    from leveret.security.http_users import HttpUsers
    from leveret.security.kerberos import Acceptor
    from leveret.security.ldap_users import LdapUsers
    from leveret.security.scopes import Grants
    from leveret.security.tokens import Tokens

DEFAULT_EXCHANGE: Final = "amq.default"  # the name of the default exchange in permissions
IMPERSONATOR: Final = "impersonator"  # the tag of users that may publish under any user-id (S089)
KEY_SIZE: Final = 32
EVERYTHING: Final = frozenset({".*", "^.*", ".*$", "^.*$"})  # expressions that match every name
GRANTS_MAX: Final = 10_000  # cached answers; when there are more, the cache is emptied


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


class Access:
    """Every user, permission and topic permission of the node."""

    def __init__(self, random_octets: Callable[[int], bytes] = os.urandom) -> None:
        self.revision = 0  # rises on every change
        self.on_limits: Callable[[str], None] | None = None  # called when the limits of a user have changed
        self.loopback_users: frozenset[str] = frozenset({"guest"})
        self.anonymous_user: str | None = "guest"
        self.checks_policies = False  # a policy may only do what its maker might do to every queue
        self.catalogue: Catalogue | None = None  # stores what outlives the node
        self.events = Events()
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
        self.held_input: FrontEndInputs | None = None  # None: no server is asked for permissions
        self.scram_key = random_octets(KEY_SIZE)  # derives the salts of users that do not exist
        self.random_octets = random_octets
        self._users: dict[str, User] = {}
        self._slow_hashes = 0  # users with one
        self._permissions: dict[tuple[str, str], Permissions] = {}
        self._topic_permissions: dict[tuple[str, str, str], TopicPermissions] = {}
        self._grants: dict[tuple[str | Grants, str, Permission, str], bool] = {}  # forgotten on every change

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
        if user is not None and user.password is not None and user.password.is_slow:
            self._slow_hashes += change

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
        self._drop_permissions(lambda user, host: user == name)
        self._changed()
        return True

    def user(self, name: str) -> User | None:
        return self._users.get(name)

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
        for name, asked in self._servers():
            found |= {
                f"{name}s": asked.remembered,
                f"{name}_hits": asked.hits,
                f"{name}_requests": asked.asked,
                f"{name}_requests_failed": asked.failed,
            }
        return found

    def require_held_inputs(self) -> FrontEndInputs:
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
        return found | {f"{name}s": asked.forget() for name, asked in self._servers()}

    def note_verifier(self, name: str, completed: PasswordHash) -> None:
        """Store a user's hash that was completed with a SCRAM verifier, unless the password has changed meanwhile."""
        user = self._users.get(name)
        if user is None or user.password != completed:
            return
        if completed.scram is None or user.password.scram is not None:
            return
        self._users[name] = attrs.evolve(user, password=completed)
        if self.catalogue is not None and self.catalogue.has(USER, name):
            self.catalogue.keep(self._users[name])

    def may_connect(self, user: User, peer_is_loopback: bool) -> bool:
        """Return whether the user may connect from there: loopback users only from this machine (S008)."""
        return peer_is_loopback or user.name not in self.loopback_users

    def set_permissions(self, user: str, virtual_host: str, configure: str, write: str, read: str) -> None:
        """Let a user into a virtual host. Raises NotFound (unknown user) or PreconditionFailed (bad expression)."""
        self._require_user(user)
        permissions = Permissions(configure, write, read)
        self.add_permissions(user, virtual_host, permissions)
        if self.catalogue is not None:
            self.catalogue.keep(Named((PERMISSIONS, user, virtual_host), permissions))

    def add_permissions(self, user: str, virtual_host: str, permissions: Permissions) -> None:
        """Set permissions of a user that may not exist yet. Raises PreconditionFailed if an expression is malformed."""
        for expression in (permissions.configure, permissions.write, permissions.read):
            compiled(expression)
        self._permissions[user, virtual_host] = permissions
        self.events.happened(
            "permission.created",
            virtual_host,
            {"user": user, "vhost": virtual_host, **attrs.asdict(permissions)},
        )
        self._changed()

    def clear_permissions(self, user: str, virtual_host: str) -> bool:
        """Remove a user's permissions in a virtual host. Returns False if there were none."""
        if (user, virtual_host) not in self._permissions:
            return False
        self._drop_plain_permissions([(user, virtual_host)])
        self._changed()
        return True

    def permissions(self) -> list[tuple[str, str, Permissions]]:
        """Return user, virtual host and permissions, sorted."""
        return [(*key, self._permissions[key]) for key in sorted(self._permissions)]

    def set_topic_permissions(
        self, user: str, virtual_host: str, exchange: str, write: str, read: str
    ) -> None:
        """Restrict a user's routing keys on a topic exchange. Raises as `set_permissions` does."""
        self._require_user(user)
        exchange, permissions = exchange or DEFAULT_EXCHANGE, TopicPermissions(write, read)
        self.add_topic_permissions(user, virtual_host, exchange, permissions)
        if self.catalogue is not None:
            names = TOPIC_PERMISSIONS, user, virtual_host, exchange
            self.catalogue.keep(Named(names, permissions))

    def add_topic_permissions(
        self, user: str, virtual_host: str, exchange: str, permissions: TopicPermissions
    ) -> None:
        """Set topic permissions as `add_permissions` sets permissions."""
        for expression in (permissions.write, permissions.read):
            compiled(expression)
        self._topic_permissions[user, virtual_host, exchange] = permissions
        facts = {"user": user, "vhost": virtual_host, "exchange": exchange, **attrs.asdict(permissions)}
        self.events.happened("topic.permission.created", virtual_host, facts)
        self._changed()

    def clear_topic_permissions(self, user: str, virtual_host: str, exchange: str | None = None) -> bool:
        """Remove the restriction on one exchange, or on all of a virtual host. Returns False if there was none."""
        wanted = None if exchange is None else exchange or DEFAULT_EXCHANGE
        gone = [
            key
            for key in self._topic_permissions
            if key[:2] == (user, virtual_host) and wanted in (None, key[2])
        ]
        if not gone:
            return False
        self._drop_topic_permissions(gone)
        self._changed()
        return True

    def topic_permissions(self) -> list[tuple[str, str, str, TopicPermissions]]:
        """Return user, virtual host, exchange and permissions, sorted."""
        return [(*key, self._topic_permissions[key]) for key in sorted(self._topic_permissions)]

    def forget_virtual_host(self, virtual_host: str) -> None:
        """Remove all permissions in a virtual host that has been deleted."""
        self._drop_permissions(lambda user, host: host == virtual_host)
        self._changed()

    def forget_strangers(self) -> None:
        """Remove the permissions of users that do not exist: after a start, those that were removed from the file."""
        self._drop_permissions(lambda user, host: user not in self._users)
        self._changed()

    def _drop_permissions(self, concerns: Callable[[str, str], bool]) -> None:
        self._drop_plain_permissions([key for key in self._permissions if concerns(*key)])
        self._drop_topic_permissions([key for key in self._topic_permissions if concerns(*key[:2])])

    def _drop_plain_permissions(self, gone: Iterable[tuple[str, str]]) -> None:
        for key in gone:
            permissions = self._permissions.pop(key)
            self.events.happened("permission.deleted", key[1], {"user": key[0], "vhost": key[1]})
            if self.catalogue is not None:
                self.catalogue.forget(Named((PERMISSIONS, *key), permissions))

    def _drop_topic_permissions(self, gone: Iterable[tuple[str, str, str]]) -> None:
        for key in gone:
            permissions = self._topic_permissions.pop(key)
            facts = {"user": key[0], "vhost": key[1], "exchange": key[2]}
            self.events.happened("topic.permission.deleted", key[1], facts)
            if self.catalogue is not None:
                self.catalogue.forget(Named((TOPIC_PERMISSIONS, *key), permissions))

    def may_enter(self, user: User, virtual_host: str, address: str = "") -> bool:
        """Return whether the user has any permission record there (S015), or a scope.

        `address`: where the client comes from.
        """
        if user.scopes is not None:
            return user.scopes.enter(virtual_host, address)
        return (user.name, virtual_host) in self._permissions

    def allowed(
        self, user: User, virtual_host: str, permission: Permission, name: str, kind: str = "queue"
    ) -> bool:
        """Return whether the user has this access to the exchange or queue `name`; `kind` says which it is."""
        if user.scopes is not None and not user.scopes.is_lasting:
            return user.scopes.allow(permission.value, virtual_host, name, kind)
        asked = (user.scopes or user.name, virtual_host, permission, name)
        if (known := self._grants.get(asked)) is not None:
            return known
        if len(self._grants) >= GRANTS_MAX:
            self._grants.clear()
        granted = self._grants[asked] = self._granted(*asked)
        return granted

    def check_dead_lettering(self, user: User, virtual_host: str, exchange: str) -> None:
        """Check that a user might move messages from any queue, also one that is still to come, to an exchange.

        Whether two regular expressions match the same names cannot be told: the one of `read` must say "everything".
        Raises AccessRefused.
        """
        granted = self._permissions.get((user.name, virtual_host))
        if granted is None or granted.read not in EVERYTHING:
            raise AccessRefused(
                f"a policy with a dead-letter exchange takes messages out of queues: user '{user.name}' needs the "
                f"permission to read '.*' in vhost '{virtual_host}'"
            )
        self.check(user, virtual_host, Permission.WRITE, "exchange", exchange)

    def check(self, user: User, virtual_host: str, permission: Permission, kind: str, name: str) -> None:
        """Raise AccessRefused unless the access is `allowed` (S087, S098). `kind` is `exchange` or `queue`."""
        shown = DEFAULT_EXCHANGE if kind == "exchange" and name == "" else name
        if not self.allowed(user, virtual_host, permission, shown, kind):
            raise self._refused(permission, f"{kind} '{shown}'", virtual_host, user)

    def guards_topics(self, user: User, virtual_host: str, exchange: str) -> bool:
        """Return whether topic permissions or scopes restrict the user's routing keys on the exchange."""
        if user.scopes is not None:
            return user.scopes.guard_keys(virtual_host, exchange or DEFAULT_EXCHANGE)
        return (user.name, virtual_host, exchange or DEFAULT_EXCHANGE) in self._topic_permissions

    def topic_allowed(
        self,
        user: User,
        virtual_host: str,
        permission: Permission,
        exchange: str,
        key: str,
        client_id: str = "",
    ) -> bool:
        """Return whether the user may use a routing key; true for any key if there is no topic permission."""
        if user.scopes is not None:
            return user.scopes.allow_key(permission.value, virtual_host, exchange or DEFAULT_EXCHANGE, key)
        found = self._topic_permissions.get((user.name, virtual_host, exchange or DEFAULT_EXCHANGE))
        if found is None:
            return True
        own = {"username": user.name, "vhost": virtual_host, "client_id": client_id}
        return compiled(filled(found.expression(permission), own)).search(key) is not None

    def check_topic(
        self,
        user: User,
        virtual_host: str,
        permission: Permission,
        exchange: str,
        key: str,
        client_id: str = "",
    ) -> None:
        """Raise AccessRefused unless the key is `topic_allowed` (S088). For topic exchanges only."""
        if not self.topic_allowed(user, virtual_host, permission, exchange, key, client_id):
            shown = exchange or DEFAULT_EXCHANGE
            raise self._refused(permission, f"topic '{key}' in exchange '{shown}'", virtual_host, user)

    def _refused(self, permission: Permission, what: str, virtual_host: str, user: User) -> AccessRefused:
        facts = {"user": user.name, "permission": permission.value, "object": what}
        self.events.happened("permission.refused", virtual_host, facts)
        return refused(permission, what, virtual_host, user)

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

    def _granted(self, user: str | Grants, virtual_host: str, permission: Permission, name: str) -> bool:
        if not isinstance(user, str):
            return user.allow(permission.value, virtual_host, name)
        found = self._permissions.get((user, virtual_host))
        return found is not None and compiled(found.expression(permission)).search(name) is not None

    def _require_user(self, name: str) -> None:
        if name not in self._users:
            raise NotFound(f"no user '{name}'")

    def forget_answers(self) -> None:
        """Make all cached answers stale: a connection's user may have other scopes now."""
        self._changed()

    def _changed(self) -> None:
        self.revision += 1
        self._grants.clear()


def refused(permission: Permission, thing: str, virtual_host: str, user: User) -> AccessRefused:
    access = f"{permission.value} access to {thing} in vhost '{virtual_host}'"
    return AccessRefused(f"{access} refused for user '{user.name}'")


def filled(expression: str, own: dict[str, str]) -> str:
    """Replace the variables of a topic permission's expression by the connection's own values, escaped."""
    return re.sub(r"\{(username|vhost|client_id)\}", lambda match: re.escape(own[match[1]]), expression)

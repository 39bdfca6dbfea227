"""Users and what they may do: names and patterns to yes or no.

A user has, in each virtual host that he may enter, three regular expressions: the names of what he may configure,
write to and read from. They are searched for, not matched whole, and the empty expression means `^$`. The default
exchange is looked up as `amq.default`. On a topic exchange two more expressions can restrict the routing keys;
where nobody has set any for that exchange, every key is allowed.

`Access` owns all of it. `revision` rises on every change, so that whoever remembers an answer needs one
comparison. How passwords are kept is told in `passwords.py`, how they are checked in `checking.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Final

import attrs

from broker_core.errors import AccessRefused, NotFound, PreconditionFailed
from broker_core.limits import UserLimits
from broker_core.observability.events import Events
from broker_core.security.guards import Logins
from broker_core.security.password_checks import ANYWHERE, Checks, OffThread, Place, Waiting, inline
from broker_core.security.passwords import NOBODYS, SALT_SIZE, Hashing, PasswordHash, octets_of

if TYPE_CHECKING:
    from broker_core.durable_objects import Catalogue
    from broker_core.security.scopes import Scopes
    from broker_core.security.tokens import Tokens

DEFAULT_EXCHANGE: Final = "amq.default"  # the name under which permissions know the default exchange
IMPERSONATOR: Final = "impersonator"  # the tag of users who may publish under any user-id (S089)
KEY_SIZE: Final = 32
GRANTS_MAX: Final = 10_000  # remembered answers; a client that asks about more names starts them afresh


class Permission(Enum):
    """What is asked for. The values are the words of the error texts."""

    CONFIGURE = "configure"
    WRITE = "write"
    READ = "read"


@attrs.frozen
class User:
    """Somebody who can log in. Without `password` not by password."""

    name: str
    tags: frozenset[str] = frozenset()
    password: PasswordHash | None = attrs.field(default=None, repr=False)
    limits: UserLimits = attrs.field(factory=UserLimits)
    scopes: Scopes | None = None  # of the token he has logged in with: they decide, not his permissions
    expires_at: float | None = None  # of that token, in seconds since the epoch


@attrs.frozen
class Permissions:
    """What one user may do in one virtual host: an expression for each `Permission`."""

    configure: str
    write: str
    read: str

    def expression(self, permission: Permission) -> str:
        if permission is Permission.CONFIGURE:
            return self.configure
        return self.write if permission is Permission.WRITE else self.read


@attrs.frozen
class TopicPermissions:
    """Which routing keys one user may use on one topic exchange.

    `{username}`, `{vhost}` and `{client_id}` stand for the connection's own; they are taken literally.
    """

    write: str
    read: str

    def expression(self, permission: Permission) -> str:
        return self.write if permission is Permission.WRITE else self.read


class Access:
    """Every user, permission and topic permission of the node."""

    def __init__(self, random_octets: Callable[[int], bytes] = os.urandom) -> None:
        self.revision = 0  # rises on every change
        self.loopback_users: frozenset[str] = frozenset({"guest"})
        self.anonymous_user: str | None = "guest"
        self.catalogue: Catalogue | None = None  # told of what outlives the node
        self.events = Events()
        self.logins = Logins()
        self.now: Callable[[], float] = float  # monotonic seconds; a broker has a clock
        self.tokens: Tokens | None = None  # whoever can tell users by their tokens
        self.off_thread: OffThread = inline  # a node has threads
        self.hashing = Hashing()
        self.checks = Checks(self, random_octets(KEY_SIZE))
        self.scram_key = random_octets(KEY_SIZE)  # for those whom nobody knows
        self.random_octets = random_octets
        self._users: dict[str, User] = {}
        self._slow_hashes = 0  # of users
        self._permissions: dict[tuple[str, str], Permissions] = {}
        self._topic_permissions: dict[tuple[str, str, str], TopicPermissions] = {}
        self._grants: dict[tuple[str | Scopes, str, Permission, str], bool] = {}  # forgotten on every change

    # Users.

    def add_user(
        self,
        name: str,
        password: str | bytes | None = None,
        tags: Iterable[str] = (),
        limits: UserLimits | None = None,
    ) -> User:
        """Add a user, or replace one; permissions stay. Without a password, login by password is refused.

        The password is kept as a quick hash: for users of files and of programs. What clients bring: `hash_soon`.
        """
        kept = self.hashing.quick(password, self.random_octets(SALT_SIZE)) if password else None
        return self.put_user(User(name, frozenset(tags), kept, limits or UserLimits()))

    def put_user(self, user: User) -> User:
        """As `add_user`, for a user whose password hash is known (`PasswordHash.parse`)."""
        before = self._users.get(user.name)
        self._users[user.name] = user
        self._count_hash(before, -1)
        self._count_hash(user, 1)
        if self.catalogue is not None:
            self.catalogue.keep_user(user)
        self._tell_of_user(before, user)
        self._changed()
        return user

    def _tell_of_user(self, before: User | None, user: User) -> None:
        if before is None:
            self.events.happened("user.created", "", {"name": user.name})
        elif before.password != user.password:
            self.events.happened("user.password.changed", "", {"name": user.name})
        if (before is None and user.tags) or (before is not None and before.tags != user.tags):
            self.events.happened("user.tags.set", "", {"name": user.name, "tags": sorted(user.tags)})

    def _count_hash(self, user: User | None, change: int) -> None:
        if user is not None and user.password is not None and user.password.is_slow:
            self._slow_hashes += change

    @property
    def has_slow_hashes(self) -> bool:
        """Whether any user's password takes long to check."""
        return self._slow_hashes > 0

    def delete_user(self, name: str) -> bool:
        """Delete a user with all permissions. False if there was none."""
        if (gone := self._users.pop(name, None)) is None:
            return False
        self._count_hash(gone, -1)
        if self.catalogue is not None:
            self.catalogue.forget_user(name)
        self.events.happened("user.deleted", "", {"name": name})
        self._drop_permissions(lambda user, host: user == name)
        self._changed()
        return True

    def user(self, name: str) -> User | None:
        return self._users.get(name)

    def users(self) -> list[User]:
        return sorted(self._users.values(), key=lambda user: user.name)

    def set_loopback_users(self, names: Iterable[str]) -> None:
        """The users who may only come from this machine (S008)."""
        self.loopback_users = frozenset(names)
        self._changed()

    def set_anonymous_user(self, name: str | None) -> None:
        """Who ANONYMOUS logs in as; None: nobody."""
        self.anonymous_user = name
        self._changed()

    # Passwords.

    def hash_soon(self, password: str | bytes, then: Callable[[PasswordHash | None], None]) -> None:
        """Hash what a client brings for a user, in a thread where that takes long; then tell, in the broker's own.

        Without a node `then` is called before this returns. None: there was no memory for it.
        `put_user(User(name, tags, hash))` is what comes next.
        """
        hashing = self.hashing

        def work() -> PasswordHash | None:
            try:
                return hashing.kept(password)
            except MemoryError:
                return None

        self.off_thread(work, then)

    def is_token(self, password: str | bytes) -> bool:
        """Whether it is meant to be a token, and tokens are accepted."""
        return self.tokens is not None and self.tokens.recognises(password)

    def authenticate(
        self, name: str, password: str | bytes, place: Place = ANYWHERE
    ) -> User | Waiting | None:
        """The user, if that is the password, or a token; None if not. `Waiting` where that takes a thread.

        `place` is where it is asked for from. An empty password is nobody's. Raises LimitReached if too many passwords
        are being checked.
        """
        if self.tokens is not None and self.is_token(password):
            return self.tokens.authenticate(name, password)
        return self.checks.check(name, octets_of(password), place)

    def authenticate_password(self, name: str, password: str | bytes) -> User | None:
        """As `authenticate`, however long it takes: for programs and tests, not for the broker's thread."""
        if self.tokens is not None and self.is_token(password):
            return self.tokens.authenticate(name, password)
        user = self._users.get(name)
        kept = None if user is None else user.password
        matches = (kept or NOBODYS).matches(password)
        return user if matches and kept is not None and password else None

    def note_verifier(self, name: str, completed: PasswordHash) -> None:
        """The user has logged in with this password, and with it came what SCRAM needs."""
        user = self._users.get(name)
        if user is None or user.password != completed:
            return
        if completed.scram is None or user.password.scram is not None:
            return
        self._users[name] = attrs.evolve(user, password=completed)
        if self.catalogue is not None and self.catalogue.has("user", name):
            self.catalogue.keep_user(self._users[name])

    def may_connect(self, user: User, peer_is_loopback: bool) -> bool:
        """S008."""
        return peer_is_loopback or user.name not in self.loopback_users

    # Permissions.

    def set_permissions(self, user: str, virtual_host: str, configure: str, write: str, read: str) -> None:
        """Let a user into a virtual host. Raises NotFound (user), PreconditionFailed (expression)."""
        self._require_user(user)
        permissions = Permissions(configure, write, read)
        self.add_permissions(user, virtual_host, permissions)
        if self.catalogue is not None:
            self.catalogue.keep_permissions(user, virtual_host, permissions)

    def add_permissions(self, user: str, virtual_host: str, permissions: Permissions) -> None:
        """Put them in place, though the user may come later. Raises PreconditionFailed (expression)."""
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
        """Shut a user out of a virtual host. False if he was out."""
        if (user, virtual_host) not in self._permissions:
            return False
        self._drop_plain_permissions([(user, virtual_host)])
        self._changed()
        return True

    def permissions(self) -> list[tuple[str, str, Permissions]]:
        """User, virtual host and permissions, in order."""
        return [(*key, self._permissions[key]) for key in sorted(self._permissions)]

    def set_topic_permissions(
        self, user: str, virtual_host: str, exchange: str, write: str, read: str
    ) -> None:
        """Restrict a user's routing keys on a topic exchange. Raises as `set_permissions`."""
        self._require_user(user)
        exchange, permissions = exchange or DEFAULT_EXCHANGE, TopicPermissions(write, read)
        self.add_topic_permissions(user, virtual_host, exchange, permissions)
        if self.catalogue is not None:
            self.catalogue.keep_topic_permissions(user, virtual_host, exchange, permissions)

    def add_topic_permissions(
        self, user: str, virtual_host: str, exchange: str, permissions: TopicPermissions
    ) -> None:
        """As `add_permissions`."""
        for expression in (permissions.write, permissions.read):
            compiled(expression)
        self._topic_permissions[user, virtual_host, exchange] = permissions
        facts = {"user": user, "vhost": virtual_host, "exchange": exchange, **attrs.asdict(permissions)}
        self.events.happened("topic.permission.created", virtual_host, facts)
        self._changed()

    def clear_topic_permissions(self, user: str, virtual_host: str, exchange: str | None = None) -> bool:
        """Lift the restriction on one exchange, or on all of a virtual host. False if there was none."""
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
        """User, virtual host, exchange and permissions, in order."""
        return [(*key, self._topic_permissions[key]) for key in sorted(self._topic_permissions)]

    def forget_virtual_host(self, virtual_host: str) -> None:
        """The virtual host has been deleted, and everybody's permissions in it."""
        self._drop_permissions(lambda user, host: host == virtual_host)
        self._changed()

    def forget_strangers(self) -> None:
        """Permissions of users who are not there go: at a start, those of users whom the file names no longer."""
        self._drop_permissions(lambda user, host: user not in self._users)
        self._changed()

    def _drop_permissions(self, concerns: Callable[[str, str], bool]) -> None:
        self._drop_plain_permissions([key for key in self._permissions if concerns(*key)])
        self._drop_topic_permissions([key for key in self._topic_permissions if concerns(*key[:2])])

    def _drop_plain_permissions(self, gone: Iterable[tuple[str, str]]) -> None:
        for key in gone:
            del self._permissions[key]
            self.events.happened("permission.deleted", key[1], {"user": key[0], "vhost": key[1]})
            if self.catalogue is not None:
                self.catalogue.forget_permissions(*key)

    def _drop_topic_permissions(self, gone: Iterable[tuple[str, str, str]]) -> None:
        for key in gone:
            del self._topic_permissions[key]
            facts = {"user": key[0], "vhost": key[1], "exchange": key[2]}
            self.events.happened("topic.permission.deleted", key[1], facts)
            if self.catalogue is not None:
                self.catalogue.forget_topic_permissions(*key)

    # Questions.

    def may_enter(self, user: User, virtual_host: str) -> bool:
        """Whether the user has any permission record there (S015), or a scope."""
        if user.scopes is not None:
            return user.scopes.enter(virtual_host)
        return (user.name, virtual_host) in self._permissions

    def allowed(self, user: User, virtual_host: str, permission: Permission, name: str) -> bool:
        """Whether the user may do that to the exchange or queue `name`."""
        asked = (user.scopes or user.name, virtual_host, permission, name)
        if (known := self._grants.get(asked)) is not None:
            return known
        if len(self._grants) >= GRANTS_MAX:
            self._grants.clear()
        granted = self._grants[asked] = self._granted(*asked)
        return granted

    def check(self, user: User, virtual_host: str, permission: Permission, kind: str, name: str) -> None:
        """As `allowed`; raises AccessRefused (S087, S098). `kind` is `exchange` or `queue`."""
        shown = DEFAULT_EXCHANGE if kind == "exchange" and name == "" else name
        if not self.allowed(user, virtual_host, permission, shown):
            raise self._refused(permission, f"{kind} '{shown}'", virtual_host, user)

    def guards_topics(self, user: User, virtual_host: str, exchange: str) -> bool:
        """Whether there are topic permissions for this user there, so that not every routing key is allowed."""
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
        """Whether the user may use a routing key; any, where no topic permission says otherwise."""
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
        """As `topic_allowed`; raises AccessRefused (S088). Only for topic exchanges."""
        if not self.topic_allowed(user, virtual_host, permission, exchange, key, client_id):
            shown = exchange or DEFAULT_EXCHANGE
            raise self._refused(permission, f"topic '{key}' in exchange '{shown}'", virtual_host, user)

    def _refused(self, permission: Permission, what: str, virtual_host: str, user: User) -> AccessRefused:
        facts = {"user": user.name, "permission": permission.value, "object": what}
        self.events.happened("permission.refused", virtual_host, facts)
        return refused(permission, what, virtual_host, user)

    def check_user_id(self, user: User, claimed: str) -> None:
        """The user-id of a message is the publisher's own, unless he is an impersonator (S089).

        Raises PreconditionFailed.
        """
        if claimed != user.name and IMPERSONATOR not in self._tags_of(user):
            raise PreconditionFailed(
                f"user_id property set to '{claimed}' but authenticated user was '{user.name}'"
            )

    def _tags_of(self, user: User) -> frozenset[str]:
        """Those of now; of who has a token, the token's."""
        return user.tags if user.scopes is not None else self._users.get(user.name, user).tags

    def _granted(self, user: str | Scopes, virtual_host: str, permission: Permission, name: str) -> bool:
        if not isinstance(user, str):
            return user.allow(permission.value, virtual_host, name)
        found = self._permissions.get((user, virtual_host))
        return found is not None and compiled(found.expression(permission)).search(name) is not None

    def _require_user(self, name: str) -> None:
        if name not in self._users:
            raise NotFound(f"no user '{name}'")

    def forget_answers(self) -> None:
        """Whoever remembers what a user may do asks again: he may have other scopes now."""
        self._changed()

    def _changed(self) -> None:
        self.revision += 1
        self._grants.clear()


def refused(permission: Permission, thing: str, virtual_host: str, user: User) -> AccessRefused:
    access = f"{permission.value} access to {thing} in vhost '{virtual_host}'"
    return AccessRefused(f"{access} refused for user '{user.name}'")


def compiled(expression: str) -> re.Pattern[str]:
    """A permission's expression; `re` itself remembers the last few hundred. Raises PreconditionFailed."""
    try:
        return re.compile(expression or r"\A\Z")
    except re.error as error:
        raise PreconditionFailed(f"'{expression}' is not a regular expression ({error})") from None


def filled(expression: str, own: dict[str, str]) -> str:
    """A topic permission's expression with its variables replaced by the connection's own, taken literally."""
    return re.sub(r"\{(username|vhost|client_id)\}", lambda match: re.escape(own[match[1]]), expression)

"""The permissions of users: who may configure, write to, and read from which names in a virtual host.

For each virtual host that a user may enter there are three regular expressions: for the names that the user may
configure, write to and read from. They are searched for, not matched whole, and the empty expression means `^$`. The
default exchange is looked up as `amq.default`. On a topic exchange two more expressions can restrict the routing keys;
if none are set for that exchange, every key is allowed.

`revision` rises on every change, so that a cached answer needs one comparison to be validated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

import attrs

from leveret.catalogue import PERMISSIONS, TOPIC_PERMISSIONS, Named
from leveret.errors import AccessRefused, NotFound
from leveret.observability.events import Events
from leveret.security.users import Permission, Permissions, TopicPermissions, User, compiled

if TYPE_CHECKING:
    from leveret.catalogue import Catalogue
    from leveret.security.scopes import Grants

DEFAULT_EXCHANGE: Final = "amq.default"  # the name of the default exchange in permissions
EVERYTHING: Final = frozenset({".*", "^.*", ".*$", "^.*$"})  # expressions that match every name
GRANTS_MAX: Final = 10_000  # cached answers; when there are more, the cache is emptied


class PermissionBook:
    """Every permission and topic permission of the node's users."""

    def __init__(self) -> None:
        self.revision = 0  # rises on every change
        self.on_change: Callable[[], None] | None = None  # called on every change
        self.catalogue: Catalogue | None = None  # stores what outlives the node
        self.events = Events()
        self._users: dict[str, User] = {}
        self._permissions: dict[tuple[str, str], Permissions] = {}
        self._topic_permissions: dict[tuple[str, str, str], TopicPermissions] = {}
        self._grants: dict[tuple[str | Grants, str, Permission, str], bool] = {}  # forgotten on every change

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

    # Answers.

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
        question = (user.scopes or user.name, virtual_host, permission, name)
        if (known := self._grants.get(question)) is not None:
            return known
        if len(self._grants) >= GRANTS_MAX:
            self._grants.clear()
        granted = self._grants[question] = self._granted(*question)
        return granted

    def _granted(self, user: str | Grants, virtual_host: str, permission: Permission, name: str) -> bool:
        if not isinstance(user, str):
            return user.allow(permission.value, virtual_host, name)
        found = self._permissions.get((user, virtual_host))
        return found is not None and compiled(found.expression(permission)).search(name) is not None

    def check(self, user: User, virtual_host: str, permission: Permission, kind: str, name: str) -> None:
        """Raise AccessRefused unless the access is `allowed` (S087, S098). `kind` is `exchange` or `queue`."""
        shown = DEFAULT_EXCHANGE if kind == "exchange" and name == "" else name
        if not self.allowed(user, virtual_host, permission, shown, kind):
            raise self._refused(permission, f"{kind} '{shown}'", virtual_host, user)

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

    def _require_user(self, name: str) -> None:
        if name not in self._users:
            raise NotFound(f"no user '{name}'")

    def forget_answers(self) -> None:
        """Make all cached answers stale: a connection's user may have other scopes now."""
        self._changed()

    def _changed(self) -> None:
        self.revision += 1
        self._grants.clear()
        if self.on_change is not None:
            self.on_change()


def refused(permission: Permission, thing: str, virtual_host: str, user: User) -> AccessRefused:
    access = f"{permission.value} access to {thing} in vhost '{virtual_host}'"
    return AccessRefused(f"{access} refused for user '{user.name}'")


def filled(expression: str, own: dict[str, str]) -> str:
    """Replace the variables of a topic permission's expression by the connection's own values, escaped."""
    return re.sub(r"\{(username|vhost|client_id)\}", lambda match: re.escape(own[match[1]]), expression)

"""The authority of a client: its user, the virtual host that it is in, and the checks of what it may do there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from leveret.errors import NotAllowed
from leveret.security.permission_book import DEFAULT_EXCHANGE
from leveret.security.users import Permission, User
from leveret.settling import Waiter

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.exchanges.exchange_type import Exchange
    from leveret.queues.queue import Queue
    from leveret.values import Table
    from leveret.virtual_host import VirtualHost

CONFIGURE: Final = Permission.CONFIGURE
WRITE: Final = Permission.WRITE
READ: Final = Permission.READ


class Authority(Waiter):
    """One user in one virtual host, and what its permissions allow."""

    host: VirtualHost  # set by `Client.enter`

    def __init__(self, broker: Broker, user: User) -> None:
        self.broker = broker
        self.user = user
        self.client_id = ""  # that the other end gave itself, for topic permissions; empty: none
        self.address = ""  # of the other end, where permissions may depend on it
        self.is_disowned = False  # its user's account has been deleted since the login

    def require_entry(self, user: User, virtual_host: str) -> None:
        if not self.broker.access.may_enter(user, virtual_host, self.address):
            raise NotAllowed(f"access to vhost '{virtual_host}' refused for user '{user.name}'")

    def change_user(self, user: User) -> None:
        """Continue with a fresh secret (X008). Raises NotAllowed if it is another user's, or no longer allows entry."""
        if user.name != self.user.name:
            raise NotAllowed(f"the new secret is not one of user '{self.user.name}'")
        self.require_entry(user, self.host.name)
        if user.scopes is not self.user.scopes:
            self.broker.access.forget_answers()
        self.user = user

    def user_deleted(self, name: str) -> None:
        """Note that the account of this name has been deleted. A token is an account of its own."""
        if self.user.name == name and self.user.scopes is None:
            self.is_disowned = True

    @property
    def expires_at(self) -> float | None:
        """The time at which the user's token expires, in monotonic seconds; None: it never does, or there is none."""
        if self.user.expires_at is None:
            return None
        return self.broker.now + self.user.expires_at - self.broker.clock.wall()

    def acts(self) -> None:
        """Attribute the events that follow to this user."""
        self.broker.events.actor = self.user.name

    def happened(self, name: str, facts: Table) -> None:
        self.acts()
        self.broker.events.happened(name, self.host.name, facts)

    # Permissions.

    def check(self, permission: Permission, kind: str, name: str) -> None:
        self.broker.access.check(self.user, self.host.name, permission, kind, name)

    def check_any(self, kind: str, name: str) -> None:
        access = self.broker.access
        label = DEFAULT_EXCHANGE if kind == "exchange" and name == "" else name
        user, host = self.user, self.host.name
        if not any(access.allowed(user, host, permission, label, kind) for permission in Permission):
            self.check(CONFIGURE, kind, name)

    def check_topic(self, permission: Permission, exchange: Exchange, key: str) -> None:
        if exchange.type.name == "topic":
            access = self.broker.access
            access.check_topic(self.user, self.host.name, permission, exchange.name, key, self.client_id)

    def check_target(self, kind: str, name: str, target: str | None) -> None:
        """Check read on the thing and write on its alternate or dead-letter exchange, as messages pass between them."""
        if target is not None:
            self.check(READ, kind, name)
            self.check(WRITE, "exchange", target)

    def require_declarable(self, kind: str, name: str, target: str | None = None) -> None:
        """Check the permissions that declaring or deleting a thing needs. Raises AccessRefused.

        For callers that look at the existing thing first. `target`: its alternate or dead-letter exchange.
        """
        self.check(CONFIGURE, kind, name)
        self.check_target(kind, name, target)

    def require_readable(self, name: str) -> None:
        """Raise AccessRefused if the user may not consume from a queue. For callers that do something else first."""
        self.check(READ, "queue", name)

    def may_still_read(self, queue: Queue) -> bool:
        """True if a consumer may continue after permissions or credentials have changed (X008)."""
        return self.broker.access.allowed(self.user, self.host.name, READ, queue.name)

    def require_user_id(self, claimed: str) -> None:
        """Raise PreconditionFailed if a message's user-id property is not the user's own name (S089)."""
        self.broker.access.check_user_id(self.user, claimed)

    def guards_topics(self, exchange: Exchange) -> bool:
        """True if topic permissions apply to this exchange, so that each key needs `check_topics`."""
        return exchange.type.name == "topic" and self.broker.access.guards_topics(
            self.user, self.host.name, exchange.name
        )

    def check_topics(self, exchange: Exchange, keys: Iterable[str]) -> None:
        """Check the topic permission of each routing key; raises AccessRefused for the first one refused (S088)."""
        for key in keys:
            self.check_topic(WRITE, exchange, key)

"""Connections that are to be the only ones of their containers in a virtual host, as those of JMS clients with an id.

    an open that asks for it, or that meets one that did ──> refused: amqp:invalid-field, the container-id
                     with the policy close-existing ──> those before it are closed, if they are the same user's

So no other connection steals, or ends, a durable subscription under its consumer. Connections that do not ask for it
share a container-id as they like. Source: AMQP Enforcing Connection Uniqueness Version 1.0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import attrs

from leveret.guests import Guest
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.types import Symbol, Value

if TYPE_CHECKING:
    from leveret.virtual_host import VirtualHost

CAPABILITY: Final = "sole-connection-for-container"
POLICY: Final = "sole-connection-enforcement-policy"  # a property of an open
CLOSE_EXISTING: Final = 1
REFUSED: Final[dict[str, Value]] = {"invalid-field": Symbol("container-id")}
REPLACED: Final[dict[str, Value]] = {"sole-connection-enforcement": True}


@attrs.frozen(eq=False)
class ContainerConnection:
    """A connection of a container, as the others of that container see it."""

    container: str
    user: str
    end: Callable[[AmqpError], None]
    asks: bool  # to be the only one

    @classmethod
    def of(cls, open: p.Open, user: str, end: Callable[[AmqpError], None]) -> ContainerConnection:
        return cls(open.container_id, user, end, CAPABILITY in open.desired_capabilities)


class Containers(Guest):
    """The open connections of a virtual host, by their containers."""

    def __init__(self, host: VirtualHost) -> None:
        self._known: dict[str, dict[ContainerConnection, None]] = {}

    def enter(self, connection: ContainerConnection, policy: Value) -> None:
        """Add a connection. Raises AmqpError if its container has another, and either is to be the only one.

        `policy`: what its open says of those before it.
        """
        known = self._known.get(connection.container, {})
        others = [other for other in known if other.asks or connection.asks]
        replaces = connection.asks and policy == CLOSE_EXISTING
        if others and not (replaces and all(other.user == connection.user for other in others)):
            why = f"container-id '{connection.container:.100}' is in use by another connection"
            raise AmqpError(p.INVALID_FIELD, why, Ends.CONNECTION, REFUSED)
        for other in others:
            why = f"container-id '{other.container:.100}' is in use by a newer connection"
            self.leave(other)
            other.end(AmqpError(p.RESOURCE_LOCKED, why, Ends.CONNECTION, REPLACED))
        self._known.setdefault(connection.container, {})[connection] = None

    def leave(self, connection: ContainerConnection) -> None:
        """Remove a connection that has ended, if it is there."""
        if (known := self._known.get(connection.container)) is not None:
            known.pop(connection, None)
            if not known:
                del self._known[connection.container]

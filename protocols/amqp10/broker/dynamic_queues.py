"""Queues that an attach creates: dynamic nodes, and the queues that addresses of version 1 declare.

Every function checks permissions through the client and raises `Failure`; `AmqpError` where AMQP 1.0 has a condition of
its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import Symbol, Value, array_of

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.queues.queue import Queue

TEMPORARY_QUEUE: Final = "temporary-queue"  # the capability of our dynamic nodes (S211)
VOLATILE_QUEUE: Final = "rabbitmq:volatile-queue"  # the capability of direct replies
NAMED_SIZE_MAX: Final = 150  # bytes of container and link below which a queue is named after them
DYNAMIC_NODE: Final[dict[str, Value]] = {
    "lifetime-policy": p.DeleteOnClose(),
    "supported-dist-modes": array_of([Symbol(p.STD_DIST_MODE_MOVE), Symbol(p.STD_DIST_MODE_COPY)]),
}


def require_temporary_queue(capabilities: Sequence[str], terminus: str) -> None:
    """Require the capability temporary-queue of a dynamic terminus, `source` or `target`: there are no others
    (X062). A source may leave it out, as in Proton's and rhea's examples of requests."""
    if TEMPORARY_QUEUE not in capabilities and (capabilities or terminus != "source"):
        wanted = ", ".join(capabilities) or "no capability"
        raise AmqpError(p.NOT_IMPLEMENTED, f"Dynamic {terminus} not supported: {wanted}")


def wants_replies(source: p.Source, settled: bool) -> bool:
    """Return whether a dynamic source asks for direct replies, without a queue that keeps them.

    Raises AmqpError if what else it asks for does not go with that (RabbitMQ's documentation of direct reply-to).
    """
    if VOLATILE_QUEUE not in source.capabilities:
        return False
    plain = source.durable == p.TERMINUS_DURABILITY_NONE and not source.timeout
    if settled and plain and source.expiry_policy == p.TERMINUS_EXPIRY_POLICY_LINK_DETACH:
        return True
    if TEMPORARY_QUEUE in source.capabilities:
        return False
    needs = "snd-settle-mode settled, expiry-policy link-detach, and neither a durable source nor a timeout"
    raise AmqpError(p.NOT_IMPLEMENTED, f"Dynamic source not supported: {VOLATILE_QUEUE} needs {needs}")


def dynamic_queue(client: Client, container: str, link: str) -> Queue:
    """Declare a queue for this connection alone, named after the peer's container and link (S211)."""
    named = len(container.encode()) + len(link.encode()) < NAMED_SIZE_MAX
    prefix = f"amq.dyn-{container}-{link}-" if named else "amq.dyn.gen-"
    return client.declare_queue("", exclusive=True, prefix=prefix)


def declared_queue(client: Client, name: str, durability: int, temporary: bool = False) -> Queue:
    """Return the queue of that name, declared if needed (S216, S218, S221). `temporary`: for this connection alone."""
    if temporary:
        return client.declare_queue(name, exclusive=True)
    if (there := client.host.queues.get(name)) is None:
        return client.declare_queue(name, durable=durability != p.TERMINUS_DURABILITY_NONE)
    return client.declare_queue(name, there.durable, there.exclusive, there.auto_delete, there.arguments)

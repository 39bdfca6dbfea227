"""Names of nodes as addresses: `queue`, `exchange` and `exchange/key`, as the brokers of Apache Qpid look them up.

Where the setting `protocols.amqp10.addresses.nodes` is on, an address that does not begin with `/` is looked up in the
virtual host. Nothing in it is encoded.

| there is                            | as a target                           | as a source                           |
|-------------------------------------|---------------------------------------|---------------------------------------|
| a queue of that name                | that queue                            | that queue                            |
| an exchange of that name            | that exchange, each message's subject | a new queue, bound with the empty key |
| an exchange named up to the first / | that exchange, the key behind the `/` | a new queue, bound with the key       |

If several are found, the capability `queue` or `topic` of the terminus tells which one is meant; without it the address
is refused as ambiguous. If none is, a name without `/` is an address of version 1, where these are permitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import attrs

from leveret.protocols.amqp10.broker import addresses
from leveret.protocols.amqp10.broker.addresses import NAME_SIZE_MAX, SHOWN_MAX, SourceAddress, TargetAddress
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError

if TYPE_CHECKING:
    from leveret.protocols.amqp10.broker.session import ServedSession
    from leveret.virtual_host import VirtualHost

QUEUE: Final = "queue"  # capabilities
TOPIC: Final = "topic"


@attrs.frozen
class Node:
    """A queue, or an exchange and a key."""

    queue: str | None = None
    exchange: str = ""
    key: str | None = None  # None: the address has none


def look_up(host: VirtualHost, address: str, capabilities: Sequence[str] = ()) -> Node | None:
    """Return the node that an address names, or None if there is none. Raises AmqpError if there are several."""
    exchange, slash, key = address.partition("/")
    found: list[Node] = []
    if TOPIC not in capabilities and address in host.queues:
        found.append(Node(queue=address))
    if QUEUE not in capabilities:
        if address in host.exchanges:
            found.append(Node(exchange=address))
        if slash and exchange in host.exchanges:
            found.append(Node(exchange=exchange, key=key))
    if len(found) > 1:
        raise _ambiguous(address, found)
    return found[0] if found else None


def target_at(session: ServedSession, target: p.Target) -> TargetAddress:
    """Return the meaning of a target's address, which is not null. Raises AmqpError."""
    node = _node(session, target.address, target.capabilities)
    if node is None:
        return addresses.target(target.address, session.connection.address_v1)
    return _target(node)


def to(session: ServedSession, address: str) -> TargetAddress:
    """Return the meaning of the `to` of a message to the anonymous terminus. Raises AmqpError."""
    if not (session.connection.address_nodes and _is_name(address)):
        return addresses.to(address)
    try:
        node = look_up(session.client.host, address)
    except AmqpError as error:
        raise AmqpError(p.PRECONDITION_FAILED, error.description) from None
    return addresses.to(address) if node is None else _target(node)


def source_at(session: ServedSession, source: p.Source, is_subscription: bool = False) -> SourceAddress:
    """Return the meaning of a source's address, unless it is dynamic. Raises AmqpError."""
    node = _node(session, source.address, source.capabilities)
    if node is None:
        meaning = addresses.subscription if is_subscription else addresses.source
        return meaning(source.address, session.connection.address_v1)
    if node.queue is not None:
        return SourceAddress(node.queue)
    return SourceAddress(exchange=node.exchange, key=node.key or "")


def _is_name(address: object) -> bool:
    return type(address) is str and address != "" and not address.startswith("/")


def _node(session: ServedSession, address: object, capabilities: Sequence[str]) -> Node | None:
    """Return the node that a terminus names, or None if the address is not of this kind. Raises AmqpError."""
    if not (session.connection.address_nodes and _is_name(address)):
        return None
    text, host = str(address), session.client.host
    if len(text) > 2 * NAME_SIZE_MAX + 1:
        raise AmqpError(p.INVALID_FIELD, f"Attach refused: the address '{text[:SHOWN_MAX]}...' is too long")
    node = look_up(host, text, capabilities)
    if node is None and ("/" in text or not session.connection.address_v1):
        raise AmqpError(p.NOT_FOUND, f"no queue or exchange '{text[:SHOWN_MAX]}' in vhost '{host.name}'")
    if node is not None and node.key is not None and len(node.key.encode()) > NAME_SIZE_MAX:
        raise AmqpError(p.INVALID_FIELD, f"Attach refused: a key has more than {NAME_SIZE_MAX} octets")
    return node


def _target(node: Node) -> TargetAddress:
    if node.queue is not None:
        return TargetAddress("", node.queue, queue=node.queue)
    return TargetAddress(node.exchange, node.key or "", by_subject=node.key is None)


def _ambiguous(address: str, found: Sequence[Node]) -> AmqpError:
    kinds = [
        f"queue '{node.queue}'"
        if node.queue is not None
        else f"exchange '{node.exchange}'" + ("" if node.key is None else f" with key '{node.key}'")
        for node in found
    ]
    text = f"the address '{address}' is ambiguous: {' or '.join(kinds)}"
    return AmqpError(p.INVALID_FIELD, f"Attach refused: {text}"[: 4 * SHOWN_MAX])

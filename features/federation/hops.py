"""The marks by which messages and bindings do not go around in circles: over which links they have come.

`x-received-from` is a header of messages, `x-bound-from` an argument of bindings: lists of tables, the latest in front,
with the name of a broker and of a virtual host. The internal exchange of a link has in its arguments how far messages
may go, and to whom. Source: RabbitMQ's federation plug-in, whose marks these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from leveret.values import Value

if TYPE_CHECKING:
    from leveret.message import Message

RECEIVED_FROM: Final = "x-received-from"
BOUND_FROM: Final = "x-bound-from"
CLUSTER: Final = "cluster-name"
HOST: Final = "vhost"
INTERNAL_TYPE: Final = "x-federation-upstream"  # of internal exchanges, whose arguments follow
MAX_HOPS: Final = "x-max-hops"
DOWNSTREAM_NAME: Final = "x-downstream-name"
DOWNSTREAM_HOST: Final = "x-downstream-vhost"


def records_in(value: Value) -> Sequence[Value] | None:
    """Return the records of a mark; None if there is none, or something else in its place."""
    return value if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray) else None


def has_been(records: Sequence[Value], cluster: str | None, virtual_host: str | None) -> bool:
    """Return whether one of the records is of this broker and virtual host."""
    return any(
        isinstance(each, Mapping) and each.get(CLUSTER) == cluster and each.get(HOST) == virtual_host
        for each in records
    )


def may_go_on(message: Message, max_hops: int, cluster: str | None, virtual_host: str | None) -> bool:
    """Return whether a message may go over one more link, to this broker and virtual host."""
    records = records_in(message.header(RECEIVED_FROM))
    return records is None or (len(records) < max_hops and not has_been(records, cluster, virtual_host))

"""The section for several nodes of which one serves, while the others stand by."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import attrs

from leveret.config.records import Record, key
from leveret.config.types import (
    MANY,
    Address,
    AnyAddress,
    Duration,
    Flag,
    Limit,
    ListeningAddress,
    Problem,
    Text,
    printed,
)

SUSPEND_CLOSE_LEASES: Final = 4  # after which a suspended node closes connections, as another may serve
LEASE_TTL_MIN_S: Final = 3.0  # a busy machine keeps a thread waiting for a second now and then
NAME: Final = Text("1 to 63 letters, digits, dots, hyphens or underscores", r"[A-Za-z0-9._-]{1,63}")
NODE_NAME_MAX: Final = 36  # what PostgreSQL keeps of the name of a session has to end with all of it
NODE: Final = Text(
    f"1 to {NODE_NAME_MAX} letters, digits, dots, hyphens or underscores",
    rf"[A-Za-z0-9._-]{{1,{NODE_NAME_MAX}}}",
)


@attrs.frozen(kw_only=True, eq=False, repr=False)
class ClusterSettings(Record):
    """Several nodes with one store in PostgreSQL: one serves, the others stand by ([Clustering](clustering.md)).

    Without `name` there is no cluster. All nodes have the same configuration, but for `node` and `address`.
    """

    name: str | None = key(NAME, "The name of the cluster, which all of its nodes have.", None)
    node: str | None = key(
        NODE, "The name of this node, of which there is one in the cluster; without it the host's name.", None
    )
    address: AnyAddress | None = key(
        ListeningAddress(),
        "The address at which the other nodes reach this one, and on which it accepts their relayed clients. Only "
        "nodes of the cluster are let in.",
        None,
    )
    lease_ttl: float = key(
        Duration(LEASE_TTL_MIN_S, 300),
        "How long the serving node may give no sign of life before another takes over; without a successful commit "
        "for so long it delivers and confirms nothing more. Less for a quicker takeover, more where nodes or the "
        "database pause for longer.",
        5.0,
    )
    suspend_close: float | None = key(
        Duration(1, 86_400),
        "How long a node that cannot reach its database keeps its clients' connections open, unless another node "
        "takes over and tells it so. Without it four times `lease_ttl`. More where clients had better wait than "
        "connect again.",
        None,
    )
    relay: bool = key(
        Flag(),
        "Whether a node that stands by passes clients on to the one that serves; if not, it closes their connections. "
        "False behind a load balancer that looks for the node that serves.",
        True,
    )
    relay_connections_max: int | None = key(
        Limit(0, MANY),
        "Clients that a node that stands by passes on at a time; further ones are refused. Without it as many as its "
        "file descriptors allow, of which each takes two. A number where the machine has other work.",
        None,
    )

    @property
    def is_on(self) -> bool:
        """Return whether this node is one of a cluster."""
        return self.name is not None

    @property
    def suspend_close_s(self) -> float:
        """Return how long a suspended node keeps connections open, in seconds."""
        return SUSPEND_CLOSE_LEASES * self.lease_ttl if self.suspend_close is None else self.suspend_close

    def contradictions(self) -> Iterator[Problem]:
        if self.name is None:
            for field in ("node", "address"):
                if (value := getattr(self, field)) is not None:
                    yield Problem(field, printed(str(value)), "nothing, as there is no cluster.name")
            return
        if self.address is None:
            yield Problem("address", "nothing", "HOST:PORT, as there is a cluster.name")
        elif not isinstance(self.address, Address):
            yield Problem("address", printed(str(self.address)), "HOST:PORT, which other machines can reach")
        elif self.address.host in ("0.0.0.0", "::"):
            yield Problem("address", printed(str(self.address)), "the address of one machine")

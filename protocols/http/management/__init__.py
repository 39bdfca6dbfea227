"""RabbitMQ's HTTP API: a module with `ROUTES` for each kind of thing."""

from __future__ import annotations

from typing import Final

from protocols.http.management import (
    bindings,
    channels,
    cluster,
    connections,
    consumers,
    deduplication,
    definitions,
    delayed,
    deliveries,
    exchanges,
    features,
    health,
    limits,
    messages,
    move,
    nodes,
    overview,
    parameters,
    peek,
    permissions,
    policies,
    queues,
    shovels,
    users,
    vhosts,
    whoami,
)
from protocols.http.server.request import Route

ROUTES: Final[tuple[Route, ...]] = (
    *whoami.ROUTES,
    *features.ROUTES,
    *overview.ROUTES,
    *nodes.ROUTES,
    *health.ROUTES,
    *cluster.ROUTES,
    *connections.ROUTES,
    *channels.ROUTES,
    *deliveries.ROUTES,
    *consumers.ROUTES,
    *deduplication.ROUTES,
    *exchanges.ROUTES,
    *queues.ROUTES,
    *bindings.ROUTES,
    *messages.ROUTES,
    *peek.ROUTES,
    *delayed.ROUTES,
    *move.ROUTES,
    *vhosts.ROUTES,
    *users.ROUTES,
    *permissions.ROUTES,
    *policies.ROUTES,
    *parameters.ROUTES,
    *shovels.ROUTES,
    *limits.ROUTES,
    *definitions.ROUTES,
)

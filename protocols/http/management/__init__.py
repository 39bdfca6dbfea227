"""RabbitMQ's HTTP API: one module for each kind of thing, each with its `ROUTES`."""

from __future__ import annotations

from typing import Final

from protocols.http.asked import Route
from protocols.http.management import (
    bindings,
    channels,
    connections,
    consumers,
    definitions,
    exchanges,
    health,
    limits,
    messages,
    moving,
    nodes,
    overview,
    parameters,
    permissions,
    policies,
    queues,
    users,
    vhosts,
    whoami,
)

ROUTES: Final[tuple[Route, ...]] = (
    *overview.ROUTES,
    *nodes.ROUTES,
    *connections.ROUTES,
    *channels.ROUTES,
    *consumers.ROUTES,
    *queues.ROUTES,
    *exchanges.ROUTES,
    *bindings.ROUTES,
    *whoami.ROUTES,
    *vhosts.ROUTES,
    *users.ROUTES,
    *permissions.ROUTES,
    *policies.ROUTES,
    *parameters.ROUTES,
    *limits.ROUTES,
    *definitions.ROUTES,
    *health.ROUTES,
    *messages.ROUTES,
    *moving.ROUTES,
)

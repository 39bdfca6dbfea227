"""RabbitMQ's HTTP API: one module for each kind of thing, each with its `ROUTES`."""

from __future__ import annotations

from typing import Final

from protocols.http.asked import Route
from protocols.http.management import (
    definitions,
    health,
    limits,
    messages,
    moving,
    parameters,
    permissions,
    policies,
    users,
    vhosts,
    whoami,
)

ROUTES: Final[tuple[Route, ...]] = (
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

"""RabbitMQ's HTTP API: one module for each kind of thing, each with its `ROUTES`."""

from __future__ import annotations

from typing import Final

from protocols.http.asked import Route

ROUTES: Final[tuple[Route, ...]] = ()

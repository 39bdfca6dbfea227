"""Serve metrics to Prometheus."""

from __future__ import annotations

from typing import Final

from leveret.protocols.http.metrics.endpoint import detailed, metrics, per_object
from leveret.protocols.http.server.request import Level, Route

ROUTES: Final = (
    Route("GET", "/metrics", Level.MONITORING, metrics),
    Route("GET", "/metrics/per-object", Level.MONITORING, per_object),
    Route("GET", "/metrics/detailed", Level.MONITORING, detailed),
)

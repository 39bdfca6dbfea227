"""What there is to measure, for Prometheus."""

from __future__ import annotations

from typing import Final

from protocols.http.asked import Route

ROUTES: Final[tuple[Route, ...]] = ()

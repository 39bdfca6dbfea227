"""The web page: its files, and the routes that serve them."""

from __future__ import annotations

from typing import Final

from protocols.http.asked import Route

ROUTES: Final[tuple[Route, ...]] = ()

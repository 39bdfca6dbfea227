"""Serve the web page: its files and routes."""

from __future__ import annotations

from protocols.http.ui.files import ROUTES, is_wanted, page

__all__ = ["ROUTES", "is_wanted", "page"]

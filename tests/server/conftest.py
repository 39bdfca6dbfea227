"""For the server's tests: the broker that most of them begin with."""

from __future__ import annotations

from tests.core.conftest import bench, queue, small

__all__ = ["bench", "queue", "small"]

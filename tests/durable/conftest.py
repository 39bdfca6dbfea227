"""For the store's tests: the site that most of them begin with, and pages of three messages."""

from __future__ import annotations

import pytest

from leveret.queues.queue import Queue
from tests.durable.paged import small
from tests.durable.site import Site

__all__ = ["small"]


@pytest.fixture
def site() -> Site:
    return Site()


@pytest.fixture
def queue(site: Site) -> Queue:
    return site.queue()

"""For the core's tests: the broker that most of them begin with."""

from __future__ import annotations

import pytest

from broker_core.queues.queue import Queue
from tests.harness.bench import CoreBench
from tests.store.paged import small

__all__ = ["small"]


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench()


@pytest.fixture
def queue(bench: CoreBench) -> Queue:
    return bench.queue()

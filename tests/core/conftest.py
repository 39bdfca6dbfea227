"""For the core's tests: the broker that most of them begin with."""

from __future__ import annotations

import pytest

from leveret.queues.queue import Queue
from tests.durable.paged import small
from tests.harness.bench import CoreBench

__all__ = ["small"]


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench()


@pytest.fixture
def queue(bench: CoreBench) -> Queue:
    return bench.queue()

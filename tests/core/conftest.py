"""For the core's tests: the broker that most of them begin with."""

from __future__ import annotations

import pytest

from tests.harness.bench import CoreBench


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench()

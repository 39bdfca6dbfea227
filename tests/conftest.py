"""For all tests: how hard Hypothesis tries, and no silent skips on a build server."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.harness.postgres import database, own_pair, pair_alone, postgres_pair, schema_of_worker, turn

__all__ = ["database", "own_pair", "pair_alone", "postgres_pair", "schema_of_worker", "turn"]

settings.register_profile("dev", max_examples=50, deadline=None)
# A build says the same twice: what it tries does not depend on chance. The nightly run looks further.
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
# The same, for tests that have just run compiled: the first of the same examples.
settings.register_profile("again", max_examples=20, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=200, deadline=None)  # of `make nightly`
settings.register_profile(
    "nightly", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
settings.load_profile(PROFILE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Use a worker for each core, and one more in the compiled pass: it waits for processes, browsers and Spark."""
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return cores + (os.environ.get("LEVERET_TESTED") == "compiled")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """10 000 examples take their time: up to an hour, unless a test says otherwise."""
    if PROFILE == "nightly":
        for item in items:
            item.add_marker(pytest.mark.timeout(3600))


def pytest_sessionstart() -> None:
    """Collect tests without the garbage collector: it would walk through twenty thousand of them, and free nothing."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Collect garbage again, and less often than usual, without walking through the tests."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def frozen_heap() -> None:
    """Keep the collector off what earlier modules have left: twenty thousand tests, and what compiled brokers leak.

    A collection by the tests of a module then costs milliseconds, no longer a second.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def log_level() -> Iterator[None]:
    """A reload sets the level of the whole process; the next test begins without."""
    logger = logging.getLogger("leveret")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With CI set, a client that is missing is a failure: nobody reads the list of skipped tests there."""
    report = yield
    if os.environ.get("CI") and report.skipped and item.get_closest_marker("interop") is not None:
        report.outcome = "failed"
        report.longrepr = f"skipped, although CI is set: {report.longrepr}"
    return report

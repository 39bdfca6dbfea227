"""For all tests: how hard Hypothesis tries, and no silent skips on a build server."""

from __future__ import annotations

import gc
import logging
import os
from collections.abc import Generator
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Final

import pytest
from hypothesis import HealthCheck, settings

from leveret.observability.log_levels import CATEGORIES, ROOT
from leveret.server.node.build_info import built
from tests.harness.postgres import database, own_pair, pair_alone, postgres_pair, schema_of_worker, turn
from tests.harness.seldom import spark_jobs

__all__ = ["database", "own_pair", "pair_alone", "postgres_pair", "schema_of_worker", "turn"]

settings.register_profile("dev", max_examples=50, deadline=None)
# A build says the same twice: what it tries does not depend on chance. The nightly run looks further.
settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True)
# The first quarter of these, where `make test` runs quick tests compiled: all would take half of their time, and `make
# rest` tries them, plain.
settings.register_profile("quarter", max_examples=13, deadline=None, derandomize=True)
settings.register_profile("long", max_examples=200, deadline=None)  # of `make nightly`
settings.register_profile(
    "nightly", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
PROFILE = os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "dev")
settings.load_profile(PROFILE)

HERE: Final = Path(__file__).parent
# A third of the tests, and most of the time: processes, browsers, clients, servers, Spark. Their results rarely depend
# on how the code was built, so that only `make nightly` runs them twice.
EXPENSIVE: Final = (
    "browser", "server/cluster/test_commands.py", "server/cluster/test_member.py", "crash", "ha", "interop", "living",
    "perf/test_loads.py", "perf/test_loads10.py", "pipeline", "security/test_strangers.py", "durable/store/postgres",
    "durable/store/test_damage.py", "durable/store/test_synced.py", "system", "tls", "test_install.py", "test_site.py",
)  # fmt: skip
# What looks at the source, its pages and charts says the same, however that was built.
SOURCE: Final = (
    "test_architecture.py", "test_chart.py", "test_compiled_rules.py", "test_deploy.py", "test_docstrings.py",
    "test_project.py", "test_statements.py",
)  # fmt: skip
LOGGERS: Final = [logging.getLogger(name) for name in (ROOT, *(f"{ROOT}.{each}" for each in CATEGORIES))]
COMMON: Final = ("spark", "browser")  # fixtures that start what serves all tests that want it
# Where `make test` has a real Spark read and write. What else wants the fixture `spark` is `seldom`: a minute a file.
SPARK: Final = ("pipeline/test_sink_spark.py", "pipeline/test_spark.py")


# The parts of all tests. `make test` runs the first three, and `make rest` the others: plain, what has run compiled.
PARTS: Final = {
    "source": "what looks at the source, and what holds of plain Python only",
    "quick": "what is neither of that part nor takes long",
    "slow": "what takes long, but for what finds seldom",
    "seldom": "what takes long and finds seldom",
    "cheap": "what does not take long, or holds of plain Python only, but for what looks at the source",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    help_ = "; ".join(f"{name}: {what}" for name, what in PARTS.items())
    parser.getgroup("leveret").addoption("--part", choices=PARTS, help=help_)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out files that have nothing of the part that is asked for."""
    part, path = config.getoption("part"), collection_path
    if part is None or not path.name.startswith("test_") or not path.is_relative_to(HERE):
        return None
    is_source = str(path.relative_to(HERE)) in SOURCE
    if part == "source":
        return (not is_source and (is_expensive(path) or "plain_only" not in path.read_text())) or None
    if part == "seldom":
        return not any(word in path.read_text() for word in ("seldom", "spark")) or None
    is_left_out = {
        "quick": is_expensive(path),
        "slow": not is_expensive(path),
        "cheap": is_expensive(path) and "plain_only" not in path.read_text(),
    }
    return is_source or is_left_out[part] or None


def is_of(part: str, item: pytest.Item) -> bool:
    """Return whether a test is of the part. Files that workers name to pytest have not been left out before."""
    is_plain, is_seldom = (item.get_closest_marker(name) is not None for name in ("plain_only", "seldom"))
    is_source = str(item.path.relative_to(HERE)) in SOURCE
    if part == "source":
        return is_source or (is_plain and not is_seldom)
    if is_source:
        return False
    if part == "cheap":
        return is_plain or not is_expensive(item.path)
    return is_seldom == (part == "seldom") and (
        part == "seldom" or is_expensive(item.path) == (part == "slow")
    )


@cache
def is_expensive(path: Path) -> bool:
    name = str(path.relative_to(HERE))
    return any(name == each or name.startswith(f"{each}{os.sep}") for each in EXPENSIVE)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Use a worker for each core, and one more in a compiled pass: it waits for processes, browsers and Spark.

    Quick tests run beside those that wait, on half of the cores. On two cores that is this process alone: each worker
    would collect all tests again (40 s), and tell of each what another process then counts (0.5 ms).
    """
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    part = config.getoption("part")
    if part == "quick":
        return cores // 2 if cores > 3 else 0
    return cores + (os.environ.get("LEVERET_TESTED") == "compiled")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Begin with what takes long; 10 000 examples take up to an hour, unless a test says otherwise."""
    for each in items:
        if "spark" in getattr(each, "fixturenames", ()) and str(each.path.relative_to(HERE)) not in SPARK:
            each.add_marker(spark_jobs)
    if (part := config.getoption("part")) is not None:
        config.hook.pytest_deselected(items=[each for each in items if not is_of(part, each)])
        items[:] = [each for each in items if is_of(part, each)]
    if built().compiled:
        for each in items:
            if each.get_closest_marker("plain_only"):
                each.add_marker(pytest.mark.skip("in compiled code nothing can be counted or replaced"))
    workers = getattr(config, "workerinput", {}).get("workercount", 1)
    items[:] = dealt(sorted(items, key=entry_of) if workers > 1 else items, workers)
    if PROFILE == "nightly":
        for item in items:
            item.add_marker(pytest.mark.timeout(3600))


def dealt(items: list[pytest.Item], workers: int) -> list[pytest.Item]:
    """Return tests in an order in which each worker begins with as many expensive files as the others.

    The first share of a worker is a part of the whole order; workers that are through take from the ends of the others'
    shares. So what they take is cheap, and nobody waits for the end of something long. Tests that have a browser or a
    Java in common stay together.
    """
    cheap: list[pytest.Item] = []
    groups: dict[object, list[pytest.Item]] = {}
    for item in items:
        if is_expensive(item.path):
            common = (name for name in COMMON if name in getattr(item, "fixturenames", ()))
            groups.setdefault(next(common, item.path), []).append(item)
        else:
            cheap.append(item)
    shares: list[list[pytest.Item]] = [[] for _ in range(workers)]
    files = dict.fromkeys(range(workers), 0)
    for group in sorted(groups.values(), key=files_of, reverse=True):
        fewest = min(files, key=files.__getitem__)
        files[fewest] += files_of(group)
        shares[fewest] += group
    for number, share in enumerate(shares):
        room = max(0, (len(items) - sum(map(len, shares[:number]))) // (workers - number) - len(share))
        share += cheap[:room]
        del cheap[:room]
    return [item for share in (*shares, cheap) for item in share]


def files_of(group: list[pytest.Item]) -> int:
    return len({item.path for item in group})


def pytest_sessionstart(session: pytest.Session) -> None:
    """Collect tests without the garbage collector: it would walk through twenty thousand of them, and free nothing."""
    gc.disable()
    own: dict[str, object] = getattr(session.config, "workerinput", {})
    if own and [Path(each).resolve() for each in session.config.args] == [HERE]:
        sizes = {each: len([*each.rglob("test_*.py")]) or 1 for each in entries()}
        worker, workers = int(str(own["workerid"]).removeprefix("gw")), int(str(own["workercount"]))
        session.config.args[:] = map(str, beginning(sizes, worker, workers))


def entries() -> list[Path]:
    """Return the folders and files beside this file that may have tests."""
    return sorted(
        each for each in HERE.iterdir() if each.match("test_*.py") or (each / "__init__.py").exists()
    )


def entry_of(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).parts[0]


def beginning(sizes: dict[Path, int], worker: int, workers: int) -> list[Path]:
    """Return folders and files, with how many files of tests each has, in the order in which a worker collects them.

    pytest rewrites the assertions of each file, and keeps the outcome. In a fresh clone every worker would rewrite all
    (17 s); each begins elsewhere, so that it rewrites its share, and finds the others' done.
    """
    before = [0, *accumulate(sizes.values())]
    first = sum(each <= worker * before[-1] // workers for each in before[1:])
    return [*sizes][first:] + [*sizes][:first]


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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """A reload sets levels for the whole process, also when the test that asked for it is over; each begins without."""
    forget_levels()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown() -> None:
    forget_levels()


def forget_levels() -> None:
    for logger in LOGGERS:
        if logger.level:
            logger.setLevel(logging.NOTSET)


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

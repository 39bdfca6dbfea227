"""The order of the tests: what takes long is not left for the end, and what is called expensive is there."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.conftest import (
    EXPENSIVE,
    HERE,
    PARTS,
    SOURCE,
    SPARK,
    beginning,
    dealt,
    entries,
    is_of,
    pytest_ignore_collect,
)
from tests.harness import seldom


def items(name: str, count: int, *fixtures: str) -> list[pytest.Item]:
    return [SimpleNamespace(path=HERE / name, fixturenames=fixtures) for _ in range(count)]  # type: ignore[misc]


def names(share: list[pytest.Item]) -> list[str]:
    return [str(item.path.relative_to(HERE)) for item in share]


@pytest.mark.parametrize("name", [*EXPENSIVE, *SOURCE, *SPARK])
def test_what_is_not_cheap_is_there(name: str) -> None:
    assert Path(HERE, name).exists()


def test_each_worker_begins_with_as_many_expensive_files_as_the_others() -> None:
    cheap = items("core/test_a.py", 20)
    costly = [item for number in range(4) for item in items(f"crash/test_{number}.py", 2)]
    order = dealt([*cheap, *costly], 2)
    assert sorted(map(id, order)) == sorted(map(id, [*cheap, *costly]))
    for share in (order[:14], order[14:]):
        assert len(set(names(share[:4]))) == 2
        assert names(share[4:]) == ["core/test_a.py"] * 10


def test_what_has_a_java_in_common_stays_together() -> None:
    spark = [*items("pipeline/test_a.py", 2, "spark"), *items("system/test_b.py", 2, "spark")]
    others = [item for number in range(3) for item in items(f"crash/test_{number}.py", 1)]
    order = dealt([*spark, *others, *items("core/test_c.py", 3)], 2)
    assert order[:4] == spark
    assert names(order[4:7]) == ["crash/test_2.py", "crash/test_0.py", "crash/test_1.py"], (
        "it counts as two files"
    )


def test_one_process_runs_what_is_expensive_first() -> None:
    assert names(dealt([*items("core/test_a.py", 1), *items("tls/test_b.py", 1)], 1)) == [
        "tls/test_b.py",
        "core/test_a.py",
    ]


def test_a_folder_is_not_expensive_because_its_name_begins_as_that_of_one_that_is() -> None:
    tests = [*items("handbook/test_a.py", 1), *items("ha/test_b.py", 1)]
    assert names(dealt(tests, 1)) == ["ha/test_b.py", "handbook/test_a.py"]


def test_each_worker_begins_to_collect_after_its_share_of_the_files() -> None:
    sizes = {Path(name): size for name, size in (("a", 10), ("b", 20), ("c", 20), ("d", 10))}
    orders = [beginning(sizes, worker, 3) for worker in range(3)]
    assert ["".join(map(str, order)) for order in orders] == ["abcd", "bcda", "cdab"]


def test_what_workers_collect_is_all_that_has_tests() -> None:
    within = [
        path.relative_to(HERE).parts[0]
        for path in HERE.rglob("test_*.py")
        if "node_modules" not in path.parts
    ]
    assert {each.name for each in entries()} >= set(within)


def parts_of(name: str, *marks: str) -> set[str]:
    """Return the parts that a test is of: those that do not leave out its file, and have it."""

    def marker(mark: str) -> object | None:
        return mark if mark in marks else None

    item = SimpleNamespace(path=HERE / name, get_closest_marker=marker)
    configs = {part: SimpleNamespace(getoption=lambda _, part=part: part) for part in PARTS}
    return {
        part
        for part, config in configs.items()
        if not pytest_ignore_collect(HERE / name, config) and is_of(part, item)  # type: ignore[arg-type]
    }


@pytest.mark.parametrize(
    ("name", "marks", "parts"),
    [
        ("core/test_clock.py", (), {"quick", "cheap"}),  # compiled, and plain
        ("test_docstrings.py", (), {"source"}),
        ("crash/test_points.py", (), {"slow"}),  # compiled only, but by `make nightly`
        ("crash/test_points.py", ("seldom",), {"seldom"}),
        (
            "crash/test_points.py",
            ("seldom", "plain_only"),
            {"seldom", "cheap"},
        ),  # skipped where it is compiled
        ("core/test_costs.py", ("plain_only",), {"source", "quick", "cheap"}),
        ("simulation/test_simulation.py", ("plain_only", "seldom"), {"seldom", "cheap"}),
        ("test_install.py", ("seldom",), {"seldom"}),
        ("pipeline/test_sql_spark.py", ("seldom",), {"seldom"}),  # by its fixture
    ],
)
def test_each_test_is_of_a_part(name: str, marks: tuple[str, ...], parts: set[str]) -> None:
    assert parts_of(name, *marks) == parts


@pytest.mark.parametrize("name", [*SOURCE, "core/test_clock.py", "crash/test_points.py"])
def test_a_file_that_a_worker_names_is_of_no_other_part(name: str) -> None:
    """pytest leaves out no file that it is told by name, as those beside the folders are."""
    item = SimpleNamespace(path=HERE / name, get_closest_marker=lambda _: None)
    assert {part for part in PARTS if is_of(part, item)} == parts_of(name)  # type: ignore[arg-type]


def test_who_is_seldom_run_says_why() -> None:
    for name, mark in vars(seldom).items():
        if isinstance(mark, pytest.MarkDecorator):
            assert mark.name == "seldom"
            (why,) = mark.args
            assert len(why.split()) > 5, name

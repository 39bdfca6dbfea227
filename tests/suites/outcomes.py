"""Reports in JUnit's format to outcomes, and two outcomes to the tests that pass on one broker only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import attrs


@attrs.frozen
class Outcome:
    """How a suite went: the names of its tests. One that stands twice has passed if it did so each time."""

    passed: frozenset[str] = frozenset()
    failed: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()

    @property
    def run(self) -> int:
        return len(self.passed) + len(self.failed)


def outcome_in(report: Path) -> Outcome:
    """Return what a report says; nothing passed if there is none, or if it was not written to its end."""
    try:
        tree = ElementTree.parse(report)
    except (OSError, ElementTree.ParseError):
        return Outcome()
    named: dict[str, set[str]] = {"failed": set(), "skipped": set(), "passed": set()}
    for name, kind in cases_in(tree.getroot(), ""):
        named[kind].add(name)
    failed = frozenset(named["failed"])
    passed = frozenset(named["passed"]) - failed
    return Outcome(passed, failed, frozenset(named["skipped"]) - failed - passed)


def cases_in(element: ElementTree.Element, path: str) -> Iterator[tuple[str, str]]:
    """Yield each test with `passed`, `failed` or `skipped`; a test of Node is known by the suites around it."""
    for child in element:
        if child.tag == "testsuite":
            inner = (
                ""
                if child.get("name") in {"pytest", "Mocha Tests", None}
                else f"{path}{child.get('name')} > "
            )
            yield from cases_in(child, inner)
        elif child.tag == "testcase":
            of = "" if child.get("classname") == "test" else f"{child.get('classname')}::"
            yield f"{path}{of}{child.get('name')}", kind_of(child)


def kind_of(case: ElementTree.Element) -> str:
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


def missing(here: Outcome, there: Outcome | None) -> list[str]:
    """Return the tests that pass there and not here; without another broker, those that fail here."""
    return sorted(there.passed - here.passed if there is not None else here.failed)

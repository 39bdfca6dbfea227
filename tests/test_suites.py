"""`make suites`, without a suite: reports are read, compared, and its catalogue is whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.config.compat import PROFILES
from tests.suites.catalogue import SUITES
from tests.suites.outcomes import Outcome, missing, outcome_in
from tests.suites.sources import NAMED, NotFetchedError, fetched

PYTEST = """<testsuites><testsuite name="pytest">
<testcase classname="t.test_a" name="test_one"/>
<testcase classname="t.test_a" name="test_two"><failure message="no"/></testcase>
<testcase classname="t.test_a" name="test_three"><skipped/></testcase>
<testcase classname="t.test_a" name="test_four"/>
<testcase classname="t.test_a" name="test_four"><error message="at its end"/></testcase>
</testsuite></testsuites>"""
NODE = """<testsuites><testsuite name="connect">
<testsuite name="tls"><testcase name="opens" classname="test"/></testsuite>
<testcase name="opens" classname="test"><failure/></testcase></testsuite></testsuites>"""
MOCHA = """<testsuite name="Mocha Tests"><testcase classname="brokered examples" name="helloworld"/></testsuite>"""


def written(folder: Path, text: str) -> Path:
    report = folder / "report.xml"
    report.write_text(text)
    return report


def test_a_report_of_pytest_tells_what_passed_each_time_it_ran(tmp_path: Path) -> None:
    outcome = outcome_in(written(tmp_path, PYTEST))
    assert outcome.passed == {"t.test_a::test_one"}
    assert outcome.failed == {"t.test_a::test_two", "t.test_a::test_four"}
    assert outcome.skipped == {"t.test_a::test_three"}


def test_a_report_of_node_names_a_test_by_what_is_around_it(tmp_path: Path) -> None:
    outcome = outcome_in(written(tmp_path, NODE))
    assert (outcome.passed, outcome.failed) == ({"connect > tls > opens"}, {"connect > opens"})


def test_a_report_of_mocha_is_read_too(tmp_path: Path) -> None:
    assert outcome_in(written(tmp_path, MOCHA)).passed == {"brokered examples::helloworld"}


@pytest.mark.parametrize("text", ["", PYTEST[:-30]], ids=["empty", "cut off"])
def test_nothing_has_passed_without_a_whole_report(tmp_path: Path, text: str) -> None:
    assert outcome_in(written(tmp_path, text)) == outcome_in(tmp_path / "none.xml") == Outcome()


def test_what_passes_there_and_does_not_pass_here_is_missing() -> None:
    here = Outcome(frozenset("ab"), frozenset("c"), frozenset("d"))
    assert missing(here, Outcome(frozenset("acde"), frozenset("b"))) == ["c", "d", "e"]
    assert missing(here, None) == ["c"]


def test_the_suites_are_those_of_nine_libraries_each_with_a_profile_that_exists() -> None:
    assert len({each.name for each in SUITES}) == len(SUITES) == 9
    assert {each.profile for each in SUITES} <= set(PROFILES)
    assert all(any("{report}" in part for part in each.command) for each in SUITES)


def test_what_cannot_be_fetched_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.suites.sources.FOLDER", tmp_path)
    monkeypatch.setenv(NAMED, str(tmp_path / "nothing"))
    suite = next(each for each in SUITES if each.repository)
    nowhere = f"file://{tmp_path}/nowhere"
    with pytest.raises(NotFetchedError, match=NAMED):
        fetched(type(suite)(suite.name, suite.version, suite.command, repository=nowhere))

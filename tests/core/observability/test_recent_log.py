"""The last lines of the log, which are kept in memory: found by id, level, category and text, and never too many."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import attrs
import pytest

from leveret.config.sections import LogSettings
from leveret.server.node.logs import LogTargets
from leveret.server.node.recent_log import CHARACTERS_MAX, FIELD_COST, LINES_MAX, MESSAGE_MAX, RecentLog
from tests.core.observability.test_log_targets import levels_as_before, to_file

__all__ = ["levels_as_before"]

node, http = logging.getLogger("leveret.node"), logging.getLogger("leveret.http")


@pytest.fixture
def recent(tmp_path: object) -> Iterator[RecentLog]:
    targets = LogTargets(attrs.evolve(to_file(tmp_path / "log"), level="debug"))  # type: ignore[operator]
    yield targets.recent
    targets.close()


def messages(
    recent: RecentLog, after: int = 0, level: int = 0, category: str = "", text: str = "", count: int = 9
) -> list[object]:
    found = recent.lines(after, level, category, text, count)["lines"]
    assert isinstance(found, list)
    return [line["message"] for line in found]  # type: ignore[index,call-overload]


def test_lines_are_found_by_id_level_category_and_text(recent: RecentLog) -> None:
    node.info("started")
    http.warning("refused %s", "a request")
    node.error("Lost", extra={"connection": "10.0.0.7:1 -> 10.0.0.1:5672"})
    assert messages(recent) == ["started", "refused a request", "Lost"]
    assert messages(recent, count=2) == ["refused a request", "Lost"]
    assert messages(recent, after=2) == ["Lost"]
    assert messages(recent, level=logging.WARNING) == ["refused a request", "Lost"]
    assert messages(recent, category="node") == ["started", "Lost"]
    assert messages(recent, text="10.0.0.7") == messages(recent, text="lost") == ["Lost"]
    found = recent.lines(3, 0, "", "", 9)
    assert (found["lines"], found["first"], found["last"]) == ([], 1, 3)


def test_a_line_has_what_the_log_in_json_has(recent: RecentLog) -> None:
    try:
        raise ValueError("ours")
    except ValueError:
        node.exception("a mistake", extra={"user": "ann"})
    line = recent.lines(0, 0, "", "", 1)["lines"][0]  # type: ignore[index,call-overload]
    assert (line["level"], line["logger"], line["user"]) == ("error", "leveret.node", "ann")
    assert "ValueError: ours" in line["exception"]
    assert line["time"].endswith("Z")


def test_few_lines_are_kept_and_long_ones_are_cut(recent: RecentLog) -> None:
    for number in range(LINES_MAX + 5):
        node.info("%d", number)
    found = recent.lines(0, 0, "", "", LINES_MAX)
    assert (len(found["lines"]), found["first"]) == (LINES_MAX, 6)  # type: ignore[arg-type]
    for _ in range(CHARACTERS_MAX // MESSAGE_MAX + 5):
        node.info("x" * (2 * MESSAGE_MAX))
    found = recent.lines(0, 0, "", "x", LINES_MAX)
    assert len(found["lines"]) <= CHARACTERS_MAX // (MESSAGE_MAX + FIELD_COST)  # type: ignore[arg-type]
    assert {len(text) for text in messages(recent, text="x")} == {MESSAGE_MAX}


def test_a_log_that_has_ended_is_kept_no_more(recent: RecentLog) -> None:
    assert recent in logging.getLogger("leveret").handlers
    other = LogTargets(LogSettings())
    other.close()
    assert other.recent not in logging.getLogger("leveret").handlers

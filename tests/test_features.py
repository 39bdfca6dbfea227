"""The page of features: each row has a test that is there, or says what is missing, and the numbers at its top hold."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = (ROOT / "docs" / "features.md").read_text()
ROWS: Final = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.splitlines()
    if line.startswith("| F")
]


def files_in(cell: str) -> list[str]:
    return re.findall(r"`(tests/[a-z0-9_/]+\.py)`", cell)


def test_every_feature_has_one_row() -> None:
    assert [row[0] for row in ROWS] == [f"F{number:03}" for number in range(1, len(ROWS) + 1)]
    assert {len(row) for row in ROWS} == {4}
    assert {row[2] for row in ROWS} == {"yes", "partly", "no"}


def test_what_is_here_was_seen_in_a_test_that_exists() -> None:
    for identity, _, state, told in ROWS:
        assert bool(files_in(told)) == (state != "no"), identity
        for name in files_in(told):
            assert re.search(r"def test_|\.TestCase", (ROOT / name).read_text()), f"{identity}: {name}"


def test_what_is_missing_is_said() -> None:
    for identity, _, state, told in ROWS:
        reason = re.sub(r";? ?`tests/[^`]*`", "", told)
        assert bool(reason) == (state != "yes"), identity


def test_the_numbers_at_the_top_are_those_of_the_rows() -> None:
    count = Counter(row[2] for row in ROWS)
    numbers = [int(number) for number in re.findall(r"\d+", PAGE.partition("\n## ")[0])]
    assert numbers == [len(ROWS), count["yes"], count["partly"], count["no"]]

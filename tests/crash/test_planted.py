"""The tests here would find mistakes: each of these is planted in a node, and found. test_points.py has some more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.seldom import planted

from .damage import QUEUE, damaged
from .ledger import kinds
from .planted import program
from .rounds import Rounds

pytestmark = pytest.mark.system

ROUNDS_MAX = 30
SEED = 9


@planted
@pytest.mark.parametrize(
    ("bug", "expected"),
    [("confirm_before_sync", {"LOST"}), ("answer_before_sync", {"LOST"}), ("no_order", {"ORDER"})],
)
def test_killing_a_node_finds_a_planted_mistake(bug: str, expected: set[str], tmp_path: Path):
    rounds = Rounds(tmp_path / "data", SEED, [program(bug)])
    while not expected & set(kinds(rounds.complaints)) and rounds.number < ROUNDS_MAX:
        rounds.run()
    assert expected & set(kinds(rounds.complaints)), rounds.complaints[:5]


@pytest.mark.parametrize(
    ("bug", "found"), [("", set()), pytest.param("no_checksums", {"BYTES"}, marks=planted)]
)
def test_a_message_that_was_spoilt_on_disk_is_not_delivered(bug: str, found: set[str], tmp_path: Path):
    damage = damaged(tmp_path / "data", *([program(bug)] if bug else []))
    assert all(damage.name in complaint for complaint in damage.complaints)
    assert set(kinds(damage.complaints)) == {"LOST"} | found
    assert bug or f"of queue '{QUEUE}'" in damage.log

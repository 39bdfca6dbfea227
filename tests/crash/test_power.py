"""Power cuts on a file system of its own; `make power` makes many."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.seldom import planted

from .ledger import kinds
from .planted import program
from .power import cuts, why_not

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SEED = 2
CUTS = 3


@pytest.fixture(autouse=True, scope="module")
def _permitted():
    if reason := why_not():
        pytest.skip(reason)


def test_nothing_promised_is_lost_when_the_power_is_cut_under_load(tmp_path: Path):
    rounds = cuts(tmp_path, SEED, CUTS)
    assert rounds.complaints == [], f"again: python -m tests.crash.power --rounds {CUTS} --seed {SEED}"
    assert rounds.promises > 100


@planted
def test_power_cuts_find_a_node_that_does_not_sync(tmp_path: Path):
    assert "LOST" in kinds(cuts(tmp_path, SEED, CUTS, program("no_sync")).complaints)

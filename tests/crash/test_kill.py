"""kill -9 under load, again and again, on the same folder: what was promised is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.harness.seldom import elsewhere

from .rounds import PROGRAMS, Rounds, again

pytestmark = pytest.mark.system

ROUNDS = 15
SOME_ROUNDS = 5


@pytest.mark.parametrize(
    ("seed", "count"), [(4, SOME_ROUNDS), *(pytest.param(seed, ROUNDS, marks=elsewhere) for seed in (4, 5))]
)
@pytest.mark.timeout(300)
def test_nothing_promised_is_lost_when_a_node_is_killed_under_load(seed: int, count: int, tmp_path: Path):
    rounds = Rounds(tmp_path / "data", seed, PROGRAMS)
    for _ in range(count):
        rounds.run()
        assert rounds.complaints == [], again(seed, count)
    rounds.last_look()
    assert rounds.complaints == [], again(seed, count)
    assert rounds.promises > 100 * count

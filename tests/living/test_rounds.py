"""A node that takes over a backlog hands out every confirmed copy, once and in order, without being restarted."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.harness.postgres import Pair, need_postgres
from tests.harness.seldom import elsewhere, planted
from tests.living.plan import Plan
from tests.living.rounds import Outcome, Rounds, plan_of

SECONDS = 60.0
MESSAGES = 600
# Each message is in four queues and a stream, and each commit is a chunk that the living node merges with others.
MERGED = Plan(
    engine="postgres",
    queues=("plain", "second", "third", "fourth", "log"),
    groups=(("plain", "second", "third", "fourth"),),
    ttl_ms=0,
    window=10,
    sizes=(2000,),
    has_more=False,
    merging=120,
    is_hoarding=True,
    is_eager=True,
    is_slow=True,
    is_poor=False,
    is_holding=False,
)
pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    """A pair of databases for the rounds here alone: other tests stop theirs."""
    need_postgres()
    made = Pair.made()
    yield made
    made.end()


def run(pair: Pair | None, plan: Plan, seed: int, folder: Path, *mistakes: str) -> Outcome:
    found = Rounds(pair, mistakes).run(folder / "round", plan, random.Random(seed), SECONDS, MESSAGES)
    print(plan, found.copies, *found.complaints, sep="\n")
    assert found.copies >= MESSAGES * len(plan.queues)
    return found


def test_a_node_that_takes_over_hands_out_everything_while_chunks_are_merged(
    pair: Pair, tmp_path: Path
) -> None:
    """Queues of every kind, as the seed says."""
    assert run(pair, plan_of(56, "postgres"), 56, tmp_path).complaints == []


@pytest.mark.parametrize("seed", [17, pytest.param(48, marks=elsewhere)])
def test_a_node_that_starts_again_hands_out_everything_while_chunks_are_merged(
    seed: int, tmp_path: Path
) -> None:
    assert run(None, plan_of(seed, "sqlite"), seed, tmp_path).complaints == []


@planted
def test_a_node_that_finds_old_messages_of_merged_chunks_is_noticed(pair: Pair, tmp_path: Path) -> None:
    """The mistake that these rounds were made for: clients lack messages, which the node says that it cannot read."""
    found = run(pair, MERGED, 0, tmp_path, "put_off", "once")
    lost = {complaint.split("'")[1] for complaint in found.complaints if complaint.startswith("LOST")}
    assert lost
    assert lost <= set(MERGED.queues)
    assert any("cannot be read" in complaint for complaint in found.complaints)


@planted
def test_old_messages_of_merged_chunks_are_made_up_for_by_a_second_reading(
    pair: Pair, tmp_path: Path
) -> None:
    """The same mistake alone loses nothing: what cannot be read is read once more, from the database."""
    assert run(pair, MERGED, 0, tmp_path, "put_off").complaints == []

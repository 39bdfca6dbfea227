"""Simulations find nothing in the broker, and every mistake that is planted in it; a seed repeats a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from leveret.testing.simulation import (
    BrokenRun,
    Move,
    World,
    first_failure,
    history,
    plan,
    run,
    shrunk,
)
from tests.harness import seldom
from tests.harness.plain import plain_only
from tests.sources import ROOT

from .disk import is_possible
from .planted import FOUND_BY, MISTAKES, planted
from .world import Messaging
from .worlds import WORLDS, failure_in, steps_of, world_of

SEEDS = range(1, 201)
PLANTED_SEEDS = range(1, 2001)
OF_DISKS = (
    "log-not-synced",
    "redo-log-not-synced",
    "redo-log-not-ended",
    "removed-first",
    "segments-not-synced",
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the broker logs of its disk is not the point."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=seldom.elsewhere)])
def test_nothing_is_lost_doubled_misplaced_or_confirmed_too_early(part: int):
    found = failure_in(SEEDS[part::2])
    assert found is None, f"python -m tests.simulation --seed {found[0]}: {found[1]}"


def test_each_planted_mistake_has_the_seed_that_finds_it_on_the_page():
    page = (ROOT / "docs" / "reliability.md").read_text()
    assert set(FOUND_BY) == set(MISTAKES)
    for name, make in MISTAKES.items():
        said = (make.__doc__ or "").rstrip(".")
        row = f"| {said if said.startswith('SQL') else said[0].lower() + said[1:]} | {FOUND_BY[name]} |"
        assert row in page, name


@seldom.planted
@plain_only
@pytest.mark.parametrize("name", FOUND_BY)
def test_a_planted_mistake_is_found(name: str):
    """The seed that is on the page is tried first; another one will do once the worlds have changed."""
    if name in OF_DISKS and not is_possible():
        pytest.skip("SQLite's functions are out of reach of the simulated disk")
    with planted(name):
        assert failure_in([FOUND_BY[name]]) or failure_in(PLANTED_SEEDS)


@pytest.mark.parametrize("name", WORLDS)
def test_a_seed_leads_to_the_same_bytes(name: str):
    def lived(seed: int) -> tuple[list[str], str]:
        world = WORLDS[name]()
        try:
            for step in steps_of(seed, WORLDS[name]):
                getattr(world, f"step_{step.kind}")(Random(step.seed))
                world.check()
            return world.history, world.digest
        finally:
            world.close()

    assert [lived(seed) for seed in (1, 2, 3)] == [lived(seed) for seed in (1, 2, 3)]
    assert lived(1)[1] != lived(2)[1]


@plain_only
def test_a_failure_is_repeated_by_its_steps_and_shortened():
    with planted("rejected-and-gone"):
        found = failure_in(PLANTED_SEEDS, world=Messaging)
        assert found is not None
        again = run(Messaging, steps_of(found[0], Messaging))
        assert again is not None
        assert (again.steps, again.history, str(again)) == (found[1].steps, found[1].history, str(found[1]))
        shorter = shrunk(Messaging, again)
        kinds = {step.kind for step in shorter.steps}
        assert {"connect", "brim"} <= kinds or {"connect", "publish", "consume", "reject"} <= kinds
        assert len(shorter.steps) <= 6
        assert run(Messaging, shorter.steps) is not None
    assert run(Messaging, shorter.steps) is None, "without the mistake"


def test_all_worlds_have_their_seeds():
    assert {world_of(seed) for seed in range(12)} == set(WORLDS.values())


class Counting(World):
    """A world that breaks when it has seen `bad` twice."""

    weights: Mapping[str, int] = {"good": 3, "bad": 1}
    ended = 0

    def __init__(self) -> None:
        self.history = []
        self.seen = 0

    def step_good(self, random: Random) -> None: ...

    def step_bad(self, random: Random) -> None:
        self.seen += 1
        self.history.append(f"  seen {self.seen}")

    def step_leave(self, random: Random) -> None:
        raise SystemExit(1)

    def check(self) -> None:
        assert self.seen < 2, "two are found"

    def finish(self) -> None:
        assert self.seen < 1, "one is found in the end"

    def close(self) -> None:
        type(self).ended += 1


def test_the_fewest_steps_that_fail_are_found():
    steps = [
        Move(kind, number)
        for number, kind in enumerate(["good", "bad", "good", "good", "bad", "good", "bad"])
    ]
    failure = run(Counting, steps)
    assert failure is not None
    assert failure.steps == tuple(steps[:5])
    assert [step.kind for step in shrunk(Counting, failure).steps] == ["bad"]


def test_a_run_tells_its_steps_and_what_came_of_them_and_ends_its_world():
    before = Counting.ended
    steps = [Move("good", 1), Move("bad", 2), Move("bad", 3)]
    told = ["the beginning", "1. good:1", "2. bad:2", "  seen 1", "3. bad:3", "  seen 2"]
    failure = run(Counting, steps)
    assert failure is not None
    assert list(failure.history) == told
    assert history(Counting, steps)[:-1] == told
    assert history(Counting, steps)[-1].startswith("AssertionError: two are found")
    assert history(Counting, steps[:1]) == ["the beginning", "1. good:1", "the end"]
    assert Counting.ended == before + 4


def test_a_world_without_a_mistake_passes_and_the_first_seed_that_fails_is_told():
    assert run(Counting, [Move("good", 1)]) is None
    found = first_failure(Counting, Counting.weights, range(10))
    assert found is not None
    assert isinstance(found[1], BrokenRun)
    assert found[0] == min(
        seed for seed in range(10) if run(Counting, plan(seed, Counting.weights)) is not None
    )


@pytest.mark.parametrize(("kind", "said"), [("unknown", "AttributeError"), ("leave", "SystemExit")])
def test_an_exception_in_a_step_is_a_failure(kind: str, said: str):
    failure = run(Counting, [Move(kind, 1)])
    assert failure is not None
    assert str(failure).startswith(said)

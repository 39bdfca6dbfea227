"""Simulations find nothing in the broker, and every mistake that is planted in it; a seed repeats a run."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from random import Random

import pytest

from broker_core.testing.simulation import BrokenRun, Move, World, first_failure, plan, run, shrunk
from tests.harness.plain import plain_only

from .planted import MISTAKES, planted
from .world import Messaging

SEEDS = range(1, 201)
PLANTED_SEEDS = range(1, 101)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What the broker logs of its disk is not the point."""
    logging.disable()
    yield
    logging.disable(logging.NOTSET)


def test_nothing_is_lost_doubled_misplaced_or_confirmed_too_early():
    found = first_failure(Messaging, Messaging.weights, SEEDS)
    assert found is None, f"python -m tests.simulation --seed {found[0]}: {found[1]}"


@plain_only
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name: str):
    with planted(name):
        assert first_failure(Messaging, Messaging.weights, PLANTED_SEEDS) is not None


def test_a_seed_leads_to_the_same_bytes_on_the_disk():
    def written(seed: int) -> list[tuple[int, bytes, bytes]]:
        world = Messaging()
        for step in plan(seed, Messaging.weights):
            getattr(world, f"step_{step.kind}")(Random(step.seed))
            world.check()
        chunks = world.node.disk.content.chunks
        return [(first, chunk.entries, chunk.messages) for first, chunk in sorted(chunks.items())]

    assert any(written(seed) for seed in (1, 2, 3))
    assert [written(seed) for seed in (1, 2, 3)] == [written(seed) for seed in (1, 2, 3)]


@plain_only
def test_a_failure_is_repeated_by_its_steps_and_shortened():
    with planted("rejected-and-gone"):
        found = first_failure(Messaging, Messaging.weights, PLANTED_SEEDS)
        assert found is not None
        again = run(Messaging, plan(found[0], Messaging.weights))
        assert again is not None
        assert (again.steps, str(again)) == (found[1].steps, str(found[1]))
        shorter = shrunk(Messaging, again)
        assert {"connect", "publish", "consume", "reject"} <= {step.kind for step in shorter.steps}
        assert len(shorter.steps) <= 6
        assert run(Messaging, shorter.steps) is not None
    assert run(Messaging, shorter.steps) is None, "without the mistake"


class Counting(World):
    """A world that breaks when it has seen `bad` twice."""

    weights: Mapping[str, int] = {"good": 3, "bad": 1}

    def __init__(self) -> None:
        self.seen = 0

    def step_good(self, random: Random) -> None: ...

    def step_bad(self, random: Random) -> None:
        self.seen += 1

    def check(self) -> None:
        assert self.seen < 2

    def finish(self) -> None:
        assert self.seen < 1, "one is found in the end"


def test_the_fewest_steps_that_fail_are_found():
    steps = [
        Move(kind, number)
        for number, kind in enumerate(["good", "bad", "good", "good", "bad", "good", "bad"])
    ]
    failure = run(Counting, steps)
    assert failure is not None
    assert failure.steps == tuple(steps[:5])
    assert [step.kind for step in shrunk(Counting, failure).steps] == ["bad"]


def test_a_world_without_a_mistake_passes_and_the_first_seed_that_fails_is_told():
    assert run(Counting, [Move("good", 1)]) is None
    found = first_failure(Counting, Counting.weights, range(10))
    assert found is not None
    assert isinstance(found[1], BrokenRun)
    assert found[0] == min(
        seed for seed in range(10) if run(Counting, plan(seed, Counting.weights)) is not None
    )


def test_an_exception_in_a_step_is_a_failure():
    failure = run(Counting, [Move("unknown", 1)])
    assert failure is not None
    assert str(failure).startswith("AttributeError")

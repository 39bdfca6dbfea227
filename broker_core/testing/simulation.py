"""Run a world through random steps that one seed decides, find the step that breaks it, and shorten the way there.

    plan(seed) ──> steps ──> run ──> None, or a BrokenRun ──> shrunk ──> the fewest steps that still fail

A world is everything that takes part, in one process: a broker, its clients, clock, network and disk. It has a method
`step_NAME(random)` for each kind of step, and `check()`, which raises AssertionError when a promise is broken. Each
step gets a generator of its own, so that dropping other steps changes nothing about it: a step that makes no sense at
some point does nothing. Worlds read no clock, no environment and no randomness of their own, so a seed repeats a run.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, TypeAlias

import attrs

LENGTH: Final = 60  # steps of a run


class World(ABC):
    """Everything that takes part in a run. `weights` tell how often each kind of step comes, relative to the others."""

    weights: Mapping[str, int]

    @abstractmethod
    def check(self) -> None:
        """Compare the world with what it should be. Called after every step. Raises AssertionError."""

    @abstractmethod
    def finish(self) -> None:
        """Let everything come to rest and check the rest. Called after the last step. Raises AssertionError."""


@attrs.frozen
class Move:
    """One step: its kind, and the seed of its generator."""

    kind: str
    seed: int

    def __str__(self) -> str:
        return f"{self.kind}:{self.seed}"


@attrs.frozen
class BrokenRun:
    """A run in which a promise was broken."""

    steps: tuple[Move, ...]  # up to the one that did, and it
    error: Exception

    def __str__(self) -> str:
        return f"{type(self.error).__name__}: {self.error}"


Make: TypeAlias = Callable[[], World]


def plan(seed: int, weights: Mapping[str, int], length: int = LENGTH) -> tuple[Move, ...]:
    """Return the steps of a seed."""
    random = Random(seed)
    kinds = random.choices(list(weights), list(weights.values()), k=length)
    return tuple(Move(kind, random.getrandbits(32)) for kind in kinds)


def run(make: Make, steps: Sequence[Move]) -> BrokenRun | None:
    """Lead a new world through steps. An exception that a step raises is a failure, too."""
    world = make()
    for number, step in enumerate(steps, 1):
        try:
            getattr(world, f"step_{step.kind}")(Random(step.seed))
            world.check()
        except Exception as error:
            return BrokenRun(tuple(steps[:number]), error)
    try:
        world.finish()
    except Exception as error:
        return BrokenRun(tuple(steps), error)
    return None


def shrunk(make: Make, failure: BrokenRun) -> BrokenRun:
    """Return a failure with as few steps as dropping some of them leads to: halves first, then single ones."""
    size = max(1, len(failure.steps) // 2)
    while True:
        at, found = 0, False
        while at < len(failure.steps):
            shorter = run(make, failure.steps[:at] + failure.steps[at + size :])
            if shorter is None:
                at += size
            else:
                failure, found = shorter, True
        if size == 1 and not found:
            return failure
        size = max(1, size // 2)


def first_failure(
    make: Make, weights: Mapping[str, int], seeds: Sequence[int]
) -> tuple[int, BrokenRun] | None:
    """Return the first of these seeds whose run fails, with its failure; None if none does."""
    for seed in seeds:
        if (failure := run(make, plan(seed, weights))) is not None:
            return seed, failure
    return None

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
    history: Sequence[str] = ()  # lines about what has happened, if the world keeps any

    @abstractmethod
    def check(self) -> None:
        """Compare the world with what it should be. Called after every step. Raises AssertionError."""

    @abstractmethod
    def finish(self) -> None:
        """Let everything come to rest and check the rest. Called after the last step. Raises AssertionError."""

    def close(self) -> None:
        """Release what the world holds outside of memory. Called at the end of every run."""


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
    error: BaseException
    history: tuple[str, ...] = ()  # each step, with what the world has to tell of it

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
    history: list[str] = []
    return _led(make, steps, history)


def history(make: Make, steps: Sequence[Move]) -> list[str]:
    """Lead a new world through steps, up to the first that fails. Return each, with what the world tells of it."""
    lines: list[str] = []
    failure = _led(make, steps, lines)
    return lines if failure is None else [*lines, str(failure)]


def _led(make: Make, steps: Sequence[Move], lines: list[str]) -> BrokenRun | None:
    world = make()
    seen, number = 0, 0

    def tell(what: str) -> None:
        nonlocal seen
        lines.append(what)
        lines.extend(world.history[seen:])
        seen = len(world.history)

    now = "the beginning"
    try:
        tell(now)
        for number, step in enumerate(steps, 1):
            now = f"{number}. {step}"
            getattr(world, f"step_{step.kind}")(Random(step.seed))
            world.check()
            tell(now)
        now = "the end"
        world.finish()
        tell(now)
    except (Exception, SystemExit) as error:  # a plug-in may want to end the process
        tell(now)
        return BrokenRun(tuple(steps[:number]), error, tuple(lines))
    finally:
        world.close()
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

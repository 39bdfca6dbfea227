"""Which world a seed leads: most of them a store in memory, some SQLite on a simulated disk, some a cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from broker_core.testing.simulation import LENGTH, BrokenRun, Move, plan, run

from .clustered import Clustered
from .disk import is_possible
from .stored import Stored
from .world import Messaging

WORLDS: Final[Mapping[str, type[Messaging]]] = {
    "memory": Messaging,
    "disk": Stored if is_possible() else Messaging,  # elsewhere SQLite's functions are out of reach
    "cluster": Clustered,
}
ROUND: Final = 12  # of so many seeds, three are for disks and two for clusters


def world_of(seed: int) -> type[Messaging]:
    """Return the world of a seed."""
    return WORLDS[{1: "disk", 4: "disk", 9: "disk", 2: "cluster", 7: "cluster"}.get(seed % ROUND, "memory")]


def steps_of(seed: int, world: type[Messaging], length: int = LENGTH) -> tuple[Move, ...]:
    return plan(seed, world.weights, length)


def failure_in(
    seeds: Iterable[int], length: int = LENGTH, world: type[Messaging] | None = None
) -> tuple[int, BrokenRun] | None:
    """Return the first of these seeds whose run fails, with its failure; in one world, or in that of each seed."""
    for seed in seeds:
        made = world or world_of(seed)
        if (failure := run(made, steps_of(seed, made, length))) is not None:
            return seed, failure
    return None

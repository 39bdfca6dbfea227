"""Which world a seed leads: a store in memory, SQLite on a simulated disk, a cluster, readers of merges, or roles."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from leveret.testing.simulation import LENGTH, BrokenRun, Move, plan, run

from .clustered import Clustered
from .disk import is_possible
from .local_copy import LocalCopy
from .reading import Reading
from .reading_sqlite import ReadingSqlite
from .roles import Roles
from .sessions import Sessions
from .sessions_clustered import ClusteredSessions
from .stored import Stored
from .world import Messaging

Simulated: TypeAlias = Messaging | Reading | Roles | Sessions

WORLDS: Final[Mapping[str, type[Simulated]]] = {
    "memory": Messaging,
    "disk": Stored if is_possible() else Messaging,  # elsewhere SQLite's functions are out of reach
    "cluster": Clustered,
    "readers": ReadingSqlite,
    "readers-copy": LocalCopy,
    "roles": Roles,
    "sessions": Sessions,
    "sessions-cluster": ClusteredSessions,
}
ROUND: Final = 12  # seeds
PLACES: Final = {
    1: "disk",
    4: "disk",
    9: "disk",
    2: "cluster",
    7: "cluster",
    0: "readers",
    11: "readers-copy",
    3: "roles",
    5: "sessions",
    8: "sessions-cluster",
}  # in a round, of the worlds that are not in memory


def world_of(seed: int) -> type[Simulated]:
    """Return the world of a seed."""
    return WORLDS[PLACES.get(seed % ROUND, "memory")]


def steps_of(seed: int, world: type[Simulated], length: int = LENGTH) -> tuple[Move, ...]:
    return plan(seed, world.weights, length)


def failure_in(
    seeds: Iterable[int], length: int = LENGTH, world: type[Simulated] | None = None
) -> tuple[int, BrokenRun] | None:
    """Return the first of these seeds whose run fails, with its failure; in one world, or in that of each seed."""
    for seed in seeds:
        made = world or world_of(seed)
        if (failure := run(made, steps_of(seed, made, length))) is not None:
            return seed, failure
    return None

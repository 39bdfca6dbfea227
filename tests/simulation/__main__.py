"""Run simulations: `python -m tests.simulation --seed N` prints what happens in one, `--seeds 2000` runs so many.

A failure prints the seed that repeats it, and the fewest steps that lead there, with all that happens in them.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from contextlib import nullcontext

from leveret.testing.simulation import LENGTH, history, shrunk

from .planted import MISTAKES, planted
from .worlds import WORLDS, Simulated, failure_in, steps_of, world_of


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other (1)")
    parser.add_argument("--steps", type=int, default=LENGTH, help=f"steps of each ({LENGTH})")
    parser.add_argument("--world", choices=WORLDS, help="the world of all seeds (each has its own)")
    parser.add_argument("--planted", choices=sorted(MISTAKES), help="a mistake to plant in the broker first")
    chosen = parser.parse_args(arguments)
    logging.disable()  # what the broker has to say of its disk is not the point
    world = WORLDS[chosen.world] if chosen.world else None
    with planted(chosen.planted) if chosen.planted else nullcontext():
        if chosen.seeds == 1:
            return told(chosen.seed, chosen.steps, world or world_of(chosen.seed))
        return searched(chosen.seed, chosen.seeds, chosen.steps, world)


def told(seed: int, steps: int, world: type[Simulated]) -> int:
    """Print what happens with one seed. Return the exit code: 1 if it fails."""
    if failure_in([seed], steps, world) is not None:
        return searched(seed, 1, steps, world)
    print("\n".join(history(world, steps_of(seed, world, steps))))
    return 0


def searched(first: int, seeds: int, steps: int, world: type[Simulated] | None) -> int:
    """Run so many seeds, and print what came of them. Return the exit code: 1 if one of them fails."""
    began = time.monotonic()
    found = failure_in(range(first, first + seeds), steps, world)
    if found is None:
        print(f"{seeds} seeds, {steps} steps each, in {time.monotonic() - began:.1f} s: nothing found")
        return 0
    seed, failure = found
    made = world or world_of(seed)
    shorter = shrunk(made, failure)
    name = next(each for each, kind in WORLDS.items() if kind is made)
    print(f"seed {seed} fails at step {len(failure.steps)}: {failure}")
    print(f"the shortest way there, {len(shorter.steps)} steps: {shorter}")
    print("\n".join(shorter.history))
    print(f"again: python -m tests.simulation --world {name} --seed {seed} --steps {steps}")
    return 1


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # or sets would have another order each time
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main(sys.argv[1:]))

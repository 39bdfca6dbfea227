"""Run simulations: `python -m tests.simulation --seed N`, or `--seeds 2000` from there on.

A failure prints the seed that repeats it, and the fewest steps that lead there.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from contextlib import nullcontext

from broker_core.testing.simulation import LENGTH, plan, run, shrunk

from .planted import MISTAKES, planted
from .world import Messaging


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seeds", type=int, default=1, help="how many, one after the other (1)")
    parser.add_argument("--steps", type=int, default=LENGTH, help=f"steps of each ({LENGTH})")
    parser.add_argument("--planted", choices=sorted(MISTAKES), help="a mistake to plant in the broker first")
    chosen = parser.parse_args(arguments)
    logging.disable()  # what the broker has to say of its disk is not the point
    with planted(chosen.planted) if chosen.planted else nullcontext():
        return searched(chosen.seed, chosen.seeds, chosen.steps)


def searched(first: int, seeds: int, steps: int) -> int:
    """Run so many seeds, and print what came of them. Return the exit code: 1 if one of them fails."""
    began = time.monotonic()
    for seed in range(first, first + seeds):
        failure = run(Messaging, plan(seed, Messaging.weights, steps))
        if failure is not None:
            shorter = shrunk(Messaging, failure)
            print(f"seed {seed} fails at step {len(failure.steps)}: {failure}")
            print(f"the shortest way there, {len(shorter.steps)} steps: {shorter}")
            print("  " + " ".join(str(step) for step in shorter.steps))
            print(f"again: python -m tests.simulation --seed {seed} --steps {steps}")
            return 1
    print(f"{seeds} seeds, {steps} steps each, in {time.monotonic() - began:.1f} s: nothing found")
    return 0


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # or sets would have another order each time
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main(sys.argv[1:]))

"""Run seeds: `python -m tests.combined --seed N --seeds N --steps N` tells which fails, and how."""

from __future__ import annotations

import argparse
import logging
import sys
import traceback

from tests.durable.paged import small_pages

from .place import Place

STEPS = 400


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.combined", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seeds", type=int, default=100, help="how many, one after the other (100)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"steps of each ({STEPS})")
    chosen = parser.parse_args(arguments)
    logging.disable()  # what the broker has to say of its clients is not the point
    small_pages()
    failed = 0
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        try:
            Place(seed).run(chosen.steps)
        except Exception:
            failed += 1
            print(f"seed {seed} fails:\n{traceback.format_exc()}", flush=True)
    print(f"{chosen.seeds} seeds, {chosen.steps} steps each: {failed or 'none'} failed")
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

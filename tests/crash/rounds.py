"""Rounds of load, kill -9, restart and comparison, on one data folder.

    python -m tests.crash.rounds --rounds 200 --seed 7

What is found after a round is the beginning of the next one, so that what was recovered is recovered again. When a
comparison fails, the folder as it was found is kept, and the line that repeats the run is printed.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from . import planted
from .line import Line091
from .load import Load
from .node import SERVE, Node, damage_in
from .scene import Inspector, Scene, declare

PROMISES_MAX: Final = 600  # after so many at most, a node is killed
SLOW: Final = 0.5  # the share of rounds with many small commits: there is more to rewrite after them
PROGRAMS: Final = (SERVE, planted.program("little_memory"))
STOPPED: Final = 0.1  # the share of nodes that are asked to end instead


class Rounds:
    """One node on one folder, through all its starts."""

    def __init__(self, folder: Path, seed: int, programs: Sequence[Sequence[str]] = (SERVE,)) -> None:
        """`programs`: chance takes one for each start."""
        self.folder = folder
        self.scene = Scene(seed)
        self.programs = programs
        self.number = 0  # of rounds that were run
        self.promises = 0
        self.stops = False  # how the last round ends

    @property
    def complaints(self) -> list[str]:
        return self.scene.ledger.complaints

    def run(self, promises_max: int = PROMISES_MAX) -> None:
        """One round: start, look at what is there, load, and end suddenly."""
        self.number += 1
        chance = self.scene.random
        node = Node(self.folder, self.scene.random.choice(self.programs))
        try:
            self.look(node)
            load = Load(self.scene, node)
            if chance.random() < SLOW:
                load.go_slowly(chance.randrange(1, 10))
                promises_max //= 2
            load.run(chance.randrange(promises_max), chance.randrange(30))
            self.stops = chance.random() < STOPPED
            if self.stops:
                node.process.terminate()
            else:
                node.process.kill()
            load.end()
            self.promises += load.promises
        finally:
            if not self.stops:
                node.process.kill()
            node.ended()
        self.scene.ledger.restarted(closed=self.stops)

    def look(self, node: Node) -> None:
        """Compare what is there with the books, and take some of it."""
        line = Line091(node.port)
        declare(line, line.channel(1))
        line.drop()
        inspector = Inspector(self.scene, node)
        try:
            inspector.compare()
            inspector.answer(self.scene.random.choice((0, 0.5, 0.8, 0.95, 1)))
            inspector.leave()
        except AssertionError as error:
            error.add_note(node.log)
            raise

    def last_look(self, looked: Callable[[], None] = lambda: None) -> None:
        """What the last round has left; then `looked` is called, the node is stopped properly, its folder verified."""
        node = Node(self.folder, self.scene.random.choice(self.programs))
        try:
            self.look(node)
            looked()
            node.stop()
        finally:
            node.kill()
        self.complaints.extend(damage_in(self.folder))


def main() -> int:
    options = _options()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="leveret-crash-")) / "data"
    rounds = Rounds(folder, seed, PROGRAMS)
    started = time.monotonic()
    for number in range(options.rounds + 1):
        if folder.exists():
            keep(folder)
        rounds.run() if number < options.rounds else rounds.last_look()
        print(f"\rround {number} of {options.rounds}, {rounds.promises} promises", end="", flush=True)
        if rounds.complaints:
            break
    print(f", {time.monotonic() - started:.0f} s")
    if not rounds.complaints:
        shutil.rmtree(folder.parent)
        return 0
    print("\n".join(rounds.complaints[:20]))
    print(f"the folder as it was found: {folder.with_name('found')}\n{again(seed, options.rounds)}")
    return 1


def keep(folder: Path) -> None:
    """The folder before the next start, to look at it if that finds something wrong."""
    found = folder.with_name("found")
    shutil.rmtree(found, ignore_errors=True)
    shutil.copytree(folder, found)


def again(seed: int, rounds: int) -> str:
    return f"again: python -m tests.crash.rounds --rounds {rounds} --seed {seed}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, help="what chance decides; default: something new")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())

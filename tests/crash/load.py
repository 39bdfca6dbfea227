"""All clients at once, until they have read so many promises; then the node is killed, or asked to end."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from .actor10 import Actor10
from .actors import Actor, Architect, Clerk, Publisher, Worker
from .line import TIMEOUT_S, wait_for
from .node import Node
from .scene import Scene

WEIGHTS: Final = (4, 12, 3, 1, 8)  # how often each acts, in the order of `actors`
ACTS: Final = 5


class Load:
    """The clients of one node, from its start to its end."""

    def __init__(self, scene: Scene, node: Node) -> None:
        self.scene = scene
        self.node = node
        self.clerk = Clerk(scene, node.port, "clerk")
        self.ten = Actor10(scene, node.port, "ten")
        self.actors: list[Actor] = [
            Publisher(scene, node.port, "publisher"),
            Worker(scene, node.port, "worker"),
            self.clerk,
            Architect(scene, node.port, "architect"),
            self.ten,
        ]
        self.lines = [actor.line for actor in self.actors]
        self.at_once = ACTS  # things done between two looks at what has come

    @property
    def is_closing(self) -> bool:
        """Whether a consumer has closed its channel and not read the answer: what it had may have come back."""
        return any(isinstance(actor, Worker) and actor.is_closing for actor in self.actors)

    def go_slowly(self, window: int) -> None:
        """Have no more than so much unconfirmed: what is done then comes in many small commits."""
        self.at_once = 1
        for actor in self.actors:
            actor.window = window

    @property
    def promises(self) -> int:
        return sum(actor.promises for actor in self.actors)

    def run(self, promises: int, blind: int = 0) -> None:
        """Go on until so many promises were read, and do so many things more without listening."""
        self.go_on(lambda: self.promises >= promises)
        for _ in range(blind):
            self._choose().act()
        if blind:
            for line in self.lines:
                line.pump()

    def go_on(self, until: Callable[[], bool]) -> None:
        """Act and listen until it holds, or the node is gone."""
        self._listen(until, self.at_once)

    def listen(self, until: Callable[[], bool]) -> None:
        """Listen until it holds, or the node is gone."""
        self._listen(until, 0)

    def _listen(self, until: Callable[[], bool], acts: int) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not until() and not all(line.ended for line in self.lines):
            assert time.monotonic() < deadline, f"{self.promises} promises in {TIMEOUT_S} s"
            acted = [self._choose().act() for _ in range(acts)]
            came = [line.pump() for line in self.lines]
            self.ten.hear()
            if not any(acted) and not any(came):
                wait_for(self.lines, 0.05)

    def _choose(self) -> Actor:
        return self.scene.random.choices(self.actors, WEIGHTS)[0]

    def drop(self) -> None:
        """Hear nothing more."""
        for line in self.lines:
            line.drop()

    def end(self) -> None:
        """The node has ended, or does: read what it has said before, which it has to keep."""
        for line in self.lines:
            line.read_to_the_end()
        self.drop()
        self.ten.hear()

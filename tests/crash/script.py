"""A fixed, short life of a node: everything that a store does happens in it, one thing after the other.

Each step waits until the node has answered it, so that commits, and hence system calls, come in the same
order whenever the script runs."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from .actors import PURGED, Architect, Clerk, Publisher, Worker
from .line import Gone, Line091
from .node import Inside, Node
from .scene import FAN, Inspector, Scene, declare

BACKLOG: Final = 24  # messages in small commits: enough to be rewritten into one chunk
LOOKS: Final = 40  # commits after which the store has looked for something to rewrite
SEED: Final = 1


class Script:
    """The clients of the script and its steps. Whoever runs it may be interrupted at any of them (`Gone`)."""

    def __init__(self, scene: Scene, node: Node) -> None:
        self.scene = scene
        self.node = node
        self.publisher = Publisher(scene, node.port, "publisher")
        self.worker = Worker(scene, node.port, "worker")
        self.clerk = Clerk(scene, node.port, "clerk")
        self.architect = Architect(scene, node.port, "architect")
        self.actors = [self.publisher, self.worker, self.clerk, self.architect]
        self.began: dict[str, float] = {}  # steps by name, seconds since 1970

    def watch(self, watch: Callable[[], None]) -> None:
        """Call this whenever something is about to be sent or has been read."""
        for actor in self.actors:
            actor.line.watch = watch

    def run(self, until: str = "") -> bool:
        """All of it, or to a step. False: the node was gone before the end."""
        try:
            for step in STEPS[: STEP_NAMES.index(until) + 1] if until else STEPS:
                self.began.setdefault(step.__name__, time.time())
                step(self)
        except Gone:
            return False
        return True

    def end(self) -> None:
        for actor in self.actors:
            actor.line.read_to_the_end()
            actor.line.drop()

    # The steps.

    def publish_one(self) -> None:
        self._publish("plain")

    def publish_everywhere(self) -> None:
        """Many at once, in one commit or a few; those of a short queue push others out of it."""
        for queue in ("work", "quorum", "ranked", "short", "short", "brief", "desk", "ten", "log"):
            self._send(queue)
        self.publisher.publish(self.scene.message("publisher"), "all", "", FAN)
        self._send("plain", persistent=False)
        self._confirmed()

    def ack(self) -> None:
        self._worker_has("plain")
        self.worker.ack_one("plain")
        self._publish_as_worker()

    def give_back(self) -> None:
        self._worker_has("quorum")
        self.worker.requeue_one("quorum")
        self._publish_as_worker()

    def reject(self) -> None:
        """It becomes a dead letter: goes here, comes there."""
        self._worker_has("work")
        self.worker.reject_one("work")
        self._publish_as_worker()

    def commit(self) -> None:
        """To several queues, and acks."""
        self.clerk.line.wait(lambda: self.clerk.held, "a message to ack in the transaction")
        for _ in range(5):
            self.clerk.publish_in_transaction()
        self.clerk.ack_in_transaction()
        self.clerk.commit()
        self.clerk.line.wait(lambda: self.clerk.ending is None, "commit-ok")

    def roll_back(self) -> None:
        self.clerk.publish_in_transaction()
        self.clerk.roll_back()
        self.clerk.line.wait(lambda: self.clerk.ending is None, "rollback-ok")

    def build(self) -> None:
        """A queue, an exchange and bindings come and go."""
        architect = self.architect
        for number in (1, 2):
            self._built(lambda number=number: architect.queue(f"queue-{number}"))
            self._built(lambda number=number: architect.exchange(f"exchange-{number}"))
            self._built(lambda number=number: architect.binding(f"exchange-{number}", f"queue-{number}"))
        self._built(lambda: architect.binding("exchange-1", "queue-1"))
        self._built(lambda: architect.queue("queue-2"))
        self._built(lambda: architect.exchange("exchange-1"))

    def purge(self) -> None:
        architect = self.architect
        self._built(architect.purge)
        architect.publish(self.scene.message("architect"), "", PURGED, [PURGED])
        architect.line.wait(lambda: not architect.unconfirmed, "a confirm")

    def rewrite(self) -> None:
        """Many small commits, most of whose messages go again; the store makes one chunk of them."""
        for _ in range(BACKLOG):
            self._publish("plain")
        while self.worker.has("plain"):
            self.worker.ack_one("plain")
        for _ in range(LOOKS):
            self._publish_as_worker("brief")

    # Their parts.

    def _send(self, queue: str, persistent: bool = True) -> None:
        self.publisher.publish(self.scene.message("publisher", persistent), "", queue, [queue])

    def _publish(self, queue: str) -> None:
        self._send(queue)
        self._confirmed()

    def _confirmed(self) -> None:
        self.publisher.line.wait(lambda: not self.publisher.unconfirmed, "confirms")

    def _publish_as_worker(self, queue: str = "brief") -> None:
        """On the connection of the acks, so that they are known to be safe."""
        worker = self.worker
        worker.publish(self.scene.message("worker"), "", queue, [queue])
        worker.line.wait(lambda: not worker.unconfirmed, "a confirm")

    def _worker_has(self, queue: str) -> None:
        self.worker.line.wait(lambda: self.worker.has(queue), f"a message of '{queue}'")

    def _built(self, ask: Callable[[], None]) -> None:
        ask()
        self.architect.line.wait(lambda: self.architect.is_idle, "an answer to the architect")


STEPS: Final = (
    Script.publish_one,
    Script.publish_everywhere,
    Script.ack,
    Script.give_back,
    Script.reject,
    Script.commit,
    Script.roll_back,
    Script.build,
    Script.purge,
    Script.rewrite,
    Script.commit,
)
STEP_NAMES: Final = [step.__name__ for step in STEPS]


def prepare(scene: Scene, node: Node) -> None:
    """The queues, with something in each of them."""
    line = Line091(node.port)
    declare(line, line.channel(1))
    line.drop()
    publisher = Publisher(scene, node.port, "publisher")
    for queue in Publisher.TARGETS:
        for _ in range(30 if queue == "short" else 3):
            publisher.publish(scene.message("publisher"), "", queue, [queue])
    publisher.line.wait(lambda: not publisher.unconfirmed, "confirms")
    publisher.line.drop()


def inspect(scene: Scene, folder: Path) -> list[str]:
    """What is wrong with what is in a folder."""
    with Inside(folder) as node:
        inspector = Inspector(scene, node)
        inspector.compare()
        inspector.line.drop()
    return scene.ledger.complaints

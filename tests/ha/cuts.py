"""Cut the machines of a cluster from each other under load, by network namespaces, and count what is found.

Started by `rounds.py` in a network of its own: a round for each pair of machines, and each direction.
"""

from __future__ import annotations

import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.ha.network import DIRECTIONS, OURS, STANDBY_SEES, Network, cut_standby
from tests.ha.scene import TTL_S, HaNode, HaScene, Outcome, wait_until
from tests.harness.postgres import Pair

LATE_S = 10.0  # beyond the lease, before clients of the other node are confirmed again; 2 s where nothing else runs


class CutRounds:
    """The scene, the network, and what came of the rounds."""

    def __init__(self, scene: HaScene, network: Network) -> None:
        self._scene = scene
        self._network = network
        self.outcomes: list[Outcome] = []

    def run(self) -> None:
        network, pair = self._network, self._scene.pair
        ports = pair.primary.port, pair.standby.port
        for direction in DIRECTIONS:
            self._loses_lease(
                f"owner and database ({direction})",
                lambda owner, direction=direction: network.cut(owner.name, OURS, direction, ports),
                lambda owner: network.heal(),
            )
        self._loses_lease(
            "owner and all others",
            lambda owner: network.unplug(owner.name),
            lambda owner: network.plug(owner.name),
        )
        for direction in DIRECTIONS:
            self._keeps_lease(direction)
        for direction in DIRECTIONS:
            self._waits(direction)

    def _loses_lease(self, what: str, cut: Callable[[HaNode], None], heal: Callable[[HaNode], None]) -> None:
        """The other node takes over, and the old owner stands by once it can learn that."""
        took_s = self._scene.lose_owner(self.outcomes, cut, heal)
        assert TTL_S < took_s < TTL_S + LATE_S, f"{what}: {took_s:.1f} s"
        self._report(what, took_s)

    def _keeps_lease(self, direction: str) -> None:
        """Clients that are passed on lose their connections, and connect to the owner; nobody takes over."""
        scene, what = self._scene, f"node that stands by and owner ({direction})"
        owner, epoch = scene.wait_for_owner(), scene.epoch
        other = scene.other(owner)
        with scene.load(outcomes=self.outcomes) as clients:
            at = time.monotonic()
            self._network.cut(other.name, owner.name, direction)
            try:
                scene.all_confirm_again(clients, at + 1)
                last = min(max(client.confirmed.values()) for client in clients)
                scene.all_confirm_again(clients, last)
                took_s = time.monotonic() - at
            finally:
                self._network.heal()
        assert scene.epoch == epoch, f"{what}: a takeover"
        wait_until(lambda: other.stands_by_for(owner), "node that passes clients on again")
        self._report(what, took_s)

    def _waits(self, direction: str) -> None:
        """Nothing is confirmed for as long as the database's standby is away; connections stay, nobody takes over."""
        scene, what = self._scene, f"database and its standby ({direction})"
        epoch = scene.epoch
        with scene.load("confirms", "amqp10", "amqp010", outcomes=self.outcomes) as clients:
            at = time.monotonic()
            cut_standby(scene.pair.primary.port, direction)
            try:
                time.sleep(0.3)
                confirmed = [len(client.confirmed) for client in clients]
                time.sleep(TTL_S + 0.5)
                assert [len(client.confirmed) for client in clients] == confirmed, f"{what}: confirmed"
            finally:
                self._network.heal()
            scene.all_confirm_again(clients, time.monotonic())
            took_s = time.monotonic() - at
            assert [client.opened for client in clients] == [1] * 3
        assert scene.epoch == epoch, f"{what}: a takeover"
        self._report(what, took_s)

    def _report(self, what: str, took_s: float) -> None:
        found = self.outcomes[-1]
        print(
            f"cut {what}: confirmed again after {took_s:.1f} s; confirmed {found.confirmed}, "
            f"lost {len(found.lost)}, disordered {len(found.disordered)}, misflagged {len(found.misflagged)}, "
            f"{found.unconfirmed} more found",
            flush=True,
        )


def main(rounds: int) -> int:
    """Return how much was lost, in the wrong order, or wrongly flagged."""
    for name in ("pika", "proton"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    network = Network("a", "b")
    pair = Pair.made(seen_at=STANDBY_SEES)
    try:
        with tempfile.TemporaryDirectory(prefix="leveret-ha-") as folder:
            scene = HaScene(Path(folder), pair, list(network.machines.values()))
            try:
                scene.start()
                made = CutRounds(scene, network)
                for _ in range(rounds):
                    made.run()
            finally:
                scene.end()
    finally:
        pair.end()
        network.end()
    return sum(len(each.lost) + len(each.disordered) + len(each.misflagged) for each in made.outcomes)


if __name__ == "__main__":
    sys.exit(1 if main(int(sys.argv[1])) else 0)

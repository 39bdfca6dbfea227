"""Rounds in which clients of MQTT publish and receive, and their node is killed with kill -9, on one data folder.

    python -m tests.crash.mqtt_rounds --rounds 100 --seed 7

In the end each number has come to its subscriber, with QoS 2 once, as has the will of each connection that broke off
with its node; and the last retained message is there.
"""

from __future__ import annotations

import argparse
import random
import select
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from leveret.protocols.mqtt.codec.packets import Publish, Subscribe, Subscription
from tests.mqtt.over_socket import SocketClient

from .mqtt_clients import Client, Publisher, Subscriber, Watched
from .node import Node, damage_in

SETTINGS: Final = {"LEVERET_LISTENERS": '[{address="127.0.0.1:0",protocols=["amqp091","mqtt"]}]'}
MESSAGES: Final = (40, 200)  # of a publisher, after which a node is killed
PAUSE_S: Final = 0.02
QUIET: Final = 20  # looks at which nothing more may come
STOPPED: Final = 0.1  # the share of nodes that are asked to end instead


class MqttRounds:
    """One node on one folder, through all its starts, with the same clients."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self._chance = chance = random.Random(seed)
        self._publishers = [
            Publisher("p1", "a/1", 1, chance),
            Publisher("p2", "a/2", 2, chance),
            Publisher("p3", "r/1", 1, chance, is_retaining=True),
        ]
        self._subscribers = [Subscriber("s1", "a/1", 1, chance), Subscriber("s2", "a/2", 2, chance)]
        self._watcher = Subscriber("w", "wills", 2, chance)
        self._watched = Watched("dying", "wills", chance)

    @property
    def published(self) -> int:
        return sum(each.following for each in self._publishers)

    @property
    def again(self) -> int:
        """The number of messages that were sent once more, as a kill had come before their acknowledgement."""
        return sum(each.again for each in self._publishers)

    @property
    def _working(self) -> list[Publisher | Subscriber]:
        return [*self._subscribers, self._watcher, *self._publishers]

    def _begin(self, node: Node) -> None:
        for each in self._working:
            each.begin(node)
        while not all(each.is_subscribed for each in (*self._subscribers, self._watcher)):
            self._go_on()

    def _go_on(self) -> None:
        select.select([each.line.socket for each in self._working if each.line], [], [], PAUSE_S)
        for each in self._working:
            each.work()

    def run(self) -> None:
        """One round: start, go on where all were, and end suddenly."""
        node = Node(self.folder, settings=SETTINGS)
        try:
            self._begin(node)
            self._watched.begin(node)
            measure = self._publishers[1]
            until = measure.following + self._chance.randrange(*MESSAGES)
            while measure.following < until:
                for publisher in self._publishers:
                    publisher.act()
                self._go_on()
            if self._chance.random() < STOPPED:
                node.process.terminate()
                node.ended()
        finally:
            node.kill()

    def last_look(self) -> None:
        """Have everything come to its end, and compare. Raises AssertionError."""
        node = Node(self.folder, settings=SETTINGS)
        try:
            self._begin(node)
            while self._is_missing():
                self._go_on()
            for _ in range(QUIET):
                self._go_on()
            self._compare()
            self._look_at_retained(node)
            clients: list[Client] = [*self._working, self._watched]
            for each in clients:
                each.end()
            node.stop()
        finally:
            node.kill()
        assert damage_in(self.folder) == []

    def _is_missing(self) -> bool:
        pairs = zip(self._subscribers, self._publishers, strict=False)
        return (
            any(each.unanswered for each in self._publishers)
            or any(len(subscriber.got) < publisher.following for subscriber, publisher in pairs)
            or len(self._watcher.got) < self._watched.connections
        )

    def _compare(self) -> None:
        first, second, _ = self._publishers
        at_least, once = self._subscribers
        assert once.got == Counter(range(second.following))
        assert set(at_least.got) == set(range(first.following))
        assert self._watcher.got == Counter(range(self._watched.connections))

    def _look_at_retained(self, node: Node) -> None:
        with SocketClient(f"127.0.0.1:{node.port}") as reader:
            reader.connect("reader")
            reader.send(Subscribe(1, (Subscription("r/+", 1),)))
            found = reader.message()
        assert isinstance(found, Publish)
        last = self._publishers[2].following - 1
        assert (found.topic, found.payload, found.retain) == ("r/1", b"%d" % last, True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--seed", type=int, help="what chance decides; default: something new")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    folder = Path(tempfile.mkdtemp(prefix="leveret-mqtt-")) / "data"
    rounds, started = MqttRounds(folder, seed), time.monotonic()
    try:
        for number in range(1, options.rounds + 1):
            rounds.run()
            print(f"\rround {number} of {options.rounds}, {rounds.published} messages", end="", flush=True)
        rounds.last_look()
    except AssertionError as error:
        print(f"\n{error}\nthe folder: {folder}\nagain: --rounds {options.rounds} --seed {seed}")
        return 1
    print(f", {rounds.again} sent once more, {time.monotonic() - started:.0f} s")
    shutil.rmtree(folder.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())

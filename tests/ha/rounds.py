"""Kill the serving node of a cluster many times under load, with many messages waiting, and count.

python -m tests.ha.rounds --kills 10 --waiting 1000000
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import tempfile
import time
from pathlib import Path

from benchmarks.flood import fill
from tests.ha.publishers import connected
from tests.ha.scene import HaScene, Outcome
from tests.harness.postgres import Pair

WAITING = "waiting"


def waiting(scene: HaScene) -> int:
    """Return how many messages wait, beside those that clients publish."""
    connection = connected(scene.wait_for_owner().amqp)
    found = connection.channel().queue_declare(WAITING, durable=True, passive=True)
    connection.close()
    return int(found.method.message_count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--waiting", type=int, default=1_000_000)
    options = parser.parse_args()
    logging.getLogger("pika").setLevel(logging.CRITICAL + 1)
    logging.getLogger("proton").setLevel(logging.CRITICAL + 1)
    with tempfile.TemporaryDirectory(prefix="leveret-ha-") as folder, contextlib.ExitStack() as stack:
        pair = Pair.made()
        stack.callback(pair.end)
        scene = HaScene(Path(folder), pair)
        stack.callback(scene.end)
        scene.start()
        began = time.monotonic()
        fill(scene.wait_for_owner().amqp, options.waiting, window=10_000, queue=WAITING)
        print(f"{options.waiting} messages wait, after {time.monotonic() - began:.0f} s", flush=True)
        outcomes: list[Outcome] = []
        for number in range(options.kills):
            with scene.load(outcomes=outcomes) as clients:
                time.sleep(1)
                owner = scene.wait_for_owner()
                scene.crashed_at = time.monotonic()
                owner.kill()
                took_s = scene.all_confirm_again(clients, time.monotonic())
            found = outcomes[-1]
            print(
                f"kill {number + 1}: confirmed again after {took_s:.2f} s; confirmed {found.confirmed}, "
                f"lost {len(found.lost)}, {found.unconfirmed} more found",
                flush=True,
            )
            scene.start()
        left = waiting(scene)
        lost = sum(len(each.lost) for each in outcomes) + options.waiting - left
        print(f"{sum(each.confirmed for each in outcomes)} confirmed, {left} still wait, {lost} lost")
        raise SystemExit(1 if lost else 0)


if __name__ == "__main__":
    main()

"""Break a cluster many times under load, and count: nothing that was confirmed is lost.

--kills N       the node that serves is killed, with --waiting messages in a queue
--pauses N      the node that serves is stopped for a minute, and goes on
--primaries N   the database's primary is killed, under Patroni; needs it and etcd
--cuts N        machines are cut from each other, by network namespaces; needs root
--minutes N     nothing is broken: how the tables and the WAL grow
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from signal import SIGCONT, SIGSTOP

from benchmarks.flood import fill
from leveret.durable.store.postgres.session import Session
from tests.ha import network
from tests.ha.patroni import MISSING, PROGRAMS, PatroniPair
from tests.ha.publishers import connected
from tests.ha.scene import PAUSE_S, HaScene, Outcome, wait_until
from tests.harness.postgres import Pair

WAITING = "waiting"
REPORT_S = 60.0
PAUSED_S = 60.0
KILLED_S = 120  # for Patroni to promote the standby, and for the killed server to be one
SIZES = """
select coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint, pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')::bigint
from pg_class c where c.relnamespace = %s::regnamespace and c.relkind = 'r'
"""


def waiting(scene: HaScene) -> int:
    """Return how many messages wait, beside those that clients publish."""
    connection = connected(scene.wait_for_owner().amqp)
    found = connection.channel().queue_declare(WAITING, durable=True, passive=True)
    connection.close()
    return int(found.method.message_count)


def report(what: str, took_s: float, found: Outcome) -> None:
    print(
        f"{what}: confirmed again after {took_s:.2f} s; confirmed {found.confirmed}, lost {len(found.lost)}, "
        f"disordered {len(found.disordered)}, misflagged {len(found.misflagged)}, {found.unconfirmed} more found",
        flush=True,
    )


def kill_owners(scene: HaScene, kills: int, messages: int, outcomes: list[Outcome]) -> int:
    """Kill the node that serves, again and again. Return how many of the waiting messages are lost."""
    began = time.monotonic()
    fill(scene.wait_for_owner().amqp.port, messages, window=10_000, queue=WAITING)
    print(f"{messages} messages wait, after {time.monotonic() - began:.0f} s", flush=True)
    for number in range(kills):
        with scene.load(outcomes=outcomes) as clients:
            time.sleep(1)
            owner = scene.wait_for_owner()
            scene.crashed_at = time.monotonic()
            owner.kill()
            took_s = scene.all_confirm_again(clients, time.monotonic())
        report(f"kill {number + 1}", took_s, outcomes[-1])
        scene.start()
    return messages - waiting(scene)


def pause_owners(scene: HaScene, pauses: int, outcomes: list[Outcome]) -> None:
    """Stop the node that serves for a minute, as a machine that is suspended."""
    for number in range(pauses):
        took_s = scene.lose_owner(
            outcomes, lambda node: node.tell(SIGSTOP), lambda node: node.tell(SIGCONT), PAUSED_S
        )
        report(f"pause {number + 1} of {PAUSED_S:.0f} s", took_s, outcomes[-1])


def kill_primaries(scene: HaScene, pair: PatroniPair, kills: int, outcomes: list[Outcome]) -> None:
    """Kill the database's primary with its Patroni. Clients' connections stay open.

    Then the owner is killed, too: its memory would hide what the promoted server lacks.
    """
    for number in range(kills):
        with scene.load(outcomes=outcomes) as clients:
            time.sleep(1)
            opened = [client.opened for client in clients]
            leader = pair.leader()
            assert leader is not None
            leader.kill()
            at = time.monotonic()
            wait_until(partial(pair.is_led_by_another, leader), "new primary", KILLED_S)
            promoted_s = time.monotonic() - at
            leader.start()
            wait_until(pair.is_replicated, "new standby", KILLED_S)
            replicated_s = time.monotonic() - at
            took_s = scene.all_confirm_again(clients, at + 1, KILLED_S) + 1
            closed = sum(client.opened for client in clients) - sum(opened)
            scene.shard.close()
            scene.kill_owner(clients)
        scene.start()
        what = f"primary {number + 1}: promoted after {promoted_s:.1f} s, with a standby after {replicated_s:.1f} s"
        report(f"{what}; {closed} connections closed", took_s, outcomes[-1])
        pair.wait()


def cut(rounds: int) -> int:
    """Cut machines from each other, in a network of this process's own. Return 0 if nothing was wrong."""
    if why := network.missing():
        print(why)
        return 0
    command = ["unshare", "--net", sys.executable, "-m", "tests.ha.cuts", str(rounds)]
    return subprocess.run(command).returncode


def soak(scene: HaScene, minutes: float, pause_s: float, outcomes: list[Outcome]) -> None:
    """Publish and consume, each client with pauses, and tell how large tables and WAL are."""
    end = time.monotonic() + 60 * minutes
    session = Session(scene.database, "test")
    written = 0
    while time.monotonic() < end:
        with scene.load(outcomes=outcomes, pause_s=pause_s):
            time.sleep(min(REPORT_S, max(1.0, end - time.monotonic())))
        row = session.row(SIZES, scene.database.schema)
        assert row is not None
        octets, wal = (int(str(each)) for each in row)
        print(
            f"confirmed {outcomes[-1].confirmed}, lost {len(outcomes[-1].lost)}; tables {octets >> 10} KiB, "
            f"WAL {(wal - written if written else 0) >> 20} MiB since the last line",
            flush=True,
        )
        written = wal
    session.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=10, help="of the node that serves")
    parser.add_argument("--waiting", type=int, default=1_000_000, help="messages, while it is killed")
    parser.add_argument(
        "--primaries", type=int, default=10, help="kills of the database's primary, under Patroni"
    )
    parser.add_argument("--pauses", type=int, default=1, help="of the node that serves, for a minute")
    parser.add_argument("--cuts", type=int, default=1, help="times that each pair of machines is cut apart")
    parser.add_argument("--minutes", type=float, default=30, help="of load without a fault")
    parser.add_argument(
        "--pause", type=float, default=PAUSE_S, help="seconds between a client's messages then"
    )
    options = parser.parse_args()
    for name in ("pika", "proton"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    if options.primaries and not all(map(shutil.which, PROGRAMS)):
        raise SystemExit(MISSING)
    outcomes: list[Outcome] = []
    lost = 0
    if options.kills or options.pauses or options.minutes:
        with running(Pair.made()) as scene:
            if options.kills:
                lost += kill_owners(scene, options.kills, options.waiting, outcomes)
            pause_owners(scene, options.pauses, outcomes)
            soak(scene, options.minutes, options.pause, outcomes)
    if options.primaries:
        pair = PatroniPair()
        with running(pair) as scene:
            kill_primaries(scene, pair, options.primaries, outcomes)
    failed = cut(options.cuts) if options.cuts else 0
    wrong = sum(len(each.lost) + len(each.disordered) + len(each.misflagged) for each in outcomes)
    lost += sum(len(each.lost) for each in outcomes)
    print(
        f"{sum(each.confirmed for each in outcomes)} confirmed, {lost} lost, {wrong} lost or in the wrong order"
    )
    raise SystemExit(1 if lost or wrong or failed else 0)


@contextlib.contextmanager
def running(pair: Pair) -> Iterator[HaScene]:
    with tempfile.TemporaryDirectory(prefix="leveret-ha-") as folder, contextlib.ExitStack() as stack:
        stack.callback(pair.end)
        scene = HaScene(Path(folder), pair)
        stack.callback(scene.end)
        scene.start()
        yield scene


if __name__ == "__main__":
    main()

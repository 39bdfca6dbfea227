"""Measure the store in PostgreSQL beside that in SQLite: rates, confirms, and a start with messages waiting.

The database and its synchronous standby run on this machine, on the same disk, as the client and the node do.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from benchmarks.brokers import Running, free_port, leveret
from benchmarks.flood import fill, flood
from benchmarks.latency import confirm_latency
from benchmarks.tables import head, row, spread
from leveret.durable.store.postgres.copying import made
from leveret.durable.store.postgres.session import Database
from leveret.server.cluster.trial import DatabasePair

Measure = Callable[[Running], float]
WAITING = 1_000_000  # messages, for a start
RATE, RATE_S = 2000, 5.0  # messages per second, for the time until a confirm


def _fill(broker: Running, **load: int) -> float:
    return fill(broker.port, **load)  # type: ignore[arg-type]


def _flood(broker: Running, **load: int) -> float:
    return flood(broker.port, durable=True, **load)  # type: ignore[arg-type]


LOADS: tuple[tuple[str, Measure], ...] = (
    ("published, window 1000", partial(_fill, messages=150_000)),
    ("published, window 10,000", partial(_fill, messages=300_000, window=10_000)),
    ("with a consumer, window 1000", partial(_flood, messages=150_000)),
    ("published, one at a time", partial(_fill, messages=2_000, window=1)),
    ("with a consumer, one at a time", partial(_flood, messages=3_000, window=1, prefetch=1)),
)


@contextmanager
def _database() -> Iterator[str]:
    """Run a server with a synchronous standby; return its connection string. The tables are made."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)  # the servers' user passes through
        pair = DatabasePair(Path(folder, "postgres"))
        pair.start()
        try:
            made(Database(pair.dsn))
            yield pair.dsn
        finally:
            pair.stop()


@contextmanager
def on_postgres(dsn: str, requires_standby: bool = True) -> Iterator[Running]:
    """Run a node with its store in a database whose tables are there."""
    with tempfile.TemporaryDirectory() as folder:
        port, file = free_port(), Path(folder, "leveret.toml")
        file.write_text(
            f'[[listeners]]\naddress = "127.0.0.1:{port}"\n[node]\ndata_dir = "{folder}/copy"\n'
            f'[store]\nengine = "postgres"\n[store.postgres]\ndsn = "{dsn}"\n'
            f"require_replicated = {str(requires_standby).lower()}\n"
        )
        with leveret("--config", str(file), name="PostgreSQL", configured_port=port) as broker:
            yield broker


def database(rounds: int) -> None:
    """Print rates and confirms with either store, and how soon a node serves what waits in a database."""
    print("\n## A store in PostgreSQL: persistent messages of 100 B per second, median (lowest to highest)\n")
    with _database() as dsn, tempfile.TemporaryDirectory() as folder:
        with leveret("--data", folder, name="SQLite") as local, on_postgres(dsn) as remote:
            brokers = [remote, local]
            head("persistent messages", brokers)
            for title, measure in LOADS:
                row(title, brokers, rounds, measure)
            print(f"\n| confirms at {RATE}/s, ms | p50 | p99 |\n|---|---:|---:|")
            found = {
                each.name: [confirm_latency(each.port, RATE, RATE_S) for _ in range(rounds)]
                for each in brokers
            }
            for name, each in found.items():
                print(f"| {name} | {spread([x.p50 for x in each], 1)} | {spread([x.p99 for x in each], 1)} |")
            fill(remote.port, WAITING, window=1000)
            os.kill(remote.process, signal.SIGKILL)
        times = [_started(dsn) for _ in range(rounds)]
        print(
            f"\nA node that is started on {WAITING:,} waiting messages listens after {spread(times, 2)} s",
            flush=True,
        )


def _started(dsn: str) -> float:
    """Return the seconds from the start of a process until it listens. It is killed, as the one before."""
    began = time.perf_counter()
    with on_postgres(dsn) as broker:
        took = time.perf_counter() - began
        os.kill(broker.process, signal.SIGKILL)
        return took

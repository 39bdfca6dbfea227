"""Measure a node through a bad night of its database: the disk of its tables is full, or somebody's transaction stays.

`full`: a queue is filled, then the disk. A consumer goes on at a slow pace and acknowledges, a publisher tries. Now
and then the node is killed, and another takes over. At the end there is room again, and the queue is drained: nothing
that was acknowledged may have come back, nothing that was confirmed may be missing.

`foreign`: while a transaction of somebody else stays open, PostgreSQL keeps what commits replace and delete. Printed is
what a durable message costs node and database in processor time, and how many pages the database looks at for it,
before the transaction, during it, and after it.

    python -m benchmarks.nights full --minutes 60       # as root: the small disk is a file system in memory
    python -m benchmarks.nights foreign --minutes 60
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import time
from collections.abc import Callable
from typing import Final

import attrs
import pika
from pika.exceptions import AMQPError

from benchmarks.brokers import Running, processor_s, resident_kib
from benchmarks.database import on_postgres
from benchmarks.flood import flood
from leveret.durable.store.postgres.copying import made
from leveret.durable.store.postgres.session import Database
from tests.harness.postgres import Pair, Server, SmallDisk

QUEUE: Final = "night"
DISK: Final = 160 << 20  # bytes: the reserve has 32 MiB, and wants as much besides when it is made again
FILLED: Final = 20_000  # messages before the disk is full
BODY: Final = 400  # bytes
NEW: Final = 1000  # messages when there is room again
PACE_S: Final = 0.25  # between two messages of the consumer
TOLD_S: Final = 60.0
TAKEOVERS: Final = 6
UNSETTLED_S: Final = 2.0  # younger acknowledgements may be lost by a kill: none is confirmed
PATIENCE_S: Final = 120.0  # for a node that takes over to serve
BURST: Final = 40_000  # messages
REST_S: Final = 15.0  # between two bursts
COUNTED_S: Final = 2.0  # in which the database's statistics are up to date
BEFORE: Final = 10  # bursts before the transaction, and after it


def channel(port: int) -> pika.adapters.blocking_connection.BlockingChannel:
    """Open a channel, and wait for a node that is about to serve."""
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            given = pika.ConnectionParameters("127.0.0.1", port, blocked_connection_timeout=PACE_S * 4)
            return pika.BlockingConnection(given).channel()
        except (AMQPError, OSError):
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


class Ledger:
    """What clients know of each message, by its number."""

    def __init__(self) -> None:
        self.confirmed: set[int] = set()
        self.tried: set[int] = set()  # published, and no answer came
        self.acknowledged: dict[int, float] = {}
        self.killed: list[float] = []
        self.back: list[int] = []  # came again although they had been acknowledged long before a kill

    def publish(self, port: int, count: int) -> None:
        with contextlib.suppress(AMQPError, OSError):
            open_ = channel(port)
            with contextlib.closing(open_.connection):
                open_.queue_declare(QUEUE, durable=True)
                open_.confirm_delivery()
                for _ in range(count):
                    number = len(self.confirmed) + len(self.tried)
                    self.tried.add(number)
                    body = str(number).encode().ljust(BODY)
                    open_.basic_publish("", QUEUE, body, pika.BasicProperties(delivery_mode=2))
                    self.tried.remove(number)
                    self.confirmed.add(number)

    def take(self, open_: pika.adapters.blocking_connection.BlockingChannel) -> bool:
        found, _, body = open_.basic_get(QUEUE)
        if found is None or body is None:
            return False
        number = int(body)
        if number in self.acknowledged:
            at = self.acknowledged[number]
            if not any(0 <= kill - at < UNSETTLED_S for kill in self.killed):
                self.back.append(number)
        open_.basic_ack(found.delivery_tag)
        self.acknowledged[number] = time.monotonic()
        return True

    @property
    def missing(self) -> int:
        return len(self.confirmed - self.acknowledged.keys())

    def told(self) -> str:
        return (
            f"{len(self.confirmed):,} confirmed, {len(self.tried)} unanswered, "
            f"{len(self.acknowledged):,} acknowledged, {len(self.back)} came back"
        )


class Night:
    """A database whose disk is full, a node after another, and a consumer that goes on."""

    def __init__(self, disk: SmallDisk, minutes: float) -> None:
        self.disk, self.seconds = disk, minutes * 60
        self.ledger = Ledger()
        self.pauses: list[float] = []  # from a kill to the next message of the consumer

    def run(self) -> None:
        made(Database(self.disk.dsn))
        began = time.monotonic()
        for turn in range(TAKEOVERS):
            with on_postgres(self.disk.dsn, requires_standby=False) as broker:
                if turn == 0:
                    self.ledger.publish(broker.port, FILLED)
                    self.disk.fill()
                    began = time.monotonic()
                    print(f"the disk is full: {self.ledger.told()}", flush=True)
                self._consume(broker, began + self.seconds * (turn + 1) / TAKEOVERS)
                self.ledger.killed.append(time.monotonic())
                os.kill(broker.process, signal.SIGKILL)
        self.disk.give_back()
        with on_postgres(self.disk.dsn, requires_standby=False) as broker:
            open_ = channel(broker.port)
            while self.ledger.take(open_):
                pass
            print(f"there is room again: {self.ledger.told()}, {self.ledger.missing} missing", flush=True)
            wanted, until = len(self.ledger.confirmed) + NEW, time.monotonic() + PATIENCE_S
            while (left := wanted - len(self.ledger.confirmed)) > 0 and time.monotonic() < until:
                self.ledger.publish(broker.port, left)  # held up until the reserve is whole again
            print(f"{NEW - left:,} of {NEW:,} new messages were confirmed")
        print(f"from a kill to the next message: {', '.join(f'{each:.1f}' for each in self.pauses)} s")

    def _consume(self, broker: Running, until: float) -> None:
        open_ = channel(broker.port)
        told = time.monotonic()
        is_first = bool(self.ledger.killed)
        while time.monotonic() < until:
            self.ledger.take(open_)
            if is_first:
                self.pauses.append(time.monotonic() - self.ledger.killed[-1])
                is_first = False
            if time.monotonic() - told > TOLD_S:
                told = time.monotonic()
                print(f"{self.ledger.told()}, {resident_kib(broker.process) >> 10} MiB", flush=True)
                self.ledger.publish(broker.port, 1)
            open_.connection.sleep(PACE_S)


def full(minutes: float) -> int:
    """Return 1 if something that was acknowledged came back, or something that was confirmed is missing."""
    with SmallDisk.made(DISK) as disk:
        night = Night(disk, minutes)
        night.run()
    return int(bool(night.ledger.back or night.ledger.missing))


@attrs.frozen
class Cost:
    """The cost of a durable message."""

    us: float  # of processor time, of node and database
    pages: float  # that the database looked at


def cost(broker: Running, server: Server) -> Cost:
    """Have a burst of messages published and consumed."""

    def spent() -> dict[int, float]:
        found = {}
        for each in (broker.process, *server.processes()):
            with contextlib.suppress(FileNotFoundError):  # it has ended meanwhile
                found[each] = processor_s(each)
        return found

    def pages() -> int:
        return int(server.ask("select sum(blks_hit + blks_read) from pg_stat_database"))

    before, pages_before = spent(), pages()
    flood(broker.port, BURST, durable=True, window=50)
    us = sum([now - before.get(each, 0.0) for each, now in spent().items()]) / BURST * 1e6
    time.sleep(COUNTED_S)
    return Cost(us, (pages() - pages_before) / BURST)


def repeated(measure: Callable[[], Cost], until: Callable[[int], bool]) -> list[Cost]:
    found: list[Cost] = []
    while not until(len(found)):
        found.append(measure())
        time.sleep(REST_S)
    return found


def foreign(minutes: float) -> int:
    """Print what a message costs in each quarter of the time that somebody's transaction is open."""
    import psycopg

    pair = Pair.made()
    try:
        server = pair.primary
        made(Database(pair.dsn))
        with on_postgres(pair.dsn) as broker:
            cost(broker, server)  # warms up

            def told(title: str, found: list[Cost]) -> None:
                dead = server.ask("select coalesce(sum(n_dead_tup), 0) from pg_stat_user_tables")
                size = int(server.ask("select pg_database_size('postgres')")) >> 20
                us, pages = [each.us for each in found], [each.pages for each in found]
                print(
                    f"{title:<12} {statistics.median(us):6.1f} us ({min(us):.1f} to {max(us):.1f}), "
                    f"{statistics.median(pages):6.1f} pages ({min(pages):.1f} to {max(pages):.1f}), "
                    f"{len(found)} bursts, {int(dead):,} dead rows, {size} MiB",
                    flush=True,
                )

            def measure() -> Cost:
                return cost(broker, server)

            told("before", repeated(measure, lambda count: count >= BEFORE))
            with psycopg.connect(server.dsn) as other:
                other.execute("set application_name = 'report'")
                other.execute("set transaction isolation level repeatable read")
                other.execute("select count(*) from pg_class")
                began = time.monotonic()
                for quarter in range(1, 5):
                    end = began + minutes * 60 * quarter / 4
                    told(f"quarter {quarter}", repeated(measure, lambda _, end=end: time.monotonic() > end))  # type: ignore[misc]
            told("after it", repeated(measure, lambda count: count >= BEFORE))
    finally:
        pair.end()
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("night", choices=("full", "foreign"))
    parser.add_argument("--minutes", type=float, default=60.0)
    given = parser.parse_args()
    return {"full": full, "foreign": foreign}[given.night](given.minutes)


if __name__ == "__main__":
    sys.exit(main())

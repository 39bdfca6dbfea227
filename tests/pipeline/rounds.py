"""Rounds of messages through Spark, in which something is killed in mid-batch; at the end each message is there once.

    python -m tests.pipeline.rounds --rounds 20 --seed 7
    python -m tests.pipeline.rounds --folder /tmp/rounds --minutes 8       # again and again, until it is through

What dies: in one round the driver with all that it started, in the next a process that does a task, and the broker; and
in each round, while a driver starts, twenty runs of archives without Spark, half of a stream and half of a queue, some
of which go on until then, each at one of its steps. Before that, several runs archive one stream at once, with one
checkpoint or one each, with Spark and without, and one of them is killed. A round goes on where the one before was cut
off, with the same checkpoints, tables and data. At the end polars, DuckDB, pyarrow, pandas and Spark read the tables.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from select import select
from subprocess import PIPE
from typing import Final

import pika

from tests.pipeline import archiver
from tests.pipeline.bridge import ALL_IS_READ, QUERIES
from tests.pipeline.conftest import ROOT, LocalNode
from tests.pipeline.installation import SETTINGS, environment
from tests.pipeline.lake_readers import READERS
from tests.pipeline.processes import command_of, descendants, kill

MESSAGES: Final = 600  # in a round
VICTIMS: Final = (("driver",), ("task", "broker"))  # in one round, and in the next
MID_BATCH_TIMEOUT_S: Final = 120
END_TIMEOUT_S: Final = 240
FAILED_MAX: Final = 50
ARCHIVES_KILLED: Final = 20  # in a round
STEPS_MAX: Final = 40  # of an archive; a run has some 15 for each micro-batch
STREAM: Final = {"x-queue-type": "stream"}
KEPT: Final = "rounds.json"
KEPT_NAMES: Final = frozenset(("number", "killed", "archives_killed", "failed", "published"))
FOR_SPARK, FOR_ARCHIVES = "events", "lake"  # exchanges
WITHOUT_SPARK: Final = "without Spark"  # in the name of a table
OVERLAPPING: Final = "overlapping runs"  # the name of a table
# Engines of runs that overlap, and whether they share a checkpoint: in one round, and in the next.
OVERLAPS: Final = (
    (("pyarrow",) * 3, True),
    (("pyarrow",) * 3, False),
    (("spark", "pyarrow"), True),
    (("spark", "pyarrow"), False),
    (("spark", "spark"), True),
)
ANOTHER: Final = "another run"  # of an error: it has the checkpoint, or has added the messages


class Rounds:
    """One broker, one folder, and the drivers that follow each other."""

    def __init__(
        self, folder: Path, seed: int, queries: Sequence[str] = QUERIES, archives: int = ARCHIVES_KILLED
    ) -> None:
        self.queries = queries
        self.archives = archives  # to be killed in a round
        self.overtaken = 0  # archives that ended since another one was at work
        self.number = 0  # of rounds that were run
        self.killed: list[str] = []  # in the middle of a micro-batch
        self.archives_killed = 0
        self.failed = 0  # drivers that gave up
        self.published = dict.fromkeys(EXCHANGES, 0)
        self._folder = folder
        self._seed = seed
        self._chance = random.Random(seed)
        if (folder / KEPT).exists():  # of a run that has ended before the last round
            vars(self).update(json.loads((folder / KEPT).read_text()))
        self._driver: subprocess.Popen[str] | None = None
        self._node = LocalNode(folder / "data")
        self._node.start()
        with self._channel() as channel:
            declare(channel)
            for exchange, (stream, *_) in EXCHANGES.items():  # the run before may have ended as it published
                self.published[exchange] = max(self.published[exchange], waiting(channel, stream))
        self.is_read = not any(self.published.values())  # all that was published

    def close(self) -> None:
        self._kill_driver()
        self._node.kill()

    def keep(self) -> None:
        """Write down what another run on this folder has to know, to go on."""
        kept = {name: value for name, value in vars(self).items() if name in KEPT_NAMES}
        (self._folder / KEPT).write_text(json.dumps(kept))

    def run(self) -> None:
        """One round: publish, and kill something while a micro-batch is under way."""
        self._chance.seed(f"{self._seed} {self.number}")
        kill_one = {"driver": self._kill_driver, "task": self._kill_task, "broker": self._kill_broker}
        self._publish(FOR_SPARK)
        self.overlap(*OVERLAPS[self.number % len(OVERLAPS)])
        self._start_driver()
        self.kill_archives()
        self._begin()
        half = len(self.queries) // 2
        some = {"driver": self.queries, "task": self.queries[:half], "broker": self.queries[half:]}
        for victim in VICTIMS[self.number % len(VICTIMS)]:
            if is_busy := self._wait_for_batch(self._chance.choice(some[victim])):
                time.sleep(self._chance.random() * 0.3)
            if kill_one[victim]() and is_busy:
                self.killed.append(victim)
        self._end()
        self.number += 1

    def kill_archives(self) -> None:
        """Run archives without Spark until so many were killed; then to the end."""
        self._publish(FOR_ARCHIVES)
        with self._archiver() as ask:
            wanted = self.archives_killed + self.archives
            while self.archives_killed < wanted:
                source = ("stream", "queue")[self.archives_killed % 2]
                step, how = self._chance.randrange(1, STEPS_MAX), self._chance.choice(("", archiver.ON))
                outcome = ask(f"{source} {step} {how}")
                assert outcome != archiver.FAILED, (self._folder / "archiver.log").read_text()[-4000:]
                self.archives_killed += outcome == archiver.KILLED
                if outcome == archiver.DONE:
                    self._publish(FOR_ARCHIVES)
            for source in archiver.SOURCES:
                assert ask(f"{source} 0") == archiver.DONE, (self._folder / "archiver.log").read_text()[
                    -4000:
                ]

    def overlap(self, engines: Sequence[str], is_shared: bool) -> None:
        """Have several runs archive one stream at once, kill one of them, and have another go on where they ended."""
        self._publish(FOR_ARCHIVES)
        runs = [
            self._archive(engine, "shared" if is_shared else f"{place}")
            for place, engine in enumerate(engines)
        ]
        time.sleep(self._chance.random() * 2)
        kill(self._chance.choice(runs).pid)
        for run in runs:
            self._ended(run)
        last = self._archive("pyarrow", "shared")
        assert self._ended(last) == 0, "the run after them has failed"

    def _archive(self, engine: str, checkpoint: str) -> subprocess.Popen[str]:
        words = ["pipeline", "archive", "lake-events", str(self._overlapping), "--once", "--engine", engine]
        words += ["--checkpoint", str(self._folder / "overlapping" / checkpoint), "--batch", "100"]
        settings = [word for pair in SETTINGS.items() for word in ("--spark", "=".join(pair))]
        words += ["--endpoint", self._node.url, *(settings if engine == "spark" else ())]
        variables = {**os.environ, **environment(), "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "leveret", *words]
        return subprocess.Popen(command, cwd=ROOT, env=variables, stderr=PIPE, text=True)

    def _ended(self, run: subprocess.Popen[str]) -> int:
        _, said = run.communicate(timeout=END_TIMEOUT_S)
        assert run.returncode in (0, -signal.SIGKILL) or ANOTHER in said, said
        self.overtaken += ANOTHER in said
        return run.returncode

    @property
    def _overlapping(self) -> Path:
        return self._folder / "overlapping" / "table"

    @contextlib.contextmanager
    def _archiver(self) -> Iterator[Callable[[str], str]]:
        command = [sys.executable, "-m", "tests.pipeline.archiver", self._node.url, str(self._folder)]
        variables = {**os.environ, "PYTHONPATH": str(ROOT)}
        with (self._folder / "archiver.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=variables, stdin=PIPE, stdout=PIPE, stderr=log, text=True
            )

        def ask(run: str) -> str:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{run}\n")
            process.stdin.flush()
            return process.stdout.readline().strip()

        try:
            yield ask
        finally:
            process.kill()
            process.communicate()

    def finish(self) -> list[str]:
        """Read everything to the end: what is wrong then. The last batches of queues are still with their leases."""
        assert self._ended(self._archive("pyarrow", "shared")) == 0
        while not self.is_read and self.failed < FAILED_MAX:
            self._begin()
            self._end()
        with self._channel() as channel:
            left = {name: waiting(channel, name) for name in self._drained}
            found = {name: Counter(consumed(channel, QUEUE_OF[name])) for name in self._of("exchange")}
        for name, where in self._tables:
            for reader, rows in READERS.items():
                found[f"{name}, by {reader}"] = Counter(rows(where))
            found[f"{name}, by Spark"] = Counter(self._by_spark(where))
        wrong = [f"{count} messages are left in {name}" for name, count in left.items() if count]
        return wrong + [line for name, each in found.items() for line in self._compare(name, each)]

    @property
    def messages(self) -> int:
        return sum(self.published.values())

    @property
    def _tables(self) -> Iterator[tuple[str, Path]]:
        for name in self._of("table"):
            yield name, self._folder / name / "table"
        for source in archiver.SOURCES:
            yield f"{source} {WITHOUT_SPARK}", archiver.table_of(self._folder, source)
        yield OVERLAPPING, self._overlapping

    def _by_spark(self, where: Path) -> list[int]:
        self._start_driver()
        assert self._driver is not None
        assert self._driver.stdin is not None
        assert self._driver.stdout is not None
        self._driver.stdin.write(f"{where}\n")
        self._driver.stdin.flush()
        found: list[int] = json.loads(self._driver.stdout.readline())
        return found

    def _of(self, target: str) -> list[str]:
        return [name for name in self.queries if name.endswith(target)]

    @property
    def _drained(self) -> list[str]:
        """The queues that queries read."""
        wanted = {"queue-to-table": "for-table", "queue-to-exchange": "for-copies"}
        return [*(queue for name, queue in wanted.items() if name in self.queries), "for-lake"]

    def _compare(self, name: str, found: Counter[int]) -> Iterator[str]:
        is_archive = WITHOUT_SPARK in name or OVERLAPPING in name
        wanted = range(self.published[FOR_ARCHIVES if is_archive else FOR_SPARK])
        if missing := [number for number in wanted if number not in found]:
            yield f"{name}: {len(missing)} of {len(wanted)} messages are missing, such as {missing[:5]}"
        if double := [number for number, count in found.items() if count > 1]:
            yield f"{name}: {len(double)} messages are there more than once, such as {double[:5]}"
        if strange := [number for number in found if number not in wanted]:
            yield f"{name}: {strange[:5]} were never published"

    # What lives and dies.

    def _start_driver(self) -> None:
        """Start a driver unless there is one; it does nothing yet."""
        if self._driver is None:
            command = [sys.executable, "-m", "tests.pipeline.bridge", self._node.url, str(self._folder)]
            command += self.queries
            variables = {**os.environ, **environment(), "PYTHONPATH": str(ROOT)}
            with (self._folder / "driver.log").open("a") as log:
                self._driver = subprocess.Popen(
                    command, cwd=ROOT, env=variables, stdin=PIPE, stdout=PIPE, stderr=log, text=True
                )

    def _begin(self) -> None:
        """Have everything read, by a new driver if need be."""
        self._start_driver()
        assert self._driver is not None
        assert self._driver.stdin is not None
        self._driver.stdin.write("again\n")
        self._driver.stdin.flush()

    def _end(self) -> None:
        """Wait until everything is read. A driver whose query has failed is let go: the next one goes on."""
        if self._driver is None:
            return
        assert self._driver.stdout is not None
        ready, _, _ = select([self._driver.stdout], (), (), END_TIMEOUT_S)
        if not ready:
            log = (self._folder / "driver.log").read_text(errors="replace")
            raise AssertionError(f"the driver does not come to an end: {log[-4000:]}")
        self.is_read = self._driver.stdout.readline().strip() == ALL_IS_READ
        if not self.is_read:
            self.failed += 1
            self._kill_driver()

    def _kill_driver(self) -> bool:
        """With its Java and all that does tasks. False, as of the others: there was nothing to kill."""
        if self._driver is None:
            return False
        for process in (*descendants(self._driver.pid), self._driver.pid):
            kill(process)
        self._driver.communicate()
        self._driver = None
        return True

    def _kill_task(self) -> bool:
        assert self._driver is not None
        workers = [each for each in descendants(self._driver.pid) if "pyspark.daemon" in command_of(each)]
        if workers:
            kill(self._chance.choice(workers))
        return bool(workers)

    def _kill_broker(self) -> bool:
        self._node.kill()
        self._node.start()
        return True

    def _wait_for_batch(self, query: str) -> bool:
        """Wait until a query is in the middle of a micro-batch, one of its first. False: all is read."""
        assert self._driver is not None
        checkpoint = self._folder / query / "checkpoint"
        skipped = self._chance.randrange(2)
        seen = numbers(checkpoint / "offsets") if (checkpoint / "offsets").exists() else set()
        give_up = time.monotonic() + MID_BATCH_TIMEOUT_S
        while time.monotonic() < give_up and not select([self._driver.stdout], (), (), 0)[0]:
            with contextlib.suppress(FileNotFoundError):
                begun = numbers(checkpoint / "offsets") - seen
                if len(begun) > skipped and not begun <= numbers(checkpoint / "commits"):
                    return True
            time.sleep(0.01)
        return False

    # Messages.

    @contextlib.contextmanager
    def _channel(self) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
        with pika.BlockingConnection(pika.URLParameters(self._node.amqp_url)) as connection:
            yield connection.channel()

    def _publish(self, exchange: str) -> None:
        if exchange == FOR_SPARK:
            self.is_read = False
        persistent = pika.BasicProperties(delivery_mode=2)
        begin, end = self.published[exchange], self.published[exchange] + MESSAGES
        with self._channel() as channel:
            for number in range(begin, end - 1):
                channel.basic_publish(exchange, "", b"%d" % number, persistent)
            channel.confirm_delivery()  # and with the last one, all before it
            channel.basic_publish(exchange, "", b"%d" % (end - 1), persistent)
        self.published[exchange] = end
        self.keep()


# By the exchange that they are published to: a stream, which keeps all messages, and the queues that get them, too.
EXCHANGES: Final = {
    FOR_SPARK: ("events", "for-table", "for-copies"),
    FOR_ARCHIVES: ("lake-events", "for-lake"),
}
QUEUE_OF: Final = {"stream-to-exchange": "copies", "queue-to-exchange": "taken"}  # behind the exchange


def declare(channel: pika.adapters.blocking_connection.BlockingChannel) -> None:
    """Everything published reaches its stream and its queues; what Spark publishes, a queue each."""
    for name in (*EXCHANGES, "copies", "taken"):
        channel.exchange_declare(name, "fanout", durable=True)
    targets = {**EXCHANGES, "copies": ("copies",), "taken": ("taken",)}
    for exchange, names in targets.items():
        for name in names:
            channel.queue_declare(name, durable=True, arguments=STREAM if name.endswith("events") else None)
            channel.queue_bind(name, exchange)


def waiting(channel: pika.adapters.blocking_connection.BlockingChannel, queue: str) -> int:
    """The number of messages in a queue or stream."""
    return channel.queue_declare(queue, passive=True).method.message_count


def consumed(channel: pika.adapters.blocking_connection.BlockingChannel, queue: str) -> Iterator[int]:
    """All that waits in a queue."""
    for method, _, body in channel.consume(queue, auto_ack=True, inactivity_timeout=2):
        if method is None:
            break
        yield int(body)
    channel.cancel()


def numbers(folder: Path) -> set[int]:
    """The batches that a folder of a checkpoint has a file of."""
    return {int(name) for name in os.listdir(folder) if name.isdecimal()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, help="what chance decides; default: something new")
    parser.add_argument("--folder", type=Path, help="where all of it lies; what a run has left there goes on")
    parser.add_argument("--minutes", type=float, help="begin no round after this time; the folder stays")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    folder = options.folder or Path(tempfile.mkdtemp(prefix="leveret-rounds-"))
    folder.mkdir(exist_ok=True)
    rounds = Rounds(folder, seed)
    started = time.monotonic()
    try:
        while rounds.number < options.rounds:
            if options.minutes is not None and time.monotonic() - started > options.minutes * 60:
                print(f"\nto go on: --folder {folder} --rounds {options.rounds}")
                return 0
            rounds.run()
            rounds.keep()
            print(f"\rround {rounds.number} of {options.rounds}", end="", flush=True)
        wrong = rounds.finish()
    finally:
        rounds.close()
    kills, seconds = len(rounds.killed) + rounds.archives_killed, time.monotonic() - started
    print(f", {rounds.messages} messages, {kills} kills, {rounds.failed} queries failed, {seconds:.0f} s")
    if not wrong:
        shutil.rmtree(folder)
        return 0
    again = f"python -m tests.pipeline.rounds --rounds {options.rounds} --seed {seed}"
    print("\n".join(wrong), f"what is left of it: {folder}", f"again: {again}", sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

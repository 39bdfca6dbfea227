"""Rounds of archives without Spark to Iceberg tables, and to Delta tables in an object store, each killed at any time.

    python -m tests.pipeline.lake_rounds --rounds 20 --seed 7

In each round, runs to both kinds of tables, of a stream and of a queue, are killed, half of them while they go on with
what comes; then several runs archive one stream at once to a third table of each kind, and one of them is killed. At
the end each message is in each table once, whoever reads it.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Final

import pika

from tests.pipeline import archiver
from tests.pipeline.conftest import ROOT, LocalNode
from tests.pipeline.lake_readers import ICEBERG_READERS, STORE_READERS, Bodies
from tests.pipeline.object_store import BUCKET, object_store, variables
from tests.pipeline.rounds import ANOTHER, STREAM

KINDS: Final = (archiver.S3, archiver.ICEBERG)
MESSAGES: Final = 600  # published before some runs
KILLED: Final = 16  # runs in a round
HUNDREDTHS_MAX: Final = 150  # of a second, in the life of a run that is killed
AT_ONCE: Final = 3  # runs
END_TIMEOUT_S: Final = 240
EXCHANGE: Final = "lake"


class LakeRounds:
    """One broker, one object store, one folder."""

    def __init__(self, folder: Path, seed: int, store: str) -> None:
        self.killed = 0
        self.overtaken = 0  # runs that ended since another one was at work
        self.published = 0
        self._folder = folder
        self._chance = random.Random(seed)
        self._store = variables(store)
        self._node = LocalNode(folder / "data")
        self._node.start()
        with pika.BlockingConnection(pika.URLParameters(self._node.amqp_url)) as connection:
            channel = connection.channel()
            channel.exchange_declare(EXCHANGE, "fanout", durable=True)
            for name in ("lake-events", *(f"for-{kind}" for kind in KINDS)):
                channel.queue_declare(name, durable=True, arguments=STREAM if name == "lake-events" else None)
                channel.queue_bind(name, EXCHANGE)

    def close(self) -> None:
        self._node.kill()

    def run(self, runs: int = KILLED) -> None:
        """One round."""
        wanted = self.killed + runs
        pairs = [(kind, source) for kind in KINDS for source in archiver.SOURCES]
        self._publish()
        with self._archiver() as ask:
            place = 0
            while self.killed < wanted:
                kind, source = pairs[place % len(pairs)]
                place += 1
                step, how = self._chance.randrange(1, HUNDREDTHS_MAX), self._chance.choice(("", archiver.ON))
                outcome = ask(f"{source} {step} {how} {kind}")
                assert outcome != archiver.FAILED, self._log
                self.killed += outcome == archiver.KILLED
                if place % len(pairs) == 0:
                    self._publish()
            for kind, source in pairs:
                assert ask(f"{source} 0 {kind}") == archiver.DONE, self._log
        for kind in KINDS:
            self.overlap(kind)

    def overlap(self, kind: str) -> None:
        """Have several runs archive one stream to one table at once, kill one, and have another go on."""
        self._publish()
        runs = [self._archive(kind) for _ in range(AT_ONCE)]
        time.sleep(self._chance.random() * 4)
        self._chance.choice(runs).kill()
        for run in runs:
            self._ended(run)
        assert self._ended(self._archive(kind)) == 0, "the run after them has failed"

    def finish(self) -> list[str]:
        """Return what is wrong in the end."""
        for kind in KINDS:
            assert self._ended(self._archive(kind)) == 0
        with self._archiver() as ask:
            for kind in KINDS:
                for source in archiver.SOURCES:
                    assert ask(f"{source} 0 {kind}") == archiver.DONE, self._log
        wrong = []
        for name, readers, where in self._tables:
            for reader, rows in readers.items():
                wrong += compared(f"{name}, by {reader}", Counter(rows(where)), self.published)
        return wrong

    @property
    def _tables(self) -> Iterator[tuple[str, Mapping[str, Callable[..., Bodies]], Path | str]]:
        for source in archiver.SOURCES:
            yield f"{source} in Iceberg", ICEBERG_READERS, archiver.iceberg_of(self._folder, source)
            yield f"{source} in a bucket", STORE_READERS, archiver.s3_of(source)
        yield "overlapping runs to Iceberg", ICEBERG_READERS, self._folder / "overlapping"
        yield "overlapping runs to a bucket", STORE_READERS, f"s3://{BUCKET}/overlapping"

    def _archive(self, kind: str) -> subprocess.Popen[str]:
        where = (
            str(self._folder / "overlapping") if kind == archiver.ICEBERG else f"s3://{BUCKET}/overlapping"
        )
        words = ["pipeline", "archive", "lake-events", where, "--batch", "100", "--endpoint", self._node.url]
        words += ["--format", "iceberg"] if kind == archiver.ICEBERG else []
        command = [sys.executable, "-m", "leveret", *words]
        return subprocess.Popen(command, cwd=ROOT, env=self._environment, stderr=PIPE, text=True)

    def _ended(self, run: subprocess.Popen[str]) -> int:
        _, said = run.communicate(timeout=END_TIMEOUT_S)
        assert run.returncode in (0, -signal.SIGKILL) or ANOTHER in said, said
        self.overtaken += ANOTHER in said
        return run.returncode

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._store, "PYTHONPATH": str(ROOT)}

    @property
    def _log(self) -> str:
        return (self._folder / "archiver.log").read_text()[-4000:]

    @contextmanager
    def _archiver(self) -> Iterator[Callable[[str], str]]:
        command = [sys.executable, "-m", "tests.pipeline.archiver", self._node.url, str(self._folder)]
        with (self._folder / "archiver.log").open("a") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env=self._environment, stdin=PIPE, stdout=PIPE, stderr=log, text=True
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

    def _publish(self) -> None:
        with pika.BlockingConnection(pika.URLParameters(self._node.amqp_url)) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            persistent = pika.BasicProperties(delivery_mode=2)
            for number in range(self.published, self.published + MESSAGES):
                channel.basic_publish(EXCHANGE, "", b"%d" % number, persistent)
        self.published += MESSAGES


def compared(name: str, found: Counter[int], published: int) -> Iterator[str]:
    """Yield what is wrong with the messages that a reader has found."""
    if missing := [number for number in range(published) if number not in found]:
        yield f"{name}: {len(missing)} of {published} messages are missing, such as {missing[:5]}"
    if double := [number for number, count in found.items() if count > 1]:
        yield f"{name}: {len(double)} messages are there more than once, such as {double[:5]}"


@contextmanager
def store_in_use() -> Iterator[str]:
    """Yield the URL of an object store that this process uses, too."""
    with ExitStack() as stack:
        url = stack.enter_context(object_store())
        before = dict(os.environ)
        stack.callback(lambda: (os.environ.clear(), os.environ.update(before)))
        os.environ.update(variables(url))
        yield url


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, help="what chance decides; default: something new")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    folder, started = Path(tempfile.mkdtemp(prefix="leveret-lake-rounds-")), time.monotonic()
    with store_in_use() as store:
        rounds = LakeRounds(folder, seed, store)
        try:
            for number in range(options.rounds):
                rounds.run()
                print(f"\rround {number + 1} of {options.rounds}", end="", flush=True)
            wrong = rounds.finish()
        finally:
            rounds.close()
    seconds = time.monotonic() - started
    print(
        f", {rounds.published} messages, {rounds.killed} runs killed, {rounds.overtaken} overtaken, {seconds:.0f} s"
    )
    if not wrong:
        shutil.rmtree(folder)
        return 0
    again = f"python -m tests.pipeline.lake_rounds --rounds {options.rounds} --seed {seed}"
    print("\n".join(wrong), f"what is left of it: {folder}", f"again: {again}", sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

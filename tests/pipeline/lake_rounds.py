"""Rounds of archives without Spark, each killed at any time: to Iceberg tables, in files of SQLite and in a REST
catalogue, and to Delta tables in an object store.

    python -m tests.pipeline.lake_rounds --rounds 20 --seed 7

In each round, runs to each kind of tables, of a stream and of a queue, are killed, half of them while they go on with
what comes; then several runs archive one stream at once to a third table of each kind, and one of them is killed. Of
the commits to the REST catalogue, answers get lost. At the end each message is in each table once, whoever reads it.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from subprocess import PIPE
from typing import Final

import pika

from tests.pipeline import archiver, rest_catalogue
from tests.pipeline.conftest import ROOT, LocalNode
from tests.pipeline.lake_readers import ICEBERG_READERS, STORE_READERS, Bodies
from tests.pipeline.object_store import object_store, variables
from tests.pipeline.rest_catalogue import Catalogue, serving_catalogue
from tests.pipeline.rounds import ANOTHER, STREAM

KINDS: Final = (archiver.S3, archiver.ICEBERG, archiver.REST)
MESSAGES: Final = 600  # published before some runs
KILLED: Final = 16  # runs in a round
LOST: Final = 0.3  # of the runs to the REST catalogue get no answer to a commit
HUNDREDTHS_MAX: Final = 150  # of a second, in the life of a run that is killed
AT_ONCE: Final = 3  # runs
END_TIMEOUT_S: Final = 600  # a commit of Iceberg takes the longer the more there are
EXCHANGE: Final = "lake"
OVERLAPPING: Final = "overlapping"  # in the name of a table


class LakeRounds:
    """One broker, one object store, one folder."""

    def __init__(self, folder: Path, seed: int, store: str, kinds: Sequence[str] = KINDS) -> None:
        self.killed = 0
        self.overtaken = 0  # runs that ended since another one was at work
        self.lost = 0  # runs that were to get no answer to a commit
        self.published = 0
        self._folder = folder
        self._kinds = kinds
        self._chance = random.Random(seed)
        self._stack = ExitStack()
        self._catalogue = Catalogue(folder, f"file://{folder / 'house'}")
        catalogue = self._stack.enter_context(serving_catalogue(self._catalogue))
        self._variables = {**variables(store), **rest_catalogue.variables(catalogue)}
        self._node = LocalNode(folder / "data")
        self._stack.callback(self._node.kill)
        self._node.start()
        with pika.BlockingConnection(pika.URLParameters(self._node.amqp_url)) as connection:
            channel = connection.channel()
            channel.exchange_declare(EXCHANGE, "fanout", durable=True)
            for name in ("lake-events", *(f"for-{kind}" for kind in KINDS)):
                channel.queue_declare(name, durable=True, arguments=STREAM if name == "lake-events" else None)
                channel.queue_bind(name, EXCHANGE)

    def close(self) -> None:
        self._stack.close()

    def run(self, runs: int = KILLED) -> None:
        """One round."""
        wanted = self.killed + runs
        pairs = [(kind, source) for kind in self._kinds for source in archiver.SOURCES]
        self._publish()
        with self._archiver() as ask:
            place = 0
            while self.killed < wanted:
                kind, source = pairs[place % len(pairs)]
                place += 1
                step, how = self._chance.randrange(1, HUNDREDTHS_MAX), self._chance.choice(("", archiver.ON))
                self._lose(kind)
                outcome = ask(f"{source} {step} {how} {kind}")
                assert outcome != archiver.FAILED, self._log
                self.killed += outcome == archiver.KILLED
                if place % len(pairs) == 0:
                    self._publish()
            for kind, source in pairs:
                assert ask(f"{source} 0 {kind}") == archiver.DONE, self._log
        for kind in self._kinds:
            self.overlap(kind)

    def overlap(self, kind: str) -> None:
        """Have several runs archive one stream to one table at once, kill one, and have another go on."""
        self._publish()
        self._lose(kind)
        runs = [self._archive(kind) for _ in range(AT_ONCE)]
        time.sleep(self._chance.random() * 4)
        self._chance.choice(runs).kill()
        for run in runs:
            self._ended(run)
        assert self._ended(self._archive(kind)) == 0, "the run after them has failed"

    def _lose(self, kind: str) -> None:
        """Have the answer to a commit get lost, by chance."""
        if kind == archiver.REST and self._chance.random() < LOST:
            self._catalogue.lost = 1
            self.lost += 1

    def finish(self) -> list[str]:
        """Return what is wrong in the end."""
        for kind in self._kinds:
            assert self._ended(self._archive(kind)) == 0
        with self._archiver() as ask:
            for kind in self._kinds:
                for source in archiver.SOURCES:
                    assert ask(f"{source} 0 {kind}") == archiver.DONE, self._log
        wrong = []
        os.environ.update(self._variables)
        for name, readers, where in self._tables:
            for reader, rows in readers.items():
                wrong += compared(f"{name}, by {reader}", Counter(rows(where)), self.published)
        return wrong

    @property
    def _tables(self) -> Iterator[tuple[str, Mapping[str, Callable[..., Bodies]], Path | str]]:
        for kind in self._kinds:
            readers = STORE_READERS if kind == archiver.S3 else ICEBERG_READERS
            for source in archiver.SOURCES:
                yield f"{source} to {kind}", readers, self._place(kind, source)
            yield f"overlapping runs to {kind}", readers, self._place(kind, OVERLAPPING)

    def _place(self, kind: str, source: str) -> Path | str:
        if kind == archiver.ICEBERG:
            return archiver.iceberg_of(self._folder, source)
        return archiver.s3_of(source) if kind == archiver.S3 else archiver.rest_of(source)

    def _archive(self, kind: str) -> subprocess.Popen[str]:
        more = {archiver.ICEBERG: ["--format", "iceberg"], archiver.REST: ["--catalog", archiver.NAME]}
        words = [
            "pipeline",
            "archive",
            "lake-events",
            str(self._place(kind, OVERLAPPING)),
            *more.get(kind, []),
        ]
        words += ["--batch", "100", "--endpoint", self._node.url]
        command = [sys.executable, "-m", "leveret", *words]
        return subprocess.Popen(command, cwd=ROOT, env=self._environment, stderr=PIPE, text=True)

    def _ended(self, run: subprocess.Popen[str]) -> int:
        _, said = run.communicate(timeout=END_TIMEOUT_S)
        assert run.returncode in (0, -signal.SIGKILL) or ANOTHER in said, said
        self.overtaken += ANOTHER in said
        return run.returncode

    @property
    def _environment(self) -> dict[str, str]:
        return {**os.environ, **self._variables, "PYTHONPATH": str(ROOT)}

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
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="of tables; default: all")
    options = parser.parse_args()
    seed = random.SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    folder, started = Path(tempfile.mkdtemp(prefix="leveret-lake-rounds-")), time.monotonic()
    with store_in_use() as store:
        rounds = LakeRounds(folder, seed, store, options.kinds)
        try:
            for number in range(options.rounds):
                rounds.run()
                print(f"\rround {number + 1} of {options.rounds}", end="", flush=True)
            wrong = rounds.finish()
        finally:
            rounds.close()
    seconds = time.monotonic() - started
    print(
        f", {rounds.published} messages, {rounds.killed} runs killed, {rounds.overtaken} overtaken,"
        f" {rounds.lost} without an answer, {seconds:.0f} s"
    )
    if not wrong:
        shutil.rmtree(folder)
        return 0
    again = f"python -m tests.pipeline.lake_rounds --rounds {options.rounds} --seed {seed}"
    again += f" --kinds {' '.join(options.kinds)}"
    print("\n".join(wrong), f"what is left of it: {folder}", f"again: {again}", sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())

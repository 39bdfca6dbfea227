"""Tell what a job is doing at least every few seconds, and keep what Java prints in a file of its own."""

from __future__ import annotations

import logging
import os
import re
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

EVERY_S: Final = 5.0
LOOK_S: Final = 0.5
JAVA_VERSION: Final = re.compile(r'^JAVA_VERSION="(?:1\.)?(\d+)', re.MULTILINE)
NO_QUEUE: Final = re.compile(
    rb"(\d+) rows matched no queue and are gone"
)  # as `leveret.pipeline.sink` logs it
# PySpark repeats each error of a query there, as JSON, at the terminal.
QUERY_LOGGERS: Final = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")


class Activity:
    """The lines of a job, between which it says what takes so long."""

    def __init__(
        self, job: str, tell: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self.job = job
        self._tell = tell
        self._now = now
        self._lock = threading.Lock()  # lines come from two threads
        self._what: str | None = None
        self._since = self._said = now()
        self.log: SparkLog | None = None  # while Spark runs that this job has started

    def tell(self, line: str) -> None:
        with self._lock:
            self._said = self._now()
            self._tell(line)

    def doing(self, what: str | None) -> None:
        """Note what is under way; None: nothing is."""
        with self._lock:
            if what != self._what:
                self._what, self._since = what, self._now()

    def look(self) -> None:
        """Say what is under way, if nothing has been said for a while."""
        with self._lock:
            now = self._now()
            if self._what is not None and now - self._said >= EVERY_S:
                self._said = now
                self._tell(f"{self.job}: {self._what}, {now - self._since:.0f} s so far")

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Have a thread look in the block."""
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(LOOK_S):
                self.look()

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def versions(environ: Mapping[str, str]) -> str:
    """Return which Spark and Java are there, as far as their files tell."""
    try:
        spark = "Spark " + ".".join(version("pyspark").split(".")[:2])
    except PackageNotFoundError:
        spark = "Spark"
    return f"{spark} with {_java(environ)}"


def _java(environ: Mapping[str, str]) -> str:
    found = shutil.which("java", path=environ.get("PATH"))
    home = environ.get("JAVA_HOME") or (str(Path(found).resolve().parents[1]) if found else "")
    try:
        value = JAVA_VERSION.search((Path(home) / "release").read_text()) if home else None
    except OSError:
        value = None
    return f"Java {value[1]}" if value else "Java"


class SparkLog:
    """The file with what Java, Spark and its Python processes print, from where a job has begun."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._begin = file.stat().st_size

    def unroutable(self) -> int:
        """Return how many rows no queue has taken: processes of Spark's commit, and tell of it only there."""
        with self.file.open("rb") as log:
            log.seek(self._begin)
            return sum(int(match[1]) for line in log if (match := NO_QUEUE.search(line)))


@contextmanager
def java_log(file: Path | None) -> Iterator[SparkLog]:
    """Have what processes print that start in the block, and what PySpark logs of a query, in a file.

    Without `file`, it is a temporary one that goes if the block ends well. If it does not, the error gets a note with
    the file's name.
    """
    where = file or _temporary()
    try:
        with where.open("ab") as log, _standard_error(log.fileno()):
            yield SparkLog(where)
    except BaseException as error:
        if where.stat().st_size:
            error.add_note(f"Spark's log is {where}")
        elif file is None:
            where.unlink()
        raise
    if file is None:
        where.unlink()


def _temporary() -> Path:
    handle, name = tempfile.mkstemp(prefix="leveret-spark-", suffix=".log")  # nobody else may read it
    os.close(handle)
    return Path(name)


@contextmanager
def _standard_error(log: int) -> Iterator[None]:
    """Have descriptor 2 lead to a log for others, while our own lines go where they went."""
    sys.stderr.flush()
    kept, ours = os.dup(2), sys.stderr
    if ours is sys.__stderr__:  # otherwise it leads elsewhere already, as in a test
        sys.stderr = os.fdopen(os.dup(kept), "w", buffering=1)
    os.dup2(log, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        if sys.stderr is not ours:
            sys.stderr.close()
            sys.stderr = ours


def keep_query_errors(log: Path) -> None:
    """Have PySpark's own lines about errors of queries in the log. Spark must have started."""
    from pyspark.logger import PySparkLogger

    for name in QUERY_LOGGERS:
        logger = PySparkLogger.getLogger(name)
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
        logger.addHandler(logging.FileHandler(log, delay=True))

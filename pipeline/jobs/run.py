"""Run a query or a loop: report its progress in lines and a file of JSON lines, and end it on a signal."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, TextIO, TypeVar

import attrs

from leveret.pipeline.progress import lags_in, published_in

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

T = TypeVar("T")
POLL_S: Final = 1
PAUSE_S: Final = 0.1  # how long a request to stop may have to wait
STARTS_MAX: Final = 4
# Spark's words, in PythonWorkerFactory: it waits ten seconds for a Python worker, and no setting changes that.
LATE_WORKER: Final = "failed to connect back"
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Counts requests to stop: Ctrl-C or SIGTERM, while `listening`. The second one means at once."""

    def __init__(self) -> None:
        self.asked = 0

    @contextmanager
    def listening(self) -> Iterator[Stop]:
        """Handle signals in the block, in the main thread only. Spark must have started: it installs handlers, too."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = [signal.signal(each, self._on_signal) for each in SIGNALS]
        try:
            yield self
        finally:
            for each, handler in zip(SIGNALS, before, strict=True):
                signal.signal(each, handler)

    def ask_at_end_of(self, stream: TextIO) -> None:
        """Have a thread ask to stop when a stream ends, as a pipe does with the process that writes to it."""

        def wait() -> None:
            while stream.read(1):
                pass
            self.asked += 1

        threading.Thread(target=wait, daemon=True).start()

    def pause(self, seconds: float, sleep: Callable[[float], None] = time.sleep) -> None:
        """Sleep so long, or until it is asked to stop: a signal does not end a sleep by itself."""
        while seconds > 0 and not self.asked:
            part = min(seconds, PAUSE_S)
            sleep(part)
            seconds -= part

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self.asked > 1:
            raise KeyboardInterrupt


NEVER: Final = Stop()  # nobody asks it


class Report:
    """Reports the progress of a job."""

    def __init__(
        self,
        job: str,
        tell: Callable[[str], None],
        metrics: TextIO | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._job = job
        self._tell = tell
        self._metrics = metrics
        self._now = now
        self._began = now()
        self.batches = self.rows = 0
        self.published: int | None = None
        self.unroutable = self.undecoded = 0

    def batch(
        self,
        number: int,
        rows: int,
        seconds: float,
        behind: int | None = None,
        published: int | None = None,
        unroutable: int = 0,
        undecoded: int = 0,
    ) -> None:
        """Report a completed micro-batch. `behind`: the messages that are left to process, if that is known;
        `published`: how many rows its input became; `unroutable`: how many of them no queue has taken; `undecoded`:
        how many rows were not decoded.
        """
        self.batches += 1
        self.rows += rows
        if published is not None:
            self.published = published + (self.published or 0)
        self.unroutable += unroutable
        self.undecoded += undecoded
        rate = rows / max(seconds, 0.001)
        left = "" if behind is None else f", {behind:,} behind"
        many = _rows(rows, published, unroutable, undecoded)
        self._tell(f"{self._job}: batch {number}: {many} in {seconds:.1f} s, {rate:,.0f} rows/s{left}")
        more = _more(published, unroutable, undecoded)
        self._write(
            batch=number, rows=rows, **more, seconds=round(seconds, 3), rows_per_s=round(rate), behind=behind
        )

    def line(self, text: str) -> None:
        """Report something else, such as why there is no progress."""
        self._tell(f"{self._job}: {text}")

    def end(self, how: str) -> None:
        """Report the end. `how`: done, stopped or failed."""
        seconds = self._now() - self._began
        rate = self.rows / max(seconds, 0.001)
        many = "batch" if self.batches == 1 else "batches"
        batches = f" {self.batches:,} {many}," if self.batches else ""
        rows = _rows(self.rows, self.published, self.unroutable, self.undecoded)
        self._tell(f"{self._job}: {how}: {rows} in{batches} {seconds:.1f} s, {rate:,.0f} rows/s")
        more = _more(self.published, self.unroutable, self.undecoded)
        self._write(
            end=how,
            batches=self.batches,
            rows=self.rows,
            **more,
            seconds=round(seconds, 3),
            rows_per_s=round(rate),
        )

    def _write(self, **facts: object) -> None:
        if self._metrics is not None:
            line = {"time": round(self._now(), 3), "job": self._job, **facts}
            self._metrics.write(json.dumps(line) + "\n")
            self._metrics.flush()


def _rows(rows: int, published: int | None, unroutable: int, undecoded: int) -> str:
    text = f"{rows:,} rows" if published is None else f"{rows:,} rows read, {published:,} published"
    text += f", of which {undecoded:,} were not decoded" if undecoded else ""
    return f"{text}, of which {unroutable:,} reached no queue" if unroutable else text


def _more(published: int | None, unroutable: int, undecoded: int) -> dict[str, int]:
    found = {} if published is None else {"published": published}
    counts = {"unroutable": unroutable, "undecoded": undecoded}
    return {**found, **{name: count for name, count in counts.items() if count}}


class End:
    """The outcome of a job: `well` if it has ended by itself, not because it was asked to."""

    well = False


@contextmanager
def ended(report: Report) -> Iterator[End]:
    """Report the end of the block, however it ends."""
    end = End()
    try:
        yield end
    except BaseException:
        report.end("failed")
        raise
    report.end("done" if end.well else "stopped")


@contextmanager
def metrics_in(file: Path | None) -> Iterator[TextIO | None]:
    """Open the file for appending, if there is one."""
    if file is None:
        yield None
        return
    with file.open("a") as opened:
        yield opened


@attrs.frozen
class FinishedBatch:
    """One micro-batch, from Spark's progress report."""

    number: int
    rows: int
    seconds: float
    behind: int | None
    published: int | None = None  # rows that the input became, if the query counts them


def done_in(progress: dict[str, object]) -> FinishedBatch:
    """Return the micro-batch of Spark's progress report, as JSON."""
    took = progress.get("batchDuration")
    rows, number = progress["numInputRows"], progress["batchId"]
    assert isinstance(rows, int)
    assert isinstance(number, int)
    seconds = took / 1000 if isinstance(took, int) else 0.0
    return FinishedBatch(number, rows, seconds, behind(progress), published_in(progress))


def behind(progress: dict[str, object]) -> int | None:
    """Return the messages between the end of the micro-batch and the newest one; None if our source reports none."""
    found = lags_in(progress)
    return None if found is None else sum(each.behind for each in found)


def patiently(
    run: Callable[[], T], again: Callable[[], bool] = lambda: True, starts_max: int = STARTS_MAX
) -> T:
    """Return what `run` does, and run it again, up to `starts_max` times in all, where it has failed only since a
    Python worker started too slowly for Spark. `again` is asked before; if it refuses, the error is raised.
    """
    for _ in range(starts_max - 1):
        try:
            return run()
        except Exception as error:
            if LATE_WORKER not in str(error) or not again():
                raise
    return run()


def told_again(job: str, tell: Callable[[str], None], stop: Stop = NEVER) -> Callable[[], bool]:
    """Return a function that tells why a job is started again, and returns whether it is to be."""

    def again() -> bool:
        if not stop.asked:
            tell(f"{job}: the machine is busy: Spark waited ten seconds for a Python worker; starting again")
        return not stop.asked

    return again


def on_a_busy_machine(job: str, tell: Callable[[str], None], run: Callable[[], bool], stop: Stop) -> bool:
    """Run what may be run again, patiently, and tell of it. Return what `run` does, or False if it is to stop."""
    try:
        return patiently(run, told_again(job, tell, stop))
    except Exception as error:
        if stop.asked and LATE_WORKER in str(error):
            return False
        raise


@attrs.frozen
class WrittenRows:
    """The rows that a micro-batch has added, and how many of them were not decoded."""

    rows: int
    undecoded: int = 0


NOTHING: Final[Mapping[int, WrittenRows]] = {}


def watch(
    query: StreamingQuery,
    report: Report,
    stop: Stop,
    written: Mapping[int, WrittenRows] = NOTHING,
    doing: Callable[[str | None], None] = lambda what: None,
    progressed: Callable[[dict[str, object], int], None] = lambda progress, rows: None,
) -> bool:
    """Wait until the query ends by itself and return True, or stop it after its micro-batch if asked to and return
    False. `written` has the rows of micro-batches whose input Spark counts as something else, such as files. `doing`
    is told what is under way, and `progressed` Spark's report of each micro-batch that has read something, with its
    rows.

    Raises the error that the query failed with.
    """
    seen, begun = -1, None
    while True:
        doing(f"batch {seen + 1} is under way" if query.status["isTriggerActive"] else None)
        try:
            ended = query.awaitTermination(POLL_S)
        except Exception:
            _report_from(seen, query, report, written, progressed)
            raise
        seen = _report_from(seen, query, report, written, progressed)
        if ended:
            return True
        if not stop.asked:
            continue
        begun = seen if begun is None else begun
        if seen > begun or not query.status["isTriggerActive"]:
            query.stop()
            return False


def _report_from(
    seen: int,
    query: StreamingQuery,
    report: Report,
    written: Mapping[int, WrittenRows],
    progressed: Callable[[dict[str, object], int], None],
) -> int:
    """Report the micro-batches after that numbered `seen`, and return the number of the last."""
    for progress in query.recentProgress:
        content = json.loads(progress.json)
        done = done_in(content)
        if done.rows and done.number > seen:
            seen = done.number
            added = written.get(done.number) or WrittenRows(done.rows)
            more = (done.published, 0, added.undecoded)
            report.batch(done.number, added.rows, done.seconds, done.behind, *more)
            progressed(content, added.rows)
    return seen

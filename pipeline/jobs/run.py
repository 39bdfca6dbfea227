"""A query or a loop that runs, to what people and programs see of it: lines, a file of JSON lines, an end in order."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Final, TextIO

import attrs

from pipeline.errors import PipelineError
from pipeline.offsets import from_json

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

POLL_S: Final = 1
SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


class Stop:
    """Whether somebody wants an end: Ctrl-C or SIGTERM, while `listening`. The second time means at once."""

    def __init__(self) -> None:
        self.asked = 0

    @contextmanager
    def listening(self) -> Iterator[Stop]:
        """Begin after Spark has started: it takes signals for itself, and drops what it does. Only the main thread
        hears them."""
        if threading.current_thread() is not threading.main_thread():
            yield self
            return
        before = [signal.signal(each, self._on_signal) for each in SIGNALS]
        try:
            yield self
        finally:
            for each, handler in zip(SIGNALS, before, strict=True):
                signal.signal(each, handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self.asked += 1
        if self.asked > 1:
            raise KeyboardInterrupt


class Report:
    """Tells how far a job has come. `behind`: messages that are there and were not done yet, if that is known."""

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

    def batch(self, number: int, rows: int, seconds: float, behind: int | None = None) -> None:
        """A micro-batch is done."""
        self.batches += 1
        self.rows += rows
        rate = rows / max(seconds, 0.001)
        left = "" if behind is None else f", {behind:,} behind"
        self._tell(f"{self._job}: batch {number}: {rows:,} rows in {seconds:.1f} s, {rate:,.0f} rows/s{left}")
        self._write(batch=number, rows=rows, seconds=round(seconds, 3), rows_per_s=round(rate), behind=behind)

    def end(self, how: str) -> None:
        """`how`: done, stopped or failed."""
        seconds = self._now() - self._began
        rate = self.rows / max(seconds, 0.001)
        many = "batch" if self.batches == 1 else "batches"
        batches = f" {self.batches:,} {many}," if self.batches else ""
        self._tell(f"{self._job}: {how}: {self.rows:,} rows in{batches} {seconds:.1f} s, {rate:,.0f} rows/s")
        self._write(
            end=how, batches=self.batches, rows=self.rows, seconds=round(seconds, 3), rows_per_s=round(rate)
        )

    def _write(self, **said: object) -> None:
        if self._metrics is not None:
            line = {"time": round(self._now(), 3), "job": self._job, **said}
            self._metrics.write(json.dumps(line) + "\n")
            self._metrics.flush()


class End:
    """How a job has ended: by itself, or because it was asked to."""

    well = False


@contextmanager
def ended(report: Report) -> Iterator[End]:
    """The last line, whatever happens."""
    end = End()
    try:
        yield end
    except BaseException:
        report.end("failed")
        raise
    report.end("done" if end.well else "stopped")


@contextmanager
def metrics_in(file: Path | None) -> Iterator[TextIO | None]:
    """Lines are added to what the file has."""
    if file is None:
        yield None
        return
    with file.open("a") as opened:
        yield opened


@attrs.frozen
class FinishedBatch:
    """One micro-batch, from Spark's own words about it."""

    number: int
    rows: int
    seconds: float
    behind: int | None


def done_in(progress: dict[str, object]) -> FinishedBatch:
    """`progress`: Spark's, as JSON."""
    took = progress.get("batchDuration")
    rows, number = progress["numInputRows"], progress["batchId"]
    assert isinstance(rows, int)
    assert isinstance(number, int)
    return FinishedBatch(number, rows, took / 1000 if isinstance(took, int) else 0.0, behind(progress))


def behind(progress: dict[str, object]) -> int | None:
    """Messages between where the micro-batch ended and what there was; None if our source does not say."""
    total = None
    sources = progress.get("sources")
    for source in sources if isinstance(sources, list) else ():
        try:
            end, latest = from_json(source["endOffset"]), from_json(source["latestOffset"])
        except (PipelineError, KeyError, TypeError):
            continue
        far = sum(max(0, mark.next - end[each].next) for each, mark in latest.items() if each in end)
        total = far + (total or 0)
    return total


def watch(query: StreamingQuery, report: Report, stop: Stop) -> bool:
    """Until the query ends by itself, or is told to and has ended its micro-batch. Whether it was the former.

    Raises what the query failed with.
    """
    seen, begun = -1, None
    while True:
        ended = query.awaitTermination(POLL_S)
        for progress in query.recentProgress:
            done = done_in(json.loads(progress.json))
            if done.rows and done.number > seen:
                seen = done.number
                report.batch(done.number, done.rows, done.seconds, done.behind)
        if ended:
            return True
        if not stop.asked:
            continue
        begun = seen if begun is None else begun
        if seen > begun or not query.status["isTriggerActive"]:
            query.stop()
            return False

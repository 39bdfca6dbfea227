"""Publish the rows of a replay by staged commits, at the wanted rate. See replay.py for how each row is published
once."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from secrets import randbits
from typing import TYPE_CHECKING, Final, Protocol

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import from_arrow_schema

from leveret.pipeline.columns import columns_of
from leveret.pipeline.encode import Encoder, together
from leveret.pipeline.errors import Refused, Unroutable
from leveret.pipeline.jobs.replay import Checkpoint, Plan, ReplayRequest, chunks, plan_of
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.publisher import Part, Published, Publisher, State, Taken
from leveret.pipeline.sink_options import SinkOptions, read_sink_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log: Final = logging.getLogger("leveret.pipeline")
COMMIT_ROWS: Final = 20_000  # without a rate
COMMITS_A_SECOND: Final = 10  # with a rate
ATTEMPT_BITS: Final = 62
TELL_S: Final = 1.0  # between two lines of the report
STAGED_MAX: Final = 100  # batches that are staged before the first of them is committed
NAMED_MAX: Final = 3  # rows that an error names
PLACE: Final = ("stream", "partition", "offset")


class BatchPublisher(Protocol):
    """The requests for staging, which a `Publisher` can make."""

    def stage(
        self, name: str, batch: int, partition: int, attempt: int, piece: int, blocks: bytes
    ) -> Taken: ...
    def commit(self, name: str, batch: int, parts: Sequence[Part]) -> Published: ...
    def drop(self, name: str, batch: int) -> None: ...
    def state(self, name: str) -> State | None: ...
    def forget(self, name: str) -> None: ...


class Pace:
    """Limits rows per second on average."""

    def __init__(
        self,
        rate: int,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._due = now()

    @property
    def step(self) -> int:
        """The number of rows of a commit."""
        return max(1, self._rate // COMMITS_A_SECOND) if self._rate else COMMIT_ROWS

    def wait(self, rows: int) -> None:
        """Wait until so many rows may be published. A delay by a slow broker is not caught up with at once."""
        if not self._rate:
            return
        now = self._now()
        if self._due > now:
            self._sleep(self._due - now)
        self._due = max(self._due, now - 1) + rows / self._rate


@attrs.frozen
class Poured:
    """The rows of a replay that are done, and how many of the last commit no queue has taken."""

    done: int
    unroutable: int


@attrs.frozen
class Replaying:
    """One replay and its target. `checkpoint` is None if it need not be continued later."""

    plan: Plan
    broker: BatchPublisher
    sink: SinkOptions
    checkpoint: Checkpoint | None = None

    def done(self) -> int:
        """Return the number of rows that are published."""
        state = self.broker.state(self.plan.name)
        here = 0 if self.checkpoint is None else self.checkpoint.done
        return here if state is None else max(here, state.batch + 1)

    def run(self, spark: SparkSession, pace: Pace, report: Report, stop: Stop) -> bool:
        """Publish the rows that are left; return False if `stop` has interrupted that. Raises PipelineError."""
        done, total = self.done(), self.plan.total
        telling = Telling(report, total, done)
        for first, table in chunks(spark, self.plan, done, self.sink.username):
            for poured in self.pour(first, table, pace):
                done = poured.done
                if self.checkpoint is not None:
                    self.checkpoint.keep_done(done)
                telling.upto(poured, at_once=stop.asked > 0 or done == total)
                if stop.asked and done < total:
                    return False
        self.broker.forget(self.plan.name)
        return True

    def pour(self, first: int, table: pa.Table, pace: Pace) -> Iterator[Poured]:
        """Publish a table that begins with row `first` of the replay. Yields what is done after each commit.

        As much as possible is staged before the first commit, so that a row which no queue would get is refused before
        the rows in front of it are published.
        """
        encoder = Encoder(columns_of(from_arrow_schema(table.schema), self.sink), self.sink)
        at = 0
        while at < table.num_rows:
            staged: list[tuple[int, Part]] = []
            begin = at
            try:
                while at < table.num_rows and len(staged) < STAGED_MAX:
                    rows = min(pace.step, table.num_rows - at)
                    number = first + at + rows - 1
                    staged.append((number, self._staged(encoder, number, table.slice(at, rows))))
                    at += rows
            except Unroutable as refused:
                for each in (*(number for number, _ in staged), number):
                    self.broker.drop(self.plan.name, each)
                raise Refused(_nowhere(refused, table.slice(begin), first + begin)) from None
            for number, part in staged:
                pace.wait(part[2])
                found = self.broker.commit(self.plan.name, number, [part])
                yield Poured(number + 1, found.unroutable)

    def _staged(self, encoder: Encoder, number: int, table: pa.Table) -> Part:
        attempt = randbits(ATTEMPT_BITS)  # so that rows left by an earlier run are not mistaken for ours
        blocks = together(made for batch in table.to_batches() for made in encoder.blocks(batch))
        for piece, made in enumerate(blocks):
            self.broker.stage(self.plan.name, number, 0, attempt, piece, made.octets)
        return 0, attempt, table.num_rows


def _nowhere(refused: Unroutable, table: pa.Table, done: int) -> str:
    """Return the error of a replay that would lose rows: which they are, and what is published."""
    places = []
    if set(PLACE) <= set(table.column_names):
        rows = table.select([*PLACE, "routing_key"]).filter(pc.equal(table["routing_key"], refused.key))
        places = [
            f"offset {row['offset']} of partition {row['partition']} of stream '{row['stream']}'"
            for row in rows.slice(0, NAMED_MAX).to_pylist()
        ]
    which = f" (such as {', '.join(places)})" if places else ""
    so_far = f"{done:,} rows before it are published" if done else "nothing is published"
    return f"{refused}{which}; {so_far}"


def replay(
    spark: SparkSession,
    request: ReplayRequest,
    sink: Mapping[str, str],
    checkpoint: Checkpoint | None = None,
    pace: Pace | None = None,
    report: Report | None = None,
    stop: Stop | None = None,
) -> bool:
    """Publish the rows of a replay that are left; return False if `stop` has interrupted that.

    `sink` has the options of `format("amqp")`, besides the exchange. Raises PipelineError.
    """
    options = read_sink_options({**sink, "exchange": request.exchange})
    plan = plan_of(spark, request, checkpoint)
    with closing(Publisher(options)) as publisher:
        replaying = Replaying(plan, publisher, options, checkpoint)
        return replaying.run(spark, pace or Pace(0), report or Report("replay", log.info), stop or Stop())


class Telling:
    """Reports about once a second, because there are many commits."""

    def __init__(
        self, report: Report, total: int, done: int, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._report = report
        self._total = total
        self._done = done
        self._unroutable = 0
        self._now = now
        self._told = now()

    def upto(self, poured: Poured, at_once: bool) -> None:
        self._unroutable += poured.unroutable
        seconds = self._now() - self._told
        if seconds < TELL_S and not at_once:
            return
        rows, left = poured.done - self._done, self._total - poured.done
        self._report.batch(self._report.batches, rows, seconds, left, unroutable=self._unroutable)
        self._done, self._unroutable = poured.done, 0
        self._told = self._now()

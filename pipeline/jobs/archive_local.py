"""Archive streams and queues in this process, without Spark: what is there now, to the same table and checkpoint.

    checkpoint ── where to go on ──> plan of a micro-batch, noted ──> data files ──> commit to the table ──> noted

These are Spark's steps, in Spark's files: a run of Spark goes on where a run of this ended, and the other way round. A
run that is killed leaves a micro-batch that is planned and not done; the next run reads the same messages, and the
table's log says whether they are in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import attrs

from leveret.pipeline.client import Client
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.checkpoints import Position
from leveret.pipeline.jobs.data_files import DataFile, Layout, table_schema
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.jobs.table_positions import ArchiveCheckpoint, agree
from leveret.pipeline.leases import Leases
from leveret.pipeline.offsets import Interval, Marks, Range
from leveret.pipeline.options import Offsets, Options, SinceEach
from leveret.pipeline.planner import Limit, Planner
from leveret.pipeline.progress import PartitionLag, QueryProgress
from leveret.pipeline.reader import rows_of


def file_name(wanted: Range) -> str:
    """Return what the names of the data files of a range begin with."""
    return f"{wanted.partition}-{wanted.first}-{wanted.until}"


def write(options: Options, layout: Layout, wanted: Range) -> list[DataFile]:
    """Write the messages of a range as data files. Raises PipelineError."""
    return layout.write(rows_of(options, layout.columns, wanted), file_name(wanted))


def read_by(ranges: Iterable[Range]) -> dict[str, Interval]:
    """Return the offsets that the tasks of a micro-batch read, by the names that partitions have in a table's log."""
    found: dict[str, Interval] = {}
    for each in ranges:
        name = delta.position_id((each.stream, each.partition), each.incarnation)
        first, until = found.get(name, (each.first, each.until))
        found[name] = min(first, each.first), max(until, each.until)
    return found


@attrs.frozen
class Backlog:
    """The messages that a run would read, and the bytes of their bodies, about."""

    messages: int
    octets: int


class LocalArchive:
    """A run of one archive. Not to be shared by threads."""

    def __init__(
        self,
        options: Options,
        layout: Layout,
        checkpoint: ArchiveCheckpoint,
        planner: Planner,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._layout = layout
        self._checkpoint = checkpoint
        self._planner = planner
        self._now = now
        self._limit = Limit(options.max_offsets_per_trigger, options.max_bytes_per_trigger)

    def agree(self) -> str | None:
        """Have the checkpoint go on where the table ends, and return a line if it did not. Raises PipelineError."""
        is_explicit = isinstance(self._options.starting, Offsets | SinceEach)
        return agree(self._checkpoint, self._layout, self._planner.initial, is_explicit, self._now_ms())

    def backlog(self) -> Backlog:
        """Return what there is to read now. Raises PipelineError."""
        return Backlog(*self._planner.outstanding(self._begin(self._checkpoint.position())))

    def _begin(self, found: Position) -> Marks:
        """Return where the next micro-batch begins."""
        return found.marks or self._planner.initial()

    def run(
        self, report: Report, stop: Stop, progressed: Callable[[QueryProgress], None] = lambda progress: None
    ) -> bool:
        """Archive what is there now; return False if `stop` has interrupted that. Raises PipelineError, OSError.

        `progressed` is told how far the table is after each micro-batch, and also if there is none.
        """
        self._planner.prepare_available_now()
        is_told = False
        while not stop.asked:
            found = (
                self._checkpoint.position()
            )  # read once: another run must not come between start and number
            start, batch = self._begin(found), found.planned
            if found.planned > found.done:  # an earlier run has planned it, and perhaps not finished
                end = self._checkpoint.planned(batch)
            else:
                # what is below `start` is settled, as it is in the table
                batch, end = found.planned + 1, self._planner.latest(start, self._limit)
                if end == start:
                    if not is_told and found.done >= 0:
                        progressed(self._progress(found.done, 0, 0.0, end))
                    return True
                self._checkpoint.plan(batch, end, self._now_ms())
            done = self._archive(batch, start, end)
            report.batch(batch, done.rows, done.seconds, done.behind)
            progressed(done)
            is_told = True
        return False

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _archive(self, batch: int, start: Marks, end: Marks) -> QueryProgress:
        layout, began, rows = self._layout, self._now(), 0
        if not delta.is_there(layout.where, self._checkpoint.query, batch):
            ranges = self._planner.ranges(start, end)
            files = [file for each in ranges for file in write(self._options, layout, each)]
            columns = table_schema(layout.columns, layout.by)
            reads = delta.CommittedBatch(self._checkpoint.query, batch, read_by(ranges))
            if delta.append(layout.where, layout.by, columns, files, reads):
                rows = sum(file.rows for file in files)
        self._checkpoint.commit(batch)
        return self._progress(batch, rows, self._now() - began, end)

    def _progress(self, batch: int, rows: int, seconds: float, end: Marks) -> QueryProgress:
        newest = self._planner.newest()
        lags = [
            PartitionLag(*each, end[each].next, mark.next, mark.incarnation)
            for each, mark in sorted(newest.items())
            if each in end
        ]
        return QueryProgress("archive", batch, rows, None, rows / max(seconds, 0.001), tuple(lags), seconds)


@contextmanager
def local_archive(options: Options, layout: Layout, checkpoint: ArchiveCheckpoint) -> Iterator[LocalArchive]:
    """Yield a run, with its connection to the broker."""
    client = Client(options)
    try:
        yield LocalArchive(options, layout, checkpoint, Planner(options, client, Leases(client)))
    finally:
        client.close()

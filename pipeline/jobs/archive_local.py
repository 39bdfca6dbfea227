"""Archive streams and queues in this process, without Spark: what is there now, to the same table and checkpoint.

    checkpoint ── where to go on ──> plan of a micro-batch, noted ──> data files ──> commit to the table ──> noted

These are Spark's steps, in Spark's files: a run of Spark goes on where a run of this ended, and the other way round. A
run that is killed leaves a micro-batch that is planned and not done; the next run reads the same messages, and the
table's log says whether they are in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import attrs

from leveret.pipeline.client import Client
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.checkpoints import QueryCheckpoint
from leveret.pipeline.jobs.data_files import DataFile, Layout, table_schema
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.leases import Leases
from leveret.pipeline.offsets import Marks, Range
from leveret.pipeline.options import Options
from leveret.pipeline.planner import Limit, Planner
from leveret.pipeline.reader import rows_of


def file_name(asked: Range) -> str:
    """Return what the names of the data files of a range begin with."""
    return f"{asked.partition}-{asked.first}-{asked.until}"


def write(options: Options, layout: Layout, asked: Range) -> list[DataFile]:
    """Write the messages of a range as data files. Raises PipelineError."""
    return layout.write(rows_of(options, layout.columns, asked), file_name(asked))


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
        checkpoint: QueryCheckpoint,
        planner: Planner,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._options = options
        self._layout = layout
        self._checkpoint = checkpoint
        self._planner = planner
        self._now = now
        self._limit = Limit(options.max_offsets_per_trigger, options.max_bytes_per_trigger)
        self._start: Marks | None = None

    def backlog(self) -> Backlog:
        """Return what there is to read now. Raises PipelineError."""
        return Backlog(*self._planner.outstanding(self._begin()))

    def _begin(self) -> Marks:
        """Return where the next micro-batch begins."""
        if self._start is None:
            marks = self._checkpoint.position().marks
            self._start = marks or self._planner.initial()
        return self._start

    def run(self, report: Report, stop: Stop) -> bool:
        """Archive what is there now; return False if `stop` has interrupted that. Raises PipelineError, OSError."""
        self._begin()
        self._planner.prepare_available_now()
        self._go_on(report)
        while not stop.asked:
            start = self._begin()
            # what is below `start` is settled, as it is in the table
            end = self._planner.latest(start, self._limit)
            if end == start:
                return True
            batch = self._checkpoint.position().planned + 1
            self._checkpoint.plan(batch, end, int(self._now() * 1000))
            self._archive(batch, start, end, report)
        return False

    def _go_on(self, report: Report) -> None:
        """Do the micro-batch that an earlier run has planned, and perhaps not finished."""
        found = self._checkpoint.position()
        if found.planned > found.done:
            end = self._checkpoint.planned(found.planned)
            self._archive(found.planned, self._begin(), end, report)

    def _archive(self, batch: int, start: Marks, end: Marks, report: Report) -> None:
        layout, began, rows = self._layout, self._now(), 0
        if not delta.is_there(layout.where, self._checkpoint.query, batch):
            ranges = self._planner.ranges(start, end)
            files = [file for each in ranges for file in write(self._options, layout, each)]
            columns = table_schema(layout.columns, layout.by)
            if delta.append(layout.where, layout.by, columns, files, self._checkpoint.query, batch):
                rows = sum(file.rows for file in files)
        self._checkpoint.commit(batch)
        self._start = end
        report.batch(batch, rows, self._now() - began, self._behind(end))

    def _behind(self, end: Marks) -> int:
        newest = self._planner.newest()
        return sum(max(0, mark.next - end[each].next) for each, mark in newest.items() if each in end)


@contextmanager
def local_archive(options: Options, layout: Layout, checkpoint: QueryCheckpoint) -> Iterator[LocalArchive]:
    """Yield a run, with its connection to the broker."""
    client = Client(options)
    try:
        yield LocalArchive(options, layout, checkpoint, Planner(options, client, Leases(client)))
    finally:
        client.close()

"""Archive streams and queues in this process, without Spark: what is there now, or also what comes, to the same table
and checkpoint.

    checkpoint ── where to go on ──> plan of a micro-batch, noted ──> data files ──> commit to the table ──> noted

These are Spark's steps, in Spark's files: a run of Spark goes on where a run of this ended, and the other way round. A
run that is killed leaves a micro-batch that is planned and not done; the next run reads the same messages, and the
table's log says whether they are in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

import attrs

from leveret.pipeline.client import Client
from leveret.pipeline.errors import PipelineError, Unauthorized, Unreachable
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import Target
from leveret.pipeline.jobs.archive_log import ArchiveLog
from leveret.pipeline.jobs.checkpoints import Position
from leveret.pipeline.jobs.data_files import FILE_OCTETS, DataFile, Layout
from leveret.pipeline.jobs.decoding import Decoding
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.jobs.table_log import TableLog
from leveret.pipeline.jobs.table_positions import ArchiveCheckpoint, TableCheckpoint, agree
from leveret.pipeline.leases import Leases
from leveret.pipeline.offsets import Interval, Marks, Range, read_between
from leveret.pipeline.options import Offsets, Options, SinceEach
from leveret.pipeline.planner import Limit, Planner
from leveret.pipeline.progress import PartitionLag, QueryProgress
from leveret.pipeline.reader import rows_of

RETRY_S: Final = 5  # a run that goes on asks so long at a time, and may be stopped between
PAUSE_S, PAUSE_MAX_S = 1.0, 30.0  # between attempts to reach a broker that is gone
IDLE_REPORT_S: Final = 60  # a broker that was restarted knows of a run again after this time


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


Progressed = Callable[[QueryProgress], None]


def unreported(progress: QueryProgress) -> None:
    """Report nothing: the default."""


def unasked() -> None:
    """Do nothing: a table without decoded bodies tells of no other."""


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
        log: ArchiveLog | None = None,
        decoding: Decoding | None = None,
    ) -> None:
        """Make a run, whose bodies `decoding` may decode; without `log` it is that of a Delta table."""
        self._is_delta = log is None
        self._decoding = decoding
        self._options = options
        self._layout = layout
        self._checkpoint = checkpoint
        self._planner = planner
        self._now = now
        if log is None and decoding is not None:
            log = decoding.log()
        self._log = log or TableLog(layout.where, layout.by, layout.in_table)
        self._undecoded = 0  # rows of the micro-batch that were not decoded
        self._limit = Limit(options.max_offsets_per_trigger, options.max_bytes_per_trigger)

    def agree(self) -> str | None:
        """Have the checkpoint go on where the table ends, and return a line if it did not. Raises PipelineError."""
        if not self._is_delta:
            return None  # the checkpoint is the table's own
        if self._decoding is not None:
            self._decoding.begin()
        is_explicit = isinstance(self._options.starting, Offsets | SinceEach)
        return agree(self._checkpoint, self._layout, self._planner.initial, is_explicit, self._now_ms())

    def backlog(self) -> Backlog:
        """Return what there is to read now. Raises PipelineError."""
        return Backlog(*self._planner.outstanding(self._begin(self._checkpoint.position())))

    def _begin(self, found: Position) -> Marks:
        """Return where the next micro-batch begins."""
        return found.marks or self._planner.initial()

    def run(self, report: Report, stop: Stop, progressed: Progressed = unreported) -> bool:
        """Archive what is there now; return False if `stop` has interrupted that. Raises PipelineError, OSError.

        `progressed` is told how far the table is after each micro-batch, and also if there is none.
        """
        self._planner.prepare_available_now()
        is_told = False
        while not stop.asked:
            done = self._step(report)
            if done is None:
                if not is_told and (standing := self._standing()) is not None:
                    progressed(standing)
                return True
            progressed(done)
            is_told = True
        return False

    def run_on(
        self,
        report: Report,
        stop: Stop,
        every_s: float,
        progressed: Progressed = unreported,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Archive what is there and what comes, until `stop`; the running micro-batch is completed then.

        A micro-batch begins `every_s` after the one before has begun, or as soon as that one ends if it took longer or
        had to leave messages. While no broker answers, or none lets us in after one did, it tries again, in the middle
        of a micro-batch, too. `progressed` is told after each micro-batch, and every minute without one.

        Raises PipelineError, OSError.
        """
        pause, is_let_in, told = PAUSE_S, False, self._now()
        while not stop.asked:
            began = self._now()
            try:
                done = self._step(report)
                if done is None and began - told >= IDLE_REPORT_S:
                    done = self._standing()
            except (Unreachable, Unauthorized) as error:
                if isinstance(error, Unauthorized) and not is_let_in:
                    raise
                report.line(f"{error}; trying again in {pause:.0f} s")
                stop.pause(pause, sleep)
                pause = min(2 * pause, PAUSE_MAX_S)
                continue
            pause, is_let_in = PAUSE_S, True
            if done is not None:
                told = began
                progressed(done)
            if done is None or not self._planner.left:
                stop.pause(began + every_s - self._now(), sleep)
        self._settle()

    def _settle(self) -> None:
        """Settle what is in the table: a queue shall not keep it until the next run."""
        with suppress(PipelineError):  # then the next run does
            self._planner.commit(self._checkpoint.position().marks)

    def _step(self, report: Report) -> QueryProgress | None:
        """Do one micro-batch and report it; return None if there is nothing to read."""
        # Read once: another run must not come between start and number.
        found = self._checkpoint.position()
        start, batch = self._begin(found), found.planned
        if found.planned > found.done:  # an earlier run has planned it, and perhaps not finished
            end = self._checkpoint.planned(batch)
        else:
            # what is below `start` is settled, as it is in the table
            batch, end = found.planned + 1, self._planner.latest(start, self._limit)
            if end == start:
                return None
            self._checkpoint.plan(batch, end, self._now_ms())
        done = self._archive(batch, start, end)
        report.batch(batch, done.rows, done.seconds, done.behind, undecoded=self._undecoded)
        return done

    def _standing(self) -> QueryProgress | None:
        """Return how far the table is without a new micro-batch; None if it has none at all."""
        found = self._checkpoint.position()
        return self._progress(found.done, 0, 0.0, found.marks) if found.done >= 0 else None

    def _now_ms(self) -> int:
        return int(self._now() * 1000)

    def _archive(self, batch: int, start: Marks, end: Marks) -> QueryProgress:
        began, rows, self._undecoded = self._now(), 0, 0
        if self._log.is_there(self._checkpoint.query, batch):
            self._require_whole(batch, start, end)
        else:
            rows = self._add(batch, start, end)
        self._checkpoint.commit(batch)
        self._log.upkeep(self._now(), unasked if self._decoding is None else self._decoding.complete)
        return self._progress(batch, rows, self._now() - began, end)

    def _add(self, batch: int, start: Marks, end: Marks) -> int:
        """Write and commit some messages, and return how many have been added."""
        ranges = self._planner.ranges(start, end)
        read = self._layout.columns if self._decoding is None else self._decoding.read
        found = (each for wanted in ranges for each in rows_of(self._options, read, wanted))
        name, commit = f"batch-{batch}", delta.CommittedBatch(self._checkpoint.query, batch, read_by(ranges))
        if self._decoding is None:
            files, undecoded = self._layout.write(found, name), 0
            rows, is_new = sum(file.rows for file in files), self._log.append(files, commit)
        else:
            written = self._decoding.write(found, name)
            rows, undecoded = written.rows, written.undecoded_rows
            is_new = self._decoding.commit(self._log, written, commit)
        if not is_new:
            if self._log.is_there(self._checkpoint.query, batch):
                self._require_whole(batch, start, end)
            return 0
        self._undecoded = undecoded
        return rows

    def _require_whole(self, batch: int, start: Marks, end: Marks) -> None:
        """Check that the table has all that a micro-batch reads which it has the number of. Raises PipelineError.

        A folder keeps a plan for whoever does it. Without one, another run may have given its own plan that number.
        """
        if not isinstance(self._checkpoint, TableCheckpoint):
            return
        for each, _, mark in read_between(start, end):
            at = self._log.number(delta.position_id(each, mark.incarnation))
            if at < mark.next:
                raise PipelineError(
                    f"{self._layout.where}: another run has added batch {batch}, which ends at offset {at - 1} of"
                    f" partition {each[1]} of '{each[0]}', and this one has read up to {mark.next - 1}. The next one"
                    " goes on where the table ends"
                )

    def _progress(self, batch: int, rows: int, seconds: float, end: Marks) -> QueryProgress:
        newest = self._planner.newest()
        lags = [
            PartitionLag(*each, end[each].next, mark.next, mark.incarnation)
            for each, mark in sorted(newest.items())
            if each in end
        ]
        return QueryProgress("archive", batch, rows, None, rows / max(seconds, 0.001), tuple(lags), seconds)


@contextmanager
def local_archive(
    options: Options,
    layout: Layout,
    checkpoint: ArchiveCheckpoint,
    now: Callable[[], float] = time.time,
    decoding: Decoding | None = None,
) -> Iterator[LocalArchive]:
    """Yield a run, with its connection to the broker. `now` returns seconds since 1970."""
    client = Client(options)
    try:
        planner = Planner(options, client, Leases(client))
        yield LocalArchive(options, layout, checkpoint, planner, now, decoding=decoding)
    finally:
        client.close()


@contextmanager
def iceberg_archive(
    options: Options,
    target: Target,
    sources: Sequence[str],
    now: Callable[[], float] = time.time,
    decoding: Decoding | None = None,
) -> Iterator[LocalArchive]:
    """Yield a run to an Iceberg table, which goes on where the table ends. Raises PipelineError."""
    from leveret.pipeline.jobs.archive_columns import columns
    from leveret.pipeline.jobs.iceberg import IcebergLog

    if decoding is None:
        rows = columns(options, target.by)
    else:
        decoding.begin()
        rows = decoding.columns
    log = IcebergLog(target.where, target.catalogue, target.by, rows, widens=decoding is not None)
    size = FILE_OCTETS if target.file_octets is None else target.file_octets
    layout = Layout(log.data, target.by, rows, size, is_whole=True, system=log.system)
    client = Client(options)
    try:
        planner = Planner(options, client, Leases(client))
        checkpoint = log.begin(sources, planner.initial())
        yield LocalArchive(options, layout, checkpoint, planner, now, log, decoding)
    finally:
        client.close()

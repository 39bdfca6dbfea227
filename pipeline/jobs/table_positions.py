"""Compare a checkpoint with its table before a run: the table's log says how far each partition is in the table.

    the table is ahead       a checkpoint that is new, lost, or an old copy: it goes on where the table ends
    the checkpoint is ahead  the table was deleted, replaced or set back: refused, since rows would be missing
    neither is               the run goes on

Each commit to the table names how far it has come in each partition (`leveret.pipeline.jobs.delta`), so a checkpoint
is a copy of that, in the form in which Spark reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Final, Protocol

import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.checkpoints import Position
from leveret.pipeline.jobs.data_files import table_schema
from leveret.pipeline.offsets import Mark, Marks, Partition, read_between

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from leveret.pipeline.jobs.data_files import Layout

WHOSE: Final = ("stream", "partition")  # the columns that say which partition a row is of


class ArchiveCheckpoint(Protocol):
    """The position of a query: in a folder as Spark has it, or in the table alone."""

    @property
    def query(self) -> str: ...
    def position(self) -> Position: ...
    def planned(self, batch: int) -> Marks: ...
    def plan(self, batch: int, end: Marks, now_ms: int) -> None: ...
    def commit(self, batch: int) -> None: ...
    def forget(self, batch: int) -> None: ...


def query_of(sources: Collection[str]) -> str:
    """Return the name of a query of which the table alone knows."""
    return f"archive of {','.join(sorted(sources))}"


class TableCheckpoint:
    """The position of a query that has no folder: the table's log alone has it. A micro-batch that a run did not finish
    is planned anew by the next one, as nothing of it is in the table."""

    def __init__(self, where: str, sources: Collection[str]) -> None:
        query = query_of(sources)
        self._start(query, delta.last_batch(where, query))

    def _start(self, query: str, last: int) -> None:
        self.query = query
        self._position = Position(last, last, {})
        self._end: Marks = {}

    def position(self) -> Position:
        return self._position

    def begin(self, marks: Marks) -> None:
        self._position = Position(self._position.planned, self._position.done, dict(marks))

    def planned(self, batch: int) -> Marks:
        return self._end

    def plan(self, batch: int, end: Marks, now_ms: int) -> None:
        """Note where a micro-batch ends, for as long as this run lasts."""
        self._end = end
        self._position = Position(batch, self._position.done, self._position.marks)

    def commit(self, batch: int) -> None:
        self._position = Position(batch, batch, dict(self._end))

    def forget(self, batch: int) -> None:
        self._position = Position(self._position.done, self._position.done, self._position.marks)


def agree(
    checkpoint: ArchiveCheckpoint,
    layout: Layout,
    initial: Callable[[], Marks],
    is_explicit: bool,
    now_ms: int,
) -> str | None:
    """Have the checkpoint go on where the table ends, and return a line about it if it was behind.

    `initial` returns where a new query begins, and `is_explicit` tells that the user has named offsets. Raises
    BadOption if the table has other columns, and PipelineError if it lacks what the checkpoint has, or may have rows of
    which its log tells nothing.
    """
    found, table = checkpoint.position(), delta.opened(layout.where)
    last = -1 if table is None else delta.batch_in(table, checkpoint.query)
    if found.done > last:
        there = f"batch {last}" if last >= 0 else "nothing of this query"
        raise PipelineError(
            f"the checkpoint has done batch {found.done}, and {layout.where} has {there}: the table was deleted,"
            " replaced or set back, or the checkpoint is that of another table. To begin a new table with what the"
            " broker has, name a new checkpoint, or remove this one"
        )
    if table is None:
        return None
    delta.require_alike(table, layout.where, layout.by, table_schema(layout.columns, layout.by))
    if found.planned > found.done and found.planned > last:
        planned = checkpoint.planned(found.planned)
        if not any(
            _ends(table, each, mark) > first for each, first, mark in read_between(found.marks, planned)
        ):
            return None  # it is done first, and goes on where the table ends
        checkpoint.forget(found.planned)  # another checkpoint's run has added its messages
        found = checkpoint.position()
    if found.planned > found.done:
        checkpoint.commit(found.planned)
        found = checkpoint.position()
    marks = found.marks or initial()
    ends = {each: Mark(_ends(table, each, mark), mark.incarnation) for each, mark in marks.items()}
    ahead = {each: end for each, end in ends.items() if end.next > (marks[each].next if found.marks else -1)}
    if not found.marks and not is_explicit:
        require_no_rows(table, layout.where, set(marks) - set(ahead))
    marks = {**marks, **ahead}
    if isinstance(checkpoint, TableCheckpoint):
        checkpoint.begin(marks)
        return None
    if last <= found.planned and not ahead:
        return None
    number = max(last, found.planned + 1)
    if number > last:
        columns = delta.columns_of(table)
        delta.append(layout.where, layout.by, columns, [], delta.CommittedBatch(checkpoint.query, number))
    for each in range(found.planned + 1, number + 1):
        checkpoint.plan(each, marks, now_ms)
        checkpoint.commit(each)
    return f"the checkpoint was behind the table: it goes on where the table ends, with batch {number + 1}"


def _ends(table: DeltaTable, partition: Partition, mark: Mark) -> int:
    """Return where the messages of a partition end that are in the table; -1 if its log has none."""
    at = delta.position_in(table, partition, mark.incarnation)
    return -1 if at is None else at


def require_no_rows(table: DeltaTable, where: str, unknown: Collection[Partition]) -> None:
    """Check that a table has no rows of partitions of which its log tells nothing. Raises PipelineError."""
    if not unknown or not delta.committed(table):
        return
    there = partitions_in(table)
    doubled = sorted(unknown) if there is None else sorted(there.intersection(unknown))
    if doubled:
        of = "" if there is None else f" of partition {doubled[0][1]} of stream '{doubled[0][0]}'"
        raise PipelineError(
            f"{where} has rows{of}, and its log does not tell how far they go: it is of an earlier version, or the"
            " stream was deleted and made anew. Name the checkpoint that it was written with (--checkpoint), or say"
            " where to begin (--option startingOffsets={...}), which may repeat rows"
        )


def partitions_in(table: DeltaTable) -> set[Partition] | None:
    """Return which partitions have rows in a table; None if it has no columns that tell."""
    dataset = table.to_pyarrow_dataset()
    if not set(WHOSE) <= set(dataset.schema.names):
        return None
    found: set[Partition] = set()
    for batch in dataset.to_batches(columns=list(WHOSE)):
        kinds = pa.table(batch).group_by(list(WHOSE), use_threads=False).aggregate([]).to_pylist()
        found.update((str(each["stream"]), int(each["partition"])) for each in kinds)
    return found

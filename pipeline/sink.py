"""The writers of `df.write` and `df.writeStream`: tasks stage rows, and the driver commits them.

    task ── pieces ──> staged under (name, batch, partition, attempt) ─┐
    task ── pieces ──> staged                                          ├── commit of the batch ──> exchange
    driver ── the parts of the tasks that succeeded ───────────────────┘

The broker knows a streaming query by its id, which is in its checkpoint, and its batches by number. So of a batch that
is repeated after a crash the broker either knows that it is published, or drops the old rows and takes the new.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Protocol
from uuid import uuid4

import attrs
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from leveret.pipeline.arrow import Batch
from leveret.pipeline.columns import Columns
from leveret.pipeline.encode import Encoder, together
from leveret.pipeline.errors import PipelineError, leading
from leveret.pipeline.publisher import Published, Publisher
from leveret.pipeline.sink_options import AT_LEAST_ONCE, SinkOptions

log: Final = logging.getLogger("leveret.pipeline")

QUERY_ID: Final = "sql.streaming.queryId"  # local properties that Spark sets for the tasks of a query
BATCH_ID: Final = "streaming.sql.batchId"
ATTEMPT_BITS: Final = 62
UNDO_S: Final = 5  # how long clearing up is retried; short, because Spark has an error to show


@attrs.frozen
class Place:
    """The place where a task stages its rows.

    Spark numbers attempts from 0 in every driver. A random number is not mistaken for an attempt of a driver that died,
    which may have staged other rows.
    """

    name: str
    batch: int
    partition: int
    attempt: int = attrs.field(factory=lambda: secrets.randbits(ATTEMPT_BITS))


@attrs.frozen
class TaskResult(WriterCommitMessage):
    """A task's message to the driver. `place` is None if its rows are published already."""

    place: Place | None
    rows: int
    unroutable: int = 0
    repeated: bool = False  # the batch was committed before


class SparkTask(Protocol):
    """The part of Spark's task context that is used here."""

    def partitionId(self) -> int: ...
    def getLocalProperty(self, key: str) -> str | None: ...


def running() -> SparkTask:
    context = TaskContext.get()
    assert context is not None
    return context


# In a task.


def stage(publisher: Publisher, encoder: Encoder, batches: Iterator[Batch], place: Place) -> TaskResult:
    """Stage all rows, in numbered pieces. Raises PipelineError."""
    rows = 0
    blocks = (block for batch in batches for block in encoder.blocks(batch))
    for piece, made in enumerate(together(blocks)):
        taken = publisher.stage(place.name, place.batch, place.partition, place.attempt, piece, made.octets)
        if taken.repeated:
            for _ in batches:  # Spark expects them to be consumed
                pass
            return TaskResult(place, 0, repeated=True)
        rows += made.rows
        if taken.rows != rows:
            raise PipelineError(
                f"the broker has {taken.rows} rows of partition {place.partition}, which has sent {rows}"
            )
    return TaskResult(place, rows)


def publish(publisher: Publisher, encoder: Encoder, batches: Iterator[Batch]) -> TaskResult:
    """Publish all rows at once. Raises PipelineError."""
    rows = unroutable = 0
    for made in together(block for batch in batches for block in encoder.blocks(batch)):
        unroutable += publisher.publish(made.octets).unroutable
        rows += made.rows
    return TaskResult(None, rows, unroutable)


@attrs.frozen
class Writing:
    """The common part of both writers. It is pickled without the password, which is read where it is needed."""

    options: SinkOptions
    columns: Columns
    task: Callable[[], SparkTask] = running

    @leading()
    def write(self, batches: Iterator[Batch], place: Callable[[SparkTask], Place]) -> TaskResult:
        """Write the rows of a task, in an executor. Raises PipelineError."""
        publisher = Publisher(self.options)
        encoder = Encoder(self.columns, self.options)
        try:
            if self.options.delivery == AT_LEAST_ONCE:
                return publish(publisher, encoder, batches)
            return stage(publisher, encoder, batches, place(self.task()))
        finally:
            publisher.close()

    @leading()
    def commit(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        """Commit the rows that these tasks have staged, and no others, in the driver. Raises PipelineError."""
        done = _done(messages)
        staged = [each for each in done if each.place is not None and (each.rows or each.repeated)]
        unroutable = sum(each.unroutable for each in done)
        if staged:
            publisher = Publisher(self.options)
            try:
                unroutable = _commit(publisher, staged).unroutable
            finally:
                publisher.close()
        if unroutable:
            log.warning(
                "%s: %d rows matched no queue and are gone (option mandatory=false)", what, unroutable
            )

    def undo(self, undone: Callable[[Publisher], None], what: str) -> None:
        """Clear up in the driver after the end; what cannot be cleared up now, the broker drops after a while."""
        publisher = Publisher(attrs.evolve(self.options, retry_s=min(self.options.retry_s, UNDO_S)))
        try:
            undone(publisher)
        except PipelineError as error:
            log.warning("%s: its data at the broker was not cleared up: %s", what, error)
        finally:
            publisher.close()


def _done(messages: Iterable[WriterCommitMessage | None]) -> list[TaskResult]:
    return [each for each in messages if isinstance(each, TaskResult)]


def _commit(publisher: Publisher, staged: Sequence[TaskResult]) -> Published:
    places = [each.place for each in staged if each.place is not None]
    name, batch = places[0].name, places[0].batch
    parts = [
        (place.partition, place.attempt, each.rows)
        for each, place in zip(staged, places, strict=True)
        if not each.repeated
    ]
    if len(parts) < len(staged):
        log.warning("batch %d of query %s was published before, and is not published again", batch, name)
    return publisher.commit(name, batch, parts)


# For Spark.


class BatchWriter(DataSourceArrowWriter):
    """The writer of `df.write`: one batch under a name of its own."""

    def __init__(self, writing: Writing, name: str | None = None) -> None:
        self._writing = writing
        self._name = name or f"batch-{uuid4().hex}"

    def write(self, iterator: Iterator[Batch]) -> TaskResult:
        return self._writing.write(iterator, lambda task: Place(self._name, 0, task.partitionId()))

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writing.commit(messages, self._name)
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._forget()

    def _forget(self) -> None:
        if self._writing.options.delivery != AT_LEAST_ONCE:
            self._writing.undo(lambda publisher: publisher.forget(self._name), self._name)


class StreamWriter(DataSourceStreamArrowWriter):
    """The writer of `df.writeStream`: micro-batches under the query's id."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[Batch]) -> TaskResult:
        return self._writing.write(iterator, _place_in_query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writing.commit(messages, f"micro-batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Drop the staged rows. If no task has ended, their name is unknown, and the broker drops them in a day."""
        place = next((each.place for each in _done(messages) if each.place is not None), None)
        if place is not None:
            name = place.name
            what = f"micro-batch {batchId} of query {name}"
            self._writing.undo(lambda publisher: publisher.drop(name, batchId), what)


def _place_in_query(task: SparkTask) -> Place:
    query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    if query is None or batch is None:
        raise PipelineError("Spark does not say which query this is; only micro-batches can be written")
    return Place(query, int(batch), task.partitionId())

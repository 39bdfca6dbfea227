"""`df.write` and `df.writeStream`: what tasks stage, and what the driver commits.

    task ── pieces ──> staged under (name, batch, partition, attempt) ─┐
    task ── pieces ──> staged                                          ├── commit of the batch ──> exchange
    driver ── the parts of the tasks that succeeded ───────────────────┘

A streaming query is known to the broker by its id, which is in its checkpoint, and its batches have numbers. So a batch
that is repeated after a crash is one that the broker has published already, or one that it forgets and takes anew.
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

from pipeline.arrow import Batch
from pipeline.columns import Columns
from pipeline.encode import Encoder, together
from pipeline.errors import PipelineError
from pipeline.publisher import Published, Publisher
from pipeline.sink_options import AT_LEAST_ONCE, SinkOptions

log: Final = logging.getLogger("leveret.pipeline")

QUERY_ID: Final = "sql.streaming.queryId"  # what Spark tells the tasks of a query
BATCH_ID: Final = "streaming.sql.batchId"
ATTEMPT_BITS: Final = 62
UNDO_S: Final = 5  # how long a broker that does not answer is asked to clear up: Spark has an error to show


@attrs.frozen
class Place:
    """Where a task stages its rows.

    Spark numbers attempts from 0 in every driver. A number that nobody else has is not taken for that of a driver that
    died, which may have staged other rows.
    """

    name: str
    batch: int
    partition: int
    attempt: int = attrs.field(factory=lambda: secrets.randbits(ATTEMPT_BITS))


@attrs.frozen
class TaskResult(WriterCommitMessage):
    """What a task tells the driver. `place` is None if its rows are published already."""

    place: Place | None
    rows: int
    unroutable: int = 0
    repeated: bool = False  # the batch was committed before


class SparkTask(Protocol):
    """What Spark knows of a running task."""

    def partitionId(self) -> int: ...
    def getLocalProperty(self, key: str) -> str | None: ...


def running() -> SparkTask:
    context = TaskContext.get()
    assert context is not None
    return context


# In a task.


def stage(publisher: Publisher, encoder: Encoder, batches: Iterator[Batch], place: Place) -> TaskResult:
    """All rows, in numbered pieces. Raises PipelineError."""
    rows = 0
    blocks = (block for batch in batches for block in encoder.blocks(batch))
    for piece, made in enumerate(together(blocks)):
        taken = publisher.stage(place.name, place.batch, place.partition, place.attempt, piece, made.octets)
        if taken.repeated:
            for _ in batches:  # Spark wants them taken
                pass
            return TaskResult(place, 0, repeated=True)
        rows += made.rows
        if taken.rows != rows:
            raise PipelineError(
                f"the broker has {taken.rows} rows of partition {place.partition}, which has sent {rows}"
            )
    return TaskResult(place, rows)


def publish(publisher: Publisher, encoder: Encoder, batches: Iterator[Batch]) -> TaskResult:
    """All rows, at once. Raises PipelineError."""
    rows = unroutable = 0
    for made in together(block for batch in batches for block in encoder.blocks(batch)):
        unroutable += publisher.publish(made.octets).unroutable
        rows += made.rows
    return TaskResult(None, rows, unroutable)


@attrs.frozen
class Writing:
    """What both kinds of writers do. It travels: the password is read where it is needed."""

    options: SinkOptions
    columns: Columns
    task: Callable[[], SparkTask] = running

    def write(self, batches: Iterator[Batch], place: Callable[[SparkTask], Place]) -> TaskResult:
        """In a task. Raises PipelineError."""
        publisher = Publisher(self.options)
        encoder = Encoder(self.columns, self.options)
        try:
            if self.options.delivery == AT_LEAST_ONCE:
                return publish(publisher, encoder, batches)
            return stage(publisher, encoder, batches, place(self.task()))
        finally:
            publisher.close()

    def commit(self, messages: Sequence[WriterCommitMessage | None], what: str) -> None:
        """In the driver: everything that the tasks have staged, and nothing else. Raises PipelineError."""
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
            text = "%s: %d rows matched no queue and are gone; with the option mandatory they end the query"
            log.warning(text, what, unroutable)

    def undo(self, undone: Callable[[Publisher], None], what: str) -> None:
        """In the driver, when it is over: what cannot be cleared up now, the broker clears up in time."""
        publisher = Publisher(attrs.evolve(self.options, retry_s=min(self.options.retry_s, UNDO_S)))
        try:
            undone(publisher)
        except PipelineError as error:
            log.warning("%s: what is left of it at the broker was not cleared up: %s", what, error)
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
    """Of `df.write`: one batch under a name of its own."""

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
    """Of `df.writeStream`: micro-batches under the query's id."""

    def __init__(self, writing: Writing) -> None:
        self._writing = writing

    def write(self, iterator: Iterator[Batch]) -> TaskResult:
        return self._writing.write(iterator, _place_in_query)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writing.commit(messages, f"micro-batch {batchId}")

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """If no task has come to an end, nobody knows the name any more, and the broker waits for a day."""
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

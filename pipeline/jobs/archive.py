"""Write streams and queues to a Delta table, each message exactly once, with Spark.

Tasks write data files, and the driver commits their names with the number of the micro-batch
(`leveret.pipeline.jobs.delta`). So every reader of the table sees each message once, whatever was killed. A folder of
Parquet is written by Spark's own file sink, whose log in the folder (`_spark_metadata`) only Spark heeds.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from leveret.pipeline.errors import BadOption, PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.delta import folder_of
from leveret.pipeline.jobs.run import WrittenRows

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

    from leveret.pipeline.decoding.decode_options import DecodeOptions
    from leveret.pipeline.jobs.data_files import Layout

PARQUET, DELTA, ICEBERG = "parquet", "delta", "iceberg"
FORMATS: Final = (DELTA, ICEBERG, PARQUET)
LOG: Final = "_spark_metadata"
CATALOGUE: Final = "catalog.db"  # of SQLite, in the folder of an Iceberg table
PARTITIONS: Final = ("day", "hour", "stream", "routing_key")
A_HEADER: Final = r"header_[^ ,;{}()=\s]+"  # characters that the name of a column in Delta may have


def _day() -> Column:
    from pyspark.sql.functions import to_date

    return to_date("timestamp")


def _hour() -> Column:
    """Return the hour as a text that does not parse as a time: a time has characters that folder names would escape."""
    from pyspark.sql.functions import date_format

    return date_format("timestamp", "yyyy-MM-dd-HH")


ADDED: Final[Mapping[str, Callable[[], Column]]] = {"day": _day, "hour": _hour}


def partitioned(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Add a column for each of `by`: `day` and `hour` come from the column `timestamp` (UTC in our sessions), those of
    headers from `headers`."""
    from pyspark.sql.functions import col

    from leveret.pipeline.jobs.data_files import HEADER

    require_partitions(by)
    for name in by:
        if name in ADDED:
            rows = rows.withColumn(name, ADDED[name]())
        elif name.startswith(HEADER):
            rows = rows.withColumn(name, col("headers")[name.removeprefix(HEADER)])
    return rows


def require_partitions(by: Sequence[str]) -> None:
    """Check names of columns to partition by. Raises BadOption."""
    for name in by:
        if name not in PARTITIONS and not re.fullmatch(A_HEADER, name):
            raise BadOption(f"cannot partition by '{name}', only by {', '.join(PARTITIONS)}, and header:NAME")


@attrs.frozen
class Target:
    """A table in a lake."""

    where: str  # a folder, or a URI
    format: str = DELTA
    by: tuple[str, ...] = ("day",)
    file_octets: int | None = None  # of a file, about; None: what is usual
    catalogue: str | None = None  # of Iceberg, in pyiceberg's configuration; None: a file in the folder

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None if the table is elsewhere."""
        return folder_of(self.where)


def format_of(where: str) -> str | None:
    """Return the format of a table on this machine; None if there is none yet, or it is elsewhere."""
    folder = folder_of(where)
    if folder is None:
        return None
    if (folder / delta.LOG).is_dir():
        return DELTA
    if (folder / CATALOGUE).is_file():
        return ICEBERG
    return PARQUET if (folder / LOG).is_dir() else None


def checkpoint_of(target: str) -> str:
    """Return the default checkpoint, beside the table: files in its folder would be taken for a part of it."""
    return target.rstrip("/") + ".checkpoint"


def require_checkpoint(target: Target, checkpoint: str) -> None:
    """Refuse a checkpoint that is not that of a folder of Parquet. Raises PipelineError.

    Spark's log in the folder numbers micro-batches. A query with a new checkpoint begins with 0 again, and Spark would
    take its first micro-batches for done and drop them. A new folder with an old checkpoint would lack what was read.
    """
    folder, place = target.folder, folder_of(checkpoint)
    if target.format != PARQUET or folder is None or place is None:
        return
    if not (folder / LOG).exists():
        if any((place / "commits").glob("[0-9]*")):
            raise PipelineError(
                f"the checkpoint {checkpoint} has read messages that {target.where} does not have: name a new"
                " checkpoint, or remove this one"
            )
    elif not (place / "metadata").exists():
        raise PipelineError(
            f"{target.where} was written by a query whose checkpoint is not at {checkpoint}: name its checkpoint,"
            " or another folder for the table"
        )


def archive(
    rows: DataFrame, target: Target, checkpoint: str | None = None, every: str | None = None
) -> StreamingQuery:
    """Start a query that adds the rows of a streaming read to a table. Raises PipelineError.

    It ends with the rows that exist when it starts; with `every`, such as `10 seconds`, it goes on with a micro-batch
    at such intervals. `archive_messages` is quicker where rows are messages as they came.
    """
    checkpoint = checkpoint or checkpoint_of(target.where)
    require_checkpoint(target, checkpoint)
    writing = written(rows, target).option("checkpointLocation", checkpoint)
    triggered = writing.trigger(processingTime=every) if every else writing.trigger(availableNow=True)
    return triggered.start()


def written(rows: DataFrame, target: Target) -> DataStreamWriter:
    if target.format == PARQUET:
        writing = partitioned(rows, target.by).writeStream.format("parquet").option("path", target.where)
        return writing.partitionBy(*target.by) if target.by else writing
    from leveret.pipeline.jobs.data_files import column_for
    from leveret.pipeline.jobs.table_sink import BY, NAME, WHERE, TableSink

    require_partitions(target.by)
    delta.require()
    needed = dict.fromkeys(map(column_for, target.by))
    if missing := [name for name in needed if name not in rows.columns]:
        raise BadOption(f"rows to archive by {', '.join(target.by)} need a column {', '.join(missing)}")
    rows.sparkSession.dataSource.register(TableSink)
    return rows.writeStream.format(NAME).option(WHERE, target.where).option(BY, json.dumps(target.by))


def archive_messages(
    spark: SparkSession,
    options: Mapping[str, str],
    target: Target,
    checkpoint: str | None = None,
    every: str | None = None,
    decode: DecodeOptions | None = None,
) -> tuple[StreamingQuery, Committer]:
    """Start a query that adds messages to a Delta table; `options` are those of `format("amqp")`, and `decode` says how
    their bodies are decoded.

    Returns the query, and what has committed its micro-batches. Raises PipelineError.
    """
    from leveret.pipeline.jobs.archive_run import layout_of
    from leveret.pipeline.jobs.archive_source import NAME, ArchiveSource, reading
    from leveret.pipeline.jobs.decoded_committer import DecodedCommitter
    from leveret.pipeline.options import Use, read_options

    delta.require()
    given = read_options(options, Use.STREAM)
    spark.dataSource.register(ArchiveSource)
    if decode is None:
        layout = layout_of(target, given)
        committer, said = Committer(layout), reading(options, layout)
    else:
        committer = DecodedCommitter(target, given, decode)
        said = reading(options, committer.task.layout, committer.task)
    writing = spark.readStream.format(NAME).options(**said).load().writeStream.foreachBatch(committer)
    writing = writing.option("checkpointLocation", checkpoint or checkpoint_of(target.where))
    triggered = writing.trigger(processingTime=every) if every else writing.trigger(availableNow=True)
    return triggered.start(), committer


class Committer:
    """A function for `foreachBatch` that commits the files of a micro-batch unless it is in the table."""

    def __init__(self, layout: Layout) -> None:
        self.written: dict[int, WrittenRows] = {}  # by the numbers of micro-batches that were committed here
        self._layout = layout

    def __call__(self, rows: DataFrame, batch: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query, "called outside a query"
        if not delta.is_there(self._layout.where, query, batch):
            added = self._commit(query, batch, [row.done for row in rows.collect()])
            if added is not None:
                self.written[batch] = added

    def _commit(self, query: str, batch: int, done: Sequence[str]) -> WrittenRows | None:
        """Commit what tasks have done, and return the rows; None if another driver has committed the micro-batch."""
        from leveret.pipeline.jobs.archive_local import read_by
        from leveret.pipeline.jobs.archive_source import done_in

        layout = self._layout
        ranges, files = done_in(done)
        reads = delta.CommittedBatch(query, batch, read_by(ranges))
        if not delta.append(layout.where, layout.by, layout.in_table, files, reads):
            return None
        return WrittenRows(sum(file.rows for file in files))

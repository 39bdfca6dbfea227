"""Write streams and queues to a folder of Parquet or to a Delta table, each message exactly once.

Spark's own file sink writes Parquet, and its log in the folder (`_spark_metadata`) says which files count; Delta is
written by `pipeline.jobs.delta`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from pipeline.errors import BadOption, PipelineError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter

PARQUET, DELTA = "parquet", "delta"
FORMATS: Final = (PARQUET, DELTA)
LOG: Final = "_spark_metadata"


def _day() -> Column:
    from pyspark.sql.functions import to_date

    return to_date("timestamp")


def _hour() -> Column:
    """Return the hour as a text that does not parse as a time: a time has characters that folder names would escape."""
    from pyspark.sql.functions import date_format

    return date_format("timestamp", "yyyy-MM-dd-HH")


ADDED: Final[Mapping[str, Callable[[], Column]]] = {"day": _day, "hour": _hour}
PARTITIONS: Final = (*ADDED, "stream", "routing_key")


def partitioned(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """Add a column for each of `by`: `day` and `hour` come from the column `timestamp` (UTC in our sessions)."""
    for name in by:
        if name not in PARTITIONS:
            raise BadOption(f"cannot partition by '{name}', only by {', '.join(PARTITIONS)}")
        if name in ADDED:
            rows = rows.withColumn(name, ADDED[name]())
    return rows


@attrs.frozen
class Target:
    """A table in a lake."""

    where: str  # a folder, or a URI that Spark knows
    format: str = PARQUET
    by: tuple[str, ...] = ("day",)

    @property
    def folder(self) -> Path | None:
        """The folder on this machine; None if the table is elsewhere."""
        if self.where.startswith("file:"):
            return Path("/" + self.where.removeprefix("file:").lstrip("/"))
        return None if "://" in self.where else Path(self.where)


def checkpoint_of(target: str) -> str:
    """Return the default checkpoint, beside the table: files in its folder would be taken for a part of it."""
    return target.rstrip("/") + ".checkpoint"


def require_checkpoint(target: Target, checkpoint: str) -> None:
    """Refuse a new checkpoint for an existing folder of Parquet. Raises PipelineError.

    Spark's log in the folder numbers micro-batches. A query with a new checkpoint begins with 0 again, and Spark would
    take its first micro-batches for done and drop them.
    """
    folder = target.folder
    if target.format != PARQUET or folder is None or not (folder / LOG).exists():
        return
    if "://" not in checkpoint and not (Path(checkpoint.removeprefix("file:")) / "metadata").exists():
        raise PipelineError(
            f"{target.where} was written by a query whose checkpoint is not at {checkpoint}: name its checkpoint,"
            " or another folder for the table"
        )


def archive(
    rows: DataFrame, target: Target, checkpoint: str | None = None, every: str | None = None
) -> StreamingQuery:
    """Start a query that adds the rows of a streaming read to a table. Raises PipelineError.

    It ends with the rows that exist when it starts; with `every`, such as `10 seconds`, it goes on with a micro-batch
    at such intervals.
    """
    checkpoint = checkpoint or checkpoint_of(target.where)
    require_checkpoint(target, checkpoint)
    writing = written(partitioned(rows, target.by), target).option("checkpointLocation", checkpoint)
    triggered = writing.trigger(processingTime=every) if every else writing.trigger(availableNow=True)
    return triggered.start()


def written(rows: DataFrame, target: Target) -> DataStreamWriter:
    if target.format == PARQUET:
        writing = rows.writeStream.format("parquet").option("path", target.where)
        return writing.partitionBy(*target.by) if target.by else writing
    from pipeline.jobs.delta import Appender

    return rows.writeStream.foreachBatch(Appender(target.where, target.by))

"""Streams and queues to a folder of Parquet or to a Delta table, each message exactly once.

Parquet is written by Spark's own file sink, whose log in the folder (`_spark_metadata`) says which files count; Delta
by `pipeline.jobs.delta`.
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
    """A text that nobody takes for a time, as some of its letters would be escaped in a name of a folder."""
    from pyspark.sql.functions import date_format

    return date_format("timestamp", "yyyy-MM-dd-HH")


ADDED: Final[Mapping[str, Callable[[], Column]]] = {"day": _day, "hour": _hour}
PARTITIONS: Final = (*ADDED, "stream", "routing_key")


def partitioned(rows: DataFrame, by: Sequence[str]) -> DataFrame:
    """With a column for each of `by`: `day` and `hour` of the column `timestamp` (UTC in our sessions) are added."""
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
        """On this machine; None: elsewhere."""
        if self.where.startswith("file:"):
            return Path("/" + self.where.removeprefix("file:").lstrip("/"))
        return None if "://" in self.where else Path(self.where)


def checkpoint_of(target: str) -> str:
    """Beside the table, as what is in its folder is taken for a part of it."""
    return target.rstrip("/") + ".checkpoint"


def require_checkpoint(target: Target, checkpoint: str) -> None:
    """Spark's log in a folder of Parquet numbers micro-batches, and a query with a new checkpoint begins with 0 again:
    Spark would take its first ones for done, and drop them. Raises PipelineError."""
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
    """Start a query that adds the rows of a streaming read to a table. It ends with what there is when it starts;
    `every`, such as `10 seconds`: it goes on, with a micro-batch at such intervals. Raises PipelineError."""
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

"""A source for Spark whose tasks write the messages that they read as data files, and give rows about these files.

    task ── blocks of the broker ──> data files of the table ──> a row for each ──> driver ── one commit ──> table

So bodies and headers pass through neither Java nor the driver. Spark plans, repeats tasks that die, and keeps the
checkpoint; what a micro-batch reads is what `format("amqp")` would read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from leveret.pipeline.arrow import Batch
from leveret.pipeline.jobs.archive_columns import columns
from leveret.pipeline.jobs.archive_local import write
from leveret.pipeline.jobs.data_files import DataFile, Layout
from leveret.pipeline.options import Options, Use, read_options
from leveret.pipeline.source import AmqpSource, ReadTask, StreamReader

NAME: Final = "leveret_archive"
WHERE, BY = "archive.where", "archive.by"
FILES: Final = "path string, values string, octets bigint, rows bigint, written bigint, stats string"
ARROW: Final = pa.schema(
    [
        (name, pa.string() if kind == "string" else pa.int64())
        for name, kind in (each.split() for each in FILES.split(", "))
    ]
)


def reading(options: Mapping[str, str], where: str, by: tuple[str, ...]) -> dict[str, str]:
    """Return the options of this source; `options` are those of `format("amqp")`."""
    return {**options, WHERE: where, BY: json.dumps(by)}


class ArchiveSource(AmqpSource):
    """The streams and queues of a broker, as data files of a table."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:  # type: ignore[override]
        return FILES

    def streamReader(self, schema: StructType) -> ArchiveReader:
        said = {name.lower(): value for name, value in self.options.items()}
        where, by = said.pop(WHERE), tuple(json.loads(said.pop(BY)))
        options = read_options(said, Use.STREAM)
        return ArchiveReader(options, schema, Layout(where, by, columns(options, by)))


class ArchiveReader(StreamReader):
    """Plans as `format("amqp")` does; its tasks write data files."""

    def __init__(self, options: Options, schema: StructType, layout: Layout) -> None:
        super().__init__(options, schema)
        self._layout = layout

    def __getstate__(self) -> tuple[Options, StructType, Layout]:  # type: ignore[override]
        return self._options, self._schema, self._layout

    def __setstate__(self, state: tuple[Options, StructType, Layout]) -> None:  # type: ignore[override]
        self.__init__(*state)  # type: ignore[misc]

    def read(self, partition: InputPartition) -> Iterator[Batch]:
        assert isinstance(partition, ReadTask)
        if partition.asked is not None:
            yield rows_about(write(self._options, self._layout, partition.asked))


def rows_about(files: list[DataFile]) -> Batch:
    """Return a row for each file, in an executor."""
    found = [
        {
            "path": file.path,
            "values": json.dumps(dict(file.values)),
            "octets": file.octets,
            "rows": file.rows,
            "written": file.written,
            "stats": file.stats,
        }
        for file in files
    ]
    batch: Batch = pa.RecordBatch.from_pylist(found, schema=ARROW)
    return batch


def file_of(row: Mapping[str, object]) -> DataFile:
    """Return the file that a row tells of, in the driver."""
    said = dict(row)
    values: dict[str, str | None] = json.loads(str(said.pop("values")))
    return DataFile(values=values, **said)  # type: ignore[arg-type]

"""A source for Spark whose tasks write the messages that they read as data files, and give a row about these files.

    task ── blocks of the broker ──> data files of the table ──> a row about them ──> driver ── one commit ──> table

So bodies and headers pass through neither Java nor the driver. Spark plans, repeats tasks that die, and keeps the
checkpoint; what a micro-batch reads is what `format("amqp")` would read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from leveret.pipeline.arrow import Batch
from leveret.pipeline.jobs.archive_columns import columns
from leveret.pipeline.jobs.archive_local import write
from leveret.pipeline.jobs.data_files import DataFile, Layout
from leveret.pipeline.offsets import Range
from leveret.pipeline.options import Options, Use, read_options
from leveret.pipeline.source import AmqpSource, ReadTask, StreamReader

NAME: Final = "leveret_archive"
WHERE, BY, FILE_OCTETS = "archive.where", "archive.by", "archive.file_octets"
DONE: Final = "done"  # the only column: what a task has read and written, as JSON


def reading(options: Mapping[str, str], layout: Layout) -> dict[str, str]:
    """Return the options of this source; `options` are those of `format("amqp")`."""
    given = {name: value for name, value in options.items() if name.lower() != "columns"}
    return {
        **given,
        "columns": ",".join(layout.columns.names),
        WHERE: layout.where,
        BY: json.dumps(layout.by),
        FILE_OCTETS: str(layout.file_octets),
    }


class ArchiveSource(AmqpSource):
    """The streams and queues of a broker, as data files of a table."""

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> str:  # type: ignore[override]
        return f"{DONE} string"

    def streamReader(self, schema: StructType) -> ArchiveReader:
        fields = {name.lower(): value for name, value in self.options.items()}
        where, by, size = fields.pop(WHERE), tuple(json.loads(fields.pop(BY))), int(fields.pop(FILE_OCTETS))
        options = read_options(fields, Use.STREAM)
        return ArchiveReader(options, schema, Layout(where, by, columns(options, by), size))


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
            wanted = partition.asked
            yield row_about(wanted, write(self._options, self._layout, wanted))


def row_about(wanted: Range, files: list[DataFile]) -> Batch:
    """Return a row about what a task has read and written, in an executor."""
    done = {"range": attrs.asdict(wanted), "files": [attrs.asdict(each) for each in files]}
    batch: Batch = pa.RecordBatch.from_pydict({DONE: [json.dumps(done)]})
    return batch


def done_in(rows: Iterable[str]) -> tuple[list[Range], list[DataFile]]:
    """Return what the tasks of a micro-batch have read and written, in the driver."""
    done = [json.loads(each) for each in rows]
    ranges = [Range(**each["range"]) for each in done]
    return ranges, [DataFile(**file) for each in done for file in each["files"]]

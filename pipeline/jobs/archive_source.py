"""A source for Spark whose tasks write the messages that they read as data files, and give a row about these files.

    task ── blocks of the broker ──> data files of the table ──> a row about them ──> driver ── one commit ──> table

So bodies and headers pass through neither Java nor the driver. Spark plans, repeats tasks that die, and keeps the
checkpoint; what a micro-batch reads is what `format("amqp")` would read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from leveret.pipeline.arrow import Batch
from leveret.pipeline.jobs.archive_columns import columns
from leveret.pipeline.jobs.data_files import DataFile, Layout
from leveret.pipeline.offsets import Range
from leveret.pipeline.options import Options, Use, read_options
from leveret.pipeline.source import AmqpSource, ReadTask, StreamReader

if TYPE_CHECKING:
    from leveret.pipeline.jobs.decoding import DecodedFiles
    from leveret.pipeline.jobs.decoding_task import DecodingTask

NAME: Final = "leveret_archive"
WHERE, BY, FILE_OCTETS = "archive.where", "archive.by", "archive.file_octets"
DECODE = "archive.decode"  # how bodies are decoded; absent: they are not
DONE: Final = "done"  # the only column: what a task has read and written, as JSON


def reading(
    options: Mapping[str, str], layout: Layout, decoding: DecodingTask | None = None
) -> dict[str, str]:
    """Return the options of this source; `options` are those of `format("amqp")`."""
    given = {name: value for name, value in options.items() if name.lower() != "columns"}
    columns = layout.columns if decoding is None else decoding.read
    return {
        **given,
        "columns": ",".join(columns.names),
        WHERE: layout.where,
        BY: json.dumps(layout.by),
        FILE_OCTETS: str(layout.file_octets),
        **({} if decoding is None else {DECODE: decoding.as_text()}),
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
        decode = fields.pop(DECODE, None)
        options = read_options(fields, Use.STREAM)
        if decode is not None:
            from leveret.pipeline.jobs.decoding_task import task_in

            return ArchiveReader(options, schema, task_in(decode, where, by, size))
        return ArchiveReader(options, schema, Layout(where, by, columns(options, by), size))


class ArchiveReader(StreamReader):
    """Plans as `format("amqp")` does; its tasks write data files."""

    def __init__(self, options: Options, schema: StructType, layout: Layout | DecodingTask) -> None:
        super().__init__(options, schema)
        self._layout = layout

    def __getstate__(self) -> tuple[Options, StructType, Layout | DecodingTask]:  # type: ignore[override]
        return self._options, self._schema, self._layout

    def __setstate__(self, state: tuple[Options, StructType, Layout | DecodingTask]) -> None:  # type: ignore[override]
        self.__init__(*state)  # type: ignore[misc]

    def read(self, partition: InputPartition) -> Iterator[Batch]:
        assert isinstance(partition, ReadTask)
        if partition.asked is not None:
            wanted, layout = partition.asked, self._layout
            if not isinstance(layout, Layout):
                from leveret.pipeline.jobs.decoding_task import told

                yield row_about(wanted, told(layout.write(self._options, wanted)))
                return
            from leveret.pipeline.jobs.archive_local import write

            files = write(self._options, layout, wanted)
            yield row_about(wanted, {"files": [attrs.asdict(each) for each in files]})


def row_about(wanted: Range, files: Mapping[str, object]) -> Batch:
    """Return a row about what a task has read and written, in an executor."""
    done = {"range": attrs.asdict(wanted), **files}
    batch: Batch = pa.RecordBatch.from_pydict({DONE: [json.dumps(done)]})
    return batch


def done_in(rows: Iterable[str]) -> tuple[list[Range], list[DataFile]]:
    """Return what the tasks of a micro-batch have read and written, in the driver."""
    done = [json.loads(each) for each in rows]
    ranges = [Range(**each["range"]) for each in done]
    return ranges, [DataFile(**file) for each in done for file in each["files"]]


def decoded_in(rows: Iterable[str]) -> list[tuple[Range, DecodedFiles]]:
    """Return what each task of a micro-batch has read, decoded and written, in the driver."""
    from leveret.pipeline.jobs.decoding_task import heard

    done = map(json.loads, rows)
    return [(Range(**each["range"]), heard(each)) for each in done]

"""A sink for Spark that adds rows of any query to a Delta table: tasks write data files, the driver commits them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Final

import attrs
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from leveret.pipeline.arrow import Batch, schema_of
from leveret.pipeline.errors import BadOption
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.data_files import DataFile, Layout, table_schema
from leveret.pipeline.sink import BATCH_ID, QUERY_ID, running

NAME: Final = "leveret_table"
WHERE, BY = "table.where", "table.by"


@attrs.frozen
class Written(WriterCommitMessage):
    """A task's message to the driver: the files that it has written."""

    query: str | None
    files: list[DataFile]


class TableSink(DataSource):
    """A Delta table."""

    options: Mapping[str, str]  # type: ignore[assignment]

    @classmethod
    def name(cls) -> str:
        return NAME

    def streamWriter(self, schema: StructType, overwrite: bool) -> TableWriter:
        if overwrite:
            raise BadOption("an archive is added to; write with outputMode('append')")
        return TableWriter(
            Layout(self.options[WHERE], tuple(json.loads(self.options[BY])), schema_of(schema))
        )


class TableWriter(DataSourceStreamArrowWriter):
    """Writes micro-batches."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def write(self, iterator: Iterator[Batch]) -> Written:
        task = running()
        name = f"rows-{task.getLocalProperty(BATCH_ID)}-{task.partitionId()}"
        return Written(task.getLocalProperty(QUERY_ID), self._layout.write(iterator, name))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        layout, written = self._layout, [each for each in messages if isinstance(each, Written)]
        files = [file for each in written for file in each.files]
        if files:
            query = written[0].query
            assert query is not None, "called outside a query"
            columns = table_schema(layout.columns, layout.by)
            delta.append(layout.where, layout.by, columns, files, delta.CommittedBatch(query, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Leave the files: no commit names them, and `leveret pipeline clean` removes them."""

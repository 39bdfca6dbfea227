"""The data source `format("amqp")` in Spark's Python API: makes readers, writers and their tasks.

Spark pickles the source and its readers into the processes that plan and the executors that read. So they hold only
options, and connect where they run. The password is not pickled; each process reads it. Spark starts a process that
plans for each query, so what only tasks and writers need is imported where it is used: 0.1 s.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from leveret.pipeline import catalogue
from leveret.pipeline import schema as schemas
from leveret.pipeline.arrow import Batch, schema_of
from leveret.pipeline.client import Client
from leveret.pipeline.errors import BadOption, leading
from leveret.pipeline.filters import Filters
from leveret.pipeline.leases import HeldLeases, Leases
from leveret.pipeline.offsets import Json, Range, from_json, to_json
from leveret.pipeline.options import Options, Use, read_options
from leveret.pipeline.planner import Limit, Planner

if TYPE_CHECKING:
    from leveret.pipeline.sink import BatchWriter, StreamWriter, Writing

IDLE_S: Final = 0.05  # pause if nothing is new: Spark asks again within 10 ms, a hundred times a second


class AmqpSource(DataSource):
    """Streams, super streams and queues of a broker."""

    options: Mapping[str, str]  # type: ignore[assignment]

    @classmethod
    def name(cls) -> str:
        return "amqp"

    @leading()
    def schema(self) -> StructType:
        given = catalogue.given_at_creation(self.options)
        if given is not None:
            return catalogue.schema_of_table(given)
        return schemas.full(read_options(self.options, Use.ALWAYS))

    @leading()
    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(self._checked(schema, Use.BATCH), schema)

    @leading()
    def streamReader(self, schema: StructType) -> StreamReader:
        return StreamReader(self._checked(schema, Use.STREAM), schema)

    @leading()
    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from leveret.pipeline.sink import BatchWriter

        return BatchWriter(self._writing(schema, overwrite, "mode('append')"))

    @leading()
    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        from leveret.pipeline.sink import StreamWriter

        return StreamWriter(self._writing(schema, overwrite, "outputMode('append')"))

    def _writing(self, schema: StructType, overwrite: bool, instead: str) -> Writing:
        from leveret.pipeline.columns import columns_of
        from leveret.pipeline.sink import Writing
        from leveret.pipeline.sink_options import read_sink_options

        if overwrite:
            raise BadOption(f"published messages cannot be overwritten; write with {instead}")
        options = read_sink_options(catalogue.options_of(catalogue.WRITE, schema, self.options))
        return Writing(options, columns_of(schema, options))

    def _checked(self, schema: StructType, use: Use) -> Options:
        options = read_options(catalogue.options_of(catalogue.READ, schema, self.options), use)
        schemas.check(schema, options)
        return options


class ReadTask(InputPartition):
    """The range that one task reads. None: nothing, because Spark needs at least one task in a batch."""

    def __init__(self, wanted: Range | None) -> None:
        super().__init__(None)
        self.asked = wanted


def batches(
    options: Options, schema: StructType, partition: InputPartition, conditions: Filters | None = None
) -> Iterator[Batch]:
    """Yield the rows of a task, in an executor."""
    from leveret.pipeline.reader import rows_of

    assert isinstance(partition, ReadTask)
    if partition.asked is not None:
        with leading():
            yield from rows_of(options, schema_of(schema), partition.asked, conditions)


class OptionalPush:
    """The method `pushFilters` of a reader that also does without.

    Spark only calls it with the setting `spark.sql.python.filterPushdown.enabled`. Without the setting, it refuses a
    reader whose `pushFilters` is another function than that of its base class, by this attribute.
    """

    def __init__(self, reader: BatchReader) -> None:
        self.__func__ = DataSourceReader.pushFilters
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.push(filters)


class BatchReader(DataSourceReader):
    """The reader of `spark.read`."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._conditions: Filters | None = None

    @property
    def pushFilters(self) -> OptionalPush:
        return OptionalPush(self)

    def push(self, filters: list[Filter]) -> list[Filter]:
        """Take conditions of the query's WHERE into account, and return those that Spark has to test."""
        if self._options.reader_name is not None:  # there may be queues, whose blocks are given whole
            return filters
        self._conditions = Filters(self._options.columns)
        return self._conditions.push(filters)

    @leading()
    def partitions(self) -> list[InputPartition]:
        client = Client(self._options)
        try:
            ranges = Planner(self._options, client, HeldLeases(client)).batch(self._conditions)
        finally:
            client.close()
        return [ReadTask(each) for each in ranges] or [ReadTask(None)]

    def read(self, partition: InputPartition) -> Iterator[Batch]:
        return batches(self._options, self._schema, partition, self._conditions)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of `spark.readStream`. The query has one; pickled copies go to the executors, and only read."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._made: tuple[Planner, Client] | None = None

    def __getstate__(self) -> tuple[Options, StructType]:
        return self._options, self._schema

    def __setstate__(self, state: tuple[Options, StructType]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    @property
    def _planner(self) -> Planner:
        if self._made is None:
            client = Client(self._options)
            self._made = Planner(self._options, client, Leases(client)), client
        return self._made[0]

    @leading()
    def initialOffset(self) -> Json:
        return to_json(self._planner.initial())

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @leading()
    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        found = to_json(self._planner.latest(from_json(start), self._limit(limit)))
        if found == start:
            time.sleep(IDLE_S)
        return found

    def _limit(self, limit: ReadLimit) -> Limit:
        """Return Spark's limit: the single one that `getDefaultReadLimit` returned, or none if it wants everything."""
        if isinstance(limit, ReadMaxRows):
            return Limit(limit.max_rows, self._options.max_bytes_per_trigger)
        if isinstance(limit, ReadMaxBytes):
            return Limit(None, limit.max_bytes)
        return Limit()

    @leading()
    def reportLatestOffset(self) -> Json:
        return to_json(self._planner.newest())

    @leading()
    def prepareForTriggerAvailableNow(self) -> None:
        self._planner.prepare_available_now()

    @leading()
    def partitions(self, start: Json, end: Json) -> list[InputPartition]:
        return [ReadTask(each) for each in self._planner.ranges(from_json(start), from_json(end))]

    def read(self, partition: InputPartition) -> Iterator[Batch]:
        return batches(self._options, self._schema, partition)

    @leading()
    def commit(self, end: Json) -> None:
        self._planner.commit(from_json(end))

    def stop(self) -> None:
        """Close the client. Leases stay: the query may go on from its checkpoint."""
        if self._made is not None:
            self._made[1].close()
            self._made = None

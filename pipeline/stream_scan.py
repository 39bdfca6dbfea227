"""Read streams as Arrow record batches, for polars, DuckDB and pandas in a program without Spark.

    blocks of the broker ──> decoded columns, a batch at a time ──> RecordBatchReader ──> DuckDB, pandas
                                                               └──> LazyFrame of polars, which names its columns

What is read is what `spark.read.format("amqp")` reads, with the same options. Nothing is kept, here or at the broker.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.client import Client
from leveret.pipeline.errors import BadOption
from leveret.pipeline.jobs.archive_columns import COLUMNS, TEXTS
from leveret.pipeline.jobs.endpoint import ENDPOINT
from leveret.pipeline.offsets import Range
from leveret.pipeline.options import Options, Use, read_options
from leveret.pipeline.planner import Planner
from leveret.pipeline.reader import rows_of

if TYPE_CHECKING:
    import polars

EVERY: Final = {**COLUMNS, "annotations": TEXTS}
USUAL: Final = tuple(COLUMNS)


def read_stream(
    *streams: str, endpoint: str = ENDPOINT, columns: Sequence[str] | None = None, **options: str
) -> pa.RecordBatchReader:
    """Return the messages of streams and super streams, as `pyarrow.RecordBatchReader`.

    They are those between `startingOffsets` and `endingOffsets`, or times, which are among the `options` of
    docs/spark.md; by default all that are there now. Only `columns` are decoded: any of that page's, and `annotations`.
    The memory that it takes does not depend on the length of a stream.

    Raises PipelineError: BadOption, Refused, NoStream for a queue, Unreachable; while batches are read also DataLoss.
    """
    names = USUAL if columns is None else tuple(columns)
    if unknown := [name for name in names if name not in EVERY]:
        raise BadOption(f"there is no column '{unknown[0]}', but {', '.join(EVERY)}")
    given = read_options({"endpoints": endpoint, "subscribe": ",".join(streams), **options}, Use.BATCH)
    found = attrs.evolve(given, columns="amqp", chosen=names)
    schema = pa.schema([(name, EVERY[name]) for name in names])
    return pa.RecordBatchReader.from_batches(schema, _batches(found, schema, _ranges(found)))


def _ranges(options: Options) -> list[Range]:
    client = Client(options)
    try:
        return Planner(options, client).batch()
    finally:
        client.close()


def _batches(options: Options, schema: pa.Schema, ranges: Sequence[Range]) -> Iterator[pa.RecordBatch]:
    for wanted in ranges:
        yield from rows_of(options, schema, wanted)


def scan_stream(*streams: str, endpoint: str = ENDPOINT, **options: str) -> polars.LazyFrame:
    """Return the messages of streams and super streams, as a lazy frame of polars, which reads the columns that a query
    names, a batch at a time. `options` are those of `read_stream`, which says what is raised by a query.
    """
    import polars
    from polars.io.plugins import register_io_source

    def read(
        with_columns: list[str] | None,
        predicate: polars.Expr | None,
        n_rows: int | None,
        batch_size: int | None,
    ) -> Iterator[polars.DataFrame]:
        left = n_rows
        for batch in read_stream(*streams, endpoint=endpoint, columns=with_columns, **options):
            frame = polars.DataFrame(polars.from_arrow(batch))
            if left is not None:
                frame = frame.head(left)
                left -= frame.height
            yield frame if predicate is None else frame.filter(predicate)
            if left == 0:
                return

    empty = pa.schema([(name, COLUMNS[name]) for name in USUAL]).empty_table()
    return register_io_source(read, schema=polars.DataFrame(polars.from_arrow(empty)).schema)

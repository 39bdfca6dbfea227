"""Write micro-batches to a Delta table, each once: the table's log has the number of the last one of each query.

The driver writes them with deltalake, so a micro-batch must fit into its memory; no package for the JVM is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pipeline.errors import PipelineError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame


class NoDelta(PipelineError):  # noqa: N818 - a state of affairs
    """Raised when the package is not installed."""


def require() -> None:
    """Check that deltalake is installed. Raises NoDelta."""
    if find_spec("deltalake") is None:
        raise NoDelta("deltalake is not installed: `pip install 'leveret[delta]'`")


class Appender:
    """A function for `foreachBatch` that appends a micro-batch unless it is in the table."""

    def __init__(self, where: str, by: Sequence[str] = ()) -> None:
        require()
        self._where = where
        self._by = list(by)

    def __call__(self, rows: DataFrame, batch: int) -> None:
        query = rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query, "called outside a query"
        if not is_there(self._where, query, batch):
            append(self._where, self._by, rows.toArrow(), query, batch)


def is_there(where: str, query: str, batch: int) -> bool:
    """Return whether a batch of a query is in the table."""
    from deltalake import DeltaTable

    if not DeltaTable.is_deltatable(where):
        return False
    last = DeltaTable(where).transaction_version(query)
    return last is not None and last >= batch


def append(where: str, by: Sequence[str], rows: pa.Table, query: str, batch: int) -> None:
    """Append rows, and note the number of their batch, in one commit."""
    from deltalake import CommitProperties, Transaction, write_deltalake

    said = CommitProperties(app_transactions=[Transaction(query, batch)])
    write_deltalake(where, rows, mode="append", partition_by=list(by) or None, commit_properties=said)

"""The contract by which a run that archives asks the log of its table, whatever keeps it: Delta, or Iceberg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from leveret.pipeline.jobs.data_files import DataFile
    from leveret.pipeline.jobs.delta import CommittedBatch


class ArchiveLog(Protocol):
    """The log of one table: `leveret.pipeline.jobs.table_log.TableLog`, or `leveret.pipeline.jobs.iceberg.IcebergLog`.
    Every method but `number` may raise PipelineError.
    """

    def is_there(self, query: str, batch: int) -> bool:
        """Return whether a batch of a query is in the table."""
        ...

    def append(self, files: Sequence[DataFile], batch: CommittedBatch) -> bool:
        """Add files to the table, and note the number of their batch and how far it comes, in one commit; return False
        if the batch is in the table already."""
        ...

    def number(self, name: str) -> int:
        """Return the number of a transaction that was in the table at the last look; -1 if there was none."""
        ...

    def widen(self, columns: pa.Schema) -> None:
        """Have the table have these columns from the next look at it on."""
        ...

    def upkeep(self, now: float, complete: Callable[[], object]) -> None:
        """Do what keeps later commits quick, if it is time; asked after each commit. `now` is in seconds since 1970.

        Before something is forgotten that tells of another table, `complete` does there what is told. Raises nothing.
        """
        ...

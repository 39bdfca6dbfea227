"""The contract by which upkeep, `replay` and `--dry-run` ask a table, whatever keeps its log: Delta, or Iceberg.

lake_table("/lake/orders")             ── _delta_log ──> leveret.pipeline.jobs.delta_table.DeltaLakeTable
                                       ── catalog.db ──> leveret.pipeline.jobs.iceberg_table.IcebergLakeTable
lake_table("shop.orders", "lakehouse") ── a catalogue of pyiceberg's configuration ──> the same
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import attrs

from leveret.pipeline.errors import BadOption
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import ICEBERG, LOG, PARQUET, format_of

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]

    from leveret.pipeline.jobs.archive import Target
    from leveret.pipeline.jobs.delta import Committed
    from leveret.pipeline.offsets import Mark, Partition


@attrs.frozen
class Optimized:
    """The numbers and bytes of files that were joined, and of those that they became."""

    read: int
    octets_read: int
    written: int
    octets_written: int


@attrs.frozen
class Orphan:
    """A file in the place of a table that is not in the table."""

    path: str
    octets: int | None
    age_s: float | None


class LakeTable(Protocol):
    """A table that `archive` has written, as it is now. Every method may raise PipelineError."""

    @property
    def where(self) -> str:
        """The name under which the user knows it."""
        ...

    def schema(self) -> pa.Schema:
        """Return its columns."""
        ...

    def files(self) -> list[Committed]:
        """Return the files that are in it, by path."""
        ...

    def places(self, files: Sequence[Committed]) -> list[str]:
        """Return where files are: paths on this machine, URIs elsewhere."""
        ...

    def added(self, files: Sequence[Committed]) -> list[Mapping[str, str | None]]:
        """Return, for each file, the values of the columns that the table has and the file itself does not."""
        ...

    def damaged(self, files: Sequence[Committed]) -> list[str]:
        """Return what is wrong with files, as far as their sizes tell."""
        ...

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the rows that are in it, with some of its columns."""
        ...

    @property
    def is_undecoded(self) -> bool:
        """Return whether it has rows of an archive that could not be decoded, and is none itself."""
        ...

    def undecoded(self) -> list[LakeTable]:
        """Return the tables of its rows that could not be decoded: runs may have named several. What a run that was
        killed has left undone there is done before.
        """
        ...

    def position(self, partition: Partition, incarnation: str) -> int | None:
        """Return the offset behind the last message of a partition that is in it; None if its log has none."""
        ...

    def marks(self, checkpoint: Path | None) -> dict[Partition, Mark]:
        """Return how far it should be: by its query's checkpoint, or by its own log where that is the checkpoint."""
        ...

    def optimized(self, file_octets: int) -> Optimized:
        """Join files that are smaller than some bytes, in one commit that is in no archive's way."""
        ...

    def orphans(self, older_than_h: int, delete: bool, now: float | None = None) -> list[Orphan]:
        """Return the files that no version of it names, or no longer, if they are older than some hours; `delete`
        removes them. `now` is in seconds since 1970."""
        ...


def lake_table(where: str, catalogue: str | None = None, kind: str | None = None) -> LakeTable:
    """Return a table that is there; `kind` is its format where the place does not tell, else Delta.

    Raises PipelineError if there is none, BadOption if it is a folder of Parquet.
    """
    kind = ICEBERG if catalogue is not None else format_of(where) or kind
    if kind == PARQUET:
        raise BadOption(
            f"{where} is a folder of Parquet ({LOG}): `leveret pipeline convert {where}` makes it a Delta table"
        )
    if kind == ICEBERG:
        from leveret.pipeline.jobs.iceberg_table import IcebergLakeTable

        return IcebergLakeTable(where, catalogue)
    from leveret.pipeline.jobs.delta_table import DeltaLakeTable

    return DeltaLakeTable(where)


def is_there(target: Target) -> bool:
    """Return whether there is a table already that an archive would go on with. Raises PipelineError, BadOption."""
    if target.format == ICEBERG:
        from leveret.pipeline.jobs import iceberg

        return iceberg.opened(target.where, target.catalogue) is not None
    return delta.opened(target.where) is not None

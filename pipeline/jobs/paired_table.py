"""The contract by which decoding asks the two tables of an archive, whatever keeps their logs: Delta, or Iceberg.

The one has its rows, the other those that could not be decoded.

    Delta    ── leveret.pipeline.jobs.delta_paired_table    ── TARGET.undecoded
    Iceberg  ── leveret.pipeline.jobs.iceberg_paired_table  ── TARGET.undecoded, in a named catalogue TARGET_undecoded

A commit to the archive tells of a change of the other table, which is made there afterwards
(`leveret.pipeline.jobs.undecoded`). Neither format commits to two tables at once.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs.archive import ICEBERG

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]

    from leveret.pipeline.jobs.archive import Target
    from leveret.pipeline.jobs.archive_log import ArchiveLog
    from leveret.pipeline.jobs.data_files import Layout
    from leveret.pipeline.jobs.delta import Committed, SideChange

DESCRIPTION: Final = "Rows of an archive that could not be decoded"  # by which such a table is known


class PairedTable(Protocol):
    """One of the two tables, which need not be there yet. Every method may raise PipelineError."""

    @property
    def where(self) -> str:
        """The name under which the user knows it."""
        ...

    @property
    def beside(self) -> str:
        """The name of the table beside it, unless another one is named."""
        ...

    def other(self, where: str) -> PairedTable:
        """Return another table of its kind, in the same catalogue."""
        ...

    def columns(self) -> pa.Schema | None:
        """Return its columns; None if it is not there."""
        ...

    def partitions(self) -> tuple[str, ...]:
        """Return what it is partitioned by, as `--partition-by` has it. It is there."""
        ...

    def stored(self, columns: pa.Schema) -> pa.Schema:
        """Return columns as a table of this kind has them."""
        ...

    def located(self, layout: Layout) -> Layout:
        """Return a layout whose files are where those of the table are."""
        ...

    def widen(self, by: Sequence[str], columns: pa.Schema) -> None:
        """Have it, as an archive, get the columns that it lacks. Raises BadOption if it has some of another type."""
        ...

    def prepare(self, columns: pa.Schema) -> None:
        """Have it be there, for rows that could not be decoded, with these columns at least."""
        ...

    def log(self, by: Sequence[str], columns: pa.Schema) -> ArchiveLog:
        """Return its log, as an archive's, which adds columns that it lacks."""
        ...

    def changes(self) -> int | None:
        """Return the number of the newest change that its log has; None if it has none."""
        ...

    def told(self, place: str) -> int:
        """Return the number of the newest change that commits to this archive tell of a place; 0 if there is none."""
        ...

    def places(self) -> list[str]:
        """Return the places besides the one beside it that commits to this archive tell changes of."""
        ...

    def note(self, place: str) -> None:
        """Have `places` name a place from now on."""
        ...

    def change(self, number: int) -> SideChange:
        """Return what a commit to this archive tells of the other table."""
        ...

    def make(self, number: int, change: SideChange) -> None:
        """Make a change of this table, unless it has been made."""
        ...

    def files(self) -> list[Committed]:
        """Return the files that are in it. It is there."""
        ...

    def opened(self, file: Committed) -> pa.NativeFile:
        """Return one of its files for reading. Raises OSError."""
        ...


def paired_table(target: Target) -> PairedTable:
    """Return the table of an archive."""
    if target.format == ICEBERG:
        from leveret.pipeline.jobs.iceberg_paired_table import IcebergPairedTable

        return IcebergPairedTable(target.where, target.catalogue)
    from leveret.pipeline.jobs.delta_paired_table import DeltaPairedTable

    return DeltaPairedTable(target.where)


def require_there(where: str, change: SideChange, files: Collection[str]) -> None:
    """Check that a table has what a change takes out of it. Raises PipelineError."""
    if missing := sorted(set(change.removed) - set(files)):
        raise PipelineError(
            f"{where} was rearranged while rows were taken from it: {missing[0]} is not in it any more"
        )

"""The table of rows that cannot be decoded, beside an archive with decoded columns: each message is in one of the two.

    data files of both ── one commit to the archive: its own files, and the names of the others ──> archive
                                                     │ the same, as the next change
                                                     └──> TARGET.undecoded

The archive's commit decides: what it tells of the other table is done there afterwards, by whichever run comes next if
this one is killed. Changes have numbers, and the log of the other table refuses one that it has. So it does not matter
whether a body that could not be decoded could be by now, nor whether the broker still has it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as parquet  # type: ignore[import-untyped]

from leveret.pipeline.decoding.row_decoder import REASON
from leveret.pipeline.errors import BadOption, PipelineError
from leveret.pipeline.jobs.delta import Committed, SideChange, folder_of

if TYPE_CHECKING:
    from leveret.pipeline.jobs.data_files import Layout
    from leveret.pipeline.jobs.paired_table import PairedTable

ROWS_MAX: Final = 1 << 14  # rows that are read at a time


class UndecodedTable:
    """The rows of one archive that could not be decoded."""

    def __init__(self, archive: PairedTable, table: PairedTable, columns: pa.Schema) -> None:
        """Name the two tables. `columns` are those of the messages; the reason is behind them."""
        self._archive = archive
        self._table = table
        self.where = table.where
        self.columns = pa.schema([*columns, pa.field(REASON, pa.string())])

    @property
    def shown(self) -> str:
        """The place as changes have it: empty beside the archive, so that both may be moved."""
        return "" if self.where == self._archive.beside else self.where

    def located(self, layout: Layout) -> Layout:
        """Return a layout of its files, where they are."""
        return self._table.located(layout)

    def begin(self) -> None:
        """Have the table be there, with what the archive's commits tell of it, and of others that runs have named.
        Raises PipelineError.
        """
        done = undecoded_tables(self._archive)
        self._table.prepare(self.columns)
        if self._table.changes() is None:  # a new one has nothing of what was before
            self._table.make(self._archive.told(self.shown), SideChange(self.shown))
        if self.where not in done:
            self.complete()

    def complete(self) -> None:
        """Do what the archive's commits tell of this table, and has not been done. Raises PipelineError."""
        number = self._archive.told(self.shown)
        if not number:
            return
        at, left = self._table.changes() or 0, []
        while number > at:
            left.append((number, self._archive.change(number)))
            number = left[-1][1].previous
        for each in reversed(left):
            self._table.make(*each)
        self._archive.note(self.shown)

    def files(self) -> list[Committed]:
        """Return its files. Raises PipelineError."""
        return self._table.files()

    def rows(self, files: Sequence[Committed], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the messages of some files; a column that a file does not have is null. Raises PipelineError."""
        for each in files:
            try:
                with self._table.opened(each) as file:
                    for batch in parquet.ParquetFile(file).iter_batches(ROWS_MAX):
                        yield aligned(batch, columns)
            except (OSError, pa.ArrowException) as error:
                raise PipelineError(f"{self.where}/{each.path} cannot be read: {error}") from None


def aligned(batch: pa.RecordBatch, columns: pa.Schema) -> pa.RecordBatch:
    """Return the rows with these columns; those that they lack are null."""
    arrays = [
        batch.column(field.name).cast(field.type)
        if field.name in batch.schema.names
        else pa.nulls(batch.num_rows, field.type)
        for field in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=columns)


def require_beside(archive: str, where: str) -> None:
    """Check that the two tables are not one, nor one in the folder of the other, where `clean` would remove it. Raises
    BadOption.
    """
    one, other = (f"{folder_of(each.rstrip('/')) or each.rstrip('/')}/" for each in (archive, where))
    if one.startswith(other) or other.startswith(one):
        raise BadOption(
            f"rows that cannot be decoded need a table of their own, and neither in the other: --undecoded is {where}"
        )


def undecoded_tables(archive: PairedTable) -> list[str]:
    """Return the places of rows of an archive that could not be decoded, of which runs may have named several, after
    the changes of them that a run has left undone. Raises PipelineError.
    """
    found = []
    for where in (archive.beside, *archive.places()) if archive.changes() else ():
        table = archive.other(where)
        columns = table.columns()
        if columns is not None:
            UndecodedTable(archive, table, columns).complete()
            found.append(where)
    return found

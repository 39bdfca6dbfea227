"""The table of rows that cannot be decoded, beside an archive with decoded columns: each message is in one of the two.

    data files of both ── one commit to the archive: its own files, and the names of the others ──> archive
                                                     │ the same, as the next change
                                                     └──> TARGET.undecoded

The archive's commit decides: what it tells of the other table is done there afterwards, by whichever run comes next if
this one is killed. Changes have numbers, and the log of the other table refuses one that it has. So it does not matter
whether a body that could not be decoded could be by now, nor whether the broker still has it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as parquet  # type: ignore[import-untyped]

from leveret.pipeline.decoding.decode_options import UNDECODED
from leveret.pipeline.decoding.row_decoder import REASON
from leveret.pipeline.errors import BadOption, PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.data_files import key_of, object_store

if TYPE_CHECKING:
    from deltalake import DeltaTable

ROWS_MAX: Final = 1 << 14  # rows that are read at a time
DESCRIPTION: Final = "Rows of an archive that could not be decoded"  # by which such a table is known


class UndecodedTable:
    """The rows of one archive that could not be decoded."""

    def __init__(self, archive: str, where: str, columns: pa.Schema) -> None:
        """Name the table. `columns` are those of the messages; the reason is behind them."""
        self._archive = archive
        self.where = where
        self.columns = pa.schema([*columns, pa.field(REASON, pa.string())])

    @property
    def shown(self) -> str:
        """The place as changes have it: empty beside the archive, so that both may be moved."""
        return "" if self.where == self._archive.rstrip("/") + UNDECODED else self.where

    def begin(self) -> None:
        """Have the table be there, with what the archive's commits tell of it. Raises PipelineError."""
        archive = delta.opened(self._archive)
        number = 0 if archive is None else delta.changes_in(archive)
        if archive is not None and number and delta.opened(self.where) is None:
            self._complete_another(archive, number)
        table = delta.prepared(self.where, (), self.columns, widens=True, description=DESCRIPTION)
        if table.transaction_version(delta.CHANGES) is None:  # a new one has nothing of what was before
            self._change(number, delta.SideChange(self.shown))
        self.complete()

    def _complete_another(self, archive: DeltaTable, number: int) -> None:
        """Complete the change of a run that named another table for these rows."""
        change = delta.change_in(archive, self._archive, number)
        if change.where != self.shown:
            where = change.where or self._archive.rstrip("/") + UNDECODED
            if delta.opened(where) is not None:
                UndecodedTable(self._archive, where, self.columns).complete()

    def complete(self) -> None:
        """Do what the archive's commits tell of this table, and has not been done. Raises PipelineError."""
        archive = delta.opened(self._archive)
        if archive is None:
            return
        until = delta.changes_in(archive)
        at = max(0, delta.changes_in(delta.found(self.where)))
        for number in range(at + 1, until + 1):
            change = delta.change_in(archive, self._archive, number)
            # A change of another table counts here, too.
            self._change(number, change if change.where == self.shown else delta.SideChange(self.shown))

    def _change(self, number: int, change: delta.SideChange) -> None:
        """Commit a change unless the table has it. Raises PipelineError."""
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import AddAction, RemoveAction

        table = delta.found(self.where)
        at = table.transaction_version(delta.CHANGES)
        if at is not None and at >= number:
            return
        there = {each.path for each in delta.committed(table)}
        if missing := sorted(set(change.removed) - there):
            raise PipelineError(
                f"{self.where} was rearranged while rows were taken from it: {missing[0]} is not in it any more"
            )
        now_ms = time.time_ns() // 1_000_000
        actions: list[AddAction | RemoveAction] = [
            AddAction(file.path, file.octets, dict(file.values), file.written, True, file.stats)
            for file in change.added
        ]
        actions += [RemoveAction(path, True, now_ms) for path in change.removed]
        noted = CommitProperties(app_transactions=[Transaction(delta.CHANGES, number)])
        schema = Schema.from_arrow(delta.columns_of(table))
        try:
            table.create_write_transaction(actions, "append", schema, None, commit_properties=noted)
        except CommitFailedError as error:
            if delta.changes_in(delta.found(self.where)) < number:  # otherwise another run was quicker
                raise PipelineError(f"{self.where}: change {number} failed: {error}") from None
        except (DeltaError, OSError) as error:
            raise PipelineError(f"{self.where}: change {number} failed: {error}") from None
        delta.sync_log(self.where)

    def files(self) -> list[delta.Committed]:
        """Return its files. Raises PipelineError."""
        return delta.committed(delta.found(self.where))

    def rows(self, files: Sequence[delta.Committed], columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """Yield the messages of some files; a column that a file does not have is null. Raises PipelineError."""
        for each in files:
            try:
                with opened(self.where, each.path) as file:
                    for batch in parquet.ParquetFile(file).iter_batches(ROWS_MAX):
                        yield aligned(batch, columns)
            except (OSError, pa.ArrowException) as error:
                raise PipelineError(f"{self.where}/{each.path} cannot be read: {error}") from None


def opened(where: str, path: str) -> pa.NativeFile:
    """Return a file of a table for reading. Raises OSError."""
    folder = delta.folder_of(where)
    if folder is not None:
        return pa.OSFile(str(folder / path), "rb")
    return object_store(where).open_input_file(f"{key_of(where)}/{path}")


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
    one, other = (f"{delta.folder_of(each.rstrip('/')) or each.rstrip('/')}/" for each in (archive, where))
    if one.startswith(other) or other.startswith(one):
        raise BadOption(
            f"rows that cannot be decoded need a table of their own, and neither in the other: --undecoded is {where}"
        )


def is_undecoded(table: DeltaTable) -> bool:
    """Return whether a table is one of rows that could not be decoded, and no archive."""
    return table.metadata().description == DESCRIPTION


def undecoded_beside(table: DeltaTable, where: str) -> str | None:
    """Return the place of rows of an archive that could not be decoded, after the changes of it that a run has left
    undone; None if there are none. Raises PipelineError.
    """
    number = delta.changes_in(table)
    if not number or is_undecoded(table):
        return None
    place = beside = where.rstrip("/") + UNDECODED
    try:
        place = delta.change_in(table, where, number).where or beside
    except PipelineError:  # the log keeps its entries for a month
        if delta.opened(beside) is None:
            raise
    there = delta.opened(place)
    if there is None:
        return None
    UndecodedTable(where, place, delta.columns_of(there)).complete()
    return place

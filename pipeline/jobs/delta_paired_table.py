"""The two tables of an archive with decoded bodies as Delta tables: transactions of their logs number changes."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.data_files import key_of, object_store
from leveret.pipeline.jobs.paired_table import DESCRIPTION, require_there
from leveret.pipeline.jobs.table_log import TableLog

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from leveret.pipeline.jobs.data_files import Layout

ENDING: Final = ".undecoded"  # of the name of the table beside another


@attrs.frozen
class DeltaPairedTable:
    """A Delta table in a folder, or at a URI that deltalake knows."""

    where: str

    @property
    def beside(self) -> str:
        return self.where.rstrip("/") + ENDING

    def other(self, where: str) -> DeltaPairedTable:
        return DeltaPairedTable(where)

    def columns(self) -> pa.Schema | None:
        table = delta.opened(self.where)
        return None if table is None else delta.columns_of(table)

    def partitions(self) -> tuple[str, ...]:
        return tuple(delta.found(self.where).metadata().partition_columns)

    def stored(self, columns: pa.Schema) -> pa.Schema:
        return columns

    def located(self, layout: Layout) -> Layout:
        return attrs.evolve(layout, where=self.where)

    def widen(self, by: Sequence[str], columns: pa.Schema) -> None:
        """Widen the table if it is there: else the first commit makes it."""
        table = delta.opened(self.where)
        if table is not None:
            delta.widened(table, self.where, by, columns)

    def prepare(self, columns: pa.Schema) -> None:
        delta.prepared(self.where, (), columns, widens=True, description=DESCRIPTION)

    def log(self, by: Sequence[str], columns: pa.Schema) -> TableLog:
        return TableLog(self.where, by, columns, widens=True)

    def changes(self) -> int | None:
        table = delta.opened(self.where)
        return None if table is None else table.transaction_version(delta.CHANGES)

    def told(self, place: str) -> int:
        table = delta.opened(self.where)
        return 0 if table is None else table.transaction_version(delta.changes_id(place)) or 0

    def places(self) -> list[str]:
        """Return the places that are noted, and those of the newest commits, which a killed run has not noted."""
        table = delta.opened(self.where)
        if table is None:
            return []
        newest = [entry[delta.CHANGE] for entry in table.history(delta.HISTORY) if delta.CHANGE in entry]
        found = [*_places_in(table), *(delta.side_change(each).where for each in newest)]
        return [place for place in dict.fromkeys(found) if place]

    def note(self, place: str) -> None:
        """Note a place as a property of the table: deltalake lists no transactions."""
        from deltalake.exceptions import DeltaError

        table = delta.opened(self.where)
        if not place or table is None or place in (noted := _places_in(table)):
            return
        try:
            said = {delta.PLACES: json.dumps([*noted, place])}
            table.alter.set_table_properties(said, raise_if_not_exists=False)
        except (DeltaError, OSError):
            return  # another run was quicker; the next commit with a change notes it
        delta.sync_log(self.where)

    def change(self, number: int) -> delta.SideChange:
        """Return a change; it is looked for from the newest commit on."""
        table = delta.found(self.where)
        newest = table.transaction_version(delta.CHANGES) or 0
        for limit in (delta.HISTORY, None):
            entries = [entry for entry in table.history(limit) if delta.CHANGE in entry]
            if newest - number < len(entries):
                return delta.side_change(entries[newest - number][delta.CHANGE])
        raise delta.forgotten(self.where, number, newest)

    def make(self, number: int, change: delta.SideChange) -> None:
        from deltalake import CommitProperties, Schema, Transaction
        from deltalake.exceptions import CommitFailedError, DeltaError
        from deltalake.transaction import AddAction, RemoveAction

        table = delta.found(self.where)
        at = table.transaction_version(delta.CHANGES)
        if at is not None and at >= number:
            return
        require_there(self.where, change, [each.path for each in delta.committed(table)])
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
            if (self.changes() or 0) < number:  # otherwise another run was quicker
                raise PipelineError(f"{self.where}: change {number} failed: {error}") from None
        except (DeltaError, OSError) as error:
            raise PipelineError(f"{self.where}: change {number} failed: {error}") from None
        delta.sync_log(self.where)

    def files(self) -> list[delta.Committed]:
        return delta.committed(delta.found(self.where))

    def opened(self, file: delta.Committed) -> pa.NativeFile:
        folder = delta.folder_of(self.where)
        if folder is not None:
            return pa.OSFile(str(folder / file.path), "rb")
        return object_store(self.where).open_input_file(f"{key_of(self.where)}/{file.path}")


def _places_in(table: DeltaTable) -> list[str]:
    found: list[str] = json.loads(table.metadata().configuration.get(delta.PLACES) or "[]")
    return found

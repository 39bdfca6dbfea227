"""The two tables of an archive with decoded bodies as Iceberg tables: properties of snapshots number changes.

Source: Iceberg's table specification, "Snapshots" (`summary`), "Schema Evolution".
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import attrs

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs import delta, iceberg
from leveret.pipeline.jobs.data_files import key_of
from leveret.pipeline.jobs.paired_table import DESCRIPTION, require_there

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyiceberg.table import Table

    from leveret.pipeline.jobs.data_files import Layout

ENDING: Final = ".undecoded"
ENDING_IN_CATALOGUE: Final = "_undecoded"  # a dot would end the name of a namespace


@attrs.frozen
class IcebergPairedTable:
    """An Iceberg table in a catalogue of its own, or in one of pyiceberg's configuration."""

    where: str
    catalogue: str | None

    @property
    def beside(self) -> str:
        return self.where.rstrip("/") + (ENDING if self.catalogue is None else ENDING_IN_CATALOGUE)

    def other(self, where: str) -> IcebergPairedTable:
        return IcebergPairedTable(where, self.catalogue)

    def _opened(self) -> Table | None:
        return iceberg.opened(self.where, self.catalogue)

    def _found(self) -> Table:
        return iceberg.found(self.where, self.catalogue)

    def columns(self) -> pa.Schema | None:
        table = self._opened()
        return None if table is None else iceberg.columns_of(table)

    def partitions(self) -> tuple[str, ...]:
        return tuple(iceberg.partitioned_by(self._found()))

    def stored(self, columns: pa.Schema) -> pa.Schema:
        return iceberg.stored(columns)

    def located(self, layout: Layout) -> Layout:
        table = self._found()
        place, system = iceberg.data_place(table), iceberg.file_system(table)
        return attrs.evolve(layout, where=place, is_whole=True, system=system)

    def widen(self, by: Sequence[str], columns: pa.Schema) -> None:
        """Widen the table, or make it: the place of its files is known then."""
        self.log(by, columns)

    def prepare(self, columns: pa.Schema) -> None:
        iceberg.IcebergLog(self.where, self.catalogue, (), columns, widens=True, description=DESCRIPTION)

    def log(self, by: Sequence[str], columns: pa.Schema) -> iceberg.IcebergLog:
        return iceberg.IcebergLog(self.where, self.catalogue, by, columns, widens=True)

    def changes(self) -> int | None:
        return self._noted().get(delta.CHANGES)

    def _noted(self) -> dict[str, int]:
        table = self._opened()
        return {} if table is None else iceberg.noted_in(table)

    def told(self, place: str) -> int:
        return self._noted().get(delta.changes_id(place), 0)

    def places(self) -> list[str]:
        begin = delta.CHANGES_OF
        found = [name.removeprefix(begin) for name in self._noted() if name.startswith(begin)]
        return [place for place in found if place]

    def note(self, place: str) -> None:
        """Do nothing: the numbers of changes name their places."""

    def change(self, number: int) -> delta.SideChange:
        table = self._found()
        for snapshot in iceberg.lineage(table):
            text = iceberg.change_told_by(snapshot)
            if text is not None and (iceberg.noted_by(snapshot) or {}).get(delta.CHANGES) == number:
                return delta.side_change(text)
        raise delta.forgotten(self.where, number, iceberg.noted_in(table).get(delta.CHANGES, 0))

    def make(self, number: int, change: delta.SideChange) -> None:
        """Make a change, again if another run was quicker or the catalogue did not say what became of it."""
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        for _ in range(iceberg.ATTEMPTS):
            table = self._found()
            noted = iceberg.noted_in(table)
            if noted.get(delta.CHANGES, -1) >= number:
                return
            known = {task.file.file_path: task.file for task in table.scan().plan_files()}
            require_there(self.where, change, list(known))
            added = [f"{iceberg.data_place(table)}/{file.path}" for file in change.added]
            numbers = {iceberg.NOTED: json.dumps({**noted, delta.CHANGES: number})}
            try:
                iceberg.replace_files(table, [known[path] for path in change.removed], added, numbers)
            except (CommitFailedException, CommitStateUnknownException):
                continue
            except (OSError, ValueError) as error:
                raise PipelineError(f"{self.where}: change {number} failed: {error}") from None
            iceberg.forget_redundant(table, time.time())
            return
        raise PipelineError(
            f"{self.where}: change {number} is not made: others commit all the time, or the catalogue does not answer"
        )

    def files(self) -> list[delta.Committed]:
        tasks = self._found().scan().plan_files()
        found = [
            delta.Committed(each.file.file_path, each.file.file_size_in_bytes, each.file.record_count, {})
            for each in tasks
        ]
        return sorted(found, key=lambda each: each.path)

    def opened(self, file: delta.Committed) -> pa.NativeFile:
        return iceberg.file_system(self._found()).open_input_file(key_of(file.path))

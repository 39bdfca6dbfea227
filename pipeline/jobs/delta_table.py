"""A Delta table as upkeep and `replay` look at it: its files and rows, what may be joined, and what may go."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.checkpoints import QueryCheckpoint, position, query_id
from leveret.pipeline.jobs.lake_table import Optimized, Orphan
from leveret.pipeline.jobs.paired_table import DESCRIPTION
from leveret.pipeline.offsets import Mark, Partition

if TYPE_CHECKING:
    from leveret.pipeline.jobs.delta import Committed
    from leveret.pipeline.jobs.lake_table import LakeTable


class DeltaLakeTable:
    """A Delta table in a folder, or at a URI that deltalake knows."""

    def __init__(self, where: str) -> None:
        """Open the table. Raises PipelineError if there is none."""
        self.where = where
        self._table = delta.found(where)
        self._folder = delta.folder_of(where)

    def schema(self) -> pa.Schema:
        return delta.columns_of(self._table)

    def files(self) -> list[Committed]:
        return delta.committed(self._table)

    def places(self, files: Sequence[Committed]) -> list[str]:
        return delta.places(self.where, files)

    def added(self, files: Sequence[Committed]) -> list[Mapping[str, str | None]]:
        return [each.values for each in files]

    def damaged(self, files: Sequence[Committed]) -> list[str]:
        """Return what is wrong with files that are on this machine; of others nothing is known."""
        if self._folder is None:
            return []
        found = []
        for each in files:
            file = self._folder / each.path
            if not file.is_file():
                found.append(f"{each.path} is in the table's log, but not in its folder")
            elif file.stat().st_size != each.octets:
                found.append(f"{each.path} has {file.stat().st_size} bytes, and should have {each.octets}")
        return found

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._table.to_pyarrow_dataset().to_batches(columns=list(columns))
        except (OSError, pa.ArrowException) as error:
            raise PipelineError(f"{self.where} cannot be read: {error}") from None

    @property
    def is_undecoded(self) -> bool:
        return self._table.metadata().description == DESCRIPTION

    def undecoded(self) -> list[LakeTable]:
        from leveret.pipeline.jobs.delta_paired_table import DeltaPairedTable
        from leveret.pipeline.jobs.undecoded import undecoded_tables

        found = [] if self.is_undecoded else undecoded_tables(DeltaPairedTable(self.where))
        return [DeltaLakeTable(where) for where in found]

    def position(self, partition: Partition, incarnation: str) -> int | None:
        return delta.position_in(self._table, partition, incarnation)

    def marks(self, checkpoint: Path | None) -> dict[Partition, Mark]:
        """Return where the last micro-batch ends that is in the table. Empty without a checkpoint."""
        query = query_id(checkpoint) if checkpoint is not None and checkpoint.is_dir() else None
        if query is None or checkpoint is None:
            return {}
        batch = max(position(checkpoint).done, delta.batch_in(self._table, query))
        return QueryCheckpoint(checkpoint).planned(batch) if batch >= 0 else {}

    def optimized(self, file_octets: int) -> Optimized:
        """Join files, as a rearrangement: archives that commit meanwhile are not in its way, nor it in theirs."""
        from deltalake.exceptions import DeltaError

        try:
            done = self._table.optimize.compact(target_size=file_octets)
        except (DeltaError, OSError) as error:
            raise PipelineError(f"{self.where} cannot be optimized: {error}") from None
        added, removed = done["filesAdded"], done["filesRemoved"]
        added, removed = (json.loads(each) if isinstance(each, str) else each for each in (added, removed))
        return Optimized(
            done["numFilesRemoved"], removed["totalSize"], done["numFilesAdded"], added["totalSize"]
        )

    def orphans(self, older_than_h: int, delete: bool, now: float | None = None) -> list[Orphan]:
        fields = {"retention_hours": older_than_h, "enforce_retention_duration": False, "full": True}
        found = self._table.vacuum(dry_run=True, **fields)  # type: ignore[arg-type]
        seen = [_orphan(path, self._folder, time.time() if now is None else now) for path in sorted(found)]
        if delete and found:
            self._table.vacuum(dry_run=False, **fields)  # type: ignore[arg-type]
        return seen


def _orphan(path: str, folder: Path | None, now: float) -> Orphan:
    if folder is None or not (folder / path).is_file():
        return Orphan(path, None, None)
    state = (folder / path).stat()
    return Orphan(path, state.st_size, max(0.0, now - state.st_mtime))

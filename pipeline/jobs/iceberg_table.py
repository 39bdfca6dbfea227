"""An Iceberg table as upkeep and `replay` look at it: its files and rows, what may be joined, and what may go.

    optimize ── small files ──> larger ones ── one snapshot that has both, and the numbers of the newest ──> catalogue
    clean    ── snapshots that are old ──> forgotten; files that no other names, and are as old ──> removed

Whatever commits here keeps how far archives are (`leveret.pipeline.jobs.iceberg`), and never forgets the newest
snapshot that tells it.

Source: Iceberg's table specification, "Snapshots", "Manifests", "Snapshot Retention Policy".
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa  # type: ignore[import-untyped]

from pyarrow import fs  # isort: skip

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs import delta, iceberg
from leveret.pipeline.jobs.data_files import Layout, key_of
from leveret.pipeline.jobs.iceberg_paired_table import IcebergPairedTable
from leveret.pipeline.jobs.lake_table import Optimized, Orphan
from leveret.pipeline.jobs.paired_table import DESCRIPTION
from leveret.pipeline.jobs.undecoded import undecoded_tables
from leveret.pipeline.offsets import Mark, Partition

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import FileScanTask
    from pyiceberg.table.snapshots import Snapshot

    from leveret.pipeline.jobs.lake_table import LakeTable

FOLDERS: Final = ("data", "metadata")  # in the place of a table; beside them is a catalogue of ours
HOUR_S: Final = 3600
OPTIMIZED: Final = "optimized"  # begins the names of files that were joined


class IcebergLakeTable:
    """An Iceberg table in a catalogue of its own, or in one of pyiceberg's configuration."""

    def __init__(self, where: str, catalogue: str | None) -> None:
        """Open the table. Raises PipelineError if there is none, BadOption."""
        self.where = where
        self._catalogue = catalogue
        self._table = iceberg.found(where, catalogue)

    def schema(self) -> pa.Schema:
        return iceberg.columns_of(self._table)

    def files(self) -> list[delta.Committed]:
        """Return the files. Raises PipelineError if other files take rows out of them."""
        tasks = self._tasks()
        if any(task.delete_files for task in tasks):
            raise PipelineError(
                f"{self.where} has rows that were deleted without rewriting their files: a program that knows Iceberg"
                " has to rewrite them first (rewrite_data_files)"
            )
        return sorted((self._committed(task.file) for task in tasks), key=lambda each: each.path)

    def _tasks(self) -> list[FileScanTask]:
        return list(self._table.scan().plan_files())

    def _committed(self, file: DataFile) -> delta.Committed:
        spec, schema = self._table.specs()[file.spec_id], self._table.schema()
        values: dict[str, str | None] = {}
        for place, field in enumerate(spec.fields):
            kind = field.transform.result_type(schema.find_type(field.source_id))
            value = file.partition[place]
            values[field.name] = None if value is None else field.transform.to_human_string(kind, value)
        return delta.Committed(file.file_path, file.file_size_in_bytes, file.record_count, values)

    def places(self, files: Sequence[delta.Committed]) -> list[str]:
        found = []
        for each in files:
            here = iceberg.local_path(each.path)
            found.append(each.path if here is None else str(here))
        return found

    def added(self, files: Sequence[delta.Committed]) -> list[Mapping[str, str | None]]:
        return [{} for _ in files]

    def damaged(self, files: Sequence[delta.Committed]) -> list[str]:
        found = []
        for each in files:
            try:
                octets = len(self._table.io.new_input(each.path))
            except FileNotFoundError:
                found.append(f"{each.path} is in the table's metadata, but is gone")
                continue
            except OSError as error:
                raise PipelineError(f"{each.path} cannot be looked at: {error}") from None
            if octets != each.octets:
                found.append(f"{each.path} has {octets} bytes, and should have {each.octets}")
        return found

    def batches(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        try:
            yield from self._table.scan(selected_fields=tuple(columns)).to_arrow_batch_reader()
        except (OSError, pa.ArrowException) as error:
            raise PipelineError(f"{self.where} cannot be read: {error}") from None

    @property
    def is_undecoded(self) -> bool:
        return bool(self._table.properties.get(iceberg.COMMENT) == DESCRIPTION)

    def undecoded(self) -> list[LakeTable]:
        paired = IcebergPairedTable(self.where, self._catalogue)
        found = [] if self.is_undecoded else undecoded_tables(paired)
        return [IcebergLakeTable(where, self._catalogue) for where in found]

    def position(self, partition: Partition, incarnation: str) -> int | None:
        return iceberg.noted_in(self._table).get(delta.position_id(partition, incarnation))

    def marks(self, checkpoint: Path | None) -> dict[Partition, Mark]:
        """Return how far the newest snapshot of an archive is: it has no checkpoint besides."""
        found = {}
        for name, number in iceberg.noted_in(self._table).items():
            if (of := delta.partition_of(name)) is not None:
                partition, incarnation = of  # one that was made anew comes later
                found[partition] = Mark(number, incarnation)
        return found

    # Fewer and larger files.

    def optimized(self, file_octets: int) -> Optimized:
        bins = self._bins(file_octets)
        read = [task.file for each in bins for task in each]
        if not read:
            return Optimized(0, 0, 0, 0)
        layout = self._layout(file_octets)
        written = [file for each in bins for file in layout.write(self._rows(each, layout), OPTIMIZED)]
        if sum(file.rows for file in written) != sum(file.record_count for file in read):
            raise PipelineError(
                f"{self.where} cannot be optimized: its files have other numbers of rows than it says"
            )
        places = [f"{layout.where}/{file.path}" for file in written]
        self._commit(lambda: self._replace(read, places))
        return Optimized(
            len(read),
            sum(file.file_size_in_bytes for file in read),
            len(written),
            sum(file.octets for file in written),
        )

    def _bins(self, file_octets: int) -> list[list[FileScanTask]]:
        """Return what files to join: small ones of one partition, up to the wanted size, two at least."""
        spec = self._table.spec().spec_id
        by_value: dict[object, list[FileScanTask]] = defaultdict(list)
        for task in self._tasks():
            if (
                not task.delete_files
                and task.file.spec_id == spec
                and task.file.file_size_in_bytes < file_octets
            ):
                by_value[task.file.partition].append(task)
        found = []
        for tasks in by_value.values():
            joined: list[FileScanTask] = []
            octets = 0
            for task in sorted(tasks, key=lambda each: str(each.file.file_path)):
                if joined and octets + task.file.file_size_in_bytes > file_octets:
                    found.append(joined)
                    joined, octets = [], 0
                joined.append(task)
                octets += task.file.file_size_in_bytes
            found.append(joined)
        return [each for each in found if len(each) > 1]

    def _layout(self, file_octets: int) -> Layout:
        columns = iceberg.columns_of(self._table)
        by = tuple(iceberg.partitioned_by(self._table))
        place = iceberg.data_place(self._table)
        return Layout(place, by, columns, file_octets, True, iceberg.file_system(self._table))

    def _rows(self, tasks: Sequence[FileScanTask], layout: Layout) -> Iterator[pa.RecordBatch]:
        from pyiceberg.expressions import AlwaysTrue
        from pyiceberg.io.pyarrow import ArrowScan

        table = self._table
        scan = ArrowScan(table.metadata, table.io, table.schema(), AlwaysTrue())
        for batch in scan.to_record_batches(tasks):
            yield from pa.Table.from_batches([batch]).cast(layout.columns).to_batches()

    def _replace(self, read: Sequence[DataFile], places: Sequence[str]) -> None:
        """Make the snapshot in which files take the place of those that were read. Raises PipelineError if one of these
        is not in the table any more."""
        from pyiceberg.exceptions import ValidationException

        numbers = {iceberg.NOTED: json.dumps(iceberg.noted_in(self._table))}
        try:
            iceberg.replace_files(self._table, read, places, numbers)
        except ValidationException as error:
            raise PipelineError(
                f"{self.where} is not optimized: another program has rewritten its files: {error}"
            ) from None

    def _commit(self, change: Callable[[], None]) -> None:
        """Make a change of the newest state of the table, again if an archive was quicker. Raises PipelineError."""
        from pyiceberg.exceptions import CommitFailedException

        for _ in range(iceberg.ATTEMPTS):
            self._table.refresh()
            try:
                change()
            except CommitFailedException:
                continue
            except (OSError, ValueError) as error:
                raise PipelineError(f"{self.where} cannot be changed: {error}") from None
            return
        raise PipelineError(f"{self.where} is not changed: others commit all the time")

    # Files that are in no snapshot.

    def orphans(self, older_than_h: int, delete: bool, now: float | None = None) -> list[Orphan]:
        now = time.time() if now is None else now
        system, root = self._listed
        until = now - older_than_h * HOUR_S
        # Before the snapshots are read, so that what is committed meanwhile is in one of them.
        files = list(self._found(system, root, until))
        self._table.refresh()
        self.undecoded()  # has the changes made that a snapshot tells of, before it is forgotten
        old = self._old_snapshots(until)
        if delete and old:
            self._commit(lambda: self._forget(old))
            self._table.refresh()
            old = set()
        named = {key_of(place) for place in self._named(old)}
        seen = []
        for file in files:
            if file.path in named:
                continue
            assert file.mtime_ns is not None
            shown = file.path.removeprefix(root).lstrip("/")
            seen.append(Orphan(shown, file.size, max(0.0, now - file.mtime_ns / 1e9)))
            if delete:
                with suppress(FileNotFoundError):
                    system.delete_file(file.path)
        return sorted(seen, key=lambda each: each.path)

    @property
    def _listed(self) -> tuple[fs.FileSystem, str]:
        """The file system of the table, and its place there."""
        return iceberg.file_system(self._table), key_of(self._table.location().rstrip("/"))

    @staticmethod
    def _found(system: fs.FileSystem, root: str, until: float) -> Iterator[fs.FileInfo]:
        for name in FOLDERS:
            chosen = fs.FileSelector(f"{root}/{name}", allow_not_found=True, recursive=True)
            for file in system.get_file_info(chosen):
                if (
                    file.type == fs.FileType.File
                    and file.mtime_ns is not None
                    and file.mtime_ns / 1e9 <= until
                ):
                    yield file

    def _old_snapshots(self, until: float) -> set[int]:
        """Return the snapshots that are old, and may be forgotten."""
        kept = iceberg.kept_snapshots(self._table)
        return {
            each.snapshot_id
            for each in self._table.snapshots()
            if each.snapshot_id not in kept and each.timestamp_ms / 1000 <= until
        }

    def _forget(self, old: set[int]) -> None:
        if found := old & {each.snapshot_id for each in self._table.snapshots()}:
            iceberg.forget(self._table, found)

    def _named(self, without: set[int]) -> Iterator[str]:
        """Yield the places of all files that the table's metadata name, but for what only old snapshots do."""
        metadata = self._table.metadata
        yield self._table.metadata_location
        yield from (each.metadata_file for each in metadata.metadata_log)
        yield from (each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics))
        known: set[str] = set()
        for snapshot in self._table.snapshots():
            if snapshot.snapshot_id not in without:
                yield from self._named_by(snapshot, known)

    def _named_by(self, snapshot: Snapshot, known: set[str]) -> Iterator[str]:
        yield snapshot.manifest_list
        for manifest in snapshot.manifests(self._table.io):
            if manifest.manifest_path in known:
                continue
            known.add(manifest.manifest_path)
            yield manifest.manifest_path
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True):
                yield entry.data_file.file_path

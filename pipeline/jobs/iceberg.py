"""The log of an Iceberg table: which files are in it, and how far it is in each partition of each stream.

    data files ── one snapshot: their names, and in its properties what Delta's log has as transactions ──> catalogue

The catalogue is a file of SQLite in the table's folder, or one that pyiceberg's own configuration names, such as a REST
service. What it is told to name is on disk before, where it is on this machine. A snapshot has the numbers of all those
before it, so the newest tells where a run goes on; no checkpoint is needed. A commit that is not the first after the
snapshot it was made for is refused by the catalogue, and compared anew.

Source: Iceberg's table specification, "Snapshots" (`summary`); pyiceberg, `Table.add_files`.
"""

from __future__ import annotations

import json
import logging
import os
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast
from urllib.parse import urlsplit

import pyarrow as pa  # type: ignore[import-untyped]

from leveret.durable.store.syncing import have_folder
from leveret.pipeline.decoding.column_types import Conflict, merged
from leveret.pipeline.errors import BadOption, PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import CATALOGUE
from leveret.pipeline.jobs.data_files import BOUNDED
from leveret.pipeline.jobs.table_positions import TableCheckpoint, query_of
from leveret.pipeline.offsets import Mark, Marks

if TYPE_CHECKING:
    from sqlite3 import Connection

    from pyarrow.fs import FileSystem  # type: ignore[import-untyped]
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from leveret.pipeline.jobs.data_files import DataFile

log: Final = logging.getLogger("leveret.pipeline")

NAMESPACE: Final = "leveret"  # in such a catalogue
NOTED: Final = "leveret-transactions"  # the property of a snapshot: numbers of transactions by name, as JSON
# The property of a snapshot: what it tells of a change of another table, as JSON.
CHANGE: Final = "leveret-undecoded"
COMMENT: Final = "comment"  # the property of a table that says what it is
# pyiceberg would repeat a commit without a look at what came between.
RETRIES: Final = "commit.retry.num-retries"
NAME_MAPPING: Final = "schema.name-mapping.default"
METRICS: Final = "write.metadata.metrics"
FILE_IO: Final = "py-io-impl"  # the property of a catalogue: the class through which files go
PLAIN: Final = "pyiceberg.io.pyarrow.PyArrowFileIO"
SYNCED: Final = "leveret.pipeline.jobs.synced_file_io.SyncedFileIO"
# Properties of a new table, by which a commit costs the same however many there were: manifests are joined, and only
# the last hundred files of metadata stay.
BOUNDS: Final = {
    "commit.manifest-merge.enabled": "true",
    "commit.manifest.min-count-to-merge": "100",
    "commit.manifest.target-size-bytes": str(1 << 20),
    "write.metadata.delete-after-commit.enabled": "true",
}
# The property of a table that says how long snapshots are kept.
HISTORY: Final = "history.expire.max-snapshot-age-ms"
# Without it snapshots of a table that is only added to are kept for a day, and for an hour those beyond so many.
HISTORY_MS: Final = 24 * 3_600_000
HISTORY_LEAST_MS: Final = 3_600_000
HISTORY_MANY: Final = 1000
FORGOTTEN_LEAST: Final = 20  # snapshots that are worth a commit
ATTEMPTS: Final = 20
BEGUN_MAX: Final = 4  # attempts to begin a catalogue, before the last: it has two tables
STORED: Final = {  # types, by those of other programs and schemas
    pa.large_string(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.int8(): pa.int32(),
    pa.int16(): pa.int32(),
}
PARTITIONS: Final = ("day", "hour", "stream", "routing_key")


def require() -> None:
    """Check that pyiceberg is installed. Raises PipelineError."""
    if find_spec("pyiceberg") is None:
        raise PipelineError("pyiceberg is not installed: `pip install 'leveret[iceberg]'`")


def catalogue_of(where: str, name: str | None) -> tuple[Catalog, tuple[str, str]]:
    """Return a catalogue and the name of a table in it: `where` is a folder, or NAMESPACE.TABLE in the catalogue that
    pyiceberg's configuration has under `name`. Raises BadOption, PipelineError.
    """
    from pyiceberg.catalog import load_catalog

    if name is not None:
        namespace, _, table = where.rpartition(".")
        if not namespace or "/" in where:
            raise BadOption(f"with --catalog the target is NAMESPACE.TABLE, not {where}")
        try:
            return _synced(load_catalog(name)), (namespace, table)
        except Exception as error:  # of whatever catalogue it is
            raise PipelineError(f"the catalogue {name} cannot be used: {error}") from None
    folder = delta.folder_of(where)
    if folder is None:
        raise BadOption(
            f"an Iceberg table at {where} needs a catalogue: --catalog NAME, with NAMESPACE.TABLE as target"
        )
    folder = folder.absolute()
    have_folder(folder)
    return _in_file(folder), (NAMESPACE, folder.name.replace(".", "_"))


def _in_file(folder: Path) -> Catalog:
    """Return the catalogue in the file of a folder, begun anew where another run was quicker to make one of its tables.

    It knows how its requests are spelled in SQL, which takes longer than to read it. Its connections are not kept: the
    file may be another one by now.
    """
    from sqlalchemy.exc import OperationalError

    for _ in range(BEGUN_MAX):
        with suppress(OperationalError):
            return _begun(folder)
    return _begun(folder)


def _begun(folder: Path) -> SqlCatalog:
    from pyiceberg.catalog.sql import SqlCatalogBaseTable
    from sqlalchemy import inspect

    catalogue = _known(folder, os.getpid())
    catalogue.engine.dispose()
    there = inspect(catalogue.engine)
    if not all(map(there.has_table, SqlCatalogBaseTable.metadata.tables)):
        catalogue.create_tables()
    return catalogue


@lru_cache(maxsize=16)
def _known(folder: Path, process: int) -> SqlCatalog:
    """Return a catalogue whose tables may not be there yet. `process`: one that has forked has its own."""
    from pyiceberg.catalog import load_catalog

    uri = f"sqlite:///{folder / CATALOGUE}"
    settings = {"uri": uri, "warehouse": f"file://{folder}", "init_catalog_tables": "false"}
    return cast("SqlCatalog", _synced(load_catalog("leveret", type="sql", **settings)))


def _synced(catalogue: Catalog) -> Catalog:
    """Return a catalogue whose files are on disk before its commits, and these once they are done, as far as either is
    on this machine."""
    if catalogue.properties.get(FILE_IO, PLAIN) == PLAIN:
        catalogue.properties[FILE_IO] = SYNCED
    engine = getattr(catalogue, "engine", None)  # others have none, and do without the library
    if engine is not None and engine.dialect.name == "sqlite":
        from sqlalchemy import event

        event.listen(engine, "connect", _sync_commits)
        engine.dispose()  # it has connected already
    return catalogue


def _sync_commits(connection: Connection, _: object) -> None:
    """Have a commit be on disk with the removal of its journal, which would undo it after a power cut."""
    for pragma in ("synchronous = extra", "fullfsync = on"):
        connection.execute(f"pragma {pragma}")


def _have_namespace(catalogue: Catalog, namespace: str) -> None:
    """Create a namespace unless it exists. A catalogue looks, then writes; another run may do both in between."""
    try:
        catalogue.create_namespace_if_not_exists(namespace)
    except Exception:  # each kind of catalogue raises errors of its own
        if not catalogue.namespace_exists(namespace):
            raise


def opened(where: str, name: str | None) -> Table | None:
    """Return the table; None if there is none. Raises PipelineError, BadOption."""
    require()
    from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

    folder = delta.folder_of(where)
    if name is None and folder is not None and not (folder / CATALOGUE).is_file():
        return None
    catalogue, identifier = catalogue_of(where, name)
    try:
        return catalogue.load_table(identifier)
    except (NoSuchTableError, NoSuchNamespaceError):
        return None
    except Exception as error:  # of whatever catalogue it is
        raise PipelineError(f"{where} cannot be read as an Iceberg table: {error}") from None


def found(where: str, name: str | None) -> Table:
    """Return the table. Raises PipelineError if there is none, BadOption."""
    table = opened(where, name)
    if table is None:
        place = f"it has no {CATALOGUE}" if name is None else f"the catalogue {name} has none of that name"
        raise PipelineError(f"{where} is no Iceberg table: {place}")
    return table


def noted_in(table: Table) -> dict[str, int]:
    """Return the numbers of transactions, of the newest snapshot that has them: others may be of other programs."""
    for snapshot in lineage(table):
        numbers = noted_by(snapshot)
        if numbers is not None:
            return numbers
    return {}


def noted_by(snapshot: Snapshot) -> dict[str, int] | None:
    """Return the numbers of transactions that a snapshot has; None if it is of another program."""
    text = snapshot.summary.additional_properties.get(NOTED) if snapshot.summary else None
    if text is None:
        return None
    numbers: dict[str, int] = json.loads(text)
    return numbers


def change_told_by(snapshot: Snapshot) -> str | None:
    """Return what a snapshot tells of a change of the table of undecoded rows; None if it tells of none."""
    return snapshot.summary.additional_properties.get(CHANGE) if snapshot.summary else None


def lineage(table: Table) -> Iterator[Snapshot]:
    """Yield the snapshots that led to the table as it is, the newest first, as far as they are kept."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def kept_snapshots(table: Table) -> set[int]:
    """Return the snapshots that may not be forgotten: those that a branch or tag names, and all since the newest that
    tells how far archives are."""
    kept = _named_snapshots(table)
    for snapshot in lineage(table):
        kept.add(snapshot.snapshot_id)
        if noted_by(snapshot) is not None:
            break
    return kept


def _named_snapshots(table: Table) -> set[int]:
    return {each.snapshot_id for each in table.metadata.refs.values()}


def _history_begins_ms(table: Table, now_ms: float) -> float:
    """Return the time since when snapshots are kept, in milliseconds since 1970."""
    if (said := table.properties.get(HISTORY)) is not None:
        return now_ms - int(said)
    times = sorted(each.timestamp_ms for each in table.snapshots())
    too_many = times[-HISTORY_MANY - 1] if len(times) > HISTORY_MANY else 0
    return max(now_ms - HISTORY_MS, min(too_many, now_ms - HISTORY_LEAST_MS))


def redundant_snapshots(table: Table, now: float) -> list[Snapshot]:
    """Return the snapshots that only times before the history of the table need, and whose files are in later ones.

    One before files were removed or replaced is not among them, for readers that have begun with these: `clean` takes
    it. `now` is in seconds since 1970.
    """
    from pyiceberg.table.snapshots import Operation

    until_ms = _history_begins_ms(table, now * 1000)
    kept = kept_snapshots(table)
    operations: dict[int | None, set[Operation | None]] = defaultdict(set)  # by the snapshot before
    for each in table.snapshots():
        operations[each.parent_snapshot_id].add(each.summary.operation if each.summary else None)
    return [
        each
        for each in table.snapshots()
        if each.timestamp_ms <= until_ms
        and each.snapshot_id not in kept
        and operations[each.snapshot_id] == {Operation.APPEND}
    ]


def forget(table: Table, snapshots: Collection[int]) -> None:
    """Forget snapshots, in one commit; their files stay. Raises what pyiceberg does."""
    later = datetime.now(UTC) + timedelta(days=1)
    # By time, as pyiceberg copies the metadata for each that is named. No other can be forgotten here.
    _with_few(table, snapshots).maintenance.expire_snapshots().older_than(later).commit()


def forget_redundant(table: Table, now: float, complete: Callable[[], object] = lambda: None) -> None:
    """Forget redundant snapshots once there are some, after `complete`. Raises nothing.

    While they are there commits take longer, and nothing is wrong: the next time makes up for it.
    """
    try:
        if len(redundant_snapshots(table, now)) >= FORGOTTEN_LEAST:
            complete()
            table.refresh()
            forget(table, {each.snapshot_id for each in redundant_snapshots(table, now)})
    except Exception as error:  # of whatever catalogue it is
        log.warning("%s: its old snapshots are not forgotten: %s", ".".join(table.name()), error)


def _with_few(table: Table, snapshots: Collection[int] = ()) -> Table:
    """Return a table to commit to that knows only some of its snapshots, besides those that a branch or tag names.

    pyiceberg copies all that it knows 22 times for one commit, which takes 0.4 ms for each snapshot. The catalogue adds
    the commit to what it knows itself, and gives the table back with that.
    """
    from pyiceberg.table import Table

    known = {*_named_snapshots(table), *snapshots}
    few = [each for each in table.snapshots() if each.snapshot_id in known]
    metadata = table.metadata.model_copy(update={"snapshots": few, "snapshot_log": []})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog, table.config)


def partitioned_by(table: Table) -> list[str]:
    """Return what a table is partitioned by, as `--partition-by` has it."""
    return [field.name.partition("_of_")[0].removeprefix("by_") for field in table.spec().fields]


def columns_of(table: Table) -> pa.Schema:
    """Return the columns of a table, with the types that archives write."""
    return stored(table.schema().as_arrow())


def stored(columns: pa.Schema) -> pa.Schema:
    """Return columns as a table has them: Iceberg has no integers of 8 and 16 bits. Each may be null."""
    return merged(pa.schema([]), pa.schema([(field.name, _stored(field.type)) for field in columns]))


def _stored(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _stored(field.type)) for field in kind])
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_stored(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _stored(kind.item_type))
    return STORED.get(kind, kind)


def data_place(table: Table) -> str:
    """Return the place of a table's data files."""
    place: str = table.location()
    return place.rstrip("/") + "/data"


def file_system(table: Table) -> FileSystem:
    """Return the file system of a table, with the settings and credentials of its catalogue. Raises PipelineError."""
    from pyiceberg.io.pyarrow import PyArrowFileIO

    parts = urlsplit(table.location())
    if not isinstance(table.io, PyArrowFileIO):
        raise PipelineError(
            f"{table.location()} is written through {type(table.io).__name__}: set py-io-impl of the catalogue to"
            " pyiceberg.io.pyarrow.PyArrowFileIO"
        )
    return table.io.fs_by_scheme(parts.scheme or "file", parts.netloc)


def replace_files(
    table: Table, removed: Sequence[IcebergFile], added: Sequence[str], properties: Mapping[str, str]
) -> None:
    """Make the snapshot in which files, by their places, are in the place of others. Raises what pyiceberg does."""
    from pyiceberg.io.pyarrow import parquet_file_to_data_file

    with _with_few(table).transaction() as commit:
        if table.metadata.name_mapping() is None:  # by which readers know the columns of files
            commit.set_properties({NAME_MAPPING: table.schema().name_mapping.model_dump_json()})
        snapshot = commit.update_snapshot(dict(properties))
        with snapshot.overwrite() if removed else snapshot.merge_append() as replacing:
            for file in removed:
                replacing.delete_data_file(file)
            for place in added:
                replacing.append_data_file(parquet_file_to_data_file(table.io, table.metadata, place))


def local_path(place: str) -> Path | None:
    """Return the path of a file that is on this machine; None if it is elsewhere."""
    parts = urlsplit(place)
    return Path(parts.path) if parts.scheme in ("", "file") else None  # names on disk have % in them


class IcebergLog:
    """The log of one table. Not to be shared by threads."""

    def __init__(
        self,
        where: str,
        name: str | None,
        by: Sequence[str],
        columns: pa.Schema,
        widens: bool = False,
        description: str | None = None,
    ) -> None:
        """Open the table, or make it with a description; one that `widens` gets columns that it lacks. Raises
        PipelineError.
        """
        if unknown := [each for each in by if each not in PARTITIONS]:
            raise BadOption(
                f"an Iceberg table cannot be partitioned by {unknown[0]}, only by {', '.join(PARTITIONS)}"
            )
        self._where = where
        self._by = tuple(by)
        self._columns = columns
        self._widens = widens
        self._description = description
        require()
        catalogue, self._identifier = catalogue_of(where, name)
        self._table = self._opened(catalogue)
        self._require_alike()
        if widens:
            self._widen()

    @property
    def data(self) -> str:
        """The place of its data files."""
        return data_place(self._table)

    @property
    def system(self) -> FileSystem:
        """The file system of that place, with the settings of the catalogue."""
        return file_system(self._table)

    def begin(self, sources: Sequence[str], initial: Marks) -> IcebergCheckpoint:
        """Return the position of a query: where the table ends in each partition, or where a new query begins."""
        noted = self._noted()
        query = query_of(sources)
        marks = {
            each: Mark(noted.get(delta.position_id(each, mark.incarnation), mark.next), mark.incarnation)
            for each, mark in initial.items()
        }
        return IcebergCheckpoint(query, noted.get(query, -1), marks)

    def is_there(self, query: str, batch: int) -> bool:
        self._table.refresh()
        return self.number(query) >= batch

    def number(self, name: str) -> int:
        """Return the number of a transaction that was in the table at the last look; -1 if there was none."""
        return self._noted().get(name, -1)

    def append(self, files: Sequence[DataFile], batch: delta.CommittedBatch) -> bool:
        """Add files to the table, as `delta.append` does. Raises PipelineError."""
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        is_unsure = False  # whether the catalogue did not say what became of a commit
        for _ in range(ATTEMPTS):
            self._refresh()
            noted = self._noted()
            if noted.get(batch.query, -1) >= batch.number:
                return is_unsure and all(noted.get(name) == number for name, number in batch.noted.items())
            delta.require_new(lambda name: noted.get(name, -1), self._where, batch)  # noqa: B023 - called at once
            batch = batch.numbered(lambda name: noted.get(name, -1))  # noqa: B023 - called at once
            told = {NOTED: json.dumps({**noted, **batch.noted})}
            if batch.change is not None:
                told[CHANGE] = batch.more[delta.CHANGE]
            table = _with_few(self._table)
            try:
                with table.transaction() as commit:
                    commit.add_files(
                        [f"{self.data}/{file.path}" for file in files],
                        told,
                        check_duplicate_files=False,  # their names are new
                    )
            except CommitFailedException:
                continue
            except CommitStateUnknownException:
                is_unsure = True  # if it comes late, it is refused as the second one after a snapshot
                continue
            except (OSError, ValueError) as error:
                raise PipelineError(
                    f"{self._where}: the commit of batch {batch.number} failed: {error}"
                ) from None
            self._table = table  # with all snapshots again, as the catalogue has them
            return True
        raise PipelineError(
            f"{self._where}: batch {batch.number} is not committed: others commit all the time, or the catalogue does"
            " not answer"
        )

    def upkeep(self, now: float, complete: Callable[[], object]) -> None:
        """Forget snapshots that are not needed any more, as `ArchiveLog.upkeep` does."""
        forget_redundant(self._table, now, complete)

    def widen(self, columns: pa.Schema) -> None:
        """Have the table have these columns from the next look at it on."""
        self._columns = columns

    def _refresh(self) -> None:
        self._table.refresh()
        if self._widens:
            self._widen()

    def _widen(self) -> None:
        """Have the table have the columns that it lacks, in a commit of their own. Raises BadOption if it has some of
        another type, PipelineError."""
        from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException

        for _ in range(ATTEMPTS):
            known = columns_of(self._table)
            try:
                both = merged(known, stored(self._columns))
            except Conflict as conflict:
                raise BadOption(f"{self._where}: {conflict}") from None
            if both == known:
                return
            try:
                with self._table.update_schema() as change:
                    change.union_by_name(both)
            except (CommitFailedException, CommitStateUnknownException):  # perhaps another run was quicker
                self._table.refresh()
            except (OSError, ValueError) as error:
                raise PipelineError(
                    f"{self._where} does not get the columns that it lacks: {error}"
                ) from None
        raise PipelineError(
            f"{self._where} does not get the columns that it lacks: others commit all the time"
        )

    def _noted(self) -> dict[str, int]:
        return noted_in(self._table)

    def _opened(self, catalogue: Catalog) -> Table:
        from pyiceberg.exceptions import (
            CommitFailedException,
            CommitStateUnknownException,
            NoSuchTableError,
            TableAlreadyExistsError,
        )

        _have_namespace(catalogue, self._identifier[0])
        try:
            return catalogue.load_table(self._identifier)
        except NoSuchTableError:
            pass
        folder = delta.folder_of(self._where) if self._identifier[0] == NAMESPACE else None
        # Not escaped as URIs are: pyiceberg and readers take the rest for the name on disk.
        location = None if folder is None else f"file://{folder.absolute()}"
        # Another run was quicker, or the catalogue did not say what became of it.
        with suppress(TableAlreadyExistsError, CommitFailedException, CommitStateUnknownException):
            self._make(catalogue, location)
        return catalogue.load_table(self._identifier)

    def _make(self, catalogue: Catalog, location: str | None) -> None:
        from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

        bounds = {f"{METRICS}.column.{name}": "full" for name in (*BOUNDED, *self._by)}
        properties = {RETRIES: "0", f"{METRICS}.default": "none", **bounds, **BOUNDS}  # as files have them
        if self._description is not None:
            properties[COMMENT] = self._description
        table = catalogue.create_table_transaction(
            self._identifier, schema=self._columns, location=location, properties=properties
        )
        with table.update_spec() as spec:
            for name in self._by:
                if name == "day":
                    spec.add_field("timestamp", DayTransform(), "day_of_timestamp")
                elif name == "hour":
                    spec.add_field("timestamp", HourTransform(), "hour_of_timestamp")
                else:
                    spec.add_field(name, IdentityTransform(), f"by_{name}")
        table.commit_transaction()

    def _require_alike(self) -> None:
        """Refuse a table with other columns or partitions. Raises BadOption."""
        known = partitioned_by(self._table)
        if known != list(self._by):
            raise BadOption(
                f"{self._where} is partitioned by {','.join(known) or 'none'}, not by {','.join(self._by) or 'none'}"
            )
        theirs, ours = {field.name for field in self._table.schema().fields}, {*self._columns.names}
        if theirs != ours and not self._widens:
            raise BadOption(
                f"{self._where} has other columns than these messages would have: {', '.join(sorted(theirs ^ ours))}"
            )
        if self._table.properties.get(RETRIES) != "0":
            raise BadOption(f"{self._where} has not the property {RETRIES}=0: a commit could be made twice")


class IcebergCheckpoint(TableCheckpoint):
    """The position of a query that an Iceberg table has."""

    def __init__(self, query: str, last: int, marks: Marks) -> None:
        self._start(query, last)
        self.begin(marks)

"""The log of an Iceberg table: which files are in it, and how far it is in each partition of each stream.

    data files ── one snapshot: their names, and in its properties what Delta's log has as transactions ──> catalogue

The catalogue is a file of SQLite in the table's folder, or one that pyiceberg's own configuration names, such as a REST
service. A snapshot has the numbers of all those before it, so the newest tells where a run goes on; no checkpoint is
needed. A commit that is not the first after the snapshot it was made for is refused by the catalogue, and compared
anew.

Source: Iceberg's table specification, "Snapshots" (`summary`); pyiceberg, `Table.add_files`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from leveret.durable.store.syncing import sync_file, sync_folder
from leveret.pipeline.errors import BadOption, PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import CATALOGUE
from leveret.pipeline.jobs.data_files import BOUNDED
from leveret.pipeline.jobs.table_positions import TableCheckpoint, query_of
from leveret.pipeline.offsets import Mark, Marks

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyarrow.fs import FileSystem  # type: ignore[import-untyped]
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyiceberg.table.snapshots import Snapshot

    from leveret.pipeline.jobs.data_files import DataFile

NAMESPACE: Final = "leveret"  # in such a catalogue
NOTED: Final = "leveret-transactions"  # the property of a snapshot: numbers of transactions by name, as JSON
# pyiceberg would repeat a commit without a look at what came between.
RETRIES: Final = "commit.retry.num-retries"
METRICS: Final = "write.metadata.metrics"
ATTEMPTS: Final = 20
BEGUN_MAX: Final = 4  # attempts to begin a catalogue, before the last: it has two tables
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
            return load_catalog(name), (namespace, table)
        except Exception as error:  # of whatever catalogue it is
            raise PipelineError(f"the catalogue {name} cannot be used: {error}") from None
    folder = delta.folder_of(where)
    if folder is None:
        raise BadOption(
            f"an Iceberg table at {where} needs a catalogue: --catalog NAME, with NAMESPACE.TABLE as target"
        )
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"type": "sql", "uri": f"sqlite:///{folder / CATALOGUE}", "warehouse": f"file://{folder}"}
    return _in_file(settings), (NAMESPACE, folder.name.replace(".", "_"))


def _in_file(settings: dict[str, str]) -> Catalog:
    """Return a catalogue in a file, begun anew where another run was quicker to make one of its tables."""
    from pyiceberg.catalog import load_catalog
    from sqlalchemy.exc import OperationalError

    for _ in range(BEGUN_MAX):
        with suppress(OperationalError):
            return load_catalog("leveret", **settings)
    return load_catalog("leveret", **settings)


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


def lineage(table: Table) -> Iterator[Snapshot]:
    """Yield the snapshots that led to the table as it is, the newest first, as far as they are kept."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)


def partitioned_by(table: Table) -> list[str]:
    """Return what a table is partitioned by, as `--partition-by` has it."""
    return [field.name.partition("_of_")[0].removeprefix("by_") for field in table.spec().fields]


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


def sync_snapshot(table: Table) -> None:
    """Have the files of the newest snapshot on disk, where they are on this machine."""
    snapshot = table.current_snapshot()
    assert snapshot is not None
    manifests = [
        each.manifest_path
        for each in snapshot.manifests(table.io)
        if each.added_snapshot_id == snapshot.snapshot_id
    ]
    for place in (table.metadata_location, snapshot.manifest_list, *manifests):
        file = local_path(place)
        if file is not None:
            with file.open("rb") as opened:
                sync_file(opened.fileno())
            sync_folder(file.parent)


def local_path(place: str) -> Path | None:
    """Return the path of a file that is on this machine; None if it is elsewhere."""
    parts = urlsplit(place)
    return Path(parts.path) if parts.scheme in ("", "file") else None  # names on disk have % in them


class IcebergLog:
    """The log of one table. Not to be shared by threads."""

    def __init__(self, where: str, name: str | None, by: Sequence[str], columns: pa.Schema) -> None:
        """Open the table, or make it. Raises PipelineError."""
        if unknown := [each for each in by if each not in PARTITIONS]:
            raise BadOption(
                f"an Iceberg table cannot be partitioned by {unknown[0]}, only by {', '.join(PARTITIONS)}"
            )
        self._where = where
        self._by = tuple(by)
        self._columns = columns
        require()
        catalogue, self._identifier = catalogue_of(where, name)
        self._table = self._opened(catalogue)
        self._require_alike()

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
            self._table.refresh()
            noted = self._noted()
            if noted.get(batch.query, -1) >= batch.number:
                return is_unsure and all(noted.get(name) == number for name, number in batch.noted.items())
            delta.require_new(lambda name: noted.get(name, -1), self._where, batch)  # noqa: B023 - called at once
            try:
                with self._table.transaction() as commit:
                    commit.add_files(
                        [f"{self.data}/{file.path}" for file in files],
                        {NOTED: json.dumps({**noted, **batch.noted})},
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
            sync_snapshot(self._table)
            return True
        raise PipelineError(
            f"{self._where}: batch {batch.number} is not committed: others commit all the time, or the catalogue does"
            " not answer"
        )

    def _noted(self) -> dict[str, int]:
        return noted_in(self._table)

    def _opened(self, catalogue: Catalog) -> Table:
        from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError

        catalogue.create_namespace_if_not_exists(self._identifier[0])
        try:
            return catalogue.load_table(self._identifier)
        except NoSuchTableError:
            pass
        folder = delta.folder_of(self._where) if self._identifier[0] == NAMESPACE else None
        # Not escaped as URIs are: pyiceberg and readers take the rest for the name on disk.
        location = None if folder is None else f"file://{folder.absolute()}"
        with suppress(TableAlreadyExistsError, CommitFailedException):  # another run was quicker
            self._make(catalogue, location)
        return catalogue.load_table(self._identifier)

    def _make(self, catalogue: Catalog, location: str | None) -> None:
        from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform

        bounds = {f"{METRICS}.column.{name}": "full" for name in (*BOUNDED, *self._by)}
        properties = {RETRIES: "0", f"{METRICS}.default": "none", **bounds}  # as files have them
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
        if theirs != ours:
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

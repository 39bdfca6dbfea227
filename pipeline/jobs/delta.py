"""The log of a Delta table: which files are in it, and how far each query has come.

    tasks ── data files, which nobody sees yet ──> TABLE/day=.../*.parquet
    driver ── one commit: their names, the number of the query's micro-batch, and how far each partition is in the
              table then ──> TABLE/_delta_log/00...12.json

A commit with the number of a micro-batch that is in the table is refused by the log itself, and so is one of offsets
that are in the table, whatever checkpoint they were planned with, also where two drivers try at the same time. The log
is written by deltalake, or by `leveret.pipeline.jobs.table_log`; neither Spark nor a package for the JVM is needed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import attrs

from leveret.durable.store.syncing import have_folder, sync_file, sync_folder
from leveret.pipeline.errors import BadOption, PipelineError

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from deltalake import DeltaTable

    from leveret.pipeline.jobs.data_files import DataFile
    from leveret.pipeline.offsets import Interval, Partition

LOG: Final = "_delta_log"
LAST_CHECKPOINT: Final = "_last_checkpoint"
HIDDEN: Final = "_"  # names that begin so are no data
CHANGES: Final = "leveret undecoded"  # the transaction whose number counts changes of another table
# What the names of transactions begin with whose numbers count the changes of one such table.
CHANGES_OF: Final = "leveret undecoded in "
PLACES: Final = "leveret-undecoded"  # the property of a table that has the other tables' names, as JSON
CHANGE: Final = "leveretUndecoded"  # what a commit tells of one
HISTORY: Final = 20  # commits among which the newest changes are looked for first
WIDENED_MAX: Final = 5  # attempts to add columns


class NoDelta(PipelineError):  # noqa: N818 - a state of affairs
    """Raised when the package is not installed."""


def require() -> None:
    """Check that deltalake is installed. Raises NoDelta."""
    if find_spec("deltalake") is None:
        raise NoDelta("deltalake is not installed: `pip install 'leveret[delta]'` (or leveret[spark])")


def folder_of(where: str) -> Path | None:
    """Return the folder on this machine that a text names; None if it is elsewhere."""
    if where.startswith("file:"):
        return Path("/" + where.removeprefix("file:").lstrip("/"))
    return None if "://" in where else Path(where)


def opened(where: str) -> DeltaTable | None:
    """Return the table; None if there is none. Raises PipelineError if its log cannot be read."""
    require()
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(where) if DeltaTable.is_deltatable(where) else None
    except (DeltaError, OSError) as error:
        raise PipelineError(f"{where} cannot be read as a Delta table: {error}") from None


def found(where: str) -> DeltaTable:
    """Return the table. Raises PipelineError if there is none."""
    table = opened(where)
    if table is None:
        raise PipelineError(f"{where} is no Delta table: it has no {LOG}")
    return table


# Reading.


@attrs.frozen
class Committed:
    """A file that is in the table now."""

    path: str  # in the table's folder, as its name is on disk
    octets: int
    rows: int | None
    values: dict[str, str | None]  # of the columns that the table is partitioned by


def committed(table: DeltaTable) -> list[Committed]:
    """Return the files of the table, by path."""
    import pyarrow as pa

    by = table.metadata().partition_columns
    rows = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return sorted((_committed(row, by) for row in rows), key=lambda each: each.path)


def _committed(row: dict[str, object], by: Sequence[str]) -> Committed:
    octets, rows = row["size_bytes"], row.get("num_records")
    assert isinstance(octets, int)
    values = {name: row[f"partition.{name}"] for name in by}
    return Committed(
        unquote(str(row["path"])),
        octets,
        rows if isinstance(rows, int) else None,
        {name: None if value is None else str(value) for name, value in values.items()},
    )


def places(where: str, files: Sequence[Committed]) -> list[str]:
    """Return the paths of files of a table, or their URIs where it is not on this machine."""
    folder = folder_of(where)
    if folder is None:
        return [f"{where.rstrip('/')}/{each.path}" for each in files]
    return [str(folder.absolute() / each.path) for each in files]


def last_batch(where: str, query: str) -> int:
    """Return the number of a query's last micro-batch in the table; -1 if there is none."""
    table = opened(where)
    return -1 if table is None else batch_in(table, query)


def batch_in(table: DeltaTable, query: str) -> int:
    return _number(table, query)


def _number(table: DeltaTable, name: str) -> int:
    found = table.transaction_version(name)
    return -1 if found is None else found


def position_in(table: DeltaTable, partition: Partition, incarnation: str) -> int | None:
    """Return the offset behind the last message of a partition that is in the table; None if the log has none."""
    return table.transaction_version(position_id(partition, incarnation))


def position_id(partition: Partition, incarnation: str) -> str:
    """Return the name under which the log has the position in a partition; Delta keeps a number for each name."""
    source, number = partition
    return f"leveret {incarnation} {number} {source}"


def partition_of(name: str) -> tuple[Partition, str] | None:
    """Return the partition and the incarnation that such a name is of; None for a name of another kind."""
    parts = name.split(" ", 3)
    if len(parts) != 4 or parts[0] != "leveret" or not parts[2].isdecimal():
        return None
    _, incarnation, number, source = parts
    return (source, int(number)), incarnation


def columns_of(table: DeltaTable) -> pa.Schema:
    import pyarrow as pa

    return pa.schema(table.schema().to_arrow())


def is_there(where: str, query: str, batch: int) -> bool:
    """Return whether a batch of a query is in the table."""
    return last_batch(where, query) >= batch


# Writing.


def prepared(
    where: str, by: Sequence[str], columns: pa.Schema, widens: bool = False, description: str | None = None
) -> DeltaTable:
    """Return the table, made with a description if need be; one that `widens` gets columns that it lacks. Raises
    PipelineError if an existing one has other columns or partitions.
    """
    from deltalake import DeltaTable

    table = opened(where)
    if table is None:
        if (folder := folder_of(where)) is not None:
            have_folder(folder)
        made = DeltaTable.create(
            where, columns, mode="ignore", partition_by=list(by) or None, description=description
        )
        table = opened(where) or made
    if widens:
        return widened(table, where, by, columns)
    require_alike(table, where, by, columns)
    return table


def widened(table: DeltaTable, where: str, by: Sequence[str], columns: pa.Schema) -> DeltaTable:
    """Return the table, with columns, and fields of structs, that it lacks, in a commit of their own. Raises BadOption
    if it has some of another type, or other partitions.
    """
    from deltalake import Schema
    from deltalake.exceptions import DeltaError

    from leveret.pipeline.decoding.column_types import Conflict, merged

    for _ in range(WIDENED_MAX):
        require_partitions(table, where, by)
        known = columns_of(table)
        try:
            both = merged(known, columns)
        except Conflict as conflict:
            raise BadOption(f"{where}: {conflict}") from None
        theirs, ours = _types(known), _types(both)
        lacking = [
            field for field in Schema.from_arrow(both).fields if theirs.get(field.name) != ours[field.name]
        ]
        if not lacking:
            return table
        try:
            table.alter.add_columns(lacking)
        except (DeltaError, OSError) as error:  # perhaps another run was quicker
            trouble = str(error)
        else:
            sync_log(where)
        table = found(where)
    raise PipelineError(f"{where} does not get the columns that it lacks: {trouble}")


def require_partitions(table: DeltaTable, where: str, by: Sequence[str]) -> None:
    """Check that a table is partitioned by these columns. Raises BadOption."""
    known = table.metadata().partition_columns
    if known != list(by):
        raise BadOption(
            f"{where} is partitioned by {','.join(known) or 'none'}, not by {','.join(by) or 'none'}:"
            " say so with --partition-by, or name another folder"
        )


def require_alike(table: DeltaTable, where: str, by: Sequence[str], columns: pa.Schema) -> None:
    """Check that rows with these columns fit the table. Raises BadOption."""
    require_partitions(table, where, by)
    ours, theirs = _types(columns), _types(table.schema().to_arrow())
    different = [name for name in {**theirs, **ours} if ours.get(name) != theirs.get(name)]
    if different:
        value = ", ".join(
            f"{name} ({theirs.get(name, 'missing')}, not {ours.get(name, 'missing')})" for name in different
        )
        raise BadOption(f"{where} has other columns than these messages would have: {value}")


def _types(columns: object) -> dict[str, str]:
    """Return the types of columns as Delta names them, whether or not they may be null."""
    from deltalake import Schema

    fields = json.loads(Schema.from_arrow(columns).to_json())["fields"]  # type: ignore[arg-type]
    return {field["name"]: json.dumps(_plain(field["type"])) for field in fields}


def _plain(kind: object) -> object:
    if not isinstance(kind, dict):
        return kind
    if kind.get("type") == "struct":
        return {field["name"]: _plain(field["type"]) for field in kind["fields"]}
    return {name: _plain(kind[name]) for name in ("keyType", "valueType", "elementType") if name in kind}


@attrs.frozen
class SideChange:
    """A change of the table of rows that cannot be decoded, which a commit tells of, and which is made after it."""

    where: str  # that table; empty if it is the one beside this
    added: Sequence[DataFile] = ()
    removed: Sequence[str] = ()  # paths of files
    previous: int = 0  # the number of the change before it of the same table


@attrs.frozen
class CommittedBatch:
    """A micro-batch of a query, and the offsets that it reads: of each partition, given by its name in the log."""

    query: str
    number: int
    reads: Mapping[str, Interval] = {}
    change: SideChange | None = None
    change_number: int = 0

    def numbered(self, number: Callable[[str], int]) -> CommittedBatch:
        """Return it with the next number of a change, if it has one. `number` returns that of a transaction, or -1."""
        if self.change is None:
            return self
        change = attrs.evolve(self.change, previous=max(0, number(changes_id(self.change.where))))
        return attrs.evolve(self, change=change, change_number=max(0, number(CHANGES)) + 1)

    @property
    def noted(self) -> dict[str, int]:
        """The numbers of transactions that its commit has, by name."""
        found = {self.query: self.number, **{name: until for name, (_, until) in self.reads.items()}}
        if self.change is not None:
            found |= {CHANGES: self.change_number, changes_id(self.change.where): self.change_number}
        return found

    @property
    def more(self) -> dict[str, str]:
        """The further facts of its commit: the change, as JSON."""
        return {} if self.change is None else {CHANGE: json.dumps(attrs.asdict(self.change))}


def side_change(text: str) -> SideChange:
    """Return a change that a commit tells of, as JSON."""
    from leveret.pipeline.jobs.data_files import DataFile

    content = json.loads(text)
    added = [DataFile(**each) for each in content["added"]]
    return SideChange(content["where"], added, content["removed"], content["previous"])


def changes_id(where: str) -> str:
    """Return the name of the transaction whose number is that of the newest change of one table."""
    return f"{CHANGES_OF}{where}"


def forgotten(where: str, number: int, newest: int) -> PipelineError:
    """Return the error that a table's log does not have a change any more."""
    return PipelineError(
        f"{where}: its log does not tell any more which rows could not be decoded in change {number} of {newest}"
    )


def append(
    where: str,
    by: Sequence[str],
    columns: pa.Schema,
    files: Sequence[DataFile],
    batch: CommittedBatch,
    widens: bool = False,
) -> bool:
    """Add files to the table, and note the number of their batch and how far it comes, in one commit.

    Returns False if the batch is in the table already: then its files are not. Raises PipelineError, also if other runs
    have added some of its messages.
    """
    table = prepared(where, by, columns, widens)
    return append_to(table, partial(_number, table), where, by, columns, files, batch)


def append_to(
    table: DeltaTable,
    number: Callable[[str], int],
    where: str,
    by: Sequence[str],
    columns: pa.Schema,
    files: Sequence[DataFile],
    batch: CommittedBatch,
) -> bool:
    """Add files to a table that is open, as `append` does; `number` returns that of a transaction in it, or -1."""
    from deltalake import CommitProperties, Schema, Transaction
    from deltalake.exceptions import CommitFailedError, DeltaError
    from deltalake.transaction import AddAction, RemoveAction

    if number(batch.query) >= batch.number:
        return False
    require_new(number, where, batch)
    batch = batch.numbered(number)
    actions: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.octets, dict(file.values), file.written, True, file.stats) for file in files
    ]
    noted = [Transaction(*each) for each in batch.noted.items()]
    value = CommitProperties(custom_metadata=batch.more or None, app_transactions=noted)
    try:
        table.create_write_transaction(
            actions, "append", Schema.from_arrow(columns), list(by) or None, commit_properties=value
        )
    except CommitFailedError as error:
        if is_there(where, batch.query, batch.number):  # another driver with this checkpoint was quicker
            return False
        require_new(partial(_number, found(where)), where, batch)
        raise PipelineError(f"{where}: the commit of batch {batch.number} failed: {error}") from None
    except (DeltaError, OSError) as error:
        raise PipelineError(f"{where}: the commit of batch {batch.number} failed: {error}") from None
    sync_log(where)
    return True


def require_new(number: Callable[[str], int], where: str, batch: CommittedBatch) -> None:
    """Refuse a batch of messages that are in the table. `number` returns that of a transaction, or -1. Raises
    PipelineError."""
    for name, (first, _) in batch.reads.items():
        at = number(name)
        if at > first:
            found = partition_of(name)
            assert found is not None
            (source, partition), _ = found
            raise PipelineError(
                f"{where} has the offsets up to {at - 1} of partition {partition} of '{source}' already, and batch"
                f" {batch.number} begins at {first}: another run has added them. The next one goes on"
                " where the table ends"
            )


def sync_log(where: str, version: int | None = None) -> None:
    """Have the newest entry of the log, and its checkpoint, on disk, where they are on this machine.

    The newest are looked for among all, unless `version` says which they are.
    """
    folder = folder_of(where)
    if folder is None:
        return
    log = folder / LOG
    newest: list[Path | None]
    if version is None:
        newest = [max(log.glob(kind), default=None) for kind in ("*.json", "*.checkpoint*.parquet")]
    else:
        newest = [log / f"{version:020}.{kind}" for kind in ("json", "checkpoint.parquet")]
    for file in (*newest, log / LAST_CHECKPOINT):
        if file is not None and file.exists():
            with file.open("rb") as opened_file:
                sync_file(opened_file.fileno())
    sync_folder(log)
    sync_folder(folder)

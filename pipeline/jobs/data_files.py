"""Write rows as data files of a table: Parquet, a file for each value of the columns that it is partitioned by.

    batches ── split by day, hour, stream, routing key or a header
            ── row groups ──> TABLE/day=2026-11-22/batch-7-3f2a.parquet

A file has a name of its own and counts once the table's log names it (`leveret.pipeline.jobs.delta`). So a task that
dies, or a second attempt at it, leaves files that no reader of the table sees; `leveret pipeline clean` removes them.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from secrets import token_hex
from typing import IO, TYPE_CHECKING, Final, TypeAlias
from urllib.parse import urlsplit

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.durable.store.syncing import have_folder, sync_file, sync_folder
from leveret.pipeline.arrow import Batch
from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs.delta import folder_of

if TYPE_CHECKING:
    from pyarrow import fs, parquet

GROUP_ROWS: Final = 1 << 18  # rows of a row group, at most
GROUP_OCTETS: Final = 32 << 20  # bytes of a row group, about
FILE_OCTETS: Final = 256 << 20  # bytes of a file, about
BUFFERED_MAX: Final = 128 << 20  # bytes that wait for their row groups
OPEN_MAX: Final = 200  # files at a time
UNIQUE: Final = ("body", "offset")  # columns for which a dictionary is a waste of time
BOUNDED: Final = ("partition", "offset", "timestamp")  # columns whose least and greatest value the log has
US: Final = 1_000_000  # microseconds in a second
NULL: Final = "__HIVE_DEFAULT_PARTITION__"
ESCAPED: Final = re.compile(r"""[\x00-\x1f\x7f"#%'*/:=?\\{\[\]^]""")  # what Spark escapes in names of folders
NAME_MAX: Final = 255  # bytes, in the file systems of Linux
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Value: TypeAlias = "tuple[str | None, ...]"


@attrs.frozen
class DataFile:
    """One file of a table, as the table's log names it."""

    path: str  # in the table's folder
    values: Mapping[str, str | None]  # of the columns that the table is partitioned by
    octets: int
    rows: int
    written: int  # ms since 1970
    stats: str  # JSON: numbers of rows, least and greatest values


def day_of(us: int) -> str:
    """Return the day of a time in microseconds since 1970, in UTC."""
    return f"{EPOCH + timedelta(days=us // (86_400 * US)):%Y-%m-%d}"


def hour_of(us: int) -> str:
    return f"{EPOCH + timedelta(hours=us // (3600 * US)):%Y-%m-%d-%H}"


# The partition columns that are made from `timestamp`: their types, the length of time that shares a value, its text.
MADE: Final[Mapping[str, tuple[pa.DataType, int, Callable[[int], str]]]] = {
    "day": (pa.date32(), 86_400 * US, day_of),
    "hour": (
        pa.string(),
        3600 * US,
        hour_of,
    ),  # a text, as a time has characters that folder names would escape
}


HEADER: Final = "header_"  # what the name of a partition column begins with that has the values of a header


def is_made(name: str) -> bool:
    """Return whether a partition column is made from another one."""
    return name in MADE or name.startswith(HEADER)


def column_for(name: str) -> str:
    """Return the column of the messages that has, or gives, the values of a partition column."""
    if name in MADE:
        return "timestamp"
    return "headers" if name.startswith(HEADER) else name


def table_schema(columns: pa.Schema, by: Sequence[str]) -> pa.Schema:
    """Return the columns of a table of such rows: those, and the ones that are made for its partitions."""
    made = [name for name in by if is_made(name)]
    return pa.schema(
        [*columns, *(pa.field(name, MADE[name][0] if name in MADE else pa.string()) for name in made)]
    )


@attrs.frozen
class Layout:
    """The place of a table's data files, and their columns."""

    where: str  # a folder, or a URI that pyarrow knows
    by: tuple[str, ...]
    columns: pa.Schema  # of the rows that are written
    file_octets: int = FILE_OCTETS  # from which on a file is followed by another
    is_whole: bool = False  # files also have the columns that the table is partitioned by, with their bounds
    system: fs.FileSystem | None = None  # of a URI; None: what pyarrow finds for it, with its credentials

    @property
    def in_files(self) -> list[str]:
        return [name for name in self.columns.names if self.is_whole or name not in self.by]

    @property
    def made(self) -> list[str]:
        """The columns that only the table has: those that are made for its partitions."""
        return [] if self.is_whole else [name for name in self.by if is_made(name)]

    @property
    def in_table(self) -> pa.Schema:
        """The columns of the table."""
        return table_schema(self.columns, self.made)

    @property
    def bounded(self) -> list[str]:
        """The columns whose least and greatest values files have."""
        names = (*BOUNDED, *self.by) if self.is_whole else BOUNDED
        return [name for name in self.in_files if name in names]

    def write(self, batches: Iterable[Batch], name: str) -> list[DataFile]:
        """Write rows; `name` begins the names of their files. Files that are not finished are removed."""
        with self.writing(name) as writer:
            for batch in batches:
                writer.add(batch)
            return writer.close()

    @contextmanager
    def writing(self, name: str) -> Iterator[Writer]:
        """Yield what writes rows, and is to be closed. Files that are not finished are removed."""
        writer = Writer(self, name)
        try:
            yield writer
        except BaseException as error:
            writer.abort()
            if isinstance(error, OSError) and error.filename is None:  # as of a full disk, which has no name
                raise PipelineError(f"{self.where} cannot be written: {error.strerror or error}") from error
            raise


class Writer:
    """Writes the rows of one task."""

    def __init__(self, layout: Layout, name: str) -> None:
        self._layout = layout
        self._name = name
        self._parts: dict[Value, Part] = {}
        self._octets = 0  # that wait
        self._done: list[DataFile] = []

    def add(self, batch: Batch) -> None:
        for value, rows in split(batch, self._layout.by):
            part = self._part(value)
            before = part.octets
            part.add(rows)
            self._octets += part.octets - before
            if part.written >= self._layout.file_octets:
                self._finish(value)
        while self._octets > BUFFERED_MAX:
            largest = max(self._parts.values(), key=lambda part: part.octets)
            self._octets -= largest.octets
            largest.flush()

    def close(self) -> list[DataFile]:
        for value in list(self._parts):
            self._finish(value)
        return self._done

    def abort(self) -> None:
        """Remove what is not finished; what is finished no log names."""
        for part in self._parts.values():
            part.abort()

    def _part(self, value: Value) -> Part:
        part = self._parts.get(value)
        if part is None:
            if len(self._parts) >= OPEN_MAX:
                self._finish(next(iter(self._parts)))
            part = self._parts[value] = Part(self._layout, value, self._name)
        return part

    def _finish(self, value: Value) -> None:
        part = self._parts[value]
        self._octets -= part.octets
        self._done.append(part.close())
        del self._parts[value]


class Part:
    """One file that is being written: the rows that share a value of the partition columns."""

    def __init__(self, layout: Layout, value: Value, name: str) -> None:
        self.octets = 0  # that wait
        self.written = 0  # bytes that do not wait any more
        self._layout = layout
        self._values = dict(zip(layout.by, value, strict=True))
        self.path = "/".join([*map(value_folder, self._values.items()), f"{name}-{token_hex(8)}.parquet"])
        self._waiting: list[pa.RecordBatch] = []
        self._waiting_rows = 0
        self._rows = 0
        self._bounds: dict[str, tuple[int, int]] = {}
        self._sink: Sink | None = None
        self._writer: parquet.ParquetWriter | None = None

    def add(self, rows: pa.RecordBatch) -> None:
        if self._waiting_rows + rows.num_rows > GROUP_ROWS or self.octets + rows.nbytes > GROUP_OCTETS:
            self.flush()
        self._waiting.append(rows)
        self._waiting_rows += rows.num_rows
        self.octets += rows.nbytes

    def flush(self) -> None:
        """Write what waits as a row group."""
        from pyarrow import parquet  # which processes that plan for Spark do not need

        if not self._waiting:
            return
        group = pa.Table.from_batches(self._waiting).select(self._layout.in_files)
        self._waiting, self._waiting_rows, self.octets = [], 0, 0
        if self._writer is None:
            self._sink = Sink(self._layout.where, self.path, self._layout.system)
            self._writer = parquet.ParquetWriter(
                self._sink.file,
                group.schema,
                use_dictionary=[name for name in leaves(group.schema) if name not in UNIQUE] or False,
                write_statistics=self._layout.bounded,
            )
        self._writer.write_table(group, row_group_size=GROUP_ROWS)
        assert self._sink is not None
        self.written = self._sink.file.tell()
        self._rows += group.num_rows
        for name in BOUNDED:
            if name in group.schema.names:
                self._bound(name, group[name])

    def _bound(self, name: str, column: pa.ChunkedArray) -> None:
        found = pc.min_max(column.cast(pa.int64())).as_py()
        if found["min"] is not None:
            low, high = self._bounds.get(name, (found["min"], found["max"]))
            self._bounds[name] = min(low, found["min"]), max(high, found["max"])

    def close(self) -> DataFile:
        self.flush()
        assert self._writer is not None
        assert self._sink is not None
        self._writer.close()
        octets = self._sink.close()
        written = time.time_ns() // 1_000_000
        return DataFile(self.path, self._values, octets, self._rows, written, self._stats())

    def _stats(self) -> str:
        least, greatest = {}, {}
        for name, (low, high) in self._bounds.items():
            is_time = name == "timestamp"
            least[name] = time_of(low // 1000) if is_time else low
            greatest[name] = time_of(-(-high // 1000)) if is_time else high
        return json.dumps({"numRecords": self._rows, "minValues": least, "maxValues": greatest})

    def abort(self) -> None:
        if self._sink is not None:
            self._sink.abort()


def time_of(ms: int) -> str:
    """Return a time as Delta's statistics have it: in milliseconds, so bounds are rounded away from each other."""
    return (
        f"{(EPOCH + timedelta(milliseconds=ms)).isoformat(timespec='milliseconds').removesuffix('+00:00')}Z"
    )


def leaves(columns: Iterable[pa.Field], before: str = "") -> Iterator[str]:
    """Yield the names of columns as Parquet has them: the fields of nested ones with dots."""
    for field in columns:
        name, kind = before + field.name, field.type
        if pa.types.is_struct(kind):
            yield from leaves(kind, name + ".")
        elif pa.types.is_map(kind):
            yield from (f"{name}.key_value.{part}" for part in ("key", "value"))
        else:
            yield name


def value_folder(pair: tuple[str, str | None]) -> str:
    """Return the name of the folder for a value, as Hive and Spark have them: some readers take the value from there.

    Raises PipelineError for a value that is too long for a name.
    """
    name, value = pair
    text = NULL if value is None else ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value)
    folder = f"{name}={text}"
    if len(folder.encode()) > NAME_MAX:
        raise PipelineError(
            f"a {name} of {len(value or '')} characters is too long for the name of a folder, {text[:50]!r}...:"
            " such an archive cannot be partitioned by it"
        )
    return folder


# Rows by value.


def split(batch: pa.RecordBatch, by: Sequence[str]) -> Iterator[tuple[Value, pa.RecordBatch]]:
    """Yield the rows of each value of the partition columns, in their order."""
    if not by or not batch.num_rows:
        yield (None,) * len(by), batch
        return
    keys = pa.table({name: _key(batch, name) for name in by})
    found = keys.group_by(list(by), use_threads=False).aggregate([]).to_pylist()
    if len(found) == 1:
        yield _value(found[0], by), batch
        return
    for each in found:
        yield _value(each, by), batch.filter(_mask(keys, each))


def _key(batch: pa.RecordBatch, name: str) -> pa.Array:
    """Return a column that is equal where the value of a partition column is."""
    if name.startswith(HEADER):
        return pc.map_lookup(batch.column("headers"), name.removeprefix(HEADER), "first")
    if name not in MADE:
        return batch.column(name)
    times = batch.column("timestamp").cast(pa.int64())
    length = pa.scalar(MADE[name][1], pa.int64())
    return pc.multiply(pc.divide(times, length), length)


def _mask(keys: pa.Table, each: Mapping[str, object]) -> pa.Array:
    masks = [
        pc.is_null(keys[name]) if value is None else pc.fill_null(pc.equal(keys[name], value), False)
        for name, value in each.items()
    ]
    mask = masks[0]
    for more in masks[1:]:
        mask = pc.and_(mask, more)
    return mask.combine_chunks()


def _value(each: Mapping[str, object], by: Sequence[str]) -> Value:
    return tuple(_text(name, each[name]) for name in by)


def _text(name: str, value: object) -> str | None:
    if name not in MADE:
        return None if value in (None, "") else str(value)  # an empty text is null in Delta's partitions
    return None if value is None else MADE[name][2](int(str(value)))


# Files.


def object_store(where: str) -> fs.FileSystem:
    """Return the file system of a URI, with the credentials that pyarrow finds for it. Raises PipelineError."""
    from pyarrow import fs

    try:
        system, _ = fs.FileSystem.from_uri(f"{where.rstrip('/')}/".replace("s3a://", "s3://", 1))
    except (OSError, ValueError) as error:
        raise PipelineError(f"{where} is at no place that can be written to: {error}") from None
    return system


def key_of(where: str) -> str:
    """Return a URI as the file system of its kind names the place: without the scheme."""
    parts = urlsplit(where.rstrip("/"))
    return f"{parts.netloc}{parts.path}"


class Sink:
    """A new file of a table. It is on disk when it is closed: the broker may drop the messages soon after."""

    def __init__(self, where: str, path: str, system: fs.FileSystem | None = None) -> None:
        folder = folder_of(where)
        self._local = None if folder is None else folder / path
        self._elsewhere: tuple[fs.FileSystem, str] | None = None
        if self._local is not None:
            have_folder(self._local.parent)
            self.file: IO[bytes] = self._local.open("xb")
        else:
            if system is None:
                system = object_store(where)
            self._elsewhere = system, f"{key_of(where)}/{path}"
            self.file = system.open_output_stream(self._elsewhere[1])

    def close(self) -> int:
        """Return the file's size in bytes."""
        octets = self.file.tell()
        if self._local is not None:
            self.file.flush()
            sync_file(self.file.fileno())
        self.file.close()
        if self._local is not None:
            sync_folder(self._local.parent)
        return octets

    def abort(self) -> None:
        with suppress(OSError):
            self.file.close()
            if self._local is not None:
                self._local.unlink()
            elif self._elsewhere is not None:
                system, path = self._elsewhere
                system.delete_file(path)

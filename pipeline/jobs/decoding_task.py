"""Decode bodies in the tasks of Spark: what a task is told, what it tells the driver, and how that becomes one commit.

    driver ── how, and the columns of the table, as text ──> tasks ── data files of both tables, and their columns ──>
    driver ── the files of all tasks, if their columns agree ──> one commit that tells of both tables

Tasks know nothing of each other: with a registry, two may give a new column different types. The first decides; what
others have read is decoded once more by the driver, which knows the column then, and makes those rows undecodable or
has them fit. Executors need no deltalake.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs
import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.decoding.column_types import Conflict, merged
from leveret.pipeline.decoding.decode_options import DecodeOptions
from leveret.pipeline.decoding.registry import RegistryEndpoint
from leveret.pipeline.jobs.archive_local import file_name
from leveret.pipeline.jobs.data_files import DataFile, Layout
from leveret.pipeline.jobs.decoding import DecodedFiles, Decoding
from leveret.pipeline.jobs.delta_paired_table import DeltaPairedTable
from leveret.pipeline.offsets import Range
from leveret.pipeline.reader import rows_of

if TYPE_CHECKING:
    from leveret.pipeline.options import Options


@attrs.frozen
class DecodingTask:
    """The way in which tasks decode the bodies for one Delta table."""

    layout: Layout  # with the columns of messages that the table has
    read: pa.Schema  # the columns that are read
    known: pa.Schema  # the columns of the table
    decode: DecodeOptions

    def as_text(self) -> str:
        """Return it as JSON, but for the place and the partitions."""
        columns = {name: _text_of(getattr(self, name)) for name in ("read", "known")}
        return json.dumps(
            {"decode": attrs.asdict(self.decode), "kept": _text_of(self.layout.columns), **columns}
        )

    def decoding(self) -> Decoding:
        table = DeltaTableOfTask(self.layout.where, self.known)
        return Decoding(table, self.layout, self.read, self.decode)

    def write(self, options: Options, wanted: Range) -> DecodedFiles:
        """Write the messages of a range as files of both tables. Raises PipelineError."""
        decoding = self.decoding()
        return decoding.write(rows_of(options, decoding.read, wanted), file_name(wanted))


def task_in(text: str, where: str, by: tuple[str, ...], file_octets: int) -> DecodingTask:
    """Return what `as_text` has written."""
    content = json.loads(text)
    registry = content["decode"].pop("registry")
    endpoint = None if registry is None else RegistryEndpoint(**registry)
    layout = Layout(where, by, _columns_in(content["kept"]), file_octets)
    decode = DecodeOptions(**content["decode"], registry=endpoint)
    return DecodingTask(layout, _columns_in(content["read"]), _columns_in(content["known"]), decode)


def _text_of(columns: pa.Schema) -> str:
    return b64encode(columns.serialize().to_pybytes()).decode()


def _columns_in(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(b64decode(text)))


@attrs.frozen
class DeltaTableOfTask(DeltaPairedTable):
    """A Delta table of which a task knows the columns, and cannot ask."""

    known: pa.Schema

    def columns(self) -> pa.Schema:
        return self.known


def told(written: DecodedFiles) -> dict[str, object]:
    """Return what a task tells of its files, for JSON."""
    return {
        "files": [attrs.asdict(each) for each in written.files],
        "undecoded": [attrs.asdict(each) for each in written.undecoded],
        "columns": _text_of(written.columns),
    }


def heard(content: Mapping[str, Any]) -> DecodedFiles:
    """Return what `told` has told."""
    files, undecoded = ([DataFile(**each) for each in content[name]] for name in ("files", "undecoded"))
    return DecodedFiles(files, undecoded, _columns_in(content["columns"]))


def together(
    tasks: Sequence[tuple[Range, DecodedFiles]],
    known: pa.Schema,
    again: Callable[[pa.Schema, Range], DecodedFiles],
) -> DecodedFiles:
    """Return the files of some tasks as those of one. `known` has the columns of the table, and `again` decodes a range
    once more for a table with some columns. Raises PipelineError.
    """
    columns = known
    for _, written in tasks:
        try:
            columns = merged(columns, written.columns)
        except Conflict:
            continue  # its range is decoded again
    types = {field.name: field.type for field in columns}
    found: list[DecodedFiles] = []
    for wanted, written in tasks:
        is_alike = all(types.get(field.name) == field.type for field in written.columns)
        found.append(written if is_alike else again(columns, wanted))
        columns = merged(columns, found[-1].columns)
    return DecodedFiles(list(_files(found, "files")), list(_files(found, "undecoded")), columns)


def _files(found: Sequence[DecodedFiles], name: str) -> Iterator[DataFile]:
    for each in found:
        yield from getattr(each, name)

"""Archives with decoded columns: a micro-batch becomes files of two tables, and one commit that tells of both."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.arrow import Batch
from leveret.pipeline.decoding.column_types import merged
from leveret.pipeline.decoding.decode_options import JSON, DecodeOptions
from leveret.pipeline.decoding.row_decoder import RowDecoder
from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import ICEBERG
from leveret.pipeline.jobs.archive_columns import COLUMNS, TEXTS, columns
from leveret.pipeline.jobs.data_files import FILE_OCTETS, DataFile, Layout, Writer
from leveret.pipeline.jobs.paired_table import paired_table
from leveret.pipeline.jobs.undecoded import UndecodedTable, require_beside, undecoded_tables

if TYPE_CHECKING:
    from leveret.pipeline.jobs.archive import Target
    from leveret.pipeline.jobs.archive_log import ArchiveLog
    from leveret.pipeline.jobs.paired_table import PairedTable
    from leveret.pipeline.options import Options

MESSAGE: Final = {**COLUMNS, "annotations": TEXTS}  # columns that are of messages, never of bodies
BODIES: Final = ("body", "raw_body", "body_json")  # what `keeps_body` is about
WHERE: Final = ("stream", "partition", "offset")  # which message a row is, for rows that cannot be decoded
PORTION_OCTETS: Final = 64 << 20  # of files that are decoded again in one commit, unless one is larger
ATTEMPTS: Final = 20  # to commit what was decoded again


@attrs.frozen
class DecodedFiles:
    """The files of one micro-batch."""

    files: list[DataFile]
    undecoded: list[DataFile]
    columns: pa.Schema  # which the table needs for them

    @property
    def rows(self) -> int:
        return sum(file.rows for file in (*self.files, *self.undecoded))

    @property
    def undecoded_rows(self) -> int:
        return sum(file.rows for file in self.undecoded)


class Decoding:
    """The decoding of one archive, and the writing of its two tables. Not to be shared by threads."""

    def __init__(self, archive: PairedTable, layout: Layout, read: pa.Schema, decode: DecodeOptions) -> None:
        """Make a decoding of a table. `layout` has the columns of messages that the table has, and `read` those that
        are read, which rows keep that cannot be decoded. Raises PipelineError.
        """
        where = decode.undecoded or archive.beside
        require_beside(archive.where, where)
        self.read = read
        self.undecoded = UndecodedTable(archive, archive.other(where), read)
        self._archive = archive
        self._messages = layout
        taken = {*MESSAGE, *layout.made}
        known = decoded_columns(archive, taken)
        how = (decode.prefix, decode.format == JSON, archive.stored)
        self._decoder = RowDecoder(decode.schemas(), known, taken, *how)

    @property
    def layout(self) -> Layout:
        """The layout of the table, with the decoded columns that are known now."""
        return self._layout_of(self._decoder.columns)

    def _layout_of(self, decoded: pa.Schema) -> Layout:
        return attrs.evolve(self._located, columns=pa.schema([*self._messages.columns, *decoded]))

    @property
    def messages(self) -> Layout:
        """The layout of the table without its decoded columns."""
        return self._located

    @cached_property
    def _located(self) -> Layout:
        """The layout of messages, with the place of their files, which a table may have only once it is there."""
        return self._archive.located(self._messages)

    @cached_property
    def _aside(self) -> Layout:
        layout = Layout("", (), self.undecoded.columns, self._messages.file_octets)
        return self.undecoded.located(layout)

    @property
    def columns(self) -> pa.Schema:
        """The columns that the table needs by now."""
        columns = pa.schema([*self._messages.columns, *self._decoder.columns])
        return attrs.evolve(self._messages, columns=columns).in_table

    def known(self) -> pa.Schema:
        """Return the columns that the table has, and those of a schema that is known. Raises PipelineError."""
        return merged(self._archive.columns() or pa.schema([]), self.columns)

    def changes(self) -> int:
        """Return how many commits to the table have changes of another. Raises PipelineError."""
        return self._archive.changes() or 0

    def log(self) -> ArchiveLog:
        """Return the table's log, which adds columns that the table lacks."""
        return self._archive.log(self._messages.by, self.columns)

    def begin(self) -> None:
        """Have both tables be as the archive's log says, and the archive have the columns. Raises PipelineError."""
        self.undecoded.begin()
        self._archive.widen(self._messages.by, self.columns)

    def complete(self) -> None:
        """Do what the archive's log tells of tables of undecoded rows, and has not been done. Raises PipelineError."""
        undecoded_tables(self._archive)

    def write(self, batches: Iterable[Batch], name: str) -> DecodedFiles:
        """Write rows as files of both tables; `name` begins the names of files. Raises PipelineError."""
        files: list[DataFile] = []
        with ExitStack() as stack:
            aside = stack.enter_context(self._aside.writing(name))
            writer: Writer | None = None
            decoded: pa.Schema | None = None
            for batch in batches:
                found = self._decoder.decode(batch)
                if found.undecoded is not None:
                    aside.add(found.undecoded)
                if not found.rows.num_rows:
                    continue
                if writer is None or decoded != self._decoder.columns:
                    files += (
                        [] if writer is None else writer.close()
                    )  # a file has the same columns throughout
                    decoded = self._decoder.columns
                    writer = stack.enter_context(self._layout_of(decoded).writing(name))
                writer.add(found.rows)
            files += [] if writer is None else writer.close()
            return DecodedFiles(files, aside.close(), self.columns)

    def commit(self, log: ArchiveLog, written: DecodedFiles, batch: delta.CommittedBatch) -> bool:
        """Commit what was written, as `delta.append` does, to both tables. Raises PipelineError."""
        if written.undecoded:
            batch = attrs.evolve(batch, change=delta.SideChange(self.undecoded.shown, written.undecoded))
        log.widen(written.columns)
        is_new = log.append(written.files, batch)
        if batch.change is not None:
            self.undecoded.complete()
        return is_new


def decoded_columns(archive: PairedTable, taken: Collection[str]) -> pa.Schema:
    """Return the columns of a table that are of bodies: those that are none of the messages'."""
    return pa.schema([field for field in archive.columns() or () if field.name not in taken])


def decoding_of(target: Target, options: Options, decode: DecodeOptions) -> Decoding:
    """Return the decoding of an archive that is read with some options. Raises PipelineError."""
    from leveret.pipeline.jobs.archive import require_partitions

    require_partitions(target.by)
    archive = paired_table(target)
    there = archive.columns()
    known = None if there is None else there.names
    kept = columns(options, target.by, known)
    whole = columns(attrs.evolve(options, chosen=None), target.by)
    needed = (*WHERE, *BODIES, *kept.names)
    read = pa.schema([field for field in whole if options.chosen is None or field.name in needed])
    if not decode.keeps_body:
        kept = pa.schema([field for field in kept if field.name not in BODIES])
    size = FILE_OCTETS if target.file_octets is None else target.file_octets
    layout = Layout(target.where, target.by, kept, size, is_whole=target.format == ICEBERG)
    return Decoding(archive, layout, read, decode)


# Once more.


@attrs.frozen
class DecodedAgain:
    """The rows that were decoded now, and those that could not be again."""

    moved: int
    left: int


def decode_again(target: Target, decode: DecodeOptions) -> DecodedAgain:
    """Decode the rows again that could not be, and move those that can be now to the table, which is partitioned as it
    is. Raises PipelineError.

    Archives may go on meanwhile. Rows that are left get the reason of now only beside others that are moved.
    """
    archive = paired_table(target)
    by = archive.partitions()
    place = decode.undecoded or archive.beside
    known = archive.other(place).columns()
    if known is None:
        raise PipelineError(f"there is no table {place} with rows that could not be decoded")
    kept = pa.schema([field for field in archive.columns() or () if field.name in MESSAGE])
    whole = pa.schema(list(MESSAGE.items()))
    read = pa.schema([field for field in whole if field.name in (*known.names, *kept.names)])
    layout = Layout(target.where, by, kept, is_whole=target.format == ICEBERG)
    decoding = Decoding(archive, layout, read, decode)
    decoding.begin()
    moved = left = 0
    for portion in portions(decoding.undecoded.files()):
        done = _again(decoding, portion)
        moved, left = moved + done.moved, left + done.left
    return DecodedAgain(moved, left)


def portions(files: Sequence[delta.Committed]) -> list[list[delta.Committed]]:
    """Return files in groups that are done in a commit each."""
    found: list[list[delta.Committed]] = []
    octets = 0
    for each in files:
        if not found or octets + each.octets > PORTION_OCTETS:
            found.append([])
            octets = 0
        found[-1].append(each)
        octets += each.octets
    return found


def _again(decoding: Decoding, files: Sequence[delta.Committed]) -> DecodedAgain:
    """Decode the rows of some files again. Raises PipelineError."""
    undecoded, log = decoding.undecoded, decoding.log()
    paths = {each.path for each in files}
    written = decoding.write(undecoded.rows(files, decoding.read), "again")
    if not written.files:
        return DecodedAgain(
            0, written.undecoded_rows
        )  # what was written is in no table, and nothing has changed
    log.widen(written.columns)
    change = delta.SideChange(undecoded.shown, written.undecoded, sorted(paths))
    for _ in range(ATTEMPTS):
        # The number is that of the change after those which are made now: another one takes it first, or none.
        number = decoding.changes() + 1
        undecoded.complete()
        if not paths <= {each.path for each in undecoded.files()}:
            raise PipelineError(
                f"{undecoded.where} was changed by another run meanwhile; this one can be run again"
            )
        if log.append(written.files, delta.CommittedBatch(delta.CHANGES, number, change=change)):
            undecoded.complete()
            return DecodedAgain(written.rows - written.undecoded_rows, written.undecoded_rows)
    raise PipelineError(f"{undecoded.where} is changed all the time: nothing was moved")

"""Look after tables: which files count, whether each message is there once, and which files belong to no table."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.pipeline.client import Stream
from leveret.pipeline.errors import NoStream, PipelineError, Refused
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.checkpoints import QueryCheckpoint, position, query_id
from leveret.pipeline.jobs.lag import LeaseLag, Streams
from leveret.pipeline.offsets import Interval, Mark, Partition

if TYPE_CHECKING:
    from deltalake import DeltaTable

GATHERED_MAX: Final = 1 << 22  # offsets that are sorted at a time
SHOWN: Final = 5  # gaps that are named
COLUMNS: Final = ("stream", "partition", "offset")


# Which offsets are in the table.


class OffsetSet:
    """The offsets of one partition that are in a table, as intervals; one that is there twice is in two of them."""

    def __init__(self) -> None:
        self.rows = 0
        self._found: list[Interval] = []
        self._gathered: list[pa.Array] = []
        self._waiting = 0

    def add(self, offsets: pa.Array) -> None:
        self.rows += len(offsets)
        self._gathered.append(offsets)
        self._waiting += len(offsets)
        if self._waiting > GATHERED_MAX:
            self._sort()

    def _sort(self) -> None:
        if self._gathered:
            offsets = pa.concat_arrays(self._gathered)
            self._found += intervals(offsets.take(pc.array_sort_indices(offsets)))
            self._gathered, self._waiting = [], 0

    def swept(self) -> tuple[int, int, list[Interval], list[Interval]]:
        """Return the first offset and the one behind the last; the gaps between them; what is there more than once."""
        self._sort()
        gaps: list[Interval] = []
        repeats: list[Interval] = []
        found = sorted(self._found)
        first, at = found[0][0], found[0][0]
        for low, high in found:
            if low > at:
                gaps.append((at, low))
            elif low < at:
                repeats.append((low, min(at, high)))
            at = max(at, high)
        return first, at, gaps, joined(repeats)


def intervals(offsets: pa.Array) -> Iterator[Interval]:
    """Yield the intervals of consecutive offsets among sorted ones."""
    steps = pc.fill_null(pc.pairwise_diff(offsets), 0)
    begins = pc.indices_nonzero(pc.not_equal(steps, 1)).to_pylist()
    for begin, following in zip(begins, [*begins[1:], len(offsets)], strict=True):
        yield offsets[begin].as_py(), offsets[following - 1].as_py() + 1


def joined(found: Iterable[Interval]) -> list[Interval]:
    """Join intervals that touch."""
    whole: list[Interval] = []
    for low, high in sorted(found):
        if whole and low <= whole[-1][1]:
            whole[-1] = whole[-1][0], max(high, whole[-1][1])
        else:
            whole.append((low, high))
    return whole


def offsets_of(table: DeltaTable, where: str) -> dict[Partition, OffsetSet]:
    """Read which offsets of which partitions are in a table. Raises PipelineError."""
    found: dict[Partition, OffsetSet] = {}
    add_offsets(found, table, where)
    return found


def add_offsets(found: dict[Partition, OffsetSet], table: DeltaTable, where: str) -> None:
    """Add the offsets that are in a table, as in that of rows that could not be decoded. Raises PipelineError."""
    dataset = table.to_pyarrow_dataset()
    if missing := [name for name in COLUMNS if name not in dataset.schema.names]:
        raise PipelineError(f"{where} is no archive of messages: it has no column {', '.join(missing)}")
    try:
        for batch in dataset.to_batches(columns=list(COLUMNS)):
            for each, offsets in by_partition(batch):
                found.setdefault(each, OffsetSet()).add(offsets)
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(f"{where} cannot be read: {error}") from None


def by_partition(batch: pa.RecordBatch) -> Iterator[tuple[Partition, pa.Array]]:
    """Yield the offsets of each stream and partition."""
    if not batch.num_rows:
        return
    keys = pa.table([batch.column("stream"), batch.column("partition")], ["stream", "partition"])
    kinds = keys.group_by(["stream", "partition"], use_threads=False).aggregate([]).to_pylist()
    for each in kinds:
        offsets = batch.column("offset")
        if len(kinds) > 1:
            mask = pc.and_(
                pc.equal(batch.column("stream"), each["stream"]),
                pc.equal(batch.column("partition"), each["partition"]),
            )
            offsets = offsets.filter(mask)
        yield (str(each["stream"]), int(each["partition"])), offsets


# Whether that is right.


@attrs.frozen
class Checked:
    """The state of one partition in a table. None means unknown."""

    source: str
    partition: int
    rows: int
    first: int  # offset of the oldest row
    next: int  # the offset behind the newest row
    missing: int  # offsets between them that are not there
    repeated: int  # offsets that are there more than once
    position: int | None = None  # where the checkpoint is
    oldest: int | None = None  # offset of the oldest message that the broker has, or that is not settled
    end: int | None = None  # the offset behind its newest
    troubles: tuple[str, ...] = ()


def checked(
    found: Mapping[Partition, OffsetSet],
    marks: Mapping[Partition, Mark],
    broker: Mapping[Partition, Stream | str],
    settled: Mapping[Partition, LeaseLag],
) -> list[Checked]:
    """Compare what is in a table with a checkpoint and with the broker.

    `broker` has the streams that there are, or why there is none; `settled` the leases of queues.
    """
    return [
        _checked(each, found.get(each), marks.get(each), broker.get(each), settled.get(each))
        for each in sorted({*found, *(each for each, mark in marks.items() if mark.next)})
    ]


def _checked(
    each: Partition,
    found: OffsetSet | None,
    mark: Mark | None,
    stream: Stream | str | None,
    lease: LeaseLag | None,
) -> Checked:
    if found is None:
        assert mark is not None
        text = f"the checkpoint is at offset {mark.next}, and the table has nothing of it"
        return Checked(*each, 0, 0, 0, 0, 0, mark.next, troubles=(text,) if mark.start != mark.next else ())
    first, end, gaps, repeats = found.swept()
    troubles = [_gap(gap, stream) for gap in gaps[:SHOWN]]
    troubles += [f"... and {len(gaps) - SHOWN} more gaps"] if len(gaps) > SHOWN else []
    troubles += [
        f"offsets {low} to {high - 1} are there more than once (right only if the stream was deleted and made anew)"
        for low, high in repeats[:SHOWN]
    ]
    if mark is not None and mark.next > end:
        troubles.append(
            f"the checkpoint is at offset {mark.next}: offsets {end} to {mark.next - 1} are not there"
        )
    if lease is not None and lease.first > end:
        troubles.append(
            f"the queue's lease is settled up to {lease.first}: offsets {end} to {lease.first - 1} are gone"
        )
    if isinstance(stream, str):
        troubles.append(stream)
    state = lease if lease is not None else stream if isinstance(stream, Stream) else None
    return Checked(
        *each,
        found.rows,
        first,
        end,
        sum(high - low for low, high in gaps),
        sum(high - low for low, high in repeats),
        None if mark is None else mark.next,
        None if state is None else state.first,
        None if state is None else state.next,
        tuple(troubles),
    )


def _gap(gap: Interval, stream: Stream | str | None) -> str:
    low, high = gap
    text = f"offsets {low} to {high - 1} are missing"
    if not isinstance(stream, Stream):
        return text
    return f"{text}; the broker has {'them still' if stream.first <= low else 'lost them, too'}"


def marks_in_table(where: str, checkpoint: Path) -> dict[Partition, Mark]:
    """Return how far a table should be: where the last micro-batch ends that is in it. Empty without a checkpoint."""
    query = query_id(checkpoint) if checkpoint.is_dir() else None
    if query is None:
        return {}
    batch = max(position(checkpoint).done, delta.last_batch(where, query))
    return QueryCheckpoint(checkpoint).planned(batch) if batch >= 0 else {}


def streams_of(sources: Iterable[str], client: Streams) -> dict[Partition, Stream | str]:
    """Return the present state of streams; of those that are queues nothing, and of others why there is none."""
    found: dict[Partition, Stream | str] = {}
    for source in sorted(set(sources)):
        try:
            for number, stream in enumerate(client.partitions(source)):
                found[source, number] = stream
        except NoStream:
            continue
        except Refused as refused:
            found[source, 0] = str(refused)
    return found


def leases_of(marks: Mapping[Partition, Mark], leases: Sequence[LeaseLag]) -> dict[Partition, LeaseLag]:
    """Return the leases that a query's positions are of."""
    known = {lease.incarnation: lease for lease in leases}
    return {each: known[mark.incarnation] for each, mark in marks.items() if mark.incarnation in known}


def damaged(where: str, files: Sequence[delta.Committed]) -> list[str]:
    """Return what is wrong with the files of a table, if it is on this machine."""
    folder = delta.folder_of(where)
    if folder is None:
        return []
    found = []
    for each in files:
        file = folder / each.path
        if not file.is_file():
            found.append(f"{each.path} is in the table's log, but not in its folder")
        elif file.stat().st_size != each.octets:
            found.append(f"{each.path} has {file.stat().st_size} bytes, and should have {each.octets}")
    return found


# Fewer and larger files.


@attrs.frozen
class Optimized:
    """The numbers and bytes of files that were joined, and of those that they became."""

    read: int
    octets_read: int
    written: int
    octets_written: int


def optimized(where: str, file_octets: int) -> Optimized:
    """Join files that are smaller than some bytes, in one commit. Raises PipelineError.

    It is a rearrangement to Delta: archives that commit meanwhile are not in its way, nor it in theirs.
    """
    from deltalake.exceptions import DeltaError

    table = delta.found(where)
    try:
        done = table.optimize.compact(target_size=file_octets)
    except (DeltaError, OSError) as error:
        raise PipelineError(f"{where} cannot be optimized: {error}") from None
    added, removed = done["filesAdded"], done["filesRemoved"]
    added, removed = (json.loads(each) if isinstance(each, str) else each for each in (added, removed))
    return Optimized(done["numFilesRemoved"], removed["totalSize"], done["numFilesAdded"], added["totalSize"])


# Files that are in no table.


@attrs.frozen
class Orphan:
    """A file in the folder of a table that is not in the table."""

    path: str
    octets: int | None
    age_s: float | None


def orphans(where: str, older_than_h: int, delete: bool, now: float | None = None) -> list[Orphan]:
    """Return the files in a table's folder that its log does not name, or no longer, if they are older than some hours.

    `delete` removes them. Raises PipelineError.
    """
    table, folder = delta.found(where), delta.folder_of(where)
    fields = {"retention_hours": older_than_h, "enforce_retention_duration": False, "full": True}
    found = table.vacuum(dry_run=True, **fields)  # type: ignore[arg-type]
    seen = [_orphan(path, folder, time.time() if now is None else now) for path in sorted(found)]
    if delete and found:
        table.vacuum(dry_run=False, **fields)  # type: ignore[arg-type]
    return seen


def _orphan(path: str, folder: Path | None, now: float) -> Orphan:
    if folder is None or not (folder / path).is_file():
        return Orphan(path, None, None)
    state = (folder / path).stat()
    return Orphan(path, state.st_size, max(0.0, now - state.st_mtime))

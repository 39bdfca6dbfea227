"""Check a table: which offsets are in it, and whether that is right by its checkpoint and by the broker."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.pipeline.client import Stream
from leveret.pipeline.errors import NoStream, PipelineError, Refused
from leveret.pipeline.jobs.lag import LeaseLag, Streams
from leveret.pipeline.offsets import Interval, Mark, Partition

if TYPE_CHECKING:
    from leveret.pipeline.jobs.lake_table import LakeTable

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


def offsets_of(table: LakeTable) -> dict[Partition, OffsetSet]:
    """Read which offsets of which partitions are in a table. Raises PipelineError."""
    found: dict[Partition, OffsetSet] = {}
    for each in (table, *table.undecoded()):
        _add_offsets(found, each)
    return found


def _add_offsets(found: dict[Partition, OffsetSet], table: LakeTable) -> None:
    known = table.schema().names
    if missing := [name for name in COLUMNS if name not in known]:
        raise PipelineError(f"{table.where} is no archive of messages: it has no column {', '.join(missing)}")
    for batch in table.batches(COLUMNS):
        for each, offsets in by_partition(batch):
            found.setdefault(each, OffsetSet()).add(offsets)


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

"""Tell what a query would read if it were started now, without Spark and without reserving anything."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from leveret.pipeline.client import Stream
from leveret.pipeline.errors import NoStream, Refused
from leveret.pipeline.jobs.checkpoints import position
from leveret.pipeline.jobs.lag import LeaseLag, Streams
from leveret.pipeline.offsets import Mark, Partition

if TYPE_CHECKING:
    from leveret.pipeline.jobs.lake_table import LakeTable


@attrs.frozen
class Planned:
    """The planned read of one partition. `octets` is None, and `messages` -1, where that is unknown."""

    source: str
    partition: int
    kind: str  # stream or queue
    first: int
    messages: int
    octets: int | None  # of their bodies, approximately


def marks_in(checkpoint: str | None) -> Mapping[Partition, Mark]:
    """Return the query's position; empty if it is new, or its checkpoint is not on this machine."""
    if checkpoint is None:
        return {}
    folder = Path(checkpoint.removeprefix("file:"))
    if "://" in checkpoint or not (folder / "offsets").is_dir():
        return {}
    return position(folder).marks


def planned(
    sources: Iterable[str],
    marks: Mapping[Partition, Mark],
    starting: str,
    streams: Streams,
    leased: Sequence[LeaseLag],
    reader: str | None,
    table: LakeTable | None = None,
) -> list[Planned]:
    """Return the planned reads. `starting` is earliest or latest; a table whose log tells a position overrides the
    checkpoint's. Raises Refused, also for a queue without `reader`.
    """
    found = []
    for source in sources:
        try:
            partitions = streams.partitions(source)
        except NoStream:
            found.append(_of_queue(source, leased, reader))
            continue
        for number, stream in enumerate(partitions):
            each, mark = (source, number), marks.get((source, number))
            at = None if table is None else table.position(each, stream.incarnation)
            mark = mark if at is None else Mark(at, stream.incarnation)
            found.append(_of_stream(source, number, stream, mark, starting))
    return found


def _of_stream(source: str, number: int, stream: Stream, mark: Mark | None, starting: str) -> Planned:
    if mark is not None and mark.incarnation == stream.incarnation:
        first = min(max(mark.next, stream.first), stream.next)
    else:
        first = stream.next if starting == "latest" and mark is None else stream.first
    messages = stream.next - first
    octets = messages * stream.octets // max(stream.messages, 1)
    return Planned(source, number, "stream", first, messages, octets)


def _of_queue(source: str, leased: Sequence[LeaseLag], reader: str | None) -> Planned:
    if reader is None:
        raise Refused(f"'{source}' is a queue, no stream: --reader NAME reads it")
    for each in leased:
        if (each.queue, each.reader) == (source, reader):
            return Planned(source, 0, "queue", each.first, each.messages + each.ready, None)
    return Planned(source, 0, "queue", 0, -1, None)


def as_lines(found: Sequence[Planned]) -> list[str]:
    """Return the plan as lines for people."""
    lines = []
    for each in found:
        where = f"{each.kind} '{each.source}'" + (f", partition {each.partition}" if each.partition else "")
        if each.messages < 0:
            lines.append(
                f"{where}: all waiting messages; their number is known once the queue has been read under this name"
            )
            continue
        octets = "" if each.octets is None else f", about {each.octets:,} bytes"
        lines.append(f"{where}: {each.messages:,} messages from offset {each.first:,}{octets}")
    known = [each.messages for each in found if each.messages >= 0]
    lines.append(f"in all: {sum(known):,} messages")
    return lines

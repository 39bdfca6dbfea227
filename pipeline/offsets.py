"""The positions of a query, as Spark keeps them in a checkpoint, and the size of its next read. Pure functions.

    {"orders": {"0": {"next": 123, "id": "5f3a...", "from": 100}}}

Each stream and partition has the offset behind the last message read; the stream's incarnation, because a stream that
was deleted and made anew counts from 0 again; and where the micro-batch that ended here began, if it read something.

`from` makes a micro-batch the same again after a crash: Spark keeps the ends of micro-batches, but asks again where a
query begins if it crashed within its first one. That one read the messages between `from` and `next`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Final, TypeAlias, cast

import attrs

from leveret.pipeline.errors import PipelineError

Json: TypeAlias = dict[str, object]
Partition: TypeAlias = tuple[str, int]  # stream and number, 0 unless it is a super stream
Interval: TypeAlias = tuple[int, int]  # the first offset, and the one behind the last


@attrs.frozen
class Mark:
    """The position in one partition. `start` is where the micro-batch that ended here began, if it read any of it."""

    next: int
    incarnation: str
    start: int | None = None


Marks: TypeAlias = Mapping[Partition, Mark]


@attrs.frozen
class Range:
    """The offsets [first, until) of one partition, as a task reads them."""

    stream: str  # the name subscribed to
    partition: int
    name: str  # the partition's own name on the broker
    incarnation: str
    first: int
    until: int
    fence: int | None = None  # of the lease, if it is a queue

    def __len__(self) -> int:
        return self.until - self.first


def to_json(marks: Marks) -> Json:
    """Return marks as Spark keeps them. Equal marks give equal texts, because Spark compares texts."""
    found: dict[str, dict[str, object]] = {}
    for (stream, partition), mark in sorted(marks.items()):
        entry: Json = {"next": mark.next, "id": mark.incarnation}
        if mark.start is not None:
            entry["from"] = mark.start
        found.setdefault(stream, {})[str(partition)] = entry
    return cast("Json", found)


def from_json(given: object) -> dict[Partition, Mark]:
    """Return marks from Spark's checkpoint. Raises PipelineError for JSON that `to_json` did not write."""
    try:
        return dict(_marks(given))
    except (KeyError, TypeError, ValueError, AttributeError):
        raise PipelineError(f"the checkpoint holds no offsets of this source: {given!r:.200}") from None


def _marks(given: object) -> Iterator[tuple[Partition, Mark]]:
    for stream, partitions in cast("dict[str, dict[str, Json]]", given).items():
        for partition, entry in partitions.items():
            following, incarnation, start = entry["next"], entry["id"], entry.get("from")
            if type(following) is not int or not isinstance(incarnation, str):
                raise ValueError
            if start is not None and type(start) is not int:
                raise ValueError
            yield (str(stream), int(partition)), Mark(following, incarnation, start)


def read_between(start: Marks, end: Marks) -> Iterator[tuple[Partition, int, Mark]]:
    """Yield each partition that the micro-batch ending at `end` reads, its first offset, and its end.

    If an end has its own start, that is used, whatever `start` is; an end that has not moved reads nothing.
    """
    for partition, mark in sorted(end.items()):
        if mark.start is not None and mark != start.get(partition) and mark.start < mark.next:
            yield partition, mark.start, mark


def admitted(available: Mapping[Partition, int], limit: int | None) -> dict[Partition, int]:
    """Return how many of the available messages of each partition are read, `limit` in all.

    Each partition gets the same share, and the others share what it does not need. So a busy partition does not delay
    the quiet ones. As many partitions as the limit has messages get at least one each.
    """
    if limit is None or sum(available.values()) <= limit:
        return dict(available)
    found = {}
    left = limit
    smallest_first = sorted(available, key=lambda partition: (available[partition], partition))
    for place, partition in enumerate(smallest_first):
        share = -(-left // (len(smallest_first) - place))
        found[partition] = min(available[partition], share)
        left -= found[partition]
    return found


PIECE_MIN: Final = 1000  # messages: fewer are not worth a task


def split(ranges: Iterable[Range], least: int | None, most: int | None = None) -> list[Range]:
    """Cut the ranges into `least` pieces or a few more, in proportion to their lengths; none shorter than 1000, unless
    no piece may have more messages than `most`.
    """
    whole = [each for each in ranges if len(each)]
    total = sum(map(len, whole))
    pieces: list[Range] = []
    for each in whole:
        count = 1
        if least is not None and len(whole) < least:
            count = min(-(-len(each) * least // total), max(1, len(each) // PIECE_MIN))
        if most is not None:
            count = max(count, -(-len(each) // most))
        cuts = [each.first + len(each) * at // count for at in range(count + 1)]
        pieces += [attrs.evolve(each, first=a, until=b) for a, b in pairwise(cuts)]
    return pieces

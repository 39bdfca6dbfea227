"""Read the position of a query from its checkpoint, which is Spark's folder. Needs no Spark.

checkpoint/offsets/12   v1, a line of Spark's own, then a line for each source: where batch 12 ends
checkpoint/commits/12   batch 12 is in the sink
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs

from pipeline.errors import PipelineError
from pipeline.offsets import Mark, Partition, from_json

SIZE_MAX: Final = 64 << 20  # bytes of one batch's offsets: a thousand partitions have a hundred thousand


@attrs.frozen
class Position:
    """The position of one query."""

    planned: int  # number of the newest micro-batch that was planned; -1: none
    done: int  # number of the newest that is in the sink
    marks: dict[Partition, Mark]  # where that one ends; empty, if there is none


def position(checkpoint: Path) -> Position:
    """Return the position. Raises PipelineError if there is no checkpoint, or it has no source of `format("amqp")`."""
    if not (checkpoint / "offsets").is_dir():
        raise PipelineError(f"{checkpoint} is no checkpoint of a streaming query: it has no folder 'offsets'")
    planned = _newest(checkpoint / "offsets")
    done = min(_newest(checkpoint / "commits"), planned)
    marks: dict[Partition, Mark] = {}
    if done >= 0:
        file = checkpoint / "offsets" / str(done)
        for given in _sources(file):
            marks.update(given)
        if not marks:
            raise PipelineError(f"{file} holds no offsets of the source 'amqp'")
    return Position(planned, done, marks)


def _newest(folder: Path) -> int:
    if not folder.is_dir():
        return -1
    return max((int(file.name) for file in folder.iterdir() if file.name.isdigit()), default=-1)


def _sources(file: Path) -> Iterator[dict[Partition, Mark]]:
    """Yield the marks of those sources of the query that are ours."""
    try:
        if file.stat().st_size > SIZE_MAX:
            raise PipelineError(f"{file} is larger than {SIZE_MAX} bytes")
        version, _, *lines = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file} cannot be read: {error}") from None
    if version != "v1":
        raise PipelineError(f"{file} is of version '{version:.20}', which cannot be read here, only 'v1'")
    for line in lines:
        try:
            yield from_json(json.loads(line))
        except (ValueError, RecursionError, PipelineError):
            continue  # another source's, or `-` for one that has not begun

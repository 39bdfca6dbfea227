"""Read and write the position of a query in its checkpoint, in the form that Spark has it. Needs no Spark.

checkpoint/metadata     {"id": "..."}, the query's id
checkpoint/offsets/12   v1, a line of Spark's own, then a line for each source: where batch 12 ends
checkpoint/commits/12   batch 12 is in the sink
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

import attrs

from leveret.durable.store.syncing import sync_file, sync_folder
from leveret.pipeline.errors import PipelineError
from leveret.pipeline.offsets import Mark, Marks, Partition, from_json, to_json

SIZE_MAX: Final = 64 << 20  # bytes of one batch's offsets: a thousand partitions have a hundred thousand
VERSION: Final = "v1"
KEPT: Final = 100  # micro-batches, as Spark keeps them


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
    return Position(planned, done, _marks(checkpoint, done) if done >= 0 else {})


def query_id(checkpoint: Path) -> str | None:
    """Return the id of the query; None if there is no checkpoint. Raises PipelineError if it cannot be read."""
    file = checkpoint / "metadata"
    try:
        content = json.loads(file.read_text())["id"]
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise PipelineError(f"{file} cannot be read: {error}") from None
    return str(content)


def _marks(checkpoint: Path, batch: int) -> dict[Partition, Mark]:
    """Return where a micro-batch ends. Raises PipelineError."""
    file = checkpoint / "offsets" / str(batch)
    marks: dict[Partition, Mark] = {}
    for given in _sources(file):
        marks.update(given)
    if not marks:
        raise PipelineError(f"{file} holds no offsets of the source 'amqp'")
    return marks


def _newest(folder: Path) -> int:
    return max(_numbers(folder), default=-1)


def _numbers(folder: Path) -> Iterator[int]:
    if folder.is_dir():
        yield from (int(file.name) for file in folder.iterdir() if file.name.isdigit())


def _sources(file: Path) -> Iterator[dict[Partition, Mark]]:
    """Yield the marks of those sources of the query that are ours."""
    try:
        if file.stat().st_size > SIZE_MAX:
            raise PipelineError(f"{file} is larger than {SIZE_MAX} bytes")
        version, _, *lines = file.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise PipelineError(f"{file} cannot be read: {error}") from None
    if version != VERSION:
        raise PipelineError(
            f"{file} is of version '{version:.20}', which cannot be read here, only '{VERSION}'"
        )
    for line in lines:
        try:
            yield from_json(json.loads(line))
        except (ValueError, RecursionError, PipelineError):
            continue  # another source's, or `-` for one that has not begun


class QueryCheckpoint:
    """The checkpoint of a query with one source, which this process runs instead of Spark, or before it, or after."""

    def __init__(self, folder: Path) -> None:
        """Open the checkpoint, or make a new one. Raises PipelineError, OSError."""
        self._folder = folder
        for name in ("offsets", "commits"):
            (folder / name).mkdir(parents=True, exist_ok=True)
        found = query_id(folder)
        if found is None:
            write_new(folder / "metadata", json.dumps({"id": str(uuid4())}))
            found = query_id(folder)
        assert found is not None
        self.query = found

    def position(self) -> Position:
        return position(self._folder)

    def planned(self, batch: int) -> dict[Partition, Mark]:
        """Return where a micro-batch ends that was planned."""
        return _marks(self._folder, batch)

    def plan(self, batch: int, end: Marks, now_ms: int) -> None:
        """Note where a micro-batch ends, before it is read. Raises PipelineError if another run has planned it."""
        heading = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": now_ms, "conf": {}})
        text = f"{VERSION}\n{heading}\n{json.dumps(to_json(end), separators=(',', ':'))}"
        if not write_new(self._folder / "offsets" / str(batch), text):
            raise PipelineError(
                f"another run goes on at the checkpoint {self._folder}: it has planned batch {batch}, too"
            )

    def forget(self, batch: int) -> None:
        """Remove the plan of a micro-batch that is not done."""
        _remove(self._folder / "offsets", batch)

    def commit(self, batch: int) -> None:
        """Note that a micro-batch is in the sink. What Spark would not keep any longer is removed."""
        text = f'{VERSION}\n{{"nextBatchWatermarkMs":0}}'
        write_new(self._folder / "commits" / str(batch), text)
        for name in ("offsets", "commits"):
            folder = self._folder / name
            for number in [each for each in _numbers(folder) if each <= batch - KEPT]:
                _remove(folder, number)


def _remove(folder: Path, number: int) -> None:
    for file in (folder / str(number), folder / f".{number}.crc"):
        file.unlink(missing_ok=True)


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Have an error of the block name the file, as that of a full disk does not by itself."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(file)
        raise


def write_new(file: Path, text: str) -> bool:
    """Write a file, whole and on disk; return False if there is one already."""
    beside = file.with_name(f".{file.name}.{uuid4()}.tmp")
    try:
        with naming(file), beside.open("x") as opened:
            opened.write(text)
            opened.flush()
            sync_file(opened.fileno())
        os.link(beside, file)
    except FileExistsError:
        return False
    finally:
        beside.unlink(missing_ok=True)
    sync_folder(file.parent)
    return True

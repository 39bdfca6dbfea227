"""Make a Delta table of a folder of Parquet that Spark's file sink has written: the files stay where they are.

    _spark_metadata: files of micro-batches ──> one entry in _delta_log, with the number of the last micro-batch
                   └──> _spark_metadata.converted

The query's checkpoint stays as well: the next run of `leveret pipeline archive` goes on there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.parquet as parquet  # type: ignore[import-untyped]

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import LOG
from leveret.pipeline.jobs.archive_columns import COLUMNS, TEXTS
from leveret.pipeline.jobs.checkpoints import query_id
from leveret.pipeline.jobs.data_files import NULL, DataFile, is_made, table_schema

DONE: Final = f"{LOG}.converted"
KNOWN: Final = {**COLUMNS, "annotations": TEXTS}


@attrs.frozen
class Found:
    """A folder of Parquet, as its log has it."""

    files: list[DataFile]
    by: tuple[str, ...]
    columns: pa.Schema  # with those that the folders' names have
    batch: int  # the number of the last micro-batch
    query: str | None  # None: its checkpoint is not known


def require_convertible(folder: Path) -> None:
    """Check that a folder has Spark's log. Raises PipelineError."""
    if (folder / LOG).is_dir():
        return
    if (folder / delta.LOG).is_dir():
        raise PipelineError(f"{folder} is a Delta table already")
    raise PipelineError(f"{folder} is no folder of Parquet that Spark's sink has written: it has no {LOG}")


def looked_at(folder: Path, checkpoint: Path) -> Found:
    """Return what there is to convert. Raises PipelineError."""
    require_convertible(folder)
    batch, paths = logged(folder)
    files = [_file(folder, path) for path in paths]
    if not files:
        raise PipelineError(f"{folder} has no files that count: remove it, and archive anew")
    by = tuple(files[0].values)
    if any(tuple(each.values) != by for each in files):
        raise PipelineError(f"{folder} is not partitioned by the same columns everywhere")
    names = parquet.read_schema(folder / files[0].path).names
    if strange := [name for name in (*names, *by) if name not in KNOWN and not is_made(name)]:
        raise PipelineError(f"{folder} cannot be converted: the column {strange[0]} is none of an archive's")
    rows = [name for name in KNOWN if name in names or name in by]
    columns = table_schema(pa.schema([(name, KNOWN[name]) for name in rows]), by)
    return Found(files, by, columns, batch, query_id(checkpoint))


def logged(folder: Path) -> tuple[int, list[str]]:
    """Return the number of the last micro-batch in Spark's log, and the paths of all files, in the folder."""
    log = folder / LOG
    compacted = max((int(file.stem) for file in log.glob("*.compact")), default=-1)
    numbers = sorted(int(file.name) for file in log.iterdir() if file.name.isdecimal())
    entries = [log / f"{compacted}.compact"] if compacted >= 0 else []
    entries += [log / str(number) for number in numbers if number > compacted]
    found = dict.fromkeys(path for entry in entries for path in _paths(folder, entry))
    return max([compacted, *numbers], default=-1), list(found)


def _paths(folder: Path, entry: Path) -> Iterator[str]:
    try:
        version, *lines = entry.read_text().splitlines()
        if version != "v1":
            raise PipelineError(f"{entry} is of version '{version:.20}', which cannot be read here")
        for line in lines:
            content = json.loads(line)
            if content.get("action", "add") == "add":
                yield _inside(folder, unquote(str(content["path"])))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise PipelineError(f"{entry} cannot be read: {error}") from None


def _inside(folder: Path, path: str) -> str:
    """Return a path in the folder, which may have been moved since."""
    _, found, rest = path.partition(f"/{folder.absolute().name}/")
    while found and not (folder / rest).is_file():
        _, found, rest = rest.partition(f"/{folder.absolute().name}/")
    if not found:
        raise PipelineError(f"{folder}/{LOG} names {path}, which is not there")
    return rest


def _file(folder: Path, path: str) -> DataFile:
    file = folder / path
    try:
        rows = parquet.read_metadata(file).num_rows
    except (OSError, pa.ArrowException) as error:
        raise PipelineError(f"{file} cannot be read: {error}") from None
    pairs = (part.partition("=")[::2] for part in Path(path).parts[:-1])
    values = {name: None if value == NULL else unquote(value) for name, value in pairs}
    state = file.stat()
    return DataFile(
        path, values, state.st_size, rows, int(state.st_mtime * 1000), json.dumps({"numRecords": rows})
    )


def convert(folder: Path, found: Found) -> None:
    """Convert the folder. Run again after a crash, it finishes what it had begun. Raises PipelineError."""
    where = str(folder)
    if not (folder / delta.LOG).is_dir() or not delta.committed(delta.found(where)):
        query = found.query or f"converted-{folder.name}"
        delta.append(
            where, found.by, found.columns, found.files, delta.CommittedBatch(query, max(found.batch, 0))
        )
    (folder / LOG).rename(folder / DONE)

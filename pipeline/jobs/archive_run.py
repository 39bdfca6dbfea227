"""Decide how a run of `leveret pipeline archive` is done: in which format, in this process or with Spark, and why."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from leveret.pipeline.errors import BadOption
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import DELTA, ICEBERG, PARQUET, Target, checkpoint_of, format_of
from leveret.pipeline.jobs.delta import folder_of

if TYPE_CHECKING:
    from leveret.pipeline.decoding.decode_options import DecodeOptions
    from leveret.pipeline.jobs.archive_local import Backlog
    from leveret.pipeline.jobs.data_files import Layout
    from leveret.pipeline.options import Options

MESSAGES_MAX: Final = 10_000_000  # above, Spark's tasks are worth the time in which it starts
OCTETS_MAX: Final = 4 << 30
LOCAL_MASTER: Final = "local[*]"  # the default of --master


class Engine(Enum):
    """The program that reads and writes."""

    AUTO = "auto"
    PYARROW = "pyarrow"
    SPARK = "spark"


def format_for(where: str, name: str | None) -> str:
    """Return the format of a table: the one it has, else the one asked for, else Delta. Raises BadOption."""
    known = format_of(where)
    if known is not None and name is not None and known != name:
        more = f": `leveret pipeline convert {where}` makes it a Delta table" if known == PARQUET else ""
        raise BadOption(f"{where} is a table of format {known}, not {name}{more}")
    return known or name or DELTA


def require_writable(target: Target) -> None:
    """Check that this kind of table can be written. Raises NoDelta."""
    if target.format == DELTA:
        delta.require()
    if target.format == ICEBERG:
        from leveret.pipeline.jobs import iceberg

        iceberg.require()


def require_decodable(target: Target, decode: DecodeOptions) -> None:
    """Check that bodies can be decoded on the way to a table, and by these schemas. Raises PipelineError."""
    if target.format == PARQUET:
        raise BadOption(f"bodies are decoded in archives of format {DELTA} or {ICEBERG}, not of {PARQUET}")
    decode.schemas()


def is_old(target: Target) -> bool:
    """Return whether this is a folder of Parquet that could be converted."""
    return target.format == PARQUET and format_of(target.where) == PARQUET


def checkpoint_for(target: Target, named: str | None) -> str | None:
    """Return the checkpoint of an archive; None if the log of a table is all that it needs. Raises BadOption."""
    if target.format == ICEBERG:
        if named is not None:
            raise BadOption("an Iceberg table has its own position: it takes no --checkpoint")
        return None
    if named is not None:
        return named
    is_elsewhere = target.format == DELTA and target.folder is None
    return None if is_elsewhere else checkpoint_of(target.where)


def why_not_here(
    target: Target,
    checkpoint: str | None,
    engine: Engine,
    master: str,
    settings: Sequence[object],
) -> str | None:
    """Return why Spark has to do it; None if this process may. Raises BadOption if one was asked for that cannot."""
    if target.format == ICEBERG:
        if engine is Engine.SPARK or master != LOCAL_MASTER or settings:
            raise BadOption("an Iceberg table is written by this process, without Spark")
        return None
    reason = _why_not_here(target, checkpoint, engine, master, settings)
    if reason is not None and checkpoint is None:
        raise BadOption(
            f"with Spark ({reason}), {target.where} needs a checkpoint: name a folder of this machine with --checkpoint"
        )
    return reason


def _why_not_here(
    target: Target,
    checkpoint: str | None,
    engine: Engine,
    master: str,
    settings: Sequence[object],
) -> str | None:
    if engine is Engine.SPARK:
        return "--engine spark says so"
    reasons = {
        "a folder of Parquet is written by Spark's own sink": target.format == PARQUET,
        f"the checkpoint {checkpoint} is not a folder of this machine": checkpoint is not None
        and folder_of(checkpoint) is None,
    }
    for reason, holds in reasons.items():
        if holds and engine is Engine.PYARROW:
            raise BadOption(f"--engine pyarrow cannot do this: {reason}")
        if holds:
            return reason
    if engine is Engine.AUTO and (master != LOCAL_MASTER or settings):
        return "--master or --spark is given"
    return None


def reason(
    backlog: Backlog,
    engine: Engine,
    has_checkpoint: bool = True,
    goes_on: bool = False,
    can_choose: bool = True,
) -> tuple[bool, str]:
    """Return whether this process archives so much, and a line that says what was chosen and why."""
    much = f"{backlog.messages:,} messages, about {backlog.octets:,} bytes"
    if engine is Engine.PYARROW:
        return True, f"{much}: with pyarrow in this process, as --engine pyarrow says"
    if not can_choose:
        return True, f"{much}{', and what comes' if goes_on else ''}: with pyarrow in this process"
    if goes_on:
        return True, f"{much}, and what comes: with pyarrow in this process, which needs no Spark"
    limit = f"{MESSAGES_MAX:,} messages or {OCTETS_MAX >> 30} GiB"
    if backlog.messages <= MESSAGES_MAX and backlog.octets <= OCTETS_MAX:
        return True, f"{much}: with pyarrow in this process, which needs no Spark up to {limit}"
    if not has_checkpoint:
        return (
            True,
            f"{much}: with pyarrow in this process; above {limit} Spark would do it, with a --checkpoint",
        )
    if find_spec("pyspark") is None:
        return (
            True,
            f"{much}: with pyarrow in this process; above {limit} Spark would do it, but is not installed",
        )
    return False, f"{much}: with Spark, which is quicker above {limit}"


def layout_of(target: Target, options: Options) -> Layout:
    """Return what the data files of a table have. Raises BadOption."""
    from leveret.pipeline.jobs.archive import require_partitions
    from leveret.pipeline.jobs.archive_columns import columns
    from leveret.pipeline.jobs.data_files import FILE_OCTETS, Layout

    require_partitions(target.by)
    table = delta.opened(target.where)
    known = None if table is None else [field.name for field in table.schema().fields]
    size = FILE_OCTETS if target.file_octets is None else target.file_octets
    return Layout(target.where, target.by, columns(options, target.by, known), size)

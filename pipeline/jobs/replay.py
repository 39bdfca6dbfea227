"""Publish the messages of an archive to an exchange again, each once, however often the replay is interrupted.

A replay is a list of rows in a fixed order: the chosen rows of the files that the archive had when the replay was
planned, by (timestamp, stream, partition, offset). The broker keeps how many of them are published, in the same commit
that publishes: batches are staged under the replay's name, and the number of a batch is that of its last row. So a
replay that continues asks for that number, and skips as many rows, whatever the sizes of batches are now.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import attrs

from leveret.durable.store.syncing import sync_file
from leveret.pipeline.errors import BadOption, PipelineError
from leveret.pipeline.jobs import delta
from leveret.pipeline.jobs.archive import DELTA, ICEBERG, PARQUET, format_of
from leveret.pipeline.jobs.archive_run import format_for
from leveret.pipeline.jobs.checkpoints import naming
from leveret.pipeline.jobs.lake_table import lake_table
from leveret.pipeline.jobs.table import rows_of_files

if TYPE_CHECKING:
    import pyarrow as pa  # type: ignore[import-untyped]
    from pyspark.sql import DataFrame, SparkSession

RAW: Final = "raw_properties"
USERS: Final = "raw_user_id"
ORDER: Final = ("timestamp", "stream", "partition", "offset")
CHUNK_ROWS: Final = 100_000  # rows that the driver holds; more if they have the same timestamp
DEATHS: Final = (
    "x-death",
    *(f"x-{which}-death-{what}" for which in ("first", "last") for what in ("reason", "queue", "exchange")),
)


# Rows.


def chosen(
    rows: DataFrame, since: int | None = None, until: int | None = None, where: str | None = None
) -> DataFrame:
    """Return the rows that came in [since, until), in ms since 1970, and match a SQL condition."""
    from pyspark.sql.functions import expr

    if since is not None:
        rows = rows.where(expr(f"timestamp >= timestamp_millis({since})"))
    if until is not None:
        rows = rows.where(expr(f"timestamp < timestamp_millis({until})"))
    return rows.where(f"({where})") if where else rows


def publishable(rows: DataFrame, routing_key: str | None = None) -> DataFrame:
    """Return the columns that the sink takes, in the order of the archive.

    Raw properties, where an archive has them, are published as they are. Without them values that only brokers write
    are left out: deaths among the headers, and the user-id, as the replayer's user publishes now. `USERS` has that of
    raw properties, which is still to be taken out.
    """
    from pyspark.sql.functions import coalesce, col, lit, map_filter

    found = [col("body")]
    found.append(
        lit(routing_key).alias("routing_key")
        if routing_key is not None
        else coalesce("routing_key", lit("")).alias(
            "routing_key"
        )  # an empty key in the name of a folder is read as null
    )
    if RAW in rows.columns:
        found += [col(name) for name in (RAW, "encoding", "raw_body") if name in rows.columns]
        users = col("properties.user_id") if "properties" in rows.columns else lit(None).cast("string")
        found.append(users.alias(USERS))
    if "properties" in rows.columns:
        found.append(col("properties").withField("user_id", lit(None).cast("string")).alias("properties"))
    if "headers" in rows.columns:
        found.append(map_filter("headers", lambda name, _: ~name.isin(*DEATHS)).alias("headers"))
    return rows.orderBy(*ORDER).select(
        *found, "stream", "partition", "offset"
    )  # to name a row that is refused


def require_lake(request: ReplayRequest) -> None:
    """Check what can be checked of an archive before Spark is started. Raises PipelineError."""
    folder = delta.folder_of(request.lake)
    if request.catalog is None and folder is not None and not folder.is_dir():
        raise PipelineError(f"there is no table at {request.lake}")
    if _kind(request) != PARQUET:
        require_archive(
            lake_table(request.lake, request.catalog, _kind(request)).schema().names, request.lake
        )


def require_archive(columns: Collection[str], where: str) -> None:
    """Check that these are columns of an archive. Raises PipelineError."""
    missing = [name for name in ("body", "routing_key", *ORDER) if name not in columns]
    if missing:
        raise PipelineError(f"{where} is no archive: it has no column {', '.join(missing)}")


# The plan.


@attrs.frozen
class ReplayRequest:
    """The arguments of a replay."""

    lake: str
    exchange: str
    routing_key: str | None = None
    since: int | None = None
    until: int | None = None
    where: str | None = None
    format: str | None = None  # parquet, delta or iceberg; None: found out from the folder
    catalog: str | None = None  # of Iceberg, in pyiceberg's configuration


@attrs.frozen
class Content:
    """The files of an archive."""

    files: tuple[str, ...]
    values: tuple[str, ...] = ()  # of each file of a table: JSON, the columns that it does not have itself


@attrs.frozen
class Plan:
    """The plan of a replay, which stays the same if the archive grows."""

    name: str  # the rows are staged under it
    asked: ReplayRequest
    content: Content
    cuts: tuple[int, ...]  # us since 1970: chunk n has [cuts[n], cuts[n + 1])
    rows: tuple[int, ...]  # of each chunk

    @property
    def total(self) -> int:
        return sum(self.rows)


def _kind(request: ReplayRequest) -> str:
    """Return the format of an archive. Raises PipelineError."""
    if request.catalog is not None:
        return ICEBERG
    if format_of(request.lake) is not None:
        return format_for(request.lake, request.format)
    if request.format is not None or delta.folder_of(request.lake) is not None:
        return request.format or PARQUET
    # Read as a folder of Parquet, it would also have the files that its log has left out.
    return PARQUET if delta.opened(request.lake) is None else DELTA


def content_of(spark: SparkSession, request: ReplayRequest) -> Content:
    """Return the present files of an archive. Raises PipelineError."""
    kind = _kind(request)
    if kind == PARQUET:
        return Content(tuple(sorted(map(unquote, spark.read.parquet(request.lake).inputFiles()))))
    table = lake_table(request.lake, request.catalog, kind)
    files = table.files()
    return Content(tuple(table.places(files)), tuple(map(json.dumps, table.added(files))))


def rows_of(spark: SparkSession, request: ReplayRequest, content: Content) -> DataFrame:
    """Return the rows that are to be replayed. Raises PipelineError."""
    if content.values:
        values = [json.loads(each) for each in content.values]
        columns = lake_table(request.lake, request.catalog, _kind(request)).schema()
        rows = rows_of_files(spark, content.files, values, columns)
    else:
        rows = spark.read.option("basePath", request.lake).parquet(*content.files)
    require_archive(rows.columns, request.lake)
    return chosen(rows, request.since, request.until, request.where)


def planned(spark: SparkSession, request: ReplayRequest, chunk: int = CHUNK_ROWS) -> Plan:
    """Count the rows to replay, and find where to cut them into chunks. Raises PipelineError."""
    content = content_of(spark, request)
    if not content.files:
        return Plan(_name(), request, content, (), ())
    times = rows_of(spark, request, content).selectExpr("unix_micros(timestamp) as at").groupBy("at").count()
    cuts, counts = cut(((row[0], row[1]) for row in times.orderBy("at").toLocalIterator()), chunk)
    return Plan(_name(), request, content, cuts, counts)


def cut(times: Iterator[tuple[int, int]], chunk: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the times to cut at, and the rows of each chunk, from times in order with their numbers of rows."""
    cuts: list[int] = []
    counts: list[int] = []
    for at, rows in times:
        if not counts or counts[-1] + rows > chunk:
            cuts.append(at)
            counts.append(0)
        counts[-1] += rows
        last = at
    return (*cuts, last + 1) if cuts else (), tuple(counts)


def _name() -> str:
    return f"replay-{token_hex(16)}"


# The checkpoint: the plan, and how many rows of it are published as far as is known here.


class Checkpoint:
    """A folder with the plan of a replay and its progress."""

    def __init__(self, folder: Path) -> None:
        self._plan = folder / "replay.json"
        self._done = folder / "published"

    def plan(self, request: ReplayRequest) -> Plan | None:
        """Return the plan, or None if there is none yet. Raises PipelineError if it is another replay's."""
        if not self._plan.exists():
            return None
        try:
            value = json.loads(self._plan.read_text())
            known = ReplayRequest(**value["asked"])
            content = Content(*(tuple(value["content"][name]) for name in ("files", "values")))
            found = Plan(value["name"], known, content, tuple(value["cuts"]), tuple(value["rows"]))
        except (ValueError, KeyError, TypeError) as error:
            raise PipelineError(f"{self._plan} is no plan of a replay: {error}") from None
        if known != request:
            different = [
                name for name in attrs.asdict(request) if getattr(request, name) != getattr(known, name)
            ]
            raise BadOption(
                f"{self._plan.parent} is the checkpoint of another replay (see {', '.join(different)});"
                " name another folder"
            )
        return found

    def keep_plan(self, plan: Plan) -> None:
        self._plan.parent.mkdir(parents=True, exist_ok=True)
        _write(self._plan, json.dumps(attrs.asdict(plan)))

    @property
    def done(self) -> int:
        return int(self._done.read_text()) if self._done.exists() else 0

    def keep_done(self, rows: int) -> None:
        _write(self._done, str(rows))


def _write(file: Path, text: str) -> None:
    """Write a file atomically."""
    beside = file.with_name(file.name + ".new")
    with naming(file), beside.open("w") as opened:
        opened.write(text)
        opened.flush()
        sync_file(opened.fileno())
    beside.replace(file)


def plan_of(spark: SparkSession, request: ReplayRequest, checkpoint: Checkpoint | None) -> Plan:
    """Return the plan of the checkpoint, or a new one, which it keeps. Raises PipelineError."""
    if checkpoint is None:
        return planned(spark, request)
    plan = checkpoint.plan(request)
    if plan is None:
        plan = planned(spark, request)
        checkpoint.keep_plan(plan)
    return plan


def chunks(spark: SparkSession, plan: Plan, done: int, user: str) -> Iterator[tuple[int, pa.Table]]:
    """Yield the rows from the `done`th on as tables, each with the number of its first row. `user` publishes them."""
    from leveret.pipeline.user_ids import without_users

    first = 0
    for place, count in enumerate(plan.rows):
        if first + count > done:
            rows = rows_of(spark, plan.asked, plan.content)
            low, high = (f"timestamp_micros({plan.cuts[place + each]})" for each in (0, 1))
            part = rows.where(f"timestamp >= {low} and timestamp < {high}")
            table = publishable(part, plan.asked.routing_key).toArrow()
            if table.num_rows != count:
                raise PipelineError(
                    f"the archive has changed since the replay was planned: {table.num_rows} rows where {count} were"
                )
            if USERS in table.column_names:
                table = without_users(table, USERS, user)
            begin = max(done - first, 0)
            yield first + begin, table.slice(begin)
        first += count


def as_lines(plan: Plan, checkpoint: Checkpoint | None) -> list[str]:
    """Return the plan as lines for people."""
    lines = [f"{plan.total:,} messages of {len(plan.content.files):,} files"]
    if plan.cuts:
        first, last = (datetime.fromtimestamp(at / 1e6, UTC) for at in (plan.cuts[0], plan.cuts[-1] - 1))
        lines.append(f"that came from {first:%Y-%m-%d %H:%M:%S} to {last:%Y-%m-%d %H:%M:%S} UTC")
    if checkpoint is not None and checkpoint.done:
        lines.append(f"of which {checkpoint.done:,} are published")
    return [*lines, f"to exchange '{plan.asked.exchange}'"]

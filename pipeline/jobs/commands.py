"""Run the jobs of `leveret pipeline ...` with parsed arguments, and turn their outcome into an exit code."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

import attrs

from leveret.pipeline.broker_client import BrokerClient
from leveret.pipeline.errors import BadOption, Missing, NoStream, PipelineError, Refused, Unreachable
from leveret.pipeline.jobs import dead_letters as deaths
from leveret.pipeline.jobs import lag as lags
from leveret.pipeline.jobs.activity import Activity, java_log, keep_query_errors, versions
from leveret.pipeline.jobs.archive import DELTA, ICEBERG, PARQUET, Target
from leveret.pipeline.jobs.delta import folder_of
from leveret.pipeline.jobs.dry_run import as_lines, marks_in, planned
from leveret.pipeline.jobs.endpoint import BrokerEndpoint
from leveret.pipeline.jobs.java_process import java_named, java_of, keep_quiet, stop_session
from leveret.pipeline.jobs.job_options import JobOptions, sorted_options
from leveret.pipeline.jobs.lake_table import is_there, lake_table
from leveret.pipeline.jobs.run import (
    Report,
    Stop,
    ended,
    metrics_in,
    on_a_busy_machine,
    patiently,
    told_again,
    watch,
)
from leveret.pipeline.jobs.run_lock import held
from leveret.pipeline.progress import ProgressReporter, QueryProgress, progress_in
from leveret.pipeline.sink_options import read_sink_options
from leveret.server.cli.api_commands import words_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from leveret.pipeline.jobs.archive_local import LocalArchive
    from leveret.pipeline.jobs.archive_run import Engine
    from leveret.pipeline.jobs.lake_table import LakeTable
    from leveret.pipeline.jobs.run import WrittenRows

DONE, FAILED, USAGE, UNREACHABLE, INTERRUPTED = 0, 1, 2, 3, 130
NOT_LET_IN: Final = "does not let"
NAME_OCTETS_MAX: Final = 255  # of a pipeline's name
BATCH: Final = 1_000_000  # messages in a micro-batch
UNITS_S: Final = {"milliseconds": 0.001, "seconds": 1, "minutes": 60, "hours": 3600}
SETTINGS: Final = {
    "spark.log.level": "WARN",  # to a file; we print a query's error ourselves, in a line
    "spark.sql.sources.partitionColumnTypeInference.enabled": "false",  # a stream named `17` is a text
}
RAISED: Final = re.compile(r"^leveret\.pipeline\.(?:errors|jobs\.\w+)\.(\w+): (.*)$", re.MULTILINE)
# What raises errors that are about a table, a catalogue or a query, and not about a mistake of ours.
LIBRARIES: Final = frozenset(
    ("pyspark", "pyiceberg", "deltalake", "_internal", "sqlalchemy")
)  # _internal: deltalake
NO_FILE_SYSTEM: Final = re.compile(r'No FileSystem for scheme "?(\w+)')
COLOURS: Final = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
PYTHONS: Final = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt)\b.*$", re.MULTILINE)

SAID: Final = {  # by an argument: the option that says the same, and how the job is told
    "sources": ("subscribe", "the argument SOURCE"),
    "to_exchange": ("exchange", "--to-exchange"),
    "routing_key": ("routingkey", "--routing-key"),
    "delivery": ("delivery", "--delivery"),
    "rate": ("delivery", "a replay is always staged, as exactly-once"),
    "reader": ("readername", "--reader"),
}

Environ = Mapping[str, str]
Command = Callable[[argparse.Namespace, Environ], int]


def told(command: Command) -> Command:
    """Wrap a job so that its error is printed in a line."""

    def run(options: argparse.Namespace, environ: Environ) -> int:
        try:
            return command(options, environ)
        except PipelineError as error:
            return _failed(error, str(error), _code(type(error).__name__, str(error)))
        except OSError as error:
            return _failed(error, words_of(error), FAILED)
        except Exception as error:
            library = type(error).__module__.partition(".")[0]
            if library not in LIBRARIES:
                raise
            name, text = what_spark_says(str(error)) if library == "pyspark" else ("", str(error))
            return _failed(error, text, _code(name, text))

    return run


def _code(error: str, text: str) -> int:
    if error == Unreachable.__name__ or NOT_LET_IN in text:
        return UNREACHABLE
    return USAGE if error == BadOption.__name__ else FAILED


def what_spark_says(text: str) -> tuple[str, str]:
    """Return the name and text of our error inside one of Spark's, else an error text that Spark has."""
    if unknown := NO_FILE_SYSTEM.search(text):
        return "", (
            f"Spark knows no {unknown[1]}:// URIs: it needs Hadoop's package for them, such as --spark"
            " spark.jars.packages=org.apache.hadoop:hadoop-aws:VERSION --spark"
            " spark.hadoop.fs.s3.impl=org.apache.hadoop.fs.s3a.S3AFileSystem"
        )
    ours = RAISED.findall(text)
    if ours:
        name, value = ours[-1]
        return name, value
    raised = PYTHONS.findall(text)
    if raised:  # perhaps by a function of the user
        return "", raised[-1]
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "", lines[0] if lines else "Spark gives no reason"


def _failed(error: BaseException, reason: str, code: int) -> int:
    """Print the reason, then where there is more about the error."""
    for line in (reason, *getattr(error, "__notes__", ())):
        print(f"leveret: {printable(line)}", file=sys.stderr)
    return code


def printable(line: str) -> str:
    """Return a line without colours and other control characters, which may come from elsewhere."""
    return CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", COLOURS.sub("", line))


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


# The jobs.


@told
def archive(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.pipeline.decoding.arguments import decode_options
    from leveret.pipeline.jobs import archive_run as runs

    _require_iceberg(options)
    kind = ICEBERG if options.catalog else runs.format_for(options.target, options.format)
    target = Target(options.target, kind, options.partition_by, options.file_size, options.catalog)
    decode = decode_options(options)
    runs.require_writable(target)
    if decode is not None:
        runs.require_decodable(target, decode)
    checkpoint = runs.checkpoint_for(target, options.checkpoint)
    if options.dry_run:
        by = f", partitioned by {', '.join(target.by)}" if target.by else ""
        by += f", with columns of {decode.format} by {decode.shown}" if decode is not None else ""
        return _plan(options, environ, checkpoint, f"{target.format} at {target.where}{by}", target)
    if runs.is_old(target):
        _tell(
            f"archive: {target.where} is a folder of Parquet, which only Spark reads rightly;"
            f" `leveret pipeline convert {target.where}` makes it a Delta table"
        )
    engine = runs.Engine(options.engine)
    forced = runs.why_not_here(target, checkpoint, engine, options.master, options.spark)
    with held(folder_of(checkpoint) if checkpoint else None):
        if forced is None:
            done = _archive_here(options, environ, target, checkpoint, engine)
            if done is not None:
                return done
        else:
            _tell(f"archive: with Spark: {forced}")
        assert checkpoint is not None
        return _archive_with_spark(options, environ, target, checkpoint, is_agreed=forced is None)


@contextmanager
def _local(
    options: argparse.Namespace, environ: Environ, target: Target, checkpoint: str | None
) -> Iterator[LocalArchive]:
    """Yield a run of this process whose checkpoint goes on where the table ends."""
    from leveret.pipeline.decoding.arguments import decode_options
    from leveret.pipeline.jobs.archive_local import RETRY_S, iceberg_archive, local_archive
    from leveret.pipeline.jobs.archive_run import layout_of
    from leveret.pipeline.jobs.checkpoints import QueryCheckpoint
    from leveret.pipeline.jobs.decoding import decoding_of
    from leveret.pipeline.jobs.table_positions import TableCheckpoint

    reach = reached(options, environ, reads=True)
    _require_readable(reach, options.sources, options.reader)
    checked = reach.checked(options.sources, _reading(options))
    if options.continuous:
        checked = attrs.evolve(checked, retry_s=min(checked.retry_s, RETRY_S))
    decode = decode_options(options)
    decoding = None if decode is None else decoding_of(target, checked, decode)
    if target.format == ICEBERG:
        with iceberg_archive(checked, target, options.sources, decoding=decoding) as run:
            yield run
        return
    layout = layout_of(target, checked) if decoding is None else decoding.layout
    folder = folder_of(checkpoint) if checkpoint else None
    kept = TableCheckpoint(target.where, options.sources) if folder is None else QueryCheckpoint(folder)
    with local_archive(checked, layout, kept, decoding=decoding) as run:
        if behind := run.agree():
            _tell(f"archive: {behind}")
        yield run


def _archive_here(
    options: argparse.Namespace, environ: Environ, target: Target, checkpoint: str | None, engine: Engine
) -> int | None:
    """Archive in this process; return None if there is so much to read that Spark should."""
    from leveret.pipeline.jobs.archive_run import reason

    with metrics_in(options.metrics) as file, Stop().listening() as stop:
        if options.with_input:
            stop.ask_at_end_of(sys.stdin)
        report = Report("archive", _tell, file)
        with _local(options, environ, target, checkpoint) as run:
            can_choose = target.format == DELTA and options.decode is None
            is_here, why = reason(
                run.backlog(), engine, checkpoint is not None, options.continuous, can_choose
            )
            _tell(f"archive: {why}")
            if not is_here:
                return None
            reporter = ProgressReporter(reached(options, environ, reads=True).options)
            name = _name_of("archive", options)

            def progressed(found: QueryProgress) -> None:
                reporter.tell(attrs.evolve(found, name=name))

            with closing(reporter), ended(report) as end:
                if options.continuous:
                    run.run_on(report, stop, seconds_of(options.every), progressed)
                else:
                    end.well = run.run(report, stop, progressed)
    return DONE if end.well or options.continuous else INTERRUPTED


def _archive_with_spark(
    options: argparse.Namespace, environ: Environ, target: Target, checkpoint: str, is_agreed: bool
) -> int:
    from leveret.pipeline.decoding.arguments import decode_options
    from leveret.pipeline.jobs.archive import archive as start
    from leveret.pipeline.jobs.archive import archive_messages

    if target.format == PARQUET:
        return _query(
            options,
            environ,
            "archive",
            lambda spark, reading: (start(_rows(spark, reading), target, checkpoint, _every(options)), {}),
        )

    if not is_agreed and folder_of(checkpoint) is not None:
        with _local(options, environ, target, checkpoint):
            pass

    def started(
        spark: SparkSession, reading: Mapping[str, str]
    ) -> tuple[StreamingQuery, Mapping[int, WrittenRows]]:
        how = (checkpoint, _every(options), decode_options(options))
        query, committer = archive_messages(spark, reading, target, *how)
        return query, committer.written

    return _query(options, environ, "archive", started)


@told
def route(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.pipeline.jobs.route import function_named, routed
    from leveret.pipeline.jobs.route import route as start

    if options.function:
        _show_workers(Path.cwd())
    if options.dry_run:
        to = f"exchange '{options.to_exchange}', {options.delivery}"
        return _plan(options, environ, options.checkpoint, to)
    sink = {
        **reached(options, environ, reads=True, writes=True).options,
        **_given(options, True, True).writing,
        "exchange": options.to_exchange,
        "delivery": options.delivery,
    }

    def started(
        spark: SparkSession, reading: Mapping[str, str]
    ) -> tuple[StreamingQuery, Mapping[int, WrittenRows]]:
        # A module with functions for SQL in it cannot be imported before there is a session.
        how = options.sql or function_named(options.function)
        return start(routed(_rows(spark, reading), how), sink, options.checkpoint, _every(options)), {}

    with held(folder_of(options.checkpoint)):
        return _query(options, environ, "route", started)


@told
def replay(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.pipeline.jobs import replay as replays

    _require_iceberg(options)
    key = (options.to_exchange, options.routing_key, options.since, options.until, options.where)
    request = replays.ReplayRequest(options.lake, *key, options.format, options.catalog)
    checkpoint = replays.Checkpoint(Path(options.checkpoint)) if options.checkpoint else None
    known = checkpoint.plan(request) if checkpoint else None  # reports a mistake before Spark is started
    reach = reached(options, environ, writes=True)
    sink = {**reach.options, **_given(options, False, True).writing}
    read_sink_options({**sink, "exchange": request.exchange})  # reports a mistake before Spark is started
    replays.require_lake(request)
    _require_exchange(reach, request.exchange)
    activity = Activity("replay", _tell)
    lock = held(Path(options.checkpoint) if options.checkpoint and not options.dry_run else None)
    with (
        lock,
        _spark(options, activity) as spark,
        metrics_in(options.metrics) as file,
        Stop().listening() as stop,
    ):
        from leveret.pipeline.jobs.replay_batches import Pace
        from leveret.pipeline.jobs.replay_batches import replay as publish

        if options.dry_run:
            print("\n".join(replays.as_lines(known or replays.planned(spark, request), checkpoint)))
            return DONE
        report = Report("replay", activity.tell, file)
        with ended(report) as end:
            pace = Pace(options.rate)

            def run() -> bool:
                return publish(spark, request, sink, checkpoint, pace, report, stop)

            # Without a checkpoint, what is published would be published again.
            end.well = on_a_busy_machine("replay", activity.tell, run, stop) if checkpoint else run()
    return DONE if end.well else INTERRUPTED


@told
def dead_letters(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.pipeline.jobs import picture, preview

    if options.picture:
        picture.require(options.picture)
    reach = reached(options, environ)
    streams, queues = preview.sorted_out(reach, options.sources)
    if options.dry_run:
        return _dry_look(options, reach, streams, queues)
    activity = Activity("dead-letters", _tell)
    with _spark(options, activity) as spark, metrics_in(options.metrics) as file:
        report = Report("dead-letters", activity.tell, file)
        with ended(report) as end:
            times = (options.since, options.until)
            rows = preview.rows(spark, reach, streams, queues, times, options.most, activity.tell)
            counted = deaths.counted(deaths.deaths(rows), options.per)
            counts = deaths.collected(patiently(counted.collect, told_again("dead-letters", activity.tell)))
            report.rows = sum(each.messages for each in counts)
            end.well = True
    if options.csv or options.json:
        print(deaths.as_csv(counts) if options.csv else deaths.as_json(counts))
    else:
        print(deaths.as_text(counts))
    if options.picture:
        picture.draw(counts, options.per, options.picture)
        _tell(f"dead-letters: the picture is {options.picture}")
    return DONE


def _dry_look(
    options: argparse.Namespace, reach: BrokerEndpoint, streams: Sequence[str], queues: Sequence[str]
) -> int:
    client = reach.client()
    try:
        for line in as_lines(planned(streams, {}, "earliest", client, [], None)):
            print(line)
    finally:
        client.close()
    for queue in queues:
        print(
            f"queue '{queue}': up to {options.most:,} messages are reserved, looked at, and put back as redelivered"
        )
    return DONE


@told
def lag(options: argparse.Namespace, environ: Environ) -> int:
    reach = reached(options, environ)
    while True:
        found = lags.measure(options.checkpoints, reach)
        if options.json:
            texts = [attrs.asdict(each) for each in found]
            print(json.dumps(texts) if options.watch else json.dumps(texts, indent=2), flush=True)
        else:
            print("\n".join(lag_lines(found)), flush=True)
        if not options.watch:
            return FAILED if late(found, options.max_behind, options.max_age) else DONE
        time.sleep(options.watch)
        if not options.json:
            print()


def late(found: Sequence[lags.Lag], behind_max: int | None, age_max_s: float | None) -> bool:
    """Return whether a query is further behind than it may be, in all or by its oldest message, or may be so: what is
    unknown counts as too much, and so does a query that has read nothing yet.
    """
    asked = behind_max is not None or age_max_s is not None
    if not asked:
        return False
    if not found or any(each.trouble for each in found):
        return True
    if behind_max is not None:
        known = [each.behind for each in found if each.behind is not None]
        if len(known) < len(found) or sum(known) > behind_max:
            return True
    ages = [each.behind_s for each in found if each.behind != 0]
    return age_max_s is not None and any(age is None or age > age_max_s for age in ages)


@told
def bundle(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.pipeline.bundle import bundle as written

    octets = written(options.file)
    _tell(f"{options.file}: {octets / 1e6:.1f} MB, for spark-submit --py-files; the program calls")
    _tell("    import pyspark_amqp; pyspark_amqp.register(spark)")
    return DONE


def lag_lines(found: Sequence[lags.Lag]) -> list[str]:
    """Return a table for people, with the sum of all."""
    if not found:
        return ["nothing has been read yet"]
    head = ("checkpoint", "source", "partition", "position", "end", "ready", "leased", "seconds", "behind")
    rows = [_lag_row(each) for each in found]
    lines = deaths.columns([head, *rows])
    lines += [f"{each.source}/{each.partition}: {each.trouble}" for each in found if each.trouble]
    return [*lines, f"{sum(each.behind or 0 for each in found):,} messages behind in all"]


def _lag_row(each: lags.Lag) -> tuple[str, ...]:
    numbers = (each.end, each.ready, each.leased, each.behind_s, each.behind)
    key = ("-" if number is None else f"{number}" for number in numbers)
    return (Path(each.checkpoint).name, each.source, str(each.partition), str(each.position), *key)


# Parts of several jobs.


def reached(
    options: argparse.Namespace, environ: Environ, reads: bool = False, writes: bool = False
) -> BrokerEndpoint:
    """Return the connection that the arguments name; a password that is not given is asked for.

    Raises BadOption for an option that a job which reads, or writes, or does neither, has no use for.
    """
    given = _given(options, reads, writes)
    if not options.password_file and "LEVERET_PASSWORD" not in environ and options.user != "guest":
        if sys.stdin.isatty():
            from getpass import getpass

            os.environ["LEVERET_PASSWORD"] = getpass(f"Password of {options.user}: ")
    key = (options.endpoint, options.vhost, options.user, options.password_file, options.ca_file)
    return BrokerEndpoint(*key, given.connection)


def _require_iceberg(options: argparse.Namespace) -> None:
    """Refuse a catalogue for another format. Raises BadOption."""
    if options.catalog and options.format not in (None, ICEBERG):
        raise BadOption(f"--catalog is of Iceberg tables, not of --format {options.format}")


def _given(options: argparse.Namespace, reads: bool, writes: bool) -> JobOptions:
    """Return what --option has. Raises BadOption."""
    fields = {name: how for argument, (name, how) in SAID.items() if hasattr(options, argument)}
    return sorted_options(options.option, reads, writes, fields)


def _reading(options: argparse.Namespace, writes: bool = False) -> dict[str, str]:
    """Return the options of the source, besides its connection and what it reads."""
    found = {"startingOffsets": options.starting, "maxOffsetsPerTrigger": str(options.batch or BATCH)}
    if options.reader:
        found["readerName"] = options.reader
    given = _given(options, True, writes).reading
    lower = set(map(str.lower, given))
    if any(name.startswith("starting") for name in lower):
        del found["startingOffsets"]
    return {**{name: value for name, value in found.items() if name.lower() not in lower}, **given}


def _every(options: argparse.Namespace) -> str | None:
    return options.every if options.continuous else None


def seconds_of(interval: str) -> float:
    """Return an interval in Spark's notation, such as `10 seconds`, in seconds."""
    number, unit = interval.split()
    return int(number) * UNITS_S[unit]


def _plan(
    options: argparse.Namespace,
    environ: Environ,
    checkpoint: str | None,
    to: str,
    target: Target | None = None,
) -> int:
    """Print what a query would do, and start nothing."""
    writes = target is None
    reach = reached(options, environ, reads=True, writes=writes)
    reach.checked(options.sources, _reading(options, writes))
    client, asker = reach.client(), BrokerClient(reach.quick())
    try:
        found = planned(
            options.sources,
            marks_in(checkpoint),
            options.starting,
            client,
            lags.leases(asker, reach.vhost) if options.reader else [],
            options.reader,
            None if target is None else _table_of(target),
        )
    finally:
        client.close()
        asker.close()
    print("\n".join([*as_lines(found), f"to {to}", f"checkpoint {checkpoint or 'in the log of the table'}"]))
    return DONE


def _table_of(target: Target) -> LakeTable | None:
    """Return the table that an archive would go on with; None if there is none. Raises PipelineError."""
    if target.format == PARQUET or not is_there(target):
        return None
    return lake_table(target.where, target.catalogue, target.format)


def _query(
    options: argparse.Namespace,
    environ: Environ,
    job: str,
    started: Callable[[SparkSession, Mapping[str, str]], tuple[StreamingQuery, Mapping[int, WrittenRows]]],
) -> int:
    """Run a streaming query to its end, reporting its progress. `started` returns it, and rows as for `watch`."""
    writes = job == "route"
    reach = reached(options, environ, reads=True, writes=writes)
    reading = reach.reading(options.sources, _reading(options, writes))
    reach.checked(options.sources, _reading(options, writes))
    _require_readable(reach, options.sources, options.reader)
    if writes:
        _require_exchange(reach, options.to_exchange)
    activity = Activity(job, _tell)
    reporter = ProgressReporter(reach.options)
    name = _name_of(job, options)
    with _spark(options, activity) as spark, metrics_in(options.metrics) as file, Stop().listening() as stop:
        report = Report(job, activity.tell, file)
        if not options.continuous and "minpartitions" not in map(str.lower, reading):
            reading["minPartitions"] = str(spark.sparkContext.defaultParallelism)

        def progressed(progress: dict[str, object], rows: int) -> None:
            found = progress_in(progress)
            if found is not None:
                rate = found.rows_per_s * rows / max(found.rows, 1)
                reporter.tell(attrs.evolve(found, name=name, rows=rows, rows_per_s=rate))

        def run() -> bool:
            query, written = started(spark, reading)
            return watch(query, report, stop, written, activity.doing, progressed)

        with ended(report) as end:
            try:
                end.well = on_a_busy_machine(job, activity.tell, run, stop)
            finally:
                reporter.close()
                report.unroutable = activity.log.unroutable() if activity.log else 0
    return DONE if end.well or options.continuous else INTERRUPTED


def _name_of(job: str, options: argparse.Namespace) -> str:
    """Return the name under which the broker shows a pipeline."""
    to = getattr(options, "target", None) or f"exchange {options.to_exchange}"
    name = getattr(options, "name", None) or f"{job} {','.join(options.sources)} to {to}"
    return name.encode()[:NAME_OCTETS_MAX].decode(errors="ignore")


def _rows(spark: SparkSession, reading: Mapping[str, str]) -> DataFrame:
    return spark.readStream.format("amqp").options(**reading).load()


def _require_readable(reach: BrokerEndpoint, sources: Sequence[str], reader: str | None) -> None:
    """Check the sources before Spark is started, which takes seconds. Raises PipelineError."""
    client = reach.client()
    try:
        for source in sources:
            client.partitions(source)
    except NoStream:
        if reader is None:
            raise Refused(f"'{source}' is a queue, no stream: --reader NAME reads it") from None
    finally:
        client.close()


def _require_exchange(reach: BrokerEndpoint, name: str) -> None:
    """Check that an exchange is there, as far as the user may know that. Raises PipelineError."""
    asker = BrokerClient(reach.quick())
    try:
        answer = asker.ask("GET", f"/api/exchanges/{quote(reach.vhost, safe='')}/{quote(name, safe='')}")
    finally:
        asker.close()
    if name and answer.status == 404:
        raise Missing(f"there is no exchange '{name}' in virtual host '{reach.vhost}'")


@contextmanager
def _spark(options: argparse.Namespace, activity: Activity) -> Iterator[SparkSession]:
    """Yield a session, and stop it afterwards unless it existed before."""
    from leveret.pipeline.session import session

    settings = {**SETTINGS, **dict(options.spark)}
    with activity.watched():
        if is_running():
            yield session("leveret pipeline", options.master, settings)
            return
        with java_log(options.log) as log:
            activity.tell(f"{activity.job}: starting {versions(os.environ)}")
            activity.doing("starting Spark")
            made = session("leveret pipeline", options.master, settings)
            activity.log = log
            keep_query_errors(log.file)
            keep_quiet(made)
            activity.doing("under way")
            try:
                with java_named(java_of(made)):
                    yield made
            finally:
                activity.doing("stopping Spark")
                stop_session(made)
                activity.doing(None)


def is_running() -> bool:
    """Return whether this process has a session."""
    if "pyspark" not in sys.modules:
        return False
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() is not None


def _show_workers(folder: Path) -> None:
    """Let Spark's workers on this machine import modules from a folder, as the driver does."""
    known = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), known)))

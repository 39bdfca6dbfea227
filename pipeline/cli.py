"""The arguments of `leveret pipeline ...`. The jobs themselves, and Spark, are imported when a job runs.

Exit codes are those of `leveret`: 0 done, 1 refused or failed, 2 wrong usage, 3 the broker cannot be reached or does
not let us in; 130 if Ctrl-C ended a job that had more to do.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Final

USAGE: Final = 2  # the exit code of wrong usage
TEXT: Final = "Move messages between the broker and a data lake with Spark; report dead letters and lag."
CONNECTION: Final = """\
The password comes from --password-file, from the variable LEVERET_PASSWORD, or is asked for; guest's is guest.
Exit codes: 0 done, 1 refused or failed, 2 wrong usage, 3 the broker cannot be reached or does not let us in,
130 ended by Ctrl-C with more to do. Ctrl-C ends a job after the running micro-batch; the next run continues there.
"""
ARCHIVE: Final = """\
examples:
  leveret pipeline archive orders /lake/orders --once              all messages there are; a second run: the new ones
  leveret pipeline archive orders /lake/orders --continuous --every 30s      what comes, too, until Ctrl-C or SIGTERM
  leveret pipeline archive orders refunds /lake/all --partition-by day,stream
  leveret pipeline archive jobs /lake/jobs --reader archive        a queue: its messages move to the lake
  leveret pipeline archive orders shop.orders --catalog lakehouse  to an Iceberg table
  leveret pipeline archive orders /lake/orders --decode json --schema order.json       bodies as typed columns
  leveret pipeline archive orders /lake/orders --decode avro --registry https://registry:8081
"""
DECODE: Final = """\
examples:
  leveret pipeline decode /lake/orders --decode json --schema order-2.json
  leveret pipeline decode /lake/orders --decode avro --registry https://registry:8081

For rows that `archive --decode` could not decode, once the schema is right: those that can be decoded now are moved to
the table, each once, and the others stay. Archiving may go on meanwhile.
"""
REPLAY: Final = """\
examples:
  leveret pipeline replay /lake/orders --to-exchange orders --from 2026-11-01 --until 2026-11-02T12:00
  leveret pipeline replay /lake/orders --to-exchange test --where "routing_key like 'eu.%'" --rate 500
  leveret pipeline replay /lake/orders --to-exchange orders --checkpoint /lake/replays/1

With --checkpoint, a replay that was interrupted goes on when it is run again, and nothing is published twice.
"""
ROUTE: Final = """\
examples:
  leveret pipeline route orders --to-exchange big --checkpoint /lake/big \\
      --sql "select body, 'large' as routing_key from messages where length(body) > 1000"
  leveret pipeline route orders --to-exchange checked --checkpoint /lake/checked --function shop:checked --continuous

The SQL reads the view `messages`; a function MODULE:NAME takes a DataFrame and returns one. The result has a column
`body`, and perhaps exchange, routing_key, properties, headers.
"""
DEAD_LETTERS: Final = """\
examples:
  leveret pipeline dead-letters dead
  leveret pipeline dead-letters dead --from 2026-11-01 --per day --picture dead.svg
  leveret pipeline dead-letters dead --csv > dead.csv

Messages of a queue that is no stream are reserved, read, and put back to their places, marked as redelivered.
"""
LAG: Final = """\
examples:
  leveret pipeline lag /lake/orders.checkpoint
  leveret pipeline lag /lake/*.checkpoint --watch 5
  leveret pipeline lag /lake/orders.checkpoint --max-behind 1000 && dbt run     only if the table is up to date
"""
FILES: Final = """\
examples:
  leveret pipeline files /lake/orders
  duckdb -c "select count(*) from read_parquet([$(leveret pipeline files /lake/orders | sed "s/.*/'&'/" | paste -sd,)])"

Each line of standard output is a file that is in the table now; how many, on standard error.
"""
CHECK: Final = """\
examples:
  leveret pipeline check /lake/orders
  leveret pipeline check /lake/orders --offline

Reads which offsets are in the table, and compares them with the checkpoint and with what the broker has. The exit code
is 1 if messages are missing or there more than once, or a file is gone.
"""
OPTIMIZE: Final = """\
examples:
  leveret pipeline optimize /lake/orders --dry-run
  leveret pipeline optimize /lake/orders --file-size 128MB
  leveret pipeline vacuum /lake/orders --older-than 7d --delete     removes the files that were joined

Rows, columns and positions stay as they are. Files that are in the way of nobody are left alone, so a second run has
nothing to do. The files that were joined stay in the folder for readers that have begun with them.
"""
CLEAN: Final = """\
examples:
  leveret pipeline clean /lake/orders                       tells what would be removed
  leveret pipeline clean /lake/orders --older-than 2d --delete

Runs that were killed leave files that are in no table. A run that is under way has such files, too: do not name a time
that is shorter than a micro-batch takes. What was in an earlier version of the table is also removed when it is as old.
"""
CONVERT: Final = """\
examples:
  leveret pipeline convert /lake/orders --dry-run
  leveret pipeline convert /lake/orders

Stop archiving into the folder first. Its files stay where they are, and so does the checkpoint, which the next run of
`leveret pipeline archive` goes on with.
"""
BUNDLE: Final = """\
examples:
  leveret pipeline bundle /tmp/leveret.zip
  spark-submit --py-files /tmp/leveret.zip program.py      the program calls pyspark_amqp.register(spark)

Where Spark's Python runs, on the driver and on executors, pyarrow has to be installed; nothing else.
"""
SIZES: Final = {"kB": 1000, "MB": 1_000_000, "GB": 1_000_000_000}
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNITS: Final = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours"}

Run = Callable[[argparse.Namespace, Mapping[str, str]], int]
Actions = argparse._SubParsersAction  # the type of `add_subparsers`, which argparse keeps private


class Pipeline:
    """The command `pipeline`, in the form that `leveret` loads."""

    text = TEXT

    def add_to(self, parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
        parser.set_defaults(command=partial(_print_help, parser))
        actions = parser.add_subparsers(title="commands", metavar="COMMAND")
        _add_archive(actions, environ)
        _add_replay(actions, environ)
        _add_route(actions, environ)
        _add_dead_letters(actions, environ)
        _add_lag(actions, environ)
        _add_bundle(actions)
        _add_files(actions)
        _add_check(actions, environ)
        _add_optimize(actions)
        _add_clean(actions)
        _add_convert(actions)
        _add_decode(actions)


COMMAND: Final = Pipeline()


def _add_archive(actions: Actions[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "Write streams and queues to a Delta table, each message exactly once."
    adding = _add(actions, environ, "archive", text, ARCHIVE)
    adding.add_argument("sources", metavar="SOURCE", nargs="+", help="a stream, super stream, or queue")
    adding.add_argument("target", metavar="TARGET", help="the folder of the table, or a URI")
    adding.add_argument(
        "--format",
        choices=["delta", "iceberg", "parquet"],
        help="default: that of an existing table, else delta; parquet is a folder that only Spark reads rightly",
    )
    _add_catalogue(adding, "TARGET")
    adding.add_argument(
        "--engine",
        choices=["auto", "pyarrow", "spark"],
        default="auto",
        help="what reads and writes: this process with pyarrow, or Spark (default: the former, but for --once with"
        " more than 10,000,000 messages or 4 GiB, for which Spark is worth the ten seconds in which it starts)",
    )
    adding.add_argument(
        "--partition-by",
        metavar="COLUMNS",
        type=_columns,
        default=("day",),
        help="day, hour, stream, routing_key, header:NAME, with commas between them, or none (default: day)",
    )
    adding.add_argument(
        "--file-size",
        metavar="SIZE",
        type=_size,
        help="begin another data file when one is about so large, such as 64MB (default: 256MB)",
    )
    adding.add_argument(
        "--name", metavar="NAME", help="the name under which the broker shows it (default: what it does)"
    )
    _add_decoding(adding, is_needed=False)
    adding.add_argument(
        "--without-body",
        action="store_true",
        help="with --decode: the table has the decoded columns only, so it cannot be replayed",
    )
    # Of a process that the node runs: it ends when the node does, however that ends.
    adding.add_argument("--with-input", action="store_true", help=argparse.SUPPRESS)
    _add_query(adding, "beside the target")


def _add_replay(actions: Actions[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "Publish the messages of an archive to an exchange, in the order in which they came."
    adding = _add(actions, environ, "replay", text, REPLAY)
    adding.add_argument("lake", metavar="LAKE", help="a table that archive has written")
    adding.add_argument(
        "--format", choices=["delta", "iceberg", "parquet"], help="default: found out from the folder"
    )
    _add_catalogue(adding, "LAKE")
    adding.add_argument("--to-exchange", metavar="NAME", required=True, help="'' is the default exchange")
    adding.add_argument(
        "--routing-key", metavar="KEY", help="for all messages (default: the one each message had)"
    )
    _add_times(adding)
    adding.add_argument("--where", metavar="SQL", help="a condition on the archive's columns")
    adding.add_argument(
        "--rate", metavar="N", type=_whole, default=0, help="messages/s (default: 0, as fast as it goes)"
    )
    adding.add_argument("--checkpoint", metavar="DIR", help="where to keep its progress")
    _add_running(adding)


def _print_help(
    parser: argparse.ArgumentParser, options: argparse.Namespace, environ: Mapping[str, str]
) -> int:
    parser.print_help()
    return USAGE


def _add_route(actions: Actions[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "Read streams or queues, change messages with SQL or a function, publish them to an exchange."
    adding = _add(actions, environ, "route", text, ROUTE)
    adding.add_argument("sources", metavar="SOURCE", nargs="+", help="a stream, super stream, or queue")
    adding.add_argument("--to-exchange", metavar="NAME", required=True, help="'' is the default exchange")
    how = adding.add_mutually_exclusive_group(required=True)
    how.add_argument("--sql", help="a query of the view `messages`")
    how.add_argument(
        "--function", metavar="MODULE:NAME", type=_function, help="takes a DataFrame, returns one"
    )
    adding.add_argument(
        "--delivery",
        choices=["exactly-once", "at-least-once"],
        default="exactly-once",
        help="default: %(default)s",
    )
    _add_query(adding, None)


def _add_dead_letters(actions: Actions[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "Report dead letters by queue, reason and time, as a table and, if wanted, a picture."
    adding = _add(actions, environ, "dead-letters", text, DEAD_LETTERS)
    adding.add_argument("sources", metavar="SOURCE", nargs="+", help="where dead letters go: streams, queues")
    _add_times(adding)
    adding.add_argument("--per", choices=["minute", "hour", "day"], default="hour", help="default: hour")
    adding.add_argument(
        "--most",
        metavar="N",
        type=_positive,
        default=100_000,
        help="messages of a queue to look at (default: %(default)s)",
    )
    shown = adding.add_mutually_exclusive_group()
    shown.add_argument("--csv", action="store_true", help="print CSV: time, queue, reason, messages")
    shown.add_argument("--json", action="store_true", help="print JSON")
    adding.add_argument(
        "--picture", metavar="FILE", type=Path, help="bars over time, as .svg or .png; needs leveret[charts]"
    )
    _add_running(adding)


def _add_lag(actions: Actions[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "Report how far queries are behind, by their checkpoints. Needs no Spark."
    adding = _add(actions, environ, "lag", text, LAG)
    adding.add_argument("checkpoints", metavar="CHECKPOINT", nargs="+", type=Path)
    adding.add_argument(
        "--watch", metavar="SECONDS", type=float, help="repeat at such intervals, until Ctrl-C"
    )
    adding.add_argument("--json", action="store_true", help="print JSON; with --watch, a line each time")
    adding.add_argument(
        "--max-behind",
        metavar="N",
        type=_whole,
        help="exit with 1 if more messages than that are behind in all, or it is unknown how many",
    )
    adding.add_argument(
        "--max-age",
        metavar="SECONDS",
        type=_whole,
        help="exit with 1 if a message that is behind has waited longer in its stream, or it is unknown how long",
    )


def _add_files(actions: Actions[argparse.ArgumentParser]) -> None:
    adding = _add_plain(actions, "files", "List the files that are in a table now. Needs no Spark.", FILES)
    _add_table(adding)
    adding.add_argument(
        "--json", action="store_true", help="print a line of JSON for each file, with its rows"
    )


def _add_check(actions: Actions[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "Check that a table has each message once, and compare it with the broker. Needs no Spark."
    adding = _add(actions, environ, "check", text, CHECK, "table_commands")
    _add_table(adding)
    adding.add_argument("--checkpoint", metavar="DIR", help="of its query (default: beside the target)")
    adding.add_argument("--offline", action="store_true", help="do not ask the broker")
    adding.add_argument("--json", action="store_true", help="print JSON")


def _add_optimize(actions: Actions[argparse.ArgumentParser]) -> None:
    text = "Join the small files of a table into larger ones; archiving may go on meanwhile. Needs no Spark."
    adding = _add_plain(actions, "optimize", text, OPTIMIZE)
    _add_table(adding)
    adding.add_argument(
        "--file-size",
        metavar="SIZE",
        type=_size,
        default="256MB",
        help="about the size of a file, such as 64MB (default: %(default)s)",
    )
    adding.add_argument(
        "--dry-run", action="store_true", help="print how many files it would read, and do nothing"
    )


def _add_clean(actions: Actions[argparse.ArgumentParser]) -> None:
    text = (
        "Tell which files in a table's folder are in no table, and remove them with --delete. Needs no Spark."
    )
    adding = _add_plain(actions, "clean", text, CLEAN, also=("vacuum",))
    _add_table(adding)
    adding.add_argument(
        "--older-than",
        metavar="AGE",
        type=_hours,
        default="7d",
        help="leave younger files: hours or days, such as 12h, 7d (default: %(default)s)",
    )
    adding.add_argument("--delete", action="store_true", help="remove them")


def _add_convert(actions: Actions[argparse.ArgumentParser]) -> None:
    text = "Make a Delta table of a folder of Parquet that archive has written. Needs no Spark."
    adding = _add_plain(actions, "convert", text, CONVERT)
    adding.add_argument("target", metavar="TARGET", help="the folder")
    adding.add_argument("--checkpoint", metavar="DIR", help="of its query (default: beside the target)")
    adding.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")


def _add_decode(actions: Actions[argparse.ArgumentParser]) -> None:
    text = "Decode rows again that could not be decoded, and move them to their table. Needs no Spark."
    adding = _add_plain(actions, "decode", text, DECODE)
    adding.add_argument("target", metavar="TARGET", help="a table that archive --decode has written")
    _add_catalogue(adding, "TARGET")
    _add_decoding(adding, is_needed=True)


def _add_bundle(actions: Actions[argparse.ArgumentParser]) -> None:
    text = "Make the one file that spark-submit takes with --py-files to know format('amqp')."
    adding = _add_plain(actions, "bundle", text, BUNDLE, "commands")
    adding.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        type=Path,
        default=Path("leveret.zip"),
        help="the zip to write (default: %(default)s)",
    )


# Arguments of several jobs.


def _add_decoding(adding: argparse.ArgumentParser, is_needed: bool) -> None:
    adding.add_argument(
        "--decode",
        choices=["json", "avro", "protobuf"],
        required=is_needed,
        help="have the fields of bodies as typed columns; needs leveret[decode]",
    )
    adding.add_argument(
        "--schema",
        metavar="FILE",
        help="the schema of all bodies: a JSON Schema or columns as Spark declares them (id bigint, at timestamp),"
        " an Avro schema, or descriptors of messages (protoc --include_imports --descriptor_set_out=FILE)",
    )
    adding.add_argument(
        "--message", metavar="NAME", help="the message of a --schema of protobuf, such as shop.Order"
    )
    adding.add_argument(
        "--registry",
        metavar="URL",
        help="a schema registry, by whose ids bodies name their schemas in Confluent's wire format",
    )
    adding.add_argument("--registry-user", metavar="NAME", help="the user to log in as there")
    adding.add_argument(
        "--registry-password-file",
        metavar="FILE",
        help="a file with its password (default: the variable LEVERET_REGISTRY_PASSWORD)",
    )
    adding.add_argument(
        "--registry-token-file",
        metavar="FILE",
        help="a file with a token instead, read again for each request (or the variable LEVERET_REGISTRY_TOKEN)",
    )
    adding.add_argument("--registry-ca-file", metavar="FILE", help="certificates to trust there")
    adding.add_argument(
        "--decode-prefix",
        metavar="TEXT",
        help="what names of decoded columns begin with, where they would be those of the message's own",
    )
    adding.add_argument(
        "--undecoded",
        metavar="TABLE",
        help="the table for rows that cannot be decoded (default: TARGET.undecoded, with --catalog TARGET_undecoded)",
    )


def _add_plain(
    actions: Actions[argparse.ArgumentParser],
    name: str,
    text: str,
    examples: str,
    module: str = "table_commands",
    also: Sequence[str] = (),
) -> argparse.ArgumentParser:
    """Add a job that asks no broker. `also` has other names of it."""
    adding = actions.add_parser(
        name,
        aliases=also,
        help=text,
        description=text,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    adding.set_defaults(command=_loaded(name.replace("-", "_"), module))
    return adding


def _add(
    actions: Actions[argparse.ArgumentParser],
    environ: Mapping[str, str],
    name: str,
    text: str,
    examples: str,
    module: str = "commands",
) -> argparse.ArgumentParser:
    """Add a job, with the options of its connection."""
    adding = _add_plain(actions, name, text, f"{examples}\n{CONNECTION}", module)
    endpoint = environ.get("LEVERET_URL") or "http://127.0.0.1:15672"
    user = environ.get("LEVERET_USER") or "guest"
    adding.add_argument(
        "--endpoint",
        metavar="URL",
        default=endpoint,
        help="the broker's HTTP front-end, or some with commas (default: $LEVERET_URL, else %(default)s)",
    )
    adding.add_argument("--vhost", metavar="NAME", default="/", help="the virtual host (default: /)")
    adding.add_argument(
        "--user", default=user, help="the user to log in as (default: $LEVERET_USER, else %(default)s)"
    )
    adding.add_argument("--password-file", metavar="FILE", help="a file with the password")
    adding.add_argument("--ca-file", metavar="FILE", help="certificates to trust at https URLs")
    adding.add_argument(
        "--option",
        metavar="KEY=VALUE",
        type=_pair,
        action="append",
        default=[],
        help="any other option of the source and sink (docs/spark.md), such as retrySeconds=5; may be repeated",
    )
    return adding


def _loaded(name: str, module: str) -> Run:
    def run(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
        job: Run = getattr(import_module(f"leveret.pipeline.jobs.{module}"), name)
        return job(options, environ)

    return run


def _add_table(adding: argparse.ArgumentParser) -> None:
    adding.add_argument("target", metavar="TARGET", help="a table that archive has written")
    _add_catalogue(adding, "TARGET")


def _add_catalogue(adding: argparse.ArgumentParser, table: str) -> None:
    adding.add_argument(
        "--catalog",
        metavar="NAME",
        help=f"an Iceberg catalogue of pyiceberg's configuration; {table} is NAMESPACE.TABLE in it (default: a file of"
        " SQLite in the folder of an Iceberg table)",
    )


def _add_query(adding: argparse.ArgumentParser, checkpoint: str | None) -> None:
    """Add the options of a streaming query. `checkpoint` describes the default place of the checkpoint."""
    default = f" (default: {checkpoint})" if checkpoint else ""
    adding.add_argument(
        "--checkpoint",
        metavar="DIR",
        required=not checkpoint,
        help=f"where the query keeps its position{default}",
    )
    adding.add_argument(
        "--reader",
        metavar="NAME",
        help="read ordinary queues, too: the broker reserves their messages under this name",
    )
    adding.add_argument(
        "--starting",
        choices=["earliest", "latest"],
        default="earliest",
        help="where a new query begins in a stream (default: earliest)",
    )
    adding.add_argument(
        "--batch", metavar="N", type=_positive, help="messages in a micro-batch, at most (default: 1000000)"
    )
    when = adding.add_mutually_exclusive_group()
    when.add_argument(
        "--once",
        "--available-now",
        action="store_true",
        help="end with the messages that exist at the start (default)",
    )
    when.add_argument("--continuous", action="store_true", help="go on until Ctrl-C")
    adding.add_argument(
        "--every",
        metavar="TIME",
        type=_interval,
        default="10s",
        help="with --continuous: how often, such as 500ms, 10s, 5m (default: 10s)",
    )
    _add_running(adding)


def _add_running(adding: argparse.ArgumentParser) -> None:
    adding.add_argument("--dry-run", action="store_true", help="print what would be done, and do nothing")
    adding.add_argument(
        "--metrics", metavar="FILE", type=Path, help="add a line of JSON for each micro-batch"
    )
    adding.add_argument(
        "--log",
        metavar="FILE",
        type=Path,
        help="where to keep what Java and Spark print (default: a temporary file, kept if the job fails)",
    )
    adding.add_argument("--master", default="local[*]", help="where Spark runs (default: %(default)s)")
    adding.add_argument(
        "--spark",
        metavar="KEY=VALUE",
        type=_pair,
        action="append",
        default=[],
        help="a setting of Spark's, such as spark.driver.memory=4g; may be repeated",
    )


def _add_times(adding: argparse.ArgumentParser) -> None:
    for name, what in (("from", "at this time or later"), ("until", "before this time")):
        adding.add_argument(
            f"--{name}",
            dest={"from": "since", "until": "until"}[name],
            metavar="TIME",
            type=_time,
            help=f"messages that arrived {what}: 2026-11-22, 2026-11-22T08:30 (UTC), 2026-11-22T08:30+01:00",
        )


# Parsers of values.


def _columns(text: str) -> tuple[str, ...]:
    known = ("day", "hour", "stream", "routing_key")
    given = () if text == "none" else tuple(dict.fromkeys(text.split(",")))
    found = tuple(re.sub("^header:", "header_", each) for each in given)
    if not all(each in known or re.fullmatch(r"header_[^ ;{}()=\s]+", each) for each in found):
        raise argparse.ArgumentTypeError(f"{text!r} is not none, or some of {', '.join(known)}, header:NAME")
    return found


def _whole(text: str) -> int:
    if not re.fullmatch("[0-9]{1,15}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number")
    return int(text)


def _positive(text: str) -> int:
    found = _whole(text)
    if not found:
        raise argparse.ArgumentTypeError("0 is too few; 1 is the least")
    return found


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return key, value


def _function(text: str) -> str:
    if not re.fullmatch(r"[\w.]+:\w+", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not MODULE:NAME")
    return text


def _interval(text: str) -> str:
    """Return an interval in Spark's notation."""
    found = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 500ms, 10s, 5m, 1h")
    return f"{found[1]} {UNITS[found[2]]}"


def _size(text: str) -> int:
    """Return a size in bytes."""
    found = re.fullmatch(r"([0-9]{1,6})(kB|MB|GB)", text)
    if not found or not int(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 64MB or 1GB")
    return int(found[1]) * SIZES[found[2]]


def _hours(text: str) -> int:
    """Return an age in hours."""
    found = re.fullmatch(r"([0-9]{1,6})(h|d)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age such as 12h or 7d")
    return int(found[1]) * (24 if found[2] == "d" else 1)


def _time(text: str) -> int:
    """Return a time in ms since 1970."""
    try:
        given = datetime.fromisoformat(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a time such as 2026-11-22T08:30") from None
    since = (given if given.tzinfo else given.replace(tzinfo=UTC)) - EPOCH
    ms = since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000
    if ms < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is before 1970")
    return ms

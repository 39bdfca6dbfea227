"""`leveret list ...`: a node's objects, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from leveret.arguments.names import meant
from leveret.server.cli.api_commands import Working
from leveret.server.cli.command_parser import ALIKE, Add, Environ, control
from leveret.server.cli.exit_codes import DONE

if TYPE_CHECKING:
    from leveret.server.cli.api import Api, Row

EXAMPLES: Final = """\
examples:
  leveret list queues
  leveret list queues --sort messages --reverse --limit 10
  leveret list queues --columns name,messages,message_stats.publish_details.rate --filter '^orders'
  leveret list bindings --vhost /prod --json

--filter is a regular expression for the name; dots in --columns lead into objects. Without --vhost the list is of every
virtual host that the user may see. JSON has every column, unless --columns is given.
"""

NO_SHORT: Final[Mapping[str, str]] = {}
QUEUE_COLUMNS: Final = ("vhost", "name", "type", "messages", "messages_unacknowledged", "consumers", "state")

# By name: the path below /api, the columns that a table shows, whether there is one list for each virtual host, and
# whether the node gives pages.
THINGS: Final[Mapping[str, tuple[str, Sequence[str], bool, bool]]] = {
    "queues": ("queues", QUEUE_COLUMNS, True, True),
    "streams": ("queues", ("vhost", "name", "messages", "consumers", "state"), True, True),
    "exchanges": (
        "exchanges",
        ("vhost", "name", "type", "durable", "auto_delete", "internal", "arguments"),
        True,
        True,
    ),
    "bindings": (
        "bindings",
        ("vhost", "source", "destination_type", "destination", "routing_key", "arguments"),
        True,
        False,
    ),
    "connections": (
        "connections",
        ("name", "client", "user", "vhost", "protocol", "state", "channels"),
        False,
        True,
    ),
    "channels": (
        "channels",
        (
            "name",
            "client",
            "user",
            "vhost",
            "consumer_count",
            "messages_unacknowledged",
            "prefetch_count",
        ),
        False,
        True,
    ),
    "consumers": (
        "consumers",
        (
            "queue.vhost",
            "queue.name",
            "consumer_tag",
            "client",
            "channel",
            "ack_required",
            "prefetch_count",
            "slow",
            "warnings",
        ),
        True,
        False,
    ),
    "shovels": (
        "shovels",
        ("vhost", "name", "state", "src_uri", "dest_uri", "forwarded", "reason"),
        True,
        False,
    ),
    "pipelines": (
        "leveret/pipelines",
        ("vhost", "name", "state", "rows", "behind", "reason"),
        True,
        False,
    ),
    "federation-links": (
        "federation-links",
        ("id", "vhost", "type", "exchange", "queue", "upstream", "status", "forwarded", "error"),
        True,
        False,
    ),
    "vhosts": ("vhosts", ("name", "messages", "tracing", "default_queue_type", "description"), False, False),
    "users": ("users", ("name", "tags"), False, False),
    "permissions": ("permissions", ("vhost", "user", "configure", "write", "read"), False, False),
    "topic-permissions": ("topic-permissions", ("vhost", "user", "exchange", "write", "read"), False, False),
    "policies": (
        "policies",
        ("vhost", "name", "pattern", "apply-to", "priority", "definition"),
        True,
        False,
    ),
    "operator-policies": (
        "operator-policies",
        ("vhost", "name", "pattern", "apply-to", "priority", "definition"),
        True,
        False,
    ),
    "limits": ("vhost-limits", ("vhost", "value"), False, False),
    "user-limits": ("user-limits", ("user", "value"), False, False),
    "listeners": ("overview", ("protocol", "ip_address", "port"), False, False),
}


# Short names of columns, by list: the name that a client gives itself, and the channel of a consumer.
SHORT: Final[Mapping[str, Mapping[str, str]]] = {
    "connections": {"client": "user_provided_name"},
    "channels": {"client": "connection_details.user_provided_name"},
    "consumers": {"client": "channel_details.user_provided_name", "channel": "channel_details.name"},
}


def add_list(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(list_things), EXAMPLES)
    parser.add_argument("what", choices=list(THINGS), metavar="WHAT", help=", ".join(THINGS))
    parser.add_argument("--vhost", metavar="NAME", help="only objects of this virtual host")
    parser.add_argument("--columns", metavar="NAME,...", help="the columns to show")
    parser.add_argument("--sort", metavar="COLUMN", help="the column to sort by")
    parser.add_argument("--reverse", action="store_true", help="largest first")
    parser.add_argument(
        "--filter", metavar="PATTERN", type=pattern, help="only names that match this expression"
    )
    parser.add_argument("--limit", metavar="N", type=count, help="the most rows")


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not a regular expression: {error}") from None
    return text


def count(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,9}", text) or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 999999999")
    return int(text)


def list_things(options: argparse.Namespace, api: Api) -> int:
    columns = options.columns.split(",") if options.columns else None
    short = SHORT.get(options.what, {})
    options.sort = short.get(options.sort, options.sort)
    rows = listed(options, api, None if columns is None else [short.get(each, each) for each in columns])
    chosen = [short.get(each, each) for each in columns or ()]
    _warn(options.what, rows, [*chosen, *([options.sort] if options.sort else [])])
    if options.json:
        print(json.dumps([row if columns is None else shown(row, columns, short) for row in rows], indent=2))
        return DONE
    from leveret.server.cli import text

    columns = columns or list(THINGS[options.what][1])
    told = [shown(row, columns, short) for row in rows]
    print(text.table(told, columns) if rows else f"no {options.what}")
    return DONE


def _warn(what: str, rows: Sequence[Row], columns: Iterable[str]) -> None:
    """Warn of columns that no row has; most likely their names are misspelt."""
    shown = set(THINGS[what][1])
    for column in dict.fromkeys(columns):
        if rows and not any(column.partition(".")[0] in row for row in rows):
            close = meant(column, {name for row in rows for name in row} | shown | {"messages"}, ALIKE)
            print(
                f"leveret: nothing in this list has {column!r}{close}; --json shows what there is",
                file=sys.stderr,
            )
        elif not rows and column not in shown and (close := meant(column, shown)):
            print(f"leveret: there is hardly a column {column!r}{close}", file=sys.stderr)


def listed(options: argparse.Namespace, api: Api, columns: Sequence[str] | None) -> list[Row]:
    from leveret.server.cli.api import path

    section, _, by_host, paged = THINGS[options.what]
    names = section.split("/")
    below = path(*names, options.vhost) if by_host and options.vhost else path(*names)
    if paged and options.what != "streams":
        return list(api.rows(below, _query(options, columns), options.limit))
    if options.what == "listeners":
        rows = _listeners(api.get(below))
    else:
        rows = list(api.rows(below)) if paged else api.whole(below)
    chosen = _chosen(rows, options)
    if options.vhost and not chosen and not by_host:
        _require_host(options.vhost, api)
    return chosen


def _require_host(name: str, api: Api) -> None:
    """Raise Refused if there is no such virtual host."""
    from leveret.server.cli.api import Refused, path

    try:
        api.get(path("vhosts", name))
    except Refused as error:
        if error.status == 404:
            raise


def _query(options: argparse.Namespace, columns: Sequence[str] | None) -> dict[str, str]:
    """Return the query for a list with pages, which the node filters and sorts."""
    query: dict[str, str] = {}
    if columns or not options.json:
        short = SHORT.get(options.what, {})
        usual = [short.get(each, each) for each in THINGS[options.what][1]]
        wanted = [*(columns or usual), *([options.sort] if options.sort else [])]
        query["columns"] = ",".join(dict.fromkeys(wanted))
    if options.filter:
        query |= {"name": options.filter, "use_regex": "true"}
    if options.sort:
        query |= {"sort": options.sort, "sort_reverse": "true" if options.reverse else "false"}
    return query


def _chosen(rows: Iterable[Row], options: argparse.Namespace) -> list[Row]:
    """Filter and sort a list that the node returns whole."""
    kept = [row for row in rows if options.what != "streams" or row.get("type") == "stream"]
    if options.vhost:
        kept = [row for row in kept if row.get("vhost", options.vhost) == options.vhost]
    if options.filter:
        found = re.compile(options.filter)
        kept = [row for row in kept if any(found.search(name) for name in _names(row))]
    if options.sort:
        kept.sort(key=lambda row: order(cell(row, options.sort)), reverse=options.reverse)
    return kept[: options.limit]


def _names(row: Row) -> list[str]:
    """Return the names that a row is found by: either end of a binding, the user of a permission."""
    keys = ("name", "source", "destination", "user", "queue.name", "protocol")
    return [name for key in keys if isinstance(name := cell(row, key), str)]


def _listeners(overview: object) -> list[Row]:
    from leveret.server.cli.api import rows_of

    return rows_of(overview.get("listeners")) if isinstance(overview, Mapping) else []


def cell(row: Row, column: str) -> object:
    """Return the value in a column, whose dots lead into objects; None if there is none."""
    value: object = row
    for name in column.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(name)
    return value


def shown(row: Row, columns: Iterable[str], short: Mapping[str, str] = NO_SHORT) -> dict[str, object]:
    """Return the values of columns, some of which have `short` names."""
    return {column: cell(row, short.get(column, column)) for column in columns}


def order(value: object) -> tuple[int, float, str]:
    """Return a sort key: absent values first, then numbers, then text."""
    if value is None:
        return 0, 0.0, ""
    if isinstance(value, int | float):
        return 1, float(value), ""
    return 2, 0.0, str(value)


ADD: Final[Mapping[str, Add]] = {"list": add_list}

"""`leveret log`: the levels of a node's log, and its lines as they come.

The node keeps its last lines in memory. `follow` asks for those after the last that it has seen, and goes on when the
node has started anew.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from leveret.server.cli.api_commands import Working
from leveret.server.cli.command_parser import Add, Environ, control, parts_of, put
from leveret.server.cli.exit_codes import DONE
from leveret.server.cli.lists import count
from leveret.server.cli.queries import asked

if TYPE_CHECKING:
    from leveret.server.cli.api import Api, Row

FOLLOW_EXAMPLES: Final = """\
examples:
  leveret log follow
  leveret log follow --level warning --lines 100
  leveret log follow --category http --text orders
  leveret log follow --once --json

A node keeps 2000 lines at most; the file that [log.file] names has all of them. Only administrators may see the log.
"""
PAUSE_S: Final = 1.0
LINES: Final = 20
AT_ONCE: Final = 2000  # lines of one request
FIELDS: Final = ("connection", "user", "vhost")


def add_log(parser: argparse.ArgumentParser, environ: Environ) -> None:
    from leveret.observability.log_levels import CATEGORIES, LEVELS

    parts = parts_of(parser)
    following = put(parts, "follow", "Print the log as it is written, until Ctrl-C.")
    control(following, environ, Working(follow), FOLLOW_EXAMPLES)
    following.add_argument(
        "--lines", metavar="N", type=count, default=LINES, help=f"of those before (default: {LINES})"
    )
    following.add_argument("--level", choices=LEVELS[:-1], default="debug", help="the least level")
    following.add_argument(
        "--category", metavar="CATEGORY", choices=CATEGORIES, default="", help=", ".join(CATEGORIES)
    )
    following.add_argument("--text", default="", help="only lines with this text, whatever the capitals")
    following.add_argument("--once", action="store_true", help="print what there is, and exit")
    control(
        put(parts, "show", "Show the level of the log, and of each of its categories."), environ, show_log
    )
    setting = put(parts, "level", "Set the level of the log, or of one category, until the next reload.")
    control(setting, environ, set_log_level)
    setting.add_argument("level", metavar="LEVEL", choices=LEVELS, help=", ".join(LEVELS))
    setting.add_argument(
        "category",
        metavar="CATEGORY",
        nargs="?",
        choices=CATEGORIES,
        help=f"the category (default: all that have no level of their own): {', '.join(CATEGORIES)}",
    )


def show_log(options: argparse.Namespace, environ: Environ) -> int:
    return asked(options, environ, "GET", "/api/leveret/log")


def set_log_level(options: argparse.Namespace, environ: Environ) -> int:
    from urllib.parse import urlencode

    query = "?" + urlencode({"category": options.category}) if options.category else ""
    return asked(options, environ, "PUT", f"/api/leveret/log/level/{options.level}{query}")


def follow(options: argparse.Namespace, api: Api) -> int:
    for row in followed(options, api, time.sleep):
        print(json.dumps(row) if options.json else line(row), flush=True)
    return DONE


def followed(options: argparse.Namespace, api: Api, sleep: Callable[[float], object]) -> Iterator[Row]:
    """Yield the lines of the log that suit, first those before. Waits for a node that does not answer any more."""
    from leveret.server.cli.control_client import Unreachable

    query = {name: getattr(options, name) for name in ("level", "category", "text") if getattr(options, name)}
    last, wanted, is_away = 0, min(options.lines, AT_ONCE), False
    while True:
        try:
            told = page(api, {**query, "after": str(last), "count": str(wanted)})
        except Unreachable as error:
            if options.once or wanted != AT_ONCE:  # it has never answered
                raise
            if not is_away:
                print(f"leveret: {error}; waiting", file=sys.stderr)
            is_away = True
        else:
            is_away = False
            if told.last < last:  # the node has started anew, and counts from 1
                print("leveret: the node has started anew", file=sys.stderr)
                last = 0
                continue
            yield from told.rows
            last, wanted = told.last, AT_ONCE
            if options.once:
                return
        sleep(PAUSE_S)


@attrs.frozen
class LogPage:
    """Some lines of the log, and the id of the last of all."""

    rows: Sequence[Row]
    last: int


def page(api: Api, query: Mapping[str, str]) -> LogPage:
    """Ask for lines. Raises as `Api` does."""
    told = api.get("/api/leveret/log/lines", query)
    content = told if isinstance(told, Mapping) else {}
    rows, last = content.get("lines"), content.get("last")
    found = [row for row in rows if isinstance(row, Mapping)] if isinstance(rows, list) else []
    return LogPage(found, last if isinstance(last, int) else 0)


def line(row: Row) -> str:
    """Return a line as it is in a log of text, and below it its traceback, if it has one."""
    from leveret.server.cli.text import plain

    message = str(row.get("message", ""))
    fields = {name: str(row[name]) for name in FIELDS if row.get(name)}
    more = "".join(f" {name}={json.dumps(text)}" for name, text in fields.items() if text not in message)
    level = str(row.get("level", "")).upper()
    head = f"{row.get('time', '')} {level:7} {row.get('logger', '')}: {message}{more}"
    trace = str(row.get("exception", ""))
    return plain(head).replace("\n", "\\n") + (f"\n{plain(trace)}" if trace else "")


ADD: Final[Mapping[str, Add]] = {"log": add_log}

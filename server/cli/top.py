"""`leveret top`: a node's activity, frame by frame.

`sample` asks the node, `frame` turns the answer into lines (a pure function, without clock or terminal), and `Screen`
(`screen.py`) draws them on the terminal.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import attrs

from leveret.server.cli.api_commands import Working
from leveret.server.cli.command_parser import Add, Environ, control
from leveret.server.cli.exit_codes import DONE, failed
from leveret.server.cli.lists import cell

if TYPE_CHECKING:
    from leveret.server.cli.api import Api, Row

EXAMPLES: Final = """\
examples:
  leveret top
  leveret top --sort length --interval 5
  leveret top --once

Keys: q quits, s switches between sorting by rate and by length. Rates are messages a second.
"""
SIZE: Final = (100, 30)  # of a single frame: columns and lines
LEAST: Final = (40, 12)
ROWS_MAX: Final = 200
IN: Final = "message_stats.publish_details.rate"
OUT: Final = "message_stats.deliver_get_details.rate"
ACK: Final = "message_stats.ack_details.rate"
SORTS: Final = {"rate": IN, "length": "messages"}

# Title, column of the API, width; 0: the rest of the line.
Columns = Sequence[tuple[str, str, int]]
QUEUES: Final[Columns] = (
    ("QUEUE", "name", 0),
    ("VHOST", "vhost", 8),
    ("READY", "messages_ready", 9),
    ("UNACKED", "messages_unacknowledged", 9),
    ("CONSUMERS", "consumers", 9),
    ("IN/S", IN, 9),
    ("OUT/S", OUT, 9),
    ("ACK/S", ACK, 9),
)
CONNECTIONS: Final[Columns] = (
    ("CONNECTION", "client", 0),
    ("USER", "user", 10),
    ("PROTOCOL", "protocol", 13),
    ("STATE", "state", 9),
    ("CHANNELS", "channels", 8),
    ("FROM B/S", "recv_oct_details.rate", 10),
    ("TO B/S", "send_oct_details.rate", 10),
)


@attrs.frozen
class Sample:
    """The node's answers at one time."""

    overview: Row
    queues: Sequence[Row]
    connections: Sequence[Row]


def add_top(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(top), EXAMPLES)
    parser.add_argument("--once", action="store_true", help="print a single frame, and exit")
    parser.add_argument("--sort", choices=list(SORTS), default="rate", help="order of queues (default: rate)")
    parser.add_argument(
        "--interval", metavar="SECONDS", type=seconds, default=2.0, help="between frames (default: 2)"
    )


def seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0.1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds from 0.1 to 3600")
    return value


def top(options: argparse.Namespace, api: Api) -> int:
    import sys

    if options.once or options.json:
        return _once(options, api)
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        return failed("top needs a terminal; --once prints a single frame anywhere")
    from leveret.server.cli.screen import Screen

    with Screen() as screen:
        screen.show(lambda rows, sort: sample(api, rows, sort), options.sort, options.interval)
    return DONE


def _once(options: argparse.Namespace, api: Api) -> int:
    found = sample(api, SIZE[1], options.sort)
    if options.json:
        print(json.dumps(attrs.asdict(found), indent=2))
    else:
        print("\n".join(line.rstrip() for line in frame(found, *SIZE, options.sort)).rstrip())
    return DONE


def sample(api: Api, rows: int, sort: str) -> Sample:
    """Ask for as many rows as fit on the screen, sorted by the node. Raises as `Api` does."""
    from leveret.server.cli.api import path

    overview = api.get(path("overview"))
    limit = max(1, min(rows, ROWS_MAX))
    queues = {
        "columns": ",".join(column for _, column, _ in QUEUES) + ",messages",
        "sort": SORTS[sort],
        "sort_reverse": "true",
    }
    connections = {"sort": "recv_oct_details.rate", "sort_reverse": "true"}
    return Sample(
        overview if isinstance(overview, Mapping) else {},
        list(api.rows(path("queues"), queues, limit)),
        list(api.rows(path("connections"), connections, limit)),
    )


def frame(sample: Sample, width: int, height: int, sort: str, note: str = "") -> list[str]:
    """Return the lines of a screen of this size, cut to its width. Queues get two thirds of the rows."""
    from leveret.server.cli.text import fitted

    width, height = max(width, LEAST[0]), max(height, LEAST[1])
    head = [*_totals(sample.overview), note or f"queues by {sort}; s: by the other, q: end", ""]
    left = height - len(head) - 3  # two headings, and a line between
    fewer = min(len(sample.connections), max(left // 3, 1))
    lines = [
        *head,
        *_table(QUEUES, sample.queues, left - fewer, width),
        "",
        *_table(CONNECTIONS, sample.connections, fewer, width),
    ]
    return [fitted(line, width) for line in lines[:height]]


def _totals(overview: Row) -> Iterator[str]:
    version = cell(overview, "product_version") or cell(overview, "rabbitmq_version") or "?"
    product = cell(overview, "product_name") or "node"
    yield f"{product} {version}  {cell(overview, 'node') or ''}"
    counted = ("connections", "channels", "queues", "consumers")
    yield "  ".join(f"{name} {number(cell(overview, f'object_totals.{name}'))}" for name in counted)
    waiting = ("messages_ready", "messages_unacknowledged")
    parts = [
        f"{name.removeprefix('messages_')} {number(cell(overview, f'queue_totals.{name}'))}"
        for name in waiting
    ]
    parts += [
        f"{title} {number(cell(overview, column))}/s"
        for title, column in (("in", IN), ("out", OUT), ("ack", ACK))
    ]
    yield "  ".join(parts)


def _table(columns: Columns, rows: Sequence[Row], count: int, width: int) -> Iterator[str]:
    rest = max(width - sum(fixed + 1 for _, _, fixed in columns), 8)
    yield _line([title for title, _, _ in columns], columns, rest)
    for row in rows[: max(count, 0)]:
        named = {**row, "client": client_of(row)}
        yield _line([_text(cell(named, column)) for _, column, _ in columns], columns, rest)


def client_of(connection: Row) -> object:
    """Return the name that a client gives itself, and its address; without one, the name of its connection."""
    name, given = connection.get("name"), connection.get("user_provided_name")
    return f"{given} ({str(name).partition(' -> ')[0]})" if given else name


def _line(cells: Sequence[str], columns: Columns, rest: int) -> str:
    """Return a row: text to the left, numbers to the right; a text that is too long ends in an ellipsis."""
    from leveret.server.cli.text import fitted, padded

    parts = []
    for text, (_, column, fixed) in zip(cells, columns, strict=True):
        room = fixed or rest
        short = fitted(text, room)
        left = column in ("name", "client", "vhost", "user", "protocol", "state")
        parts.append(padded(short, room) if left else short.rjust(room))
    return " ".join(parts)


def _text(value: object) -> str:
    """Return a cell as text, with control characters escaped: names are arbitrary, and must not move the cursor."""
    from leveret.server.cli.text import plain

    if isinstance(value, str):
        return plain(value).replace("\n", "\\n")
    return number(value)


def number(value: object) -> str:
    """Return `1234`, `12.3k`, `4.5M`; a dash for an absent value."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return "-"
    for factor, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= factor:
            return f"{value / (1e3 if unit == 'k' else factor):.1f}{unit}"
    return str(value) if isinstance(value, int) else f"{value:.1f}"


ADD: Final[Mapping[str, Add]] = {"top": add_top}

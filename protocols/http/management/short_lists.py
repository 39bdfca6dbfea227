"""List things of which there are few: made whole, then sorted, paged and cut to columns like long lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from leveret.protocols.http.connection import Later
from leveret.protocols.http.management.lists import listed
from leveret.protocols.http.server.request import Request
from leveret.server.definitions.exporter import Item
from leveret.values import Json


def table(request: Request, rows: Sequence[Item], *order: str) -> Later:
    """List rows that have the same columns, by default in `order`. Raises Refused or PreconditionFailed."""
    columns = dict.fromkeys(name for row in rows for name in row)
    fields = {name: partial(value, name) for name in columns}

    def place(row: Item) -> tuple[str, ...]:
        return tuple(str(row.get(column)) for column in order)

    def name(row: Item) -> str:
        return str(row.get("name", ""))

    return listed(request, rows, fields, place, name)


def value(column: str, row: Mapping[str, Json]) -> Json:
    return row.get(column)

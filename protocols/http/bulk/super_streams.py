"""Make and delete super streams as a whole over HTTP (`broker_core/exchanges/super_streams.py`)."""

from __future__ import annotations

from typing import Final

from leveret.exchanges.super_streams import add_super_stream, delete_super_stream
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

PATH: Final = "/api/leveret/super-streams/{vhost}/{name}"
NUMBER_MAX: Final = 999_999_999  # the core bounds the number


def add(asked: Request) -> Json:
    asked.only("partitions")
    partitions = asked.number("partitions", None, 0, NUMBER_MAX)
    host = asked.broker.virtual_host(asked.arguments["vhost"])
    return {"made": [*add_super_stream(host, asked.arguments["name"], partitions)]}


def delete(asked: Request) -> Json:
    asked.only()
    host = asked.broker.virtual_host(asked.arguments["vhost"])
    return {"deleted": [*delete_super_stream(host, asked.arguments["name"])]}


ROUTES: Final = (
    Route("PUT", PATH, Level.ADMINISTRATOR, add),
    Route("DELETE", PATH, Level.ADMINISTRATOR, delete),
)

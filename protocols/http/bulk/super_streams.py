"""Make and delete super streams as a whole over HTTP (`broker_core/exchanges/super_streams.py`)."""

from __future__ import annotations

from typing import Final

from leveret.exchanges.super_streams import add_super_stream, delete_super_stream
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

PATH: Final = "/api/leveret/super-streams/{vhost}/{name}"
NUMBER_MAX: Final = 999_999_999  # the core bounds the number


def add(request: Request) -> Json:
    request.only("partitions")
    partitions = request.number("partitions", None, 0, NUMBER_MAX)
    host = request.broker.virtual_host(request.arguments["vhost"])
    return {"made": [*add_super_stream(host, request.arguments["name"], partitions)]}


def delete(request: Request) -> Json:
    request.only()
    host = request.broker.virtual_host(request.arguments["vhost"])
    return {"deleted": [*delete_super_stream(host, request.arguments["name"])]}


ROUTES: Final = (
    Route("PUT", PATH, Level.ADMINISTRATOR, add),
    Route("DELETE", PATH, Level.ADMINISTRATOR, delete),
)

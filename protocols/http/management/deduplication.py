"""Tell the ids by which an exchange or a queue drops duplicates, and forget them.

    GET, DELETE /api/leveret/exchanges/VHOST/NAME/deduplication       queues in the same way

The field `deduplication` of a single exchange or queue tells the same. Forgetting needs the permission to delete it.
"""

from __future__ import annotations

from typing import Final

from leveret.exchanges.exchange_type import Exchange
from leveret.features.deduplication.deduplication import Deduplication
from leveret.features.deduplication.deduplications import known_to
from leveret.protocols.http.connection import Response
from leveret.protocols.http.management.requester import answered, client_of, host_of, not_there, own_host_of
from leveret.protocols.http.server.replies import json_response
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.queues.queue import Queue
from leveret.values import Json
from leveret.virtual_host import VirtualHost

PATH: Final = "/api/leveret/{what}/{vhost}/{name}/deduplication"
DEFAULT: Final = "amq.default"  # paths have this name for the default exchange
WHAT: Final = {"exchanges": "exchange", "queues": "queue"}


def told_of(known: Deduplication) -> dict[str, Json]:
    """Return what an exchange or a queue knows, and how it goes about it."""
    settings = known.settings
    return {
        "entries": known.entries,
        "size": known.size,
        "ttl": settings.ttl_ms,
        "header": settings.header,
        "persistence": "disk" if known.number else "memory",
        "memory": known.octets,
        "duplicates": known.repeated,
    }


def known_by(request: Request, host: VirtualHost) -> Deduplication:
    """Return what the exchange or queue in the path knows. Raises NotFound if it knows none."""
    name = request.arguments["name"]
    exchange: Exchange | Queue | None = None
    if request.arguments["what"] == "exchanges":
        exchange = host.exchanges.get("" if name == DEFAULT else name)
    elif request.arguments["what"] == "queues":
        exchange = host.queues.get(name)
    known = None if exchange is None else known_to(exchange)
    if known is None:
        raise not_there()
    return known


def tell(request: Request) -> Response:
    return json_response(told_of(known_by(request, host_of(request))))


def forget(request: Request) -> Response:
    """Forget all ids, and tell how many these were. Raises NotFound, AccessRefused."""
    host = own_host_of(request)
    kind = WHAT.get(request.arguments["what"])
    if kind is None:
        raise not_there()
    client_of(request, host).require_declarable(kind, request.arguments["name"])
    return answered(request, {"forgotten": known_by(request, host).clear()})


ROUTES: Final = (
    Route("GET", PATH, Level.MANAGEMENT, tell),
    Route("DELETE", PATH, Level.MANAGEMENT, forget),
)

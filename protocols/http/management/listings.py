"""List what protocols keep in virtual hosts besides queues and messages, such as sessions, and delete it.

GET     /api/leveret/kept                                   the names of the lists, by protocol
GET     /api/leveret/kept/PROTOCOL/LIST/VHOST               one list
DELETE  /api/leveret/kept/PROTOCOL/LIST/VHOST/NAME          end or delete one thing
"""

from __future__ import annotations

from typing import Final

from leveret.front_end import Listing
from leveret.protocols.http.connection import Response
from leveret.protocols.http.management.requester import changed, host_of, not_there, own_host_of
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json, as_json

LISTS: Final = "/api/leveret/kept"
LIST: Final = LISTS + "/{protocol}/{list}/{vhost}"


def lists(request: Request) -> Json:
    """Return the names of what can be listed, by protocol."""
    return {name: [each.name for each in listings()] for name, listings in request.broker.listings.items()}


def listing_of(request: Request) -> Listing:
    """Return the list that the path names. Raises NotFound."""
    listings = request.broker.listings.get(request.arguments["protocol"])
    for each in () if listings is None else listings():
        if each.name == request.arguments["list"]:
            return each
    raise not_there()


def listed(request: Request) -> Json:
    """Return what a protocol keeps in a virtual host."""
    listing, host = listing_of(request), host_of(request)
    return [as_json(row) for row in listing.rows(host)]


def delete(request: Request) -> Response:
    """End or delete one thing that a protocol keeps. Raises NotFound."""
    listing, host = listing_of(request), own_host_of(request)
    if listing.delete is None or not listing.delete(host, request.arguments["name"]):
        raise not_there()
    return changed(request, False)


ROUTES: Final = (
    Route("GET", LISTS, Level.MONITORING, lists),
    Route("GET", LIST, Level.MONITORING, listed),
    Route("DELETE", LIST + "/{name}", Level.ADMINISTRATOR, delete),
)

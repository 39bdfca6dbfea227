"""List what protocols keep in virtual hosts besides queues and messages, such as sessions, show it and delete it.

GET     /api/leveret/kept                                   the lists, and what their pages show
GET     /api/leveret/kept/PROTOCOL/LIST                     one list, of all virtual hosts that the user may see
GET     /api/leveret/kept/PROTOCOL/LIST/VHOST               one list, of a virtual host
GET     /api/leveret/kept/PROTOCOL/LIST/VHOST/NAME          one thing
GET     /api/leveret/kept/PROTOCOL/LIST/VHOST/NAME/message  the message that it is
DELETE  /api/leveret/kept/PROTOCOL/LIST/VHOST/NAME          end or delete it

Lists are sorted and paged as those of queues are. A thing is looked up by its name when it is shown, so that a list of
a million holds nothing but names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from itertools import chain
from typing import Final, TypeAlias

from leveret.observability.listing import Listing
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.lists import listed
from leveret.protocols.http.management.messages import encoding_in
from leveret.protocols.http.management.requester import (
    changed,
    entered,
    host_of,
    not_there,
    own_host_of,
    visible_hosts,
)
from leveret.protocols.http.management.shapes import AUTO, PayloadView, shown_message
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json, Table, as_json
from leveret.virtual_host import VirtualHost

LISTS: Final = "/api/leveret/kept"
EVERYWHERE: Final = LISTS + "/{protocol}/{list}"
LIST: Final = EVERYWHERE + "/{vhost}"
THING: Final = LIST + "/{name}"
TRUNCATED: Final = 50_000  # bytes of a body, unless more are asked for

Place: TypeAlias = tuple[VirtualHost, str]  # of a thing: its virtual host and its name


def lists(request: Request) -> Json:
    """Return what can be listed of the protocols that a listener serves, and what pages show of it."""
    return [
        {
            "protocol": protocol,
            "list": each.name,
            "title": each.title,
            "columns": [
                {"field": column.field, "title": column.title, "shape": column.shape.value}
                for column in each.columns
            ],
            "deletable": each.delete is not None,
            "messages": each.message is not None,
        }
        for protocol, listings in request.broker.listings.items()
        if _is_served(request, protocol)
        for each in listings()
    ]


def _is_served(request: Request, protocol: str) -> bool:
    operations = request.broker.operations
    return operations is None or any(protocol in each.protocols for each in operations.listeners())


def listing_of(request: Request) -> Listing:
    """Return the list that the path names. Raises NotFound."""
    listings = request.broker.listings.get(request.arguments["protocol"])
    for each in () if listings is None else listings():
        if each.name == request.arguments["list"]:
            return each
    raise not_there()


def everywhere(request: Request) -> Later:
    """List what a protocol keeps in all virtual hosts that the user may see."""
    return _listed(request, listing_of(request), visible_hosts(request))


def of_host(request: Request) -> Later:
    """List what a protocol keeps in a virtual host."""
    return _listed(request, listing_of(request), [host_of(request)])


def _listed(request: Request, listing: Listing, hosts: Iterable[VirtualHost]) -> Later:
    things = ((host, name) for host in hosts for name in listing.names(host))
    first = next(things, None)
    if first is None:
        return listed(request, (), {}, _order, _name)
    return listed(request, chain((first,), things), _fields(listing, first), _order, _name)


def _order(place: Place) -> tuple[str, str]:
    host, name = place
    return name, host.name


def _name(place: Place) -> str:
    return place[1]


def _fields(listing: Listing, first: Place) -> Mapping[str, Callable[[Place], Json]]:
    """Return the fields of the things of a list, which are those of the first one; of one that has gone meanwhile
    only its name and its virtual host are told."""
    row_of = _LastRow(listing).of
    return {name: partial(_field, row_of, name) for name in row_of(first)}


def _field(row_of: Callable[[Place], Table], name: str, place: Place) -> Json:
    return as_json(row_of(place).get(name))


class _LastRow:
    """Looks up the row of a thing once for all its fields, which are asked for one after the other."""

    __slots__ = ("_listing", "_place", "_row")

    def __init__(self, listing: Listing) -> None:
        self._listing = listing
        self._place: Place | None = None
        self._row: Table = {}

    def of(self, place: Place) -> Table:
        if place is not self._place:
            host, name = self._place = place
            self._row = self._listing.row(host, name) or {"name": name, "vhost": host.name}
        return self._row


def thing(request: Request) -> Json:
    """Return the record of one thing. Raises NotFound."""
    row = listing_of(request).row(host_of(request), request.arguments["name"])
    if row is None:
        raise not_there()
    return as_json(row)


def message(request: Request) -> Response:
    """Return the message that a thing is, without changing it. Raises NotFound."""
    request.only("truncate", "encoding")
    truncate = request.number("truncate", TRUNCATED, 0, request.message_size_max)
    look = PayloadView(encoding_in(request.one("encoding", AUTO)), truncate)
    listing, host = listing_of(request), entered(request)
    found = None if listing.message is None else listing.message(host, request.arguments["name"])
    if found is None:
        raise not_there()
    return Response(HTTPStatus.OK, shown_message(found, False, look, {}))


def delete(request: Request) -> Response:
    """End or delete one thing that a protocol keeps. Raises NotFound."""
    listing, host = listing_of(request), own_host_of(request)
    if listing.delete is None or not listing.delete(host, request.arguments["name"]):
        raise not_there()
    return changed(request, False)


ROUTES: Final = (
    Route("GET", LISTS, Level.MONITORING, lists),
    Route("GET", EVERYWHERE, Level.MONITORING, everywhere),
    Route("GET", LIST, Level.MONITORING, of_host),
    Route("GET", THING, Level.MONITORING, thing),
    Route("GET", THING + "/message", Level.ADMINISTRATOR, message),
    Route("DELETE", THING, Level.ADMINISTRATOR, delete),
)

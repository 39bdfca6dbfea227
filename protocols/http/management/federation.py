"""Show and restart the links of a federation. Upstreams and their sets are parameters (`parameters.py`).

Source: RabbitMQ's federation management plug-in.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from leveret.errors import NotFound
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.requester import changed, host_of, own_host_of, visible_hosts
from leveret.protocols.http.management.short_lists import table
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.features.federation.federation import Federation
    from leveret.features.federation.link import FederationLink

PATH: Final = "/api/federation-links"
DOWN: Final = "/state/down"
STATES: Final = {"terminated": "error"}  # RabbitMQ's word for the time until the next attempt


def all_links(request: Request) -> Later:
    return listed(request, {host.name for host in visible_hosts(request)})


def all_down(request: Request) -> Later:
    return listed(request, {host.name for host in visible_hosts(request)}, is_down=True)


def in_virtual_host(request: Request) -> Later:
    return listed(request, {host_of(request).name})


def down_in_virtual_host(request: Request) -> Later:
    return listed(request, {host_of(request).name}, is_down=True)


def federation_in(broker: Broker) -> Federation | None:
    """Return the federation of the node; None if it never had an upstream."""
    from leveret.features.federation.federation import Federation  # not needed before somebody asks

    return broker.guests.find(Federation)


def listed(request: Request, hosts: set[str], is_down: bool = False) -> Later:
    rows = [
        row(request, link)
        for link in federation_in(request.broker) or ()
        if link.journey.virtual_host in hosts and not (is_down and link.state in ("running", "starting"))
    ]
    return table(request, rows, "vhost", "type", "upstream", "id")


def row(request: Request, link: FederationLink) -> dict[str, Json]:
    """Return what is known of a link; its URI has no password."""
    at = datetime.fromtimestamp(link.changed_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    found: dict[str, Json] = {
        "node": request.operations.name,
        "type": link.kind,
        link.kind: link.name,
        f"upstream_{link.kind}": link.there,
        "vhost": link.journey.virtual_host,
        "upstream": link.upstream.name,
        "id": link.id,
        "status": STATES.get(link.state, link.state),
        "uri": link.upstream.uris[0].shown,
        "timestamp": at,
        "forwarded": link.forwarded,
        "unwanted": link.unwanted,
        "user": link.journey.user,
        "blocked_status": "flow" if link.is_blocked else "running",
    }
    if link.kind == "queue":
        found["consumer_tag"] = link.upstream.consumer_tag
    if link.reason:
        found["error"] = link.reason
    return found


def restart(request: Request) -> Response:
    host, id = own_host_of(request), request.arguments["id"]
    federation = federation_in(request.broker)
    if federation is None or request.arguments["node"] != request.operations.name:
        raise NotFound(f"no federation link '{id[:100]}' in vhost '{host.name}' on this node")
    federation.find(host.name, id).restart()
    return changed(request, False)


ROUTES: Final = (
    Route("GET", PATH, Level.MONITORING, all_links),
    Route("GET", PATH + DOWN, Level.MONITORING, all_down),
    Route("GET", PATH + "/{vhost}", Level.MONITORING, in_virtual_host),
    Route("GET", PATH + "/{vhost}" + DOWN, Level.MONITORING, down_in_virtual_host),
    Route("DELETE", PATH + "/vhost/{vhost}/{id}/{node}/restart", Level.ADMINISTRATOR, restart),
)

"""Show, restart and delete shovels. They are set as parameters of the component `shovel` (`parameters.py`).

Source: RabbitMQ's documentation of the shovel management plug-in.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from leveret.catalogue import SHOVEL as KIND_SHOVEL
from leveret.errors import NotFound
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.policies import said_as_validation
from leveret.protocols.http.management.requester import changed, host_of, own_host_of, visible_hosts
from leveret.protocols.http.management.short_lists import table
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json
from leveret.virtual_host import VirtualHost

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.features.shovels.shovels import Kept, Shovels
    from leveret.features.transfers.definition import EndSettings

PATH: Final = "/api/shovels"
OWN: Final = PATH + "/vhost/{vhost}/{name}"


def all_shovels(request: Request) -> Later:
    rows = [each for host in visible_hosts(request) for each in of(request, host)]
    return table(request, rows, "vhost", "name")


def in_virtual_host(request: Request) -> Later:
    return table(request, of(request, host_of(request)), "name")


def shovels_in(broker: Broker) -> Shovels | None:
    """Return the shovels of the node; None if it never had one."""
    from leveret.features.shovels.shovels import Shovels  # not needed before somebody asks

    return broker.guests.find(Shovels)


def of(request: Request, host: VirtualHost) -> list[dict[str, Json]]:
    shovels = shovels_in(request.broker)
    return [] if shovels is None else [row(request, kept) for kept in shovels.of(host.name)]


def shovel(request: Request) -> Json:
    host = host_of(request)
    return row(request, known(request).find(host.name, request.arguments["name"]))


def known(request: Request) -> Shovels:
    """Return the shovels of the node. Raises NotFound if it never had one."""
    shovels = shovels_in(request.broker)
    if shovels is None:
        raise NotFound(f"no shovel '{request.arguments['name']}' in vhost '{request.arguments['vhost']}'")
    return shovels


def delete(request: Request) -> Response:
    host = own_host_of(request)
    shovels, name = known(request), request.arguments["name"]
    shovels.find(host.name, name)
    said_as_validation(lambda: shovels.delete(host.name, name))
    return changed(request, False, KIND_SHOVEL, host.name, name)


def restart(request: Request) -> Response:
    host = own_host_of(request)
    known(request).find(host.name, request.arguments["name"]).shovel.restart()
    return changed(request, False)


def row(request: Request, kept: Kept) -> dict[str, Json]:
    """Return what is known of a shovel; its URIs have no passwords."""
    shovel, definition = kept.shovel, kept.shovel.definition
    at = datetime.fromtimestamp(shovel.changed_at, UTC).strftime("%Y-%m-%d %H:%M:%S")
    found: dict[str, Json] = {
        "name": shovel.journey.name,
        "vhost": shovel.journey.virtual_host,
        "node": request.operations.name,
        "type": shovel.type,
        "state": shovel.state,
        "blocked_status": "flow" if shovel.is_blocked else "running",
        "timestamp": at,
        "ack_mode": definition.ack_mode.value,
        "forwarded": shovel.forwarded,
        "user": shovel.journey.user,
        **end_facts("src", definition.source),
        **end_facts("dest", definition.destination),
    }
    if shovel.remaining is not None:
        found["remaining"] = shovel.remaining
    if shovel.reason:
        found["reason"] = shovel.reason
    return found


def end_facts(which: str, end: EndSettings) -> dict[str, Json]:
    found: dict[str, Json] = {f"{which}_uri": end.uris[0].shown, f"{which}_protocol": end.protocol}
    told = {
        "queue": end.queue,
        "exchange": end.exchange,
        "exchange_key": end.key,
        "address": end.address,
    }
    for name, value in told.items():
        if value is not None:
            found[f"{which}_{name}"] = value
    return found


ROUTES: Final = (
    Route("GET", PATH, Level.MONITORING, all_shovels),
    Route("GET", PATH + "/{vhost}", Level.MONITORING, in_virtual_host),
    Route("GET", PATH + "/{vhost}/{name}", Level.MONITORING, shovel),
    Route("DELETE", OWN, Level.ADMINISTRATOR, delete),
    Route("DELETE", OWN + "/restart", Level.ADMINISTRATOR, restart),
)

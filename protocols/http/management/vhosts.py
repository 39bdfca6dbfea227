"""Show, create and delete virtual hosts, with their descriptions and tracing."""

from __future__ import annotations

from typing import Final

from leveret.catalogue import VIRTUAL_HOST
from leveret.config.types import NAME_OCTETS_MAX
from leveret.errors import PreconditionFailed
from leveret.limits import QueueType
from leveret.observability.counts import HOST, LENGTHS
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.rates import LENGTH_NAMES, Rates
from leveret.protocols.http.management.request_body import (
    JsonObject,
    bad,
    body_of,
    storable,
    text_in,
    truth_in,
    words_in,
)
from leveret.protocols.http.management.requester import DONE, changed, host_of, visible_hosts
from leveret.protocols.http.management.short_lists import table
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.queues.default_type import default_type
from leveret.server.definitions.exporter import Item, described_json
from leveret.values import Json
from leveret.virtual_host import Description, VirtualHost

PATH: Final = "/api/vhosts"
ONE: Final = PATH + "/{vhost}"
MESSAGES: Final = (*HOST[len(LENGTHS) :], "deliver_get")


def virtual_hosts(request: Request) -> Later:
    rates = Rates(request)
    return table(request, [state(request, host, rates) for host in visible_hosts(request)], "name")


def virtual_host(request: Request) -> Json:
    return state(request, host_of(request), Rates(request))


def state(request: Request, host: VirtualHost, rates: Rates) -> Item:
    """Return the state of a virtual host, with the number of messages in it (10 000 queues: 1 ms) and their rates."""
    ready = sum(queue.ready for queue in host.queues.values())
    unsettled = sum(queue.unsettled for queue in host.queues.values())
    operations = request.broker.operations
    return {
        "default_queue_type": QueueType.CLASSIC.value,
        **described_json(host),
        "cluster_state": {} if operations is None else {operations.name: "running"},
        "message_stats": rates.of_host(host, MESSAGES),
        **rates.of_host(host, LENGTH_NAMES),
        "messages": ready + unsettled,
        "messages_ready": ready,
        "messages_unacknowledged": unsettled,
    }


def put_virtual_host(request: Request) -> Response:
    """Create a virtual host, with every permission for its creator, or change what the body has of an existing one."""
    broker, name = request.broker, request.arguments["vhost"]
    if not 0 < len(storable(name).encode()) <= NAME_OCTETS_MAX:
        raise bad("the name has 1 to 255 bytes")
    body, before = body_of(request), broker.virtual_hosts.get(name)
    tracing = truth_in(body, "tracing", before is not None and before.tracing)
    was = Description() if before is None else before.description
    tags = words_in(body, "tags") if "tags" in body else was.tags
    description = Description(text_in(body, "description", was.text), tags)
    type_ = _default_type(body, None if before is None else before.own_queue_type)
    broker.require_room(name)
    host = broker.add_virtual_host(name)
    host.describe(description)
    host.set_tracing(tracing)
    host.set_default_queue_type(type_)
    if before is None and request.user.scopes is None:  # a token's name may be that of another user
        broker.access.set_permissions(request.user.name, name, ".*", ".*", ".*")
    return changed(request, before is None, VIRTUAL_HOST, name)


def _default_type(body: JsonObject, otherwise: QueueType | None) -> QueueType | None:
    """Return the default type of queues that a body asks for, also under the name of RabbitMQ 3.11. Raises Refused."""
    name = next((each for each in ("default_queue_type", "defaultqueuetype") if each in body), None)
    if name is None:
        return otherwise
    try:
        return default_type(body[name])
    except PreconditionFailed as failure:
        raise bad(str(failure)) from None


def delete_virtual_host(request: Request) -> Response:
    """Delete a virtual host with everything in it. Raises NotFound."""
    name = request.arguments["vhost"]
    request.broker.delete_virtual_host(name)
    return changed(request, False, VIRTUAL_HOST, name)


def start(request: Request) -> Response:
    """Answer that the virtual host runs, as each does that exists on this node. Raises NotFound or Refused."""
    request.broker.virtual_host(request.arguments["vhost"])
    if request.arguments["node"] != request.operations.name:
        raise bad(f"Request to node {request.arguments['node']} failed with nodedown")
    return DONE


ROUTES: Final = (
    Route("GET", PATH, Level.MANAGEMENT, virtual_hosts),
    Route("GET", ONE, Level.MANAGEMENT, virtual_host),
    Route("PUT", ONE, Level.ADMINISTRATOR, put_virtual_host),
    Route("DELETE", ONE, Level.ADMINISTRATOR, delete_virtual_host),
    Route("POST", ONE + "/start/{node}", Level.ADMINISTRATOR, start),
)

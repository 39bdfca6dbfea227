"""Answer health checks of load balancers and alerts: 200 with `ok`, or 503 with `failed` and a reason."""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

from leveret.delivery import Delivery
from leveret.limits import used_up
from leveret.operations import Listening
from leveret.protocols.http.connection import Response
from leveret.protocols.http.management.request_body import bad
from leveret.protocols.http.management.requester import client_of, entered, not_there
from leveret.protocols.http.management.shapes import message_in
from leveret.protocols.http.server.replies import json_response, octets
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

PATH: Final = "/api/health/checks"
NODE_PATH: Final = "/api/healthchecks/node"
OK: Final[Json] = {"status": "ok"}
SINGLE: Final[Json] = {"status": "ok", "reason": "single node cluster"}
UNITS_S: Final = {
    "days": 86_400,
    "weeks": 7 * 86_400,
    "months": 30 * 86_400,
    "years": 365 * 86_400,
}
WITHIN_MAX: Final = 10_000
PORT_MAX: Final = 65_535
NAMES: Final = {  # RabbitMQ's name of each protocol first, and then other spellings
    "amqp091": ("amqp", "amqp091", "amqp0-9-1", "amqp-0-9-1"),
    "amqp10": ("amqp10", "amqp1.0", "amqp-1-0"),
    "amqp010": ("amqp010", "amqp0-10", "amqp-0-10"),
    "http": ("http",),
}
SECURED: Final = {"amqps": "amqp", "amqp/ssl": "amqp", "https": "http"}
QUEUE: Final = "aliveness-test"


def failed(reason: str, **more: Json) -> Response:
    content = {"status": "failed", "reason": reason, **more}
    return Response(HTTPStatus.SERVICE_UNAVAILABLE, octets(content))


def alarms(request: Request) -> Json | Response:
    """Check that no alarm holds publishers back, and that nothing else is wrong."""
    return alarms_in_effect(request, request.broker.alarms.in_effect)


def alarms_in_effect(request: Request, resources: list[str]) -> Json | Response:
    if not resources:
        return OK
    node = "" if request.broker.operations is None else request.broker.operations.name
    return failed(
        "There are alarms in effect in the cluster",
        alarms=[{"node": node, "resource": resource} for resource in resources],
    )


def unreadable_messages(request: Request) -> Json | Response:
    """Check that each message that was wanted so far could be read from the store."""
    journal = request.broker.journal
    if journal is None or not journal.unreadable.count:
        return OK
    holders: list[Json] = [
        {"holder": holder.described, "messages": journal.unreadable.of(holder)}
        for holder in journal.unreadable.holders()
    ]
    return failed("Messages cannot be read; they stay in the store", unreadable=holders)


def certificate_expiration(request: Request) -> Json | Response:
    """Check that the certificates of all listeners are valid for the time in the path."""
    unit, within = request.arguments["unit"], request.place("within", WITHIN_MAX)
    if unit not in UNITS_S:
        raise bad(f"Time unit not recognised. Use {', '.join(UNITS_S)}.")
    soon = request.broker.clock.wall() + within * UNITS_S[unit]
    ending = [
        each
        for each in request.operations.listeners()
        if each.expires_at is not None and each.expires_at < soon
    ]
    if not ending:
        return OK
    return failed(
        "Certificates expiring",
        expired=[
            {"node": request.operations.name, "interface": each.host, "port": each.port} for each in ending
        ],
    )


def port_listener(request: Request) -> Json | Response:
    port = request.place("port", PORT_MAX)
    ports: list[Json] = [each.port for each in request.operations.listeners() if each.port]
    if port in ports:
        return {"status": "ok", "port": port}
    return failed("No active listener", missing=port, ports=ports)


def protocol_listener(request: Request) -> Json | Response:
    wanted = request.arguments["protocol"].lower()
    there = sorted({name for each in request.operations.listeners() for name in names_of(each)})
    plain = SECURED.get(wanted, wanted)
    known = {"amqp/ssl" if wanted == "amqps" else wanted} if wanted in SECURED else aliases(plain)
    if known.isdisjoint(there):
        return failed("No active listener", missing=wanted, protocols=there)
    return {"status": "ok", "protocol": min(known.intersection(there))}


def names_of(listening: Listening) -> list[str]:
    """Return RabbitMQ's names of the protocols that a listener accepts."""
    names = [NAMES.get(each, (each,))[0] for each in listening.protocols]
    if not listening.tls:
        return names
    return names * listening.plain + [
        {"amqp": "amqp/ssl", "http": "https"}.get(name, f"{name}/ssl") for name in names
    ]


def aliases(name: str) -> set[str]:
    """Return the names under which our listeners may know a protocol."""
    return {name, *(names[0] for names in NAMES.values() if name in names)}


def virtual_hosts(request: Request) -> Json:
    """Answer `ok`: a virtual host that exists is running."""
    return OK


def single_node(request: Request) -> Json:
    """Answer `ok`: no other node exists that could lose its quorum without this one."""
    return SINGLE


def is_owner(request: Request) -> Json:
    """Answer `ok`: a node that stands by in a cluster answers for itself, and says that it is not the owner."""
    return OK


def in_service(request: Request) -> Json:
    return OK


def below_connection_limit(request: Request) -> Json | Response:
    limit, connections = request.broker.node_limits.max_connections, len(request.broker.clients)
    if used_up(limit, connections):
        return failed("node connection limit is reached", connections=connections, limit=limit)
    return {"status": "ok", "connections": connections, "limit": limit}


def ready_to_serve(request: Request) -> Json | Response:
    reason = request.broker.alarms.reason
    problem = alarms_in_effect(request, [] if reason is None else [reason])
    return problem if isinstance(problem, Response) else below_connection_limit(request)


def aliveness(request: Request) -> Response:
    """Send a message through a queue of the virtual host, which stays for the next check."""
    host = entered(request)
    client = client_of(request, host)
    fields = {"routing_key": QUEUE, "payload": "test_message", "payload_encoding": "string"}
    message = message_in(fields, request.broker, "", request.message_size_max)
    client.require_readable(QUEUE)  # check all permissions before anything is done
    exchange = client.publish_target("", message.keys)
    queue = client.declare_queue(QUEUE)
    request.broker.publish(exchange, message)
    arrived: Delivery | None = client.get(queue, settled=True)
    return failed("no message came back") if arrived is None else json_response(OK)


def node(request: Request) -> Json:
    """Answer whether the node, perhaps named in the path, has no alarm: as RabbitMQ does with 200 in either case.

    Source: RabbitMQ, HTTP API reference, `/api/healthchecks/node`. Raises NotFound for another node's name.
    """
    if request.arguments.get("name", request.operations.name) != request.operations.name:
        raise not_there()
    reasons = request.broker.alarms.in_effect
    return {"status": "failed", "reason": f"alarms in effect: {' & '.join(reasons)}"} if reasons else OK


ROUTES: Final = (
    Route("GET", PATH + "/alarms", Level.MANAGEMENT, alarms),
    Route("GET", PATH + "/local-alarms", Level.MANAGEMENT, alarms),
    Route("GET", PATH + "/unreadable-messages", Level.MONITORING, unreadable_messages),
    Route("GET", PATH + "/certificate-expiration/{within}/{unit}", Level.MANAGEMENT, certificate_expiration),
    Route("GET", PATH + "/port-listener/{port}", Level.MANAGEMENT, port_listener),
    Route("GET", PATH + "/protocol-listener/{protocol}", Level.MANAGEMENT, protocol_listener),
    Route("GET", PATH + "/virtual-hosts", Level.MANAGEMENT, virtual_hosts),
    Route("GET", PATH + "/node-is-mirror-sync-critical", Level.MANAGEMENT, single_node),
    Route("GET", PATH + "/node-is-quorum-critical", Level.MANAGEMENT, single_node),
    Route("GET", PATH + "/is-owner", Level.ANYBODY, is_owner),
    Route("GET", PATH + "/is-in-service", Level.MANAGEMENT, in_service),
    Route("GET", PATH + "/below-node-connection-limit", Level.MANAGEMENT, below_connection_limit),
    Route("GET", PATH + "/ready-to-serve-clients", Level.MANAGEMENT, ready_to_serve),
    Route("GET", NODE_PATH, Level.MANAGEMENT, node),
    Route("GET", NODE_PATH + "/{name}", Level.MANAGEMENT, node),
    Route("GET", "/api/aliveness-test/{vhost}", Level.MANAGEMENT, aliveness),
)

"""Show the broker at a glance: how much there is of everything, how many messages, and how fast.

Users without monitoring see their own virtual hosts and connections, and nothing of the node.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator
from typing import Final

from leveret.limits import QueueType
from leveret.observability.counts import HOST, LENGTHS
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.connections import open_connections
from leveret.protocols.http.management.definitions import RABBITMQ_VERSION
from leveret.protocols.http.management.lists import told
from leveret.protocols.http.management.nodes import (
    churn,
    constant,
    contexts,
    exchange_types,
    protocols_of,
)
from leveret.protocols.http.management.rates import LENGTH_NAMES, Rates, amount
from leveret.protocols.http.management.requester import sees_all, visible_hosts
from leveret.protocols.http.server.portioned_answers import PortionedAnswer, turn_of
from leveret.protocols.http.server.replies import API
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json
from leveret.version import VERSION
from leveret.virtual_host import VirtualHost

PATH: Final = "/api/overview"
MESSAGES: Final = (
    *(name for name in HOST if name not in LENGTHS),
    "deliver_get",
    "confirm",
    "return_unroutable",
)
RETENTION: Final = {"global": [600, 3600, 28_800, 86_400], "basic": [600], "detailed": [600]}  # seconds


def overview(request: Request) -> Later:
    return PortionedAnswer(request.broker, _overview(request), API).begin()


def _overview(request: Request) -> Generator[float, None, Response]:
    rates, hosts = Rates(request), visible_hosts(request)
    objects = yield from _objects(request, hosts)
    everything = sees_all(request)
    content: dict[str, Json] = {
        **_product(request),
        "rates_mode": "basic",
        "sample_retention_policies": RETENTION,
        "exchange_types": exchange_types(request.broker),
        "cluster_name": request.operations.name,
        "default_queue_type": (request.broker.default_queue_type or QueueType.CLASSIC).value,
        "disable_stats": False,
        "enable_queue_totals": False,
        "message_stats": rates.of_total(MESSAGES) if everything else _summed(rates, hosts, MESSAGES),
        "queue_totals": _lengths(rates, hosts, objects, everything),
        "object_totals": {
            name: objects[name] for name in ("channels", "connections", "consumers", "exchanges", "queues")
        },
    }
    if everything:
        content |= {
            "churn_rates": churn(request.broker, rates),
            "statistics_db_event_queue": 0,
            "node": request.operations.name,
            "listeners": _listeners(request),
            "contexts": contexts(request.operations),
        }
    return told(request, request.operations, {name: constant(value) for name, value in content.items()})


def _product(request: Request) -> dict[str, Json]:
    product, version = request.broker.compat.product_and_version
    return {
        "management_version": version,
        "product_name": product,
        "product_version": version,
        "rabbitmq_version": RABBITMQ_VERSION,
        "leveret_version": VERSION,
    }


def _objects(request: Request, hosts: list[VirtualHost]) -> Generator[float, None, Counter[str]]:
    """Count everything that there is now, a portion a turn."""
    found: Counter[str] = Counter()
    turn = turn_of(request.broker)
    for host in hosts:
        found["exchanges"] += len(host.exchanges)
        found["queues"] += len(host.queues)
        for queue in list(host.queues.values()):
            found["messages_ready"] += queue.ready
            found["messages_unacknowledged"] += queue.unsettled
            found["consumers"] += len(queue.consumers)
            if turn.is_over():
                yield turn.pause_s
    for connection in open_connections(request):
        if connection is not None:
            found["connections"] += 1
            found["channels"] += connection.facts.channels
        if turn.is_over():
            yield turn.pause_s
    return found


def _lengths(
    rates: Rates, hosts: list[VirtualHost], objects: Counter[str], everything: bool
) -> dict[str, Json]:
    """Return the lengths of queues as they are now, with details of how they have changed."""
    counted = tuple(objects[name] for name in LENGTHS)
    details = rates.of_total(LENGTH_NAMES) if everything else _summed(rates, hosts, LENGTH_NAMES)
    return {**details, **{name: amount(counted, LENGTHS, name) for name in LENGTH_NAMES}}


def _summed(rates: Rates, hosts: list[VirtualHost], names: tuple[str, ...]) -> dict[str, Json]:
    """Return sums over some virtual hosts: counts and rates, without samples."""
    told: dict[str, Json] = {}
    each = [rates.of_host(host, names) for host in hosts]
    for name in names:
        told[name] = sum(number(stats[name]) for stats in each)
        told[f"{name}_details"] = {"rate": sum(rate(stats[f"{name}_details"]) for stats in each)}
    return told


def number(value: Json) -> float:
    return value if isinstance(value, int | float) else 0


def rate(details: Json) -> float:
    return number(details.get("rate")) if isinstance(details, dict) else 0.0


def _listeners(request: Request) -> list[Json]:
    return [
        {
            "node": request.operations.name,
            "protocol": protocol,
            "ip_address": listening.host,
            "port": listening.port,
            "socket_opts": {},
        }
        for listening in request.operations.listeners()
        for protocol in dict.fromkeys(
            each for name in listening.protocols for each in protocols_of(name, listening)
        )
    ]


ROUTES: Final = (Route("GET", PATH, Level.MANAGEMENT, overview),)

"""List, declare and delete exchanges over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leveret.config.file_objects import EXCHANGE as EXCHANGE_KIND
from leveret.exchanges.exchange_type import Exchange
from leveret.features.deduplication.deduplications import known_to
from leveret.observability.counts import EXCHANGE as EXCHANGE_COUNTS
from leveret.observability.counts import exchange_counts
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.deduplication import told_of
from leveret.protocols.http.management.lists import Fields, listed, told
from leveret.protocols.http.management.rates import TOLD_EXCHANGE, Rates
from leveret.protocols.http.management.request_body import body_of, table_in, text_in, truth_in
from leveret.protocols.http.management.requester import (
    changed,
    client_of,
    host_of,
    not_there,
    own_host_of,
    visible_hosts,
)
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json, as_json
from leveret.virtual_host import VirtualHost

PATH: Final = "/api/exchanges"
OF_HOST: Final = PATH + "/{vhost}"
ONE: Final = OF_HOST + "/{name}"
DEFAULT: Final = "amq.default"  # paths have this name for the default exchange

EXCHANGE: Final[Fields[Exchange]] = {
    "arguments": lambda exchange: as_json(exchange.arguments),
    "auto_delete": lambda exchange: exchange.auto_delete,
    "durable": lambda exchange: exchange.durable,
    "internal": lambda exchange: exchange.internal,
    "name": lambda exchange: exchange.name,
    "policy": lambda exchange: policy_of(exchange),
    "type": lambda exchange: exchange.type.name,
    "vhost": lambda exchange: exchange.virtual_host.name,
    "warnings": lambda exchange: [*exchange.warnings()],
}


def policy_of(exchange: Exchange) -> str | None:
    """Return the name of the exchange's policy. No policy applies to the default exchange, whatever the pattern."""
    host = exchange.virtual_host
    policy = host.broker.policies.exchange_policy(host.name, exchange.name) if exchange.name else None
    return None if policy is None else policy.name


def fields(request: Request) -> Fields[Exchange]:
    """Return the fields of an exchange. Raises PreconditionFailed for wrong parameters of rates."""
    return {**EXCHANGE, "message_stats": Rates(request).of_exchange}


def detailed(request: Request, found: Exchange) -> Fields[Exchange]:
    """Return all fields of one exchange; `incoming` and `outgoing` are empty, as with RabbitMQ's `rates_mode` basic."""
    nothing: Json = []
    known = known_to(found)
    more: Fields[Exchange] = {} if known is None else {"deduplication": lambda exchange: told_of(known)}
    return {
        **fields(request),
        "incoming": lambda exchange: nothing,
        "outgoing": lambda exchange: nothing,
        **more,
    }


def order(exchange: Exchange) -> tuple[str, str]:
    return exchange.virtual_host.name, exchange.name


def exchange_named(host: VirtualHost, name: str) -> Exchange:
    """Return the exchange with a name in a path. Raises NotFound."""
    exchange = host.exchanges.get("" if name == DEFAULT else name)
    if exchange is None:
        raise not_there()
    return exchange


def exchanges(request: Request) -> Later:
    return shown(
        request, [exchange for host in visible_hosts(request) for exchange in host.exchanges.values()]
    )


def exchanges_of_host(request: Request) -> Later:
    return shown(request, list(host_of(request).exchanges.values()))


def shown(request: Request, found: Sequence[Exchange]) -> Later:
    keys = Rates(request).keys(TOLD_EXCHANGE, EXCHANGE_COUNTS, exchange_counts, lambda exchange: exchange)
    return listed(request, found, fields(request), order, lambda exchange: exchange.name, keys)


def exchange(request: Request) -> Response:
    found = exchange_named(host_of(request), request.arguments["name"])
    return told(request, found, detailed(request, found))


def put_exchange(request: Request) -> Response:
    """Declare an exchange; direct and durable by default, as in RabbitMQ. Raises what `declare_exchange` raises."""
    host, name, body = own_host_of(request), request.arguments["name"], body_of(request)
    is_there = name in host.exchanges
    client_of(request, host).declare_exchange(
        name,
        text_in(body, "type", "direct"),
        durable=truth_in(body, "durable", True),
        auto_delete=truth_in(body, "auto_delete", False),
        internal=truth_in(body, "internal", False),
        arguments=table_in(body, "arguments"),
    )
    return changed(request, not is_there)


def delete_exchange(request: Request) -> Response:
    """Delete an exchange with its bindings. Raises NotFound, and what `Client.delete_exchange` raises."""
    host, name = own_host_of(request), request.arguments["name"]
    client = client_of(request, host)
    client.require_declarable("exchange", name)
    if name not in host.exchanges:
        raise not_there()
    client.delete_exchange(name, if_unused=request.flag("if-unused"))
    return changed(request, False, EXCHANGE_KIND, host.name, name)


ROUTES: Final = (
    Route("GET", PATH, Level.MANAGEMENT, exchanges),
    Route("GET", OF_HOST, Level.MANAGEMENT, exchanges_of_host),
    Route("GET", ONE, Level.MANAGEMENT, exchange),
    Route("PUT", ONE, Level.MANAGEMENT, put_exchange),
    Route("DELETE", ONE, Level.MANAGEMENT, delete_exchange),
)

"""List, make and remove bindings over HTTP.

A binding has no name, so its address ends with a `properties_key`, made of its routing key and arguments. Every queue
is bound to the default exchange by its name; these bindings are listed, and cannot be changed.
"""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from http import HTTPStatus
from typing import Final
from urllib.parse import quote, quote_plus

import attrs

from leveret.config.file_objects import BINDING as BINDING_KIND
from leveret.config.file_objects import binding_words
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.exchanges import DEFAULT, exchange_named
from leveret.protocols.http.management.lists import Fields, listed, told
from leveret.protocols.http.management.request_body import body_of, table_in, text_in
from leveret.protocols.http.management.requester import (
    changed,
    client_of,
    host_of,
    not_there,
    own_host_of,
    visible_hosts,
)
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.queues.queue import Queue
from leveret.values import Table, as_json
from leveret.virtual_host import VirtualHost

PATH: Final = "/api/bindings"
OF_HOST: Final = PATH + "/{vhost}"
TO_QUEUE: Final = OF_HOST + "/e/{source}/q/{destination}"
TO_EXCHANGE: Final = OF_HOST + "/e/{source}/e/{destination}"
PROPERTIES: Final = "/{properties}"
OF_QUEUE: Final = "/api/queues/{vhost}/{name}/bindings"
OF_EXCHANGE: Final = "/api/exchanges/{vhost}/{name}/bindings"
BARE: Final = "~"  # for no routing key and no arguments
PLAIN: Final = re.compile(r"[A-Za-z0-9._-]*")  # needs no encoding, as most keys: 5 us less for each
HASH_OCTETS: Final = 9  # bytes of the arguments' hash: enough that no two meet by chance
NO_ARGUMENTS: Final[Table] = {}


@attrs.frozen
class ListedBinding:
    """A binding as it is listed, made by a client or implied by the default exchange."""

    host: str
    source: str
    destination: Destination
    key: str
    arguments: Table
    warnings: Sequence[str] = ()

    @property
    def properties_key(self) -> str:
        return properties_key(self.key, self.arguments)


def made(binding: Binding) -> ListedBinding:
    source = binding.source
    warnings = binding.warnings()
    host = source.virtual_host.name
    return ListedBinding(host, source.name, binding.end, binding.key, binding.arguments, warnings)


def implicit(queue: Queue) -> ListedBinding:
    """Return a queue's binding to the default exchange by its name."""
    return ListedBinding(queue.virtual_host.name, "", queue, queue.name, NO_ARGUMENTS)


def properties_key(key: str, arguments: Table) -> str:
    """Return the last part of a binding's address, which stands for its routing key and arguments.

    The key is percent-encoded, `~` as well, because that separates it from the digest of the arguments, if there are
    any.
    """
    text = key if PLAIN.fullmatch(key) else quoted(key)
    if arguments:
        return f"{text}~{digest(arguments)}"
    return text or BARE


def quoted(key: str) -> str:
    return quote_plus(key.encode("utf-8", "surrogateescape"), safe="").replace("~", "%7E")


def digest(arguments: Table) -> str:
    """Return a text that is the same for equal arguments."""
    octets = json.dumps(as_json(arguments), sort_keys=True).encode()
    return urlsafe_b64encode(sha256(octets).digest()[:HASH_OCTETS]).decode()


BINDING: Final[Fields[ListedBinding]] = {
    "source": lambda each: each.source,
    "vhost": lambda each: each.host,
    "destination": lambda each: each.destination.name,
    "destination_type": lambda each: each.destination.kind,
    "routing_key": lambda each: each.key,
    "arguments": lambda each: as_json(each.arguments),
    "properties_key": lambda each: each.properties_key,
    "warnings": lambda each: [*each.warnings],
}


def order(each: ListedBinding) -> tuple[str, str, bool, str, str, str]:
    target = each.destination
    return each.host, each.source, target.is_exchange, target.name, each.key, each.properties_key


# Bindings found. Lists are copied at once where they could change between turns.


def bindings_in(hosts: Iterable[VirtualHost]) -> Iterator[ListedBinding]:
    for host in hosts:
        yield from map(implicit, list(host.queues.values()))
        for exchange in list(host.exchanges.values()):
            yield from map(made, list(exchange.bindings))


def bindings_from(exchange: Exchange) -> Iterator[ListedBinding]:
    if not exchange.name:
        return map(implicit, list(exchange.virtual_host.queues.values()))
    return map(made, list(exchange.bindings))


def bindings_to(host: VirtualHost, destination: Destination) -> list[ListedBinding]:
    found = [made(binding) for binding in host.bindings_to(destination)]
    return [implicit(destination), *found] if isinstance(destination, Queue) else found


def bindings_between(request: Request, host: VirtualHost, is_exchange: bool) -> list[ListedBinding]:
    """Return the bindings from the source to the destination in the path; none, if either does not exist."""
    source = "" if request.arguments["source"] == DEFAULT else request.arguments["source"]
    place = host.exchanges if is_exchange else host.queues
    destination = place.get(request.arguments["destination"])
    if destination is None:
        return []
    return [each for each in bindings_to(host, destination) if each.source == source]


def binding_named(request: Request, host: VirtualHost, is_exchange: bool) -> ListedBinding:
    """Return the binding in the path. Raises NotFound."""
    for each in bindings_between(request, host, is_exchange):
        if each.properties_key == request.arguments["properties"]:
            return each
    raise not_there()


def shown(request: Request, found: Iterable[ListedBinding]) -> Later:
    return listed(request, found, BINDING, order, lambda each: each.destination.name)


# Routes.


def bindings(request: Request) -> Later:
    return shown(request, bindings_in(visible_hosts(request)))


def bindings_of_host(request: Request) -> Later:
    return shown(request, bindings_in([host_of(request)]))


def bindings_of_queue(request: Request) -> Later:
    host = host_of(request)
    queue = host.queues.get(request.arguments["name"])
    if queue is None:
        raise not_there()
    return shown(request, bindings_to(host, queue))


def bindings_from_exchange(request: Request) -> Later:
    return shown(request, bindings_from(exchange_named(host_of(request), request.arguments["name"])))


def bindings_to_exchange(request: Request) -> Later:
    host = host_of(request)
    return shown(request, bindings_to(host, exchange_named(host, request.arguments["name"])))


def between_exchange_and_queue(request: Request) -> Later:
    return shown(request, bindings_between(request, host_of(request), is_exchange=False))


def between_exchanges(request: Request) -> Later:
    return shown(request, bindings_between(request, host_of(request), is_exchange=True))


def binding_to_queue(request: Request) -> Response:
    return told(request, binding_named(request, host_of(request), is_exchange=False), BINDING)


def binding_to_exchange(request: Request) -> Response:
    return told(request, binding_named(request, host_of(request), is_exchange=True), BINDING)


def bind_queue(request: Request) -> Response:
    return bind(request, is_exchange=False)


def bind_exchange(request: Request) -> Response:
    return bind(request, is_exchange=True)


def bind(request: Request, is_exchange: bool) -> Response:
    """Make a binding. The header Location has its address relative to the source. Raises what `Client.bind` raises."""
    host, body = own_host_of(request), body_of(request)
    source, destination = request.arguments["source"], request.arguments["destination"]
    key, arguments = text_in(body, "routing_key", ""), table_in(body, "arguments")
    client_of(request, host).bind(source, destination, is_exchange, key, arguments)
    request.broker.hold_answer()
    location = f"{quote(destination, safe='')}/{quote(properties_key(key, arguments), safe='~')}"
    return Response(HTTPStatus.CREATED, headers=(("Location", location),))


def unbind_queue(request: Request) -> Response:
    return unbind(request, is_exchange=False)


def unbind_exchange(request: Request) -> Response:
    return unbind(request, is_exchange=True)


def unbind(request: Request, is_exchange: bool) -> Response:
    """Remove the binding in the path. Raises NotFound, and what `Client.unbind` raises."""
    host = own_host_of(request)
    found = binding_named(request, host, is_exchange)
    client_of(request, host).unbind(
        found.source, found.destination.name, is_exchange, found.key, found.arguments
    )
    rest = binding_words(is_exchange, found.destination.name, found.key or "")
    return changed(request, False, BINDING_KIND, host.name, found.source, rest)


ROUTES: Final = (
    Route("GET", PATH, Level.MANAGEMENT, bindings),
    Route("GET", OF_HOST, Level.MANAGEMENT, bindings_of_host),
    Route("GET", OF_QUEUE, Level.MANAGEMENT, bindings_of_queue),
    Route("GET", OF_EXCHANGE + "/source", Level.MANAGEMENT, bindings_from_exchange),
    Route("GET", OF_EXCHANGE + "/destination", Level.MANAGEMENT, bindings_to_exchange),
    Route("GET", TO_QUEUE, Level.MANAGEMENT, between_exchange_and_queue),
    Route("GET", TO_EXCHANGE, Level.MANAGEMENT, between_exchanges),
    Route("POST", TO_QUEUE, Level.MANAGEMENT, bind_queue),
    Route("POST", TO_EXCHANGE, Level.MANAGEMENT, bind_exchange),
    Route("GET", TO_QUEUE + PROPERTIES, Level.MANAGEMENT, binding_to_queue),
    Route("GET", TO_EXCHANGE + PROPERTIES, Level.MANAGEMENT, binding_to_exchange),
    Route("DELETE", TO_QUEUE + PROPERTIES, Level.MANAGEMENT, unbind_queue),
    Route("DELETE", TO_EXCHANGE + PROPERTIES, Level.MANAGEMENT, unbind_exchange),
)

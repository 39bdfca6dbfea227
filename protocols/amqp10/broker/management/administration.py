"""Management requests: `method path?query body` to calls of the core, and their results to statuses.

Requests look like those of HTTP, as in RabbitMQ 4: a path names an object, its parts percent-encoded, and bodies are
AMQP values. `ROUTES` lists them all. A missing permission is not a status: it is raised.

| request                          | answer                                                                            |
|----------------------------------|-----------------------------------------------------------------------------------|
| PUT /queues/:name                | 201 or 200 and the queue; 409 if it exists and differs                            |
| GET /queues/:name                | 200 and the queue                                                                 |
| DELETE /queues/:name             | 200 and the number of its messages; 0 if it did not exist                         |
| DELETE /queues/:name/messages    | 200 and the number of messages purged                                             |
| PUT, GET, DELETE /exchanges/:name| 204, 200 and the exchange, 204                                                    |
| POST /bindings                   | 204                                                                               |
| GET /bindings?src=&dstq=&key=    | 200 and the bindings, each with its location; `dste` if it leads to an exchange   |
| DELETE /bindings/src=;dstq=;...  | 204: the binding of that location is deleted                                      |
| PUT /auth/tokens                 | 204: the connection has a new secret                                              |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, TypeAlias

import attrs

from leveret.client import Client
from leveret.errors import (
    AccessRefused,
    Failure,
    InvalidProperty,
    Locked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    TooMany,
    Unsupported,
)
from leveret.exchanges.exchange_type import Binding
from leveret.protocols.amqp10.broker.management.syntax import (
    Refused,
    Response,
    arguments_of,
    cut,
    decoded,
    digest,
    fields_of,
    location,
    shown,
    shown_binding,
    split,
    text_of,
)
from leveret.protocols.amqp10.codec.types import Array, UInt, ULong, Value
from leveret.queues.queue import Queue

RESERVED: Final = "amq."

Statuses: TypeAlias = Mapping[type[Failure], int]
DECLARING: Final[Statuses] = {
    InvalidProperty: 400,
    Locked: 400,
    TooMany: 403,
    PreconditionFailed: 409,
    NotAllowed: 409,
    Failure: 400,
}
NAMING: Final[Statuses] = {NotFound: 404, Failure: 400}
BINDING: Final[Statuses] = {Failure: 400}


@attrs.frozen
class Request:
    """A request, with the part of its path that varies within a route."""

    segment: str
    query: Mapping[str, str]
    body: Value

    @property
    def name(self) -> str:
        return decoded(self.segment)


class Administration:
    """The operations that a client may request."""

    __slots__ = ("_client", "_node", "_renew")

    def __init__(self, client: Client, node: str, renew: Callable[[bytes], bool]) -> None:
        self._client = client
        self._node = node  # its name
        self._renew = renew  # takes a new secret; returns False if it will be checked, and answered, later

    def answer(self, method: str, target: str, body: Value) -> Response | None:
        """Perform a request and return its response, or None if it will be answered later.

        Raises AccessRefused for a missing permission (X087), and what `renew` raises.
        """
        try:
            segments, query = split(target)
            serve, statuses, segment = _route(method, segments)
            return serve(self, Request(segment, query, body))
        except Refused as refused:
            return refused.response
        except AccessRefused:
            raise
        except Failure as failure:
            status = next(statuses[kind] for kind in type(failure).__mro__ if kind in statuses)
            return Response(status, str(failure))

    def declare_queue(self, request: Request) -> Response:
        """Declare a queue (X077)."""
        name = request.name
        fields = fields_of(request.body, QUEUE_PROPERTIES, "queue property")
        if name == "":
            raise Refused(400, "declare queue with empty name not allowed")
        _require_one_line(name)
        self._require_unreserved("queue", name)
        is_new = name not in self._client.host.queues
        queue = self._client.declare_queue(
            name,
            fields.get("durable") is not False,
            fields.get("exclusive") is True,
            fields.get("auto_delete") is True,
            arguments_of(fields),
        )
        return Response(201 if is_new else 200, self._described(queue))

    def get_queue(self, request: Request) -> Response:
        """Return a queue (X080)."""
        name = request.name
        # a requester waits for replies
        if (waiting := self._client.host.hidden_queues.get(name)) is not None:
            return Response(200, self._described(waiting))
        try:
            return Response(200, self._described(self._client.find_queue(name)))
        except NotFound:
            raise self._missing("queue", name) from None

    def delete_queue(self, request: Request) -> Response:
        name = request.name
        _require_one_line(name)
        try:
            return _counted(self._client.delete_queue(name))
        except NotFound:  # the profile may make this an error, but not here (X081)
            return _counted(0)

    def purge_queue(self, request: Request) -> Response:
        name = request.name
        try:
            return _counted(self._client.purge(name))
        except Unsupported:
            raise Refused(400, f"purge not supported by {self._client.host.queue(name).described}") from None

    def _described(self, queue: Queue) -> dict[str, Value]:
        return {
            "name": queue.name,
            "vhost": self._client.host.name,
            "durable": queue.durable,
            "auto_delete": queue.auto_delete,
            "exclusive": queue.exclusive,
            "type": queue.type.value,
            "arguments": shown(queue.arguments),
            "message_count": ULong(queue.ready),
            "consumer_count": UInt(len(queue.consumers)),
            "leader": self._node,
            "replicas": Array(b"\xb1", [self._node]),
        }

    def declare_exchange(self, request: Request) -> Response:
        """Declare an exchange (X082)."""
        name = request.name
        fields = fields_of(request.body, EXCHANGE_PROPERTIES, "exchange property")
        type_ = fields.get("type", "direct")
        assert isinstance(type_, str)
        if type_ not in self._client.broker.exchange_types:
            raise Refused(400, f"unknown exchange type '{type_}'")
        _require_not_default(name)
        if name not in self._client.host.exchanges:
            _require_one_line(name)
            self._require_unreserved("exchange", name)
        self._client.declare_exchange(
            name,
            type_,
            fields.get("durable") is not False,
            fields.get("auto_delete") is True,
            fields.get("internal") is True,
            arguments_of(fields),
        )
        return Response(204)

    def get_exchange(self, request: Request) -> Response:
        name = request.name
        _require_not_default(name)
        try:
            exchange = self._client.find_exchange(name)
        except NotFound:
            raise self._missing("exchange", name) from None
        told: dict[str, Value] = {
            "name": exchange.name,
            "vhost": self._client.host.name,
            "type": exchange.type.name,
            "durable": exchange.durable,
            "auto_delete": exchange.auto_delete,
            "internal": exchange.internal,
            "arguments": shown(exchange.arguments),
        }
        return Response(200, told)

    def delete_exchange(self, request: Request) -> Response:
        name = request.name
        _require_one_line(name)
        _require_not_default(name)
        self._require_unreserved("exchange", name)
        with suppress(NotFound):  # the profile may make this an error, but not here (X082)
            self._client.delete_exchange(name)
        return Response(204)

    def bind(self, request: Request) -> Response:
        """Bind a queue or an exchange to an exchange (X083)."""
        fields = fields_of(request.body, BINDING_FIELDS, "binding field")
        is_exchange = "destination_exchange" in fields
        source, key = text_of(fields, "source"), text_of(fields, "binding_key")
        destination = text_of(fields, "destination_exchange" if is_exchange else "destination_queue")
        _require_ends(source, destination, is_exchange)
        self._client.bind(source, destination, is_exchange, key, arguments_of(fields))
        return Response(204)

    def list_bindings(self, request: Request) -> Response:
        """List the bindings of a source, destination and key (X084)."""
        query = request.query
        is_exchange = "dste" in query
        if "src" not in query or "key" not in query:
            raise Refused(400, f"missing 'src' or 'key' in query: {cut(str(dict(query)))}")
        if not (is_exchange or "dstq" in query):
            raise Refused(400, f"missing 'dste' or 'dstq' in query: {cut(str(dict(query)))}")
        source, destination = query["src"], query["dste" if is_exchange else "dstq"]
        _require_ends(source, destination, is_exchange)
        found = self._bindings(source, destination, is_exchange, query["key"])
        return Response(200, [shown_binding(each) for each in found])

    def unbind(self, request: Request) -> Response:
        """Remove the binding of a location (X083)."""
        source, destination, is_exchange, key, arguments = location(request.segment)
        _require_ends(source, destination, is_exchange)
        for binding in self._bindings(source, destination, is_exchange, key):
            if digest(binding.arguments) == arguments:
                self._client.unbind(source, destination, is_exchange, key, binding.arguments)
        return Response(204)

    def _bindings(self, source: str, destination: str, is_exchange: bool, key: str) -> list[Binding]:
        try:
            return self._client.bindings(source, destination, is_exchange, key)
        except NotFound:
            return []

    def renew(self, request: Request) -> Response | None:
        """Renew the connection's secret (X086)."""
        if not isinstance(request.body, bytes):
            raise Refused(400, "the body of PUT /auth/tokens must be binary")
        return Response(204) if self._renew(request.body) else None

    def _require_unreserved(self, kind: str, name: str) -> None:
        if name.startswith(RESERVED):
            host = self._client.host.name
            raise Refused(403, f"{kind} '{name}' in vhost '{host}' starts with reserved prefix '{RESERVED}'")

    def _missing(self, kind: str, name: str) -> Refused:
        return Refused(404, f"{kind} '{name}' in vhost '{self._client.host.name}' not found")


def _require_not_default(exchange: str) -> None:
    if exchange == "":
        raise Refused(403, "operation not permitted on the default exchange")


def _require_one_line(name: str) -> None:
    """Refuse a name with line ends (X079)."""
    if "\n" in name or "\r" in name:
        raise Refused(400, f"Bad name '{name}': line feed and carriage return characters not allowed")


def _require_ends(source: str, destination: str, is_exchange: bool) -> None:
    for name, of_exchange in ((source, True), (destination, is_exchange)):
        if of_exchange:
            _require_not_default(name)
        _require_one_line(name)


def _counted(messages: int) -> Response:
    told: dict[str, Value] = {"message_count": ULong(messages)}
    return Response(200, told)


NONE: Final = type(None)
QUEUE_PROPERTIES: Final[Mapping[str, tuple[type, ...]]] = {
    "durable": (bool,),
    "exclusive": (bool,),
    "auto_delete": (bool,),
    "arguments": (dict, NONE),
}
EXCHANGE_PROPERTIES: Final[Mapping[str, tuple[type, ...]]] = {
    "type": (str,),
    "durable": (bool,),
    "auto_delete": (bool,),
    "internal": (bool,),
    "arguments": (dict, NONE),
}
BINDING_FIELDS: Final[Mapping[str, tuple[type, ...]]] = {
    "source": (str,),
    "destination_queue": (str,),
    "destination_exchange": (str,),
    "binding_key": (str,),
    "arguments": (dict, NONE),
}

Serve: TypeAlias = Callable[[Administration, Request], Response | None]

# The colon stands for a segment of any text.
ROUTES: Final[tuple[tuple[str, str, Serve, Statuses], ...]] = (
    ("PUT", "queues/:", Administration.declare_queue, DECLARING),
    ("GET", "queues/:", Administration.get_queue, NAMING),
    ("DELETE", "queues/:", Administration.delete_queue, NAMING),
    ("DELETE", "queues/:/messages", Administration.purge_queue, NAMING),
    ("PUT", "exchanges/:", Administration.declare_exchange, DECLARING),
    ("GET", "exchanges/:", Administration.get_exchange, NAMING),
    ("DELETE", "exchanges/:", Administration.delete_exchange, NAMING),
    ("POST", "bindings", Administration.bind, BINDING),
    ("GET", "bindings", Administration.list_bindings, BINDING),
    ("DELETE", "bindings/:", Administration.unbind, BINDING),
    ("PUT", "auth/tokens", Administration.renew, BINDING),
)


def _route(method: str, segments: list[str]) -> tuple[Serve, Statuses, str]:
    """Return the handler of a request, the statuses of its failures, and the segment that the colon stands for."""
    there = False
    for other, pattern, serve, statuses in ROUTES:
        fixed = pattern.split("/")
        if len(fixed) == len(segments) and all(a in (":", b) for a, b in zip(fixed, segments, strict=True)):
            there = True
            if method == other:
                return serve, statuses, segments[fixed.index(":")] if ":" in fixed else ""
    path = cut("/" + "/".join(segments))
    if there:
        raise Refused(405, f"method '{cut(method)}' not allowed for '{path}'")
    raise Refused(404, f"path '{path}' not found")

"""Serve streams over HTTP: a list, their bounds, and their messages as blocks or as Arrow.

Users that may read a queue over AMQP may read it here; others do not learn whether it exists.
"""

from __future__ import annotations

from http import HTTPStatus
from itertools import islice
from typing import Final

from leveret.delivery import Consumer
from leveret.errors import PreconditionFailed, no_queue
from leveret.exchanges.super_streams import partitions_of
from leveret.protocols.http.bulk import arrow
from leveret.protocols.http.bulk.bulk import BulkAnswer, Source, Wanted
from leveret.protocols.http.connection import Later
from leveret.protocols.http.server.replies import json_response
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.queues.queue import Queue
from leveret.queues.stream import StreamQueue
from leveret.security.users import Permission
from leveret.values import Json
from leveret.virtual_host import VirtualHost

PATH: Final = "/api/leveret/streams/{vhost}"
OCTETS: Final = 4 << 20  # of an answer, unless the client asks for another number
OCTETS_MAX: Final = 16 << 20
WAIT_MS_MAX: Final = 30_000
OFFSET_MAX: Final = (1 << 63) - 1
READERS_MAX: Final = 1000  # listed for one stream
TIMESTAMP_MAX: Final = 253_402_300_800_000  # the year 10000
PARAMETERS: Final = ("from", "until", "max_octets", "wait_ms", "incarnation", "format", "columns")
FORMATS: Final = ("blocks", "arrow")


def streams(request: Request) -> Json:
    """List the streams that the user may read, and then the super streams."""
    request.only()
    host = entered(request)
    found = [stream_json(queue) for queue in host.queues.values() if is_readable(request, queue)]
    supers = [
        {"name": exchange.name, "partitions": [queue.name for queue in partitions]}
        for exchange in host.exchanges.values()
        if (partitions := partitions_of(exchange)) and may_read(request, exchange.name)
    ]
    return [*found, *supers]


def stream(request: Request) -> Json:
    """Answer with a stream, or a super stream with its partitions."""
    request.only()
    host, name = entered(request), request.arguments["name"]
    request.broker.access.check(request.user, host.name, Permission.READ, "queue", name)
    exchange = host.exchanges.get(name)
    if name not in host.queues and exchange is not None and (partitions := partitions_of(exchange)):
        for queue in partitions:
            request.broker.access.check(request.user, host.name, Permission.READ, "queue", queue.name)
        return {"name": name, "partitions": [stream_json(queue) for queue in partitions]}
    return stream_json(stream_named(request))


def readers(request: Request) -> Json:
    """List the readers of a stream, with the number of messages that each has still to be given."""
    request.only()
    queue = stream_named(request)
    return [reader_json(queue, each) for each in islice(queue.consumers, READERS_MAX)]


def offset(request: Request) -> Later:
    """Answer with the first offset of what arrived at a time or later."""
    request.only("timestamp")
    since_ms = request.number("timestamp", None, 0, TIMESTAMP_MAX)
    log, later = stream_named(request).log, Later()

    def found(offset: int) -> None:
        later.answer(json_response({"offset": min(offset, log.committed)}), request.broker.now)

    log.offset_since(since_ms / 1000, found)
    return later


def blocks(request: Request) -> Later:
    """Answer with messages from an offset on, waiting for them if the client asks for it."""
    request.only(*PARAMETERS)
    wanted = wanted_blocks(request)
    return BulkAnswer(request.broker, request.user, StreamSource(stream_named(request)), wanted).begin()


def wanted_blocks(request: Request) -> Wanted:
    """Read the parameters of a request for blocks. Raises PreconditionFailed or Refused if one is wrong."""
    begin = request.number("from", None, 0, OFFSET_MAX)
    kind = request.one("format", FORMATS[0])
    if kind not in FORMATS:
        raise PreconditionFailed(f"parameter 'format' is '{kind}', not one of {', '.join(FORMATS)}")
    if kind == "arrow" and not arrow.is_there():
        raise Refused(HTTPStatus.NOT_IMPLEMENTED, "format=arrow needs pyarrow: pip install 'leveret[arrow]'")
    return Wanted(
        begin,
        request.number("until", None, begin + 1, OFFSET_MAX) if "until" in request.query else None,
        request.number("max_octets", OCTETS, 1, OCTETS_MAX),
        request.one("incarnation", "") or None,
        request.number("wait_ms", 0, 0, WAIT_MS_MAX) / 1000,
        wanted_columns(request, kind),
    )


def wanted_columns(request: Request, kind: str) -> tuple[str, ...]:
    """Return the columns of an answer in Arrow; none for blocks. Raises PreconditionFailed for a name that is unknown
    or repeated.
    """
    if "columns" not in request.query:
        return arrow.COLUMNS if kind == "arrow" else ()
    given = request.one("columns", "")
    if kind != "arrow":
        raise PreconditionFailed("parameter 'columns' is for format=arrow: blocks are sent as they are")
    names = tuple(given.split(","))
    if not set(names) <= set(arrow.COLUMNS) or len(set(names)) < len(names):
        raise PreconditionFailed(
            f"parameter 'columns' is '{given}', not some of {', '.join(arrow.COLUMNS)}, each once"
        )
    return names


class StreamSource(Source):
    """A stream as a source of blocks."""

    def __init__(self, stream: StreamQueue) -> None:
        super().__init__(stream, stream.virtual_host.name, stream.name, stream.incarnation)
        self._stream = stream

    @property
    def first(self) -> int:
        return self._stream.log.first

    def require_there(self) -> None:
        if self._stream.deleted:
            raise no_queue(self.queue, self.host)


# Permissions.


def entered(request: Request) -> VirtualHost:
    """Return the virtual host, if the user may enter it. Raises Refused, also for one that does not exist."""
    name, user = request.arguments["vhost"], request.user
    if not request.broker.access.may_enter(user, name):
        raise Refused(HTTPStatus.FORBIDDEN, f"access to vhost '{name}' refused for user '{user.name}'")
    return request.broker.virtual_host(name)


def stream_named(request: Request) -> StreamQueue:
    """Return the stream in the path. Raises Refused, AccessRefused or NotFound."""
    host, name = entered(request), request.arguments["name"]
    request.broker.access.check(request.user, host.name, Permission.READ, "queue", name)
    queue = host.queue(name)
    if not isinstance(queue, StreamQueue):
        raise Refused(HTTPStatus.BAD_REQUEST, f"{queue.described} is no stream", {"is_queue": True})
    return queue


def may_read(request: Request, name: str) -> bool:
    return request.broker.access.allowed(request.user, request.arguments["vhost"], Permission.READ, name)


def is_readable(request: Request, queue: Queue) -> bool:
    return isinstance(queue, StreamQueue) and may_read(request, queue.name)


def stream_json(queue: Queue) -> Json:
    assert isinstance(queue, StreamQueue)
    log = queue.log
    return {
        "name": queue.name,
        "incarnation": queue.incarnation,
        "first": log.first,
        "next": log.committed,
        "messages": log.messages,
        "octets": log.octets,
    }


def reader_json(queue: StreamQueue, reader: Consumer) -> Json:
    facts = reader.facts()
    return {
        "tag": facts.tag,
        "connection": facts.connection,
        "channel": facts.channel,
        "next": queue.cursors[reader],
        "lag": queue.available_to(reader),
    }


ROUTES: Final = (
    Route("GET", PATH, Level.USER, streams),
    Route("GET", PATH + "/{name}", Level.USER, stream),
    Route("GET", PATH + "/{name}/readers", Level.USER, readers),
    Route("GET", PATH + "/{name}/offset", Level.USER, offset),
    Route("GET", PATH + "/{name}/blocks", Level.USER, blocks),
)

"""Show messages without taking them: those at the head of a queue, or of a stream from an offset on.

Users that may consume from a queue may also look at it. Messages of a stream that are on disk only are read by the
store's reader, while other work has its turns.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from itertools import islice
from typing import Final

from leveret.errors import PreconditionFailed, no_queue
from leveret.protocols.http.bulk.streams import OFFSET_MAX
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.messages import FAR_S, OCTETS_MAX, encoding_in
from leveret.protocols.http.management.requester import client_of, entered
from leveret.protocols.http.management.shapes import AUTO, PayloadView, shown_message
from leveret.protocols.http.server.long_answers import JsonRows
from leveret.protocols.http.server.portioned_answers import PortionedAnswer, turn_of
from leveret.protocols.http.server.replies import OWN
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.queues.queue import Queue
from leveret.queues.stream import StreamQueue
from leveret.queues.stream_log import Found
from leveret.values import Json

PEEK: Final = "/api/leveret/queues/{vhost}/{name}/peek"
PEEKED: Final = 10  # messages, unless the request has a count
PEEKED_MAX: Final = 1000
TRUNCATED: Final = 64 << 10  # bytes of a payload, unless the request has a number
ROOM: Final = 1 << 20  # bytes of a stream's messages that are held at a time, which one message may exceed
FETCH_S: Final = 0.005  # between two looks whether the disk has answered

Steps = Generator[float, None, Response]


def peek(request: Request) -> Later:
    """Answer with the messages that wait first. They stay in place, and are not marked as delivered."""
    request.only("count", "truncate", "encoding", "offset")
    count = request.number("count", PEEKED, 1, PEEKED_MAX)
    truncate = request.number("truncate", TRUNCATED, 0, request.message_size_max)
    look = PayloadView(encoding_in(request.one("encoding", AUTO)), truncate)
    queue = client_of(request, entered(request)).readable_queue(request.arguments["name"])
    offset = request.number("offset", 0, 0, OFFSET_MAX)
    return PortionedAnswer(request.broker, steps(request, queue, offset, count, look), OWN).begin()


def steps(request: Request, queue: Queue, offset: int, count: int, look: PayloadView) -> Steps:
    if isinstance(queue, StreamQueue):
        return read(request, queue, offset, count, look)
    if "offset" in request.query:
        raise PreconditionFailed(f"{queue.described} is no stream; its messages have no offsets")
    return peeked(request, queue, count, look)


def peeked(request: Request, queue: Queue, count: int, look: PayloadView) -> Steps:
    while queue.asks_for_first(count):
        yield FAR_S
    now, turn = request.broker.now, turn_of(request.broker)
    waiting = list(islice((each for each in queue.waiting() if each.expires_at >= now), count))
    with JsonRows(request.broker) as rows:
        for delivery in waiting:
            if rows.octets >= OCTETS_MAX:
                break
            more: dict[str, Json] = {"position": delivery.position}
            rows.append(shown_message(delivery.message, delivery.redelivered, look, more))
            if turn.is_over(is_slow=True):
                yield turn.pause_s
        return rows.response()


def read(request: Request, stream: StreamQueue, offset: int, count: int, look: PayloadView) -> Steps:
    """Show a stream's messages with their offsets, without those dropped by retention. Raises NotFound."""
    turn = turn_of(request.broker)
    with JsonRows(request.broker) as rows:
        while rows.count < count and rows.octets < OCTETS_MAX:
            offsets, messages = yield from found_at(stream, offset, count - rows.count)
            if not messages:
                break
            for at, message in zip(offsets, messages, strict=True):
                more: dict[str, Json] = {"offset": at}
                rows.append(shown_message(message, False, look, more))
                if turn.is_over(is_slow=True):
                    yield turn.pause_s
            offset = offsets[-1] + 1
        return rows.response()


def found_at(stream: StreamQueue, offset: int, quota: int) -> Generator[float, None, Found]:
    """Return messages from an offset on, from disk if need be. Raises NotFound if the stream is deleted meanwhile."""
    while (found := stream.log.read(offset, quota, ROOM)) is None:
        arrived: list[bool] = []
        stream.log.fetch(offset, partial(arrived.append, True))
        while not arrived:
            if stream.deleted:
                raise no_queue(stream.name, stream.virtual_host.name)
            yield FETCH_S
    return found


ROUTES: Final = (Route("GET", PEEK, Level.MANAGEMENT, peek),)

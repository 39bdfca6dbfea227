"""Messages that are looked at and left alone: those at the head of a queue, or of a stream from an offset on.

Who may consume from a queue may look at it. What a stream has on disk only is read by the store's reader, and others
have their turns meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from itertools import islice
from typing import Final

from broker_core.delivery import Delivery
from broker_core.errors import PreconditionFailed, no_queue
from broker_core.operations import Json
from broker_core.queues.queue import Queue
from broker_core.queues.stream import StreamQueue
from broker_core.queues.stream_log import Found
from protocols.http.bulk.streams import OFFSET_MAX
from protocols.http.connection import Later, Response
from protocols.http.management.messages import OCTETS_MAX, encoding_in
from protocols.http.management.requester import client_of, entered
from protocols.http.management.shapes import AUTO, Look, shown_message
from protocols.http.server.long_answers import Rows
from protocols.http.server.replies import OWN
from protocols.http.server.request import Asked, Level, Route
from protocols.http.server.turns import InPortions, turn_of

PEEK: Final = "/api/leveret/queues/{vhost}/{name}/peek"
PEEKED: Final = 10  # messages, unless said
PEEKED_MAX: Final = 1000
TRUNCATED: Final = 64 << 10  # octets of a payload, unless said
ROOM: Final = 1 << 20  # octets of a stream's messages that are held at a time, and one message
FETCH_S: Final = 0.005  # between looks whether the disk has answered

Steps = Generator[float, None, Response]


def peek(asked: Asked) -> Later:
    """What waits first, which stays where it is, and is not marked as delivered."""
    asked.only("count", "truncate", "encoding", "offset")
    count = asked.number("count", PEEKED, 1, PEEKED_MAX)
    truncate = asked.number("truncate", TRUNCATED, 0, asked.message_size_max)
    look = Look(encoding_in(asked.one("encoding", AUTO)), truncate)
    queue = client_of(asked, entered(asked)).readable_queue(asked.arguments["name"])
    offset = asked.number("offset", 0, 0, OFFSET_MAX)
    return InPortions(asked.broker, steps(asked, queue, offset, count, look), OWN).begin()


def steps(asked: Asked, queue: Queue, offset: int, count: int, look: Look) -> Steps:
    if isinstance(queue, StreamQueue):
        return read(asked, queue, offset, count, look)
    if "offset" in asked.query:
        raise PreconditionFailed(f"{queue.described} is no stream; its messages have no offsets")
    now = asked.broker.now
    alive = (delivery for delivery in queue.waiting() if delivery.expires_at >= now)
    return peeked(asked, list(islice(alive, count)), look)


def peeked(asked: Asked, waiting: list[Delivery], look: Look) -> Steps:
    turn = turn_of(asked.broker)
    with Rows(asked.broker) as rows:
        for delivery in waiting:
            if rows.octets >= OCTETS_MAX:
                break
            rows.append(shown_message(delivery.message, delivery.redelivered, look, {}))
            if turn.is_over(is_slow=True):
                yield turn.pause_s
        return rows.response()


def read(asked: Asked, stream: StreamQueue, offset: int, count: int, look: Look) -> Steps:
    """Each with its offset. Those that retention has dropped are passed over. Raises NotFound."""
    turn = turn_of(asked.broker)
    with Rows(asked.broker) as rows:
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
    """What is at an offset and behind it, from the disk if need be. Raises NotFound if the stream goes meanwhile."""
    while (found := stream.log.read(offset, quota, ROOM)) is None:
        arrived: list[bool] = []
        stream.log.fetch(offset, partial(arrived.append, True))
        while not arrived:
            if stream.deleted:
                raise no_queue(stream.name, stream.virtual_host.name)
            yield FETCH_S
    return found


ROUTES: Final = (Route("GET", PEEK, Level.MANAGEMENT, peek),)

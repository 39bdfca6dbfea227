"""Show the messages of a queue that wait for a time, drop them, or deliver them now.

Users that may consume from a queue may also do this, as they may look at it and purge it. A message is known by its
position in the queue, which it keeps as long as it is there.
"""

from __future__ import annotations

from collections.abc import Generator
from http import HTTPStatus
from typing import Final

from leveret.client import Client
from leveret.clock import NEVER
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.request_body import bad, body_of
from leveret.protocols.http.management.requester import answered, client_of, entered, to_the_end
from leveret.protocols.http.server.portioned_answers import turn_of
from leveret.protocols.http.server.replies import json_response
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.queues.queue import Queue
from leveret.queues.scheduled import Scheduled
from leveret.values import Json

ALL: Final = "/api/leveret/queues/{vhost}/{name}/delayed"
ONE: Final = ALL + "/{position}"
DELIVER: Final = ALL + "/deliver"
SHOWN: Final = 100  # messages, unless the request has a count
SHOWN_MAX: Final = 1000
NAMED_MAX: Final = 10_000  # positions in a request
PORTION: Final = 500  # messages that are made ready in one step

Steps = Generator[float, None, Response]


def delayed(request: Request) -> Response:
    """Answer with the messages that are due first, and how many there are in all."""
    request.only("count")
    count = request.number("count", SHOWN, 1, SHOWN_MAX)
    queue = client_of(request, entered(request)).readable_queue(request.arguments["name"])
    rows: list[Json] = [row(queue, each) for each in queue.later.first(count)]
    return json_response({"total": queue.delayed, "messages": rows})


def row(queue: Queue, item: Scheduled) -> Json:
    return {
        "position": item.position,
        "due": ms_of(queue, item.due),
        "expires": None if item.expires_at == NEVER else ms_of(queue, item.expires_at),
        "payload_bytes": item.size,
        "delivery_count": item.attempts,
        "redelivered": item.redelivered,
    }


def ms_of(queue: Queue, at: float) -> int:
    """Return a monotonic time in ms since 1970."""
    clock = queue.virtual_host.broker.clock
    return round((clock.wall() - clock.now() + at) * 1000)


def drop_all(request: Request) -> Response:
    dropped = client_of(request, entered(request)).drop_delayed(request.arguments["name"], None)
    return answered(request, {"dropped": dropped})


def drop_one(request: Request) -> Response:
    """Drop the message at a position. Raises Refused if none waits there."""
    value = request.arguments["position"]
    positions = [int(value)] if value.isascii() and value.isdigit() and len(value) < 20 else []
    if not client_of(request, entered(request)).drop_delayed(request.arguments["name"], positions):
        raise Refused(HTTPStatus.NOT_FOUND, f"no message waits for a time at position {value[:20]}")
    return answered(request, {"dropped": 1})


def deliver(request: Request) -> Later:
    """Make messages ready now: those at the positions in the request, or all that wait."""
    body = body_of(request)
    positions = body.get("positions")
    if positions is not None and not (isinstance(positions, list) and are_positions(positions)):
        raise bad(f"positions: a list of up to {NAMED_MAX} whole numbers")
    client, name = client_of(request, entered(request)), request.arguments["name"]
    queue = client.readable_queue(name)
    named = (
        [each for each in positions if isinstance(each, int)]
        if positions is not None
        else queue.later.positions()
    )
    return to_the_end(request, hastened(request, client, name, named))


def hastened(request: Request, client: Client, name: str, positions: list[int]) -> Steps:
    """Make messages ready now, in portions."""
    turn = turn_of(request.broker)
    count = 0
    for begin in range(0, len(positions), PORTION):
        count += client.hasten(name, positions[begin : begin + PORTION])
        if turn.is_over(is_slow=True):
            yield turn.pause_s
    return answered(request, {"delivered": count})


def are_positions(values: list[Json]) -> bool:
    return len(values) <= NAMED_MAX and all(type(each) is int and each >= 0 for each in values)


ROUTES: Final = (
    Route("GET", ALL, Level.MANAGEMENT, delayed),
    Route("DELETE", ALL, Level.MANAGEMENT, drop_all),
    Route("DELETE", ONE, Level.MANAGEMENT, drop_one),
    Route("POST", DELIVER, Level.MANAGEMENT, deliver),
)

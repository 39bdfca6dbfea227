"""List the unacknowledged deliveries of a channel over HTTP, and renew them: their time to be acknowledged begins anew.

This is for workers whose library has no way to do it on the channel itself, and for operators. Users may renew what
their own connections hold, administrators all.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from leveret.delivery import Delivery
from leveret.errors import AccessRefused
from leveret.protocols.http.connection import Response
from leveret.protocols.http.management.connections import Open
from leveret.protocols.http.management.requester import ADMINISTRATOR, not_there, sees_all
from leveret.protocols.http.server.replies import json_response
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

OF_CHANNEL: Final = "/api/leveret/channels/{name}/deliveries"
RENEWAL: Final = OF_CHANNEL + "/{tag}/renew"
ALL: Final = "all"
TAG_MAX: Final = 20  # digits
LISTED_MAX: Final = 1000  # deliveries told of one channel, the oldest


def deliveries(request: Request) -> Response:
    """Answer with the oldest unacknowledged deliveries of a channel, and how long each may still take."""
    _, held = held_by(request, None)
    now = request.broker.now
    return json_response([row(tag, delivery, now) for tag, delivery in islice(held, LISTED_MAX)])


def row(tag: int, delivery: Delivery, now: float) -> dict[str, Json]:
    allowed_s, consumer = delivery.allowed_s, delivery.consumer
    since = max(0.0, now - delivery.given_at)
    return {
        "delivery_tag": tag,
        "queue": delivery.queue.name,
        "consumer_tag": None if consumer is None else consumer.facts().tag,
        "redelivered": delivery.redelivered,
        "held_ms": round(since * 1000),
        "left_ms": None if allowed_s is None else round(max(0.0, allowed_s - since) * 1000),
        "timeout_ms": None if allowed_s is None else round(allowed_s * 1000),
    }


def renew(request: Request) -> Response:
    """Renew a delivery, or `all` of a channel. Raises NotFound if there is none."""
    tag = request.arguments["tag"]
    connection, held = held_by(request, None if tag == ALL else number_in(tag))
    if request.user.name != connection.facts.user and ADMINISTRATOR not in request.user.tags:
        raise AccessRefused(f"user '{request.user.name}' may not renew what another user holds")
    count = 0
    for _, delivery in held:
        delivery.queue.renew(delivery)
        count += 1
    if not count:
        raise not_there()
    return json_response({"renewed": count})


def number_in(tag: str) -> int:
    """Return a tag as a number. Raises NotFound if it is none."""
    if not (tag.isascii() and tag.isdecimal() and len(tag) <= TAG_MAX):
        raise not_there()
    return int(tag)


def held_by(request: Request, tag: int | None) -> tuple[Open, Iterable[tuple[int, Delivery]]]:
    """Return the connection of the channel in the path, and what the channel has not answered: all, or this tag."""
    name, _, number = request.arguments["name"].rpartition(" (")
    connection = visible_connection(request, name)
    front = connection.connected.front
    if front is None or all(f"{each.number})" != number for each in front.channel_facts()):
        raise not_there()
    return connection, front.unsettled(int(number[:-1]), tag)


def visible_connection(request: Request, name: str) -> Open:
    """Return the connection with this name. Raises NotFound if it is not there, or not to be seen by the user."""
    for connected in request.operations.connections():
        if connected.peer.name == name and connected.front is not None:
            facts = connected.front.facts()
            if facts is not None and (sees_all(request) or facts.user == request.user.name):
                return Open(connected, facts)
    raise not_there()


ROUTES: Final = (
    Route("GET", OF_CHANNEL, Level.MANAGEMENT, deliveries),
    Route("PUT", RENEWAL, Level.MANAGEMENT, renew),
)

"""Publish many messages in one request, as blocks, at least once.

blocks ──checked (input_blocks.py)──> every row has a route and room ──> published, a portion a turn
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from http import HTTPStatus
from itertools import islice
from math import ceil
from typing import TYPE_CHECKING, Final

from leveret.broker import WORK_MAX
from leveret.features.staging.publication import LOOK_S
from leveret.protocols.http.bulk.input_blocks import InputBlocks
from leveret.protocols.http.bulk.streams import entered
from leveret.protocols.http.server.portioned_answers import PortionedAnswer
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.publishing.portion import publish_portion
from leveret.queues.discarded_messages import PAUSE_S

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.exchanges import routing
    from leveret.message import Message
    from leveret.protocols.http.connection import Later
    from leveret.publishing.publish_rate import PublishRate
    from leveret.queues.queue import Queue
    from leveret.values import Json
    from leveret.virtual_host import VirtualHost

PATH: Final = "/api/leveret/publish/{vhost}"
PORTION: Final = 2000  # rows a turn: 5 ms
RETRY_AFTER: Final = (("Retry-After", "1"),)


def publish(request: Request) -> Later:
    """Publish the rows of the body in portions, and answer when they are on disk."""
    request.only("mandatory")
    mandatory = request.flag("mandatory")
    require_no_alarm(request.broker)
    host = entered(request)
    rates = rates_with_room(request, host)
    return PortionedAnswer(request.broker, publish_steps(request, host, mandatory, rates)).begin()


def publish_steps(
    request: Request, host: VirtualHost, mandatory: bool, rates: Sequence[PublishRate]
) -> Generator[float, None, Json]:
    incoming = InputBlocks(request, host)
    yield from incoming.check()
    yield from require_destinations(incoming, host, mandatory)
    published = unroutable = 0
    messages = incoming.messages()
    while portion := list(islice(messages, PORTION)):
        left: Sequence[Message] = portion
        while left:
            done = publish_portion(host, left)
            published += done.taken
            unroutable += done.unroutable
            if done.is_full:
                raise full(f"a queue has no room for more; {published} of {incoming.rows} rows are published")
            left = left[done.done :]
            if request.broker.work > WORK_MAX:
                yield PAUSE_S
        has_room = taken(rates, len(portion), request.broker.now)
        if published + unroutable < incoming.rows:
            yield PAUSE_S
            while request.broker.is_behind or not has_room:
                yield LOOK_S
                has_room = taken(rates, 0, request.broker.now)
    return {"published": published, "unroutable": unroutable}


def require_destinations(
    incoming: InputBlocks, host: VirtualHost, mandatory: bool
) -> Generator[float, None, None]:
    """Check that queues have room for all rows and, if `mandatory`, that each row has a route. Raises Refused."""
    needs: dict[Queue, tuple[int, int]] = {}
    for number, message in enumerate(incoming.messages(), 1):
        found = route_of(message, host)
        if mandatory:
            require_route(message, found)
        if found is not None:
            for queue in found.queues:
                messages, octets = needs.get(queue, (0, 0))
                needs[queue] = messages + 1, octets + message.size
        if number % PORTION == 0:
            yield PAUSE_S
    for queue, need in needs.items():
        if not queue.deleted and not queue.has_room(*need):
            raise full(f"{queue.described} has no room for {need[0]} more messages; nothing is published")


# Also for staging.


def require_routes(incoming: InputBlocks, host: VirtualHost) -> Generator[float, None, None]:
    """Check that every row has a route to a queue. Raises Refused otherwise."""
    for number, sample in enumerate(incoming.samples(), 1):
        found = route_of(sample, host)
        if found is not None and not found.lasting:  # its route may depend on its body
            yield from _require_each_route(incoming, host)
            return
        require_route(sample, found)
        if number % PORTION == 0:
            yield PAUSE_S


def _require_each_route(incoming: InputBlocks, host: VirtualHost) -> Generator[float, None, None]:
    for number, message in enumerate(incoming.messages(), 1):
        require_route(message, route_of(message, host))
        if number % PORTION == 0:
            yield PAUSE_S


def route_of(message: Message, host: VirtualHost) -> routing.Route | None:
    """Return the route of a message, or None if its exchange has been deleted meanwhile."""
    exchange = host.exchanges.get(message.exchange)
    return None if exchange is None else host.broker.route(exchange, message)


def require_route(message: Message, found: routing.Route | None) -> None:
    """Check that a route leads to a queue. Raises Refused otherwise."""
    if found is None or found.unroutable:
        reason = f"no queue is bound for a message to exchange '{message.exchange}' with key '{message.key}'"
        more: dict[str, Json] = {"exchange": message.exchange, "key": message.key}
        raise Refused(HTTPStatus.UNPROCESSABLE_ENTITY, reason, more)


def require_no_alarm(broker: Broker) -> None:
    """Check that no alarm holds publishers back. Raises Refused otherwise."""
    if broker.alarms.reason is not None:
        raise full(f"the node takes no messages now: {broker.alarms.reason}")


def rates_with_room(request: Request, host: VirtualHost) -> Sequence[PublishRate]:
    """Return the rates that hold for the user's messages in this virtual host.

    Raises Refused (429, with the time to wait) if one of them is used up.
    """
    rates, now = request.broker.publish_rates.of(request.user, host), request.broker.now
    wait_s = max((rate.wait_s(now) for rate in rates), default=0.0)
    if wait_s > 0:
        retry = (("Retry-After", str(ceil(wait_s))),)
        raise Refused(HTTPStatus.TOO_MANY_REQUESTS, "the publish rate is used up", headers=retry)
    return rates


def taken(rates: Sequence[PublishRate], count: int, now: float) -> bool:
    """Count published messages. Return whether more may be published now."""
    left = [rate.take(count, now) for rate in rates]
    return all(left)


def full(reason: str) -> Refused:
    return Refused(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers=RETRY_AFTER)


ROUTES: Final = (Route("POST", PATH, Level.USER, publish, large=True),)

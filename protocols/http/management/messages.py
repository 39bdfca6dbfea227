"""Publish, fetch and purge messages by hand over HTTP, for people and tests; programs should rather use AMQP.

Fetched messages are unsettled until the answer is ready, and only then settled as the request says, so that a client
that disconnects before loses nothing. Permissions are those of the same operations over AMQP.
"""

from __future__ import annotations

from collections.abc import Generator
from http import HTTPStatus
from typing import Final

import attrs

from leveret.broker import REFUSED, TAKEN
from leveret.client import Client
from leveret.delivery import Delivery
from leveret.errors import AccessRefused, Failure, NotAtHand, NotFound, PreconditionFailed, Unsupported
from leveret.protocols.http.bulk.publish import rates_with_room, require_no_alarm, taken
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.request_body import JsonObject, bad, body_of, shown, text_in, whole_in
from leveret.protocols.http.management.requester import DONE, changed, client_of, entered
from leveret.protocols.http.management.shapes import AUTO, BASE64, PayloadView, message_in, shown_message
from leveret.protocols.http.server.durable_answers import DurableAnswer
from leveret.protocols.http.server.long_answers import JsonRows
from leveret.protocols.http.server.portioned_answers import PortionedAnswer, turn_of
from leveret.protocols.http.server.replies import API
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.queues.queue import Queue

QUEUE: Final = "/api/queues/{vhost}/{name}"
DEFAULT_EXCHANGE: Final = "amq.default"  # in paths
PUBLISHED_MAX: Final = 8 << 20  # bytes of a body, which is parsed in one go: 20 ms
FETCHED_MAX: Final = 10_000  # messages in an answer
FAR_S: Final = 0.005  # between two looks at a message that is on its way from another machine
OCTETS_MAX: Final = 32 << 20  # of an answer, which one message may exceed
REQUEUES: Final = {  # by ackmode: whether the messages are requeued
    "ack_requeue_true": True,
    "ack_requeue_false": False,
    "reject_requeue_true": True,
    "reject_requeue_false": False,
}
REJECTS: Final = "reject_requeue_false"


# Publish.


def publish(request: Request) -> Later:
    """Publish a message and answer, once it is on disk if it is durable, whether any queue has it."""
    host, later = entered(request), Later()
    body = body_of(request, "properties", "routing_key", "payload", "payload_encoding")
    name = "" if request.arguments["name"] == DEFAULT_EXCHANGE else request.arguments["name"]
    try:
        message = message_in(body, request.broker, name, request.message_size_max)
        client = client_of(request, host)
        exchange = client.publish_target(name, message.keys)
        if message.facts.user_id is not None:
            client.require_user_id(message.facts.user_id)
    except Failure as failure:
        raise bad(f"{codes(failure)} - {failure}") from None
    require_no_alarm(request.broker)
    rates = rates_with_room(request, host)
    outcome = request.broker.publish(exchange, message)
    if outcome is REFUSED and not request.broker.refused_by:
        raise bad(f"406 PRECONDITION_FAILED - {request.broker.refused_for}")
    taken(rates, 1, request.broker.now)
    DurableAnswer(request.broker, later, {"routed": outcome is TAKEN})
    return later


def codes(failure: Failure) -> str:
    """Return the reply code and text that a channel would have been closed with, which RabbitMQ gives."""
    if isinstance(failure, NotFound):
        return "404 NOT_FOUND"
    if isinstance(failure, AccessRefused):
        return "403 ACCESS_REFUSED"
    if isinstance(failure, PreconditionFailed):
        return "406 PRECONDITION_FAILED"
    return "540 NOT_IMPLEMENTED" if isinstance(failure, Unsupported) else "530 NOT_ALLOWED"


# Fetch.


@attrs.frozen
class Fetch:
    """The parameters of a request to fetch messages."""

    count: int
    mode: str
    look: PayloadView

    @classmethod
    def of(cls, body: JsonObject) -> Fetch:
        """Read a request's body. Raises Refused if a value is wrong."""
        mode, count = text_in(body, "ackmode"), whole_in(body, "count")
        if mode not in REQUEUES:
            raise bad(["unknown_ackmode", shown(mode)])
        truncate = whole_in(body, "truncate") if body.get("truncate") is not None else None
        if truncate is not None and truncate < 0:
            raise bad(["not_positive", "truncate"])
        count = FETCHED_MAX if count < 0 else min(count, FETCHED_MAX)
        return cls(count, mode, PayloadView(encoding_in(text_in(body, "encoding")), truncate))


def encoding_in(encoding: str) -> str:
    """Return the payload encoding if it is a known one. Raises Refused otherwise."""
    if encoding not in (AUTO, BASE64):
        raise bad("Unsupported encoding. Please use auto or base64.")
    return encoding


def get(request: Request) -> Later:
    """Answer with the first messages of a queue, and then settle or requeue them."""
    host = entered(request)
    wanted = Fetch.of(body_of(request, "ackmode", "count", "encoding"))
    client = client_of(request, host)
    try:
        queue = client.readable_queue(request.arguments["name"])
    except NotFound as failure:
        raise Refused(HTTPStatus.NOT_FOUND, f"NOT_FOUND - {failure}", {"error": "not_found"}) from None
    return PortionedAnswer(request.broker, fetched(request, client, queue, wanted), API).begin()


def fetched(
    request: Request, client: Client, queue: Queue, wanted: Fetch
) -> Generator[float, None, Response]:
    """Make the answer. Raises what fetching from the queue raises."""
    turn, taken = turn_of(request.broker), TakenMessages(queue)
    with JsonRows(request.broker) as rows:
        try:
            while rows.count < wanted.count and rows.octets < OCTETS_MAX:
                try:
                    delivery = client.get(queue, settled=False, paused_too=True)
                except NotAtHand:
                    yield FAR_S
                    continue
                if delivery is None:
                    break
                taken.deliveries.append(delivery)
                more = {"message_count": queue.ready}
                rows.append(shown_message(delivery.message, delivery.redelivered, wanted.look, more))
                if turn.is_over(is_slow=True):
                    yield turn.pause_s
            taken.settle(wanted.mode)
        finally:
            taken.release()  # if they have been settled, none are left here
        return rows.response()


class TakenMessages:
    """The messages that have been taken from a queue for an answer that is not ready yet."""

    __slots__ = ("_queue", "deliveries")

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.deliveries: list[Delivery] = []

    def settle(self, mode: str) -> None:
        if REQUEUES[mode]:
            self.release()
            return
        deliveries, self.deliveries = self.deliveries, []
        outcome = self._queue.reject if mode == REJECTS else self._queue.accept
        for delivery in deliveries:
            outcome(delivery)

    def release(self) -> None:
        """Put the messages back to their places."""
        deliveries, self.deliveries = self.deliveries, []
        for delivery in deliveries:
            self._queue.release(delivery)


# Purge, and other actions.


def purge(request: Request) -> Response:
    client_of(request, entered(request)).purge(request.arguments["name"])
    return changed(request, False)


def act(request: Request) -> Response:
    """Accept actions on mirrors, which do nothing here because there are none. Raises Refused for other actions."""
    action = text_in(body_of(request, "action"), "action")
    if action not in ("sync", "cancel_sync"):
        raise bad(["unknown", shown(action)])
    client_of(request, entered(request)).find_queue(request.arguments["name"])
    return DONE


ROUTES: Final = (
    Route(
        "POST",
        "/api/exchanges/{vhost}/{name}/publish",
        Level.MANAGEMENT,
        publish,
        large=True,
        octets_max=PUBLISHED_MAX,
    ),
    Route("POST", QUEUE + "/get", Level.MANAGEMENT, get),
    Route("DELETE", QUEUE + "/contents", Level.MANAGEMENT, purge),
    Route("POST", QUEUE + "/actions", Level.MANAGEMENT, act),
)

"""Serve leases over HTTP: a work queue that is read by ranges of offsets (`features/leases/lease.py`).

Users that may read a queue may have leases of it; others do not learn whether the queue exists. The client that has
opened a lease sends its fence with every change, and is told when another client has opened it since.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeVar

from leveret.errors import Failure
from leveret.features.leases.lease import Busy, Fenced, Lease, lease_of, leases_of, no_lease, opened
from leveret.features.leases.release import UnreadableRows
from leveret.protocols.http.bulk.bulk import BulkAnswer, Source
from leveret.protocols.http.bulk.streams import (
    OFFSET_MAX,
    PARAMETERS,
    WAIT_MS_MAX,
    entered,
    may_read,
    wanted_blocks,
)
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.server.replies import json_response, refused_response
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.security.users import Permission
from leveret.values import Json

T = TypeVar("T")

PATH: Final = "/api/leveret/leases/{vhost}"
ONE: Final = PATH + "/{queue}/{reader}"
MESSAGES: Final = 10_000  # reserved, unless the client asks for another number
MESSAGES_MAX: Final = 1_000_000
OCTETS: Final = 64 << 20
OCTETS_MAX: Final = 1 << 30
FENCE_MAX: Final = (1 << 63) - 1
RETRY_AFTER_S: Final = 1


def leases(request: Request) -> Json:
    """List the leases of queues that the user may read."""
    request.only()
    return [
        state(each) for each in leases_of(entered(request)).values() if may_read(request, each.queue.name)
    ]


def lease(request: Request) -> Json:
    request.only()
    return state(found(request))


def open_lease(request: Request) -> Json:
    """Open a lease, made if need be, and shut out the client that had it."""
    request.only()
    require_reading(request)
    opened_lease = opened(entered(request).queue(request.arguments["queue"]), request.arguments["reader"])
    request.broker.hold_answer()
    return {**state(opened_lease), "fence": opened_lease.fence}


def reserve(request: Request) -> Later:
    """Settle the messages below an offset, and reserve some from there on, waiting for the first if asked to."""
    request.only("fence", "from", "messages", "octets", "wait_ms")
    begin = request.number("from", None, 0, OFFSET_MAX)
    messages = request.number("messages", MESSAGES, 1, MESSAGES_MAX)
    octets = request.number("octets", OCTETS, 1, OCTETS_MAX)
    wait_s = request.number("wait_ms", 0, 0, WAIT_MS_MAX) / 1000
    mine = fenced(request)
    require_place(mine, begin, least=mine.first)
    later = Later()
    reserved = told(lambda: mine.reserve(begin, messages, octets, wait_s, answering(request, mine, later)))
    later.dropped = reserved.drop
    return later


def settle(request: Request) -> Json:
    """Settle the messages below an offset."""
    request.only("fence", "to")
    until = request.number("to", None, 0, OFFSET_MAX)
    mine = fenced(request)
    require_place(mine, until, least=0)
    told(lambda: mine.settle(until))
    request.broker.hold_answer()
    return state(mine)


def release(request: Request) -> Later:
    """Put all messages that are not settled back into the queue."""
    request.only("fence")
    mine, later = fenced(request), Later()
    told(lambda: mine.release(answering(request, mine, later)))
    return later


def delete(request: Request) -> Later:
    """Put all messages that are not settled back into the queue, and forget the lease."""
    request.only()
    unwanted, later = found(request), Later()

    def content() -> Json:
        return {"released": releasing.released}

    releasing = told(lambda: unwanted.release(answering(request, unwanted, later, content), for_good=True))
    return later


def blocks(request: Request) -> Later:
    """Answer with reserved messages from an offset on, waiting for them if the client asks for it."""
    request.only(*PARAMETERS, "fence")
    wanted = wanted_blocks(request)
    fence = fence_of(request) if "fence" in request.query else None
    return BulkAnswer(request.broker, request.user, LeaseSource(found(request), fence), wanted).begin()


class LeaseSource(Source):
    """A lease as a source of blocks. With a fence, only the client that has opened it last may read."""

    def __init__(self, source: Lease, fence: int | None) -> None:
        queue = source.queue
        super().__init__(source, queue.virtual_host.name, queue.name, source.incarnation)
        self._lease = source
        self._fence = fence

    @property
    def first(self) -> int:
        return self._lease.first

    def require_there(self) -> None:
        here = self._lease
        if here.ended:
            raise no_lease(here.queue.name, here.reader, here.queue.virtual_host.name)
        if self._fence is not None:
            told(lambda: here.require(self._fence or 0))


# The lease, and its user.


def require_reading(request: Request) -> None:
    """Check that the user may read the queue. Raises Refused or AccessRefused otherwise."""
    host = entered(request).name
    request.broker.access.check(request.user, host, Permission.READ, "queue", request.arguments["queue"])


def found(request: Request) -> Lease:
    """Return the lease in the path. Raises Refused, AccessRefused or NotFound if the user may not read it."""
    require_reading(request)
    host = entered(request)
    host.queue(request.arguments["queue"])  # raises NotFound if the queue is gone
    return lease_of(host, request.arguments["queue"], request.arguments["reader"])


def fenced(request: Request) -> Lease:
    """Return the lease if no other client has opened it since. Raises Refused, AccessRefused or NotFound."""
    fence, mine = fence_of(request), found(request)
    told(lambda: mine.require(fence))
    return mine


def fence_of(request: Request) -> int:
    return request.number("fence", None, 0, FENCE_MAX)


def require_place(mine: Lease, offset: int, least: int) -> None:
    """Check that an offset is one of the lease's. Raises Refused otherwise."""
    bounds = {"first": mine.first, "next": mine.log.committed}
    if offset < least:
        reason = f"offset {offset} of {mine.described} is settled; its first is {mine.first}"
        raise Refused(HTTPStatus.GONE, reason, bounds)
    if offset > mine.log.committed:
        reason = f"{mine.described} has no offset {offset} yet; its next is {mine.log.committed}"
        raise Refused(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, reason, bounds)


# Answers.


def state(of: Lease) -> dict[str, Json]:
    """Return the state of a lease as it is on disk."""
    following = max(of.first, of.log.committed)
    return {
        "queue": of.queue.name,
        "reader": of.reader,
        "incarnation": of.incarnation,
        "first": of.first,
        "next": following,
        "messages": following - of.first,
        "octets": of.octets,
        "ready": of.queue.ready,
    }


def told(step: Callable[[], T]) -> T:
    """Take a step and turn its failure into the one for HTTP."""
    try:
        return step()
    except (Fenced, Busy, UnreadableRows) as failure:
        raise in_http(failure) from None


def in_http(failure: Failure) -> Refused | Failure:
    if isinstance(failure, Fenced):
        return Refused(HTTPStatus.CONFLICT, str(failure), {"fenced": True})
    if isinstance(failure, Busy | UnreadableRows):
        headers = (("Retry-After", str(RETRY_AFTER_S)),)
        return Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(failure), headers=headers)
    return failure


def answering(
    request: Request, about: Lease, later: Later, content: Callable[[], Json] | None = None
) -> Callable[[Failure | None], None]:
    """Return a callback that answers when something has ended, in the next turn: its caller must go on first."""
    broker = request.broker

    def response(why: Failure | None) -> Response:
        try:
            if why is not None:
                raise in_http(why)
            require_reading(request)  # it may have changed meanwhile
            return json_response(state(about) if content is None else content())
        except (Refused, Failure) as refused:
            return refused_response(refused)

    def then(why: Failure | None) -> None:
        broker.timers.at(broker.now, lambda now: later.answer(response(why), now))

    return then


ROUTES: Final = (
    Route("GET", PATH, Level.USER, leases),
    Route("PUT", ONE, Level.USER, open_lease),
    Route("GET", ONE, Level.USER, lease),
    Route("DELETE", ONE, Level.USER, delete),
    Route("POST", ONE + "/reserve", Level.USER, reserve),
    Route("POST", ONE + "/settle", Level.USER, settle),
    Route("POST", ONE + "/release", Level.USER, release),
    Route("GET", ONE + "/blocks", Level.USER, blocks),
)

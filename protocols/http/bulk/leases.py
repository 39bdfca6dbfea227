"""Leases over HTTP: a work queue read by ranges (`broker_core/leases/lease.py`).

Whoever may read a queue may have leases of it. Who may not is not told whether it is there. Who has opened a lease says
its fence with everything that changes it, and is told when somebody else has opened it since.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Final, TypeVar

from broker_core.errors import Failure
from broker_core.leases.lease import Busy, Fenced, Lease, lease_of, no_lease, opened
from broker_core.leases.release import Unreadable
from broker_core.operations import Json
from broker_core.security.access import Permission
from protocols.http.bulk.bulk import BulkAnswer, Source
from protocols.http.bulk.streams import OFFSET_MAX, PARAMETERS, WAIT_MS_MAX, entered, may_read, wanted_blocks
from protocols.http.connection import Later, Response
from protocols.http.server.replies import json_response, refused_response
from protocols.http.server.request import Asked, Level, Refused, Route

T = TypeVar("T")

PATH: Final = "/api/leveret/leases/{vhost}"
ONE: Final = PATH + "/{queue}/{reader}"
MESSAGES: Final = 10_000  # reserved, unless the client says otherwise
MESSAGES_MAX: Final = 1_000_000
OCTETS: Final = 64 << 20
OCTETS_MAX: Final = 1 << 30
FENCE_MAX: Final = (1 << 63) - 1
RETRY_AFTER_S: Final = 1


def leases(asked: Asked) -> Json:
    """Those of queues that the user may read."""
    asked.only()
    return [state(each) for each in entered(asked).leases.values() if may_read(asked, each.queue.name)]


def lease(asked: Asked) -> Json:
    asked.only()
    return state(found(asked))


def open_lease(asked: Asked) -> Json:
    """Make it if need be, and shut out who had it."""
    asked.only()
    require_reading(asked)
    opened_lease = opened(entered(asked).queue(asked.arguments["queue"]), asked.arguments["reader"])
    asked.broker.hold_answer()
    return {**state(opened_lease), "fence": opened_lease.fence}


def reserve(asked: Asked) -> Later:
    """Settle what is below an offset, and have messages from there on; wait for the first if the client wants that."""
    asked.only("fence", "from", "messages", "octets", "wait_ms")
    begin = asked.number("from", None, 0, OFFSET_MAX)
    messages = asked.number("messages", MESSAGES, 1, MESSAGES_MAX)
    octets = asked.number("octets", OCTETS, 1, OCTETS_MAX)
    wait_s = asked.number("wait_ms", 0, 0, WAIT_MS_MAX) / 1000
    mine = fenced(asked)
    require_place(mine, begin, least=mine.first)
    later = Later()
    reserved = told(lambda: mine.reserve(begin, messages, octets, wait_s, answering(asked, mine, later)))
    later.dropped = reserved.drop
    return later


def settle(asked: Asked) -> Json:
    """What is below an offset has been dealt with."""
    asked.only("fence", "to")
    until = asked.number("to", None, 0, OFFSET_MAX)
    mine = fenced(asked)
    require_place(mine, until, least=0)
    told(lambda: mine.settle(until))
    asked.broker.hold_answer()
    return state(mine)


def release(asked: Asked) -> Later:
    """Put everything that is not settled back into the queue."""
    asked.only("fence")
    mine, later = fenced(asked), Later()
    told(lambda: mine.release(answering(asked, mine, later)))
    return later


def delete(asked: Asked) -> Later:
    """Put everything back, and forget the lease."""
    asked.only()
    unwanted, later = found(asked), Later()

    def content() -> Json:
        return {"released": releasing.released}

    releasing = told(lambda: unwanted.release(answering(asked, unwanted, later, content), for_good=True))
    return later


def blocks(asked: Asked) -> Later:
    """Messages that are reserved, from an offset on; waits for them if the client wants that."""
    asked.only(*PARAMETERS, "fence")
    wanted = wanted_blocks(asked)
    fence = fence_of(asked) if "fence" in asked.query else None
    return BulkAnswer(asked.broker, asked.user, LeaseSource(found(asked), fence), wanted).begin()


class LeaseSource(Source):
    """A lease as blocks are made of it. With a fence, for who has opened it last only."""

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


# Which lease, and whose.


def require_reading(asked: Asked) -> None:
    """Raises Refused, AccessRefused."""
    host = entered(asked).name
    asked.broker.access.check(asked.user, host, Permission.READ, "queue", asked.arguments["queue"])


def found(asked: Asked) -> Lease:
    """The lease, if the user may read its queue. Raises Refused, AccessRefused, NotFound."""
    require_reading(asked)
    host = entered(asked)
    host.queue(asked.arguments["queue"])  # or it is not there either
    return lease_of(host, asked.arguments["queue"], asked.arguments["reader"])


def fenced(asked: Asked) -> Lease:
    """The lease, if it was not opened by somebody else since. Raises Refused, AccessRefused, NotFound."""
    fence, mine = fence_of(asked), found(asked)
    told(lambda: mine.require(fence))
    return mine


def fence_of(asked: Asked) -> int:
    return asked.number("fence", None, 0, FENCE_MAX)


def require_place(mine: Lease, offset: int, least: int) -> None:
    """Raises Refused."""
    bounds = {"first": mine.first, "next": mine.log.committed}
    if offset < least:
        reason = f"offset {offset} of {mine.described} is settled; its first is {mine.first}"
        raise Refused(HTTPStatus.GONE, reason, bounds)
    if offset > mine.log.committed:
        reason = f"{mine.described} has no offset {offset} yet; its next is {mine.log.committed}"
        raise Refused(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE, reason, bounds)


# Answers.


def state(of: Lease) -> dict[str, Json]:
    """As it is on disk."""
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
    """What the core does, or why not, as HTTP says it."""
    try:
        return step()
    except (Fenced, Busy, Unreadable) as failure:
        raise in_http(failure) from None


def in_http(failure: Failure) -> Refused | Failure:
    if isinstance(failure, Fenced):
        return Refused(HTTPStatus.CONFLICT, str(failure), {"fenced": True})
    if isinstance(failure, Busy | Unreadable):
        headers = (("Retry-After", str(RETRY_AFTER_S)),)
        return Refused(HTTPStatus.SERVICE_UNAVAILABLE, str(failure), headers=headers)
    return failure


def answering(
    asked: Asked, about: Lease, later: Later, content: Callable[[], Json] | None = None
) -> Callable[[Failure | None], None]:
    """What answers when something has ended: in the next turn, for whoever ends it has other things to do."""
    broker = asked.broker

    def response(why: Failure | None) -> Response:
        try:
            if why is not None:
                raise in_http(why)
            require_reading(asked)  # that may have changed meanwhile
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

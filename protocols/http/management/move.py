"""Move the messages of a queue to another queue, a portion a turn.

    taken ──a portion──> into the other queue, and off the first: one commit ──> ... ──> answer with the count

After a crash each message is in exactly one of the two queues. Messages keep their properties, the exchange and key
that they were published with, and their history; they arrive at the other queue as new messages, behind those that wait
there.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from leveret.errors import NotAtHand, PreconditionFailed
from leveret.protocols.http.connection import Later
from leveret.protocols.http.management.request_body import body_of, text_in, whole_in
from leveret.protocols.http.management.requester import client_of, entered
from leveret.protocols.http.server.portioned_answers import PortionedAnswer
from leveret.protocols.http.server.replies import OWN
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.queues.queue import Queue
from leveret.security.users import Permission
from leveret.values import Json

MOVE: Final = "/api/leveret/queues/{vhost}/{name}/move"
PORTION: Final = 500  # messages a turn: 5 ms
PORTION_OCTETS: Final = 1 << 20
PAUSE_S: Final = 0.001
LOOK_S: Final = 0.02  # between two looks at a disk that is behind


def move(request: Request) -> Later:
    """Move messages to the queue that the body calls `to`, at most `count` of them.

    Raises Refused if the body is wrong, and Failures if a queue is missing, not permitted or unsuitable.
    """
    body = body_of(request, "to")
    client = client_of(request, entered(request))
    source, to = client.readable_queue(request.arguments["name"]), text_in(body, "to")
    request.broker.access.check(request.user, client.host.name, Permission.WRITE, "queue", to)
    target = client.own_queue(to)
    if target is source:
        raise PreconditionFailed(f"{source.described} cannot be moved to itself")
    if target.selector is not None:
        raise PreconditionFailed(f"{target.described} keeps only what suits its selector")
    count = whole_in(body, "count", source.ready)
    return PortionedAnswer(
        request.broker, moved(request, source, target, min(count, source.ready)), OWN
    ).begin()


def moved(request: Request, source: Queue, target: Queue, count: int) -> Generator[float, None, Json]:
    """Move at most as many messages as waited at the start: queues that lead in circles may bring moved ones back."""
    done = 0
    while done < count and not (source.deleted or target.deleted):
        portion, is_at_hand = moved_now(source, target, min(PORTION, count - done))
        done += portion
        if not is_at_hand:
            yield LOOK_S
        elif not portion:
            break
        yield PAUSE_S
        while request.broker.is_behind:
            yield LOOK_S
    return {"moved": done, "left": source.ready}


def moved_now(source: Queue, target: Queue, count: int) -> tuple[int, bool]:
    """Move a portion. Return its size, and whether the next message is at hand.

    It is smaller if no more wait, they are large, or the other queue has no room.
    """
    done = octets = 0
    while done < count and octets < PORTION_OCTETS:
        try:
            delivery = source.take_one(settled=False)
        except NotAtHand:
            return done, False
        if delivery is None:
            break
        message = delivery.message
        if not (target.has_room(1, message.size) and target.push(message)):
            source.release(delivery, failed=False, redelivered=False)
            break
        source.accept(delivery)
        done += 1
        octets += message.size
    return done, True


ROUTES: Final = (Route("POST", MOVE, Level.MANAGEMENT, move),)

"""Return dead letters of a queue to the queues that they came from.

    positions, or how many ──> each taken ──> into the queue of its first death, and off this one: one commit

Messages keep their properties and their history, and arrive behind those that wait there. One that cannot go back
stays where it is, and the answer says why. After a crash each is in exactly one of the two queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from itertools import islice
from typing import Final

from leveret.client import Client
from leveret.delivery import Delivery
from leveret.errors import Failure
from leveret.protocols.http.connection import Later
from leveret.protocols.http.management.delayed import NAMED_MAX, are_positions
from leveret.protocols.http.management.messages import FAR_S
from leveret.protocols.http.management.move import PAUSE_S, PORTION
from leveret.protocols.http.management.request_body import bad, body_of, whole_in
from leveret.protocols.http.management.requester import client_of, entered
from leveret.protocols.http.server.portioned_answers import PortionedAnswer
from leveret.protocols.http.server.replies import OWN
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.queues.queue import Queue
from leveret.queues.stored_queue import ALL
from leveret.security.users import Permission
from leveret.values import Json

RETURN: Final = "/api/leveret/queues/{vhost}/{name}/return"
RETURNED_MAX: Final = 1000  # of those that wait first, in a request


def return_dead_letters(request: Request) -> Later:
    """Return dead letters, those at `positions` or the first `count`, to the queues of their first death.

    Raises Refused if the body is wrong, and Failures if the queue is missing or not permitted.
    """
    body = body_of(request)
    client = client_of(request, entered(request))
    source = client.readable_queue(request.arguments["name"])
    positions, named, count = body.get("positions"), None, 0
    if positions is None:
        count = min(whole_in(body, "count", RETURNED_MAX), RETURNED_MAX)
    elif isinstance(positions, list) and are_positions(positions):
        named = [each for each in positions if isinstance(each, int)]
    else:
        raise bad(f"positions: a list of up to {NAMED_MAX} whole numbers")
    return PortionedAnswer(request.broker, returned(request, client, source, named, count), OWN).begin()


def returned(
    request: Request, client: Client, source: Queue, positions: list[int] | None, count: int
) -> Generator[float, None, Json]:
    """Return the messages at these positions, or else the first ones, a portion a turn."""
    while source.asks_for_first(count if positions is None else ALL):
        yield FAR_S
    if positions is None:
        positions = [each.position for each in islice(source.waiting(), count)]
    targets = Origins(client, source)
    done: Counter[str] = Counter()
    stayed: Counter[str] = Counter()
    for begin in range(0, len(positions), PORTION):
        for position in positions[begin : begin + PORTION]:
            delivery = source.acquire(position)
            if delivery is None:
                stayed["it does not wait here any more"] += 1
            elif reason := targets.put_back(delivery):
                source.release(delivery, failed=False, redelivered=False)
                stayed[reason] += 1
            else:
                source.accept(delivery)
                done[targets.name_of(delivery)] += 1
        yield PAUSE_S
    return {"returned": sum(done.values()), "queues": as_json(done), "stayed": as_json(stayed)}


def as_json(counts: Mapping[str, int]) -> dict[str, Json]:
    return {**counts}


class Origins:
    """The queues that dead letters of one queue came from, as the user may write to them."""

    def __init__(self, client: Client, source: Queue) -> None:
        self._client = client
        self._source = source
        self._found: dict[str, Queue | str] = {}  # or why not

    @staticmethod
    def name_of(delivery: Delivery) -> str:
        """Return the name of the queue of its first death; empty if it never died."""
        notes = delivery.message.notes
        return "" if notes is None or notes.first_death is None else notes.first_death[1]

    def put_back(self, delivery: Delivery) -> str:
        """Put a message into the queue that it came from; return why that cannot be, or nothing if it is there."""
        name, message = self.name_of(delivery), delivery.message
        if not name:
            return "it is no dead letter"
        target = self._of(name)
        if isinstance(target, str):
            return target
        if not (target.has_room(1, message.size) and target.push(message)):
            return f"queue '{name}' does not take it"
        return ""

    def _of(self, name: str) -> Queue | str:
        if name not in self._found:
            self._found[name] = self._looked_up(name)
        found = self._found[name]
        return f"queue '{name}' is gone" if isinstance(found, Queue) and found.deleted else found

    def _looked_up(self, name: str) -> Queue | str:
        client = self._client
        try:
            client.host.broker.access.check(client.user, client.host.name, Permission.WRITE, "queue", name)
            target = client.own_queue(name)
        except Failure as failure:
            return str(failure)
        return "it came from this queue" if target is self._source else target


ROUTES: Final = (Route("POST", RETURN, Level.MANAGEMENT, return_dead_letters),)

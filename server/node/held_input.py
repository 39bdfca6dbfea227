"""Input that stands still: a front-end's `receive` is left in the middle, and goes on when an answer is there.

    node ─ receive ─> greenlet: front.receive ─> ... ─> check of a permission ─ wait ─┐
    node <────────────── the front-end waits (`FrontEnd.waits`) <─────────────────────┘
    node ─ receive ─> what came meanwhile is kept; when the answer is there: back into the check, then what was kept

The greenlet has a stack of its own: protocols and core check permissions as if the answer was there, and nothing
in them waits. The node serves other connections in between. What was true before a check may be otherwise after it, so
the core looks objects up after their checks. Used only where a server is asked for permissions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from greenlet import getcurrent, greenlet

from leveret.errors import LimitReached
from leveret.security.remote_permissions import PendingAnswer

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.front_end import FrontEnd


class StandingInput:
    """The input of a connection that stands still."""

    __slots__ = ("kept", "pending", "task")

    def __init__(self, task: greenlet, pending: PendingAnswer, kept: list[bytes]) -> None:
        self.task = task
        self.pending = pending
        self.kept = kept  # what has come since it first stood still; the transport reads little of it


class HeldInput:
    """The inputs of a node that stand still, by their front-ends."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._standing: dict[FrontEnd, StandingInput] = {}

    def receive(self, front: FrontEnd, data: bytes, now: float) -> None:
        """Have a front-end receive bytes, now or when the answer is there for which its input stands still."""
        standing = self._standing.get(front)
        if standing is None:
            task = greenlet(front.receive)
            self._proceed(front, task, [], data, now)
            return
        if data:
            standing.kept.append(data)
        if standing.pending.is_there:
            del self._standing[front]
            front.resume(now)
            self._proceed(front, standing.task, standing.kept)

    def _proceed(self, front: FrontEnd, task: greenlet, kept: list[bytes], *given: object) -> None:
        """Go on with a task until it waits or has ended; then with what has come meanwhile, and what was left."""
        pending = task.switch(*given)
        if not task.dead:
            assert isinstance(pending, PendingAnswer)
            self._standing[front] = StandingInput(task, pending, kept)
            front.suspend()
            front.waits = True
            pending.tell(front.wake)
        elif not given and not front.closed:
            self._proceed(front, greenlet(front.receive), [], b"".join(kept), self._broker.now)

    def stands(self, front: FrontEnd) -> bool:
        """Return whether the input of a front-end stands still."""
        return front in self._standing

    def abandon(self, front: FrontEnd) -> None:
        """End what stands still, because the connection ends: its call does not go on."""
        standing = self._standing.pop(front, None)
        if standing is not None:
            front.waits = False
            standing.task.throw()

    def wait(self, pending: PendingAnswer) -> None:
        """Stand still until an answer is there. Raises LimitReached outside of a connection's input."""
        current = getcurrent()
        if current.parent is None:
            raise LimitReached("a permission is being asked for; try again later")
        events = self._broker.events
        actor = events.actor
        current.parent.switch(pending)
        events.actor = actor

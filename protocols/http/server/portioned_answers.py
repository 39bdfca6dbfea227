"""Do the long work of requests in the broker's thread in portions, so that other work has its turns between them.

    begin ──> a portion ──pause──> in line ──> a portion ──pause──> ... ──> the answer

All requests of a broker share one turn, however many there are: a request that finds it taken waits in line.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from leveret.broker import Broker
from leveret.clock import Turn
from leveret.errors import Failure
from leveret.guests import Guest
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.server.durable_answers import DurableAnswer
from leveret.protocols.http.server.replies import OWN, mistake, refused_response
from leveret.protocols.http.server.request import Refused

if TYPE_CHECKING:
    from collections.abc import Generator

    from leveret.clock import Timer
    from leveret.values import Json

log: Final = logging.getLogger("leveret.http")

TURN_S: Final = 0.003  # of all requests together
PAUSE_S: Final = 0.0005


def turn_of(broker: Broker) -> Turn:
    """Return a `Turn`, which tells the steps of a portion when to pause."""
    return Turn(broker.clock, TURN_S, PAUSE_S)


class Line(Guest):
    """The requests of a broker that have a portion to do, in order."""

    def __init__(self, broker: Broker) -> None:
        self.unfinished = 0  # requests, in line or in a pause
        self._ready: dict[PortionedAnswer, None] = {}
        self._timer: Timer | None = None

    def join(self, one: PortionedAnswer, broker: Broker) -> None:
        self._ready[one] = None
        if self._timer is None:
            self._timer = broker.timers.at(broker.now, lambda now: self._serve(broker))

    def leave(self, one: PortionedAnswer) -> None:
        """Leave the line; no harm if the request is not in it."""
        self._ready.pop(one, None)

    def _serve(self, broker: Broker) -> None:
        """Do as many portions as fit into one turn."""
        self._timer = None
        until = broker.clock.now() + TURN_S
        while self._ready and broker.clock.now() < until:
            one = next(iter(self._ready))
            del self._ready[one]
            one.go_on()
        if self._ready and self._timer is None:
            self._timer = broker.timers.at(broker.now + PAUSE_S, lambda now: self._serve(broker))


class PortionedAnswer:
    """A request whose answer is made in portions, and given when its changes, if any, are on disk.

    `steps` yields how many seconds to leave to others, and returns the answer, as JSON or as a response. What it raises
    becomes the answer, too, in the style of the route at `path`. It is closed if the connection ends before.
    """

    __slots__ = ("_actor", "_broker", "_is_done", "_line", "_path", "_steps", "_timer", "later")

    def __init__(
        self, broker: Broker, steps: Generator[float, None, Json | Response], path: str = OWN
    ) -> None:
        self.later = Later()
        self.later.dropped = self._drop
        self._broker = broker
        self._steps = steps
        self._path = path
        self._line = broker.guest(Line)
        self._is_done = False
        self._actor = broker.events.actor  # the user of the request, for events of later turns as well
        self._timer: Timer | None = None

    def begin(self) -> Later:
        """Do the first portion, at once if no other request is in work, and return the answer to come."""
        self._line.unfinished += 1
        if self._line.unfinished == 1:
            self.go_on()
        else:
            self._line.join(self, self._broker)
        return self.later

    def go_on(self) -> None:
        """Do the next portion. Called by the line."""
        self._broker.events.actor = self._actor
        try:
            pause_s = next(self._steps)
        except StopIteration as end:
            self._finish()
            if isinstance(end.value, Response):
                self.later.answer(end.value, self._broker.now)
            else:
                DurableAnswer(self._broker, self.later, end.value)
        except (Failure, Refused) as refused:
            self._finish()
            self.later.answer(refused_response(refused, self._path), self._broker.now)
        except Exception:
            log.exception("a mistake of ours while working on a request")
            self._finish()
            self.later.answer(mistake(), self._broker.now)
        else:
            self._timer = self._broker.timers.at(self._broker.now + pause_s, self._stand_in_line)

    def _stand_in_line(self, now: float) -> None:
        self._line.join(self, self._broker)

    def _finish(self) -> None:
        if not self._is_done:
            self._is_done = True
            self._line.unfinished -= 1

    def _drop(self) -> None:
        self._finish()
        self._line.leave(self)
        self._broker.timers.cancel(self._timer)
        self._steps.close()

"""Work for a request in the broker's thread, a portion a turn: others have theirs between."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from broker_core.errors import Failure
from protocols.http.asked import Refused
from protocols.http.connection import Later, Response
from protocols.http.on_disk import OnDisk
from protocols.http.replies import OWN, mistake, refused_response

if TYPE_CHECKING:
    from collections.abc import Generator

    from broker_core.broker import Broker
    from broker_core.clock import Timer
    from broker_core.operations import Json

log: Final = logging.getLogger("leveret.http")


class InPortions:
    """The way from a request to an answer that is on disk, or that nothing is to be on disk for.

    `steps` yields how many seconds to leave to others, and returns the answer, as JSON or as a response; what it raises
    is the answer, too, in the words of the route at `path`. It is closed if nobody waits any more.
    """

    __slots__ = ("_actor", "_broker", "_path", "_steps", "_timer", "later")

    def __init__(
        self, broker: Broker, steps: Generator[float, None, Json | Response], path: str = OWN
    ) -> None:
        self.later = Later()
        self.later.dropped = self._drop
        self._broker = broker
        self._path = path
        self._steps = steps
        self._path = path
        self._actor = broker.events.actor  # whose request it is, also in later turns
        self._timer: Timer | None = None

    def begin(self) -> Later:
        self._go_on(self._broker.now)
        return self.later

    def _go_on(self, now: float) -> None:
        self._broker.events.actor = self._actor
        try:
            pause_s = next(self._steps)
        except StopIteration as end:
            if isinstance(end.value, Response):
                self.later.answer(end.value, self._broker.now)
            else:
                OnDisk(self._broker, self.later, end.value)
        except (Failure, Refused) as refused:
            self.later.answer(refused_response(refused, self._path), self._broker.now)
        except Exception:
            log.exception("a mistake of ours while working on a request")
            self.later.answer(mistake(), self._broker.now)
        else:
            self._timer = self._broker.timers.at(self._broker.now + pause_s, self._go_on)

    def _drop(self) -> None:
        self._broker.timers.cancel(self._timer)
        self._steps.close()

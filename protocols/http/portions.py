"""Work for a request in the broker's thread, a portion a turn: others have theirs between."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from broker_core.errors import Failure
from protocols.http.asked import Refused
from protocols.http.connection import Later
from protocols.http.on_disk import OnDisk
from protocols.http.replies import mistake, refused_response

if TYPE_CHECKING:
    from collections.abc import Generator

    from broker_core.broker import Broker
    from broker_core.clock import Timer
    from broker_core.operations import Json

log: Final = logging.getLogger("leveret.http")


class InPortions:
    """The way from a request to an answer that is on disk.

    `steps` yields how many seconds to leave to others, and returns the answer; what it raises is the answer, too. It is
    closed if nobody waits any more.
    """

    __slots__ = ("_broker", "_steps", "_timer", "later")

    def __init__(self, broker: Broker, steps: Generator[float, None, Json]) -> None:
        self.later = Later()
        self.later.dropped = self._drop
        self._broker = broker
        self._steps = steps
        self._timer: Timer | None = None

    def begin(self) -> Later:
        self._go_on(self._broker.now)
        return self.later

    def _go_on(self, now: float) -> None:
        try:
            pause_s = next(self._steps)
        except StopIteration as end:
            OnDisk(self._broker, self.later, end.value)
        except (Failure, Refused) as refused:
            self.later.answer(refused_response(refused), self._broker.now)
        except Exception:
            log.exception("a mistake of ours while working on a request")
            self.later.answer(mistake(), self._broker.now)
        else:
            self._timer = self._broker.timers.at(self._broker.now + pause_s, self._go_on)

    def _drop(self) -> None:
        self._broker.timers.cancel(self._timer)
        self._steps.close()

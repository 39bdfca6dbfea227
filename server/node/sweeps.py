"""Have cycles of ended connections freed, which the garbage collector by itself would find hours later.

A connection or a session that ends leaves some KiB of objects that refer to each other; channels, links and
subscriptions do not, as they may end by the ten thousand. Objects that have lived for a while are old for the
collector, and `memory_tuning.spare_the_collector` has it look at old objects hardly ever, as most of them are messages.
So they are swept after so many have ended, or so much has been made. A sweep looks at all objects and takes 60 ms for a
million: after one there is a rest of a thousand times as long.
"""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.broker import Broker

LOOK_S: Final = 5.0  # between two looks at whether it is time for a sweep
ENDED_MIN: Final = 1000  # connections, sessions and channels: up to 20 MiB
YOUNG_MIN: Final = 1000  # collections of young objects, each after 10,000 more of them
REST: Final = 1000  # times as long as the last sweep took
ENDINGS: Final = ("connection.closed", "channel.closed")  # the second is that of sessions, too


def young_collections() -> int:
    """Return how often the collector has looked at objects that are not old."""
    return int(gc.get_stats()[1]["collections"])


class Sweeps:
    """Looks from time to time whether to sweep."""

    def __init__(
        self,
        broker: Broker,
        collect: Callable[[], object] = gc.collect,
        young: Callable[[], int] = young_collections,
    ) -> None:
        self._broker = broker
        self._collect = collect
        self._young = young
        self._ended_before = 0  # at the last sweep,
        self._young_before = young()  # like this
        self._not_before = broker.now

    def begin(self) -> None:
        """Look for the first time soon, and then for ever."""
        self._broker.timers.at(self._broker.now + LOOK_S, self._look)

    def _look(self, now: float) -> None:
        ended, young = sum(self._broker.events.counts[each] for each in ENDINGS), self._young()
        is_much = ended - self._ended_before >= ENDED_MIN or young - self._young_before >= YOUNG_MIN
        if is_much and now >= self._not_before:
            self._ended_before, self._young_before = ended, young
            clock = self._broker.clock
            began = clock.now()
            self._collect()
            self._not_before = now + REST * (clock.now() - began)
        self._broker.timers.at(now + LOOK_S, self._look)

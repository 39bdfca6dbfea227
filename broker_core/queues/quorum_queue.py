"""Quorum queues order their messages by priority without being asked to, as RabbitMQ's documentation of them says.

    strict (4.3 and later)      came back | 31 30 ... 4 ... 0        the highest level first
    two levels (4.0 to 4.2)     came back | high (5 and more), normal    two of high for one of normal

Messages without a priority are of level 4, or normal. What came back is delivered before everything else, in its old
order. A queue has one lane, like any other, until the first message arrives whose priority makes a difference; so
queues without priorities pay one test of an attribute a message.

Of two levels, a message of high priority goes first although it is normal's turn, if it arrived first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr

from leveret.outbox import OVERHEAD
from leveret.queues.lane import Lane
from leveret.queues.search import Search
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.durability import Page

LEVEL_MAX: Final = 31
USUAL_LEVEL: Final = 4  # of messages without a priority
NORMAL: Final = 0
HIGH: Final = 1
HIGH_FROM: Final = 5
WEIGHT: Final = 2  # messages of high priority for one of normal


@mypyc_attr(allow_interpreted_subclasses=True)
class QuorumQueue(WorkQueue):
    """A quorum queue with 32 levels of priority."""

    levels: ClassVar[int] = LEVEL_MAX + 1
    usual: ClassVar[int] = USUAL_LEVEL

    __slots__ = ()

    def set_up(self) -> None:
        self.rises = True

    def rank(self, priority: int) -> int:
        if priority == 0:  # none was given
            return USUAL_LEVEL
        return min(max(priority, 0), LEVEL_MAX)

    def lane_of(self, delivery: Delivery) -> Lane:
        """Return the lane of a level; that of all levels while there is only one, and above all that of returns."""
        level = self.rank(delivery.message.facts.priority)
        if self.rises:
            if level == self.usual:
                self.open_lanes()
                return self.lanes[0]
            self.open_levels()
        came_back = delivery.redelivered or delivery.attempts > 0
        return self.lanes[self.levels if came_back else level]

    def open_levels(self) -> None:
        """Create a lane for each level and one for returns. What waits is of the usual level, or has come back."""
        if not self.rises:
            return
        self.open_lanes()
        first = self.lanes[0]
        lanes = [Lane() for _ in range(self.levels + 1)]
        lanes[self.levels].returned, first.returned = first.returned, []
        lanes[self.usual] = first
        self.lanes = lanes
        self.rises = False

    def new_search(self) -> Search:
        self.open_levels()  # cursors go through all lanes there will be
        return Search(self)

    def restore(self, priority: int, pages: Sequence[Page]) -> None:
        if priority != self.usual:
            self.open_levels()
        super().restore(0 if self.rises else priority, pages)


@mypyc_attr(allow_interpreted_subclasses=True)
class TwoLevelQuorumQueue(QuorumQueue):
    """A quorum queue with two levels of priority, which share deliveries."""

    levels: ClassVar[int] = 2
    usual: ClassVar[int] = NORMAL

    __slots__ = ("turn",)

    def set_up(self) -> None:
        super().set_up()
        self.turn = 0  # messages delivered in this round; normal's turn comes after `WEIGHT`

    def rank(self, priority: int) -> int:
        return HIGH if priority >= HIGH_FROM else NORMAL

    def _next_level(self) -> int:
        """Return the level whose turn it is, of those with messages; -1 if the queue is empty."""
        normal, high, returned = self.lanes
        if returned:
            return self.levels
        if not high:
            return NORMAL if normal else -1
        if not normal or self.turn < WEIGHT:
            return HIGH
        known = normal.at_hand() and high.at_hand()
        return HIGH if known and high.head().position < normal.head().position else NORMAL

    def _take(self, quota: int, room: int, lanes: list[Lane] | None = None) -> list[Delivery]:
        if lanes is not None or self.search is not None or len(self.lanes) <= 1:
            return super()._take(quota, room, lanes)
        taken: list[Delivery] = []
        while len(taken) < quota and room > 0 and (level := self._next_level()) >= 0:
            lane = self.lanes[level]
            shared = bool(self.lanes[NORMAL]) and bool(self.lanes[HIGH])
            wanted = 1 if shared and level != self.levels else quota - len(taken)
            some = super()._take(wanted, room, [lane])
            if level != self.levels:
                self.turn = (self.turn + len(some)) % (WEIGHT + 1)
            taken += some
            room -= sum([each.message.size + len(each.message.properties) + OVERHEAD for each in some])
            if len(some) < wanted and lane:
                break  # its next page is being read
        return taken

    def _next_lane(self) -> Lane | None:
        if len(self.lanes) <= 1:
            return super()._next_lane()
        level = self._next_level()
        return None if level < 0 else self.lanes[level]

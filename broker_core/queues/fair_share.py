"""A fair-share queue lets priority levels share deliveries, so that no level starves another.

    shares 2 for each level, and all of this waits:    9 9 9 9 9   5 5 5   1
    a round: 9 9 5 5 1, the next: 9 9 5, then what is left: 9

The highest level with waiting messages is served until it has had its share of the round; then it is passed over.
When all levels with messages have had their shares, the next round begins. It also begins as soon as only one level has
messages: then nothing is counted. A level without a limit gets all it wants.

So at most one share of a level is delivered in a row while a lower level waits. If a round ends with a level that has
lower ones waiting, because it came late, this counts as its share of the next round, too.

Consumers with cursors (`search.py`) are served in the same order of levels, each with the messages that suit it, and
these count for all consumers. Browsers take nothing away, and see the highest level first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from leveret.outbox import OVERHEAD
from leveret.queues.search import Search
from leveret.queues.work_queue import WorkQueue

if TYPE_CHECKING:
    from leveret.delivery import Consumer, Delivery
    from leveret.queues.lane import Lane
    from leveret.queues.searched_lane import Cursor, SearchedLane

ALL: Final = 1 << 62  # the share of a level that has none


class Shares:
    """The number of messages that each level may still deliver in this round."""

    __slots__ = ("_last", "_left", "_of")

    def __init__(self, of: Sequence[int]) -> None:
        self._of = tuple(of)  # by level, the lowest first
        self._left = [*of]
        self._last = 0  # the level that was served last

    def copy(self) -> Shares:
        copy = Shares(self._of)
        copy._left, copy._last = [*self._left], self._last
        return copy

    def turns(self) -> list[int]:
        """Return the levels in the order in which they are to be served, if they have messages."""
        levels = range(len(self._of) - 1, -1, -1)
        served = [level for level in levels if self._left[level]]
        if len(served) < len(self._of):
            # Levels that have had their share follow; of these, the one that was served last comes last.
            passed_over = [level for level in levels if not self._left[level]]
            passed_over.sort(key=self._last.__eq__)
            served += passed_over
        return served

    def in_a_row(self, level: int, waits: Sequence[bool]) -> int:
        """Return how many messages a level may deliver in a row, if its turn is now. `waits`: if each level has any."""
        return ALL if sum(waits) < 2 else self._left[level] or self._of[level]

    def served(self, level: int, count: int, waits: Sequence[bool]) -> None:
        """Count messages that were taken from a level. `waits`: whether each level had any before that."""
        if sum(waits) < 2:
            self._left[:] = self._of
        else:
            if not self._left[level]:
                self._begin(waits)
            self._left[level] = max(0, self._left[level] - count)
        self._last = level

    def _begin(self, waits: Sequence[bool]) -> None:
        """Begin a round. The level served last has no share in it if lower levels wait and its share is limited."""
        self._left[:] = self._of
        if any(waits[: self._last]) and self._of[self._last] != ALL:
            self._left[self._last] = 0


class FairQueue(WorkQueue):
    """A work queue whose priority levels share deliveries."""

    __slots__ = ("shares",)

    def set_up(self) -> None:
        self.open_lanes()
        self.shares = Shares([share or ALL for share in self.limits.fair_share])

    def new_search(self) -> Search:
        return FairSearch(self)

    def _first(self) -> int | None:
        """Return the level whose turn it is; None if the queue is empty."""
        return next((level for level in self.shares.turns() if self.lanes[level]), None)

    def _take(self, quota: int, room: int, lanes: list[Lane] | None = None) -> list[Delivery]:
        if lanes is not None or self.search is not None:
            return super()._take(quota, room, lanes)
        taken: list[Delivery] = []
        while len(taken) < quota and room > 0 and (level := self._first()) is not None:
            waits = [*map(bool, self.lanes)]
            wanted = min(quota - len(taken), self.shares.in_a_row(level, waits))
            lane = self.lanes[level]
            some = super()._take(wanted, room, [lane])
            if some:
                self.shares.served(level, len(some), waits)
                taken += some
                room -= octets_of(some)
            if len(some) < wanted and lane:
                break  # its next page is being read
        return taken

    def _next_lane(self) -> Lane | None:
        level = self._first()
        return None if level is None else self.lanes[level]

    def waiting(self) -> Iterable[Delivery]:
        shares, piles = self.shares.copy(), [deque(lane) for lane in self.lanes]
        while any(waits := [*map(bool, piles)]):
            level = next(level for level in shares.turns() if piles[level])
            yield piles[level].popleft()
            shares.served(level, 1, waits)


class FairSearch(Search):
    """A search in which priority levels share deliveries."""

    __slots__ = ("_fair",)

    def __init__(self, queue: FairQueue) -> None:
        super().__init__(queue)
        self._fair = queue

    def take(self, quota: int, room: int) -> list[Delivery]:
        return self._one_by_one(super().take, quota, room)

    def _find(self, consumer: Consumer, quota: int, room: int) -> list[Delivery]:
        if consumer.browses or consumer not in self._seekers:
            return super()._find(consumer, quota, room)
        return self._one_by_one(partial(super()._find, consumer), quota, room)

    def _one_by_one(
        self, take: Callable[[int, int], list[Delivery]], quota: int, room: int
    ) -> list[Delivery]:
        taken: list[Delivery] = []
        while len(taken) < quota and room > 0:
            waits = [*map(bool, self._lanes)]
            if not (one := take(1, room)):
                break
            self._fair.shares.served(self._fair.rank(one[0].message.facts.priority), 1, waits)
            taken += one
            room -= octets_of(one)
        return taken

    def _in_order(self, cursors: list[Cursor]) -> Iterator[tuple[SearchedLane, Cursor]]:
        if cursors[0].mark is not None:
            return super()._in_order(cursors)
        return ((self._lanes[level], cursors[level]) for level in self._fair.shares.turns())


def octets_of(taken: list[Delivery]) -> int:
    """Return the bytes of these messages, as counted against a consumer's room."""
    return sum([each.message.size + len(each.message.properties) + OVERHEAD for each in taken])

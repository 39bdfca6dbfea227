"""Waiting messages of one priority: arrivals in a deque, what came back in a heap; everything keeps its old place.

A lane is taken from at its head. A `SearchedLane` can also be gone through by cursors, which take what they want or
leave everything where it is; a queue has such lanes as long as somebody searches it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import accumulate
from typing import Final

from broker_core.delivery import Delivery
from broker_core.discard import Pile

GAPS: Final = 64  # empty slots, or old entries of a heap, that are not worth closing up


class Lane:
    """Waiting messages of one priority, oldest first."""

    __slots__ = ("fresh", "returned")

    def __init__(self) -> None:
        self.fresh: deque[Delivery] = deque()  # in order of arrival
        self.returned: list[Delivery] = []  # heap by position

    def __bool__(self) -> bool:
        return bool(self.fresh or self.returned)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(sorted((*self.returned, *self.fresh)))

    def head(self) -> Delivery:
        if self.returned and not (self.fresh and self.fresh[0].position < self.returned[0].position):
            return self.returned[0]
        return self.fresh[0]

    def take(self) -> Delivery:
        if self.returned and not (self.fresh and self.fresh[0].position < self.returned[0].position):
            return heappop(self.returned)
        return self.fresh.popleft()

    def emptied(self) -> Iterable[Pile]:
        """Everything that was in it, in no order."""
        fresh, returned = self.fresh, self.returned
        self.fresh, self.returned = deque(), []
        return fresh, returned

    def put_back(self, delivery: Delivery) -> None:
        heappush(self.returned, delivery)


class Cursor:
    """How far somebody has come in a lane: to a slot, and through what came back from its consumers since."""

    __slots__ = ("at", "returned")

    def __init__(self, returned: list[Delivery]) -> None:
        self.at = 0  # the next slot to look at
        self.returned = returned  # heap by position; some may wait no more, or be in it twice


class SearchedLane(Lane):
    """A lane that cursors go through, one step at a time: `peek`, then `pass_by` or `take_out`.

    What the first cursor has come to stands in slots, and a slot stays empty when its message is taken. What comes back
    has no slot any more: it is put on the heap of every cursor. So each cursor meets the messages in order, each once,
    and again when it has been away. The head of the lane is a cursor that takes whatever it meets.
    """

    __slots__ = ("back", "cursors", "filled", "front", "slots")

    def __init__(self, lane: Lane) -> None:
        super().__init__()
        self.slots: list[Delivery | None] = []
        self.filled = 0  # slots
        self.fresh = lane.fresh  # what no cursor has come to
        self.back = {
            delivery.position for delivery in lane.returned
        }  # where those that came back, and wait, belong
        self.front = Cursor(lane.returned)
        self.cursors = [self.front]

    def plain(self) -> Lane:
        """The lane as it was, when nobody searches it any more."""
        lane = Lane()
        lane.fresh, lane.returned = self.fresh, self._returned(self.front.returned)
        lane.fresh.extendleft(filter(None, reversed(self.slots)))
        return lane

    def enter(self) -> Cursor:
        """A new cursor, before everything."""
        cursor = Cursor(self._returned(self.front.returned))
        self.cursors.append(cursor)
        return cursor

    def leave(self, cursor: Cursor) -> None:
        self.cursors.remove(cursor)

    # Going through it.

    def peek(self, cursor: Cursor) -> Delivery | None:
        """The waiting message that the cursor has come to; None at the end."""
        slots, returned = self.slots, cursor.returned
        while returned and returned[0].position not in self.back:
            heappop(returned)
        end = len(slots)
        while cursor.at < end and slots[cursor.at] is None:
            cursor.at += 1
        if cursor.at == end and self.fresh:
            slots.append(self.fresh.popleft())
            self.filled += 1
            end += 1
        arrived = slots[cursor.at] if cursor.at < end else None
        if returned and (arrived is None or returned[0].position < arrived.position):
            return returned[0]
        return arrived

    def pass_by(self, cursor: Cursor, delivery: Delivery) -> None:
        """Leave what was peeked at where it is, and go on."""
        returned = cursor.returned
        if delivery.position not in self.back:
            cursor.at += 1
        while returned and returned[0] is delivery:
            heappop(returned)

    def take_out(self, cursor: Cursor, delivery: Delivery) -> None:
        """Take what was peeked at, and go on."""
        self.pass_by(cursor, delivery)
        if delivery.position in self.back:
            self.back.remove(delivery.position)
        else:
            self.slots[cursor.at - 1] = None
            self.filled -= 1
            if len(self.slots) > 2 * self.filled + GAPS:
                self._close_up()

    def _close_up(self) -> None:
        """Drop the empty slots; cursors stay where they are among the others."""
        filled = list(accumulate(map(bool, self.slots), initial=0))
        for cursor in self.cursors:
            cursor.at = filled[cursor.at]
        self.slots = [*filter(None, self.slots)]

    # As a lane.

    def __bool__(self) -> bool:
        return bool(self.filled or self.back or self.fresh)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(sorted((*self._returned(self.front.returned), *filter(None, self.slots), *self.fresh)))

    def head(self) -> Delivery:
        delivery = self.peek(self.front)
        assert delivery is not None, "only a lane with messages has a head"
        return delivery

    def take(self) -> Delivery:
        delivery = self.head()
        self.take_out(self.front, delivery)
        return delivery

    def emptied(self) -> Iterable[Pile]:
        piles = self.slots, self.fresh, self.front.returned
        self.slots, self.filled, self.fresh = [], 0, deque()
        self.back.clear()
        for cursor in self.cursors:
            cursor.at, cursor.returned = 0, []
        return piles

    def put_back(self, delivery: Delivery) -> None:
        self.back.add(delivery.position)
        for cursor in self.cursors:
            heappush(cursor.returned, delivery)
            if len(cursor.returned) > 2 * len(self.back) + GAPS:
                cursor.returned = self._returned(cursor.returned)

    def _returned(self, heap: list[Delivery]) -> list[Delivery]:
        """The heap without what waits no more, each message once."""
        waiting = {delivery.position: delivery for delivery in heap if delivery.position in self.back}
        return [waiting[position] for position in sorted(waiting)]

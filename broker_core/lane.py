"""Waiting messages of one priority: arrivals in a deque, what came back in a heap; everything keeps its old place."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from heapq import heappop, heappush

from broker_core.delivery import Delivery


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

    def emptied(self) -> tuple[deque[Delivery], list[Delivery]]:
        """Everything that was in it, in no order."""
        fresh, returned = self.fresh, self.returned
        self.fresh, self.returned = deque(), []
        return fresh, returned

    def put_back(self, delivery: Delivery) -> None:
        heappush(self.returned, delivery)

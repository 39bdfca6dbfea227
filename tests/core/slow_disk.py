"""A disk that is as slow as a test wants it to be, in the place of a broker's journal."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from leveret.broker import Broker, Publisher
from leveret.durable.journal import Journal


class SlowDisk(Journal):
    """Each settle that has something for the disk is a commit of its own, and any number of them may be under way."""

    def __init__(self, broker: Broker) -> None:
        broker.journal = self
        self.commits: deque[dict[Publisher, int]] = deque()  # who waits for each, and where they stood
        self.holds = False

    @property
    def dirty(self) -> bool:
        return True

    def settle(self, publishers: Sequence[Publisher]) -> None:
        commit: dict[Publisher, int] = {}
        for publisher in publishers:
            waits = publisher.persistent or any(publisher in each for each in self.commits)
            mark = publisher.mark()
            if waits:
                commit[publisher] = mark
            else:
                publisher.taken(mark)
        if commit:
            self.commits.append(commit)

    def land(self, count: int = 1) -> None:
        """The next few commits are on disk."""
        for _ in range(min(count, len(self.commits))):
            for publisher, mark in self.commits.popleft().items():
                publisher.taken(mark)

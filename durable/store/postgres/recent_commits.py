"""Notice that a promoted server lacks commits which were confirmed, and keep the last ones to write them again.

    commit ── safe ──> kept, for some MiB ── a beat finds an earlier number ──> lost ──> those that are kept: again

With an asynchronous standby a promotion loses what was not there yet. The number of the last commit tells: it was
confirmed, so that an earlier one in the database is a proof. What is kept are the parameters of each commit, so that it
is written as it was.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from leveret.observability.metric import COUNTER, Metric

if TYPE_CHECKING:
    from leveret.durable.store.postgres.parameters import Parameters

log: Final = logging.getLogger("leveret.store")

KEPT_OCTETS: Final = 64 << 20


class RecentCommits:
    """The last commits of one owner, for the thread that writes. Any thread may ask for figures."""

    def __init__(self, octets_max: int) -> None:
        """`octets_max` is how much is kept of them; with 0 a loss is noticed only."""
        self._octets_max = octets_max
        self._octets = 0
        self._kept: deque[tuple[int, list[Parameters], int, int]] = (
            deque()
        )  # number, parameters, bytes, messages
        self._noted = 0  # the number up to which a loss was told
        self.last = 0  # the number of the last commit that was confirmed
        self.lost = 0  # commits that were confirmed, and were not there
        self.rewritten = 0

    def add(self, number: int, parts: list[Parameters], messages: int) -> None:
        """Keep a commit that is safe, and about to be confirmed; it has so many new messages of queues."""
        self.last = number
        if not self._octets_max:
            return
        octets = sum([len(value) for part in parts for value in part if value is not None])
        self._kept.append((number, parts, octets, messages))
        self._octets += octets
        while self._octets > self._octets_max:
            self._octets -= self._kept.popleft()[2]

    def after(self, number: int) -> Sequence[tuple[int, list[Parameters]]]:
        """Return the commits that are kept, with their numbers, of those after the last one in the database."""
        return [(each, parts) for each, parts, _, _ in self._kept if each > number]

    def note_loss(self, number: int) -> None:
        """Log once that the database has nothing after `number`."""
        if self._noted == self.last:
            return
        self._noted = self.last
        again = self.after(number)
        messages = sum([count for each, _, _, count in self._kept if each > number])
        self.lost += self.last - number
        log.critical(
            "the database lacks commits that were confirmed, the numbers %d to %d: a server was promoted that had "
            "not got them; %s",
            number + 1,
            self.last,
            f"those from {again[0][0]} on, with {messages} messages, are written again"
            if again
            else "none of them can be written again",
        )

    def note_rewritten(self, number: int) -> None:
        """Log that what is kept was written again, and go on from there."""
        again = len(self.after(number))
        self.rewritten += again
        if again:
            log.warning("%d commits were written again that the database lacked", again)
        else:
            self.last = number
        self._noted = 0

    @property
    def missing(self) -> int:
        """Return how many commits are lost for good. Numbers without a commit count as well, and are few."""
        return self.lost - self.rewritten

    def metrics(self) -> Sequence[Metric]:
        return [
            Metric(
                "leveret_store_commits_lost_total",
                COUNTER,
                "Confirmed commits that a promoted database lacked.",
                [({}, self.lost)],
            ),
            Metric(
                "leveret_store_commits_rewritten_total",
                COUNTER,
                "Those of them that were written again.",
                [({}, self.rewritten)],
            ),
        ]

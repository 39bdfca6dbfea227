"""The counts of deleted queues and exchanges, kept so that sums over all of them never decrease.

Queue, Exchange ──deleted──> RetiredCounters ──> totals of a virtual host, or of the node
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from leveret.observability.counts import EXCHANGE, LENGTHS, QUEUE, exchange_counts, queue_counts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.exchanges.exchange_type import Exchange
    from leveret.queues.queue import Queue


class RetiredCounters:
    """The sums by virtual host, and of all."""

    def __init__(self) -> None:
        self.total: Counter[str] = Counter()
        self._of: dict[str, Counter[str]] = {}

    def add_queue(self, queue: Queue) -> None:
        """Add the counts of a deleted queue, unless it is hidden. Called once, when it is deleted."""
        if not queue.hidden:
            counts = dict(zip(QUEUE, queue_counts(queue), strict=True))
            self._add(queue.virtual_host.name, {name: counts[name] for name in QUEUE if name not in LENGTHS})

    def add_exchange(self, exchange: Exchange) -> None:
        """Add the counts of a deleted exchange. Called once, when it is deleted."""
        counts = dict(zip(EXCHANGE, exchange_counts(exchange), strict=True))
        self._add(exchange.virtual_host.name, counts)

    def of(self, virtual_host: str) -> Mapping[str, int]:
        """Return the sums of a virtual host by the name of the count."""
        return self._of.get(virtual_host, {})

    def forget_virtual_host(self, name: str) -> None:
        """Remove a deleted virtual host; its counts stay in the total."""
        self._of.pop(name, None)

    def _add(self, virtual_host: str, counts: Mapping[str, int]) -> None:
        there = self._of.setdefault(virtual_host, Counter())
        for name, count in counts.items():
            there[name] += count
            self.total[name] += count

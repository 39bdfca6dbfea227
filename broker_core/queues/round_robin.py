"""Consumers of one priority stand in a ring and are served in turn, while they are believed able to take messages.

A ring is a list that is linked through its consumers (`Consumer.behind` and `before`), so that to remove one of many
takes no search. Most queues have one consumer, which pays nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, final

from leveret.delivery import Consumer


@final
class RoundRobin:
    """The consumers of one priority that are believed able to take messages, in turn."""

    __slots__ = ("first", "last", "priority")

    def __init__(self, priority: int) -> None:
        self.priority: Final = priority
        self.first: Consumer | None = None  # whose turn it is
        self.last: Consumer | None = None

    def __iter__(self) -> Iterator[Consumer]:
        consumer = self.first
        while consumer is not None:
            yield consumer
            consumer = consumer.behind

    def add(self, consumer: Consumer) -> None:
        """Append a consumer, which must not stand in any ring."""
        consumer.behind = None
        consumer.before = self.last
        if self.last is None:
            self.first = consumer
        else:
            self.last.behind = consumer
        self.last = consumer

    def shift(self) -> None:
        """Remove the first consumer."""
        first = self.first
        assert first is not None, "the ring has consumers"
        self.remove(first)

    def turn(self) -> None:
        """Move the first consumer, which has been served, to the end."""
        first = self.first
        if first is not None and first is not self.last:
            self.shift()
            self.add(first)

    def remove(self, consumer: Consumer) -> None:
        """Remove a consumer, wherever it stands."""
        before, behind = consumer.before, consumer.behind
        if before is None:
            self.first = behind
        else:
            before.behind = behind
        if behind is None:
            self.last = before
        else:
            behind.before = before
        consumer.before = consumer.behind = None


def ring_of(rings: list[RoundRobin], priority: int) -> RoundRobin:
    """Return the ring of a priority, made if it is not there. `rings`: highest priority first."""
    for at, ring in enumerate(rings):
        if ring.priority == priority:
            return ring
        if ring.priority < priority:
            rings.insert(at, RoundRobin(priority))
            return rings[at]
    rings.append(RoundRobin(priority))
    return rings[-1]


def step_out(rings: list[RoundRobin], consumer: Consumer) -> None:
    """Remove a consumer from its ring, and the ring, if it is empty then."""
    for ring in rings:
        if ring.priority == consumer.priority:
            break
    else:
        assert not consumer.able, "a consumer that is able stands in a ring"
        return
    if consumer.able:
        consumer.able = False
        ring.remove(consumer)
    if ring.first is None:
        rings.remove(ring)

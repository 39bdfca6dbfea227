"""Who has the next turn: consumers of one priority stand in a ring, as long as they are believed able to take more."""

from __future__ import annotations

from collections import deque

from broker_core.delivery import Consumer


class Ring:
    """Consumers of one priority that are believed able to take messages, in turn."""

    __slots__ = ("able", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.able: deque[Consumer] = deque()


def ring_of(rings: list[Ring], priority: int) -> Ring:
    """The ring of a priority, made if it is not there. `rings`: highest priority first."""
    for at, ring in enumerate(rings):
        if ring.priority == priority:
            return ring
        if ring.priority < priority:
            rings.insert(at, Ring(priority))
            return rings[at]
    rings.append(Ring(priority))
    return rings[-1]


def step_out(rings: list[Ring], consumer: Consumer) -> None:
    """A consumer goes, and the ring of its priority with it, if nobody else stands there."""
    ring = next((ring for ring in rings if ring.priority == consumer.priority), None)
    if consumer.able:
        assert ring is not None, "who is able stands in a ring"
        consumer.able = False
        ring.able.remove(consumer)
    if ring is not None and not ring.able:
        rings.remove(ring)

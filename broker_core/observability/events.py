"""Events in a broker, such as logins, declarations and deletions, for listeners that count, log or publish them.

    VirtualHost, Access, Policies, Client, front-ends ── happened(name, ...) ──> listeners

Names of events and facts are those of RabbitMQ's event exchange (`queue.created`), so that tools made for it work.
There are no events for single messages. Without listeners an event costs one increment of a counter. No fact is ever a
secret.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter

import attrs

from leveret.values import Table


@attrs.frozen
class Event:
    """An event in the broker, at the moment it happens."""

    name: str  # such as queue.created
    virtual_host: str  # empty: it concerns the node
    actor: str  # the user; empty: the broker itself
    facts: Table


class EventListener(ABC):
    """Contract for a receiver of events."""

    @abstractmethod
    def on_event(self, event: Event) -> None:
        """Called at once, in the middle of the operation: it must not change the topology, nor raise."""


class Events:
    """Counts events and passes them to listeners."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # by name, since the start
        self.listeners: list[EventListener] = []
        self.actor = ""  # the user whose request is being handled; empty: none

    def happened(self, name: str, virtual_host: str, facts: Table) -> None:
        """Count an event, and pass it to the listeners."""
        self.counts[name] += 1
        if self.listeners:
            event = Event(name, virtual_host, self.actor, facts)
            for listener in self.listeners:
                listener.on_event(event)

"""What has happened in a broker, for those who count it, log it or publish it: logins, declarations, deletions.

    VirtualHost, Access, Policies, Client, front-ends ── happened(name, ...) ──> listeners

Names and the names of facts are those of RabbitMQ's event exchange (`queue.created`), so that its tools can be fed.
Nothing that is done for each message comes here. Without listeners an event costs one more in a counter. No fact is a
secret, ever.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter

import attrs

from broker_core.values import Table


@attrs.frozen
class Event:
    """Something that has happened just now."""

    name: str  # such as queue.created
    virtual_host: str  # where; empty: it concerns the node
    actor: str  # the user who did it; empty: the broker itself
    facts: Table


class Listener(ABC):
    """Somebody who wants to know."""

    @abstractmethod
    def on_event(self, event: Event) -> None:
        """Called at once, in the middle of what happens: it must not change the topology, nor raise."""


class Events:
    """Where events are told."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()  # by name, since the start
        self.listeners: list[Listener] = []
        self.actor = ""  # the user whose request is being worked off; empty: nobody's

    def happened(self, name: str, virtual_host: str, facts: Table) -> None:
        """Count an event, and tell the listeners."""
        self.counts[name] += 1
        if self.listeners:
            event = Event(name, virtual_host, self.actor, facts)
            for listener in self.listeners:
                listener.on_event(event)

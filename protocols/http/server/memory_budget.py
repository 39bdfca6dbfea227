"""Limit the memory that bulk answers take up over all connections; an answer that finds no room waits in line.

    ask ──room──> taken ──end──> given to those in line
     └────none───> in line ──its turn──> taken        or it gives up: end

Large bodies of requests, and long lists, have rooms of their own. These have no line: the client is asked to try again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.broker import Broker
from leveret.guests import Guest
from leveret.protocols.http.connection import nothing

ROOM_OCTETS: Final = 64 << 20


class MemoryShare:
    """The memory that one answer takes up or waits for. `then` is called when there is room."""

    __slots__ = ("_broker", "_room", "octets", "then")

    def __init__(self, room: MemoryBudget, broker: Broker, octets: int, then: Callable[[], None]) -> None:
        self._room = room
        self._broker = broker
        self.octets = octets
        self.then = then

    @property
    def waits(self) -> bool:
        """Return whether the share is still in line."""
        return self in self._room.line

    def ask(self) -> None:
        """Have `then` called when there is room, perhaps at once. Without others, a share may exceed the room."""
        self._room.line[self] = None
        if len(self._room.line) == 1:
            self._room.serve(self._broker.now)

    def settle(self, octets: int) -> None:
        """Replace the estimate by the real size in bytes."""
        self._room.taken += octets - self.octets
        self.octets = octets
        self._serve_soon()

    def end(self) -> None:
        """Give the share back, or leave the line. To be called once."""
        if self.waits:
            del self._room.line[self]
        else:
            self._room.taken -= self.octets
        self._serve_soon()

    def _serve_soon(self) -> None:
        """Serve the line in the next turn, for a share often ends in the middle of sending."""
        if self._room.line:
            self._broker.timers.at(self._broker.now, self._room.serve)


class MemoryBudget:
    """A limit of memory in bytes, and the shares that have been taken or wait; a broker has one for each purpose."""

    __slots__ = ("line", "octets", "taken")

    def __init__(self, octets: int = ROOM_OCTETS) -> None:
        self.octets = octets
        self.taken = 0
        self.line: dict[MemoryShare, None] = {}  # shares that wait, in order

    def serve(self, now: float) -> None:
        """Give shares to those in line, in order, while there is room."""
        while self.line:
            share = next(iter(self.line))
            if self.taken and self.taken + share.octets > self.octets:
                return
            del self.line[share]
            self.taken += share.octets
            share.then()


class Budgets(Guest):
    """The memory of a broker for each purpose."""

    def __init__(self, broker: Broker) -> None:
        self.answers, self.bodies, self.lists = MemoryBudget(), MemoryBudget(), MemoryBudget()


def room_of(broker: Broker) -> MemoryBudget:
    """Return the broker's room for bulk answers, made when it is first needed."""
    return broker.guest(Budgets).answers


def bodies_of(broker: Broker) -> MemoryBudget:
    """Return the broker's room for large bodies of requests, made when it is first needed."""
    return broker.guest(Budgets).bodies


def lists_of(broker: Broker) -> MemoryBudget:
    """Return the broker's room for long lists, made when it is first needed."""
    return broker.guest(Budgets).lists


def taken_now(room: MemoryBudget, broker: Broker, octets: int) -> MemoryShare | None:
    """Return a share if there is room for it at once. Without others, it may be larger than the room."""
    if room.taken and room.taken + octets > room.octets:
        return None
    room.taken += octets
    return MemoryShare(room, broker, octets, nothing)

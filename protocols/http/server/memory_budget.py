"""How much bulk answers may take up in memory, over all connections: whoever wants more than is left stands in line.

ask ──room──> taken ──end──> given to those in line
 └────none───> in line ──its turn──> taken        or it gives up: end

Large bodies of requests, and long lists, have rooms of their own. Nobody stands in line there: he comes again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.broker import Broker
from protocols.http.connection import nothing

ROOM_OCTETS: Final = 64 << 20


class Share:
    """What one answer takes up, or is to take up. `then`: what is done when there is room."""

    __slots__ = ("_broker", "_room", "octets", "then")

    def __init__(self, room: Room, broker: Broker, octets: int, then: Callable[[], None]) -> None:
        self._room = room
        self._broker = broker
        self.octets = octets
        self.then = then

    @property
    def waits(self) -> bool:
        """Whether it is still in line."""
        return self in self._room.line

    def ask(self) -> None:
        """Have `then` called when there is room, which may be at once. Alone, a share may be larger than the room."""
        self._room.line[self] = None
        if len(self._room.line) == 1:
            self._room.serve(self._broker.now)

    def settle(self, octets: int) -> None:
        """It turned out to have so many."""
        self._room.taken += octets - self.octets
        self.octets = octets
        self._serve_soon()

    def end(self) -> None:
        """It is needed no more. Once."""
        if self.waits:
            del self._room.line[self]
        else:
            self._room.taken -= self.octets
        self._serve_soon()

    def _serve_soon(self) -> None:
        """Not at once: whoever ends a share is in the middle of sending."""
        if self._room.line:
            self._broker.timers.at(self._broker.now, self._room.serve)


class Room:
    """Of one broker."""

    __slots__ = ("line", "octets", "taken")

    def __init__(self, octets: int = ROOM_OCTETS) -> None:
        self.octets = octets
        self.taken = 0
        self.line: dict[Share, None] = {}  # who waits, in order

    def serve(self, now: float) -> None:
        """Let in who is next in line, while there is room."""
        while self.line:
            share = next(iter(self.line))
            if self.taken and self.taken + share.octets > self.octets:
                return
            del self.line[share]
            self.taken += share.octets
            share.then()


def room_of(broker: Broker) -> Room:
    """The broker's, made when it is first needed."""
    return broker.kept(Room)


def bodies_of(broker: Broker) -> Room:
    """The broker's for bodies of requests, made when it is first needed."""
    return broker.kept(Room, "bodies")


def lists_of(broker: Broker) -> Room:
    """The broker's for long lists, made when it is first needed."""
    return broker.kept(Room, "lists")


def taken_now(room: Room, broker: Broker, octets: int) -> Share | None:
    """A share, if there is room for it at once. Alone, it may be larger than the room."""
    if room.taken and room.taken + octets > room.octets:
        return None
    room.taken += octets
    return Share(room, broker, octets, nothing)

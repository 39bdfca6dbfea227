"""After a change of a virtual host's topology, the held dead letters in it are routed anew, a few queues' at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from leveret.clock import Timer, Timers

QUEUES: Final = 64  # queues whose dead letters are routed in one step: up to 10 ms
STEP_S: Final = 0.1  # between steps, so that topology that changes all the time costs a tenth of it


class Rerouted(Protocol):
    """The dead letters of one queue."""

    def route_again(self) -> None:
        """Route those in hand anew in the next settle."""


class Undelivered:
    """The queues of a virtual host whose dead letters wait for a target."""

    __slots__ = ("_changed", "_due", "_next_at", "_timer", "_timers", "_waiting")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: dict[Rerouted, None] = {}
        self._due: list[Rerouted] = []  # in this round, last first
        self._changed = False  # since this round began
        self._next_at = 0.0  # monotonic seconds
        self._timer: Timer | None = None

    def join(self, held: Rerouted) -> None:
        self._waiting[held] = None

    def leave(self, held: Rerouted) -> None:
        self._waiting.pop(held, None)

    def topology_changed(self, now: float) -> None:
        """Begin a round in the next settle, or soon if one has been begun just now."""
        self._changed = bool(self._waiting)
        if self._changed and self._timer is None:
            self._timer = self._timers.at(max(now, self._next_at), self._step)

    def _step(self, now: float) -> None:
        self._timer = None
        if not self._due:
            self._changed = False
            self._due = list(reversed(self._waiting))
        for held in self._due[: -QUEUES - 1 : -1]:
            held.route_again()
        del self._due[-QUEUES:]
        self._next_at = now + STEP_S
        if self._due or self._changed:
            self._timer = self._timers.at(self._next_at, self._step)

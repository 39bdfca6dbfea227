"""The contract by which a node feeds a front-end: the calls that it makes for each read.

    node ──bytes──> Intake.receive ─> is it due, has it ended, has it input left?

A message that comes alone costs little more than these calls, so that they are compiled, and direct where the front-end
has an intake of its own; `FrontEndIntake` asks any other front-end itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.front_end import FrontEnd


class Intake(ABC):
    """The way into one front-end. Each method does what the front-end's own of that name does."""

    @abstractmethod
    def receive(self, data: bytes, now: float) -> None:
        """Handle bytes from the peer, split in any way. `now` is monotonic seconds."""

    @abstractmethod
    def due_at(self) -> float | None:
        """Return when to call `FrontEnd.on_due` (monotonic seconds), or None."""

    @abstractmethod
    def is_closed(self) -> bool:
        """Return whether the connection has ended: nothing more is read from it."""

    @abstractmethod
    def is_halted(self) -> bool:
        """Return whether there is input left, with which `receive` goes on when it gets b""."""


class FrontEndIntake(Intake):
    """The intake of a front-end that has none of its own."""

    __slots__ = ("_front",)

    def __init__(self, front: FrontEnd) -> None:
        self._front = front

    def receive(self, data: bytes, now: float) -> None:
        self._front.receive(data, now)

    def due_at(self) -> float | None:
        return self._front.due_at()

    def is_closed(self) -> bool:
        return self._front.closed

    def is_halted(self) -> bool:
        return self._front.halted

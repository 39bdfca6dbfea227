"""Turns split long work into short pieces, so that other work is not held up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_core.clock import Clock

LOOKS: Final = 8  # steps between two looks at the clock
MOST: Final = 512  # steps in a turn at most


class Turn:
    """A turn of at most `length_s` seconds; after it the caller leaves `pause_s` seconds to other work."""

    __slots__ = ("_clock", "_done", "_length_s", "_until", "pause_s")

    def __init__(self, clock: Clock, length_s: float, pause_s: float) -> None:
        self.pause_s = pause_s
        self._clock = clock
        self._length_s = length_s
        self._done = 0
        self._until = clock.now() + length_s

    def is_over(self, is_slow: bool = False) -> bool:
        """True if the turn is over. Call it after each step; the caller then pauses, and the next turn begins.

        `is_slow`: the step may have taken much of the turn, so look at the clock.
        """
        self._done += 1
        if self._done % LOOKS and not is_slow:
            return False
        now = self._clock.now()
        if now < self._until and self._done < MOST:
            return False
        self._done = 0
        self._until = now + self.pause_s + self._length_s
        return True

"""Our turn among others': long work that is done a little at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_core.clock import Clock

LOOKS: Final = 8  # things done between two looks at the clock
MOST: Final = 512  # things done in a turn, whatever the clock says


class Turn:
    """Tells when others are to have theirs. `pause_s`: what is then left to them."""

    __slots__ = ("_clock", "_done", "_length_s", "_until", "pause_s")

    def __init__(self, clock: Clock, length_s: float, pause_s: float) -> None:
        self.pause_s = pause_s
        self._clock = clock
        self._length_s = length_s
        self._done = 0
        self._until = clock.now() + length_s

    def is_over(self, is_slow: bool = False) -> bool:
        """Asked after each thing. True: our next turn has begun when this is asked again.

        `is_slow`: it may have taken much of the turn; look at the clock.
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

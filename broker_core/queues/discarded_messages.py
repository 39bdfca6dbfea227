"""Discarded messages are freed in portions: freeing those of a long queue at once takes 0.2 s a million."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from leveret.clock import Clock, Timers

PORTION: Final = 20_000  # messages: 4 ms
PAUSE_S: Final = 0.001  # between portions, for the broker's other work


BURIED: Final = 500  # messages that go to an exchange: 5 to 20 ms, in the settle that follows
PORTION_S: Final = 0.005  # the longest time for a portion,
LOOK: Final = 64  # which is looked at after so many


class DiscardPortion:
    """A portion of the messages that a queue loses together: so many, or as many as fit into a few milliseconds."""

    __slots__ = ("_clock", "_left", "_until")

    def __init__(self, clock: Clock, is_buried: bool) -> None:
        self._clock = clock
        self._left = min(PORTION, BURIED) if is_buried else PORTION
        self._until = clock.now() + PORTION_S

    def is_over(self) -> bool:
        """Return whether there is no room for one more message; else count it."""
        if self._left <= 0 or (self._left % LOOK == 0 and self._clock.now() > self._until):
            return True
        self._left -= 1
        return False


class Pile(Protocol):
    """Messages or deliveries that nothing else refers to."""

    def __len__(self) -> int: ...

    def pop(self) -> object: ...


class DiscardedMessages:
    """Piles of messages that are being freed. The caller must hold no reference to a pile that it adds."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._piles: list[Pile] = []

    def add(self, pile: Pile, now: float) -> None:
        """Free these in portions; a single portion is left to the caller's dropping it. `now` is monotonic seconds."""
        if len(pile) <= PORTION:
            return
        self._piles.append(pile)
        if len(self._piles) == 1:
            self._timers.at(now + PAUSE_S, self._free)

    def _free(self, now: float) -> None:
        pile = self._piles[-1]
        for _ in range(min(PORTION, len(pile))):
            pile.pop()
        if not pile:
            self._piles.pop()
        if self._piles:
            self._timers.at(now + PAUSE_S, self._free)

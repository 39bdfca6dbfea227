"""Clocks that are passed as arguments, the broker's one list of timers, and turns.

The core reads a `Clock` only where something depends on time; tests pass a `ManualClock`. `Timers` is a heap of
deadlines with lazy cancellation, so that time costs nothing where nothing waits for it. A `Turn` splits long work into
short pieces, so that other work is not held up; `LongWork` does such work by itself.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from mypy_extensions import mypyc_attr

NEVER: Final = float("inf")  # a deadline that does not come
LOOKS: Final = 8  # steps of a turn between two looks at the clock
MOST: Final = 512  # steps in a turn at most
PORTION_S: Final = 0.001  # of long work; the step that has begun is finished
PAUSE_S: Final = 0.001  # between two portions, for other work


@mypyc_attr(allow_interpreted_subclasses=True)
class Clock(ABC):
    """A source of time: `now` never goes back (for deadlines), `wall` is the time of day (for timestamps)."""

    @abstractmethod
    def now(self) -> float:
        """Return monotonic seconds."""

    @abstractmethod
    def wall(self) -> float:
        """Return seconds since 1970-01-01 UTC."""


class SystemClock(Clock):
    def now(self) -> float:
        return time.monotonic()

    def wall(self) -> float:
        return time.time()


class CountedClock(Clock):
    """The system's performance counter, with an offset: read in one call, where other clocks have the same offset."""

    def __init__(self, ahead_s: float) -> None:
        """`ahead_s`: seconds by which the clock that it is to agree with is ahead of `time.perf_counter`."""
        self._ahead_s = ahead_s

    def now(self) -> float:
        return time.perf_counter() + self._ahead_s

    def wall(self) -> float:
        return time.time()


class ManualClock(Clock):
    """A clock that moves when told: `clock.advance(seconds)`. For tests and simulation."""

    def __init__(self, now: float = 0.0, wall: float = 1_000_000_000.0) -> None:
        self._now = now
        self._wall = wall

    def now(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._wall

    def advance(self, seconds: float) -> None:
        self._now += seconds
        self._wall += seconds

    def jump(self, seconds: float) -> None:
        """Set the clock on the wall. No time passes."""
        self._wall += seconds


class Timer:
    """An action that runs at `at` (monotonic seconds) unless it is cancelled."""

    __slots__ = ("action", "at", "cancelled", "order")

    def __init__(self, at: float, order: int, action: Callable[[float], None]) -> None:
        self.at = at
        self.order = order
        self.action = action
        self.cancelled = False

    def __lt__(self, other: Timer) -> bool:
        return (self.at, self.order) < (other.at, other.order)


def nothing(now: float) -> None:
    """Do nothing: the action of a cancelled timer."""


def nothing_left() -> None:
    """Do nothing after the last portion of some work."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Timers:
    """Deadlines in order. The owner sleeps until `sleep_until()` and then calls `run(now)`."""

    def __init__(self) -> None:
        self._heap: list[Timer] = []
        self._order = 0
        self._cancelled = 0
        self._slept_until = NEVER  # timers due later need not wake the owner
        self.running = False  # whether an action is being called
        self.on_earlier: Callable[[], None] | None = None  # called for a deadline before the owner wakes

    def at(self, when: float, action: Callable[[float], None]) -> Timer:
        """Call `action(now)` once, not before `when`."""
        self._order += 1
        timer = Timer(when, self._order, action)
        heappush(self._heap, timer)
        if when < self._slept_until and self.on_earlier is not None:
            self._slept_until = when
            self.on_earlier()
        return timer

    def cancel(self, timer: Timer | None) -> None:
        """Forget a timer; cancelling twice, or one that has run, is harmless."""
        if timer is None or timer.cancelled:
            return
        timer.cancelled = True
        timer.action = nothing  # the timer may stay in the heap for long; what the action refers to need not
        self._cancelled += 1
        if self._cancelled > 64 and self._cancelled * 2 > len(self._heap):
            self._heap = [t for t in self._heap if not t.cancelled]
            heapify(self._heap)
            self._cancelled = 0

    def next_at(self) -> float | None:
        while self._heap and self._heap[0].cancelled:
            heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0].at if self._heap else None

    def sleep_until(self) -> float:
        """Return the next deadline, or NEVER, for an owner that now sleeps until then.

        A caller that sets a deadline and cancels it a thousand times a second wakes the owner in vain once for each
        time slept, not a thousand times.
        """
        at = self.next_at()
        self._slept_until = NEVER if at is None else at
        return self._slept_until

    def run(self, now: float) -> int:
        """Run the timers due at `now`, in order of deadline; return how many ran."""
        ran = 0
        while (at := self.next_at()) is not None and at <= now:
            timer = heappop(self._heap)
            timer.cancelled = True  # a later cancel() finds it done and does not count it
            self.running = True
            try:
                timer.action(now)
            finally:
                self.running = False
            ran += 1
        return ran


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


class LongWork:
    """Long pieces of work that are done in portions, in turn, so that other work is not held up.

    A piece of work is a function that takes one step of it, and returns whether there are more.
    """

    def __init__(self, clock: Clock, timers: Timers, portion_s: float = PORTION_S) -> None:
        self._clock = clock
        self._timers = timers
        self._portion_s = portion_s
        self._waiting: deque[tuple[Callable[[], bool], Callable[[], None]]] = deque()

    def begin(self, step: Callable[[], bool], done: Callable[[], None] = nothing_left) -> bool:
        """Do the first portion at once. Return whether that was all; if not, `done` is called after the last."""
        if not self._has_more(step):
            return True
        self._waiting.append((step, done))
        if len(self._waiting) == 1:
            self._pause()
        return False

    def _has_more(self, step: Callable[[], bool]) -> bool:
        """Take the steps of one portion. Return whether there are more."""
        until = self._clock.now() + self._portion_s
        while step():
            if self._clock.now() > until:
                return True
        return False

    def _pause(self) -> None:
        self._timers.at(self._clock.now() + PAUSE_S, self._go_on)

    def _go_on(self, now: float) -> None:
        if not self._waiting:  # the node has ended
            return
        step, done = self._waiting[0]
        is_over = True
        try:
            is_over = not self._has_more(step)
        finally:  # an exception is a mistake of ours, and ends this piece of work
            self._waiting.rotate(-1)
            if is_over:
                self._waiting.pop()
                done()
            if self._waiting:
                self._pause()

    def finish(self) -> None:
        """Do all that is left, because the node ends."""
        while self._waiting:
            step, done = self._waiting.popleft()
            while step():
                pass
            done()

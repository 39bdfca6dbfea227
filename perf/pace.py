"""Compute when each message of a publisher is due, from rates that follow each other in rounds."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Final

SECOND: Final = 1_000_000_000
SLACK: Final = 1e-6  # of a message: the error of sums of fractions


class Pace:
    """A pace of `steps`: messages per second, and for how many seconds. Times are nanoseconds since the start."""

    __slots__ = ("_per_round", "_round_ns", "_steps")

    def __init__(self, steps: Sequence[tuple[float, float]]) -> None:
        self._steps = [(rate, int(seconds * SECOND)) for rate, seconds in steps]
        self._round_ns = sum(ns for _, ns in self._steps)
        self._per_round = sum(rate * ns for rate, ns in self._steps) / SECOND

    def due(self, elapsed_ns: int) -> int:
        """Return how many messages are due by then; the first is due at once."""
        rounds, rest = divmod(max(elapsed_ns, 0), self._round_ns)
        passed = rounds * self._per_round
        for rate, ns in self._steps:
            if rest < ns:
                passed += rate * rest / SECOND
                return int(passed + SLACK) + 1 if rate else ceil(passed - SLACK)
            passed += rate * ns / SECOND
            rest -= ns
        raise AssertionError("a round is as long as its steps")

    def time_of(self, number: int) -> int:
        """Return when message `number` (0, 1, 2 ...) is due."""
        rounds, rest = divmod(number, self._per_round)
        passed = int(rounds) * self._round_ns
        for rate, ns in self._steps:
            inside = rate * ns / SECOND
            if rest < inside:
                return passed + int(rest / rate * SECOND)
            rest -= inside
            passed += ns
        return passed

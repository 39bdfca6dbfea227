"""Count values in buckets whose width grows with the value, so that each is off by less than 1.6 %.

The buckets of one octave are 64; below 128 each number has its own. So there are at most 4 000.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

BITS: Final = 6  # bits of a value that its bucket keeps, behind the first
EXACT: Final = 2 << BITS  # below this a value is its own bucket


def bucket_of(value: int) -> int:
    if value < EXACT:
        return max(value, 0)
    shift = value.bit_length() - BITS - 1
    return (shift << BITS) + (value >> shift)


def middle_of(bucket: int) -> int:
    """Return the middle value of a bucket."""
    if bucket < EXACT:
        return bucket
    shift = (bucket >> BITS) - 1
    return ((bucket - (shift << BITS)) << shift) + (1 << shift >> 1)


class Histogram:
    """A histogram of nanoseconds, or any other numbers. Two of them can be merged."""

    __slots__ = ("buckets", "count", "highest", "lowest")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.lowest = 1 << 63
        self.highest = 0

    def add(self, value: int, count: int = 1) -> None:
        bucket = bucket_of(value)
        self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += count
        if value < self.lowest:
            self.lowest = max(value, 0)
        if value > self.highest:
            self.highest = value

    def since(self, now: int, then: Mapping[int, int]) -> None:
        """Add how long ago some times were; `then` has how often each occurred."""
        for time, count in then.items():
            self.add(now - time, count)

    def merge(self, other: Histogram) -> None:
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += other.count
        self.lowest = min(self.lowest, other.lowest)
        self.highest = max(self.highest, other.highest)

    def percentiles(self, wanted: Iterable[float]) -> list[int]:
        """Return the value that each of these percentages does not exceed, in ascending order; zeros if empty."""
        ordered = iter(sorted(self.buckets.items()))
        passed = bucket = 0
        found = []
        for percent in wanted:
            while passed < self.count * percent / 100:
                bucket, count = next(ordered)
                passed += count
            found.append(min(max(middle_of(bucket), self.lowest), self.highest) if self.count else 0)
        return found

"""A mark is one number: how often deliveries of an entry failed, and until when it waits.

    bits 0 to 19    failed deliveries
    bit 20          the entry was never delivered; without it, it was delivered before
    bits 21 to 62   when it is due, in ms since 1970-01-01 UTC; 0: it does not wait

Marks of entries that do not wait are the plain counts of format 1. A store that has any other mark has format 2, which
older versions refuse: they would take a due time for a count.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

ATTEMPTS_MAX: Final = (1 << 20) - 1
FRESH: Final = 1 << 20
DUE_BIT: Final = 21
DUE_MAX_MS: Final = (1 << 42) - 1  # in the year 2109


def mark_of(attempts: int, is_fresh: bool, due_ms: int = 0) -> int:
    """Return the mark of an entry. Counts and times that are too large are cut."""
    return min(attempts, ATTEMPTS_MAX) | is_fresh * FRESH | min(due_ms, DUE_MAX_MS) << DUE_BIT


def attempts_in(mark: int) -> int:
    return mark & ATTEMPTS_MAX


def is_fresh(mark: int) -> bool:
    """Return whether the entry was never delivered."""
    return bool(mark & FRESH)


def due_ms_in(mark: int) -> int:
    """Return when the entry is due, in ms since 1970; 0 if it does not wait."""
    return mark >> DUE_BIT


def is_plain(mark: int) -> bool:
    """Return whether a mark is a count of failed deliveries and nothing else."""
    return mark <= ATTEMPTS_MAX


def has_waiting(marks: Mapping[int, int]) -> bool:
    """Return whether any mark, by entry, needs format 2. Entry 0 stands for others, and its mark is no mark."""
    return any(entry and not is_plain(mark) for entry, mark in marks.items())

"""Decide which commits go to the redo log, and when what is left of them goes to the database.

The log spares the database what is consumed before it gets there. It spares nothing of large commits, which suit pages
well, nor while nobody consumes: then every message would be written once more than without it.
"""

from __future__ import annotations

from typing import Final

from leveret.durable.store.contract import Commit
from leveret.durable.store.logged_changes import LoggedChanges

# What is left of a round goes to the database when the log has so many bytes, or when so many chunks are left: 3 ms.
REDO_OCTETS: Final = 4 << 20
CHUNKS_MAX: Final = 256
# Commits of more bytes, or messages, pass the log by.
LARGE_OCTETS: Final = 1 << 21
MANY_MESSAGES: Final = 1 << 12
# While nobody consumes so many bytes of commits do, twice as many after each round that says so; but not small commits,
# which would be mostly pages.
PASSED_BY_MIN: Final = 4 * REDO_OCTETS
PASSED_BY_MAX: Final = 1 << 27
SMALL_OCTETS: Final = 1 << 15


class RedoPolicy:
    """Learns from each full round of the log whether there are consumers."""

    def __init__(self, octets: int) -> None:
        """`octets` is the size of a round in bytes; with 0 there is no log."""
        self._octets = octets
        self._pass_by = self._passed_by = 0  # bytes that are to pass the log by, and that did

    def suits(self, commit: Commit) -> bool:
        """Return whether a commit has what the log can say, and not too many messages."""
        if not self._octets or commit.objects or commit.replaced or commit.changes_segments:
            return False
        return bool(commit) and sum([len(each.messages) for each in commit.chunks]) <= MANY_MESSAGES

    def is_worth_it(self, octets: int) -> bool:
        """Return whether the database is spared something if so many bytes of chunks go to the log."""
        if octets > LARGE_OCTETS:
            return False
        if octets > SMALL_OCTETS and self._passed_by < self._pass_by:
            self._passed_by += octets
            return False
        return True

    def is_full(self, octets: int, logged: LoggedChanges) -> bool:
        """Return whether a round that will have so many bytes is to be written to the database before."""
        return octets > self._octets or len(logged.chunks) >= CHUNKS_MAX

    def learn(self, logged: LoggedChanges) -> None:
        """Look at what is left of a round that ends. Of one that is short most is there, whoever consumes."""
        if 2 * logged.logged <= self._octets:
            return
        is_consumed = 2 * logged.octets <= logged.logged
        self._pass_by = 0 if is_consumed else min(max(2 * self._pass_by, PASSED_BY_MIN), PASSED_BY_MAX)
        self._passed_by = 0

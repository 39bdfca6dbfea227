"""Compaction merges sparse and small chunks: a thread reads their live entries, and the next commit replaces them."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from leveret.durable.chunk_state import ChunkState
from leveret.durable.merge_candidates import MergeCandidates
from leveret.durable.page_reader import whole
from leveret.durable.store import chunk
from leveret.durable.store.contract import Chunk, Commit, Reader, StoreError

if TYPE_CHECKING:
    from leveret.durable.journal import Journal

log: Final = logging.getLogger("leveret.store")

LOOK_EVERY: Final = 32  # commits between searches for chunks worth rewriting
YOUNG_MS: Final = 1000  # the age below which chunks are left alone: their entries are often settled soon


class Compaction:
    """Rewrites chunks of one journal, one group at a time."""

    __slots__ = ("_busy", "_candidates", "_journal", "_since", "done")

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._candidates = MergeCandidates()
        self._busy = False
        self._since = 0  # commits since the last search
        self.done: list[tuple[list[ChunkState], Chunk]] = []  # for the next commit

    def look(self) -> None:
        """Start a rewriting if one is worthwhile, every `LOOK_EVERY` calls. Called after each commit."""
        self._since += 1
        if self._since < LOOK_EVERY or self._busy:
            return
        self._since = 0
        journal = self._journal
        old = journal.arrivals_known.after(int(journal.broker.clock.wall() * 1000) - YOUNG_MS)
        if states := self._candidates.next(journal.known, min(old, journal.written + 1)):
            self._rewrite(states)

    def _rewrite(self, states: list[ChunkState]) -> None:
        self._busy = True
        parts = [(state.first, state.needed()) for state in states]

        def job(reader: Reader) -> Chunk:
            return chunk.rewritten([(*whole(reader, first), needed) for first, needed in parts])

        def then(made: Chunk | Exception) -> None:
            if isinstance(made, Exception):
                self._busy = False
                self._cannot(states, made)
            else:
                self.done.append((states, made))

        self._journal.store.read_soon(job, then)

    def _cannot(self, states: list[ChunkState], error: Exception) -> None:
        known = self._journal.known
        if all(known.of(state.first) is state for state in states):  # else one was dropped while it was read
            for state in states:
                state.damaged = True
            log.error("chunks %s are not rewritten: %s", ", ".join(str(s.first) for s in states), error)
        if isinstance(error, StoreError):
            self._journal.fail(error)

    def replace_in(self, commit: Commit) -> None:
        """Put the rewritten chunks into a commit, which has everything settled so far already."""
        known = self._journal.known
        for states, made in self.done:
            if all(known.of(state.first) is state for state in states):
                merged = known.replace(states, chunk.read(made.entries).numbers, len(made.messages))
                for state in states:
                    commit.settled.pop(state.first, None)
                commit.replaced.append(([state.first for state in states], made))
                if merged.live < len(merged.numbers):
                    commit.settled[merged.first] = bytes(merged.bits)
        if self.done:
            self.done.clear()
            self._busy = False

"""The index of all chunks tells which entries are still needed, and which chunks may be worth rewriting.

    entries settled ──> bits of their chunks ──> a chunk without live entries goes; sparse and small ones are *poor*,
                                                 and merged (`merge_candidates.py`, `compaction.py`)

The state of a chunk takes a bit for each entry and a few hundred bytes. Entries keep their numbers when their chunk is
rewritten: the chunk of an entry is the one with the greatest first number that is not above it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from mypy_extensions import mypyc_attr

from leveret.durable.chunk_state import ChunkState

SPARSE: Final = 0.3  # share of live entries below which a chunk is worth rewriting
SMALL_OCTETS: Final = 1 << 16  # bytes below which a chunk is worth merging with its neighbours


@mypyc_attr(allow_interpreted_subclasses=True)
class Chunks:
    """All chunks that have live entries."""

    def __init__(self) -> None:
        self._states: dict[int, ChunkState] = {}
        self._firsts: list[int] = []  # ascending
        self.poor: list[int] = []  # those of them that may be worth rewriting, ascending
        self.live = 0

    def __len__(self) -> int:
        return len(self._firsts)

    @property
    def oldest(self) -> int:
        """The number of the first chunk; 0 if there is none."""
        return self._firsts[0] if self._firsts else 0

    def add(self, state: ChunkState) -> None:
        """Add a new chunk, or one found at a start; its number is the highest so far."""
        assert not self._firsts or self._firsts[-1] < state.first, "chunks come in order"
        self._states[state.first] = state
        self._firsts.append(state.first)
        self._see_if_poor(state)
        self.live += state.live

    def of(self, number: int) -> ChunkState | None:
        """Return the chunk that has an entry, or had it."""
        at = bisect_right(self._firsts, number) - 1
        return None if at < 0 else self._states[self._firsts[at]]

    def after(self, number: int) -> ChunkState | None:
        """Return the first chunk that begins after a number, or None."""
        at = bisect_right(self._firsts, number)
        return self._states[self._firsts[at]] if at < len(self._firsts) else None

    def needs(self, number: int) -> bool:
        """Return whether an entry is live."""
        state = self.of(number)
        return state is not None and state.needs(number)

    def settle(self, numbers: Sequence[int]) -> list[ChunkState]:
        """Settle entries, by ascending numbers. Return the chunks that changed, in order."""
        changed: list[ChunkState] = []
        at = 0
        while at < len(numbers):
            state = self.of(numbers[at])
            end = bisect_right(numbers, state.last, at) if state is not None else at
            if state is None or end == at:  # its chunk has gone
                at += 1
                continue
            settled = state.settle(numbers[at:end])
            if settled:
                self.live -= settled
                self._see_if_poor(state)
                changed.append(state)
            at = end
        return changed

    def settle_ranges(self, ranges: Iterable[range]) -> list[ChunkState]:
        """Settle ranges of entries, in any order; no entry is in two. Return the chunks that changed, in order."""
        changed: list[ChunkState] = []
        for start, stop in joined(ranges):
            at = max(bisect_right(self._firsts, start) - 1, 0)
            while at < len(self._firsts) and self._firsts[at] < stop:
                state = self._states[self._firsts[at]]
                settled = state.settle_between(start, stop)
                if settled and (not changed or changed[-1] is not state):
                    self._see_if_poor(state)
                    changed.append(state)
                self.live -= settled
                at += 1
        return changed

    def drop(self, states: Iterable[ChunkState]) -> None:
        """Forget chunks that are not needed any more."""
        gone: set[int] = set()
        poor: set[int] = set()
        for state in states:
            first = state.first
            del self._states[first]
            gone.add(first)
            if state.poor:
                poor.add(first)
            self.live -= state.live
        self._firsts = without(self._firsts, gone)
        self.poor = without(self.poor, poor)

    # Rewriting.

    def state(self, first: int) -> ChunkState:
        """Return the chunk that begins with an entry."""
        return self._states[first]

    def follows(self, state: ChunkState, first: int) -> bool:
        """Return whether the chunk that begins with `first` is the next one after another."""
        return self._firsts[bisect_left(self._firsts, first) - 1] == state.first

    def _see_if_poor(self, state: ChunkState) -> None:
        """List a chunk as poor if it is. Called when it is new or has fewer live entries; poor chunks stay poor."""
        if not state.poor and self._is_poor(state):
            state.poor = True
            insort(self.poor, state.first)

    def _is_poor(self, state: ChunkState) -> bool:
        return state.live_octets < SMALL_OCTETS or state.live < SPARSE * len(state.numbers)

    def replace(self, states: Sequence[ChunkState], numbers: Sequence[int], octets: int) -> ChunkState:
        """Replace chunks by one with the given entries of theirs, some of which may be settled by now."""
        merged = ChunkState(states[0].first, numbers, octets, states[0].volatile)
        if sum(state.live for state in states) < len(numbers):
            needed = {number for state in states for number in state.needed()}
            merged.settle([number for number in numbers if number not in needed])
        before = self.live
        self.drop(states)
        self._states[merged.first] = merged
        insort(self._firsts, merged.first)
        self._see_if_poor(merged)
        self.live = before
        return merged


def without(rising: list[int], gone: Collection[int]) -> list[int]:
    """Return ascending numbers without some of them; `rising` may be changed."""
    if len(gone) > len(rising) // 8:
        return [each for each in rising if each not in gone]
    for each in gone:
        del rising[bisect_left(rising, each)]
    return rising


def joined(ranges: Iterable[range]) -> Iterator[tuple[int, int]]:
    """Yield (start, stop) of the given ranges in order, adjacent ones joined."""
    start = stop = 0
    for each in sorted(ranges, key=lambda each: each.start):
        if each.start != stop:
            if start < stop:
                yield start, stop
            start = each.start
        stop = each.stop
    if start < stop:
        yield start, stop

"""The index of all chunks tells which entries are still needed, and which chunks are worth rewriting.

    entries settled ──> bits of their chunks ──> a chunk without live entries goes; sparse and small ones are merged

The state of a chunk takes a bit for each entry and a few hundred bytes. Entries keep their numbers when their chunk is
rewritten: the chunk of an entry is the one with the greatest first number that is not above it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from leveret.durable.chunk_state import ChunkState

SPARSE: Final = 0.3  # share of live entries below which a chunk is worth rewriting
MERGED_OCTETS: Final = 1 << 20  # bytes of messages in a rewritten chunk, roughly
MERGED_ENTRIES: Final = 1 << 15
SMALL_OCTETS: Final = 1 << 16  # bytes below which a chunk is worth merging with its neighbours,
SMALL_MANY: Final = 16  # if there are at least so many
RECLAIMED: Final = 1 << 17  # bytes to be freed that make any rewriting worthwhile
LOOKED_AT: Final = 200  # chunks examined in one search for some worth rewriting: 1 ms


class Chunks:
    """All chunks that have live entries."""

    def __init__(self) -> None:
        self._states: dict[int, ChunkState] = {}
        self._firsts: list[int] = []  # ascending
        self._poor: list[int] = []  # those of them that may be worth rewriting, ascending
        self._looked_to = 0  # the number at which the next search for some begins
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
        gone = {state.first: self._states.pop(state.first) for state in states}
        self._firsts = without(self._firsts, gone)
        self._poor = without(self._poor, {first for first, state in gone.items() if state.poor})
        self.live -= sum(state.live for state in gone.values())

    # Rewriting.

    def worth_rewriting(self, until: int) -> list[ChunkState]:
        """Return adjacent chunks before entry `until` that are worth merging, or a single sparse one; or an empty list.

        One call examines about `LOOKED_AT` chunks, and the next call those behind them: a backlog may have 100 000.
        """
        looked_at = 0
        for group in self._groups(until):
            if self._pays(group):
                self._looked_to = group[0].first
                return group
            self._looked_to = group[-1].last + 1
            looked_at += len(group)
            if looked_at >= LOOKED_AT:
                return []
        self._looked_to = 0
        return []

    def _groups(self, until: int) -> Iterator[list[ChunkState]]:
        """Yield groups of adjacent poor chunks that fit into one, from where the last search ended up to `until`."""
        group: list[ChunkState] = []
        octets = entries = 0
        for first in islice(self._poor, bisect_left(self._poor, self._looked_to), None):
            if first >= until:
                break
            state = self._states[first]
            if state.damaged:
                continue
            if group and not (self._follows(group[-1], first) and self._fits(group, octets, entries, state)):
                yield group
                group, octets, entries = [], 0, 0
            group.append(state)
            octets += state.live_octets
            entries += state.live
        if group:
            yield group

    def _follows(self, state: ChunkState, first: int) -> bool:
        return self._firsts[bisect_left(self._firsts, first) - 1] == state.first

    def _see_if_poor(self, state: ChunkState) -> None:
        """List a chunk as poor if it is. Called when it is new or has fewer live entries; poor chunks stay poor."""
        if not state.poor and self._is_poor(state):
            state.poor = True
            insort(self._poor, state.first)

    def _is_poor(self, state: ChunkState) -> bool:
        return state.live_octets < SMALL_OCTETS or state.live < SPARSE * len(state.numbers)

    def _fits(self, group: list[ChunkState], octets: int, entries: int, state: ChunkState) -> bool:
        small = octets + state.live_octets <= MERGED_OCTETS and entries + state.live <= MERGED_ENTRIES
        return small and group[0].volatile == state.volatile

    def _pays(self, group: list[ChunkState]) -> bool:
        return len(group) >= SMALL_MANY or sum(s.octets - s.live_octets for s in group) >= RECLAIMED

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

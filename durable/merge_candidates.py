"""Find chunks that are worth rewriting: small ones beside each other, and a sparse one of which a good part is free."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leveret.durable.chunk_state import ChunkState
    from leveret.durable.chunks import Chunks

MERGED_OCTETS: Final = 1 << 20  # bytes of messages in a rewritten chunk, roughly
MERGED_ENTRIES: Final = 1 << 15
SMALL_MANY: Final = 16  # small chunks that are worth merging
RECLAIMED: Final = 1 << 17  # bytes to be freed that make any rewriting worthwhile
LOOKED_AT: Final = 200  # chunks examined in one search: 1 ms


class MergeCandidates:
    """Searches the poor chunks of a store from where its last search ended."""

    __slots__ = ("_looked_to",)

    def __init__(self) -> None:
        self._looked_to = 0  # the number at which the next search begins

    def next(self, known: Chunks, until: int) -> list[ChunkState]:
        """Return adjacent chunks before entry `until` that are worth merging, or a single sparse one; or an empty list.

        One call examines about `LOOKED_AT` chunks, and the next call those behind them: a backlog may have 100 000.
        """
        looked_at = 0
        for group in self._groups(known, until):
            if _pays(group):
                self._looked_to = group[0].first
                return group
            self._looked_to = group[-1].last + 1
            looked_at += len(group)
            if looked_at >= LOOKED_AT:
                return []
        self._looked_to = 0
        return []

    def _groups(self, known: Chunks, until: int) -> Iterator[list[ChunkState]]:
        """Yield groups of adjacent poor chunks that fit into one, from where the last search ended up to `until`."""
        group: list[ChunkState] = []
        octets = entries = 0
        for first in islice(known.poor, bisect_left(known.poor, self._looked_to), None):
            if first >= until:
                break
            state = known.state(first)
            if state.damaged:
                continue
            if group and not (known.follows(group[-1], first) and _fits(group, octets, entries, state)):
                yield group
                group, octets, entries = [], 0, 0
            group.append(state)
            octets += state.live_octets
            entries += state.live
        if group:
            yield group


def _fits(group: list[ChunkState], octets: int, entries: int, state: ChunkState) -> bool:
    small = octets + state.live_octets <= MERGED_OCTETS and entries + state.live <= MERGED_ENTRIES
    return small and group[0].volatile == state.volatile


def _pays(group: list[ChunkState]) -> bool:
    return len(group) >= SMALL_MANY or sum([each.octets - each.live_octets for each in group]) >= RECLAIMED

"""Turn a commit into the parameters of the function that writes it (schema.py), in PostgreSQL's binary format.

Messages that are paged out only to save memory are in the local copy, and not in the database: what a commit says of
them is left out, and a commit that says nothing else is not sent at all.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Final, TypeAlias

import attrs

from leveret.durable.store.contract import Chunk, Commit
from leveret.durable.store.postgres.arrays import bigint, bigints, boolean, byteas, integers
from leveret.durable.store.segments import Key, SegmentChange

Parameters: TypeAlias = "list[bytes | None]"
Block: TypeAlias = "tuple[Key, int, bytes]"  # a segment, a place in its file, and what is there

NARROW: Final = 5  # the place among the parameters of whether a commit is to need as little room as possible
PART_OCTETS: Final = 64 << 20  # of messages in one statement, about; PostgreSQL takes at most 1 GiB


@attrs.frozen
class WritingRight:
    """The right to write: a shard, its epoch, and the token of the claim that began it."""

    shard: str
    epoch: int
    claim: str


class VolatileChunks:
    """The chunks that are in the local copy only."""

    def __init__(self) -> None:
        self._firsts: list[int] = []  # ascending
        self._lasts: dict[int, int] = {}  # first entry to the last one

    def __contains__(self, first: int) -> bool:
        return first in self._lasts

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def add(self, first: int, last: int) -> None:
        if first not in self._lasts:
            insort(self._firsts, first)
        self._lasts[first] = last

    def discard(self, first: int) -> None:
        if self._lasts.pop(first, None) is not None:
            del self._firsts[bisect_right(self._firsts, first) - 1]

    def merge(self, firsts: Sequence[int]) -> None:
        """Have adjacent chunks be one, under the number of the first."""
        last = self._lasts[firsts[-1]]
        for first in firsts:
            self.discard(first)
        self.add(firsts[0], last)

    def has(self, entry: int) -> bool:
        """Return whether an entry is in one of them."""
        at = bisect_right(self._firsts, entry) - 1
        return at >= 0 and entry <= self._lasts[self._firsts[at]]


def lasting(commit: Commit, made: Sequence[Chunk], volatile: VolatileChunks) -> tuple[Commit, list[Chunk]]:
    """Return what the database gets of a commit, and of its packed chunks. `volatile` takes over what it does not get.

    Most commits have nothing of that kind, and are returned as they are.
    """
    kept = [each for each, entries in zip(made, commit.chunks, strict=True) if not entries.volatile]
    for entries in commit.chunks:
        if entries.volatile:
            volatile.add(entries.first, entries.first + len(entries) - 1)
    if not volatile:
        return commit, kept
    found = Commit(commit.number)
    found.objects, found.producers = commit.objects, commit.producers
    found.appends, found.cut, found.ended = commit.appends, commit.cut, commit.ended
    found.settled = {first: bits for first, bits in commit.settled.items() if first not in volatile}
    found.marks = {entry: mark for entry, mark in commit.marks.items() if not volatile.has(entry)}
    found.dropped = [first for first in commit.dropped if first not in volatile]
    found.replaced = [(gone, new) for gone, new in commit.replaced if gone[0] not in volatile]
    for gone, _ in commit.replaced:
        if gone[0] in volatile:
            volatile.merge(gone)
    for first in commit.dropped:
        volatile.discard(first)
    return found, kept


def parts(
    right: WritingRight,
    commit: Commit,
    made: Sequence[Chunk],
    change: SegmentChange | None,
    blocks: Sequence[Block],
    is_last: bool,
    old_numbers: Sequence[int] = (),
) -> list[Parameters]:
    """Return the parameters of the statements that are a commit together: one, unless it is as large as no other.

    All but the last have nothing but messages, of a large transaction for instance. `old_numbers` are the first and the
    last number of earlier commits that are not needed any more.
    """
    found: list[Parameters] = []
    chunks, some_chunks = list(made), list[Chunk]()
    rest, some_blocks = list(blocks), list[Block]()
    room = PART_OCTETS
    while sum([len(each.messages) for each in chunks]) + sum([len(each[2]) for each in rest]) > room:
        while room > 0 and (chunks or rest):
            if chunks:
                some_chunks.append(chunks.pop(0))
                room -= len(some_chunks[-1].messages)
            else:
                some_blocks.append(rest.pop(0))
                room -= len(some_blocks[-1][2])
        found.append(parameters(right, Commit(commit.number), some_chunks, None, some_blocks, False))
        some_chunks, some_blocks, room = [], [], PART_OCTETS
    found.append(parameters(right, commit, chunks, change, rest, is_last, old_numbers))
    return found


def parameters(
    right: WritingRight,
    commit: Commit,
    made: Sequence[Chunk],
    change: SegmentChange | None,
    blocks: Sequence[Block],
    is_last: bool,
    old_numbers: Sequence[int] = (),
) -> Parameters:
    """Return the parameters of a commit, in the order of `schema.PARAMETERS`.

    `made` are its new chunks, `blocks` what was appended to segments. `is_last`: the shard is closed properly with it.
    """
    chunks = [*(new for _, new in commit.replaced), *made]
    producing: list[tuple[int, bytes, int]] = []
    segments: list[int] = []
    cut: list[Key] = []
    if change is not None:
        for _, span in change.spans.values():
            segments += (span.stream, span.first, span.next, span.octets, span.bodies, span.begun, span.last)
        cut = list(change.cut)
        producing = [
            (stream, name.encode("utf-8", "surrogatepass"), last)
            for (stream, name), (_, last) in change.producers.items()
        ]
        producing += [
            (stream, name.encode("utf-8", "surrogatepass"), -1) for stream, name in change.forgotten
        ]
    return [
        right.shard.encode(),
        bigint(right.epoch),
        right.claim.encode(),
        bigint(commit.number),
        boolean(is_last),
        boolean(False),
        bigints(old_numbers),
        byteas([key.encode() for key in commit.objects]),
        byteas([None if value is None else value.encode() for value in commit.objects.values()]),
        bigints(commit.dropped),
        bigints([first for gone, _ in commit.replaced for first in gone]),
        bigints([each.first for each in chunks]),
        integers([len(each.messages) for each in chunks]),
        byteas([each.entries for each in chunks]),
        byteas([each.messages for each in chunks]),
        bigints(commit.settled.keys()),
        byteas(commit.settled.values()),
        bigints(commit.marks.keys()),
        bigints(commit.marks.values()),
        bigints([stream for stream, _ in cut]),
        bigints([first for _, first in cut]),
        bigints(segments),
        bigints([number for (stream, segment), at, _ in blocks for number in (stream, segment, at)]),
        byteas([octets for _, _, octets in blocks]),
        bigints([stream for stream, _, _ in producing]),
        byteas([name for _, name, _ in producing]),
        bigints([last for _, _, last in producing]),
        bigints(commit.ended),
    ]

"""Which entries are still needed: bits, and what is worth rewriting."""

from __future__ import annotations

from array import array
from functools import partial
from itertools import accumulate, groupby

from hypothesis import given
from hypothesis import strategies as st

from leveret.durable.arrival_times import HIGHEST
from leveret.durable.chunks import SMALL_OCTETS, Chunks, ChunkState
from leveret.durable.merge_candidates import LOOKED_AT, MERGED_OCTETS, SMALL_MANY, MergeCandidates
from tests.harness.call_count import calls


def filled(sizes: list[int], octets: int = 1000) -> Chunks:
    chunks, first = Chunks(), 1
    for size in sizes:
        chunks.add(ChunkState(first, range(first, first + size), octets))
        first += size
    return chunks


@given(st.lists(st.integers(1, 20), min_size=1, max_size=8), st.data())
def test_the_live_entries_are_those_not_settled(sizes: list[int], data: st.DataObject) -> None:
    chunks = filled(sizes)
    live = set(range(1, sum(sizes) + 1))
    for _ in range(4):
        settled = data.draw(st.lists(st.integers(0, sum(sizes) + 2), max_size=30))
        changed = chunks.settle(sorted(settled))
        assert {number for state in changed for number in state.numbers} >= live & set(settled)
        live -= set(settled)
        assert chunks.live == len(live)
        chunks.drop([state for state in changed if not state.live])
        for number in live:
            state = chunks.of(number)
            assert state is not None
            assert number in state.needed()
        known = [state for number in live if (state := chunks.of(number)) is not None]
        assert {n for state in known for n in state.needed()} == live


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(0, 80), st.integers(0, 80)), max_size=8))
def test_runs_are_settled_as_single_entries_are(runs: list[tuple[int, int, int]]) -> None:
    """Many at once take another way than few: both ways, by turns, over two chunks."""
    chunks = filled([77, 91])
    live = set(range(1, 169))
    for first, count, again in runs:
        numbers = sorted([*range(first, first + count), *range(first, first + again)])
        changed = chunks.settle(numbers)
        assert [state.first for state in changed] == [
            first
            for first, last in ((1, 77), (78, 168))
            if any(first <= n <= last for n in live & set(numbers))
        ]
        live -= set(numbers)
        assert {n for first in (1, 78) for n in chunks.of(first).needed()} == live  # type: ignore[union-attr]
        assert chunks.live == len(live)


@given(st.lists(st.integers(1, 20), max_size=5), st.data())
def test_ranges_are_settled_as_their_numbers_are(sizes: list[int], data: st.DataObject) -> None:
    """Some of the chunks have been rewritten, and have gaps; others are gone."""
    both = filled(sizes), filled(sizes)
    everything = sum(sizes)
    for first in [1, *accumulate(sizes, initial=1)][1:-1:2]:
        for chunks in both:
            state = chunks.of(first)
            assert state is not None
            state.numbers = array("Q", [first, *range(first + 2, state.last + 1, 3)])
            chunks.live -= state.live - len(state.numbers)
            state.live = len(state.numbers)
    borders = sorted(data.draw(st.sets(st.integers(1, everything + 9), max_size=12)))
    pairs = zip(borders[::2], borders[1::2], strict=False)
    ranges = data.draw(st.permutations([range(begin, end) for begin, end in pairs]))
    one, other = both
    changed = one.settle_ranges(ranges)
    expected = other.settle(sorted(number for each in ranges for number in each))
    assert [state.first for state in changed] == [state.first for state in expected]
    assert [state.bits for state in changed] == [state.bits for state in expected]
    assert one.live == other.live


@given(st.lists(st.integers(1, 20), min_size=2, max_size=8), st.data())
def test_what_is_settled_while_chunks_become_one_stays_settled(sizes: list[int], data: st.DataObject) -> None:
    chunks = filled(sizes)
    everything = range(1, sum(sizes) + 1)
    before = data.draw(st.sets(st.sampled_from(everything)))
    chunks.drop([state for state in chunks.settle(sorted(before)) if not state.live])
    firsts = sorted({state.first for n in everything if n not in before and (state := chunks.of(n))})
    if not firsts:
        return
    begin = data.draw(st.integers(0, len(firsts) - 1))
    end = data.draw(st.integers(begin + 1, len(firsts)))
    states = [state for first in firsts[begin:end] if (state := chunks.of(first)) is not None]
    read = [number for state in states for number in state.needed()]
    meanwhile = data.draw(st.sets(st.sampled_from(everything)))
    chunks.settle(sorted(meanwhile))
    live = set(everything) - before - meanwhile
    merged = chunks.replace(states, read, 500)
    assert chunks.live == len(live)
    assert set(merged.needed()) == live & set(read)
    for number in live:
        state = chunks.of(number)
        assert state is not None
        assert number in state.needed()
    again = ChunkState(merged.first, merged.numbers, merged.octets)
    again.restore_bits(bytes(merged.bits))
    assert (again.live, list(again.needed())) == (merged.live, list(merged.needed()))


def worth_rewriting(chunks: Chunks, until: int = HIGHEST) -> list[ChunkState]:
    return MergeCandidates().next(chunks, until)


def test_many_small_neighbours_are_worth_rewriting_and_few_are_not() -> None:
    assert worth_rewriting(filled([1] * (SMALL_MANY - 1))) == []
    group = worth_rewriting(filled([1] * SMALL_MANY))
    assert [state.first for state in group] == list(range(1, SMALL_MANY + 1))


def test_young_chunks_are_left_alone() -> None:
    chunks = filled([1] * 2 * SMALL_MANY)
    assert worth_rewriting(chunks, SMALL_MANY) == []
    assert len(worth_rewriting(chunks, SMALL_MANY + 1)) == SMALL_MANY


def test_a_sparse_chunk_is_worth_rewriting_when_a_good_part_of_it_is_free() -> None:
    chunks = filled([100, 100], octets=MERGED_OCTETS)
    chunks.settle(range(1, 71))
    assert worth_rewriting(chunks) == []
    chunks.settle([71])
    assert [state.first for state in worth_rewriting(chunks)] == [1]


def test_what_is_full_parts_the_groups_and_so_does_what_need_not_outlive_the_node() -> None:
    chunks, first = Chunks(), 1
    for at in range(3 * SMALL_MANY):
        octets = MERGED_OCTETS if at == 5 else 100
        chunks.add(ChunkState(first, range(first, first + 1), octets, volatile=at >= SMALL_MANY + 6))
        first += 1
    group = worth_rewriting(chunks)
    assert [state.first for state in group] == list(range(7, SMALL_MANY + 7))
    assert not any(state.volatile for state in group)


def poor_by_turns(count: int) -> Chunks:
    """Every second chunk is small, but none has a neighbour to be merged with."""
    chunks = Chunks()
    for first in range(1, count + 1):
        chunks.add(ChunkState(first, range(first, first + 1), 100 if first % 2 else MERGED_OCTETS))
    return chunks


def test_the_chunks_of_a_long_backlog_are_looked_at_a_few_at_a_time() -> None:
    assert calls(partial(worth_rewriting, poor_by_turns(4 * LOOKED_AT))).total() < 8 * LOOKED_AT
    full = filled([1] * 4 * LOOKED_AT, octets=MERGED_OCTETS)
    assert calls(partial(worth_rewriting, full)).total() < 10, "those that are full are not looked at"


def test_each_chunk_has_its_turn_to_be_looked_at() -> None:
    chunks, candidates = poor_by_turns(5 * LOOKED_AT), MergeCandidates()
    for first in range(5 * LOOKED_AT + 1, 5 * LOOKED_AT + SMALL_MANY + 1):
        chunks.add(ChunkState(first, range(first, first + 1), 100))
    groups = [candidates.next(chunks, HIGHEST) for _ in range(3)]
    assert groups[:2] == [[], []]
    assert len(groups[2]) == SMALL_MANY
    assert candidates.next(chunks, HIGHEST) == groups[2], "it is still there"
    chunks.drop(groups[2])
    assert [candidates.next(chunks, HIGHEST) for _ in range(4)] == [[]] * 4


@given(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from([10, SMALL_OCTETS, MERGED_OCTETS])), max_size=60),
    st.data(),
)
def test_looks_find_what_looking_at_all_would_find(made: list[tuple[int, int]], data: st.DataObject) -> None:
    """Whatever has been settled, dropped and merged: groups are neighbours, poor, and of a kind."""
    chunks, candidates, first = Chunks(), MergeCandidates(), 1
    for entries, octets in made:
        chunks.add(ChunkState(first, range(first, first + entries), octets, data.draw(st.booleans())))
        first += entries
    for _ in range(3):
        settled = data.draw(st.sets(st.integers(1, first)))
        chunks.drop([state for state in chunks.settle(sorted(settled)) if not state.live])
        there = list(dict.fromkeys(state for n in range(1, first) if (state := chunks.of(n)) is not None))
        until = data.draw(st.integers(1, first))
        old = [state for state in there if state.first < until]
        group = candidates.next(chunks, until) or candidates.next(chunks, until)
        assert [state for state in there if state in group] == group
        if not group:
            poor = [s.live_octets < SMALL_OCTETS or s.live < 0.3 * len(s.numbers) for s in old]
            kinds = [s.volatile if is_poor else None for s, is_poor in zip(old, poor, strict=True)]
            assert all(len(list(run)) < SMALL_MANY or kind is None for kind, run in groupby(kinds))
            continue
        at = there.index(group[0])
        assert there[at : at + len(group)] == group
        assert len({state.volatile for state in group}) == 1
        assert set(group) <= set(old)
        chunks.replace(
            group, [n for state in group for n in state.needed()], sum(s.live_octets for s in group)
        )


def test_a_damaged_chunk_is_left_alone() -> None:
    chunks = filled([1] * SMALL_MANY)
    state = chunks.of(3)
    assert state is not None
    state.damaged = True
    assert worth_rewriting(chunks) == []

"""Ids around their wrap, and sets of them against sets of plain numbers."""

from __future__ import annotations

from time import thread_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.protocols.amqp010.codec.sequences import (
    HALF,
    MASK,
    RANGES_MAX,
    SequenceSet,
    distance,
    following,
    is_before,
    preceding,
    sequence_set_at,
)
from leveret.protocols.amqp010.codec.values import MalformedError

LAST = MASK
ids = st.one_of(st.integers(0, MASK), st.integers(0, 5), st.integers(MASK - 5, MASK))


def decoded(octets: bytes) -> SequenceSet:
    found, at = sequence_set_at(b"before" + octets + b"after", 6, 6 + len(octets))
    assert at == 6 + len(octets)
    return found


# Ids.


@pytest.mark.parametrize(
    ("a", "b", "before"),
    [
        (0, 1, True),
        (1, 0, False),
        (7, 7, False),
        (LAST, 0, True),
        (0, LAST, False),
        (LAST - 3, 5, True),
        (0, HALF - 1, True),
        (0, HALF, False),
        (HALF, 0, False),
        (0, HALF + 1, False),
        (HALF + 1, 0, True),
    ],
)
def test_s233_ids_are_compared_as_rfc_1982_has_it(a: int, b: int, before: bool) -> None:
    assert is_before(a, b) is before


@given(ids, st.integers(0, HALF - 1))
def test_s233_a_distance_leads_from_one_id_to_the_other(a: int, steps: int) -> None:
    b = (a + steps) & MASK
    assert distance(a, b) == steps
    assert distance(b, a) == -steps
    assert is_before(a, b) is (steps > 0)
    assert not is_before(b, a)
    assert preceding(following(a)) == a


def test_s233_after_the_last_id_comes_0() -> None:
    assert following(LAST) == 0
    assert preceding(0) == LAST


# Sets.


def test_ranges_that_touch_are_one() -> None:
    assert SequenceSet.of((5, 9), (1, 1), (2, 3)).ranges == [(1, 3), (5, 9)]
    assert SequenceSet.of((1, 3), (5, 9), (4, 4)).ranges == [(1, 9)]


def test_a_set_is_in_order_across_the_wrap() -> None:
    wrapped = SequenceSet.of((3, 4), (LAST - 1, 0), (LAST - 9, LAST - 8))
    assert wrapped.ranges == [(LAST - 9, LAST - 8), (LAST - 1, 0), (3, 4)]
    assert list(wrapped) == [LAST - 9, LAST - 8, LAST - 1, LAST, 0, 3, 4]
    assert wrapped.count == 7
    assert (wrapped.first, wrapped.last) == (LAST - 9, 4)


def test_a_set_of_one_range_is_as_any_other() -> None:
    for lower, upper in ((3, 3), (3, 9), (LAST - 1, 4), (7, 6 + HALF)):
        one = SequenceSet.of_range(lower, upper)
        assert one == SequenceSet.of((lower, upper))
        assert (one.first, one.last) == (lower, upper)


def test_ids_in_order_stay_one_range_across_the_wrap() -> None:
    grown = SequenceSet()
    for number in range(LAST - 50, LAST + 50):
        grown.add(number & MASK)
    assert grown.ranges == [(LAST - 50, 48)]


def test_x089_a_set_names_one_id_or_ranges() -> None:
    """X089: the final has (lower, upper), both inclusive."""
    assert list(SequenceSet.of((7, 7))) == [7]
    assert list(SequenceSet.of((7, 9), (11, 11))) == [7, 8, 9, 11]


@pytest.mark.parametrize("range_", [(1, 0), (5, 4), (0, LAST), (0, HALF), (LAST, LAST - 1)])
def test_an_inverted_range_is_refused(range_: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="inverted"):
        SequenceSet.of(range_)
    with pytest.raises(ValueError, match="inverted"):
        SequenceSet.of_range(*range_)


def test_a_set_reaches_less_than_half_way_round_and_a_refusal_changes_nothing() -> None:
    reaching = SequenceSet.of((10, 20))
    reaching.add(9 + HALF)
    for refused in (10 + HALF, 9 + HALF + 1):
        with pytest.raises(ValueError, match="too far"):
            reaching.add(refused)
    with pytest.raises(ValueError, match="too far"):
        reaching.update(SequenceSet.of(*((n, n) for n in range(10 + HALF, 60 + HALF, 2))))
    assert reaching.ranges == [(10, 20), (9 + HALF, 9 + HALF)]


def test_adding_at_the_end_does_not_reach_too_far_either() -> None:
    reaching = SequenceSet.of((0, HALF - 1))
    with pytest.raises(ValueError, match="too far"):
        reaching.add(HALF)
    assert reaching.ranges == [(0, HALF - 1)]


def test_no_ids_are_a_false_set() -> None:
    empty = SequenceSet()
    assert not empty
    assert 0 not in empty
    assert empty.count == empty.range_count == 0
    assert empty.within(0, 5) == empty.without(SequenceSet.of((1, 2))) == SequenceSet()
    empty.discard_until(7)
    assert empty.ranges == []


def test_a_set_equals_no_other_thing_and_has_no_hash() -> None:
    assert SequenceSet.of((1, 2)) != [(1, 2)]
    assert repr(SequenceSet.of((1, 2), (4, 4))) == "SequenceSet.of((1, 2), (4, 4))"
    with pytest.raises(TypeError):
        hash(SequenceSet())


def test_a_copy_is_independent() -> None:
    one = SequenceSet.of((1, 2))
    other = one.copy()
    other.add(3)
    assert one.ranges == [(1, 2)]


def test_two_billion_ids_cost_what_one_range_costs() -> None:
    """A peer says it in 8 octets."""
    vast = decoded(bytes.fromhex("0008000000007fffffff"))
    before = thread_time()
    assert vast.count == HALF
    assert list(vast.within(HALF - 2, HALF + 5)) == [HALF - 2, HALF - 1]
    assert vast.without(SequenceSet.of((5, HALF - 2))).ranges == [(0, 4), (HALF - 1, HALF - 1)]
    assert HALF - 1 in vast
    assert thread_time() - before < 1.0


class SetMachine(RuleBasedStateMachine):
    """Against a plain set of numbers, of which 0 stands for an id close to the wrap."""

    numbers = st.integers(-60, 60)
    lengths = st.integers(0, 12)

    @initialize(origin=st.one_of(st.integers(MASK - 60, MASK), st.integers(0, MASK)))
    def begin(self, origin: int) -> None:
        self.origin = origin
        self.set = SequenceSet()
        self.model: set[int] = set()

    def id(self, number: int) -> int:
        return (self.origin + number) & MASK

    def ids(self, numbers: set[int]) -> SequenceSet:
        return SequenceSet.of(*((self.id(number), self.id(number)) for number in numbers))

    @rule(number=numbers)
    def add(self, number: int) -> None:
        self.set.add(self.id(number))
        self.model.add(number)

    @rule(low=numbers, length=lengths)
    def add_range(self, low: int, length: int) -> None:
        self.set.add_range(self.id(low), self.id(low + length))
        self.model.update(range(low, low + length + 1))

    @rule(number=numbers)
    def discard_until(self, number: int) -> None:
        self.set.discard_until(self.id(number))
        self.model = {one for one in self.model if one >= number}

    @rule(other=st.sets(numbers, max_size=40))
    def update(self, other: set[int]) -> None:
        self.set.update(self.ids(other))
        self.model |= other

    @rule(other=st.sets(numbers, max_size=40))
    def without(self, other: set[int]) -> None:
        self.set = self.set.without(self.ids(other))
        self.model -= other

    @rule(low=numbers, length=lengths)
    def within(self, low: int, length: int) -> None:
        wanted = self.model & set(range(low, low + length + 1))
        assert self.numbers_of(self.set.within(self.id(low), self.id(low + length))) == sorted(wanted)

    @rule()
    def encode(self) -> None:
        assert decoded(self.set.encode()) == self.set

    @precondition(lambda self: self.set)
    @rule()
    def ends(self) -> None:
        assert self.set.first == self.id(min(self.model))
        assert self.set.last == self.id(max(self.model))
        assert self.set.first_range == self.set.ranges[0]
        assert self.set.beginning(1).ranges == self.set.ranges[:1]

    def numbers_of(self, found: SequenceSet) -> list[int]:
        return [distance(self.origin, id) for id in found]

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "set"):
            return
        assert self.numbers_of(self.set) == sorted(self.model)
        assert self.set.count == len(self.model)
        gaps = [number for number in self.model if number + 1 not in self.model]
        assert self.set.range_count == len(gaps)
        assert all((self.id(number) in self.set) is (number in self.model) for number in range(-75, 75))


TestSetMachine = SetMachine.TestCase


# Octets.


def test_the_octets_are_those_of_the_golden_vector() -> None:
    octets = bytes.fromhex("001000000001000000010000000500000009")
    assert SequenceSet.of((1, 1), (5, 9)).encode() == octets
    assert decoded(octets) == SequenceSet.of((1, 1), (5, 9))
    assert SequenceSet().encode() == b"\0\0"
    assert not decoded(b"\0\0")


def test_touching_ranges_are_read_as_one() -> None:
    assert decoded(bytes.fromhex("001000000001000000020000000300000004")).ranges == [(1, 4)]
    assert decoded(bytes.fromhex("0010fffffffeffffffff0000000000000004")).ranges == [(LAST - 1, 4)]


@pytest.mark.parametrize(
    ("why", "octets"),
    [
        ("no size", "00"),
        ("not whole ranges", "000400000001"),
        ("cut off", "0008000000000000"),
        ("longer than what holds it", "00100000000100000001"),
        ("inverted", "00080000000200000001"),
        ("inverted by more than half way round", "000800000000ffffffff"),
        ("2^31 and one ids", "00080000000080000000"),
        ("overlapping", "001000000001000000050000000500000009"),
        ("the same twice", "001000000001000000010000000100000001"),
        ("descending", "001000000005000000050000000100000001"),
        ("once round", "001800000000000000017000000070000001e0000000e0000001"),
        ("further than half way round", "00100000000000000001800000007fffffff"),
    ],
)
def test_a_set_that_cannot_be_is_malformed(why: str, octets: str) -> None:
    data = bytes.fromhex(octets)
    with pytest.raises(MalformedError):
        sequence_set_at(data, 0, len(data))


@given(ids, st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), max_size=20))
def test_what_is_written_is_read(start: int, steps: list[tuple[int, int]]) -> None:
    written = SequenceSet()
    at = start
    for gap, length in steps:
        lower = at + gap
        at = lower + length
        written.add_range(lower & MASK, at & MASK)
    assert decoded(written.encode()) == written


@given(st.binary(max_size=60))
def test_any_octets_are_a_set_or_malformed(octets: bytes) -> None:
    try:
        found, at = sequence_set_at(octets, 0, len(octets))
    except MalformedError:
        return
    assert at <= len(octets)
    assert decoded(found.encode()) == found


def test_a_set_has_no_more_ranges_than_its_size_can_say() -> None:
    many = SequenceSet.of(*((number, number) for number in range(0, 2 * RANGES_MAX + 2, 2)))
    assert many.range_count == RANGES_MAX + 1
    with pytest.raises(ValueError, match="ranges"):
        many.encode()
    assert decoded(many.beginning(RANGES_MAX).encode()).range_count == RANGES_MAX


@given(
    st.sets(st.integers(0, 200)), st.sets(st.integers(0, 200), min_size=9), st.sampled_from([0, LAST - 90])
)
def test_many_ranges_are_merged_as_one_by_one(some: set[int], others: set[int], origin: int) -> None:
    """Numbers that are even leave gaps between them."""
    merged = SequenceSet.of(*(((origin + n) & MASK, (origin + n) & MASK) for n in some))
    merged.update(SequenceSet.of(*(((origin + 2 * n) & MASK, (origin + 2 * n) & MASK) for n in others)))
    assert [distance(origin, id) for id in merged] == sorted(some | {2 * n for n in others})

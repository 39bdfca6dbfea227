"""What was sent, by command id: sets of ids take out of it what is there, around the wrap, and without walking far."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp010.broker.subscription import consecutive
from leveret.protocols.amqp010.broker.unsettled import Browsed, Sent
from leveret.protocols.amqp010.codec.sequences import SequenceSet, following
from tests.harness.bench import CoreBench

from .client import ids

MASK = 0xFFFF_FFFF
WRAP = MASK - 20


def sent(first: int, count: int) -> tuple[Sent[int], int]:
    """`count` transfers from this id on, each with its place, and the last id."""
    here: Sent[int] = Sent()
    for place in range(count):
        here.add((first + place) & MASK, place)
    return here, (first + count - 1) & MASK


@given(
    st.sampled_from([0, 7, WRAP, MASK, 1 << 31]),
    st.integers(1, 60),
    st.lists(st.tuples(st.integers(0, 70), st.integers(0, 70)), max_size=8),
)
def test_each_is_taken_once_by_the_first_set_that_names_it(
    first: int, count: int, asked: list[tuple[int, int]]
) -> None:
    here, last = sent(first, count)
    left = set(range(count))
    for a, b in asked:
        low, high = sorted((a, b))
        named = SequenceSet.of(((first + low) & MASK, (first + high) & MASK))
        taken = here.take(named, last)
        expected = {place for place in left if low <= place <= high}
        assert set(taken.values()) == expected
        assert all(id == (first + place) & MASK for id, place in taken.items())
        left -= expected
    assert set(here.table.values()) == left


def test_those_of_one_read_are_the_same_as_one_by_one() -> None:
    alone, last = sent(WRAP, 40)
    here: Sent[int] = Sent()
    here.add_all(WRAP, range(15))
    here.add_all(WRAP + 15, range(15, 40))
    assert here.table.items() == alone.table.items()
    assert here.take(ids((WRAP, last)), last) == alone.take(ids((WRAP, last)), last)
    assert not here.table


def test_what_was_put_back_can_be_taken_again() -> None:
    here, last = sent(WRAP, 40)
    taken = here.take(ids((WRAP, following(MASK) + 5)), last)
    here.put_back(taken)
    assert here.take(ids((WRAP, following(MASK) + 5)), last) == taken


def test_what_was_put_back_behind_newer_ones_hides_none_of_them() -> None:
    """As after a rollback, when messages have been sent meanwhile and more follow."""
    here, _ = sent(0, 2)
    here.put_back(here.take(ids((0, 0)), 1))
    here.add(2, 2)
    assert here.held(ids((0, 2)), 2) == {0: 0, 1: 1, 2: 2}
    assert here.take(ids((0, 2)), 2) == {0: 0, 1: 1, 2: 2}
    assert not here.table


def test_nothing_is_taken_of_what_was_never_sent() -> None:
    here, last = sent(100, 10)
    assert here.take(ids((0, 99), (110, 1 << 30)), last) == {}
    assert len(here.table) == 10


def test_a_long_backlog_is_taken_in_small_steps_from_its_front_or_from_its_back() -> None:
    """Were each step to walk over what is left, or what has gone, this would take minutes."""
    count = 60_000
    started = time.process_time()
    for steps in (range(count), range(count - 1, -1, -1)):
        here, last = sent(WRAP, count)
        for place in steps:
            id = (WRAP + place) & MASK
            assert len(here.take(ids((id, id)), last)) == 1
    here, last = sent(WRAP, count)
    for place in range(0, count, 10):
        assert len(here.take(SequenceSet.of((WRAP, (WRAP + place + 9) & MASK)), last)) == 10
    assert time.process_time() - started < 10


def test_one_that_is_never_settled_does_not_make_the_others_dear() -> None:
    """The peer names everything he ever got again and again, but for the first."""
    here: Sent[int] = Sent()
    here.add(0, 0)
    started = time.process_time()
    for last in range(10, 100_000, 10):
        here.add_all(last - 9, range(last - 9, last + 1))
        assert len(here.take(ids((1, last)), last)) == 10
    assert list(here.table) == [0]
    assert time.process_time() - started < 10


def test_ids_go_on_behind_the_wrap() -> None:
    assert [*consecutive(MASK - 1, 2)] == [MASK - 1, MASK]
    assert [*consecutive(MASK - 1, 4)] == [MASK - 1, MASK, 0, 1]


def test_the_last_messages_that_were_shown_are_known_and_no_end_of_them() -> None:
    shown, queue = Browsed(size_max=10), CoreBench().queue()
    for id in range(100):
        shown.add(id, queue, id, False)
    found = shown.take(ids((0, 99)))
    assert set(range(90, 100)) <= set(found)
    assert len(found) <= 20
    assert shown.take(ids((0, 99))) == {}

"""The table of what a peer has to answer is like a dict whose numbers ascend, and forgets what has been answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.shared.machine.numbered_table import COST, GAP_MAX, SPARSE, TRIMMED, NumberedTable

MASK = 0xFFFF_FFFF


def filled(*numbers: int) -> NumberedTable[int]:
    """A table where each entry is its own number."""
    table: NumberedTable[int] = NumberedTable()
    for number in numbers:
        table.add(number, number)
    return table


def places(table: NumberedTable[int]) -> int:
    return len(table.listed) + len(table.stragglers)


def holds(table: NumberedTable[int], expected: dict[int, int]) -> None:
    assert list(table.items()) == list(expected.items())
    assert list(table) == table.numbers() == list(expected)
    assert list(table.values()) == list(expected.values())
    assert list(reversed(table.values())) == [*reversed(expected.values())]
    assert len(table) == len(table.values()) == len(expected)
    assert bool(table) == bool(expected)


STEPS = st.one_of(
    st.tuples(st.just("add"), st.integers(1, 3 * GAP_MAX)),  # this many numbers after the last
    st.tuples(st.just("run"), st.integers(0, 40)),
    st.tuples(st.just("first"), st.integers(0, 50)),
    st.tuples(st.just("last"), st.integers(0, 50)),
    st.tuples(st.just("any"), st.integers(0, 200)),
    st.tuples(st.just("up to"), st.integers(0, 200)),
    st.tuples(st.just("set aside"), st.just(0)),
)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 9)), max_size=60))
def test_numbers_may_come_in_any_order(steps: list[tuple[bool, int]]) -> None:
    """Entries that were taken come again behind newer ones, and packet identifiers are used again after the last."""
    table: NumberedTable[int] = NumberedTable()
    model: dict[int, int] = {}
    for takes, number in steps:
        if takes or number in model:
            assert table.pop(number) == model.pop(number, None)
        else:
            table.add(number, number)
            model[number] = number
        holds(table, model)
        for each in range(10):
            assert table.get(each) == model.get(each)
            assert table.has_all(each, each + 2) == all(
                other in model for other in (each, each + 1, each + 2)
            )


@given(st.integers(0, 100), st.lists(STEPS, max_size=40))
def test_the_table_is_like_a_dict_whatever_is_added_and_taken(
    begin: int, steps: list[tuple[str, int]]
) -> None:
    table: NumberedTable[int] = NumberedTable()
    model: dict[int, int] = {}
    last = begin
    for step, size in steps:
        numbers = list(model)
        if step == "add":
            last += size
            table.add(last, last)
            model[last] = last
        elif step == "run":
            table.add_all(last + 1, list(range(last + 1, last + 1 + size)))
            model |= {each: each for each in range(last + 1, last + 1 + size)}
            last += size
        elif step == "set aside":  # a number far ahead
            last += 1000
            table.add(last, last)
            model[last] = last
        elif step == "up to":
            up_to = begin + size
            assert table.up_to(up_to) == [each for each in numbers if each <= up_to]
            assert table.take([each for each in numbers if each <= up_to]) == [
                each for each in numbers if each <= up_to
            ]
            model = {each: each for each in numbers if each > up_to}
        elif step == "any":
            number = begin + size
            assert table.get(number) == model.get(number)
            assert (number in table) == (number in model)
            assert table.pop(number) == model.pop(number, None)
        else:
            wanted = numbers[:size] if step == "first" else numbers[::-1][:size]
            assert table.take(wanted) == wanted
            model = {each: each for each in numbers if each not in wanted}
        holds(table, model)
        low, high = begin, begin + 60
        assert table.has_all(low, high) == all(each in model for each in range(low, high + 1))


def test_entries_are_taken_up_to_the_first_number_that_has_none() -> None:
    table = filled(1, 2, 3, 5)
    assert table.take([1, 2, 4, 5]) == [1, 2]
    assert table.take([3, 3, 5]) == [3]
    assert list(table) == [5]


@pytest.mark.parametrize("number", [-1, 0, 2**31, 2**63 - 1, 2**64 - 1])
def test_a_number_that_no_entry_can_have_is_not_there(number: int) -> None:
    table = filled(1, 2)
    assert (table.get(number), table.pop(number), number in table) == (None, None, False)


def test_entries_that_were_taken_come_back_in_the_order_of_their_numbers() -> None:
    table = filled(*range(1, 10))
    taken = {each: each for each in table.take([2, 5, 9])}
    table.add(10, 10)
    table.put_back(taken)
    holds(table, {each: each for each in range(1, 11)})
    assert table.up_to(5) == [1, 2, 3, 4, 5]
    table.put_back({})
    holds(table, {each: each for each in range(1, 11)})


def test_serial_numbers_go_on_from_zero() -> None:
    table = filled(MASK - 1, MASK)
    table.add_all(0, [0, 1])
    holds(table, {MASK - 1: MASK - 1, MASK: MASK, 0: 0, 1: 1})
    assert not table.has_all(MASK, 1)
    assert table.has_all(0, 1)
    assert table.has_all(MASK - 1, MASK)
    assert table.take([MASK, 0]) == [MASK, 0]


@given(st.integers(GAP_MAX, 60), st.lists(st.tuples(st.integers(0, 30), st.integers(0, 60)), max_size=60))
def test_numbers_that_come_round_jump_over_those_that_are_still_there(
    most: int, steps: list[tuple[int, int]]
) -> None:
    """As packet identifiers do: a new one is the next that is free, and they are acknowledged in any order."""
    table: NumberedTable[int] = NumberedTable()
    model: dict[int, int] = {}
    last = 0
    for count, answered in steps:
        for _ in range(min(count, most - len(model))):
            last = last % most + 1
            while last in model:
                assert last in table
                last = last % most + 1
            assert last not in table
            table.add(last, last)
            model[last] = last
        holds(table, model)
        numbers = sorted(model, key=lambda each: each * 31 % 61)[:answered]
        half = len(numbers) // 2
        for number in numbers[:half]:
            assert (table.pop(number), table.pop(number)) == (model.pop(number), None)
        assert table.take(numbers[half:]) == numbers[half:]
        model = {each: each for each in model if each not in numbers}
        holds(table, model)
        for low in range(0, most, 7):
            assert table.has_all(low, low + 3) == all(each in model for each in range(low, low + 4))


@pytest.mark.parametrize("count", [1, 100, TRIMMED - 1])
def test_an_empty_table_has_no_places(count: int) -> None:
    table = filled(*range(count))
    for number in range(count):
        table.pop(number)
    assert places(table) == 0


def test_what_is_answered_in_order_leaves_no_places() -> None:
    table: NumberedTable[int] = NumberedTable()
    for number in range(100_000):
        table.add(number, number)
        if number >= 10:
            assert table.pop(number - 10) == number - 10
        assert places(table) <= 2 * TRIMMED + 20


@pytest.mark.parametrize("every", [1, 10, 100, 10_000])
def test_entries_that_stay_do_not_keep_the_places_of_others(every: int) -> None:
    """Of a client, say, that leaves some messages unanswered for good."""
    table: NumberedTable[int] = NumberedTable()
    for number in range(50_000):
        table.add(number, number)
        if number % every or every == 1:
            assert table.pop(number) == number
    assert places(table) <= (COST + 1) * len(table) + SPARSE + 2 * TRIMMED
    assert list(table) == ([] if every == 1 else list(range(0, 50_000, every)))


def test_the_newest_entries_are_walked_over_without_the_others() -> None:
    walk = iter(reversed(filled(*range(100_000)).values()))
    assert [next(walk) for _ in range(3)] == [99_999, 99_998, 99_997]


def test_the_table_is_empty_after_it_was_cleared() -> None:
    table = filled(1, 2, 3000)
    table.clear()
    holds(table, {})
    table.add(1, 1)
    holds(table, {1: 1})

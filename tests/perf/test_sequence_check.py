from __future__ import annotations

from array import array

from leveret.perf.sequence_check import Account, SequenceCheck


def seen(*numbers: int, publisher: int = 0) -> SequenceCheck:
    made = SequenceCheck()
    for number in numbers:
        made.add(publisher, number)
    return made


def account(*parts: SequenceCheck) -> Account:
    made = Account()
    for each in parts:
        made.add(each.packed())
    return made


def test_all_there_and_in_order():
    found = account(seen(0, 1, 2, 3))
    assert (found.lost({0: 4}), found.doubled, found.reordered) == (0, 0, 0)


def test_one_that_never_came_is_lost():
    assert account(seen(0, 1, 3)).lost({0: 5}) == 2


def test_a_publisher_of_whom_nothing_came():
    assert account(seen(0)).lost({0: 1, 1: 7}) == 7


def test_one_that_comes_again_is_doubled_and_not_out_of_order():
    found = account(seen(0, 1, 1, 0))
    assert (found.doubled, found.reordered, found.lost({0: 2})) == (2, 0, 0)


def test_one_behind_a_later_one_is_out_of_order():
    assert account(seen(0, 2, 1, 3)).reordered == 1


def test_what_two_consumers_share_is_put_together():
    found = account(seen(0, 2, 4), seen(1, 3, 4))
    assert (found.lost({0: 6}), found.doubled, found.reordered) == (1, 1, 0)


def test_a_run_is_as_one_by_one():
    for numbers in ([0, 1, 2], [5, 6, 7], [0, 2, 1], [1, 1], [0, 1, 3]):
        run = SequenceCheck()
        for _ in range(2):
            run.add_run(array("I", [9] * len(numbers)), array("Q", numbers))
        assert run.packed()[1:] == seen(*numbers, *numbers, publisher=9).packed()[1:]
        assert account(run).lost({9: 9}) == 9 - len(set(numbers))

"""The execution layer of the draft: its operations and their laws, with ids on both sides of the wrap.

X092: the draft differs from the final, so what it says is tested on the machine, and the final on the wire.
"""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec.sequences import HALF, MASK, Id
from leveret.protocols.amqp010.machine.execution import (
    KNOWN_RANGES_MAX,
    REACH,
    Execution,
    Sending,
    SequenceError,
)

from .session_ends import cem, correlated, ids, received, sent

LAST = MASK
STARTS = [0, 1, LAST - 2, LAST, HALF - 2, HALF]


# C(n) and the mark.


@pytest.mark.parametrize("start", STARTS)
def test_s233_commands_are_numbered_without_a_word_and_around_the_wrap(start: Id) -> None:
    assert [Execution().receive(), Sending().send()] == [0, 0]
    execution = Execution(start)
    sending = Sending(start)
    for number in range(6):
        assert execution.receive() == sending.send() == (start + number) & MASK


@pytest.mark.parametrize("start", STARTS)
def test_s234_the_mark_is_the_last_before_which_all_are_complete(start: Id) -> None:
    execution = received(5, start)
    assert execution.mark is None
    execution.complete((start + 1) & MASK)
    assert execution.mark is None
    execution.complete(start)
    assert execution.mark == (start + 1) & MASK
    execution.complete((start + 4) & MASK)
    assert execution.mark == (start + 1) & MASK
    execution.complete_through((start + 3) & MASK)
    assert execution.mark == (start + 4) & MASK


def test_s234_nothing_can_be_complete_that_has_not_come() -> None:
    execution = received(2)
    for attempt in (execution.complete, execution.complete_through):
        for id in (2, 7):
            with pytest.raises(ValueError, match="has not come"):
                attempt(id)
    with pytest.raises(ValueError, match="has not come"):
        Execution().complete(0)
    assert execution.mark is None


@pytest.mark.parametrize("start", STARTS)
def test_s235_marks_never_go_back(start: Id) -> None:
    execution = received(6, start)
    execution.complete_through((start + 3) & MASK)
    for number in (0, 2, 3):
        execution.complete_through((start + number) & MASK)
        execution.complete((start + number) & MASK)
    assert execution.mark == (start + 3) & MASK
    assert not execution.rem


@pytest.mark.parametrize("start", STARTS)
def test_s235_a_cumulative_mark_completes_all_before_it(start: Id) -> None:
    """And an earlier one after a later one nothing."""
    sending = sent(6, start)
    ended, _ = cem(sending, (start + 3) & MASK)
    assert list(ended) == [(start + number) & MASK for number in range(4)]
    assert not cem(sending, (start + 1) & MASK)[0]
    assert sending.first_incomplete == (start + 4) & MASK


def test_x090_single_commands_may_be_confirmed_early_and_the_mark_still_moves_in_order() -> None:
    execution = received(5)
    execution.complete(3)
    execution.complete(1)
    assert (execution.mark, execution.rem) == (None, ids((1, 1), (3, 3)))
    sending = sent(5)
    assert sending.rem(execution.rem)[0] == ids((1, 1), (3, 3))
    assert sending.first_incomplete == 0
    execution.complete(0)
    assert (execution.mark, execution.rem) == (1, ids((3, 3)))
    assert cem(sending, 1)[0] == ids((0, 0))
    assert sending.first_incomplete == 2
    assert cem(sending, 4)[0] == ids((2, 2), (4, 4))


def test_a_mark_for_what_was_never_sent_is_refused() -> None:
    sending = sent(3)
    for mark in (3, HALF - 1):
        with pytest.raises(SequenceError):
            cem(sending, mark)
    for named in (ids((3, 3)), ids((0, 3)), ids((0, HALF - 1))):
        with pytest.raises(SequenceError):
            sending.rem(named)
    assert sending.first_incomplete == 0
    with pytest.raises(SequenceError):
        Sending().rem(ids((0, 0)))


# DUP.


def test_s236_no_mark_passes_what_ended_abnormally_until_that_is_told() -> None:
    execution = received(4)
    execution.complete(0)
    execution.abnormal(1)
    for attempt in (execution.complete, execution.complete_through):
        with pytest.raises(ValueError, match="owe"):
            attempt(1)
    with pytest.raises(ValueError, match="owe"):
        execution.complete_through(3)
    execution.complete(2)
    assert (execution.mark, execution.rem) == (0, ids((2, 2)))
    execution.dup(ids((1, 1)))
    assert execution.mark == 0
    execution.complete(1)
    assert execution.mark == 2


def test_s236_a_barrier_does_not_pass_what_ended_abnormally_either() -> None:
    execution = received(2)
    execution.abnormal(0)
    execution.barrier(1)
    assert execution.mark is None
    execution.dup(ids((0, 0)))
    execution.complete(0)
    assert execution.mark == 1


def test_s237_what_the_mark_reaches_unsaid_has_ended_normally() -> None:
    sending = sent(5)
    sending.dup(ids((1, 1), (3, 3)))
    ended, normally = cem(sending, 2)
    assert (ended, normally) == (ids((0, 2)), ids((0, 0), (2, 2)))
    ended, normally = cem(sending, 4)
    assert (ended, normally) == (ids((3, 4)), ids((4, 4)))


def test_s240_a_disposition_of_what_is_complete_is_refused_on_both_sides() -> None:
    execution = received(5)
    execution.complete_through(1)
    execution.complete(3)
    sending = sent(5)
    sending.rem(execution.completed)
    for complete in (ids((0, 0)), ids((1, 2)), ids((3, 3)), ids((2, 4))):
        with pytest.raises(ValueError, match="complete"):
            execution.dup(complete)
        with pytest.raises(SequenceError):
            sending.dup(complete)
    execution.dup(ids((2, 2), (4, 4)))
    sending.dup(ids((2, 2), (4, 4)))
    with pytest.raises(ValueError, match="not come"):
        execution.dup(ids((4, 5)))
    with pytest.raises(SequenceError):
        sending.dup(ids((5, 5)))


def test_s240_a_disposition_of_nothing_is_nothing() -> None:
    execution, sending = received(1), sent(1)
    execution.complete(0)
    execution.dup(ids())
    sending.dup(ids())
    assert execution.mark == 0


def test_s240_what_is_complete_cannot_end_abnormally_any_more() -> None:
    execution = received(1)
    execution.complete(0)
    with pytest.raises(ValueError, match="complete"):
        execution.abnormal(0)


def test_x089_a_correlation_names_one_command_or_ranges() -> None:
    assert correlated(7) == ids((7, 7))
    assert correlated((7, 2), 12, (20, 0)) == ids((7, 9), (12, 12), (20, 20))
    assert correlated((LAST, 1)) == ids((LAST, 0))
    execution = received(10)
    execution.dup(correlated((7, 2), 2))
    with pytest.raises(ValueError, match="not come"):
        execution.dup(correlated((7, 3)))


# sync and flush.


def test_s238_sync_asks_for_the_mark_when_that_command_completes() -> None:
    """Whatever else is incomplete; without it, the mark waits until nothing is, or there is much to tell."""
    execution = received(3)
    execution.sync(1)
    assert not execution.due(every=100)
    execution.complete(1)
    assert execution.due(every=100)
    execution.told()
    assert not execution.due(every=100)


def test_s238_a_sync_is_answered_once_all_it_covers_is_complete() -> None:
    execution = received(3)
    execution.sync(1)
    execution.complete(0)
    assert execution.due(every=100)
    execution.told()
    execution.complete(1)
    assert execution.due(every=100)
    execution.told()
    execution.receive()
    execution.complete(2)
    assert not execution.due(every=100)


def test_s238_the_sync_of_a_command_that_is_complete_is_due_at_once() -> None:
    """A peer that sends a command again wants to hear again."""
    execution = received(3)
    execution.complete_through(1)
    execution.told()
    execution.sync(0)
    assert execution.due(every=100)
    execution.told()
    assert not execution.due(every=100)
    execution.complete(2)
    execution.told()
    execution.sync(2)
    assert execution.due(every=100)


def test_without_sync_the_mark_is_due_when_nothing_is_incomplete_or_after_so_many() -> None:
    execution = received(5)
    assert not execution.due(every=3)
    execution.complete_through(1)
    assert not execution.due(every=3)
    execution.complete(3)
    assert execution.due(every=3)
    execution.told()
    execution.complete_through(3)
    assert not execution.due(every=3)
    execution.complete(4)
    assert execution.due(every=3)


def test_s239_flush_shows_the_mark_as_it_is() -> None:
    execution = received(4)
    assert execution.completed == ids()
    execution.complete_through(1)
    execution.complete(3)
    assert execution.completed == ids((0, 1), (3, 3))
    assert execution.completed == ids((0, 1), (3, 3))


def test_s241_the_two_directions_know_nothing_of_each_other() -> None:
    execution, sending = received(4), sent(2, LAST)
    execution.complete_through(2)
    assert (sending.next_id, sending.first_incomplete) == (1, LAST)
    cem(sending, 0)
    assert (execution.next_id, execution.mark, execution.completed) == (4, 2, ids((0, 2)))


# execution.sync of the final.


def test_a_barrier_is_complete_when_all_before_it_are() -> None:
    execution = received(4)
    execution.barrier(2)
    execution.complete(1)
    assert (execution.mark, execution.rem) == (None, ids((1, 1)))
    execution.complete(0)
    assert execution.mark == 2


def test_a_barrier_with_nothing_before_it_is_complete_at_once() -> None:
    execution = received(1)
    execution.barrier(0)
    assert execution.mark == 0


def test_barriers_and_what_is_complete_ahead_fall_one_after_the_other() -> None:
    execution = received(8)
    for barrier in (1, 2, 4, 6):
        execution.barrier(barrier)
    for ahead in (3, 7):
        execution.complete(ahead)
    execution.complete(0)
    assert execution.mark == 4
    execution.complete(5)
    assert execution.mark == 7
    assert execution.range_count == 0


# The unknown-completed set.


def test_everything_complete_is_told_until_the_peer_knows_it() -> None:
    execution = received(6)
    execution.complete_through(3)
    assert execution.completed == ids((0, 3))
    execution.known(ids((0, 1)))
    assert execution.completed == ids((2, 3))
    execution.known(ids((3, 3)))
    assert execution.completed == ids((2, 2))
    execution.complete(5)
    assert execution.completed == ids((2, 2), (5, 5))
    execution.known(ids((2, 2), (5, 5)))
    assert execution.completed == ids()
    execution.complete(4)
    assert execution.completed == ids((4, 4))


def test_what_is_not_complete_cannot_be_known() -> None:
    execution = received(4)
    execution.complete(2)
    execution.known(ids((0, 3)))
    assert execution.completed == ids()
    execution.complete_through(3)
    assert execution.completed == ids((0, 1), (3, 3))


def test_what_has_not_come_cannot_be_known() -> None:
    with pytest.raises(SequenceError):
        Execution().known(ids((0, 0)))
    with pytest.raises(SequenceError):
        received(3).known(ids((0, 3)))


def test_what_the_peer_knows_is_remembered_in_so_many_ranges() -> None:
    count = 2 * KNOWN_RANGES_MAX + 4
    execution = received(count)
    execution.complete_through(count - 1)
    execution.known(ids(*((number, number) for number in range(1, count, 2))))
    assert execution.completed == ids((0, count - 1))  # it is told again: harmless
    execution.known(ids((0, count - 1)))
    assert execution.completed == ids()


# The next command, gaps.


@pytest.mark.parametrize("start", STARTS)
def test_a_new_session_begins_where_the_peer_says(start: Id) -> None:
    execution = Execution()
    execution.expect(start)
    assert execution.receive() == start
    assert not Execution().begun
    assert execution.begun


@pytest.mark.parametrize("start", STARTS)
def test_commands_that_come_again_are_counted_and_passed_over(start: Id) -> None:
    execution = received(5, start)
    execution.expect((start + 3) & MASK)
    assert execution.receive() is None
    assert execution.repeated == (start + 3) & MASK
    assert execution.receive() is None
    assert execution.repeated == (start + 4) & MASK
    assert execution.receive() == (start + 5) & MASK


def test_a_new_point_forgets_the_repeats_of_the_last() -> None:
    execution = received(5)
    execution.expect(1)
    execution.receive()
    execution.expect(5)
    assert execution.receive() == 5


@pytest.mark.parametrize("point", [6, 5 + HALF - 1, 5 + HALF, (5 - REACH - 1) & MASK])
def test_the_next_command_cannot_leave_out_any_nor_lie_far_away(point: Id) -> None:
    execution = received(5)
    with pytest.raises(SequenceError):
        execution.expect(point)
    assert execution.receive() == 5


def test_a_gap_counts_as_complete_and_moves_the_count() -> None:
    execution = received(2)
    execution.gap(ids((2, 4)))
    assert execution.rem == ids((2, 4))
    assert execution.receive() == 5
    execution.complete_through(1)
    assert execution.mark == 4


def test_a_gap_ahead_waits_for_its_turn() -> None:
    execution = received(1)
    execution.gap(ids((2, 3), (5, 5)))
    assert execution.mark is None
    assert [execution.receive() for _ in range(3)] == [1, 4, 6]
    execution.complete_through(1)
    assert execution.mark == 3


def test_a_gap_does_not_touch_what_has_come() -> None:
    execution = received(3)
    execution.gap(ids((0, 1)))
    assert execution.completed == ids()
    execution.gap(ids((1, 3)))
    assert execution.completed == ids((3, 3))
    execution.gap(ids())
    assert execution.receive() == 4


def test_a_gap_may_be_the_first_that_is_said() -> None:
    execution = Execution()
    execution.gap(ids((0, 1)))
    assert execution.begun
    assert (execution.mark, execution.receive()) == (1, 2)


def test_a_gap_reaches_only_so_far() -> None:
    execution = received(1)
    with pytest.raises(SequenceError):
        execution.gap(ids((1, 1 + REACH + 1)))
    execution.gap(ids((1, 1 + REACH)))
    assert execution.receive() == REACH + 2


def test_a_new_point_of_a_new_session_forgets_gaps_before_it() -> None:
    execution = Execution()
    execution.gap(ids((5, 6)))
    execution.expect(5)
    assert [execution.receive(), execution.receive()] == [5, 6]


def test_a_gap_among_commands_that_come_again_interrupts_them() -> None:
    execution = received(6)
    assert not execution.interrupts(ids((3, 3)))
    execution.expect(2)
    execution.receive()
    assert execution.coming == 3
    assert not execution.interrupts(ids((2, 2), (6, 9)))
    assert execution.interrupts(ids((3, 3)))
    assert execution.interrupts(ids((5, 7)))


def test_what_was_ahead_of_a_gap_survives_a_replay() -> None:
    execution = received(2)
    execution.gap(ids((3, 3)))
    execution.expect(0)
    assert [execution.receive() for _ in range(4)] == [None, None, 2, 4]


# Going on for ever.


def test_what_no_peer_has_acknowledged_is_forgotten_in_time() -> None:
    """More than 2^31 commands, none of which the peer says it knows to be complete."""
    execution = received(1)
    execution.complete(0)
    for step in range(6):
        execution.gap(ids((execution.next_id, (execution.next_id + REACH - 10) & MASK)))
        if (execution.next_id - execution.floor) & MASK > REACH:
            execution.forget()
        assert execution.completed.last == (execution.next_id - 1) & MASK, step
        assert execution.completed.count <= REACH
        assert execution.mark == (execution.next_id - 1) & MASK
    assert execution.receive() == (1 + 6 * (REACH - 9)) & MASK


def test_a_command_that_stays_incomplete_ends_it_in_time() -> None:
    execution = received(1)
    execution.gap(ids((1, REACH)))
    with pytest.raises(SequenceError, match="too long"):
        execution.forget()


def test_what_the_peer_never_completes_is_forgotten_in_time() -> None:
    sending = sent(2)
    sending.dup(ids((0, 0)))
    sending.rem(ids((1, 1)))
    sending.next_id = REACH + 5
    sending.forget()
    assert sending.range_count == 0
    assert sending.rem(ids((REACH, REACH + 4)))[0] == ids((REACH, REACH + 4))

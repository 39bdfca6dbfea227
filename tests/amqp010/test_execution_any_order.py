"""The execution layer in any order of its operations, against plain sets of numbers. Ids begin close to their wrap."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leveret.protocols.amqp010.codec.sequences import HALF, MASK, Id, SequenceSet, distance
from leveret.protocols.amqp010.machine.execution import Execution, Sending, SequenceError

from .session_ends import cem, ids, received, sent

LAST = MASK
STARTS = [0, 1, LAST - 2, LAST, HALF - 2, HALF]


class ExecutionMachine(RuleBasedStateMachine):
    """Against plain sets of numbers, counted from a start that may lie before the wrap."""

    picks = st.integers(0, 40)

    @initialize(start=st.sampled_from([0, LAST, LAST - 3, LAST - 10, HALF - 4]))
    def begin(self, start: Id) -> None:
        self.start = start
        self.execution = Execution(start)
        self.sending = Sending(start)  # the peer's picture
        self.come = 0
        self.complete: set[int] = set()
        self.barriers: set[int] = set()
        self.owed: set[int] = set()
        self.known: set[int] = set()
        self.ended: list[Id] = []
        self.mark = -1

    def id(self, number: int) -> Id:
        return (self.start + number) & MASK

    def settle(self) -> None:
        """What follows from what is complete: barriers."""
        while self.first() in self.barriers:
            self.complete.add(self.first())

    def first(self) -> int:
        return next(number for number in range(self.come + 1) if number not in self.complete)

    def free(self, pick: int) -> int | None:
        """A command that can be completed."""
        numbers = [number for number in range(self.come) if number not in self.owed | self.barriers]
        return numbers[pick % len(numbers)] if numbers else None

    @rule()
    def receive(self) -> None:
        assert self.execution.receive() == self.sending.send() == self.id(self.come)
        self.come += 1

    @rule()
    def receive_barrier(self) -> None:
        self.receive()
        self.execution.barrier(self.id(self.come - 1))
        self.barriers.add(self.come - 1)
        self.settle()

    @rule(pick=picks)
    def complete_one(self, pick: int) -> None:
        number = self.free(pick)
        if number is not None:
            self.execution.complete(self.id(number))
            self.complete.add(number)
            self.settle()

    @rule(pick=picks)
    def complete_through(self, pick: int) -> None:
        number = self.free(pick)
        if number is not None and not self.owed & set(range(number + 1)):
            self.execution.complete_through(self.id(number))
            self.complete.update(range(number + 1))
            self.settle()

    @rule(pick=picks)
    def end_abnormally(self, pick: int) -> None:
        number = self.free(pick)
        if number is not None and number not in self.complete:
            self.execution.abnormal(self.id(number))
            self.owed.add(number)

    @rule(pick=picks)
    def dup(self, pick: int) -> None:
        number = pick % (self.come + 1)
        one = ids((self.id(number), self.id(number)))
        if number in self.complete or number == self.come:
            with pytest.raises(ValueError, match="some"):
                self.execution.dup(one)
        else:
            self.execution.dup(one)
            self.owed.discard(number)
            self.sending.dup(one)

    @rule(pick=picks)
    def know(self, pick: int) -> None:
        told = self.execution.completed
        part = told.beginning(pick % (told.range_count + 1))
        self.execution.known(part)
        self.known.update(distance(self.start, id) for id in part)

    @rule()
    def flush(self) -> None:
        """The final: one set. Each id ends once."""
        ended, _ = self.sending.rem(self.execution.completed)
        self.ended.extend(ended)

    @rule()
    def tell_as_the_draft_does(self) -> None:
        """CEM and REM say the same as the set of the final, whatever the peer knows."""
        for told in (self.execution.rem, None):
            if told is not None:
                ended, _ = self.sending.rem(told)
            elif self.execution.mark is not None:
                ended, _ = cem(self.sending, self.execution.mark)
            else:
                continue
            self.ended.extend(ended)

    @precondition(lambda self: self.come > 0)
    @rule(pick=picks)
    def replay(self, pick: int) -> None:
        again = pick % (self.come + 1)
        self.execution.expect(self.id(self.come - again))
        for number in range(again):
            assert self.execution.receive() is None
            assert self.execution.repeated == self.id(self.come - again + number)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "execution"):
            return
        first = self.first()
        assert self.execution.first_incomplete == self.id(first)
        assert self.execution.mark == (self.id(first - 1) if first else None)
        assert first - 1 >= self.mark
        self.mark = first - 1
        completed = [distance(self.start, id) for id in self.execution.completed]
        assert completed == sorted(self.complete - self.known)
        assert len(set(self.ended)) == len(self.ended)
        assert {distance(self.start, id) for id in self.ended} <= self.complete
        assert not self.owed & self.complete


TestExecutionMachine = ExecutionMachine.TestCase


@given(st.sampled_from(STARTS), st.lists(st.integers(0, 30), max_size=40))
def test_the_set_of_the_final_says_what_cem_and_rem_say(start: Id, order: list[int]) -> None:
    execution = received(31, start)
    drafted, final = sent(31, start), sent(31, start)
    for number in order:
        execution.complete((start + number) & MASK)
        if execution.mark is not None:
            cem(drafted, execution.mark)
        drafted.rem(execution.rem)
        final.rem(execution.completed)
        assert drafted.first_incomplete == final.first_incomplete == execution.first_incomplete
        assert drafted.rem(SequenceSet())[0] == final.rem(execution.completed)[0] == ids()


@given(
    st.sampled_from(STARTS), st.integers(0, 20), st.lists(st.tuples(st.integers(-5, 22), st.integers(0, 25)))
)
def test_the_quick_path_for_one_range_agrees_with_that_for_many(
    start: Id, count: int, told: list[tuple[int, int]]
) -> None:
    """What has been named by a DUP takes the long way; a command that stays incomplete, far ahead, is named."""
    quick, long = sent(count + 1, start), sent(count + 1, start)
    last = (start + count) & MASK
    long.dup(ids((last, last)))
    for number, length in told:
        lower = (start + number) & MASK
        upper = (lower + length) & MASK
        answers = []
        for sending in (quick, long):
            try:
                answers.append(sending.rem(ids((lower, upper)))[0])
            except SequenceError:
                answers.append(ids())
        assert answers[0] == answers[1]
        assert quick.first_incomplete == long.first_incomplete

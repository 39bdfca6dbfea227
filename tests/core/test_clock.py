"""Deadlines in order, and cancellation."""

from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from leveret.clock import CountedClock, ManualClock, SystemClock, Timers


def test_timers_run_in_the_order_of_their_deadlines_and_equals_in_the_order_they_were_set() -> None:
    timers, ran = Timers(), ""

    def note(name: str) -> None:
        def action(now: float) -> None:
            nonlocal ran
            ran += f"{name}{now} "

        timers.at(deadlines[name], action)

    deadlines = {"c": 3.0, "a": 1.0, "b": 2.0, "d": 3.0}
    for name in deadlines:
        note(name)
    assert timers.next_at() == 1.0
    assert timers.run(0.9) == 0
    assert timers.run(2.5) == 2
    assert timers.run(9.0) == 2
    assert ran == "a2.5 b2.5 c9.0 d9.0 "
    assert timers.next_at() is None


def test_a_cancelled_timer_does_not_run_and_cancelling_again_is_harmless() -> None:
    timers, ran = Timers(), list[float]()
    first, second = timers.at(1.0, ran.append), timers.at(2.0, ran.append)
    for _ in range(2):
        timers.cancel(first)
    timers.cancel(None)
    assert timers.next_at() == 2.0
    timers.run(5.0)
    timers.cancel(second)
    assert (ran, timers.next_at()) == ([5.0], None)


def test_a_timer_may_set_and_cancel_others() -> None:
    timers, ran = Timers(), list[str]()
    doomed = timers.at(2.0, lambda now: ran.append("doomed"))

    def first(now: float) -> None:
        ran.append("first")
        timers.cancel(doomed)
        timers.at(now, lambda now: ran.append("at once"))
        timers.at(now + 1, lambda now: ran.append("later"))

    timers.at(1.0, first)
    assert timers.run(2.0) == 2
    assert ran == ["first", "at once"]
    assert timers.next_at() == 3.0


def test_the_owner_is_told_when_the_first_deadline_moves_forward() -> None:
    timers, told = Timers(), list[float | None]()
    timers.on_earlier = lambda: told.append(timers.next_at())
    for when in (5.0, 7.0, 3.0, 3.0, 4.0):
        timers.at(when, lambda now: None)
    assert told == [5.0, 3.0]


def test_the_owner_is_not_told_of_what_is_due_after_he_wakes_anyway() -> None:
    timers, told = Timers(), list[float]()
    timers.on_earlier = lambda: told.append(timers.sleep_until())
    for when in (1.0, 1.1, 1.2):  # each takes the place of the one before it
        timers.cancel(timers.at(when, lambda now: None))
        timers.run(0.5)
    assert told == [1.0]
    assert timers.sleep_until() == float("inf")
    timers.at(9.0, lambda now: None)
    assert told == [1.0, 9.0]


@given(st.lists(st.tuples(st.integers(0, 20), st.booleans()), max_size=300), st.integers(0, 20))
def test_exactly_those_run_that_are_due_and_not_cancelled(what: list[tuple[int, bool]], now: int) -> None:
    timers, ran = Timers(), list[int]()
    made = [
        timers.at(when, lambda _, number=number: ran.append(number))  # type: ignore[misc]
        for number, (when, _) in enumerate(what)
    ]
    for timer, (_, cancelled) in zip(made, what, strict=True):
        if cancelled:
            timers.cancel(timer)
    left = [(when, number) for number, (when, cancelled) in enumerate(what) if not cancelled]
    timers.run(now)
    assert ran == [number for when, number in sorted(left) if when <= now]
    assert timers.next_at() == min((when for when, _ in left if when > now), default=None)


def test_a_clock_by_hand_moves_both_readings() -> None:
    clock = ManualClock(now=5.0, wall=100.0)
    clock.advance(1.5)
    assert (clock.now(), clock.wall()) == (6.5, 101.5)


def test_the_systems_clock_does_not_go_back() -> None:
    clock = SystemClock()
    readings = [clock.now() for _ in range(100)]
    assert readings == sorted(readings)
    assert clock.wall() > 1_700_000_000


def test_a_counted_clock_is_ahead_of_the_performance_counter_by_what_it_is_told() -> None:
    clock = CountedClock(1000.0)
    before = time.perf_counter()
    now = clock.now()
    assert before <= now - 1000.0 <= time.perf_counter()
    wall = time.time()
    assert wall <= clock.wall() <= time.time()

"""When entries arrived, by their numbers."""

from __future__ import annotations

from array import array

from leveret.durable.arrival_times import HIGHEST, ArrivalTimes
from leveret.durable.store.chunk import Columns


def test_an_entry_arrived_when_its_commit_did() -> None:
    times = ArrivalTimes(lambda: 0)
    for number, ms in ((5, 1000), (8, 1000), (9, 1007), (20, 1003)):  # the clock was set back
        times.note(number, ms)
    assert [times.of(number) for number in (4, 5, 8, 9, 19, 20, 1 << 60)] == [
        None,
        1000,
        1000,
        1007,
        1007,
        1003,
        1003,
    ]


def test_the_old_are_those_before_the_first_that_arrived_later() -> None:
    times = ArrivalTimes(lambda: 0)
    assert times.after(1000) == HIGHEST
    for number, ms in ((5, 1000), (8, 1002), (9, 1007)):
        times.note(number, ms)
    assert [times.after(ms) for ms in (999, 1000, 1006, 1007)] == [5, 8, 9, HIGHEST]


def test_entries_of_a_chunk_that_was_made_of_others_keep_their_times() -> None:
    times, columns = ArrivalTimes(lambda: 0), Columns()
    columns.numbers, columns.arrived, columns.arrivals = array("Q", [3, 7, 8]), 10, array("Q", [10, 30, 20])
    times.note_chunk(columns)
    assert [times.of(number) for number in (3, 6, 7, 8)] == [10, 10, 30, 20]
    columns.numbers, columns.arrived, columns.arrivals = range(9, 12), 40, None
    times.note_chunk(columns)
    assert [times.of(number) for number in (8, 9, 11)] == [20, 40, 40]


def test_there_are_never_more_samples_and_what_nobody_asks_for_goes_first() -> None:
    times = ArrivalTimes(lambda: min(998, number - 2), samples_max=8)
    for number in range(1000):
        times.note(number, number)
    assert times.step_ms == 1
    assert [times.of(number) for number in (997, 998, 999)] == [997, 998, 999]
    for number in range(1000, 2000):
        times.note(number, number)
    assert len(times._times) <= 8
    for number in range(998, 2000):
        ms = times.of(number)
        assert ms is not None
        assert 0 <= number - ms <= 2 * times.step_ms

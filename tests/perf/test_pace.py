from __future__ import annotations

from leveret.perf.pace import SECOND, Pace


def test_the_first_is_due_at_once_and_then_one_each_interval():
    pacing = Pace([(10, 1)])
    assert [pacing.due(ms * 1_000_000) for ms in (0, 99, 100, 199, 200, 1000, 10_000)] == [
        1,
        1,
        2,
        2,
        3,
        11,
        101,
    ]


def test_when_one_is_due_is_the_moment_from_which_on_it_is_counted():
    pacing = Pace([(1000, 1), (50, 2), (0, 1), (7, 0.5)])
    for number in range(5000):
        time = pacing.time_of(number)
        assert pacing.due(time + 1) >= number + 1
        assert pacing.due(time - 1000) <= number + 1


def test_rates_come_in_turn_and_again():
    pacing = Pace([(100, 1), (0, 1)])
    assert (pacing.due(SECOND - 1_000_000), pacing.due(2 * SECOND - 1)) == (100, 100)
    assert (pacing.due(2 * SECOND), pacing.due(2 * SECOND + SECOND // 2)) == (101, 151)
    assert (pacing.time_of(100), pacing.time_of(150)) == (2 * SECOND, 2 * SECOND + SECOND // 2)

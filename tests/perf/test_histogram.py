from __future__ import annotations

import pytest

from leveret.perf.histogram import EXACT, Histogram, bucket_of, middle_of


def test_small_values_are_exact():
    assert [middle_of(bucket_of(value)) for value in range(EXACT)] == list(range(EXACT))


@pytest.mark.parametrize(
    "value", [EXACT, 129, 255, 256, 1000, 65535, 10**6, 10**9 + 7, 3 * 10**12, (1 << 62) + 1]
)
def test_a_bucket_is_off_by_less_than_a_hundredth(value: int):
    assert abs(middle_of(bucket_of(value)) - value) <= value / 100


def test_buckets_are_in_the_order_of_their_values_and_few():
    values = [
        value for shift in range(62) for value in range(1 << shift, 2 << shift, max(1, (1 << shift) // 64))
    ]
    buckets = [bucket_of(value) for value in values]
    assert buckets == sorted(buckets)
    assert max(buckets) < 4096


def test_percentiles_are_the_values_that_so_many_do_not_exceed():
    histogram = Histogram()
    for value in range(1, 101):
        histogram.add(value)
    assert histogram.percentiles((0, 1, 50, 99, 100)) == [1, 1, 50, 99, 100]


def test_an_empty_one_has_zeros():
    assert Histogram().percentiles((50, 99.9)) == [0, 0]


def test_the_ends_are_exact_and_nothing_is_told_beyond_them():
    histogram = Histogram()
    histogram.add(1_000_003, 3)
    assert (histogram.lowest, histogram.highest, histogram.count) == (1_000_003, 1_000_003, 3)
    assert histogram.percentiles((50, 100)) == [1_000_003, 1_000_003]


def test_two_put_together_are_as_one():
    one, other, both = Histogram(), Histogram(), Histogram()
    for value in (5, 900, 70_000):
        one.add(value)
        both.add(value)
    for value in (1, 900, 2_000_000):
        other.add(value, 2)
        both.add(value, 2)
    one.merge(other)
    assert (one.buckets, one.count, one.lowest, one.highest) == (both.buckets, 9, 1, 2_000_000)

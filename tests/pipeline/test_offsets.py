"""Marks of how far a query is, shares of a micro-batch, and tasks."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.offsets import PIECE_MIN, Mark, Range, admitted, from_json, read_between, split, to_json

PARTITIONS = st.tuples(st.sampled_from(["a", "b", "c"]), st.integers(0, 3))
COUNTS = st.dictionaries(PARTITIONS, st.integers(0, 50))
NUMBERS = st.integers(0, 2**63 - 1)
MARKS = st.dictionaries(PARTITIONS, st.builds(Mark, NUMBERS, st.text(), st.none() | NUMBERS))


@given(MARKS)
def test_marks_survive_a_checkpoint(marks: dict[tuple[str, int], Mark]):
    assert from_json(json.loads(json.dumps(to_json(marks)))) == marks


def test_marks_have_the_form_that_is_documented():
    marks = {("orders", 1): Mark(5, "y"), ("orders", 0): Mark(123, "x", 100)}
    said = '{"orders": {"0": {"next": 123, "id": "x", "from": 100}, "1": {"next": 5, "id": "y"}}}'
    assert json.dumps(to_json(marks)) == said


@pytest.mark.parametrize(
    "strange",
    [
        None,
        [1],
        {"orders": 1},
        {"orders": {"x": {"next": 1, "id": ""}}},
        {"orders": {"0": {"next": True, "id": ""}}},
        {"orders": {"0": {"next": 1}}},
        {"orders": {"0": {"next": 1, "id": 2}}},
        {"orders": {"0": {"next": 1, "id": "", "from": "1"}}},
    ],
)
def test_a_checkpoint_of_something_else_is_said_to_be_one(strange: object):
    with pytest.raises(PipelineError, match="the checkpoint holds no offsets of this source"):
        from_json(strange)


def test_a_micro_batch_reads_what_its_end_says():
    start = {("a", 0): Mark(10, "x"), ("a", 1): Mark(20, "y", 15)}
    end = {("a", 0): Mark(14, "x", 10), ("a", 1): Mark(20, "y", 15), ("a", 2): Mark(3, "z", 0)}
    assert list(read_between(start, end)) == [(("a", 0), 10, end["a", 0]), (("a", 2), 0, end["a", 2])]


def test_a_first_micro_batch_is_the_same_wherever_its_query_would_begin_now():
    end = {("a", 0): Mark(14, "x", 10)}
    for begin in (0, 10, 12, 14, 99):
        assert list(read_between({("a", 0): Mark(begin, "x")}, end)) == [(("a", 0), 10, end["a", 0])]


def test_a_micro_batch_without_news_reads_nothing():
    end = {("a", 0): Mark(14, "x", 10), ("a", 1): Mark(7, "y")}
    assert list(read_between(end, end)) == []


@given(COUNTS, st.integers(1, 200))
def test_shares_use_up_the_limit_and_no_more(available: dict[tuple[str, int], int], limit: int):
    shares = admitted(available, limit)
    assert sum(shares.values()) == min(limit, sum(available.values()))
    assert all(0 <= shares[each] <= count for each, count in available.items())


def test_a_busy_partition_does_not_hold_up_quiet_ones():
    available = {("a", 0): 1_000_000, ("a", 1): 3, ("a", 2): 90}
    assert admitted(available, 100) == {("a", 0): 48, ("a", 1): 3, ("a", 2): 49}


def test_without_a_limit_everything_is_read():
    assert admitted({("a", 0): 5, ("b", 0): 0}, None) == {("a", 0): 5, ("b", 0): 0}


def asked(first: int, until: int) -> Range:
    return Range("a", 0, "a", "x", first, until)


@given(st.lists(st.integers(0, 20_000), max_size=4), st.none() | st.integers(1, 12))
def test_pieces_cover_what_is_read_once(lengths: list[int], least: int | None):
    whole = [asked(at * 10, at * 10 + length) for at, length in enumerate(lengths)]
    pieces = split(whole, least)
    expected = [offset for each in whole for offset in (each.first, each.until) if len(each)]
    for each in pieces:
        assert len(each) > 0
    assert sum(map(len, pieces)) == sum(lengths)
    assert {each.first for each in pieces} | {each.until for each in pieces} >= set(expected)


def test_as_many_pieces_are_made_as_are_asked_for():
    assert [(each.first, each.until) for each in split([asked(5, 8_005)], 4)] == [
        (5, 2005),
        (2005, 4005),
        (4005, 6005),
        (6005, 8005),
    ]
    assert len(split([asked(0, 4 * PIECE_MIN), asked(0, 12 * PIECE_MIN)], 8)) == 8
    assert len(split([asked(0, PIECE_MIN + 5)], 8)) == 1


def test_a_task_gets_no_more_messages_than_it_may():
    pieces = split([asked(0, 250), asked(300, 310)], None, 100)
    assert [(each.first, each.until) for each in pieces] == [(0, 83), (83, 166), (166, 250), (300, 310)]
    assert len(split([asked(0, 10_000)], 4, 10)) == 1000

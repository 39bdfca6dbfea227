from __future__ import annotations

import pytest

from leveret.perf.block import Block, Pattern
from leveret.perf.ends import ConsumerEnd, PublisherEnd, Tally
from leveret.perf.pace import Pace

MESSAGE = Pattern(b"x" * 10)
MS = 1_000_000


def source(limit: int = 100, window: int = 0, pacing: Pace | None = None) -> tuple[PublisherEnd, Tally]:
    tally = Tally(0)
    made = PublisherEnd(Block([MESSAGE], 80, numbered=False), tally, limit, window, pacing)
    made.start(0)
    return made, tally


def sent_by(made: PublisherEnd, now: int = 0) -> int:
    before = made.sent
    while made.next(now) is not None:
        pass
    return made.sent - before


def test_it_sends_up_to_its_limit():
    made, tally = source(limit=21)
    assert sent_by(made) == 21
    assert made.done
    assert tally.sent == 21


def test_it_waits_for_confirms_at_its_window():
    made, tally = source(window=10)
    assert sent_by(made) == 10
    made.confirm(4, True, now=5)
    assert sent_by(made, now=6) == 4
    made.confirm(5, False, now=7)
    assert sent_by(made) == 1
    assert (tally.confirmed, tally.confirm_times.count) == (5, 5)


def test_it_waits_for_credit():
    made, _ = source()
    made.credit = 3
    assert sent_by(made) == 3
    made.credit = 5
    assert sent_by(made) == 2


def test_it_keeps_its_pace_and_the_clock_begins_when_a_message_was_due():
    made, tally = source(window=100, pacing=Pace([(1000, 1)]))
    assert sent_by(made, now=0) == 1
    assert made.due_ns() == MS
    assert sent_by(made, now=5 * MS) == 5  # it was late: of the five, the first has waited 4 ms
    made.confirm(6, True, now=5 * MS)
    assert sorted(tally.confirm_times.percentiles((0, 100))) == [0, 5 * MS]


def test_what_waits_for_a_window_has_no_time_at_which_it_is_due():
    made, _ = source(window=1, pacing=Pace([(1000, 1)]))
    assert sent_by(made, now=10 * MS) == 1
    assert made.due_ns() is None


@pytest.mark.parametrize(
    "tags",
    [
        [(1, False), (2, False), (3, False), (4, False), (5, False)],
        [(5, True)],
        [(5, False), (3, False), (1, False), (2, False), (4, False)],
        [(4, False), (3, True), (5, True)],
        [(2, False), (2, False), (2, True), (1, True), (5, True), (5, True), (9, True)],
        [(5, False), (4, True)],
    ],
)
def test_each_message_is_confirmed_once_in_whatever_order(tags: list[tuple[int, bool]]):
    made, tally = source(limit=5, window=5)
    for at in range(5):
        made.limit = at + 1
        made.next(now=at)
    for tag, multiple in tags:
        made.confirm(tag, multiple, now=100)
    assert (made.settled, tally.confirmed, tally.confirm_times.count) == (5, 5, 5)
    assert (tally.confirm_times.lowest, tally.confirm_times.highest) == (96, 100)
    assert made.done


def test_what_is_refused_is_settled_and_counted_apart():
    made, tally = source(limit=4, window=4)
    sent_by(made)
    made.refuse(2, False, now=1)
    made.confirm(4, True, now=1)
    assert (tally.refused, tally.confirmed, made.done) == (1, 3, True)


def test_acknowledgements_come_so_many_at_a_time():
    each = ConsumerEnd("q", Tally(0), every=10, think_ns=0, seen=None)
    each.receive(9, now=0)
    assert each.to_acknowledge() == 0
    each.receive(3, now=0)
    assert (each.to_acknowledge(), each.acknowledged) == (12, 12)
    each.receive(1, now=0)
    assert each.to_acknowledge(at_least=1) == 1


def test_a_consumer_that_thinks_handles_one_after_another():
    each = ConsumerEnd("q", Tally(0), every=1, think_ns=10, seen=None)
    each.receive(3, now=100)
    assert (each.think(now=100), each.to_acknowledge(), each.think(now=112)) == (110, 0, 120)
    assert each.to_acknowledge() == 1
    assert each.think(now=500) is None
    assert each.to_acknowledge() == 2

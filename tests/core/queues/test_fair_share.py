"""Levels of priority that share: so many of one in a row, while lower ones wait."""

from __future__ import annotations

from itertools import groupby

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.arguments.queue_arguments import shares_of
from leveret.arguments.queue_declaration import limits_of
from leveret.delivery import Delivery
from leveret.errors import PreconditionFailed
from leveret.limits import QueueLimits
from leveret.queues.fair_share import FairQueue
from leveret.queues.search import Search
from leveret.queues.work_queue import WorkQueue
from leveret.values import Int64, Value
from tests.core.fakes import FakeConsumer, Only, fetched, waiting
from tests.harness.bench import CoreBench

LEVELS = 4


def sharing(bench: CoreBench, share: Value, **said: Value) -> FairQueue:
    queue = bench.queue("q", x_max_priority=LEVELS - 1, x_fair_share=share, **said)
    assert isinstance(queue, FairQueue)
    return queue


def put(bench: CoreBench, *levels: int, first: str = "") -> None:
    for level in levels:
        bench.publish("q", f"{first}{level}".encode(), priority=level)


def emptied(queue: WorkQueue) -> str:
    """Levels in the order in which they come, one by one."""
    return "".join(fetched(queue, True).message.body.decode() for _ in range(queue.ready))


def test_each_level_has_its_share_of_a_round_the_highest_first(bench: CoreBench) -> None:
    queue = sharing(bench, 2)
    put(bench, 1, *[3] * 5, *[2] * 3)
    assert waiting(queue) == "3 3 2 2 1 3 3 2 3"
    assert emptied(queue) == "332213323"


def test_one_batch_is_shared_as_one_by_one(bench: CoreBench) -> None:
    queue = sharing(bench, 2)
    put(bench, 1, *[3] * 5, *[2] * 3)
    assert FakeConsumer(queue, credit=4).bodies() == ""
    bench.settle()
    consumer = next(iter(queue.consumers))
    assert isinstance(consumer, FakeConsumer)
    assert consumer.bodies() == "3 3 2 2"
    consumer.grant(9)
    bench.settle()
    assert consumer.bodies() == "3 3 2 2 1 3 3 2 3"


def test_levels_have_shares_of_their_own_and_none_is_no_limit(bench: CoreBench) -> None:
    queue = sharing(bench, [1, 3, 2])
    put(bench, *[0] * 3, *[1] * 5, *[2] * 5, *[3] * 4)
    assert emptied(queue) == "33332211102211020"


def test_who_has_nobody_to_share_with_uses_nothing_up(bench: CoreBench) -> None:
    queue = sharing(bench, 2)
    put(bench, *[3] * 5)
    assert [fetched(queue, True).message.body for _ in range(4)] == [b"3"] * 4
    put(bench, 3, 3, 1)
    assert emptied(queue) == "3313"


def test_what_comes_late_is_served_before_lower_levels_if_it_has_not_had_its_share(bench: CoreBench) -> None:
    queue = sharing(bench, 2)
    put(bench, 1, 1, 1, 0)
    assert fetched(queue, True).message.body == b"1"
    put(bench, 3, 3, 3)
    assert emptied(queue) == "331031"


def test_a_share_is_not_had_twice_in_a_row_though_a_round_ends_with_it(bench: CoreBench) -> None:
    queue = sharing(bench, 2)
    put(bench, *[0] * 5, *[1] * 3)
    assert "".join(fetched(queue, True).message.body.decode() for _ in range(4)) == "1100"
    put(bench, *[2] * 5)
    assert emptied(queue) == "221002202"


def test_what_comes_back_has_its_old_place_in_its_level(bench: CoreBench) -> None:
    queue = sharing(bench, 1)
    put(bench, 3, 3, 2, 2, first="a")
    first = fetched(queue, False)
    assert fetched(queue, True).message.body == b"a2"
    queue.release(first)
    assert emptied(queue) == "a3a2a3"


def test_what_has_expired_is_nobodys_share(bench: CoreBench) -> None:
    queue = sharing(bench, 1)
    bench.publish("q", b"old", priority=3, ttl_ms=1)
    put(bench, 3, 2, 3)
    bench.broker.now = bench.clock.now() + 1
    assert emptied_of(queue) == "323"


def emptied_of(queue: WorkQueue) -> str:
    said = ""
    while (found := queue.take_one(True)) is not None:
        said += found.message.body.decode()
    return said


def test_room_in_octets_ends_a_batch(bench: CoreBench) -> None:
    queue = sharing(bench, 1)
    consumer = FakeConsumer(queue, limit=1)
    put(bench, 3, 2, 3)
    assert [len(consumer.got), queue.ready] == [1, 2]


def test_seekers_are_served_in_turns_and_what_they_get_counts(bench: CoreBench) -> None:
    queue = sharing(bench, 1)
    for body, priority in ((b"a3", 3), (b"b3", 3), (b"a2", 2), (b"a3", 3), (b"b1", 1), (b"a1", 1)):
        bench.publish("q", body, priority=priority)
    seeker = FakeConsumer(queue, selector=Only(b"a"))
    bench.settle()
    assert isinstance(queue.search, Search)
    assert seeker.bodies() == "a3 a2 a1 a3"
    assert emptied(queue) == "b1b3"


def test_who_takes_what_comes_first_shares_beside_seekers(bench: CoreBench) -> None:
    queue = sharing(bench, 2)
    FakeConsumer(queue, selector=Only(b"z"))
    put(bench, 1, *[3] * 5, *[2] * 3)
    assert emptied(queue) == "332213323"
    put(bench, 1, *[3] * 3)
    consumer = FakeConsumer(queue)
    bench.settle()
    assert consumer.bodies() == "3 3 1 3"


def test_who_browses_sees_the_highest_level_first(bench: CoreBench) -> None:
    queue = sharing(bench, 1)
    put(bench, 1, 3, 2, 3)
    browser = FakeConsumer(queue, browses=True)
    bench.settle()
    assert browser.bodies() == "3 3 2 1"
    assert emptied(queue) == "3213"


# Arguments.


@pytest.mark.parametrize(
    ("share", "shares"),
    [
        (5, (5, 5, 5, 5)),
        (0, ()),
        (Int64(2), (2, 2, 2, 2)),
        ([], ()),
        ([0, 0], ()),
        ([1, 2], (1, 2, 0, 0)),
        ([0, 0, 0, 7], (0, 0, 0, 7)),
    ],
)
def test_a_share_is_for_all_levels_or_one_for_each(share: Value, shares: tuple[int, ...]) -> None:
    assert shares_of(share, {"x-max-priority": LEVELS - 1}) == shares


def test_without_shares_it_is_a_plain_queue(bench: CoreBench) -> None:
    assert type(bench.queue("q", x_max_priority=3, x_fair_share=0)) is WorkQueue
    assert limits_of({}) == QueueLimits()


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"x_max_priority": 3, "x_fair_share": -1}, "-1 is negative"),
        ({"x_max_priority": 3, "x_fair_share": [1, "x"]}, "unacceptable type"),
        ({"x_max_priority": 3, "x_fair_share": [1] * 5}, "there are 4 levels, not 5"),
        ({"x_max_priority": 3, "x_fair_share": [1] * 257}, "no more than 256 levels"),
        ({"x_fair_share": 1}, "no levels to share"),
        ({"x_max_priority": 0, "x_fair_share": 1}, "no levels to share"),
        ({"x_max_priority": 3, "x_fair_share": 1, "x_last_value_key": "k"}, "do not share"),
        ({"x_max_priority": 3, "x_fair_share": 1, "x_message_group_key": "k"}, "do not share"),
        ({"x_max_priority": 3, "x_fair_share": 1, "x_queue_type": "quorum"}, "of queue type rabbit_quorum"),
    ],
    ids=lambda each: str(each)[-30:],
)
def test_shares_that_cannot_be_kept_are_refused(bench: CoreBench, said: dict[str, Value], words: str) -> None:
    with pytest.raises(PreconditionFailed, match=words):
        bench.host.declare_queue(
            "q", durable=True, arguments={k.replace("_", "-"): v for k, v in said.items()}
        )


# Against a naive one, which counts what each level has had since the round began.


class Naive:
    def __init__(self, shares: list[int]) -> None:
        self.shares = shares
        self.piles: list[list[int]] = [[] for _ in shares]  # numbers, sorted
        self.had = [0] * len(shares)
        self.last = 0

    def take(self) -> tuple[int, int] | None:
        here = [level for level in reversed(range(len(self.piles))) if self.piles[level]]
        if len(here) < 2:
            self.had = [0] * len(self.shares)
        able = [level for level in here if self.may(level)]
        if here and not able:
            self.had = [0] * len(self.shares)
            if any(level < self.last for level in here):
                self.had[self.last] = self.shares[self.last]
            able = [level for level in here if self.may(level)]
        if not able:
            return None
        level = self.last = able[0]
        if len(here) > 1:
            self.had[level] += 1
        return level, self.piles[level].pop(0)

    def may(self, level: int) -> bool:
        return not self.shares[level] or self.had[level] < self.shares[level]


class Sharing(RuleBasedStateMachine):
    """Arrivals, batches and returns; what comes is what comes from the naive one, and nobody has too much in a row."""

    @initialize(
        shares=st.lists(st.integers(0, 3), min_size=LEVELS, max_size=LEVELS).filter(any), seeks=st.booleans()
    )
    def begin(self, shares: list[int], seeks: bool) -> None:
        self.bench = CoreBench()
        self.queue = sharing(self.bench, list(shares))
        if seeks:
            FakeConsumer(self.queue, selector=Only(b"z"))
        self.naive = Naive(shares)
        self.shares = shares
        self.held: list[tuple[int, Delivery]] = []
        self.number = 0
        self.row: list[tuple[int, bool]] = []  # levels that came, and whether lower ones waited

    @rule(levels=st.lists(st.integers(0, LEVELS - 1), min_size=1, max_size=6))
    def arrive(self, levels: list[int]) -> None:
        for level in levels:
            self.bench.publish("q", str(self.number).encode(), priority=level)
            self.naive.piles[level].append(self.number)
            self.number += 1

    @rule(settled=st.booleans(), times=st.integers(1, 6))
    def fetch(self, settled: bool, times: int) -> None:
        for _ in range(times):
            expected = self._expected()
            found = self.queue.take_one(settled)
            assert (None if found is None else int(found.message.body)) == (expected and expected[1])
            if found is not None and expected is not None and not settled:
                self.held.append((expected[0], found))

    @rule(quota=st.integers(1, 9))
    def batch(self, quota: int) -> None:
        consumer = FakeConsumer(self.queue, settled=True, credit=quota)
        self.bench.settle()
        expected = [each[1] for _ in range(quota) if (each := self._expected()) is not None]
        assert [int(each.message.body) for each in consumer.got] == expected
        self.queue.remove_consumer(consumer)

    @rule(which=st.integers(0, 99))
    def come_back(self, which: int) -> None:
        if self.held:
            level, delivery = self.held.pop(which % len(self.held))
            self.queue.release(delivery)
            self.bench.settle()
            pile = self.naive.piles[level]
            pile.append(int(delivery.message.body))
            pile.sort()

    def _expected(self) -> tuple[int, int] | None:
        before = [bool(pile) for pile in self.naive.piles]
        found = self.naive.take()
        if found is not None:
            self.row.append((found[0], any(before[: found[0]])))
        return found

    @invariant()
    def nobody_has_too_much_in_a_row(self) -> None:
        for (level, lower_waited), run in groupby(getattr(self, "row", [])):
            if lower_waited and self.shares[level]:
                assert len([*run]) <= self.shares[level]

    @invariant()
    def it_counts_what_waits(self) -> None:
        if hasattr(self, "queue"):
            assert self.queue.ready == sum(map(len, self.naive.piles))

    def teardown(self) -> None:
        if hasattr(self, "queue"):
            foreseen = waiting(self.queue).split()
            came = [fetched(self.queue, True).message.body.decode() for _ in range(self.queue.ready)]
            assert foreseen == came


TestSharing = Sharing.TestCase
TestSharing.settings = settings(deadline=None)

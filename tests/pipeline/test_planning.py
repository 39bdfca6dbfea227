"""Plans and tasks of a query, against streams in memory: what is read, and what is said of what is gone."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from leveret.pipeline.client import Fetched, Listed, Stream
from leveret.pipeline.errors import BadOption, DataLoss, Expired, Missing, Remade
from leveret.pipeline.offsets import Mark, Marks, Range
from leveret.pipeline.options import Options, Use, read_options
from leveret.pipeline.planner import Limit, Planner
from tests.pipeline.bulk import FakeBroker, message

ALL = Limit()


class Direct:
    """A client without a network."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def listed(self) -> list[Listed]:
        supers = [Listed(name, tuple(parts)) for name, parts in self._broker.supers.items()]
        return sorted([*supers, *(Listed(name, None) for name in self._broker.streams)], key=lambda x: x.name)

    def partitions(self, name: str) -> list[Stream]:
        names = self._broker.supers.get(name, [name])
        if not all(each in self._broker.streams for each in names):
            raise Missing(f"there is no stream '{name}'")
        return [Stream(**self._broker.streams[each].state()) for each in names]  # type: ignore[arg-type]

    def offset_since(self, name: str, timestamp: int) -> int:
        return self._broker._offset(self._broker.streams[name], timestamp)

    def blocks(self, name: str, incarnation: str, first: int, until: int) -> Fetched:
        stream = self._broker.streams[name]
        if stream.incarnation != incarnation:
            raise Remade("made anew")
        if first < stream.first:
            raise Expired("expired", stream.first)
        return Fetched(*stream.chosen(first, until, 4 << 20))


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


def options(use: Use, **given: str) -> Options:
    chosen = {} if {"assign", "subscribePattern"} & set(given) else {"subscribe": "orders"}
    return read_options({"endpoints": "a", **chosen, **given}, use)


def planner(broker: FakeBroker, use: Use = Use.STREAM, **given: str) -> Planner:
    return Planner(options(use, **given), Direct(broker))


def spans(ranges: list[Range]) -> list[tuple[str, int, int, int]]:
    return [(each.stream, each.partition, each.first, each.until) for each in ranges]


def batch(broker: FakeBroker, **given: str) -> list[tuple[str, int, int, int]]:
    return spans(planner(broker, Use.BATCH, **given).batch())


# Batch reads.


def test_a_batch_reads_all_there_is(broker: FakeBroker):
    stream = broker.stream("orders")
    stream.fill(300)
    stream.drop(100)
    assert batch(broker) == [("orders", 0, 100, 300)]


def test_a_batch_of_an_empty_stream_reads_nothing(broker: FakeBroker):
    broker.stream("orders")
    assert batch(broker) == []


def test_partitions_of_a_super_stream_are_read_in_their_order(broker: FakeBroker):
    for number, stream in enumerate(broker.super_stream("orders", 12)):
        stream.fill(number + 1)
    ranges = planner(broker, Use.BATCH).batch()
    assert spans(ranges) == [("orders", number, 0, number + 1) for number in range(12)]
    assert [each.name for each in ranges][10] == "orders-10"


def test_offsets_may_be_given_for_each_partition(broker: FakeBroker):
    for stream in broker.super_stream("orders", 3):
        stream.fill(10)
    found = batch(
        broker, startingOffsets='{"orders":{"0":4,"1":-2}}', endingOffsets='{"orders":{"0":6,"2":-1,"1":9}}'
    )
    assert found == [("orders", 0, 4, 6), ("orders", 1, 0, 9), ("orders", 2, 0, 10)]


def test_times_may_be_given(broker: FakeBroker):
    stream = broker.stream("orders")
    for arrived in (1000, 2000, 3000):
        stream.publish(message(b"x"), message(b"y"), arrived=arrived)
    assert batch(broker, startingTimestamp="1500", endingTimestamp="2500") == [("orders", 0, 2, 4)]
    by_partition = '{"orders":{"0":2500}}'
    assert batch(broker, startingOffsetsByTimestamp=by_partition) == [("orders", 0, 4, 6)]
    assert batch(broker, endingOffsetsByTimestamp=by_partition) == [("orders", 0, 0, 4)]
    assert batch(broker, startingTimestamp="9999") == []


def test_a_pattern_takes_super_streams_as_such(broker: FakeBroker):
    for stream in (*broker.super_stream("orders", 2), broker.stream("orders.eu"), broker.stream("other")):
        stream.fill(1)
    found = batch(broker, subscribePattern="ord.*")
    assert found == [("orders", 0, 0, 1), ("orders", 1, 0, 1), ("orders.eu", 0, 0, 1)]
    assert batch(broker, subscribePattern="orders-1") == [("orders-1", 0, 0, 1)]


def test_partitions_may_be_assigned(broker: FakeBroker):
    for stream in broker.super_stream("orders", 3):
        stream.fill(1)
    assert batch(broker, assign='{"orders":[2,0]}') == [("orders", 0, 0, 1), ("orders", 2, 0, 1)]
    with pytest.raises(BadOption, match="has 3 partitions, so there is no 3"):
        batch(broker, assign='{"orders":[3]}')


def test_a_partition_that_is_named_and_not_read_is_a_mistake(broker: FakeBroker):
    broker.stream("orders").fill(1)
    with pytest.raises(BadOption, match="the starting offsets name partition 1 of stream 'orders'"):
        batch(broker, startingOffsets='{"orders":{"1":0}}')
    with pytest.raises(BadOption, match="the ending offsets name partition 0 of stream 'order'"):
        batch(broker, endingOffsets='{"order":{"0":0}}')


def test_an_offset_that_is_not_there_is_a_loss(broker: FakeBroker):
    stream = broker.stream("orders")
    stream.fill(300)
    stream.drop(100)
    given = {"startingOffsets": '{"orders":{"0":50}}'}
    with pytest.raises(
        DataLoss, match="offset 50 of partition 0 of stream 'orders' is asked for, which has 100"
    ):
        batch(broker, **given)
    assert batch(broker, failOnDataLoss="false", **given) == [("orders", 0, 100, 300)]
    with pytest.raises(DataLoss, match="offset 301 "):
        batch(broker, endingOffsets='{"orders":{"0":301}}')


def test_a_stream_that_is_missing_is_an_error_in_any_case(broker: FakeBroker):
    for flag in ("true", "false"):
        with pytest.raises(Missing, match="there is no stream 'orders'"):
            batch(broker, failOnDataLoss=flag)
        with pytest.raises(Missing):
            planner(broker, failOnDataLoss=flag).initial()


def test_a_batch_is_cut_up_for_more_tasks(broker: FakeBroker):
    broker.stream("orders").fill(4000, commit=1000)
    assert len(batch(broker, minPartitions="4")) == 4


# Streaming reads.


def test_a_query_begins_with_what_comes_next_unless_it_is_told_otherwise(broker: FakeBroker):
    broker.stream("orders").fill(5)
    assert planner(broker).initial() == {("orders", 0): Mark(5, "orders#1")}
    assert planner(broker, startingOffsets="earliest").initial() == {("orders", 0): Mark(0, "orders#1")}


def test_micro_batches_follow_each_other_without_gaps(broker: FakeBroker):
    broker.stream("orders").fill(10)
    query = planner(broker, startingOffsets="earliest")
    start = query.initial()
    end = query.latest(start, Limit(messages=4))
    assert end == {("orders", 0): Mark(4, "orders#1", 0)}
    assert spans(query.ranges(start, end)) == [("orders", 0, 0, 4)]
    last = query.latest(end, ALL)
    assert spans(query.ranges(end, last)) == [("orders", 0, 4, 10)]
    assert (query.latest(last, ALL), query.ranges(last, last)) == (last, [])


def test_a_first_micro_batch_that_is_repeated_is_the_same(broker: FakeBroker):
    stream = broker.stream("orders")
    query = planner(broker)
    start = query.initial()
    stream.fill(10)
    end = query.latest(start, ALL)
    stream.fill(10)
    again = planner(broker)
    assert spans(again.ranges(again.initial(), end)) == [("orders", 0, 0, 10)]


def test_octets_are_limited_by_the_average_message(broker: FakeBroker):
    broker.stream("orders").fill(10)  # an octet each
    query = planner(broker, startingOffsets="earliest")
    start = query.initial()
    assert query.latest(start, Limit(octets=3))["orders", 0].next == 3
    assert query.latest(start, Limit(octets=5, messages=2))["orders", 0].next == 2
    assert query.latest(start, Limit(octets=50))["orders", 0].next == 10
    broker.stream("orders").octets = 10_000
    assert query.latest(start, Limit(octets=3))["orders", 0].next == 1


def test_a_partition_that_is_new_is_read_from_its_beginning(broker: FakeBroker):
    _, second = broker.super_stream("orders", 2)
    broker.supers["orders"] = ["orders-0"]
    query = planner(broker)
    start = query.initial()
    assert set(start) == {("orders", 0)}
    second.fill(3)
    broker.supers["orders"] = ["orders-0", "orders-1"]
    assert spans(query.ranges(start, query.latest(start, ALL))) == [("orders", 1, 0, 3)]


def test_a_partition_that_is_new_and_empty_is_remembered(broker: FakeBroker):
    broker.super_stream("orders", 1)
    query = planner(broker)
    start = query.initial()
    broker.super_stream("orders", 2)
    assert query.latest(start, ALL)["orders", 1] == Mark(0, "orders-1#1")


def test_with_available_now_nothing_newer_is_read(broker: FakeBroker):
    first, _ = broker.super_stream("orders", 2)
    first.fill(10)
    query = planner(broker, startingOffsets="earliest")
    start = query.initial()
    query.prepare_available_now()
    first.fill(10)
    broker.super_stream("orders", 3)[2].fill(5)
    marks = query.latest(start, Limit(messages=6))
    marks = query.latest(marks, Limit(messages=6))
    assert {each: mark.next for each, mark in marks.items()} == {
        ("orders", 0): 10,
        ("orders", 1): 0,
        ("orders", 2): 0,
    }
    assert query.latest(marks, ALL) == marks


class Waiting:
    """A query that wants 10 messages or 15 minutes, and has begun."""

    def __init__(self, broker: FakeBroker, **given: str) -> None:
        self.now = 100.0
        asked = options(Use.STREAM, startingOffsets="earliest", minOffsetsPerTrigger="10", **given)
        self.query = Planner(asked, Direct(broker), now=lambda: self.now)
        self.marks = self.query.initial()

    def trigger(self, after: float = 0.0) -> int:
        """How far the query is afterwards."""
        self.now += after
        self.marks = self.query.latest(self.marks, ALL)
        return self.marks["orders", 0].next


def test_a_micro_batch_waits_for_so_many_messages(broker: FakeBroker):
    stream = broker.stream("orders")
    query = Waiting(broker)
    assert query.trigger() == 0
    stream.fill(9)
    assert query.trigger(after=899.9) == 0
    stream.fill(2)
    assert query.trigger() == 11
    stream.fill(9)
    assert query.trigger(after=899.9) == 11  # since the last one


def test_a_micro_batch_does_not_wait_for_ever(broker: FakeBroker):
    stream = broker.stream("orders")
    query = Waiting(broker, maxTriggerDelay="30s")
    stream.fill(1)
    assert (query.trigger(after=29.9), query.trigger(after=0.1)) == (0, 1)
    assert query.trigger(after=100) == 1  # nothing is nothing
    stream.fill(1)
    assert query.trigger() == 2
    stream.fill(1)
    assert (query.trigger(after=29.9), query.trigger(after=0.1)) == (2, 3)


def test_with_available_now_no_micro_batch_waits(broker: FakeBroker):
    broker.stream("orders").fill(3)
    query = Waiting(broker)
    query.query.prepare_available_now()
    assert query.trigger() == 3


LOSSES = {
    "retention": ("begins at offset 100 now: offsets 10 to 99 are gone", [("orders", 0, 100, 200)]),
    "remade": ("was deleted and made anew since offset 10 was read", [("orders", 0, 0, 7)]),
    "short": ("ends at offset 5, but offset 10 was the next to be read", []),
    "gone": ("there is no stream 'orders'", []),
}


def lose(broker: FakeBroker, how: str) -> Marks:
    """A query that has read 10 messages, of a stream that then lost some."""
    stream = broker.stream("orders")
    stream.fill(200)
    start = {("orders", 0): Mark(10, stream.incarnation, 0)}
    if how == "retention":
        stream.drop(100)
    elif how == "remade":
        stream.remake()
        stream.fill(7)
    elif how == "short":
        stream.next = 5
    else:
        del broker.streams["orders"]
    return start


@pytest.mark.parametrize("how", LOSSES)
def test_a_loss_ends_the_query(broker: FakeBroker, how: str):
    start = lose(broker, how)
    with pytest.raises(DataLoss, match=LOSSES[how][0]):
        planner(broker).latest(start, ALL)


@pytest.mark.parametrize("how", LOSSES)
def test_a_loss_is_passed_over_and_logged_once(
    broker: FakeBroker, how: str, caplog: pytest.LogCaptureFixture
):
    start = lose(broker, how)
    query = planner(broker, failOnDataLoss="false")
    end = query.latest(start, ALL)
    assert spans(query.ranges(start, end)) == LOSSES[how][1]
    assert query.latest(end, ALL) == end
    assert LOSSES[how][0] in caplog.text
    before = len(caplog.records)
    query.latest(end, ALL)
    assert len(caplog.records) == before


def test_what_follows_a_loss_is_read(broker: FakeBroker):
    start = lose(broker, "short")
    query = planner(broker, failOnDataLoss="false")
    end = query.latest(start, ALL)
    broker.stream("orders").next = 200
    assert spans(query.ranges(end, query.latest(end, ALL))) == [("orders", 0, 5, 200)]


def test_a_partition_that_a_super_stream_has_lost_is_a_loss(broker: FakeBroker):
    broker.super_stream("orders", 2)
    query = planner(broker)
    start = query.initial()
    broker.supers["orders"] = ["orders-0"]
    with pytest.raises(DataLoss, match="partition 1 of stream 'orders', which this query has read, is gone"):
        query.latest(start, ALL)


def test_a_source_that_is_not_named_any_more_is_called_that(broker: FakeBroker):
    broker.super_stream("orders", 2)
    broker.stream("refunds")
    start = planner(broker, subscribe="orders,refunds").initial()
    with pytest.raises(
        DataLoss, match=r"'refunds', .* is not named by the option subscribe any more: name it"
    ):
        planner(broker, subscribe="orders").latest(start, ALL)


def test_a_time_at_which_nothing_came_is_an_error_if_that_is_wanted(broker: FakeBroker):
    broker.stream("orders").fill(5)
    given = {"startingTimestamp": "5000"}
    assert planner(broker, **given).initial()["orders", 0].next == 5
    strict = planner(broker, startingOffsetsByTimestampStrategy="error", **given)
    with pytest.raises(BadOption, match="stream 'orders' has no message that arrived at 5000 or later"):
        strict.initial()
    assert planner(broker, startingOffsetsByTimestampStrategy="error", startingTimestamp="900").initial()


def test_errors_travel_pickled():
    error = pickle.loads(pickle.dumps(Expired("gone", 7)))
    assert (str(error), error.first) == ("gone", 7)


class Queries(RuleBasedStateMachine):
    """Whatever is published, read and restarted: micro-batches are neither skipped nor read twice."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = FakeBroker()
        self.broker.super_stream("orders", 1)
        self.query = planner(self.broker, startingOffsets="earliest")
        self.marks = self.query.initial()
        self.read: dict[int, list[int]] = {}

    @rule(partition=st.integers(0, 2), count=st.integers(1, 5))
    def publish(self, partition: int, count: int) -> None:
        partitions = self.broker.supers["orders"]
        self.broker.stream(partitions[partition % len(partitions)]).fill(count)

    @rule()
    def grow(self) -> None:
        if len(self.broker.supers["orders"]) < 3:
            self.broker.super_stream("orders", len(self.broker.supers["orders"]) + 1)

    @rule(limit=st.none() | st.integers(1, 4), crash=st.booleans(), least=st.none() | st.integers(1, 3))
    def trigger(self, limit: int | None, crash: bool, least: int | None) -> None:
        end = self.query.latest(self.marks, Limit(messages=limit))
        if crash:
            self.query = planner(self.broker, startingOffsets="latest")
            start = self.marks if self.read else self.query.initial()
        else:
            start = self.marks
        for each in self.query.ranges(start, end):
            self.read.setdefault(each.partition, []).extend(range(each.first, each.until))
        self.marks = end

    @invariant()
    def each_offset_was_read_once(self) -> None:
        for offsets in self.read.values():
            assert offsets == list(range(len(offsets)))

    def teardown(self) -> None:
        self.trigger(None, False, None)
        for number, name in enumerate(self.broker.supers["orders"]):
            assert len(self.read.get(number, [])) == self.broker.streams[name].next


TestQueries = Queries.TestCase

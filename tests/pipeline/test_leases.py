"""Queues read through leases: planned, read, settled; what is said when somebody else has them, or they are gone."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from urllib.parse import urlencode

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from pyspark.sql.types import StructType

from leveret.pipeline import leases
from leveret.pipeline.arrow import schema_of
from leveret.pipeline.broker_client import TEXT_MAX, Answer
from leveret.pipeline.client import Client
from leveret.pipeline.decode import Decoder
from leveret.pipeline.errors import BadOption, DataLoss, Fenced, Missing
from leveret.pipeline.leases import HeldLeases, LeasedBlocks, Leases
from leveret.pipeline.offsets import Mark, Marks, Range
from leveret.pipeline.options import Use, read_options
from leveret.pipeline.planner import Limit, Planner
from leveret.pipeline.queue_batch import QueueBatch
from leveret.pipeline.reader import read
from leveret.pipeline.schema import SCHEMAS
from leveret.pipeline.source import ReadTask, StreamReader
from tests.pipeline.bulk import FakeBroker, FakeQueue, message

ALL = Limit()
JOBS = ("jobs", 0)
COLUMNS = StructType([SCHEMAS["amqp"]["offset"], SCHEMAS["amqp"]["body"], SCHEMAS["amqp"]["redelivered"]])


class Wire:
    """An asker without a network."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def ask(
        self, method: str, path: str, asked: Mapping[str, object] | None = None, most: int = TEXT_MAX
    ) -> Answer:
        target = path + ("?" + urlencode(asked) if asked else "")
        self._broker.asked.append(target)
        broker = self._broker
        status, headers, octets = broker.answer(target) if method == "GET" else broker.change(method, target)
        return Answer(status, {name.lower(): value for name, value in headers.items()}, octets)


def client(broker: FakeBroker, **given: str) -> Client:
    client = Client(read_options(said(given), Use.STREAM), "guest")
    client._asker = Wire(broker)  # type: ignore[assignment]
    return client


def said(given: Mapping[str, str]) -> dict[str, str]:
    return {"endpoints": "a", "subscribe": "jobs", "readerName": "archive", **given}


def planner(broker: FakeBroker, **given: str) -> Planner:
    asking = client(broker, **given)
    return Planner(read_options(said(given), Use.STREAM), asking, Leases(asking))


def bodies(broker: FakeBroker, ranges: list[Range]) -> list[bytes]:
    return [row["body"] for row in rows(broker, ranges)]  # type: ignore[misc]


def rows(broker: FakeBroker, ranges: list[Range]) -> list[dict[str, object]]:
    """As tasks read them."""
    options = read_options(said({}), Use.STREAM)
    found: list[dict[str, object]] = []
    for each in ranges:
        assert each.fence is not None
        source = LeasedBlocks(client(broker), each.fence)
        decoder = Decoder(schema_of(COLUMNS), "amqp", each.stream, each.partition)
        for batch in read(options, source, decoder, each):
            found += batch.to_pylist()
    return found


def numbers(begin: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(begin, end)]


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def queue(broker: FakeBroker) -> FakeQueue:
    return broker.queue("jobs")


def test_micro_batches_of_a_queue_follow_each_other_and_settle_what_was_before(
    broker: FakeBroker, queue: FakeQueue
):
    queue.fill(10)
    query = planner(broker)
    start = query.initial()
    assert start == {JOBS: Mark(0, "jobs!1")}
    end = query.latest(start, Limit(messages=4))
    assert end == {JOBS: Mark(4, "jobs!1", 0)}
    assert bodies(broker, query.ranges(start, end)) == numbers(0, 4)
    assert (queue.leases["archive"].first, len(queue.ready)) == (0, 6)  # read, and nothing settled
    last = query.latest(end, ALL)
    assert bodies(broker, query.ranges(end, last)) == numbers(4, 10)
    assert (queue.leases["archive"].first, len(queue.ready)) == (4, 0)
    assert query.latest(last, ALL) == last
    assert queue.leases["archive"].first == 10


def test_a_limit_is_shared_among_queues_and_streams(broker: FakeBroker, queue: FakeQueue):
    queue.fill(10)
    broker.stream("orders").fill(3)
    query = planner(broker, subscribe="jobs,orders", startingOffsets="earliest")
    end = query.latest(query.initial(), Limit(messages=8))
    assert {each: mark.next for each, mark in end.items()} == {JOBS: 5, ("orders", 0): 3}
    assert len(queue.ready) == 5  # others may have them
    assert [each.fence is None for each in query.ranges({}, end)] == [False, True]


def test_octets_of_a_queue_are_limited_by_the_broker(broker: FakeBroker, queue: FakeQueue):
    queue.publish(*[message(b"x" * 100)] * 10)
    query = planner(broker)
    assert query.latest(query.initial(), Limit(octets=300))[JOBS].next == 3


def test_a_micro_batch_of_a_queue_has_a_limit_in_any_case(
    broker: FakeBroker, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leases, "MESSAGES_MAX", 6)
    queue.fill(10)
    query = planner(broker)
    end = query.latest(query.initial(), ALL)
    assert (end[JOBS].next, len(queue.ready)) == (6, 4)
    assert query.latest(end, ALL)[JOBS].next == 10


def test_messages_beyond_that_limit_count_for_those_that_wait(
    broker: FakeBroker, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leases, "MESSAGES_MAX", 6)
    query = planner(broker, minOffsetsPerTrigger="8")
    start = query.initial()
    queue.fill(7)
    assert query.latest(start, ALL) == start
    assert len(queue.ready) == 7  # others may have them meanwhile
    queue.fill(1)
    assert query.latest(start, ALL)[JOBS].next == 6


def test_a_broker_that_reserves_few_at_a_time_is_asked_again(broker: FakeBroker, queue: FakeQueue):
    queue.fill(10)
    queue.at_once = 3
    query = planner(broker)
    assert query.latest(query.initial(), Limit(messages=8))[JOBS].next == 8
    assert sum("/reserve" in each for each in broker.asked) == 3


def test_messages_that_others_have_taken_meanwhile_are_not_waited_for(broker: FakeBroker, queue: FakeQueue):
    queue.fill(10)
    query = planner(broker)
    start = query.initial()
    queue.at_once = 0
    assert query.latest(start, ALL) == start
    queue.at_once = 1 << 30
    assert query.latest(start, ALL)[JOBS].next == 10


def test_a_commit_settles_and_is_told_once(broker: FakeBroker, queue: FakeQueue):
    queue.fill(10)
    query = planner(broker)
    end = query.latest(query.initial(), ALL)
    query.commit(end)
    lease = queue.leases["archive"]
    assert lease.first == 10
    before = len(broker.asked)
    query.commit(end)
    query.commit({JOBS: Mark(99, "jobs!7")})  # of another lease
    assert (len(broker.asked), lease.first) == (before, 10)


def test_whether_a_name_is_a_queue_is_asked_once(broker: FakeBroker, queue: FakeQueue):
    query = planner(broker)
    start = query.initial()
    for _ in range(3):
        query.latest(start, ALL)
    assert [each for each in broker.asked if "/streams/" in each] == ["/api/leveret/streams/%2F/jobs"]


def test_with_available_now_as_many_are_read_as_were_there(broker: FakeBroker, queue: FakeQueue):
    queue.fill(10)
    first = planner(broker)
    marks = first.latest(first.initial(), Limit(messages=4))  # and dies
    query = planner(broker)
    query.prepare_available_now()
    queue.fill(5)
    read: list[bytes] = bodies(broker, query.ranges({}, marks))
    while (following := query.latest(marks, Limit(messages=3))) != marks:
        read += bodies(broker, query.ranges(marks, following))
        marks = following
    assert read == numbers(0, 10)
    assert (queue.leases["archive"].first, len(queue.ready)) == (10, 5)


def test_a_micro_batch_that_is_repeated_is_the_same(broker: FakeBroker, queue: FakeQueue):
    queue.fill(10)
    first = planner(broker)
    end = first.latest(first.initial(), Limit(messages=4))
    again = planner(broker)
    start = again.initial()
    assert bodies(broker, again.ranges(start, end)) == numbers(0, 4)
    assert bodies(broker, again.ranges(end, again.latest(end, ALL))) == numbers(4, 10)


@pytest.mark.parametrize("what", ["latest", "ranges", "read", "newest", "commit"])
def test_a_query_that_another_one_has_replaced_ends(broker: FakeBroker, queue: FakeQueue, what: str):
    queue.fill(10)
    query = planner(broker)
    start = query.initial()
    end = query.latest(start, ALL)
    ranges = query.ranges(start, end)
    planner(broker).initial()
    acts = {
        "latest": lambda: query.latest(end, ALL),
        "ranges": lambda: query.ranges(start, end),
        "read": lambda: rows(broker, ranges),
        "newest": query.newest,
        "commit": lambda: query.commit(end),
    }
    with pytest.raises(
        Fenced, match=r"another query reads queue 'jobs' .* as 'archive' now \(option readerName\)"
    ):
        acts[what]()
    assert queue.leases["archive"].first == 0


def test_queries_with_names_of_their_own_share_a_queue(broker: FakeBroker, queue: FakeQueue):
    queue.fill(10)
    one, other = planner(broker), planner(broker, readerName="other")
    first = one.latest(one.initial(), Limit(messages=4))
    second = other.latest(other.initial(), ALL)
    assert (first[JOBS].next, second[JOBS].next) == (4, 6)
    assert one.latest(first, ALL) == first


def has_read(broker: FakeBroker, queue: FakeQueue, **given: str) -> tuple[Planner, Marks]:
    """A query that has 4 of 10 messages in its table."""
    queue.fill(10)
    query = planner(broker, **given)
    return query, query.latest(query.initial(), Limit(messages=4))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_lease_that_was_deleted_meanwhile_is_a_loss(broker: FakeBroker, queue: FakeQueue, restarted: bool):
    query, end = has_read(broker, queue)
    del queue.leases["archive"]
    with pytest.raises(DataLoss, match="the lease 'archive' of queue 'jobs' was deleted and made anew"):
        (planner(broker) if restarted else query).latest(end, ALL)


def test_a_lease_that_the_broker_has_lost_is_a_loss(broker: FakeBroker, queue: FakeQueue):
    query, end = has_read(broker, queue)
    lease = queue.leases["archive"]
    lease.__init__(queue, 2)  # type: ignore[misc]
    lease.fence = 1
    with pytest.raises(DataLoss, match="the lease 'archive' of queue 'jobs' was deleted and made anew"):
        query.latest(end, ALL)


def test_with_another_lease_the_query_goes_on_if_it_may(broker: FakeBroker, queue: FakeQueue):
    query, end = has_read(broker, queue, failOnDataLoss="false")
    del queue.leases["archive"]
    last = query.latest(end, ALL)
    assert last == {JOBS: Mark(6, "jobs!2", 0)}
    assert bodies(broker, query.ranges(end, last)) == numbers(4, 10)


def test_a_lease_that_somebody_has_settled_meanwhile_is_a_loss(broker: FakeBroker, queue: FakeQueue):
    query, end = has_read(broker, queue)
    lease = queue.leases["archive"]
    lease.reserve(0, 8, 1 << 20)
    lease.settle(6)
    with pytest.raises(
        DataLoss, match="lease 'archive' of queue 'jobs' begins at offset 6 now: offsets 4 to 5 are gone"
    ):
        query.latest(end, ALL)


def test_a_queue_that_is_gone_is_a_loss_and_for_a_new_query_a_mistake(broker: FakeBroker, queue: FakeQueue):
    query, end = has_read(broker, queue)
    del broker.queues["jobs"]
    with pytest.raises(DataLoss, match="there is no queue 'jobs' in virtual host '/'"):
        query.latest(end, ALL)
    query.commit(end)
    with pytest.raises(Missing, match="there is no stream or queue 'jobs' in virtual host"):
        planner(broker).initial()


def test_a_queue_that_has_come_again_is_read(broker: FakeBroker, queue: FakeQueue):
    query, end = has_read(broker, queue, failOnDataLoss="false")
    del broker.queues["jobs"]
    assert query.latest(end, ALL) == end
    other = broker.queue("jobs")
    other.opened = 5
    other.fill(2)
    assert bodies(broker, query.ranges(end, query.latest(end, ALL))) == numbers(0, 2)


def test_tasks_share_what_a_micro_batch_has_and_say_what_came_back(broker: FakeBroker, queue: FakeQueue):
    queue.fill(1500)
    queue.publish(message(b"again"), redelivered=True)
    queue.fill(2499)
    query = planner(broker, minPartitions="4")
    start = query.initial()
    ranges = query.ranges(start, query.latest(start, ALL))
    assert [(each.first, each.until) for each in ranges] == [
        (0, 1000),
        (1000, 2000),
        (2000, 3000),
        (3000, 4000),
    ]
    found = rows(broker, ranges)
    assert [row["offset"] for row in found] == list(range(4000))
    assert [row["offset"] for row in found if row["redelivered"]] == [1500]


@pytest.mark.parametrize("option", ["startingOffsets", "startingOffsetsByTimestamp"])
def test_where_to_begin_in_a_queue_is_not_for_the_query_to_say(
    broker: FakeBroker, queue: FakeQueue, option: str
):
    with pytest.raises(BadOption, match=f"option {option} names 'jobs', which is a queue"):
        planner(broker, **{option: '{"jobs":{"0":0}}'}).initial()
    queue.fill(3)
    for general in ({"startingOffsets": "latest"}, {"startingTimestamp": "9999999999999"}):
        assert planner(broker, **general).initial()[JOBS].next == 0


def test_a_queue_needs_a_name_to_be_read_as(broker: FakeBroker, queue: FakeQueue):
    options = read_options({"endpoints": "a", "subscribe": "jobs"}, Use.STREAM)
    asking = client(broker)
    with pytest.raises(
        BadOption,
        match=r"queue 'jobs' .* is no stream; to read a queue, name its reader with the option readerName",
    ):
        Planner(options, asking, Leases(asking)).initial()


def test_a_batch_read_gives_what_is_reserved_and_reserves_nothing(broker: FakeBroker, queue: FakeQueue):
    options = read_options({"endpoints": "a", "subscribe": "jobs", "readerName": "archive"}, Use.BATCH)
    asking = client(broker)
    queue.fill(8)
    with pytest.raises(Missing, match=r"reserve them with leveret\.pipeline\.queue_batch\.QueueBatch"):
        Planner(options, asking, HeldLeases(asking)).batch()
    reserving = Leases(asking)
    first = reserving.look("jobs").first
    assert reserving.reserve("jobs", first, 5, 1 << 20) == 5
    for _ in range(2):  # as in a query that reads it twice
        ranges = Planner(options, asking, HeldLeases(asking)).batch()
        assert bodies(broker, ranges) == numbers(0, 5)
    lease = queue.leases["archive"]
    assert (lease.first, lease.next, lease.fence, len(queue.ready)) == (0, 5, 1, 3)


def test_a_batch_of_queues_is_the_same_until_it_is_committed(
    broker: FakeBroker, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("leveret.pipeline.client.BrokerClient", lambda *_: Closing(broker))
    options = {"endpoints": "a", "subscribe": "jobs", "readerName": "nightly"}
    with pytest.raises(BadOption, match="the options subscribe and readerName"):
        QueueBatch({"endpoints": "a", "subscribe": "jobs"})
    queue.fill(8)
    assert QueueBatch(options, messages=5).messages == 5
    batch = QueueBatch(options, messages=5)  # the program was started again, and has the same ones
    assert (batch.messages, queue.leases["nightly"].next) == (5, 5)
    batch.commit()
    assert (queue.leases["nightly"].first, len(queue.ready)) == (5, 3)
    QueueBatch(options).release()
    assert len(queue.ready) == 3
    overtaken, _ = QueueBatch(options), QueueBatch(options)
    with pytest.raises(Fenced):
        overtaken.commit()


def test_only_the_driver_opens_a_lease_and_nobody_gives_it_back(
    broker: FakeBroker, queue: FakeQueue, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("leveret.pipeline.client.BrokerClient", lambda *_: Closing(broker))
    queue.fill(5)
    reader = StreamReader(read_options(said({}), Use.STREAM), COLUMNS)
    start = reader.initialOffset()
    tasks = reader.partitions(start, reader.latestOffset(start, reader.getDefaultReadLimit()))
    elsewhere: StreamReader = pickle.loads(pickle.dumps(reader))
    (task,) = pickle.loads(pickle.dumps(tasks))
    assert isinstance(task, ReadTask)
    assert sum(batch.num_rows for batch in elsewhere.read(task)) == 5
    elsewhere.stop()
    reader.stop()
    lease = queue.leases["archive"]
    assert (lease.fence, lease.first, lease.next) == (1, 0, 5)
    assert not any("/release" in each for each in broker.asked)


class Closing(Wire):
    def close(self) -> None:
        pass


class Queries(RuleBasedStateMachine):
    """Whatever is published, read, repeated and restarted: each message is in the table once."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = FakeBroker()
        self.queue = self.broker.queue("jobs")
        self.query = planner(self.broker)
        self.marks: Marks | None = None  # as the checkpoint has them
        self.table: list[bytes] = []

    @rule(count=st.integers(1, 5), at_once=st.integers(1, 4))
    def publish(self, count: int, at_once: int) -> None:
        self.queue.fill(count)
        self.queue.at_once = at_once

    @rule(limit=st.none() | st.integers(1, 4), crash=st.booleans(), told=st.booleans())
    def trigger(self, limit: int | None, crash: bool, told: bool) -> None:
        start = self.query.initial() if self.marks is None else self.marks
        end = self.query.latest(start, Limit(messages=limit))
        if end == start:
            return
        if told and self.marks is not None:
            self.query.commit(self.marks)
        if crash:
            bodies(self.broker, self.query.ranges(start, end))  # the table does not get them
            self.query = planner(self.broker)
            start = self.query.initial() if self.marks is None else start
        self.table += bodies(self.broker, self.query.ranges(start, end))
        self.marks = end

    @rule()
    def restart(self) -> None:
        self.query = planner(self.broker)

    @invariant()
    def each_message_is_in_the_table_once(self) -> None:
        assert self.table == numbers(0, len(self.table))

    def teardown(self) -> None:
        self.queue.at_once = 1 << 30
        self.trigger(None, False, True)
        assert len(self.table) == self.queue.published


TestQueries = Queries.TestCase
TestQueries.settings = settings(max_examples=50)

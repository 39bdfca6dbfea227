"""Streams: offsets, readers at their own pace, and retention."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.broker import Outcome
from leveret.errors import PreconditionFailed, Unsupported
from leveret.policy import Policy
from leveret.queues.discarded_messages import PAUSE_S
from leveret.queues.search import TESTS
from leveret.queues.stream import StreamQueue, starting_offset, starting_time
from leveret.queues.stream_log import MemoryLog
from leveret.values import Timestamp, Value
from tests.core.fakes import DEAD, OVERHEAD, FakeConsumer, Only, letters, waiting
from tests.harness.bench import CoreBench, message
from tests.harness.call_count import calls

START = 1_000_000_000  # what the hand-moved clock calls the time


def stream(bench: CoreBench, name: str = "s", **said: Value) -> StreamQueue:
    arguments = {key.replace("_", "-"): value for key, value in said.items()}
    queue = bench.host.declare_queue(name, durable=True, arguments={"x-queue-type": "stream", **arguments})
    assert isinstance(queue, StreamQueue)
    return queue


@pytest.fixture
def queue(bench: CoreBench) -> StreamQueue:
    return stream(bench)


def reader(queue: StreamQueue, start: Value = "first", credit: int = 100) -> FakeConsumer:
    """A consumer from `start` on; it has what there is for it."""
    consumer = FakeConsumer(queue, credit=credit, arguments={"x-stream-offset": start})
    queue.virtual_host.broker.settle()
    return consumer


def offsets(consumer: FakeConsumer) -> list[int]:
    return [delivery.position for delivery in consumer.got]


# Reading.


def test_every_reader_gets_every_message(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", b"a", b"b")
    first, second = reader(queue), reader(queue)
    bench.publish("s", b"c")
    assert first.bodies() == second.bodies() == waiting(queue) == "a b c"
    assert (queue.ready, queue.ready_bytes, queue.delivered, queue.unsettled) == (3, 3, 6, 6)


def test_an_answer_gives_credit_and_takes_nothing_out(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", b"a", b"b", b"c")
    one = reader(queue, credit=1)
    for answer, seen in ((one.accept, "a b"), (one.release, "a b c"), (one.reject, "a b c")):
        answer(one.held[0])
        bench.settle()
        assert one.bodies() == seen
    assert not any(delivery.redelivered or delivery.attempts for delivery in one.got)
    assert (queue.ready, queue.unsettled, queue.accepted) == (3, 0, 1)


def test_what_a_reader_holds_when_it_leaves_is_forgotten(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", b"a")
    one = reader(queue)
    one.leave()
    queue.release(one.held.pop())
    bench.publish("s", b"b")
    assert one.bodies() == "a"
    assert (queue.unsettled, len(queue.consumers)) == (0, 0)
    queue.remove_consumer(one)  # twice is harmless
    assert reader(queue).bodies() == "a b"


def test_a_reader_may_leave_before_it_got_what_it_was_due(bench: CoreBench, queue: StreamQueue) -> None:
    one, other = reader(queue), reader(queue)
    queue.push(message(body=b"a"))
    one.leave()
    bench.settle()
    assert (one.bodies(), other.bodies()) == ("", "a")


def test_deliveries_come_in_batches_as_large_as_credit_and_room(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", *letters(10))
    assert reader(queue, credit=4).batches == [4]
    roomy = FakeConsumer(queue, credit=100, limit=2 * OVERHEAD, arguments={"x-stream-offset": "first"})
    bench.settle()
    assert roomy.batches == [2]
    roomy.drain()
    bench.settle()
    assert roomy.batches == [2, 2]


def test_a_message_in_a_stream_knows_its_offset_and_its_copy_in_a_queue_does_not(bench: CoreBench) -> None:
    queue, plain = stream(bench), bench.queue("q")
    fanout = bench.host.exchanges["amq.fanout"]
    for each in (queue, plain):
        bench.host.bind(fanout, each, "")
    for body in letters(2):
        bench.broker.publish(fanout, message(body=body))
    assert [d.message.notes.offset for d in queue.waiting() if d.message.notes is not None] == [0, 1]
    assert [d.message.notes for d in plain.waiting()] == [None, None]


def test_a_dead_letter_in_a_stream_keeps_its_history(bench: CoreBench) -> None:
    queue = stream(bench, "dead")
    bench.queue("q", **DEAD, x_max_length=0)
    bench.publish("q", b"a")
    (delivery,) = queue.waiting()
    assert delivery.message.notes is not None
    assert (delivery.message.notes.offset, delivery.message.notes.deaths[0].reason) == (0, "maxlen")


def test_expiration_means_nothing_in_a_stream(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", b"a", ttl_ms=10)
    bench.advance(1)
    assert reader(queue).bodies() == "a"


def test_an_immediate_message_wants_a_reader_at_the_end_that_can_take_it(bench: CoreBench) -> None:
    queue = stream(bench)
    publish = bench.broker.publish_immediate
    assert publish(bench.host.default_exchange, message("s", b"a")) is Outcome.UNDELIVERABLE
    one = reader(queue, credit=1)
    assert publish(bench.host.default_exchange, message("s", b"b")) is Outcome.TAKEN
    bench.settle()
    assert publish(bench.host.default_exchange, message("s", b"c")) is Outcome.UNDELIVERABLE
    assert one.bodies() == "b"


# Selecting, and not answering.


def test_a_reader_with_a_selector_passes_over_the_rest(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", b"a1", b"b1", b"a2", b"b2", b"b3")
    wants = Only(b"b")
    picky = FakeConsumer(queue, credit=2, arguments={"x-stream-offset": "first"}, selector=wants)
    bench.settle()
    assert (picky.bodies(), offsets(picky)) == ("b1 b2", [1, 3])
    picky.accept_all()
    bench.publish("s", b"a3", b"b4")
    assert (picky.bodies(), offsets(picky)) == ("b1 b2 b3 b4", [1, 3, 4, 6])
    assert (queue.ready, queue.unsettled, max(wants.looks.values())) == (7, 2, 1)


def test_a_selector_goes_through_a_long_stream_in_portions(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", *[b"a"] * (2 * TESTS), b"b1")
    wants = Only(b"b")
    picky = FakeConsumer(queue, credit=9, arguments={"x-stream-offset": "first"}, selector=wants)
    plain = reader(queue, start="last", credit=2)
    assert (wants.looks.total(), picky.searching, plain.bodies()) == (TESTS, True, "b1")
    bench.publish("s", b"b2")
    assert (wants.looks.total(), plain.bodies()) == (TESTS, "b1 b2")
    for _ in range(2):
        bench.advance(PAUSE_S)
    assert (picky.bodies(), picky.searching, wants.looks.total()) == ("b1 b2", False, 2 * TESTS + 2)
    assert bench.broker.timers.next_at() is None


def test_several_selectors_share_the_time(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", *[b"a"] * (3 * TESTS), b"b")
    for _ in range(2):
        FakeConsumer(queue, credit=9, arguments={"x-stream-offset": "first"}, selector=Only(b"b"))
    for _ in range(7):
        bench.advance(PAUSE_S)
    assert [consumer.bodies() for consumer in queue.consumers if isinstance(consumer, FakeConsumer)] == [
        "b",
        "b",
    ]


def test_a_search_of_a_deleted_stream_is_over(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", *[b"a"] * (TESTS + 1))
    FakeConsumer(queue, credit=9, arguments={"x-stream-offset": "first"}, selector=Only(b"b"))
    bench.settle()
    bench.host.delete_queue(queue)
    assert bench.broker.timers.next_at() is None


def test_an_immediate_message_wants_a_reader_that_wants_it(bench: CoreBench, queue: StreamQueue) -> None:
    picky = FakeConsumer(queue, credit=9, selector=Only(b"b"))
    FakeConsumer(queue, credit=9, browses=True)
    publish, exchange = bench.broker.publish_immediate, bench.host.default_exchange
    assert publish(exchange, message("s", b"a")) is Outcome.UNDELIVERABLE
    assert publish(exchange, message("s", b"b")) is Outcome.TAKEN
    bench.settle()
    assert picky.bodies() == "b"


def test_a_reader_that_browses_is_not_expected_to_answer(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", *letters(3))
    looks = FakeConsumer(queue, credit=2, arguments={"x-stream-offset": "first"}, browses=True)
    bench.settle()
    assert (looks.bodies(), looks.credit, queue.unsettled, queue.delivered) == ("a b", 0, 0, 0)
    looks.grant(1)
    bench.settle()
    assert looks.bodies() == "a b c"


def test_a_settled_reader_has_credit_to_limit_it(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", *letters(3))
    one = FakeConsumer(queue, settled=True, credit=2, arguments={"x-stream-offset": "first"})
    bench.settle()
    assert (one.bodies(), queue.unsettled, queue.accepted) == ("a b", 0, 2)


# What a stream does not do.


def test_a_stream_refuses_get_and_purge() -> None:
    queue = stream(CoreBench())
    with pytest.raises(
        Unsupported, match=r"^basic\.get not supported by stream queues queue 's' in vhost '/'$"
    ):
        queue.take_one(True)
    with pytest.raises(Unsupported, match=r"^queue\.purge not supported by stream queues queue 's' in"):
        queue.purge()


def test_a_reader_must_limit_what_it_gets() -> None:
    queue = stream(CoreBench())
    with pytest.raises(PreconditionFailed, match="consumer prefetch count is not set for stream queue 's'"):
        FakeConsumer(queue)
    with pytest.raises(Unsupported, match="automatic acknowledgement not supported by stream queue 's'"):
        FakeConsumer(queue, settled=True)
    assert not queue.consumers


def test_readers_do_not_exclude_each_other() -> None:
    queue = stream(CoreBench())
    FakeConsumer(queue, credit=1, exclusive=True)
    FakeConsumer(queue, credit=1, exclusive=True)
    assert len(queue.consumers) == 2


def test_the_readers_of_a_deleted_stream_are_told(bench: CoreBench) -> None:
    queue = stream(bench, x_max_age="10s")
    bench.publish("s", b"a")
    one = reader(queue)
    assert bench.host.delete_queue(queue) == 1
    assert (one.ended, one.attached, queue.ready, list(queue.waiting())) == (1, False, 0, [])
    assert bench.broker.timers.next_at() is None
    one.accept_all()
    bench.settle()


# Where a reader begins.


def log_of(*times: float) -> MemoryLog:
    log = MemoryLog()
    for time in times:
        log.append(message(), time)
    return log


def log_without_the_first(*times: float) -> MemoryLog:
    log = log_of(*times)
    log.retain(None, times[0])
    return log


@pytest.mark.parametrize(
    ("asked", "offset"),
    [
        (None, 4),
        ("first", 1),
        (b"first", 1),
        ("last", 3),
        ("next", 4),
        (0, 1),
        (1, 1),
        (2, 2),
        (4, 4),
        (1 << 62, 4),
        (Timestamp(0), 1),
        (Timestamp(START + 10), 1),
        (Timestamp(START + 11), 2),
        (Timestamp(START + 20), 2),
        (Timestamp(START + 31), 4),
        ("1D", 1),
        ("20s", 2),
        ("19s", 3),
        ("0s", 4),
    ],
)
def test_a_reader_begins_where_it_asks(asked: Value, offset: int) -> None:
    log = log_without_the_first(START, START + 10, START + 20, START + 30)
    assert start(asked, log, START + 40) == offset


def start(asked: Value, log: MemoryLog, wall: float) -> int:
    found = starting_offset(asked, log)
    if found is None:
        since = starting_time(asked, wall)
        assert since is not None
        found = since_in(log, since)
    return found


def since_in(log: MemoryLog, wall: float) -> int:
    found: list[int] = []
    log.offset_since(wall, found.append)
    return found[0]


@pytest.mark.parametrize("asked", ["first", "last", "next", 0, 7, Timestamp(START), "1h", None])
def test_in_an_empty_stream_every_beginning_is_the_next_message(asked: Value) -> None:
    assert start(asked, log_without_the_first(START), START) == 1


class LateLog(MemoryLog):
    """It takes its time to find out what arrived when."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Callable[[], None]] = []

    def offset_since(self, wall: float, then: Callable[[int], None]) -> None:
        self.found.append(lambda: super(LateLog, self).offset_since(wall, then))


def late(bench: CoreBench) -> tuple[StreamQueue, LateLog]:
    queue = stream(bench)
    queue.log = log = LateLog()
    bench.publish("s", b"a")
    bench.clock.advance(10)
    bench.broker.tick()
    bench.publish("s", b"b", b"c")
    return queue, log


def test_a_reader_who_asks_for_a_time_waits_until_its_place_is_found(bench: CoreBench) -> None:
    queue, log = late(bench)
    reader = FakeConsumer(queue, credit=1, arguments={"x-stream-offset": "5s"})
    bench.settle()
    reader.grant(1)
    bench.publish("s", b"d")
    assert (reader.bodies(), queue.seeks_for(reader)) == ("", True)
    log.found.pop()()
    bench.settle()
    assert (reader.bodies(), queue.seeks_for(reader)) == ("b c", False)
    reader.grant(5)
    bench.settle()
    assert reader.bodies() == "b c d"


def test_a_reader_who_leaves_before_its_place_is_found_is_given_nothing(bench: CoreBench) -> None:
    queue, log = late(bench)
    reader = FakeConsumer(queue, credit=9, arguments={"x-stream-offset": "5s"})
    reader.leave()
    log.found.pop()()
    bench.settle()
    assert reader.bodies() == ""


@pytest.mark.parametrize("asked", ["", "First", "tomorrow", "7", "7d", "D", -1, 1.5, True, [0], {"first": 1}])
def test_what_is_no_offset_is_refused_in_clear_words(asked: Value) -> None:
    queue = stream(CoreBench())
    with pytest.raises(
        PreconditionFailed,
        match=r"^invalid arg 'x-stream-offset' for queue 's' in vhost '/': '.*' is not first, last, next, "
        r"an offset, a timestamp or an age such as 7D \(units Y M D h m s\)$",
    ):
        FakeConsumer(queue, credit=1, arguments={"x-stream-offset": asked})
    assert not queue.consumers


def test_a_clock_that_is_set_back_does_not_disturb_the_order_of_times() -> None:
    log = log_of(START, START + 10, START + 5, START + 20)
    assert [since_in(log, START + seconds) for seconds in (1, 6, 10, 11, 21)] == [1, 1, 1, 3, 4]


def test_a_stream_may_begin_with_another_offset(bench: CoreBench) -> None:
    queue = stream(bench, x_stream_initial_offset=1000, x_max_length_bytes=2)
    early = reader(queue, 3)
    for body in (b"a", b"b", b"c"):
        bench.publish("s", body)
    assert offsets(early) == [1000, 1001, 1002]
    assert offsets(reader(queue, "first")) == [1001, 1002]
    assert offsets(reader(queue, 1002)) == [1002]
    assert queue.available_to(early) == 0


@pytest.mark.parametrize("offset", [-1, 1 << 62, "7", True])
def test_the_first_offset_is_a_number(bench: CoreBench, offset: Value) -> None:
    with pytest.raises(PreconditionFailed, match="invalid arg 'x-stream-initial-offset'"):
        bench.host.declare_queue(
            "s", durable=True, arguments={"x-queue-type": "stream", "x-stream-initial-offset": offset}
        )


# Retention.


def test_a_stream_lets_the_oldest_go_for_its_size_but_never_the_newest(bench: CoreBench) -> None:
    queue = stream(bench, x_max_length_bytes=3)
    bench.publish("s", *letters(5))
    assert (waiting(queue), queue.ready_bytes) == ("c d e", 3)
    bench.publish("s", b"larger than all")
    assert waiting(queue) == "larger than all"
    assert offsets(reader(queue)) == [5]


def test_a_stream_lets_messages_go_when_they_are_old(bench: CoreBench) -> None:
    queue = stream(bench, x_max_age="10s")
    bench.publish("s", b"a")
    bench.advance(6)
    bench.publish("s", b"b")
    bench.advance(3.9)
    assert waiting(queue) == "a b"
    bench.advance(0.1)
    assert waiting(queue) == "b"
    bench.advance(6)
    assert (waiting(queue), queue.ready_bytes) == ("", 0)
    assert bench.broker.timers.next_at() is None  # nothing to wait for
    bench.publish("s", b"c")
    bench.advance(10)
    assert waiting(queue) == ""


def test_ages_are_looked_at_once_a_second_at_most(bench: CoreBench) -> None:
    stream(bench, x_max_age="10s")
    for _ in range(5):
        bench.publish("s", b"a")
        bench.advance(0.1)
    bench.advance(9.5)  # the first is ten seconds old
    assert bench.broker.timers.next_at() == bench.clock.now() + 1
    bench.advance(1)
    assert bench.broker.timers.next_at() is None


def test_a_policy_bounds_a_stream_from_then_on(bench: CoreBench, queue: StreamQueue) -> None:
    bench.publish("s", *letters(4))
    bench.broker.policies.set(Policy("p", "/", "s", {"max-length-bytes": 2, "max-age": "1m"}))
    bench.host.apply_policies()
    assert waiting(queue) == "c d"
    bench.advance(60)
    assert waiting(queue) == ""
    bench.broker.policies.clear("/", "p")
    bench.host.apply_policies()
    bench.publish("s", *letters(4))
    bench.advance(60)
    assert waiting(queue) == "a b c d"


def test_a_reader_that_retention_has_overtaken_goes_on_with_what_is_left(bench: CoreBench) -> None:
    queue = stream(bench, x_max_length_bytes=2)
    bench.publish("s", b"a")
    slow = reader(queue, credit=1)
    bench.publish("s", *letters(5)[1:])
    slow.grant(10)
    bench.settle()
    assert offsets(slow) == [0, 3, 4]


def test_what_is_dropped_is_soon_forgotten() -> None:
    log = log_without_the_first(*range(1000))
    assert (log.first, log.oldest_at, since_in(log, 0)) == (1, 1, 1)
    for oldest in range(1, 990):
        log.retain(None, oldest)
    assert len(log._messages) <= 12
    assert (log.first, log.next, since_in(log, 995)) == (990, 1000, 995)


# The price.


def test_who_has_no_credit_or_room_is_not_looked_at(bench: CoreBench, queue: StreamQueue) -> None:
    poor, full = reader(queue, credit=0), FakeConsumer(queue, credit=9, limit=0)
    bench.settle()
    before = poor.looks, full.looks
    bench.publish("s", *letters(20))
    assert (poor.looks, full.looks) == before


def test_an_answer_of_one_reader_is_no_look_at_the_others(bench: CoreBench, queue: StreamQueue) -> None:
    others = [reader(queue) for _ in range(20)]
    busy = reader(queue, credit=1)
    bench.publish("s", *letters(3))
    before = [other.looks for other in others]
    busy.accept_all()
    bench.settle()
    assert busy.bodies() == "a b"
    assert [other.looks for other in others] == before


def test_a_delivery_costs_the_same_at_any_offset_with_any_number_of_readers() -> None:
    def price(readers: int) -> float:
        """Python calls for each delivery of a message to so many readers, spread over a long log."""
        bench = CoreBench()
        queue = stream(bench)
        bench.publish("s", *[b"x"] * 2000)
        consumers = [FakeConsumer(queue, credit=10, arguments={"x-stream-offset": n}) for n in range(readers)]
        counted = calls(bench.settle)
        assert [offsets(c)[-1] - offsets(c)[0] for c in consumers] == [9] * readers
        return counted.total() / readers

    assert price(1000) <= price(10) < 30

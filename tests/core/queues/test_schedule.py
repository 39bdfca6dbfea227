"""Messages that wait for a time: when they are ready, in which order, and what happens to them before."""

from __future__ import annotations

import pytest

from leveret.broker import Outcome
from leveret.delivery import Delivery
from leveret.errors import PreconditionFailed
from leveret.message import Facts, Message
from leveret.policy import ApplyTo, Policy
from leveret.protocols.amqp010.broker.encoding import ENCODING as ENCODING010
from leveret.protocols.amqp091.broker.encoding import ENCODING as ENCODING091
from leveret.queues.backoff import LONGEST_S, Backoff
from leveret.queues.queue import Queue
from leveret.queues.work_queue import WorkQueue
from leveret.transaction import Transaction
from leveret.values import Properties, Table, Timestamp, Value
from tests.core.fakes import FakeConsumer, fetched, waiting
from tests.durable.paged import PagedBench, paged_out
from tests.harness.bench import ENCODING, CoreBench

RETRY: dict[str, Value] = {
    "x_delayed_retry_type": "all",
    "x_delayed_retry_min": 1000,
    "x_delayed_retry_max": 3000,
}
DEAD: dict[str, Value] = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}


def retrying(bench: CoreBench, **said: Value) -> WorkQueue:
    queue = bench.queue(**{**RETRY, **said})
    assert isinstance(queue, WorkQueue)
    return queue


def give_back(bench: CoreBench, queue: Queue, failed: bool = True, until: float = -1.0) -> Delivery:
    """Fetch the next message, and give it back."""
    delivery = fetched(queue, settled=False)
    queue.release(delivery, failed, until=until)
    bench.settle()
    return delivery


def at_hand(queue: WorkQueue) -> tuple[str, int, int]:
    return waiting(queue), queue.ready, queue.delayed


# How long.


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Backoff(1000, 3000, "all", None), [1, 1, 2, 3, 3]),
        (Backoff(1000, None, "all", None), [1, 1, 1, 1, 1]),
        (Backoff(1000, None, None, None), [1, 1, 2, 3, 4]),
        (Backoff(500, None, None, 2), [0.5, 0.5, 1, 2, 4]),
        (Backoff(500, 1500, "failed", 2), [0.5, 0.5, 1, 1.5, 1.5]),
        (Backoff(500, None, "failed", 1), [0.5] * 5),
        (Backoff(500, 9000, "returned", 2), [0] * 5),
    ],
)
def test_the_wait_grows_with_the_attempts(backoff: Backoff, expected: list[float]) -> None:
    assert [backoff.wait_s(attempts, is_failure=True) for attempts in range(5)] == expected


def test_no_wait_is_longer_than_49_days_without_a_maximum() -> None:
    assert Backoff(1000, None, None, (1 << 31) - 1).wait_s(1 << 40, is_failure=True) == LONGEST_S


@pytest.mark.parametrize(
    ("type_", "waits"),
    [
        ("disabled", (False, False, False)),
        ("all", (True, True, True)),
        ("failed", (True, False, False)),
        ("returned", (False, True, True)),
    ],
)
def test_the_type_says_which_messages_wait(bench: CoreBench, type_: str, waits: tuple[bool, ...]) -> None:
    queue = retrying(bench, x_delayed_retry_type=type_)
    bench.publish("q", b"a", b"b", b"c")
    failed, released, handed_back = [fetched(queue, settled=False) for _ in range(3)]
    queue.release(failed)
    queue.release(released, failed=False)
    queue.hand_back(handed_back)
    assert [b not in waiting(queue) for b in "abc"] == [*waits]
    assert queue.delayed == sum(waits)
    assert handed_back.attempts == 1, "it counts towards the delivery limit whatever the back-off makes of it"


def test_what_a_consumer_never_had_waits_for_no_time(bench: CoreBench) -> None:
    queue = retrying(bench)
    bench.publish("q", b"a")
    queue.release(fetched(queue, settled=False), failed=False, redelivered=False)
    assert at_hand(queue) == ("a", 1, 0)


def test_policies_switch_the_delay_on_and_off_for_the_retries_that_follow(bench: CoreBench) -> None:
    queue = bench.queue()
    assert isinstance(queue, WorkQueue)
    bench.broker.policies.set(Policy("p", "/", "q", {"delayed-retry-min": 2000, "delayed-retry-type": "all"}))
    bench.host.apply_policies()
    bench.publish("q", b"a", b"b")
    give_back(bench, queue)
    bench.broker.policies.clear("/", "p")
    bench.host.apply_policies()
    give_back(bench, queue)
    assert at_hand(queue) == ("b", 1, 1)
    bench.advance(2)
    assert at_hand(queue) == ("a b", 2, 0)


def test_an_operators_maximum_and_the_higher_minimum_hold(bench: CoreBench) -> None:
    queue = retrying(bench)
    policies = bench.broker.policies
    policies.set(Policy("p", "/", "q", {"delayed-retry-min": 10, "delayed-retry-type": "failed"}))
    policies.set_operator(Policy("o", "/", "q", {"delayed-retry-min": 20, "delayed-retry-max": 30}))
    bench.host.apply_policies()
    limits = queue.limits
    assert (limits.retry_type, limits.retry_min_ms, limits.retry_max_ms) == ("failed", 20, 30)


@pytest.mark.parametrize(
    "said",
    [
        {"x_delayed_retry_type": "sometimes"},
        {"x_delayed_retry_min": 0},
        {"x_delayed_retry_min": 5, "x_delayed_retry_max": 4},
        {"x_delayed_retry_multiplier": 0},
        {"x_queue_type": "stream", "x_delayed_retry_min": 5},
    ],
)
def test_wrong_arguments_are_refused(bench: CoreBench, said: dict[str, Value]) -> None:
    with pytest.raises(PreconditionFailed):
        bench.queue(**said)


@pytest.mark.parametrize(
    "definition",
    [
        {"delayed-retry-type": "all"},
        {"delayed-retry-min": 5, "delayed-retry-max": 4},
        {"delayed-retry-multiplier": "2"},
    ],
)
def test_wrong_policies_are_refused(bench: CoreBench, definition: dict[str, Value]) -> None:
    with pytest.raises(PreconditionFailed):
        bench.broker.policies.set(Policy("p", "/", "q", definition))


# When, and where.


def test_a_message_comes_back_to_its_old_place_when_it_is_due_and_not_before(bench: CoreBench) -> None:
    queue = retrying(bench)
    bench.publish("q", b"a", b"b", b"c")
    give_back(bench, queue)
    assert at_hand(queue) == ("b c", 2, 1)
    bench.advance(0.999)
    assert at_hand(queue) == ("b c", 2, 1)
    bench.advance(0.001)
    assert at_hand(queue) == ("a b c", 3, 0)
    assert (queue.later.octets, queue.ready_bytes) == (0, 3)


def test_the_next_wait_is_longer_and_consumers_are_told_the_attempts(bench: CoreBench) -> None:
    queue = retrying(bench)
    consumer = FakeConsumer(queue)
    bench.publish("q", b"a")
    for seconds in (1, 2, 3, 3):
        consumer.release(consumer.held[0])
        bench.settle()
        bench.advance(seconds - 0.25)
        assert not consumer.held
        bench.advance(0.25)
        assert len(consumer.held) == 1
    last = consumer.held[0]
    assert (last.counted_attempts, last.redelivered, queue.redelivered) == (4, True, 4)


def test_an_explicit_time_wins_over_the_back_off_and_needs_none(bench: CoreBench) -> None:
    queue = bench.queue()
    assert isinstance(queue, WorkQueue)
    bench.publish("q", b"a")
    give_back(bench, queue, failed=False, until=bench.broker.now + 5)
    bench.advance(4.5)
    assert at_hand(queue) == ("", 0, 1)
    bench.advance(0.5)
    assert at_hand(queue) == ("a", 1, 0)


def test_messages_wait_in_their_priority_again(bench: CoreBench) -> None:
    queue = retrying(bench, x_max_priority=2)
    bench.publish("q", b"low")
    bench.publish("q", b"high", priority=2)
    give_back(bench, queue)
    give_back(bench, queue)
    bench.publish("q", b"middle", priority=1)
    bench.advance(1)
    assert waiting(queue) == "high middle low"


def test_the_single_active_consumer_gets_what_is_due(bench: CoreBench) -> None:
    queue = retrying(bench, x_single_active_consumer=True)
    first, second = FakeConsumer(queue), FakeConsumer(queue)
    bench.publish("q", b"a")
    first.release(first.held[0])
    bench.settle()
    first.leave()
    bench.advance(1)
    assert (first.bodies(), second.bodies()) == ("a", "a")


def test_a_fetch_finds_nothing_before_the_time(bench: CoreBench) -> None:
    queue = retrying(bench)
    bench.publish("q", b"a")
    give_back(bench, queue)
    assert queue.take_one(settled=True) is None
    bench.advance(1)
    assert fetched(queue, settled=True).message.body == b"a"


def test_browsers_see_what_is_due(bench: CoreBench) -> None:
    queue = retrying(bench)
    browser = FakeConsumer(queue, browses=True)
    bench.publish("q", b"a", b"b")
    give_back(bench, queue)
    bench.advance(1)
    assert set(browser.bodies().split()) == {"a", "b"}


def test_one_timer_serves_all_that_wait(bench: CoreBench) -> None:
    queue = retrying(bench)
    bench.publish("q", *[b"%d" % number for number in range(100)])
    for _ in range(100):
        give_back(bench, queue)
    timers = [each for each in bench.broker.timers._heap if not each.cancelled]
    assert (len(timers), queue.delayed) == (1, 100)


def test_a_queue_without_messages_that_wait_has_no_schedule(bench: CoreBench) -> None:
    queue = retrying(bench)
    bench.publish("q", b"a")
    fetched(queue, settled=True)
    assert queue.schedule is None


# What else may happen.


def test_the_delivery_limit_holds_at_once(bench: CoreBench) -> None:
    dead = bench.queue("dead")
    queue = retrying(bench, x_delivery_limit=1, **DEAD)
    bench.publish("q", b"a")
    give_back(bench, queue)
    bench.advance(1)
    give_back(bench, queue)
    assert (waiting(dead), queue.delayed, queue.ready) == ("a", 0, 0)


def test_a_message_expires_while_it_waits(bench: CoreBench) -> None:
    dead = bench.queue("dead")
    queue = retrying(bench, **DEAD)
    bench.publish("q", b"a", ttl_ms=500)
    give_back(bench, queue)
    bench.advance(0.499)
    assert (waiting(dead), queue.delayed) == ("", 1)
    bench.advance(0.001)
    assert (waiting(dead), queue.delayed, queue.expiring) == ("a", 0, 0)


def test_its_time_to_live_goes_on_when_it_is_due(bench: CoreBench) -> None:
    dead = bench.queue("dead")
    queue = retrying(bench, **DEAD)
    bench.publish("q", b"a", ttl_ms=1500)
    give_back(bench, queue)
    bench.advance(1)
    assert (waiting(queue), queue.expiring) == ("a", 1)
    bench.advance(0.5)
    assert (waiting(dead), queue.ready) == ("a", 0)


def test_what_waits_counts_towards_the_length(bench: CoreBench) -> None:
    queue = retrying(bench, x_max_length=2, x_overflow="reject-publish")
    bench.publish("q", b"a", b"b")
    give_back(bench, queue)
    bench.publish("q", b"c")
    assert at_hand(queue) == ("b", 1, 1)
    assert queue.refused == 1


def test_ready_messages_are_dropped_before_those_that_wait(bench: CoreBench) -> None:
    dead = bench.queue("dead")
    queue = retrying(bench, x_max_length=2, **DEAD)
    bench.publish("q", b"a", b"b")
    give_back(bench, queue)
    bench.publish("q", b"c", b"d")
    assert at_hand(queue) == ("d", 1, 1)
    give_back(bench, queue)
    bench.broker.policies.set(Policy("p", "/", "q", {"max-length": 1}))
    bench.host.apply_policies()
    bench.settle()
    assert (waiting(dead), queue.delayed) == ("b c a", 1)


def test_a_purge_drops_what_waits(bench: CoreBench) -> None:
    queue = retrying(bench)
    bench.publish("q", b"a", b"b")
    give_back(bench, queue)
    assert queue.purge() == 2
    bench.advance(5)
    assert (at_hand(queue), queue.later.octets) == (("", 0, 0), 0)


def test_a_queue_in_which_messages_wait_is_not_empty(bench: CoreBench) -> None:
    queue = retrying(bench)
    bench.publish("q", b"a")
    give_back(bench, queue)
    with pytest.raises(PreconditionFailed, match="not empty"):
        bench.host.delete_queue(queue, if_empty=True)
    bench.host.delete_queue(queue)
    bench.advance(5)
    assert bench.broker.timers.next_at() is None


def test_what_waits_is_dead_lettered_with_its_queue_where_that_is_asked_for(bench: CoreBench) -> None:
    other = bench.queue("other")
    exchange = bench.host.declare_exchange("ae", "fanout")
    bench.host.bind(exchange, other, "", {})
    queue = retrying(bench, x_alternate_exchange="ae")
    bench.publish("q", b"a", b"b")
    give_back(bench, queue)
    bench.host.delete_queue(queue)
    bench.settle()
    assert waiting(other) == "b a"


def test_a_message_that_waits_can_be_dropped_or_hastened(bench: CoreBench) -> None:
    queue = retrying(bench)
    bench.publish("q", b"a", b"b", b"c")
    for _ in range(3):
        give_back(bench, queue)
    schedule = queue.scheduled()
    assert [item.position for item in schedule.first(2)] == [0, 1]
    assert (schedule.drop([1, 7]), schedule.hasten([2, 1])) == (1, 1)
    bench.advance(0)
    assert (at_hand(queue), queue.later.octets) == (("c", 1, 1), 1)
    bench.advance(1)
    assert waiting(queue) == "a c"


def test_a_group_goes_on_while_one_of_its_messages_waits(bench: CoreBench) -> None:
    queue = retrying(bench, x_message_group_key="of")
    consumer = FakeConsumer(queue, credit=1)
    bench.publish("q", b"a1", b"a2")
    consumer.release(consumer.held[0])
    bench.settle()
    assert consumer.bodies() == "a1 a2"
    consumer.accept(consumer.held[0])
    bench.advance(1)
    assert consumer.bodies() == "a1 a2 a1"


def test_a_newer_value_drops_what_waits(bench: CoreBench) -> None:
    queue = retrying(bench, x_last_value_key="of")
    bench.publish("q", b"old")
    give_back(bench, queue)
    bench.publish("q", b"new")
    bench.advance(1)
    assert at_hand(queue) == ("new", 1, 0)
    assert fetched(queue, settled=True).message.body == b"new"
    bench.publish("q", b"last")
    give_back(bench, queue)
    bench.advance(1)
    assert at_hand(queue) == ("last", 1, 0)


# Memory.


def delayed(bench: PagedBench, count: int, durable: bool = True, **said: Value) -> WorkQueue:
    queue = bench.queue(**{**RETRY, **said})
    bench.put(*[b"%d" % number for number in range(count)], durable=durable)
    for _ in range(count):
        give_back(bench, queue)
    return queue


@pytest.mark.parametrize("durable", [True, False])
def test_messages_that_wait_are_paged_out_and_read_when_they_are_due(durable: bool) -> None:
    bench = PagedBench()
    queue = delayed(bench, 5, durable)
    paged_out(queue)
    bench.settle()
    paged_out(queue)
    schedule = queue.scheduled()
    assert (schedule.away, schedule.away_octets, queue.later.octets) == (5, 5, 5)
    bench.advance(1)
    assert at_hand(queue) == ("", 0, 5), "they are being read"
    bench.read_all()
    assert at_hand(queue) == ("0 1 2 3 4", 5, 0)
    assert (schedule.away, schedule.away_octets) == (0, 0)
    assert [fetched(queue, True).attempts for _ in range(5)] == [1] * 5
    bench.settle()
    assert bench.disk.chunks() == []


def test_what_is_on_disk_only_can_be_dropped_hastened_and_purged_also_while_it_is_read() -> None:
    bench = PagedBench()
    queue = delayed(bench, 6)
    paged_out(queue)
    schedule = queue.scheduled()
    assert (schedule.drop([1]), schedule.hasten([2])) == (1, 1)
    bench.advance(0)
    bench.read_all()
    assert at_hand(queue) == ("2", 1, 4)
    bench.advance(1)
    assert (schedule.drop([3]), schedule.hasten([4])) == (1, 1)
    bench.read()
    bench.advance(0)
    bench.read_all()
    assert at_hand(queue) == ("0 2 4 5", 4, 0)
    paged = delayed(PagedBench(), 3)
    paged_out(paged)
    assert (paged.purge(), paged.delayed, paged.scheduled().away) == (3, 0, 0)


def test_what_a_consumer_must_not_have_again_waits_in_memory() -> None:
    bench = PagedBench()
    queue = bench.queue()
    bench.put(b"a", b"b")
    consumer = FakeConsumer(queue)
    bench.settle()
    for delivery in [*consumer.held]:
        consumer.send_elsewhere(delivery, until=bench.broker.now + 1)
    bench.settle()
    paged_out(queue)
    bench.advance(1)
    bench.read_all()
    assert (consumer.bodies(), queue.ready) == ("a b", 2)


def test_what_is_on_disk_only_is_read_to_be_dead_lettered() -> None:
    bench = PagedBench()
    dead = bench.queue("dead")
    queue = delayed(bench, 4, x_max_length=4, **DEAD)
    paged_out(queue)
    bench.broker.policies.set(Policy("p", "/", "q", {"max-length": 3}))
    bench.host.apply_policies()
    bench.settle()
    assert (waiting(dead), queue.delayed) == ("0", 3)
    queue.bury_all()
    bench.settle()
    assert (waiting(dead), queue.delayed) == ("0 1 2 3", 0)


# Messages that are published for later.


def scheduled(
    body: bytes, bench: CoreBench, delay_s: float, ttl_ms: int | None = None, durable: bool = False
) -> Message:
    """A message for the queue `q` that is ready after so long."""
    due_ms = int((bench.clock.wall() + delay_s) * 1000)
    return Message(ENCODING, "", "q", b"", body, Facts(durable=durable, ttl_ms=ttl_ms, due_ms=due_ms))


def schedule(bench: CoreBench, *delays_s: float, ttl_ms: int | None = None) -> None:
    """Publish messages that are named by their delays."""
    for delay_s in delays_s:
        made = scheduled(b"%g" % delay_s, bench, delay_s, ttl_ms)
        assert bench.broker.publish(bench.host.default_exchange, made) is Outcome.TAKEN
    bench.settle()


def test_a_message_is_delivered_when_it_is_due_not_flagged_as_redelivered(bench: CoreBench) -> None:
    queue = bench.queue()
    assert isinstance(queue, WorkQueue)
    consumer = FakeConsumer(queue)
    schedule(bench, 3, 1, 2)
    assert (consumer.bodies(), queue.delayed, queue.published) == ("", 3, 3)
    bench.advance(0.999)
    assert consumer.bodies() == ""
    for expected in ("1", "1 2", "1 2 3"):
        bench.advance(1)
        assert consumer.bodies() == expected
    assert not any(delivery.redelivered for delivery in consumer.got)
    assert queue.redelivered == 0


def test_what_is_due_waits_at_the_place_of_its_arrival(bench: CoreBench) -> None:
    queue = bench.queue()
    bench.publish("q", b"a")
    schedule(bench, 2, 1)
    bench.publish("q", b"b")
    bench.advance(5)
    assert waiting(queue) == "a 2 1 b"


@pytest.mark.parametrize("delay_s", [0, -5])
def test_what_is_due_at_once_is_like_any_other_message(bench: CoreBench, delay_s: float) -> None:
    queue = bench.queue()
    assert isinstance(queue, WorkQueue)
    schedule(bench, delay_s)
    assert (queue.ready, queue.schedule) == (1, None)


def test_a_scheduled_message_lives_from_its_arrival_on(bench: CoreBench) -> None:
    dead = bench.queue("dead")
    queue = bench.queue(**DEAD)
    schedule(bench, 3, ttl_ms=1000)
    bench.advance(1)
    assert (waiting(dead), queue.delayed) == ("3", 0)
    assert dead.delayed == 0, "a dead letter is for now"


def test_scheduled_messages_fill_a_queue(bench: CoreBench) -> None:
    queue = bench.queue(x_max_length=2, x_overflow="reject-publish")
    schedule(bench, 5, 6)
    outcome = bench.broker.publish(bench.host.default_exchange, scheduled(b"x", bench, 1))
    assert (outcome, queue.delayed) == (Outcome.REFUSED, 2)
    other = bench.queue("other", x_max_length=2)
    for delay_s in (5, 4, 6):
        other.push(scheduled(b"%d" % delay_s, bench, delay_s))
    bench.settle()
    bench.advance(10)
    assert waiting(other) == "5 6", "of those that wait the ones that are due first are dropped"


def test_runs_of_scheduled_messages_are_put_off_one_by_one(bench: CoreBench) -> None:
    queue = bench.queue()
    run = [scheduled(b"x", bench, 1)] * 10
    bench.publish("q", b"first")
    assert bench.broker.publish_run(bench.host.default_exchange, run) == 0
    assert (queue.takes_of(run), queue.ready) == (0, 1)


def test_an_immediate_message_cannot_be_for_later(bench: CoreBench) -> None:
    queue = bench.queue()
    consumer = FakeConsumer(queue)
    exchange = bench.host.default_exchange
    assert bench.broker.publish_immediate(exchange, scheduled(b"x", bench, 1)) is Outcome.UNDELIVERABLE
    assert bench.broker.publish_immediate(exchange, scheduled(b"now", bench, 0)) is Outcome.TAKEN
    bench.settle()
    assert consumer.bodies() == "now"


def test_the_last_of_values_is_replaced_when_a_message_is_due(bench: CoreBench) -> None:
    queue = bench.queue(x_last_value_key="of")
    schedule(bench, 2)
    bench.publish("q", b"now")
    assert waiting(queue) == "now"
    bench.advance(2)
    assert at_hand_of(queue) == ("now", 1, 0), "the one that arrived last is kept"
    fetched(queue, settled=True)
    bench.publish("q", b"old")
    schedule(bench, 1)
    bench.advance(1)
    assert at_hand_of(queue) == ("1", 1, 0)


def at_hand_of(queue: Queue) -> tuple[str, int, int]:
    return waiting(queue), queue.ready, queue.delayed


def test_numbers_are_in_order_of_arrival(bench: CoreBench) -> None:
    queue = bench.queue(x_sequence_header="n")
    schedule(bench, 1)
    bench.publish("q", b"a")
    bench.advance(1)
    assert (waiting(queue), queue.ready) == ("1 a", 2)
    assert [delivery.position for delivery in queue.waiting()] == [0, 1]


# Headers, where an exchange or a queue reads them.


def with_headers(**said: Value) -> Message:
    headers = {name.replace("_", "-"): value for name, value in said.items()}
    properties = ENCODING091.write(Properties(headers=headers))
    facts, properties = ENCODING091.published(properties)
    return Message(ENCODING091, "", "q", properties, b"x", facts)


@pytest.mark.parametrize(
    ("headers", "delay_s"),
    [
        ({"x_delay": 2000}, 2),
        ({"x_opt_delivery_delay": 3000, "x_delay": 2000}, 3),
        ({"x_opt_delivery_time": 1_000_000_004_000, "x_delay": 2000}, 4),
        ({"x_opt_delivery_time": Timestamp(1_000_000_005)}, 5),
        ({"x_delay": "2000"}, 0),
        ({"x_delay": -1}, 0),
        ({"x_delay": True}, 0),
        ({}, 0),
    ],
)
@pytest.mark.parametrize("how", ["queue argument", "queue policy", "exchange argument", "exchange policy"])
def test_headers_delay_where_an_argument_or_a_policy_says_so(
    bench: CoreBench, headers: dict[str, Value], delay_s: float, how: str
) -> None:
    by_argument = "argument" in how
    queue = bench.queue(**({"x_delayed_message": True} if how == "queue argument" else {}))
    arguments: Table = {"x-delayed-exchange": True} if how == "exchange argument" else {}
    exchange = bench.host.declare_exchange("x", "fanout", arguments=arguments)
    bench.host.bind(exchange, queue, "", {})
    if not by_argument:
        reach = ApplyTo.QUEUES if "queue" in how else ApplyTo.EXCHANGES
        bench.broker.policies.set(Policy("p", "/", ".*", {"delayed-message": True}, apply_to=reach))
        bench.host.apply_policies()
    assert bench.broker.publish(exchange, with_headers(**headers)) is Outcome.TAKEN
    bench.settle()
    assert (queue.ready, queue.delayed) == ((0, 1) if delay_s else (1, 0))
    if delay_s:
        bench.advance(delay_s - 0.01)
        assert queue.ready == 0
        bench.advance(0.01)
        assert queue.ready == 1


def test_a_header_alone_changes_nothing(bench: CoreBench) -> None:
    queue = bench.queue()
    assert isinstance(queue, WorkQueue)
    bench.broker.publish(bench.host.default_exchange, with_headers(x_delay=5000))
    assert (queue.ready, queue.schedule) == (1, None)


def test_headers_of_amqp_010_are_read_too(bench: CoreBench) -> None:
    queue = bench.queue(x_delayed_message=True)
    properties = ENCODING010.write(Properties(headers={"x-delay": 2000}))
    bench.broker.publish(
        bench.host.default_exchange,
        Message(ENCODING010, "", "q", properties, b"x", Facts(has_headers=True)),
    )
    assert queue.delayed == 1
    bench.advance(2)
    assert waiting(queue) == "x"


@pytest.mark.parametrize("way", ["publish_if_room", "transaction"])
def test_every_way_of_publishing_reads_the_headers(bench: CoreBench, way: str) -> None:
    queue = bench.queue()
    exchange = bench.host.declare_exchange("x", "fanout", arguments={"x-delayed-exchange": True})
    bench.host.bind(exchange, queue, "", {})
    if way == "publish_if_room":
        assert bench.broker.publish_if_room(exchange, with_headers(x_delay=5000)) is Outcome.TAKEN
    else:
        transaction = Transaction()
        assert transaction.publish(bench.broker, exchange, with_headers(x_delay=5000))
        assert transaction.commit() == 0
    assert (queue.ready, queue.delayed) == (0, 1)


def test_streams_take_messages_at_once(bench: CoreBench) -> None:
    queue = bench.host.declare_queue("q", durable=True, arguments={"x-queue-type": "stream"})
    bench.broker.publish(bench.host.default_exchange, scheduled(b"x", bench, 5))
    bench.settle()
    assert (queue.ready, queue.delayed) == (1, 0)

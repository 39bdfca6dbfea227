"""Dead letters at least once: held until every target has them, whatever refuses them, and for how long."""

from __future__ import annotations

import logging

import pytest

from leveret.config.compat import Compat
from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import HANDLED, Exchange, ExchangeType, Handled
from leveret.exchanges.standard import STANDARD
from leveret.message import Facts, Message
from leveret.plugins.delayed_message import DelayedMessage
from leveret.policy import Policy
from leveret.queues.held_dead_letters import FIRST_PAUSE_S, LAST_PAUSE_S, PREFETCH, HeldDeadLetters
from leveret.queues.queue import Queue
from leveret.queues.undelivered import QUEUES, STEP_S
from leveret.queues.work_queue import WorkQueue
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties, Value
from tests.core.fakes import FakeConsumer, letters, reasons, waiting
from tests.harness.bench import ENCODING, CoreBench, message

FULL = {"x_max_length": 1, "x_overflow": "reject-publish"}


class Failing(ExchangeType):
    """An exchange type that raises as long as it is told to."""

    name = "x-failing"
    fails = True

    def route(self, message: Message) -> list[Destination] | Handled:
        if Failing.fails:
            raise ValueError("not today")
        return [binding.destination for binding in self.exchange.bindings]


class Forgetful(ExchangeType):
    """An exchange type that handles messages, and fails to, as long as it is told to."""

    name = "x-forgetful"

    def route(self, message: Message) -> list[Destination] | Handled:
        return HANDLED

    def keep(self, message: Message) -> None:
        if Failing.fails:
            raise ValueError("not today")


TYPES = {**STANDARD, Forgetful.name: Forgetful, DelayedMessage.name: DelayedMessage, Failing.name: Failing}


@pytest.fixture
def bench() -> CoreBench:
    Failing.fails = True
    return CoreBench(TYPES)


def source(bench: CoreBench, name: str = "q", exchange: str = "dlx", **said: Value) -> Queue:
    """A queue whose dead letters go to `dlx`, at least once."""
    arguments = {
        "x_dead_letter_exchange": exchange,
        "x_dead_letter_strategy": "at-least-once",
        "x_overflow": "reject-publish",
        **said,
    }
    return bench.queue(name, **arguments)


def dlx(
    bench: CoreBench, *targets: Queue, kind: str = "fanout", name: str = "dlx", **said: Value
) -> Exchange:
    exchange = bench.host.declare_exchange(
        name, kind, arguments={k.replace("_", "-"): v for k, v in said.items()}
    )
    for target in targets:
        bench.host.bind(exchange, target, "")
    return exchange


def reject(bench: CoreBench, *bodies: bytes, queue: str = "q", key: str = "") -> None:
    """Publish messages to a queue, and have a consumer reject all of them."""
    consumer = FakeConsumer(bench.host.queues[queue])
    bench.publish(queue, *bodies)
    for delivery in list(consumer.held):
        consumer.reject(delivery)
    consumer.leave()
    bench.settle()


def fetched(queue: Queue) -> str:
    """Fetch a message, and settle."""
    delivery = queue.take_one(settled=True)
    queue.virtual_host.broker.settle()
    return "" if delivery is None else delivery.message.body.decode()


def held(queue: Queue) -> HeldDeadLetters:
    assert queue.dead_letters is not None
    return queue.dead_letters


def test_dead_letters_that_are_taken_at_once_are_not_held(bench: CoreBench) -> None:
    queue, dead = source(bench), bench.queue("dead")
    exchange = dlx(bench, dead)
    reject(bench, b"a", b"b")
    assert (waiting(dead), held(queue).count, held(queue).octets) == ("a b", 0, 0)
    assert (held(queue).confirmed, held(queue).why) == (2, "")
    assert (exchange.published, exchange.routed) == (2, 2)


def test_a_full_target_gets_the_rest_when_it_has_room_in_their_order(bench: CoreBench) -> None:
    queue, dead = source(bench), bench.queue("dead", **FULL)
    dlx(bench, dead)
    reject(bench, b"a", b"b", b"c")
    assert (waiting(dead), held(queue).count, held(queue).octets) == ("a", 2, 2)
    assert held(queue).why == "queue 'dead' is full"
    consumer = FakeConsumer(dead)
    bench.settle()
    assert (consumer.bodies(), held(queue).count, held(queue).why) == ("a b c", 0, "")


@pytest.mark.parametrize("by", ["get", "purge", "policy"])
def test_there_is_room_after_a_fetch_a_purge_and_a_new_limit(bench: CoreBench, by: str) -> None:
    queue, dead = source(bench), bench.queue("dead", x_overflow="reject-publish")
    bench.broker.policies.set(Policy("short", "/", "^dead$", {"max-length": 1}))
    bench.host.apply_policies()
    dlx(bench, dead)
    reject(bench, b"a", b"b")
    assert held(queue).count == 1
    if by == "get":
        assert fetched(dead) == "a"
    elif by == "purge":
        dead.purge()
    else:
        bench.broker.policies.set(Policy("short", "/", "^dead$", {"max-length": 2}))
        bench.host.apply_policies()
    bench.settle()
    assert (waiting(dead), held(queue).count) == ("a b" if by == "policy" else "b", 0)


@pytest.mark.parametrize(
    ("cause", "reason"),
    [("reject", "rejected"), ("expire", "expired"), ("fail", "delivery_limit")],
)
def test_every_reason_of_death_is_held_and_told_later(bench: CoreBench, cause: str, reason: str) -> None:
    queue, dead = (
        source(bench, x_delivery_limit=0, x_message_ttl=1000),
        bench.queue("dead", x_max_length=0, x_overflow="reject-publish"),
    )
    dlx(bench, dead)
    bench.publish("q", b"a")
    died_at = bench.clock.wall()
    if cause == "expire":
        bench.advance(2)
        died_at = bench.clock.wall()
    else:
        consumer = FakeConsumer(queue)
        bench.settle()
        (consumer.reject if cause == "reject" else consumer.release)(consumer.held[0])
        bench.settle()
    assert (queue.ready, queue.unsettled, held(queue).count) == (0, 0, 1)
    bench.advance(500)
    bench.host.bind(bench.host.exchange("dlx"), other := bench.queue("other"), "")
    bench.settle()
    [delivery] = other.waiting()
    notes = delivery.message.notes
    assert notes is not None
    assert [(d.queue, d.reason, d.count, d.last_time) for d in notes.deaths] == [
        ("q", reason, 1, int(died_at))
    ]
    assert (delivery.message.exchange, delivery.message.key, notes.reached) == ("dlx", "q", ())
    assert held(queue).count == 1  # the other target has not got it
    bench.host.unbind(bench.host.exchange("dlx"), dead, "")
    bench.advance(1)
    assert (held(queue).count, other.published) == (0, 1)


def test_a_target_that_has_one_does_not_get_it_again(bench: CoreBench) -> None:
    queue, one, two, three = (
        source(bench),
        bench.queue("1"),
        bench.queue("2", **FULL),
        bench.queue("3", **FULL),
    )
    dlx(bench, one, two, three)
    reject(bench, b"a", b"b")
    assert [waiting(each) for each in (one, two, three)] == ["a b", "a", "a"]
    assert fetched(two) == "a"
    bench.advance(LAST_PAUSE_S)
    assert [waiting(each) for each in (one, two, three)] == ["a b", "b", "a"]
    assert held(queue).why == "queue '3' is full"
    FakeConsumer(three)
    bench.settle()
    assert [each.published for each in (one, two, three)] == [2, 2, 2]
    assert held(queue).count == 0
    assert bench.host.exchange("dlx").routed == 6


def test_no_dead_letter_overtakes_another_on_the_way_to_a_target(bench: CoreBench) -> None:
    dead = bench.queue("dead", x_max_length_bytes=4, x_overflow="reject-publish")
    queue = source(bench)
    dlx(bench, dead)
    reject(bench, b"aaa", b"bbb", b"c")
    assert waiting(dead) == "aaa"
    bench.advance(LAST_PAUSE_S)
    assert waiting(dead) == "aaa"
    assert fetched(dead) == "aaa"
    bench.settle()
    assert (waiting(dead), held(queue).count) == ("bbb c", 0)


# Topology.


def test_without_an_exchange_a_queue_or_a_way_they_wait_for_it(bench: CoreBench) -> None:
    queue = source(bench)
    reject(bench, b"a")
    assert held(queue).why == "no exchange 'dlx'"
    exchange = dlx(bench, kind="direct")
    bench.advance(STEP_S)
    assert held(queue).why == "exchange 'dlx' has no queue for the key 'q'"
    bench.host.bind(exchange, bench.queue("dead"), "q")
    bench.advance(STEP_S)
    assert (waiting(bench.host.queues["dead"]), held(queue).count) == ("a", 0)


def test_the_alternate_of_the_exchange_is_a_way(bench: CoreBench) -> None:
    queue, dead = source(bench), bench.queue("dead", x_max_length=0, x_overflow="reject-publish")
    dlx(bench, kind="direct", alternate_exchange="else")
    dlx(bench, dead, name="else")
    reject(bench, b"a")
    assert held(queue).why == "queue 'dead' is full"
    bench.host.bind(bench.host.exchange("dlx"), other := bench.queue("other"), "q")
    bench.settle()
    assert (waiting(other), held(queue).count) == ("a", 0)


def test_a_circle_is_no_way_until_it_is_broken(bench: CoreBench) -> None:
    queue = source(bench, x_message_ttl=0)
    exchange = dlx(bench, queue)
    bench.publish("q", b"a")
    bench.advance(1)
    assert (queue.ready, held(queue).count) == (0, 1)
    assert held(queue).why == "exchange 'dlx' would send them round in a circle only"
    bench.host.bind(exchange, dead := bench.queue("dead"), "")
    bench.advance(STEP_S)
    assert (waiting(dead), queue.ready, held(queue).count) == ("a", 0, 0)


def test_a_rejected_message_may_return_to_its_own_queue_even_if_that_is_full_of_it(bench: CoreBench) -> None:
    queue = source(bench, exchange="", x_max_length=1)
    reject(bench, b"a")
    assert (waiting(queue), held(queue).count) == ("a", 0)


def test_a_new_exchange_or_key_by_policy_holds_for_those_that_wait(bench: CoreBench) -> None:
    queue = bench.queue("q")
    definition: dict[str, Value] = {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
    bench.broker.policies.set(Policy("p", "/", "^q$", {**definition, "dead-letter-exchange": "gone"}))
    bench.host.apply_policies()
    reject(bench, b"a")
    assert held(queue).why == "no exchange 'gone'"
    dead = bench.queue("dead")
    definition |= {"dead-letter-exchange": "", "dead-letter-routing-key": "dead"}
    bench.broker.policies.set(Policy("p", "/", "^q$", definition))
    bench.host.apply_policies()
    bench.settle()
    assert waiting(dead) == "a"
    assert reasons(dead) == ["a rejected"]


def test_when_the_strategy_is_switched_off_they_are_tried_once_more(
    bench: CoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    queue, full = bench.queue("q"), bench.queue("full", **FULL)
    definition: dict[str, Value] = {"dead-letter-exchange": "dlx", "overflow": "reject-publish"}
    bench.broker.policies.set(
        Policy("p", "/", "^q$", {**definition, "dead-letter-strategy": "at-least-once"})
    )
    bench.host.apply_policies()
    dlx(bench, full, bench.queue("dead"))
    reject(bench, b"a", b"b", b"c")
    assert held(queue).count == 2
    bench.broker.policies.set(Policy("p", "/", "^q$", definition))
    full.purge()
    with caplog.at_level(logging.WARNING, "leveret"):
        bench.host.apply_policies()
        bench.settle()
    assert (waiting(full), waiting(bench.host.queues["dead"]), held(queue).count) == ("b", "a b c", 0)
    assert "1 dead letters of queue 'q' in vhost '/' were dropped" in caplog.text
    reject(bench, b"d")
    assert (full.refused, held(queue).count) == (1, 0)


def test_it_takes_reject_publish_and_an_exchange(bench: CoreBench, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "leveret"):
        queue = bench.queue("q", x_dead_letter_exchange="dlx", x_dead_letter_strategy="at-least-once")
    assert (
        "queue 'q' in vhost '/': dead-letter-strategy: dead letters are delivered at most once" in caplog.text
    )
    [warning] = bench.host.queue_warnings(queue)
    assert "needs the overflow reject-publish and a dead-letter exchange" in warning
    assert queue.limits.at_least_once is False
    for overflow in ("reject-publish-dlx", "drop-head"):
        other = source(bench, overflow, x_overflow=overflow)
        assert other.limits.at_least_once is False
    reject(bench, b"a")
    assert queue.dead_letters is None


def test_an_unknown_strategy_is_refused_and_an_argument_goes_before_a_policy(bench: CoreBench) -> None:
    with pytest.raises(PreconditionFailed, match="x-dead-letter-strategy"):
        bench.queue("q", x_dead_letter_strategy="twice")
    bench.broker.policies.set(Policy("p", "/", "", {"dead-letter-strategy": "at-least-once"}))
    assert source(bench).limits.at_least_once is True
    other = source(bench, "r", x_dead_letter_strategy="at-most-once")
    assert (other.limits.at_least_once, bench.host.queue_warnings(other)) == (None, [])
    with pytest.raises(PreconditionFailed):
        bench.host.declare_queue(
            "s", durable=True, arguments={"x-queue-type": "stream", "x-dead-letter-strategy": "at-least-once"}
        )


# Time, and other targets than queues.


def test_a_failing_exchange_is_asked_again_after_longer_and_longer_pauses(bench: CoreBench) -> None:
    queue, dead = source(bench), bench.queue("dead")
    exchange = dlx(bench, dead, kind="x-failing")
    reject(bench, b"a")
    asked = exchange.route_errors
    times = []
    for second in range(200):
        bench.advance(1)
        if exchange.route_errors > asked:
            asked = exchange.route_errors
            times.append(second + 1)
    assert times == [1, 3, 7, 15, 31, 63, 127]
    Failing.fails = False
    bench.advance(LAST_PAUSE_S)
    assert (waiting(dead), held(queue).count) == ("a", 0)


def test_an_exchange_that_holds_messages_itself_is_a_target(bench: CoreBench) -> None:
    queue, dead, full = source(bench), bench.queue("dead"), bench.queue("full", **FULL)
    later = dlx(bench, dead, kind="x-delayed-message", name="later", x_delayed_type="fanout")
    exchange = dlx(bench, full)
    bench.host.bind(exchange, later, "")
    reject(bench, b"a", b"b")
    assert (waiting(dead), held(queue).count) == ("a b", 1)
    FakeConsumer(full)
    bench.advance(LAST_PAUSE_S)
    assert (waiting(dead), full.published, held(queue).count) == ("a b", 2, 0)


# Bounds.


def test_no_more_than_32_are_in_hand_and_the_others_wait_behind_them(bench: CoreBench) -> None:
    queue, one, two = (
        source(bench),
        bench.queue("1"),
        bench.queue("2", x_max_length=0, x_overflow="reject-publish"),
    )
    exchange = dlx(bench, kind="direct")
    for target in (one, two):
        bench.host.bind(exchange, target, target.name)
    consumer = FakeConsumer(queue)
    for body in letters(20):
        queue.push(message("2", body))
    for number in range(PREFETCH):
        queue.push(message("2", b"x%d" % number))
        queue.push(message("1", b"y%d" % number))
    bench.settle()
    for delivery in list(consumer.held):
        consumer.reject(delivery)
    bench.settle()
    assert (held(queue).in_hand, one.ready) == (
        PREFETCH,
        PREFETCH,
    )  # those for the other target have gone past
    assert held(queue).count == 20 + PREFETCH
    FakeConsumer(two)
    bench.broker.policies.set(Policy("p", "/", "^2$", {"max-length": 100}))
    two.apply(bench.queue("3").limits)
    bench.settle()
    assert (held(queue).count, one.ready, two.published) == (0, PREFETCH, 20 + PREFETCH)


def routed_by_key(bench: CoreBench, *full: str, free: tuple[str, ...] = ("free",), **said: Value) -> Queue:
    """A queue whose dead letters go to the queue that their key names, of which some are full."""
    queue, exchange = source(bench, **said), dlx(bench, kind="direct")
    for name in (*full, *free):
        target = bench.queue(
            name, **({"x_max_length": 0, "x_overflow": "reject-publish"} if name in full else {})
        )
        bench.host.bind(exchange, target, name)
    return queue


def die(bench: CoreBench, queue: Queue, *dead: tuple[str, bytes]) -> None:
    """Have messages with these keys and bodies rejected, in this order."""
    consumer = FakeConsumer(queue)
    for key, body in dead:
        queue.push(message(key, body))
    bench.settle()
    for delivery in list(consumer.held):
        consumer.reject(delivery)
    consumer.leave()
    bench.settle()
    while (at := bench.broker.timers.next_at()) is not None and at <= bench.broker.now + 0.01:
        bench.advance(0.01)


def opened(bench: CoreBench, name: str) -> FakeConsumer:
    """A consumer that takes all that comes to a queue that was full."""
    consumer = FakeConsumer(bench.host.queues[name])
    bench.host.queues[name].apply(bench.queue("without limits").limits)
    bench.settle()
    while (at := bench.broker.timers.next_at()) is not None and at <= bench.broker.now + 0.01:
        bench.advance(0.01)
    return consumer


def test_those_of_one_target_are_not_in_the_way_of_those_of_another(bench: CoreBench) -> None:
    queue = routed_by_key(bench, "full", "lost")
    bench.host.unbind(bench.host.exchange("dlx"), bench.host.queues["lost"], "lost")
    keys = ("full", "free", "lost")
    sent = [(keys[number % 3], b"%d" % number) for number in range(3000)]
    die(bench, queue, *sent)
    assert waiting(bench.host.queues["free"]) == " ".join(
        body.decode() for key, body in sent if key == "free"
    )
    assert (held(queue).count, held(queue).in_hand) == (2000, PREFETCH)
    die(bench, queue, ("free", b"later"))
    assert waiting(bench.host.queues["free"]).endswith(" later")
    full = opened(bench, "full")
    assert full.bodies() == " ".join(body.decode() for key, body in sent if key == "full")
    assert held(queue).count == 1000
    bench.host.bind(bench.host.exchange("dlx"), bench.host.queues["free"], "lost")
    bench.advance(0.01)
    while held(queue).count:
        bench.advance(0.01)
    after = waiting(bench.host.queues["free"]).partition(" later ")[2]
    assert after == " ".join(body.decode() for key, body in sent if key == "lost")


def test_targets_that_fill_up_behind_those_in_hand_get_the_rest_in_order(bench: CoreBench) -> None:
    queue = routed_by_key(bench, "full", free=("free", "small"))
    small = bench.host.queues["small"]
    small.apply(bench.queue("limited", x_max_length=2, x_overflow="reject-publish").limits)
    sent = [("full", b"f%d" % number) for number in range(2 * PREFETCH)]
    sent += [(("small", "free")[number % 2], b"%d" % number) for number in range(100)]
    die(bench, queue, *sent)
    assert waiting(small) == "0 2"
    assert bench.host.queues["free"].ready == 50
    expected = [body.decode() for key, body in sent if key == "small"]
    for body in expected:
        assert fetched(small) == body
        while (at := bench.broker.timers.next_at()) is not None and at <= bench.broker.now + 0.01:
            bench.advance(0.01)
    assert (small.ready, held(queue).count) == (0, 2 * PREFETCH)
    assert opened(bench, "full").bodies() == " ".join(f"f{number}" for number in range(2 * PREFETCH))
    assert not held(queue).is_searched


def test_a_target_gets_its_copies_where_the_other_is_full_and_those_come_in_order(bench: CoreBench) -> None:
    queue = source(bench)
    full, free = bench.queue("full", x_max_length=0, x_overflow="reject-publish"), bench.queue("free")
    dlx(bench, full, free)
    sent = [("", b"%d" % number) for number in range(5 * PREFETCH)]
    die(bench, queue, *sent)
    assert (free.ready, held(queue).count) == (len(sent), len(sent))
    order = " ".join(body.decode() for _, body in sent)
    assert waiting(free) == order
    assert opened(bench, "full").bodies() == order
    assert (free.ready, held(queue).count) == (len(sent), 0)


def test_an_exchange_that_fails_to_keep_is_not_asked_again_at_once_for_those_behind(bench: CoreBench) -> None:
    queue = routed_by_key(bench, "full")
    dlx(bench, kind="x-failing", name="failing")
    bench.host.bind(bench.host.exchange("dlx"), bench.host.exchange("failing"), "fails")
    sent = [(("full", "free", "fails")[number % 3], b"%d" % number) for number in range(300)]
    die(bench, queue, *sent)
    assert bench.host.queues["free"].ready == 100
    assert held(queue).count == 200
    bench.host.bind(bench.host.exchange("failing"), bench.host.queues["free"], "")
    Failing.fails = False
    bench.advance(LAST_PAUSE_S)
    die(bench, queue)
    assert (bench.host.queues["free"].ready, held(queue).count) == (200, 100)


def test_an_exchange_that_fails_to_keep_those_behind_is_asked_again_later(bench: CoreBench) -> None:
    queue = routed_by_key(bench, "full")
    keeper = dlx(bench, kind="x-forgetful", name="keeper")
    bench.host.bind(bench.host.exchange("dlx"), keeper, "kept")
    sent = [(("full", "free", "kept")[number % 3], b"%d" % number) for number in range(300)]
    die(bench, queue, *sent)
    assert (bench.host.queues["free"].ready, held(queue).count) == (100, 200)
    assert keeper.route_errors <= 100
    Failing.fails = False
    bench.advance(LAST_PAUSE_S)
    die(bench, queue)
    assert held(queue).count == 100


def test_what_stands_behind_those_in_hand_goes_when_their_queue_does(bench: CoreBench) -> None:
    queue = routed_by_key(bench, "full")
    die(bench, queue, *[(("full", "free")[number % 2], b"%d" % number) for number in range(200)])
    assert (bench.host.queues["free"].ready, held(queue).count) == (100, 100)
    there = held(queue)
    bench.host.delete_queue(queue)
    bench.settle()
    assert (there.count, there.is_searched) == (0, False)


def test_they_count_towards_the_limits_of_their_queue(bench: CoreBench) -> None:
    queue = source(bench, x_max_length=2)
    consumer = FakeConsumer(queue)
    bench.publish("q", b"a", b"b")
    for delivery in list(consumer.held):
        consumer.reject(delivery)
    consumer.leave()
    bench.settle()
    assert held(queue).count == 2
    assert [each.value for each in bench.publish("q", b"c")] == ["refused"]
    assert bench.broker.publish_run(bench.host.default_exchange, [message("q", b"c")]) == 0
    dlx(bench, dead := bench.queue("dead"))
    bench.settle()
    assert [each.value for each in bench.publish("q", b"d", b"e", b"f")] == ["taken", "taken", "refused"]
    assert waiting(dead) == "a b"


def test_those_that_can_go_are_not_in_the_way_of_a_publisher_in_the_same_batch(bench: CoreBench) -> None:
    queue, dead = source(bench, x_max_length=1), bench.queue("dead")
    dlx(bench, dead)
    consumer = FakeConsumer(queue, credit=1)
    bench.publish("q", b"a")
    consumer.reject(consumer.held[0])
    consumer.leave()
    assert [each.value for each in bench.publish("q", b"b")] == ["taken"]
    assert (waiting(queue), waiting(dead)) == ("b", "a")


def test_queues_that_wait_for_one_target_share_its_room(bench: CoreBench) -> None:
    dead = bench.queue("dead", **FULL)
    dlx(bench, dead)
    queues = [source(bench, f"q{number}") for number in range(5)]
    for queue in queues:
        reject(bench, b"a", b"b", queue=queue.name)
    consumer = FakeConsumer(dead)
    bench.settle()
    assert len(consumer.got) == 10
    assert [held(queue).count for queue in queues] == [0] * 5
    assert not dead.awaited  # type: ignore[attr-defined]


def test_a_target_that_is_full_asks_nobody_however_often_it_is_served(bench: CoreBench) -> None:
    queue, dead = source(bench), bench.queue("dead", **FULL)
    dlx(bench, dead)
    reject(bench, b"a", b"b")
    before = dead.refused
    for _ in range(10):
        bench.publish("dead", b"x")
    assert (dead.refused, held(queue).touched) == (before + 10, False)


def test_after_a_change_of_topology_only_a_few_queues_are_looked_at_in_one_step(bench: CoreBench) -> None:
    queues = [source(bench, f"q{number}") for number in range(QUEUES + 10)]
    for queue in queues:
        reject(bench, b"a", queue=queue.name)
    bench.advance(FIRST_PAUSE_S / 2)
    dlx(bench, bench.queue("dead"))
    bench.settle()
    counts = [sum(held(queue).count for queue in queues)]
    for _ in range(3):
        bench.advance(STEP_S)
        counts.append(sum(held(queue).count for queue in queues))
    assert counts[0] <= 10
    assert counts[-1] == 0


# The end.


def test_they_go_with_their_queue_and_keep_it_from_being_empty(
    bench: CoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    queue = source(bench)
    reject(bench, b"a")
    with pytest.raises(PreconditionFailed, match="not empty"):
        bench.host.delete_queue(queue, if_empty=True)
    assert queue.purge() == 0
    assert held(queue).count == 1  # as in RabbitMQ, they are not among those that wait for consumers
    with caplog.at_level(logging.WARNING, "leveret"):
        bench.host.delete_queue(queue)
    assert "1 dead letters that waited are deleted with queue 'q' in vhost '/'" in caplog.text
    dlx(bench, dead := bench.queue("dead"))
    bench.advance(LAST_PAUSE_S)
    assert dead.ready == 0


def test_a_deleted_target_is_none(bench: CoreBench) -> None:
    queue, full, dead = source(bench), bench.queue("full", **FULL), bench.queue("dead")
    dlx(bench, full, dead)
    reject(bench, b"a", b"b")
    bench.host.delete_queue(full)
    bench.advance(STEP_S)
    assert (waiting(dead), held(queue).count) == ("a b", 0)


def test_a_queue_that_is_deleted_where_that_is_a_death_gives_what_is_taken_at_once() -> None:
    bench = CoreBench(TYPES, Compat(dead_letter_on_delete=True))
    queue, dead = source(bench), bench.queue("dead", x_max_length=3, x_overflow="reject-publish")
    reject(bench, b"a", b"b")
    bench.publish("q", b"c", b"d")
    dlx(bench, dead)
    bench.host.delete_queue(queue)
    bench.settle()
    assert waiting(dead) == "a b c"


def test_the_log_says_once_that_they_wait_and_once_that_it_is_over(
    bench: CoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    queue, dead = source(bench), bench.queue("dead", **FULL)
    dlx(bench, dead)
    with caplog.at_level(logging.INFO, "leveret"):
        reject(bench, b"a", b"b")
        reject(bench, b"c", b"d")
        FakeConsumer(dead)
        bench.settle()
        assert held(queue).count == 0
    assert [each.getMessage() for each in caplog.records] == [
        "dead letters of queue 'q' in vhost '/' wait: queue 'dead' is full",
        "the dead letters of queue 'q' in vhost '/' wait no longer",
    ]


@pytest.mark.parametrize(
    "said",
    [
        {"x_message_group_key": "g"},
        {"x_last_value_key": "v"},
        {"x_max_priority": 3},
        {"x_max_priority": 3, "x_fair_share": 1},
        {"x_sequence_header": "n"},
        {"x_single_active_consumer": True},
    ],
)
def test_every_kind_of_queue_has_them_and_takes_them(bench: CoreBench, said: dict[str, Value]) -> None:
    queue = source(bench, **said)
    dead = bench.queue("dead", x_max_length=0, x_overflow="reject-publish", **said)
    dlx(bench, dead)
    consumer = FakeConsumer(queue)
    bench.publish("q", b"a")
    consumer.reject(consumer.held[0])
    bench.settle()
    assert (held(queue).count, dead.ready) == (1, 0)
    dead.apply(bench.queue("other", **said).limits)
    bench.settle()
    assert (held(queue).count, waiting(dead)) == (0, "a")


def test_an_exchange_that_drops_duplicates_takes_each_once_however_long_they_are_held(
    bench: CoreBench,
) -> None:
    queue, dead = source(bench), bench.queue("dead", **FULL)
    dlx(bench, dead, x_message_deduplication=True)
    encoding = FakeEncoding(Properties(headers={"x-deduplication-header": "same"}))
    consumer = FakeConsumer(queue)
    for body in (b"a", b"b"):
        queue.push(Message(encoding, "", "q", b"", body, Facts(has_headers=True)))
    bench.publish("dead", b"x")
    for delivery in list(consumer.held):
        consumer.reject(delivery)
    bench.settle()
    assert held(queue).count == 2
    FakeConsumer(dead)
    bench.settle()
    assert (held(queue).count, dead.published) == (0, 2)
    assert bench.host.exchange("dlx").routed == 1


def test_there_is_room_when_a_message_of_the_target_that_waits_for_a_time_is_dropped(
    bench: CoreBench,
) -> None:
    queue, dead = (
        source(bench),
        bench.queue("dead", x_delayed_retry_type="all", x_delayed_retry_min=60_000, **FULL),
    )
    dlx(bench, dead)
    consumer = FakeConsumer(dead, credit=1)
    bench.publish("dead", b"x")
    consumer.release(consumer.held[0])
    consumer.leave()
    reject(bench, b"a")
    assert (held(queue).count, dead.delayed) == (1, 1)
    assert isinstance(dead, WorkQueue)
    assert dead.schedule is not None
    dead.schedule.drop(dead.schedule.positions())
    bench.settle()
    assert (waiting(dead), held(queue).count) == ("a", 0)


def test_a_message_for_later_that_expires_before_that_is_a_dead_letter_at_once(bench: CoreBench) -> None:
    queue, dead = source(bench), bench.queue("dead")
    dlx(bench, dead)
    due_ms = int(bench.clock.wall() * 1000) + 60_000
    facts = Facts(ttl_ms=1000, due_ms=due_ms)
    bench.broker.publish(bench.host.default_exchange, Message(ENCODING, "", "q", b"", b"a", facts))
    bench.settle()
    assert (queue.delayed, dead.ready) == (1, 0)
    bench.advance(1.001)
    assert (waiting(dead), held(queue).count, held(queue).delayed) == ("a", 0, 0)

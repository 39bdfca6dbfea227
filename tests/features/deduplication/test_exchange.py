"""An exchange that drops duplicates: what counts as one, and what does not."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest

from leveret.broker import REFUSED, TAKEN, UNROUTABLE
from leveret.errors import PreconditionFailed
from leveret.exchanges.exchange_type import Exchange
from leveret.exchanges.explain import explain
from leveret.exchanges.standard import STANDARD
from leveret.plugins.message_deduplication import MessageDeduplication
from leveret.policy import ApplyTo, Policy
from leveret.publishing.portion import publish_portion
from leveret.transaction import Transaction
from leveret.values import Float32, Int8, Int64, Table, Value
from tests.core.fakes import CoreBench, FakeConsumer, waiting
from tests.features.deduplication.published import headed, identified, publish
from tests.harness.bench import message

TYPES = {**STANDARD, MessageDeduplication.name: MessageDeduplication}
SWITCH: Table = {"x-message-deduplication": True}


class Desk:
    """A fanout exchange that drops duplicates, and one queue."""

    def __init__(self, type_: str = "fanout", **said: Value) -> None:
        self.bench = CoreBench(types=TYPES)
        self.host = self.bench.host
        self.exchange = self.declare("x", type_, **said)
        self.queue = self.bench.queue()
        self.host.bind(self.exchange, self.queue, "")

    def declare(self, name: str, type_: str = "fanout", **said: Value) -> Exchange:
        arguments = {**SWITCH, **{key.replace("_", "-"): value for key, value in said.items()}}
        return self.host.declare_exchange(name, type_, arguments=arguments)

    def publish(self, *ids: Value) -> None:
        publish(self.bench, self.exchange, *ids)

    @property
    def entries(self) -> int:
        assert self.exchange.deduplication is not None
        return self.exchange.deduplication.entries


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_message_whose_id_was_taken_is_taken_and_dropped(desk: Desk) -> None:
    assert publish(desk.bench, desk.exchange, "a", "b", "a", "a") == [TAKEN] * 4
    assert (waiting(desk.queue), desk.exchange.repeated, desk.entries) == ("a b", 2, 2)
    assert (desk.exchange.published, desk.exchange.routed, desk.exchange.unroutable) == (4, 2, 0)


def test_messages_without_an_id_are_no_duplicates(desk: Desk) -> None:
    for _ in range(2):
        desk.bench.broker.publish(desk.exchange, headed({"other": 1}, b"h"))
        desk.bench.broker.publish(desk.exchange, message("", b"m", exchange="x"))
        desk.bench.broker.publish(desk.exchange, identified(None, b"n"))
    assert waiting(desk.queue) == "h m n h m n"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a", b"a"),
        (1, Int64(1)),
        (Int8(1), 1),
        (1.5, Float32(1.5)),
        (["a", 1], ("a", 1)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    ],
)
def test_ids_are_equal_by_their_meaning(one: Value, other: Value) -> None:
    desk = Desk()
    desk.publish(one, other)
    assert desk.exchange.repeated == 1


def test_ids_of_different_kinds_differ(desk: Desk) -> None:
    ids: list[Value] = [
        1, "1", True, False, "", 1.0, Decimal(1), UUID(int=1), [1], ["1"], [[1]], {"1": 1}, "i1", "ab", ["a", "b"],
        ["ab"], [], {}, ["a", ["b"]],
    ]  # fmt: skip
    desk.publish(*ids)
    assert (desk.exchange.repeated, desk.entries) == (0, len(ids))


def test_another_header_may_have_the_id() -> None:
    desk = Desk(x_deduplication_header="order")
    for _ in range(2):
        desk.bench.broker.publish(desk.exchange, headed({"order": 7}, b"o"))
        desk.bench.broker.publish(desk.exchange, identified("a", b"a"))
    assert waiting(desk.queue) == "o a a"


def test_the_last_ids_are_known_as_many_as_the_size_says() -> None:
    desk = Desk(x_cache_size=2)
    desk.publish("a", "b", "c", "b", "a")
    assert (waiting(desk.queue), desk.exchange.repeated, desk.entries) == ("a b c a", 1, 2)


def test_an_id_is_known_for_its_time() -> None:
    desk = Desk(x_cache_ttl=1000)
    desk.publish("a")
    desk.bench.advance(0.9)
    desk.publish("a")
    desk.bench.advance(0.2)
    desk.publish("a")
    assert (waiting(desk.queue), desk.exchange.repeated) == ("a a", 1)
    desk.bench.advance(2)
    assert desk.entries == 0


@pytest.mark.parametrize(
    ("ttl_ms", "copies"), [(100, 2), ("100", 2), (5000, 1), (0, 1), (-1, 1), (True, 1), ("soon", 1)]
)
def test_a_message_may_say_how_long_its_id_is_known(ttl_ms: Value, copies: int) -> None:
    desk = Desk(x_cache_ttl=1000)
    for _ in range(2):
        desk.bench.broker.publish(desk.exchange, identified("a", b"a", ttl_ms=ttl_ms))
        desk.bench.advance(0.5)
    assert len(list(desk.queue.waiting())) == copies


def test_an_unroutable_message_may_be_published_again(desk: Desk) -> None:
    desk.host.unbind(desk.exchange, desk.queue, "")
    assert publish(desk.bench, desk.exchange, "a") == [UNROUTABLE]
    desk.host.bind(desk.exchange, desk.queue, "")
    assert publish(desk.bench, desk.exchange, "a", "a") == [TAKEN, TAKEN]
    assert waiting(desk.queue) == "a"
    desk.host.unbind(desk.exchange, desk.queue, "")
    assert publish(desk.bench, desk.exchange, "a") == [TAKEN]  # it was delivered before


def test_a_refused_message_may_be_published_again(desk: Desk) -> None:
    full = desk.bench.queue("full", x_max_length=1, x_overflow="reject-publish")
    desk.host.bind(desk.exchange, full, "")
    assert publish(desk.bench, desk.exchange, "a", "b") == [TAKEN, REFUSED]
    assert full.purge() == 1
    assert publish(desk.bench, desk.exchange, "b") == [TAKEN]
    assert waiting(full) == "b"


def test_a_requeued_message_is_no_duplicate(desk: Desk) -> None:
    consumer = FakeConsumer(desk.queue, credit=1)
    desk.publish("a")
    consumer.release(consumer.held[0])
    desk.bench.settle()
    assert consumer.bodies() == "a a"


def test_a_dead_letter_that_comes_back_is_no_duplicate_but_its_repetition_is(desk: Desk) -> None:
    retried = desk.bench.queue("retried", x_dead_letter_exchange="x")
    desk.host.unbind(desk.exchange, desk.queue, "")
    desk.host.bind(desk.exchange, retried, "")
    consumer = FakeConsumer(retried, credit=1)
    desk.publish("a")
    consumer.reject(consumer.held[0])
    desk.bench.settle()
    desk.publish("a")
    assert (consumer.bodies(), desk.exchange.repeated) == ("a a", 1)


def test_dead_letters_of_two_messages_with_one_id_are_one_elsewhere() -> None:
    desk = Desk()
    source = desk.bench.queue("source", x_dead_letter_exchange="x")
    default = desk.host.default_exchange
    consumer = FakeConsumer(source)
    for _ in range(2):
        publish(desk.bench, default, "a", key="source")
        consumer.reject(consumer.held[0])
        desk.bench.settle()
    assert (waiting(desk.queue), desk.exchange.repeated, desk.exchange.published) == ("a", 1, 2)


# Transactions.


def test_of_the_duplicates_in_one_transaction_one_is_delivered(desk: Desk) -> None:
    tx = Transaction()
    for _ in range(3):
        assert tx.publish(desk.bench.broker, desk.exchange, identified("a", b"a", exchange="x"))
    assert desk.entries == 0
    assert tx.commit() == 0
    assert (waiting(desk.queue), desk.exchange.repeated, desk.entries) == ("a", 2, 1)
    assert (desk.exchange.published, desk.exchange.routed) == (3, 1)
    assert tx.publish(desk.bench.broker, desk.exchange, identified("a", b"a", exchange="x"))
    assert tx.held == (0, 0)


def test_a_duplicate_in_a_transaction_that_would_lead_nowhere_is_a_duplicate() -> None:
    desk = Desk("direct")
    tx = Transaction()
    assert tx.publish(desk.bench.broker, desk.exchange, identified("a", b"a", exchange="x"))
    assert not tx.publish(desk.bench.broker, desk.exchange, identified("a", b"a", "nowhere", exchange="x"))
    assert tx.commit() == 0
    exchange = desk.exchange
    assert (exchange.published, exchange.routed, exchange.unroutable, exchange.repeated) == (2, 1, 0, 1)


def test_a_rollback_leaves_no_id(desk: Desk) -> None:
    tx = Transaction()
    tx.publish(desk.bench.broker, desk.exchange, identified("a", b"a", exchange="x"))
    tx.rollback()
    desk.publish("a")
    assert waiting(desk.queue) == "a"


def test_immediate_messages_are_looked_at_too(desk: Desk) -> None:
    consumer = FakeConsumer(desk.queue)
    for _ in range(2):
        assert desk.bench.broker.publish_immediate(desk.exchange, identified("a", b"a")) is TAKEN
        desk.bench.settle()
    assert consumer.bodies() == "a"


def test_runs_and_publishing_where_there_is_room_look_at_ids_too(desk: Desk) -> None:
    broker, again = desk.bench.broker, identified("a", b"a", exchange="x")
    assert broker.publish_run(desk.exchange, [again, again]) == 0
    full = desk.bench.queue("full", x_max_length=1, x_overflow="reject-publish")
    desk.host.bind(desk.exchange, full, "")
    assert broker.publish_if_room(desk.exchange, again) is TAKEN
    assert broker.publish_if_room(desk.exchange, again) is TAKEN  # it needs no room
    assert broker.publish_if_room(desk.exchange, identified("b")) is None
    assert (waiting(full), desk.exchange.repeated) == ("a", 1)
    done = publish_portion(desk.host, [again, again, identified("c", exchange="x")])
    assert (done.taken, done.is_full, desk.exchange.repeated) == (2, True, 3)


# On the way.


def test_an_exchange_that_is_reached_through_another_drops_duplicates_for_its_queues_only() -> None:
    desk = Desk("x-message-deduplication", x_cache_size=10)
    topic, all_ = desk.host.exchange("amq.topic"), desk.bench.queue("all")
    desk.host.bind(topic, desk.exchange, "#")
    desk.host.bind(topic, all_, "#")
    assert publish(desk.bench, topic, "a", "a", "b") == [TAKEN] * 3
    assert (waiting(desk.queue), waiting(all_)) == ("a b", "a a b")
    assert (desk.exchange.repeated, topic.unroutable) == (1, 0)


def test_an_alternate_that_drops_duplicates_takes_the_message_once() -> None:
    desk = Desk()
    main = desk.host.declare_exchange("main", "direct", arguments={"alternate-exchange": "x"})
    assert publish(desk.bench, main, "a", "a") == [TAKEN, TAKEN]
    assert (waiting(desk.queue), desk.exchange.repeated, main.unroutable) == ("a", 1, 0)


def test_on_the_way_too_an_id_is_not_remembered_of_a_refused_message_or_before_the_commit() -> None:
    desk = Desk()
    topic = desk.host.exchange("amq.topic")
    desk.host.bind(topic, desk.exchange, "#")
    tx = Transaction()
    for _ in range(2):
        tx.publish(desk.bench.broker, topic, identified("a", b"a", exchange="amq.topic"))
    assert desk.entries == 0
    tx.commit()
    assert (waiting(desk.queue), desk.exchange.repeated) == ("a", 1)
    full = desk.bench.queue("full", x_max_length=0, x_overflow="reject-publish")
    desk.host.bind(desk.exchange, full, "")
    assert publish(desk.bench, topic, "b") == [REFUSED]
    desk.host.delete_queue(full)
    assert publish(desk.bench, topic, "b") == [TAKEN]
    assert waiting(desk.queue) == "a b b"


# Explanations.


def test_an_explanation_says_that_it_is_a_duplicate(desk: Desk) -> None:
    desk.publish("a")
    found = explain(desk.host, "x", headers={"x-deduplication-header": "a"})
    assert (found.routed, found.queues) == (False, ())
    assert found.dropped == "exchange 'x': it is a duplicate: the id 'a' was taken before"
    assert explain(desk.host, "x", headers={"x-deduplication-header": "b"}).queues == ("q",)
    desk.host.bind(desk.host.exchange("amq.fanout"), desk.exchange, "")
    found = explain(desk.host, "amq.fanout", headers={"x-deduplication-header": "a"})
    assert (found.routed, found.handled) == (False, False)
    assert "duplicate" in str(found.dropped)
    assert desk.exchange.repeated == 0


# Arguments and policies.


@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("x-message-deduplication", "yes"),
        ("x-cache-size", 0),
        ("x-cache-size", "many"),
        ("x-cache-size", 1 << 31),
        ("x-cache-ttl", -1),
        ("x-cache-ttl", True),
        ("x-cache-persistence", "tape"),
        ("x-deduplication-header", 7),
        ("x-deduplication-header", ""),
    ],
)
def test_an_argument_that_does_not_fit_is_refused(desk: Desk, argument: str, value: Value) -> None:
    with pytest.raises(PreconditionFailed, match=f"invalid arg '{argument}' for exchange 'y' in vhost '/'"):
        desk.host.declare_exchange("y", "fanout", arguments={**SWITCH, argument: value})


def test_the_type_needs_a_size_and_acts_like_a_fanout(desk: Desk) -> None:
    with pytest.raises(PreconditionFailed, match="x-cache-size"):
        desk.host.declare_exchange("y", "x-message-deduplication")
    exchange = desk.host.declare_exchange("y", "x-message-deduplication", arguments={"x-cache-size": "10"})
    desk.host.bind(exchange, desk.queue, "any")
    publish(desk.bench, exchange, "a", "a", key="other")
    assert waiting(desk.queue) == "a"


def test_other_settings_are_another_exchange(desk: Desk) -> None:
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-cache-size' for exchange 'x'"):
        desk.declare("x", x_cache_size=3)
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'x-message-deduplication'"):
        desk.host.declare_exchange("x", "fanout")
    assert desk.declare("x") is desk.exchange


def policy(desk: Desk, definition: Table) -> None:
    desk.bench.broker.policies.set(Policy("p", "/", "^y$", definition, apply_to=ApplyTo.EXCHANGES))
    desk.host.apply_policies()


def test_a_policy_switches_it_on_changes_it_and_switches_it_off(desk: Desk) -> None:
    exchange = desk.host.declare_exchange("y", "fanout")
    desk.host.bind(exchange, desk.queue, "")
    policy(desk, {"x-message-deduplication": True, "x-cache-size": 10})
    publish(desk.bench, exchange, "a", "b", "c", "a")
    assert (waiting(desk.queue), exchange.repeated) == ("a b c", 1)
    policy(desk, {"x-message-deduplication": True, "x-cache-size": 1})
    publish(desk.bench, exchange, "a", "c", "d")
    assert waiting(desk.queue) == "a b c d"
    publish(desk.bench, exchange, "a")
    assert waiting(desk.queue) == "a b c d a"
    assert desk.bench.broker.policies.clear("/", "p")
    desk.host.apply_policies()
    publish(desk.bench, exchange, "d")
    assert (waiting(desk.queue), exchange.deduplication) == ("a b c d a d", None)


@pytest.mark.parametrize(
    "key", ["x-message-deduplication", "x-cache-size", "x-cache-ttl", "x-cache-persistence"]
)
def test_a_policy_that_does_not_fit_is_refused(desk: Desk, key: str) -> None:
    with pytest.raises(PreconditionFailed, match=key):
        policy(desk, {key: [1]})


def test_all_ids_can_be_forgotten(desk: Desk) -> None:
    desk.publish("a", "b")
    assert desk.exchange.deduplication is not None
    assert desk.exchange.deduplication.clear() == 2
    desk.publish("a")
    assert (waiting(desk.queue), desk.entries) == ("a b a", 1)

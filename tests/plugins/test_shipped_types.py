"""The exchange types that come as plugins: what each is for, on a bench without a broker."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from leveret.errors import PreconditionFailed
from leveret.exchanges.exchange_type import HANDLED, ExchangeType
from leveret.exchanges.standard import STANDARD
from leveret.plugins.consistent_hash import ConsistentHash
from leveret.plugins.delayed_message import DelayedMessage
from leveret.plugins.jms_topic import JmsTopic
from leveret.plugins.local_random import LocalRandom
from leveret.plugins.message_deduplication import MessageDeduplication
from leveret.plugins.modulus_hash import ModulusHash
from leveret.plugins.random_exchange import RandomExchange
from leveret.plugins.recent_history import RecentHistory
from leveret.plugins.super_stream import SuperStream, murmur3
from leveret.testing.conformance import check_exchange_type
from leveret.testing.fakes import Bench, fake_message, publish
from leveret.values import Properties, Table, Value

WEIGHTS: list[tuple[str, Table]] = [("1", {}), ("5", {}), ("0", {})]


def test_consistent_hash_keeps_the_contract() -> None:
    check_exchange_type(ConsistentHash, bindings=WEIGHTS)
    check_exchange_type(
        ConsistentHash,
        arguments={"hash-header": "h"},
        bindings=WEIGHTS,
        messages=[("", {"h": "a"}), ("", {"h": 5})],
    )


def test_modulus_hash_keeps_the_contract() -> None:
    check_exchange_type(ModulusHash)


def test_message_deduplication_keeps_the_contract() -> None:
    check_exchange_type(MessageDeduplication, arguments={"x-cache-size": 10})


def test_random_keeps_the_contract() -> None:
    check_exchange_type(RandomExchange, by_chance=True)


def test_local_random_keeps_the_contract() -> None:
    check_exchange_type(LocalRandom, bindings=[("", {}), ("", {"a": 1})], by_chance=True)


def test_jms_topic_keeps_the_contract() -> None:
    term = {"rjms_erlang_selector": "{'=',{'ident',<<\"n\">>},1}."}
    bindings: list[tuple[str, Table]] = [("", term), ("k", {"x-filter-jms-selector": "n = 1"}), ("k", {})]
    check_exchange_type(JmsTopic, bindings=bindings, messages=[("", {"n": 1}), ("k", {"n": 2})])


def test_super_stream_keeps_the_contract() -> None:
    check_exchange_type(SuperStream, bindings=[("0", {}), ("1", {"x-stream-partition-order": 1})])


def test_recent_history_keeps_the_contract() -> None:
    check_exchange_type(
        RecentHistory,
        arguments={"x-recent-history-length": 2},
        messages=[("a", {"x-recent-history-no-store": True}), ("a", {})],
    )


@pytest.mark.parametrize("inner", ["direct", "headers"])
def test_delayed_message_keeps_the_contract(inner: str) -> None:
    messages: list[tuple[str, Table]] = [("a", {"x-delay": 5}), ("a.b", {}), ("a", {"x-delay": -5})]
    check_exchange_type(DelayedMessage, arguments={"x-delayed-type": inner}, messages=messages)


def refusal(type_class: type[ExchangeType], arguments: Table) -> str:
    with pytest.raises(PreconditionFailed) as refused:
        Bench(type_class, arguments)
    return str(refused.value)


def only(bench: Bench, key: str = "", headers: Table | None = None) -> str:
    """The one destination that a message goes to."""
    answer = bench.route(fake_message(key, headers))
    assert isinstance(answer, set)
    (name,) = answer
    return name


# x-consistent-hash

KEYS = [f"key-{number}" for number in range(6000)]


def spread(bench: Bench) -> dict[str, str]:
    return {key: only(bench, key) for key in KEYS}


def weighted(**weights: int) -> Bench:
    bench = Bench(ConsistentHash)
    for name, weight in weights.items():
        bench.bind(name, str(weight))
    return bench


def test_consistent_hash_spreads_keys_by_weight() -> None:
    counts = Counter(spread(weighted(one=1, two=2, three=3, none=0)).values())
    assert counts["none"] == 0
    assert counts["one"] == pytest.approx(1000, abs=100)
    assert counts["two"] == pytest.approx(2000, abs=140)
    assert counts["three"] == pytest.approx(3000, abs=160)


def test_consistent_hash_moves_only_the_keys_of_a_queue_that_goes() -> None:
    bench = weighted(a=1, b=1, c=1)
    before = spread(bench)
    bench.unbind("b", "1")
    after = spread(bench)
    assert all(after[key] == before[key] for key in KEYS if before[key] != "b")


def test_consistent_hash_gives_a_new_queue_its_share_and_moves_nothing_else() -> None:
    bench = weighted(a=1, b=1, c=1)
    before = spread(bench)
    bench.bind("d", "1")
    moved = {key: queue for key, queue in spread(bench).items() if queue != before[key]}
    assert set(moved.values()) == {"d"}
    assert len(moved) == pytest.approx(len(KEYS) / 4, abs=140)


def test_consistent_hash_does_not_depend_on_the_order_of_binding() -> None:
    assert spread(weighted(a=1, b=2)) == spread(weighted(b=2, a=1))


def test_hashes_are_the_same_in_every_process() -> None:
    script = (
        "from leveret.testing.fakes import Bench\n"
        "from leveret.plugins.consistent_hash import ConsistentHash\n"
        "from leveret.plugins.modulus_hash import ModulusHash\n"
        "for type_class in (ConsistentHash, ModulusHash):\n"
        "    bench = Bench(type_class)\n"
        "    for name in 'abc':\n"
        "        bench.bind(name, '1')\n"
        "    for number in range(8):\n"
        "        print(*bench.exchange.type.route(bench.publish(f'key-{number}')))\n"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


@pytest.mark.parametrize("weight", ["", "-1", "1.5", "one", "+1", " 1", "٣", "1" * 11, "4294967296"])
def test_x015_a_weight_is_a_whole_number(weight: str) -> None:
    with pytest.raises(PreconditionFailed, match="is a weight from 0 to 2147483647, not"):
        Bench(ConsistentHash).bind("q", weight)


def test_consistent_hash_hashes_a_header_if_told() -> None:
    bench = Bench(ConsistentHash, {"hash-header": "customer"})
    for name in "abcdefgh":
        bench.bind(name, "1")
    by_customer = {customer: only(bench, "any", {"customer": customer}) for customer in KEYS[:50]}
    assert len(set(by_customer.values())) > 4
    assert all(only(bench, "other", {"customer": c, "n": 1}) == queue for c, queue in by_customer.items())
    assert only(bench, "a") == only(bench, "b", {"n": 1})  # without the header: all to one


HASHED_PROPERTIES: dict[str, Callable[[int], Properties]] = {
    "message_id": lambda number: Properties(message_id=str(number)),
    "correlation_id": lambda number: Properties(correlation_id=str(number)),
    "timestamp": lambda number: Properties(timestamp=number),
}


@pytest.mark.parametrize("name", HASHED_PROPERTIES)
def test_consistent_hash_hashes_a_property_if_told(name: str) -> None:
    bench = Bench(ConsistentHash, {"hash-property": name})
    for queue in "abcdefgh":
        bench.bind(queue, "1")

    def queues(key: str) -> list[object]:
        properties = [HASHED_PROPERTIES[name](number) for number in range(20)]
        return [bench.route(fake_message(key, properties=each)) for each in properties]

    assert queues("k") == queues("other")
    assert len({str(queue) for queue in queues("k")}) > 2


REFUSED_HASHES: list[tuple[Table, str]] = [
    (
        {"hash-header": "a", "hash-property": "message_id"},
        "hash-header and hash-property are mutually exclusive",
    ),
    (
        {"hash-property": "app_id"},
        "Unsupported property: app_id; expected one of message_id, correlation_id, timestamp",
    ),
    ({"hash-header": 1}, "Invalid argument hash-header of type signedint; expected longstr"),
]


@pytest.mark.parametrize(("arguments", "text"), REFUSED_HASHES)
def test_consistent_hash_refuses_arguments_it_cannot_hash_by(arguments: Table, text: str) -> None:
    assert refusal(ConsistentHash, arguments) == text


# x-modulus-hash and x-random


def test_modulus_hash_spreads_keys_evenly_and_counts_a_queue_once() -> None:
    bench = Bench(ModulusHash)
    for name, key in (("a", "1"), ("b", "1"), ("a", "2"), ("a", "3")):
        bench.bind(name, key)
    assert Counter(spread(bench).values())["a"] == pytest.approx(3000, abs=160)


def test_modulus_hash_does_not_depend_on_the_order_of_binding() -> None:
    one, other = Bench(ModulusHash), Bench(ModulusHash)
    for name in "abc":
        one.bind(name)
    for name in "cab":
        other.bind(name)
    assert spread(one) == spread(other)


def test_random_gives_each_queue_the_same_chance_however_often_it_is_bound() -> None:
    bench = Bench(RandomExchange)
    bench.exchange.type = RandomExchange(bench.exchange, Random(7))
    for name, key in (("a", "1"), ("b", "1"), ("a", "2"), ("c", "1")):
        bench.bind(name, key)
    counts = Counter(only(bench) for _ in range(3000))
    assert all(counts[name] == pytest.approx(1000, abs=100) for name in "abc")


def test_random_repeats_itself_with_the_same_seed() -> None:
    def picks() -> list[str]:
        bench = Bench(RandomExchange)
        bench.exchange.type = RandomExchange(bench.exchange, Random(7))
        for name in "abc":
            bench.bind(name)
        return [only(bench) for _ in range(20)]

    assert picks() == picks()


# x-local-random


def test_local_random_gives_each_queue_the_same_chance_also_after_one_has_gone() -> None:
    bench = Bench(LocalRandom)
    bench.exchange.type = LocalRandom(bench.exchange, Random(7))
    arguments: list[tuple[str, Table]] = [("a", {}), ("b", {}), ("a", {"again": True}), ("c", {})]
    for name, further in arguments:
        bench.bind(name, "", further)
    counts = Counter(only(bench) for _ in range(3000))
    assert all(counts[name] == pytest.approx(1000, abs=100) for name in "abc")
    bench.unbind("b")
    assert {only(bench) for _ in range(100)} == {"a", "c"}


def test_local_random_refuses_keys_and_exchanges() -> None:
    bench = Bench(LocalRandom)
    with pytest.raises(PreconditionFailed, match=r"^Non empty binding 'a' key not permitted$"):
        bench.bind("q", "a")
    with pytest.raises(PreconditionFailed, match=r"^Destination not found$"):
        bench.bind("e", is_exchange=True)
    assert not bench.exchange.bindings


# x-super-stream


@pytest.mark.parametrize(
    ("octets", "seed", "hashed"),
    [  # of the test vectors that implementations share
        (b"", 0, 0),
        (b"", 1, 0x514E28B7),
        (b"\xff\xff\xff\xff", 0, 0x76293B50),
        (b"\x21\x43\x65\x87", 0x5082EDEE, 0x2362F9DE),
        (b"\x21\x43\x65", 0, 0x7E4A8634),
        (b"\x21\x43", 0, 0xA0F7B07A),
        (b"\x21", 0, 0x72661CF4),
        (b"Hello, world!", 0x9747B28C, 0x24884CBA),
    ],
)
def test_the_hash_of_super_streams_is_murmur3(octets: bytes, seed: int, hashed: int) -> None:
    assert murmur3(octets, seed) == hashed


def test_a_super_stream_gives_each_key_to_the_partition_of_its_hash() -> None:
    bench = Bench(SuperStream)
    for number in range(3):
        bench.bind(f"events-{number}", str(number))
    keys = [f"key {number}" for number in range(300)]
    chosen = [only(bench, key) for key in keys]
    assert chosen == [f"events-{murmur3(key.encode(), 104729) % 3}" for key in keys]
    assert all(70 < count < 130 for count in Counter(chosen).values())


def test_a_number_without_a_partition_leads_nowhere() -> None:
    bench = Bench(SuperStream)
    bench.bind("events-7", "7")
    assert bench.route(fake_message("any")) == set()


@pytest.mark.parametrize("key", ["", "a", "1.0", "#", "9" * 10])
def test_the_binding_key_of_a_partition_is_its_number(key: str) -> None:
    with pytest.raises(PreconditionFailed, match="The binding key must be an integer"):
        Bench(SuperStream).bind("q", key)


# x-recent-history


def keys_in(bench: Bench, name: str, is_exchange: bool = False) -> list[str]:
    return [message.key for message in bench.destination(name, is_exchange).messages]


def test_recent_history_gives_a_new_queue_the_last_messages_in_order() -> None:
    bench = Bench(RecentHistory, {"x-recent-history-length": 3})
    bench.bind("early")
    for key in "abcde":
        bench.publish(key)
    bench.bind("late")
    assert keys_in(bench, "early") == ["a", "b", "c", "d", "e"]
    assert keys_in(bench, "late") == ["c", "d", "e"]


def test_recent_history_remembers_twenty_messages_if_not_told() -> None:
    bench = Bench(RecentHistory)
    for number in range(30):
        bench.publish(str(number))
    assert len(bench.bind("late").messages) == 20


def test_recent_history_skips_what_must_not_be_stored() -> None:
    bench = Bench(RecentHistory)
    bench.bind("early")
    bench.publish("a", {"x-recent-history-no-store": True})
    bench.publish("b", {"x-recent-history-no-store": "true"})  # not a truth value
    bench.bind("late")
    assert keys_in(bench, "early") == ["a", "b"]
    assert keys_in(bench, "late") == ["b"]


def test_recent_history_is_for_queues_and_survives_a_reload_without_telling_it_twice() -> None:
    bench = Bench(RecentHistory)
    bench.bind("early")
    bench.publish("a")
    bench.exchange.replace_type(RecentHistory)
    bench.bind("late")
    bench.bind("beyond", is_exchange=True)
    assert keys_in(bench, "early") == keys_in(bench, "late") == ["a"]
    assert keys_in(bench, "beyond", is_exchange=True) == []


@pytest.mark.parametrize(
    ("length", "shown"), [(0, "0"), (-1, "-1"), ("5", "5"), (True, "true"), (2.5, "2.5")]
)
def test_recent_history_wants_a_positive_length(length: Value, shown: str) -> None:
    text = refusal(RecentHistory, {"x-recent-history-length": length})
    assert text == f"Invalid argument '{shown}', 'x-recent-history-length' must be a positive integer"


# x-delayed-message


def delayed(inner: str = "direct") -> Bench:
    return Bench(DelayedMessage, {"x-delayed-type": inner}, {**STANDARD, ModulusHash.name: ModulusHash})


@pytest.fixture
def bench() -> Bench:
    return delayed()


def test_a_delayed_message_comes_when_its_time_has_come(bench: Bench) -> None:
    bench.bind("q", "a")
    bench.publish("a", {"x-delay": 1500})
    bench.advance(1.499)
    assert keys_in(bench, "q") == []
    bench.advance(0.001)
    assert keys_in(bench, "q") == ["a"]


def test_s151_a_message_that_waits_is_handled_and_not_unroutable(bench: Bench) -> None:
    assert bench.route(fake_message("nowhere", {"x-delay": 1})) is HANDLED
    assert bench.route(fake_message("nowhere", {})) == set()


def test_delayed_messages_come_in_order_of_time_then_of_publishing() -> None:
    bench = delayed("fanout")
    bench.bind("q")
    for key, delay in (("c", 30), ("a", 10), ("b", 20), ("d", 30), ("now", 0)):
        bench.publish(key, {"x-delay": delay})
    bench.advance(1)
    assert keys_in(bench, "q") == ["now", "a", "b", "c", "d"]


def test_delayed_messages_keep_their_time_and_order_over_a_restart() -> None:
    bench = delayed("fanout")
    bench.bind("q")
    for key, delay in (("c", 30), ("a", 10), ("b", 20), ("d", 30)):
        bench.publish(key, {"x-delay": delay})
    bench.advance(0.015)
    bench.restart()
    assert keys_in(bench, "q") == ["a"]
    bench.publish("e", {"x-delay": 15})
    bench.advance(0.015)
    assert keys_in(bench, "q") == ["a", "b", "c", "d", "e"]


def test_what_came_due_while_the_node_was_away_goes_at_once(bench: Bench) -> None:
    bench.bind("q", "a")
    bench.publish("a", {"x-delay": 1000})
    bench.broker.clock.advance(5)
    bench.restart()
    bench.advance(0)
    assert keys_in(bench, "q") == ["a"]


def test_a_released_message_is_held_no_longer(bench: Bench) -> None:
    bench.bind("q", "a")
    bench.publish("a", {"x-delay": 1000})
    bench.advance(1)
    bench.restart()
    bench.advance(1)
    assert keys_in(bench, "q") == ["a"]


@pytest.mark.parametrize("delay", [0, -1, "1000", 1.5, True, None, [5]])
def test_no_positive_integer_no_delay(delay: Value, bench: Bench) -> None:
    bench.bind("q", "a")
    bench.publish("a", {"x-delay": delay})
    assert keys_in(bench, "q") == ["a"]


def test_delays_do_not_wrap_at_32_bits(bench: Bench) -> None:
    bench.bind("q", "a")
    bench.publish("a", {"x-delay": 2**32 + 1000})
    bench.publish("a", {"x-delay": 2**64 - 1})
    bench.advance(2**32 / 1000)
    assert keys_in(bench, "q") == []
    bench.advance(1)
    assert keys_in(bench, "q") == ["a"]


def test_a_delayed_message_takes_the_bindings_of_the_moment_it_is_released(bench: Bench) -> None:
    bench.bind("before", "a")
    bench.publish("a", {"x-delay": 1000})
    bench.unbind("before", "a")
    bench.bind("after", "a")
    bench.advance(1)
    assert keys_in(bench, "before") == []
    assert keys_in(bench, "after") == ["a"]


def test_the_delayed_type_may_be_any_registered_one() -> None:
    bench = delayed("x-modulus-hash")
    bench.bind("a")
    bench.bind("b")
    bench.publish("k", {"x-delay": 5})
    bench.advance(1)
    assert len(keys_in(bench, "a") + keys_in(bench, "b")) == 1


def test_the_delayed_type_validates_the_bindings() -> None:
    with pytest.raises(PreconditionFailed, match="x-match"):
        delayed("headers").bind("q", arguments={"x-match": "z"})


@pytest.mark.parametrize(
    "arguments", [{}, {"x-delayed-type": ""}, {"x-delayed-type": 5}, {"x-delayed-type": "x-none"}]
)
def test_the_delayed_type_must_be_registered(arguments: Table) -> None:
    assert "'x-delayed-type' must be an existing exchange type" in refusal(DelayedMessage, arguments)


def test_a_delay_of_delays_is_refused() -> None:
    with pytest.raises(PreconditionFailed):
        Bench(DelayedMessage, {"x-delayed-type": "x-delayed-message"}, {DelayedMessage.name: DelayedMessage})


def test_the_delayed_type_validates_the_exchange_and_tells_what_differs() -> None:
    types = {"x-recent-history": RecentHistory}
    with pytest.raises(PreconditionFailed, match="x-recent-history-length"):
        Bench(DelayedMessage, {"x-delayed-type": "x-recent-history", "x-recent-history-length": 0}, types)
    bench = Bench(DelayedMessage, {"x-delayed-type": "x-recent-history"}, types)
    equivalent = bench.exchange.type.equivalent
    assert equivalent({"x-delayed-type": "x-recent-history"}) is None
    assert equivalent({"x-delayed-type": "direct"}) == "x-delayed-type"
    assert (
        equivalent({"x-delayed-type": "x-recent-history", "x-recent-history-length": 5})
        == "x-recent-history-length"
    )


def test_the_delayed_type_keeps_messages_when_they_are_released() -> None:
    bench = Bench(DelayedMessage, {"x-delayed-type": "x-recent-history"}, {"x-recent-history": RecentHistory})
    bench.publish("later", {"x-delay": 1000})
    bench.publish("now")
    assert [m.key for m in bench.bind("q1").messages] == ["now"]
    bench.advance(1)
    bench.exchange.replace_type(DelayedMessage)  # the inner type's history comes along
    assert [m.key for m in bench.bind("q2").messages] == ["now", "later"]


def held(bench: Bench) -> int:
    assert isinstance(bench.exchange.type, DelayedMessage)
    return bench.exchange.type.held


def test_held_messages_survive_a_reload_and_come_once(bench: Bench) -> None:
    bench.bind("q", "a")
    bench.publish("a", {"x-delay": 1000})
    bench.exchange.replace_type(DelayedMessage)
    assert held(bench) == 1
    bench.advance(2)
    assert keys_in(bench, "q") == ["a"]
    assert held(bench) == 0


def test_deleting_the_exchange_drops_what_it_holds(bench: Bench) -> None:
    bench.bind("q", "a")
    bench.publish("a", {"x-delay": 1000})
    bench.exchange.type.close()
    bench.advance(2)
    assert keys_in(bench, "q") == []
    assert bench.broker.timers.next_at() is None


def test_one_timer_serves_all_messages(bench: Bench) -> None:
    for delay in (5000, 3000, 4000):
        bench.publish("a", {"x-delay": delay})
    assert bench.broker.timers.next_at() == bench.broker.clock.now() + 3
    bench.advance(3)
    assert held(bench) == 2
    assert bench.broker.timers.next_at() == bench.broker.clock.now() + 1


def test_a_dry_run_holds_nothing(bench: Bench) -> None:
    message = fake_message("a", {"x-delay": 5})
    bench.exchange.type.route(message)
    assert held(bench) == 0
    publish(bench.exchange, message)
    assert held(bench) == 1

"""Retained messages: kept, found by wildcards, expired, deleted, and there again after a restart."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from leveret.clock import LongWork
from leveret.errors import PreconditionFailed
from leveret.exchanges.exchange_type import Exchange
from leveret.interceptors.chain import chain_of
from leveret.interceptors.contract import Interceptor
from leveret.message import Message
from leveret.protocols.mqtt.broker import ordered_topics
from leveret.protocols.mqtt.broker.ordered_topics import OrderedTopics
from leveret.protocols.mqtt.broker.retained import PASSED_MAX, RetainedMessages, retained_of
from leveret.protocols.mqtt.broker.topics import matches
from leveret.protocols.mqtt.codec import reason_codes as r
from leveret.protocols.mqtt.codec.packets import Will
from leveret.values import Table
from tests.harness.bench import ClientBench, CoreBench, StoredBench
from tests.harness.plain import plain_only
from tests.mqtt.peer import Peer


class Never(Interceptor):
    """Refuses each message."""

    name = "x-never"

    def incoming(self, message: Message, exchange: Exchange, now: float) -> Message:
        raise PreconditionFailed("nothing passes")


class Stamped(Interceptor):
    """Adds a user property, and moves what begins with `private/` away with another payload."""

    name = "x-stamped"

    def incoming(self, message: Message, exchange: Exchange, now: float) -> Message:
        stamped = message.saying({"stamp": "seen"})
        if not message.key.startswith("private."):
            return stamped
        key, body = "public" + message.key[7:], message.body[:3]
        return Message(message.encoding, message.exchange, key, stamped.properties, body, stamped.facts)


def stamping() -> ClientBench:
    bench = ClientBench()
    entry: tuple[str, Table] = (Stamped.name, {})
    bench.broker.intercept(chain_of((entry,), {Stamped.name: Stamped}, "node", bench.broker.clock, 1.0))
    return bench


def topics(peer: Peer) -> set[str]:
    return {each.topic for each in peer.messages()}


def test_a_new_subscription_gets_the_last_retained_message() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me")
    peer.publish("a/b", b"1", retain=True)
    peer.publish("a/b", b"2", qos=1, retain=True)
    reader = Peer(bench).connect("reader")
    reader.subscribe("a/+", qos=2)
    (found,) = reader.messages()
    assert (found.topic, found.payload, found.qos, found.retain) == ("a/b", b"2", 1, True)
    peer.publish("a/b", b"3", retain=True)
    (found,) = reader.messages()
    assert (found.payload, found.retain) == (b"3", False)


def test_retain_as_published_keeps_the_flag() -> None:
    bench = ClientBench()
    reader = Peer(bench).connect("reader")
    reader.subscribe("a", retain_as_published=True)
    peer = Peer(bench).connect("me")
    peer.publish("a", b"1", retain=True)
    peer.publish("a", b"2")
    assert [each.retain for each in reader.messages()] == [True, False]


def test_an_empty_payload_deletes() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me")
    peer.publish("a", b"1", retain=True)
    peer.publish("a", b"", retain=True)
    reader = Peer(bench).connect("reader")
    reader.subscribe("#")
    assert reader.messages() == []
    assert retained_of(bench.host).count == 0


@pytest.mark.parametrize(("handling", "first", "again"), [(0, 1, 1), (1, 1, 0), (2, 0, 0)])
def test_retain_handling(handling: int, first: int, again: int) -> None:
    bench = ClientBench()
    Peer(bench).connect("me").publish("a", b"1", retain=True)
    reader = Peer(bench).connect("reader")
    reader.subscribe("a", retain_handling=handling)
    assert len(reader.messages()) == first
    reader.subscribe("a", retain_handling=handling)
    assert len(reader.messages()) == again


def test_a_retained_message_expires_and_tells_what_is_left() -> None:
    bench = ClientBench()
    Peer(bench).connect("me").publish("a", b"1", retain=True, message_expiry_interval=10)
    bench.advance(4)
    reader = Peer(bench).connect("reader")
    reader.subscribe("a")
    (found,) = reader.messages()
    assert found.properties.message_expiry_interval == 6
    bench.advance(7)
    reader.subscribe("a")
    assert reader.messages() == []
    assert retained_of(bench.host).count == 0


def test_wildcards_at_the_beginning_do_not_match_topics_of_the_server() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me")
    for topic in ("$SYS/a", "a/b"):
        peer.publish(topic, b"1", retain=True)
    reader = Peer(bench).connect("reader")
    for topic_filter in ("#", "+/a", "+/b"):
        reader.subscribe(topic_filter)
    assert topics(reader) == {"a/b"}
    reader.subscribe("$SYS/#")
    assert topics(reader) == {"$SYS/a"}
    peer.publish("$SYS/a", b"2")
    assert [each.topic for each in reader.messages()] == ["$SYS/a"]


def test_there_are_no_more_than_allowed() -> None:
    bench = ClientBench("[protocols.mqtt]\nretained_max = 1\nretained_size_max = 4")
    peer = Peer(bench).connect("me")
    peer.publish("a", b"1", qos=1, retain=True)
    for topic, payload in (("b", b"1"), ("a", b"12345")):
        answer = peer.publish(topic, payload, qos=1, retain=True)
        assert answer is not None
        assert answer.reason_code == r.QUOTA_EXCEEDED
    answer = peer.publish("a", b"2", qos=1, retain=True)
    assert answer is not None
    assert answer.reason_code == r.NO_MATCHING_SUBSCRIBERS
    assert retained_of(bench.host).get("b") is None


def full(bench: ClientBench) -> None:
    """Have a queue refuse what is published to the topic `a`."""
    queue = bench.host.declare_queue("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    bench.host.bind(bench.host.exchange("amq.topic"), queue, "a")


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("payload", [b"new", b""])
def test_what_a_full_queue_refuses_changes_nothing(qos: int, payload: bytes) -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me")
    peer.publish("a", b"old", qos=qos, retain=True)
    full(bench)
    answer = peer.publish("a", payload, qos=qos, retain=True)
    assert answer is not None
    assert answer.reason_code == r.QUOTA_EXCEEDED
    found = retained_of(bench.host).get("a")
    assert found is not None
    assert found.payload == b"old"


def test_a_full_queue_drops_only_its_copy_of_a_message_without_acknowledgement() -> None:
    bench = ClientBench()
    full(bench)
    peer = Peer(bench).connect("me")
    peer.publish("a", b"1", retain=True)
    found = retained_of(bench.host).get("a")
    assert found is not None
    assert found.payload == b"1"
    peer.publish("a", b"", retain=True)
    assert retained_of(bench.host).count == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_an_interceptor_refuses_is_not_retained(qos: int) -> None:
    bench = ClientBench()
    entry: tuple[str, Table] = ("x-never", {})
    bench.broker.intercept(chain_of((entry,), {"x-never": Never}, "node", bench.broker.clock, 1.0))
    Peer(bench).connect("me").publish("a", b"1", qos=qos, retain=True)
    assert retained_of(bench.host).count == 0


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_what_is_retained_is_what_interceptors_have_let_in(qos: int) -> None:
    bench = stamping()
    early, late = Peer(bench).connect("early"), Peer(bench).connect("late")
    early.subscribe("#", qos=2)
    peer = Peer(bench).connect("me")
    peer.publish("a/b", b"1", qos=qos, retain=True, message_expiry_interval=60, content_type="text/plain")
    late.subscribe("#", qos=2)
    (first,), (second,) = early.messages(), late.messages()
    assert first.properties.user_properties == second.properties.user_properties == (("stamp", "seen"),)
    assert (second.topic, second.payload, second.qos, second.retain) == ("a/b", b"1", qos, True)
    assert second.properties.message_expiry_interval == 60
    assert second.properties.content_type == "text/plain"
    assert bench.host.exchanges["amq.topic"].published == 1


def test_what_an_interceptor_moves_is_retained_and_deleted_where_it_went() -> None:
    bench = stamping()
    peer = Peer(bench).connect("me", will=Will("private/w", b"gone", 1, True))
    peer.publish("private/a", b"secret", qos=1, retain=True)
    retained = retained_of(bench.host)
    assert [(each.topic, each.payload) for each in retained] == [("public/a", b"sec")]
    peer.publish("private/a", b"", qos=1, retain=True)
    assert retained.count == 0
    peer.drop()
    bench.settle()
    assert [(each.topic, each.payload) for each in retained] == [("public/w", b"gon")]


def test_what_an_interceptor_has_made_larger_has_to_be_small_enough() -> None:
    bench = ClientBench("[protocols.mqtt]\nretained_size_max = 3")
    entry: tuple[str, Table] = (Stamped.name, {})
    bench.broker.intercept(chain_of((entry,), {Stamped.name: Stamped}, "node", bench.broker.clock, 1.0))
    peer = Peer(bench).connect("me")
    answers = [peer.publish(each, b"12345", qos=1, retain=True) for each in ("a", "private/a")]
    assert [answer.reason_code for answer in answers if answer] == [
        r.QUOTA_EXCEEDED,
        r.NO_MATCHING_SUBSCRIBERS,
    ]


def test_a_will_that_is_refused_is_not_retained() -> None:
    bench = ClientBench()
    full(bench)
    Peer(bench).connect("me", will=Will("a", b"gone", 1, True)).drop()
    bench.settle()
    assert retained_of(bench.host).count == 0


def test_they_outlive_the_node() -> None:
    bench = StoredBench()
    peer = Peer(bench).connect("me")
    peer.publish("a/b", b"1", qos=1, retain=True, content_type="text/plain")
    peer.publish("a/c", b"2", qos=1, retain=True)
    peer.publish("a/c", b"", qos=1, retain=True)
    peer.publish("a/d", b"3", qos=1, retain=True, message_expiry_interval=5)
    after = bench.again()
    after.advance(6)
    reader = Peer(after).connect("reader")
    reader.subscribe("a/#")
    (found,) = reader.messages()
    assert (found.topic, found.payload, found.properties.content_type) == ("a/b", b"1", "text/plain")


def test_many_come_in_portions_while_others_are_published() -> None:
    bench = ClientBench()
    peer = Peer(bench).connect("me")
    retained = retained_of(bench.host)
    for number in range(500):
        retained.retain(f"a/{number}", b"\0\0\0", b"old", None)
    bench.broker.long_work = LongWork(bench.clock, bench.broker.timers, portion_s=-1)
    reader = Peer(bench).connect("reader")
    reader.subscribe("a/+")
    assert len(reader.messages()) == 50
    peer.publish("a/499", b"", retain=True)
    peer.publish("b", b"x", retain=True)
    for _ in range(20):
        bench.advance(0.01)
    found = reader.messages()
    assert len({each.topic for each in found if each.retain}) == 449


def test_they_end_with_their_virtual_host() -> None:
    bench = StoredBench()
    Peer(bench).connect("me").publish("$a/b", b"1", retain=True)
    bench.settle()
    assert any("protocol-record" in key for key, _ in bench.store.objects())
    retained_of(bench.host).close()
    bench.settle()
    assert [key for key, _ in bench.store.objects() if "protocol-record" in key] == []


MANY = 5000


def many_retained() -> RetainedMessages:
    retained = retained_of(CoreBench().host)
    for number in range(MANY):
        retained.retain(f"a/{number}/b", b"\0\0\0", b"x", None)
    return retained


def looked_at(retained: RetainedMessages, topic_filter: str) -> list[int]:
    """How many topics each item of a search looked at."""
    looks: list[int] = []
    in_order = retained._in_order

    def counted(start: str) -> Iterator[str]:
        for topic in in_order(start):
            looks[-1] += 1
            yield topic

    retained._in_order = counted  # type: ignore[method-assign]
    found = retained.matching(topic_filter.split("/"))
    looks.append(0)
    while next(found, retained) is not retained:
        looks.append(0)
    return looks


@plain_only
@pytest.mark.parametrize("topic_filter", ["#", "+/+/b", "a/#", "+/4999/b", "+/+/c", "+/#", "a/+/+/#"])
def test_each_step_of_a_wildcard_looks_at_few_topics_however_many_there_are(topic_filter: str) -> None:
    looks = looked_at(many_retained(), topic_filter)
    assert max(looks) <= PASSED_MAX
    assert sum(looks) == MANY


@plain_only
def test_a_filter_looks_at_topics_that_begin_as_it_does_only() -> None:
    assert sum(looked_at(many_retained(), "a/4999/+")) == 1
    assert sum(looked_at(many_retained(), "a/4999/b")) == 0
    assert sum(looked_at(many_retained(), "b/#")) == 0


@pytest.mark.parametrize("topic_filter", ["#", "+/+/c"])
def test_a_portion_ends_though_nothing_matches(topic_filter: str) -> None:
    """What is looked at counts, not what is found."""
    bench = ClientBench()
    peer = Peer(bench).connect("me")
    retained = retained_of(bench.host)
    for number in range(MANY):
        retained.retain(f"a/{number}/b", b"\0\0\0", b"old", None)
    bench.broker.long_work = LongWork(bench.clock, bench.broker.timers, portion_s=-1)
    reader = Peer(bench).connect("reader")
    reader.subscribe(topic_filter)
    assert len(reader.messages()) <= 50
    assert peer.publish("c", b"x", qos=1) is not None
    assert len(bench.broker.long_work._waiting) == 1


class OrderedTopicsLikeASet(RuleBasedStateMachine):
    """Topics in blocks, beside a set."""

    def __init__(self) -> None:
        super().__init__()
        self.topics = OrderedTopics()
        self.known: set[str] = set()

    @rule(names=st.lists(st.text("ab/", min_size=1, max_size=6), max_size=40))
    def add(self, names: list[str]) -> None:
        for name in names:
            if name not in self.known:
                self.topics.add(name)
                self.known.add(name)

    @rule(chance=st.randoms(use_true_random=False), count=st.integers(1, 30))
    def remove(self, chance: Random, count: int) -> None:
        for name in chance.sample(sorted(self.known), min(count, len(self.known))):
            self.topics.remove(name)
            self.known.remove(name)

    @invariant()
    def the_same_are_found_in_order(self) -> None:
        for start in ("", "a", "a/b", "b"):
            expected = [name for name in sorted(self.known) if name >= start]
            found: list[str] = []
            while some := self.topics.since(found[-1] + "\0" if found else start, 3):
                assert len(some) <= 3
                found += some
            assert found == expected
        assert all(0 < len(block) <= ordered_topics.BLOCK_MAX for block in self.topics._blocks)


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ordered_topics, "BLOCK_MAX", 4)


@pytest.mark.usefixtures("small_blocks")
def test_ordered_topics_are_like_a_set() -> None:
    run_state_machine_as_test(OrderedTopicsLikeASet, settings=settings(max_examples=30, deadline=None))


def test_what_is_restored_shares_what_is_alike() -> None:
    bench = StoredBench()
    peer = Peer(bench).connect("me")
    for number in range(3):
        peer.publish(f"a/{number}", b"1", qos=1, retain=True)
    first, *others = retained_of(bench.again().host)
    assert all(each.octets is first.octets for each in others)


LEVELS = st.sampled_from(["a", "b", "", "$x"])
TOPICS = st.lists(LEVELS, min_size=1, max_size=4).map("/".join).filter(bool)
FILTERS = st.builds(
    lambda levels, rest: "/".join([*levels, *(["#"] if rest or not levels else [])]),
    st.lists(st.sampled_from(["a", "b", "", "$x", "+"]), max_size=4),
    st.booleans(),
).filter(bool)


@settings(max_examples=200, deadline=None)
@given(st.sets(TOPICS, max_size=8), FILTERS)
def test_what_a_filter_matches_is_found(known: set[str], topic_filter: str) -> None:
    retained = retained_of(CoreBench().host)
    for topic in known:
        retained.retain(topic, b"\0\0\0", b"x", None)
    levels = topic_filter.split("/")
    expected = {topic for topic in known if matches(levels, topic.split("/"))}
    assert {each.topic for each in retained.matching(levels) if each is not None} == expected
    for topic in known:
        assert retained.delete(topic)
    assert list(retained) == []
    assert list(retained.matching(["#"])) == []

"""Selectors on bindings: what goes through, what is unrouted, what is remembered, and what a start makes of them."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker import TAKEN, UNROUTABLE, Outcome
from leveret.errors import PreconditionFailed
from leveret.exchanges.binding_selector import SELECTOR
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange
from leveret.exchanges.explain import explain
from leveret.exchanges.headers import Headers
from leveret.exchanges.routing import walk
from leveret.exchanges.standard import STANDARD
from leveret.message import Message
from leveret.plugins.consistent_hash import ConsistentHash
from leveret.plugins.delayed_message import DelayedMessage
from leveret.plugins.local_random import LocalRandom
from leveret.plugins.message_deduplication import MessageDeduplication
from leveret.plugins.modulus_hash import ModulusHash
from leveret.plugins.random_exchange import RandomExchange
from leveret.plugins.recent_history import RecentHistory
from leveret.plugins.super_stream import SuperStream
from leveret.queues.queue import Queue
from leveret.selectors.parser import Selector
from leveret.server.cli.text import explained
from leveret.transaction import Transaction
from leveret.values import Table, Value
from tests.core.exchanges.test_exchanges import matches as topic_match
from tests.core.fakes import CoreBench, FakeConsumer, waiting
from tests.features.deduplication.published import headed
from tests.harness.bench import StoredBench

PLUGINS = (
    ConsistentHash,
    DelayedMessage,
    LocalRandom,
    MessageDeduplication,
    ModulusHash,
    RandomExchange,
    RecentHistory,
    SuperStream,
)
TYPES = {**STANDARD, **{kind.name: kind for kind in PLUGINS}}
RED = "color = 'red'"


class Desk:
    """An exchange and its queues."""

    def __init__(self, type_: str = "direct", arguments: Table | None = None) -> None:
        self.bench = CoreBench(types=TYPES)
        self.host = self.bench.host
        self.exchange = self.host.declare_exchange("x", type_, arguments=arguments)

    def bound(
        self, name: str, key: str = "", selector: Value = None, source: str = "x", **said: Value
    ) -> Queue:
        arguments = {**said, **({} if selector is None else {SELECTOR: selector})}
        queue = self.host.declare_queue(name)
        self.host.bind(self.host.exchange(source), queue, key, arguments)
        return queue

    def publish(self, key: str = "", body: bytes = b"m", **headers: Value) -> Outcome:
        outcome = self.bench.broker.publish(self.exchange, headed(dict(headers), body, key, "x"))
        self.bench.settle()
        return outcome


@pytest.mark.parametrize(
    ("type_", "key", "arguments"),
    [
        ("direct", "1", {}),
        ("topic", "1", {}),
        ("fanout", "1", {}),
        ("headers", "1", {}),
        ("x-consistent-hash", "1", {}),
        ("x-delayed-message", "1", {"x-delayed-type": "direct"}),
        ("x-local-random", "", {}),
        ("x-message-deduplication", "1", {"x-cache-size": 5}),
        ("x-modulus-hash", "1", {}),
        ("x-random", "1", {}),
        ("x-recent-history", "1", {}),
    ],
)
def test_every_type_of_exchange_has_bindings_with_selectors(type_: str, key: str, arguments: Table) -> None:
    desk = Desk(type_, arguments)
    queue = desk.bound("q", key, RED)
    assert [desk.publish(key, color=color) for color in ("red", "blue", "red")] == [TAKEN, UNROUTABLE, TAKEN]
    assert desk.publish(key) is UNROUTABLE
    assert queue.ready == 2
    desk.host.unbind(desk.exchange, queue, key, {SELECTOR: RED})
    assert desk.publish(key, color="red") is UNROUTABLE
    assert desk.exchange.selecting == 0


def test_a_super_stream_has_partitions_with_selectors() -> None:
    desk = Desk("x-super-stream")
    stream = desk.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    desk.host.bind(desk.exchange, stream, "0", {SELECTOR: RED})
    assert (desk.publish("k", color="red"), desk.publish("k", color="blue")) == (TAKEN, UNROUTABLE)
    assert stream.ready == 1


def test_the_selector_comes_besides_what_the_type_demands() -> None:
    desk = Desk()
    queue = desk.bound("q", "a", RED)
    assert desk.publish("b", color="red") is UNROUTABLE
    assert desk.publish("a", color="red") is TAKEN
    assert queue.ready == 1


def test_bindings_that_differ_in_their_selector_are_two() -> None:
    desk = Desk()
    queue = desk.bound("q", "a", RED)
    desk.bound("q", "a", "size > 3")
    desk.bound("q", "a", RED)
    assert len(desk.exchange.bindings) == 2
    for headers in ({"color": "red"}, {"size": 5}, {"color": "red", "size": 5}):
        desk.publish("a", **headers)
    assert queue.ready == 3
    desk.host.unbind(desk.exchange, queue, "a", {SELECTOR: RED})
    assert (desk.publish("a", color="red"), desk.publish("a", size=5)) == (UNROUTABLE, TAKEN)
    desk.bound("q", "a")
    assert desk.publish("a") is TAKEN


def test_bindings_of_one_queue_share_a_consistent_hash_by_their_selectors() -> None:
    desk = Desk("x-consistent-hash")
    queue = desk.bound("q", "1", RED)
    desk.bound("q", "1", "color = 'blue'")
    for number in range(40):
        desk.publish(str(number), color="red")
    assert 0 < queue.ready < 40


def test_a_message_that_no_selector_lets_through_takes_the_alternate() -> None:
    desk = Desk(arguments={"alternate-exchange": "amq.fanout"})
    queue, rest = desk.bound("q", "a", RED), desk.bound("rest", source="amq.fanout")
    desk.publish("a", b"1", color="red")
    desk.publish("a", b"2", color="blue")
    assert (waiting(queue), waiting(rest)) == ("1", "2")


def test_exchanges_bound_with_a_selector_are_asked_only_if_it_lets_through() -> None:
    desk = Desk("fanout")
    other = desk.host.declare_exchange("y", "fanout")
    queue = desk.bound("q", source="y")
    desk.host.bind(desk.exchange, other, "", {SELECTOR: RED})
    assert (desk.publish(color="red"), desk.publish(color="blue")) == (TAKEN, UNROUTABLE)
    assert queue.ready == 1
    desk.host.delete_exchange("y")
    assert desk.exchange.selecting == 0
    assert not desk.exchange.bindings


def test_immediate_delivery_looks_for_consumers_behind_selectors_too() -> None:
    desk = Desk("fanout")
    queue = desk.bound("q", "", RED)
    FakeConsumer(queue)
    wanted = lambda queue: bool(queue.consumers)  # noqa: E731
    red, blue = headed({"color": "red"}), headed({"color": "blue"})
    assert walk(desk.exchange, red, wanted).queues == (queue,)
    assert walk(desk.exchange, blue, wanted).unroutable


def test_only_answers_with_a_selector_in_them_are_not_remembered() -> None:
    desk = Desk("topic")
    desk.bound("q", "a.*", RED)
    desk.bound("r", "b.*")
    for key in ("a.1", "b.1", "c.1"):
        desk.publish(key, color="red")
    assert set(desk.exchange.routes) == {"b.1", "c.1"}


def test_an_answer_behind_another_exchange_is_not_remembered() -> None:
    desk = Desk("direct")
    other = desk.host.declare_exchange("y", "fanout")
    desk.host.bind(desk.exchange, other, "k")
    queue = desk.bound("q", source="y", selector=RED)
    for color in ("red", "blue", "red"):
        desk.publish("k", color=color)
    assert queue.ready == 2


def test_each_text_is_asked_once_for_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    desk = Desk("fanout")
    for number in range(5):
        desk.bound(f"q{number}", "", RED if number else "color = 'blue'")
    asked: list[str] = []
    matches = Selector.matches

    def counted(self: Selector, message: Message) -> bool:
        asked.append(self.text)
        return matches(self, message)

    monkeypatch.setattr(Selector, "matches", counted)
    desk.publish(color="red")
    assert sorted(asked) == ["color = 'blue'", RED]


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("color =", "the selector of the binding is wrong: at character 8"),
        ("'red'", "the selector of the binding is wrong: at character 1"),
        (5, "x-filter-jms-selector is of type"),
        ("a = 1 OR " * 500 + "a = 1", "characters, and may have 4096"),
    ],
)
def test_a_wrong_selector_is_refused_and_nothing_is_bound(selector: Value, why: str) -> None:
    desk = Desk()
    with pytest.raises(PreconditionFailed, match=why):
        desk.bound("q", "a", selector)
    assert not desk.exchange.bindings
    assert desk.exchange.selecting == 0


def test_an_empty_selector_lets_everything_through() -> None:
    desk = Desk()
    desk.bound("q", "a", " ")
    assert desk.publish("a") is TAKEN
    assert desk.exchange.selecting == 0


def test_a_headers_exchange_does_not_take_the_selector_for_a_criterion() -> None:
    desk = Desk("headers")
    desk.bound("q", "", RED, **{"x-match": "all-with-x", "x-n": 1})
    assert desk.publish(color="red", **{"x-n": 1}) is TAKEN
    assert desk.publish(color="red", **{"x-n": 2}) is UNROUTABLE


def test_the_history_of_an_exchange_is_given_through_the_selector() -> None:
    desk = Desk("x-recent-history")
    for number, color in enumerate(("red", "blue", "red")):
        desk.publish("", b"%d" % number, color=color)
    assert waiting(desk.bound("q", "", RED)) == "0 2"


def test_a_local_random_exchange_looks_behind_the_selector() -> None:
    desk = Desk("x-local-random")
    queue = desk.host.declare_queue("r", durable=True, arguments={"x-queue-type": "quorum"})
    with pytest.raises(PreconditionFailed, match="not valid for this exchange type"):
        desk.host.bind(desk.exchange, queue, "", {SELECTOR: RED})


def test_a_delayed_message_is_selected_when_it_is_due() -> None:
    desk = Desk("x-delayed-message", {"x-delayed-type": "fanout"})
    queue = desk.bound("q", "", RED)
    for color in ("red", "blue"):
        assert desk.publish(color=color, **{"x-delay": 1000}) is TAKEN
    desk.bench.advance(2)
    assert queue.ready == 1


def test_dead_letters_and_transactions_are_selected() -> None:
    desk = Desk("fanout")
    queue = desk.bound("q", "", RED)
    dying = desk.host.declare_queue(
        "dying",
        arguments={"x-dead-letter-exchange": "x", "x-message-ttl": 10, "x-dead-letter-routing-key": "k"},
    )
    for color in ("red", "blue"):
        dying.push(headed({"color": color}, b"d"))
    desk.bench.settle()
    desk.bench.advance(1)
    assert (queue.ready, dying.ready) == (1, 0)
    transaction = Transaction()
    for color in ("red", "blue"):
        transaction.publish(desk.bench.broker, desk.exchange, headed({"color": color}, b"t"))
    transaction.commit()
    desk.bench.settle()
    assert waiting(queue) == "d t"


def test_a_reload_of_the_type_keeps_the_selectors() -> None:
    desk = Desk("headers")
    queue = desk.bound("q", "", RED)

    class Newer(Headers):
        name = "headers"

    desk.exchange.replace_type(Newer)
    assert (desk.publish(color="red"), desk.publish(color="blue")) == (TAKEN, UNROUTABLE)
    assert (queue.ready, desk.exchange.selecting) == (1, 1)

    class Failing(Headers):
        name = "headers"

        def bind(self, binding: Binding) -> None:
            raise ValueError("out of order")

    with pytest.raises(ValueError, match="out of order"):
        desk.exchange.replace_type(Failing)
    assert (desk.publish(color="red"), desk.publish(color="blue")) == (TAKEN, UNROUTABLE)


# Explained.


def test_an_explanation_says_that_the_selector_does_not_match() -> None:
    desk = Desk("topic")
    desk.bound("q", "a.*", RED)
    desk.bound("r", "a.1")
    told = explain(desk.host, "x", "a.2", {"color": "blue"})
    assert told.dropped == "exchange 'x': the selector does not match"
    assert [match.name for match in told.steps[0].unmet] == ["q"]
    both = explain(desk.host, "x", "a.1", {"color": "blue"})
    assert both.queues == ("r",)
    assert [match.name for match in both.steps[0].matched] == ["r"]
    assert "'a.*' x-filter-jms-selector=color = 'red' -> queue 'q': the selector does not match" in explained(
        both.to_json()
    )
    assert explain(desk.host, "x", "a.2", {"color": "red"}).queues == ("q",)


# Over a start.


def restarted(selector: str) -> StoredBench:
    """A store with a durable binding, whose selector may not have been checked when it was made."""
    bench = StoredBench()
    queue = bench.host.declare_queue("q", durable=True)
    source = bench.host.exchange("amq.direct")
    binding = Binding(source, queue, "k", {SELECTOR: selector})
    bench.host.add_binding(binding)
    assert bench.broker.catalogue is not None
    bench.broker.catalogue.keep(binding)
    return bench.again()


def outcomes(bench: StoredBench) -> list[Outcome]:
    source: Exchange = bench.host.exchange("amq.direct")
    return [bench.broker.publish(source, headed({"color": c}, key="k")) for c in ("red", "blue")]


def test_a_selector_holds_after_a_start() -> None:
    assert outcomes(restarted(RED)) == [TAKEN, UNROUTABLE]


def test_a_stored_selector_that_cannot_be_read_keeps_its_binding_which_matches_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "leveret"):
        bench = restarted("color =")
    warnings = [record.getMessage() for record in caplog.records if "gets no messages" in record.getMessage()]
    assert len(warnings) == 1
    assert "at character 8" in warnings[0]
    assert outcomes(bench) == [UNROUTABLE, UNROUTABLE]
    source = bench.host.exchange("amq.direct")
    assert bench.host.unbind(source, bench.queue("q"), "k", {SELECTOR: "color ="})
    assert source.selecting == 0


# Against the definition.


CONDITIONS: dict[str | None, object] = {
    None: lambda color, size: True,
    RED: lambda color, size: color == "red",
    "size > 1": lambda color, size: size is not None and size > 1,
    "NOT color = 'red' OR size IS NULL": lambda color, size: (
        size is None or (color is not None and color != "red")
    ),
}
bound = st.tuples(
    st.sampled_from(["x", "y", "z"]),
    st.sampled_from(["q", "r", "=y", "=z"]),
    st.sampled_from(["a", "#", "*.b", "a.b"]),
    st.sampled_from(list(CONDITIONS)),
)
messages = st.tuples(
    st.sampled_from(["a", "a.b", "b"]), st.sampled_from([None, "red", "blue"]), st.sampled_from([None, 1, 2])
)


@settings(max_examples=60, deadline=None)
@given(
    bindings=st.lists(bound, max_size=8, unique=True),
    alternate=st.booleans(),
    published=st.lists(messages, min_size=1, max_size=6),
)
def test_messages_go_where_key_and_selector_lead(
    bindings: list[tuple[str, str, str, str | None]],
    alternate: bool,
    published: list[tuple[str, str | None, int | None]],
) -> None:
    bench = CoreBench()
    host = bench.host
    host.declare_exchange("x", "topic", arguments={"alternate-exchange": "z"} if alternate else {})
    for name in ("y", "z"):
        host.declare_exchange(name, "topic")
    for name in ("q", "r"):
        host.declare_queue(name)
    for source, end, key, selector in bindings:
        destination: Destination = host.exchange(end[1:]) if end.startswith("=") else host.queue(end)
        host.bind(host.exchange(source), destination, key, {} if selector is None else {SELECTOR: selector})

    def reached(key: str, color: str | None, size: int | None) -> set[str]:
        asked, found, pending = {"x"}, set[str](), ["x"]
        for source in pending:
            ends = {
                end
                for s, end, pattern, selector in bindings
                if s == source and topic_match(pattern, key) and CONDITIONS[selector](color, size)  # type: ignore[operator]
            }
            if not ends and source == "x" and alternate:
                ends = {"=z"}
            found |= {end for end in ends if not end.startswith("=")}
            new = {end[1:] for end in ends if end.startswith("=")} - asked
            asked |= new
            pending += sorted(new)
        return found

    for key, color, size in published:
        given = {"color": color, "size": size}
        headers: Table = {name: value for name, value in given.items() if value is not None}
        for _ in range(2):  # the second time by the remembered route, if there is one
            before = {name: host.queue(name).ready for name in ("q", "r")}
            bench.broker.publish(host.exchange("x"), headed(headers, key=key))
            got = {name for name in before if host.queue(name).ready > before[name]}
            assert got == reached(key, color, size)
        explained_queues = explain(host, "x", key, headers).queues
        assert set(explained_queues) == reached(key, color, size)

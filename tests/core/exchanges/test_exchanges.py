"""The four standard exchange types: what matches, and what it costs."""

from __future__ import annotations

import sys
from collections.abc import Callable
from decimal import Decimal
from types import FrameType
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.exchanges.direct import Direct
from leveret.exchanges.exchange_type import ExchangeType
from leveret.exchanges.fanout import Fanout
from leveret.exchanges.headers import Headers
from leveret.exchanges.standard import STANDARD
from leveret.exchanges.topic import Topic, TrieNode, words_of
from leveret.testing.conformance import Sample, check_exchange_type
from leveret.testing.fakes import Bench, fake_message
from leveret.values import Table, Timestamp, Value

if TYPE_CHECKING:
    from _typeshed import TraceFunction

# bindings and messages for the conformance kit
SAMPLES: dict[str, tuple[list[Sample], list[Sample]]] = {
    "direct": ([("a", {}), ("b", {}), ("", {})], [("a", {}), ("", {})]),
    "fanout": ([("a", {}), ("", {})], [("a", {}), ("", {})]),
    "topic": ([("a.*", {}), ("#.b", {}), ("#", {}), ("a.b", {})], [("a.b", {}), ("", {}), ("a.a.b", {})]),
    "headers": (
        [("", {"x-match": "any", "a": 1, "b": None}), ("", {"a": 1, "b": "x"}), ("", {})],
        [("", {"a": 1}), ("", {"a": 1, "b": "x"}), ("", {"b": [True]})],
    ),
}


@pytest.mark.parametrize("name", STANDARD)
def test_the_standard_types_keep_the_contract(name: str) -> None:
    bindings, messages = SAMPLES[name]
    check_exchange_type(STANDARD[name], bindings=bindings, messages=messages)


def routed(bench: Bench, key: str = "", headers: Table | None = None, cc: tuple[str, ...] = ()) -> set[str]:
    answer = bench.route(fake_message(key, headers, cc=cc))
    assert isinstance(answer, set)
    return answer


# direct and fanout


def test_s048_direct_matches_the_key_exactly() -> None:
    bench = Bench(Direct)
    bench.bind("q", "stock")
    assert routed(bench, "stock") == {"q"}
    assert routed(bench, "Stock") == routed(bench, "stock.") == routed(bench, "") == set()


@pytest.mark.parametrize("type_class", [Direct, Topic])
def test_s053_every_cc_key_is_looked_up_too(type_class: type[ExchangeType]) -> None:
    bench = Bench(type_class)
    bench.bind("q1", "a")
    bench.bind("q2", "b")
    assert routed(bench, "a", cc=("b", "c")) == {"q1", "q2"}


def test_s049_fanout_ignores_the_key() -> None:
    bench = Bench(Fanout)
    bench.bind("q1", "a")
    bench.bind("q2", "b")
    assert routed(bench, "whatever") == {"q1", "q2"}


def test_s056_other_arguments_make_another_binding() -> None:
    bench = Bench(Direct)
    bench.bind("q", "a", {"note": 1})
    bench.bind("q", "a", {"note": 2})
    bench.unbind("q", "a", {"note": 1})
    assert routed(bench, "a") == {"q"}
    bench.unbind("q", "a", {"note": 2})
    assert routed(bench, "a") == set()


# topic

TOPICS = [  # pattern, keys that match, keys that do not
    ("*.stock.#", ["usd.stock", "eur.stock.db"], ["stock.nasdaq", "stock", "a.b.stock"]),  # S050
    ("#", ["", "a", "a.b.c", "."], []),
    ("*", ["a", "#", "*"], ["", "a.b", "."]),
    ("", [""], ["a", "."]),
    ("a", ["a"], ["", "A", "a.", ".a", "b"]),
    ("a.#", ["a", "a.b", "a.b.c", "a."], ["b", "", "b.a"]),
    ("#.a", ["a", "b.a", "a.a", ".a"], ["a.b", ""]),
    ("#.a.#", ["a", "x.a", "a.x", "x.a.x"], ["", "x", "aa"]),
    ("#.#", ["", "a", "a.b"], []),
    ("*.*", ["a.b", "."], ["a", "a.b.c", ""]),
    ("#.*", ["a", "a.b"], [""]),
    ("a..b", ["a..b"], ["a.b", "a.x.b"]),
    ("a.*.b", ["a..b", "a.x.b"], ["a.b"]),
    ("a.b*", ["a.b*"], ["a.bc"]),  # a wildcard is a whole word
]


@pytest.mark.parametrize(("pattern", "matching", "others"), TOPICS)
def test_s049_s050_topic_patterns(pattern: str, matching: list[str], others: list[str]) -> None:
    bench = Bench(Topic)
    bench.bind("q", pattern)
    assert {key: routed(bench, key) for key in matching} == {key: {"q"} for key in matching}
    assert {key: routed(bench, key) for key in others} == {key: set() for key in others}


def matches(pattern: list[str], key: list[str]) -> bool:
    """Topic matching as one would define it; exponential."""
    if not pattern:
        return not key
    if pattern[0] == "#":
        return matches(pattern[1:], key) or (bool(key) and matches(pattern, key[1:]))
    return bool(key) and pattern[0] in ("*", key[0]) and matches(pattern[1:], key[1:])


patterns = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=6).map(".".join)
topic_keys = st.lists(st.sampled_from(["a", "b", "", "*", "#"]), max_size=7).map(".".join)


@given(
    bound=st.lists(st.tuples(patterns, st.booleans()), max_size=8),
    keys=st.lists(topic_keys, min_size=1, max_size=6),
)
def test_topic_agrees_with_its_definition_also_after_unbinding(
    bound: list[tuple[str, bool]], keys: list[str]
) -> None:
    bench = Bench(Topic)
    for number, (pattern, _) in enumerate(bound):
        bench.bind(f"q{number}", pattern)
    for number, (pattern, passing) in enumerate(bound):
        if passing:
            bench.unbind(f"q{number}", pattern)
    for key in keys:
        expected = {
            f"q{number}"
            for number, (pattern, passing) in enumerate(bound)
            if not passing and matches(words_of(pattern), words_of(key))
        }
        assert routed(bench, key) == expected


def nodes(node: TrieNode) -> int:
    children = [*node.words.values(), node.any_word, node.any_words]
    return 1 + sum(nodes(child) for child in children if child is not None)


@given(st.lists(patterns, unique=True, max_size=8))
def test_unbinding_prunes_the_trie(bound: list[str]) -> None:
    bench = Bench(Topic)
    topic = bench.exchange.type
    assert isinstance(topic, Topic)
    sizes = []
    for pattern in bound:
        sizes.append(nodes(topic._root))
        bench.bind("q", pattern)
    for pattern in reversed(bound):
        bench.unbind("q", pattern)
        assert nodes(topic._root) == sizes.pop()


# headers

HEADERS = [  # binding arguments, headers that match, headers that do not
    (
        {"a": 1, "b": "x"},
        [{"a": 1, "b": "x"}, {"a": 1, "b": "x", "c": 0}],
        [{"a": 1}, {}, {"a": 1, "b": "y"}],
    ),
    ({"x-match": "all", "a": 1}, [{"a": 1}], [{"a": 2}, {"b": 1}]),
    ({"x-match": "any", "a": 1, "b": "x"}, [{"a": 1}, {"b": "x"}, {"a": 2, "b": "x"}], [{}, {"a": 2}]),
    ({"a": None}, [{"a": 1}, {"a": None}, {"a": {}}], [{}, {"b": 1}]),  # void: presence
    ({"x-match": "any", "a": None, "b": 1}, [{"a": 0}, {"b": 1}], [{"b": 2}]),
    ({"x-y": 1, "a": 1}, [{"a": 1}], [{"x-y": 1}]),  # `x-` names do not count
    ({"x-match": "any", "x-y": 1, "a": 1}, [{"a": 1}], [{"x-y": 1}]),
    ({"x-match": "all-with-x", "x-y": 1, "a": 1}, [{"a": 1, "x-y": 1}], [{"a": 1}, {"x-y": 1}]),
    ({"x-match": "any-with-x", "x-y": 1, "a": 1}, [{"x-y": 1}, {"a": 1}], [{}, {"x-match": "any-with-x"}]),
    ({}, [{}, {"a": 1}], []),  # X013
    ({"x-match": "all", "x-y": 1}, [{}, {"x-y": 2}], []),
    ({"x-match": "any"}, [], [{}, {"a": 1}]),
    ({"x-match": "any", "x-y": 1}, [], [{}, {"x-y": 1}]),
    ({"a": 1}, [{"a": 1.0}, {"a": Decimal(1)}, {"a": Timestamp(1)}], [{"a": True}, {"a": "1"}]),  # by value
    ({"a": True}, [{"a": True}], [{"a": 1}, {"a": False}, {"a": "true"}]),
    ({"a": "x"}, [{"a": b"x"}, {"a": bytearray(b"x")}], [{"a": "X"}]),
    ({"a": [1, {"b": "x"}]}, [{"a": [1.0, {"b": b"x"}]}], [{"a": [True, {"b": "x"}]}, {"a": [1]}]),
    ({"a": {"b": 1, "c": 2}}, [{"a": {"c": 2, "b": 1}}], [{"a": {"b": 1}}]),
]


@pytest.mark.parametrize(("arguments", "matching", "others"), HEADERS)
def test_s051_x013_headers_bindings(arguments: Table, matching: list[Table], others: list[Table]) -> None:
    bench = Bench(Headers)
    bench.bind("q", arguments=arguments)
    assert [routed(bench, headers=headers) for headers in matching] == [{"q"} for _ in matching]
    assert [routed(bench, headers=headers) for headers in others] == [set() for _ in others]


def test_a_message_without_headers_matches_what_asks_for_none() -> None:
    bench = Bench(Headers)
    bench.bind("all", arguments={})
    bench.bind("some", arguments={"a": 1})
    assert routed(bench) == {"all"}


REFUSED_MODES: list[tuple[Value, str]] = [
    ("z", 'Invalid x-match field value "z"; expected all, any, all-with-x, or any-with-x'),
    ("", 'Invalid x-match field value ""; expected all, any, all-with-x, or any-with-x'),
    (23, "Invalid x-match field type signedint (value 23); expected longstr"),
    (True, "Invalid x-match field type bool (value true); expected longstr"),
    ({}, "Invalid x-match field type table (value {}); expected longstr"),
]


@pytest.mark.parametrize(("mode", "text"), REFUSED_MODES)
def test_s052_a_bad_x_match_is_refused(mode: Value, text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        Bench(Headers).bind("q", arguments={"x-match": mode})
    assert str(refused.value) == text


def header_match(arguments: Table, headers: Table) -> bool:
    """Headers matching as one would define it, for values that are plain numbers and text."""
    mode = arguments.get("x-match", "all")
    assert isinstance(mode, str)
    skipped = ("x-match",) if mode.endswith("-with-x") else ("x-",)
    criteria = {name: value for name, value in arguments.items() if not name.startswith(skipped)}
    met = [name in headers and value in (None, headers[name]) for name, value in criteria.items()]
    return any(met) if mode.startswith("any") else all(met)


header_values = st.none() | st.integers(0, 2) | st.sampled_from(["x", "y"])
header_tables = st.dictionaries(st.sampled_from(["a", "b", "c", "x-d"]), header_values, max_size=4)
header_modes = st.sampled_from(
    [{}, *({"x-match": mode} for mode in ("all", "any", "all-with-x", "any-with-x"))]
)
header_bindings = st.builds(lambda mode, table: {**mode, **table}, header_modes, header_tables)


@given(
    bound=st.lists(st.tuples(header_bindings, st.booleans()), max_size=8),
    messages=st.lists(header_tables, min_size=1, max_size=5),
)
def test_headers_agrees_with_its_definition_also_after_unbinding(
    bound: list[tuple[Table, bool]], messages: list[Table]
) -> None:
    bench = Bench(Headers)
    for number, (arguments, _) in enumerate(bound):
        bench.bind(f"q{number}", arguments=arguments)
    for number, (arguments, passing) in enumerate(bound):
        if passing:
            bench.unbind(f"q{number}", arguments=arguments)
    for headers in messages:
        expected = {
            f"q{number}"
            for number, (arguments, passing) in enumerate(bound)
            if not passing and header_match(arguments, headers)
        }
        assert routed(bench, headers=headers) == expected


# cost


def lines_run(action: Callable[[], object]) -> int:
    """How many lines of the broker's Python `action` executes: the same on every machine."""
    count = 0

    def on_event(frame: FrameType, event: str, _: object) -> TraceFunction | None:
        nonlocal count
        if not frame.f_globals.get("__name__", "").startswith("leveret."):
            return None  # a callback of the garbage collector, say
        count += event == "line"
        return on_event

    before = sys.gettrace()
    sys.settrace(on_event)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def key_of(number: int) -> str:
    return f"sensor.{number % 100}.{number}"


COSTS = [  # type, other bindings by number, key and headers of the message
    (Direct, lambda n: (key_of(n), {}), "hit", {}),
    (Topic, lambda n: (key_of(n), {}), "hit.x", {}),
    (Topic, lambda n: (f"{key_of(n)}.#", {}), "hit.x", {}),
    (Topic, lambda n: (f"#.{key_of(n)}", {}), "hit.x", {}),
    (Topic, lambda n: (f"*.*.{key_of(n)}", {}), "hit.x", {}),
    (Headers, lambda n: ("", {"kind": "common", "number": n}), "", {"kind": "common", "hit": 1}),
    (Headers, lambda n: ("", {"x-match": "any", "kind": n, "number": n}), "", {"kind": "common", "hit": 1}),
]


@pytest.mark.parametrize(("type_class", "other", "key", "headers"), COSTS)
def test_the_cost_of_a_message_does_not_grow_with_bindings_that_do_not_match(
    type_class: type[ExchangeType], other: Callable[[int], tuple[str, Table]], key: str, headers: Table
) -> None:
    bench = Bench(type_class)
    bench.bind("q", key, {"hit": 1})
    message = fake_message(key, headers)
    costs = {}
    for number in range(20_000):
        bench.bind("others", *other(number))
        if number + 1 in (10, 20_000):
            costs[number + 1] = lines_run(lambda: bench.route(message))
    assert bench.route(message) == {"q"}
    assert costs[20_000] == costs[10]


def test_many_hashes_do_not_multiply() -> None:
    bench = Bench(Topic)
    bench.bind("q", ".".join(["#", "a"] * 20))  # naively, each `#` tries every division of the key
    message = fake_message(".".join(["a"] * 100) + ".b")
    assert bench.route(message) == set()
    assert lines_run(lambda: bench.route(message)) < 100 * 40 * 12  # words, nodes, lines for each

"""Selectors as Erlang terms: each means what the selector that it was compiled from means; anything else is refused."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker import TAKEN, UNROUTABLE
from leveret.errors import PreconditionFailed
from leveret.exchanges.standard import STANDARD
from leveret.plugins.delayed_message import DelayedMessage
from leveret.plugins.jms_topic import NO_SELECTOR, JmsTopic
from leveret.selectors.erlang_term import compile_term
from leveret.selectors.parser import compile_selector
from leveret.testing.fakes import fake_message
from leveret.values import Value
from tests.core.fakes import CoreBench
from tests.core.selectors.test_selector_properties import VALUES, Tree, conditions, said
from tests.features.deduplication.published import headed


def term(tree: Tree) -> str:
    """The tree as RabbitMQ's JMS client compiles it."""
    head, *rest = tree
    if head == "name":
        return f"{{'ident',{binary(rest[0])}}}"
    if head == "literal":
        return literal(rest[0])
    if head == "null":
        return f"{{'is_null',{term(rest[0])}}}"
    if head == "in":
        return f"{{'in',{term(rest[0])},[{','.join(map(term, rest[1]))}]}}"
    return f"{{'{head}',{','.join(map(term, rest))}}}"


def literal(value: Value) -> str:
    if isinstance(value, bool):
        return f"'{str(value).lower()}'"
    return binary(value) if isinstance(value, str) else str(value)


def binary(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'<<"{escaped}">>'


@given(conditions)
def test_a_term_means_what_its_selector_means(tree: Tree) -> None:
    message = fake_message(headers=VALUES)
    assert compile_term(term(tree)).matches(message) is compile_selector(said(tree)).matches(message)
    negated = f"{{'not',{term(tree)}}}."
    assert compile_term(negated).matches(message) is compile_selector(f"NOT ({said(tree)})").matches(message)


PATTERN = st.text("ab%_!'\"\\\n", max_size=6)


@given(PATTERN, st.sampled_from([None, "!", "\\"]), PATTERN, st.booleans())
def test_like_means_what_it_means_in_a_selector(
    pattern: str, escape: str | None, text: str, negated: bool
) -> None:
    quoted = "'{}'".format(pattern.replace("'", "''"))
    selector = f"s {'NOT ' * negated}LIKE {quoted}" + ("" if escape is None else f" ESCAPE '{escape}'")
    escaping = "'no_escape'" if escape is None else binary(escape)
    compiled = f"{{'{'not_' * negated}like',{{'ident',{binary('s')}}},{binary(pattern)},{escaping}}}."
    message = fake_message(headers={"s": text})
    try:
        expected = compile_selector(selector)
    except PreconditionFailed:  # it ends with what escapes
        with pytest.raises(PreconditionFailed, match="the pattern is wrong"):
            compile_term(compiled)
        return
    assert compile_term(compiled).matches(message) is expected.matches(message)


@pytest.mark.parametrize(
    ("text", "headers", "matches"),
    [
        ('{ident, <<"boolVal">>}.', {"boolVal": True}, True),
        ('{ident, <<"boolVal">>}.', {"boolVal": False}, False),
        ("""{'and',{'is_null',{'ident',<<"o">>}},{'>',{'ident',<<"JMSX">>},{'-',12,4}}}.""", {"JMSX": 9}, True),
        ("""{'=',{'ident',<<"JMSPriority">>},7}.""", {"JMSPriority": 7}, True),
        ("""{'between',{ident,<<"n">>},{range,1,5}}""", {"n": 5}, True),
        ("""{'not_between',{ident,<<"n">>},1,{'+',5}}""", {"n": 6}, True),
        ("""{'not_in',{ident,<<"s">>},[<<"a">>,<<"b">>]}.""", {"s": "c"}, True),
        ("""{'in',{ident,<<"s">>},[]}.""", {"s": "c"}, False),
        ("""{'not_null',{ident,<<"s">>}}.""", {"s": "c"}, True),
        ("""{'=',{ident,<<"n">>},16#1F}.""", {"n": 31}, True),
        ("""{'=',{ident,<<"n">>},-1.5E+2}.""", {"n": -150}, True),
        ("""{'=',{ident,<<"s">>},<<"a\\nb\\"c">>}.""", {"s": 'a\nb"c'}, True),
        ("""{'=',{ident,<<"n">>},<<"1">>}.""", {"n": 1}, False),
        ("true.", {}, True),
    ],
)  # fmt: skip
def test_terms(text: str, headers: dict[str, Value], matches: bool) -> None:
    assert compile_term(text).matches(fake_message(headers=headers)) is matches


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", r"at character 1, '\{' or an atom"),
        ("{'=',{ident,<<\"a\">>}", "at character 21, ',' is expected, not the end"),
        ("{'=',1,2}. x", "at character 12, the end is expected, not 'x'"),
        ("{xq7fkd9_3jrvm, 42}.", "at character 2, 'xq7fkd9_3jrvm' is no operator of selectors"),
        ("{'not_not',true}", "'not_not' is no operator"),
        ("{'like',{ident,<<\"a\">>},{regex,<<1,2>>}}.", "is no part of a selector's term"),
        ('{\'like\',{ident,<<"a">>},{regex,<<"a">>}}.', r"a binary is expected, not '\{'"),
        ('{\'like\',{ident,<<"a">>},<<"a">>,<<"ab">>}.', "what escapes is one character"),
        ("{'=',{ident,\"a\"},1}.", "is no part of a selector's term"),
        ("{'=',{ident,<<\"a\">>},'b'}.", "'b' is no part of a selector"),
        ("{'and',1,true}.", "a boolean is expected, not a number"),
        ('<<"false">>.', "a boolean is expected, not a string"),
        ("{'is_null',1}.", "only what has a name"),
        ('{\'in\',{ident,<<"a">>},[{ident,<<"b">>}]}.', "a list has values only"),
        ("{'=',{ident,<<\"a\">>},1.0E999}.", "too large"),
        ("{'=',{ident,<<\"a\">>},0x1F}.", "is expected"),
        ("{'=',{ident,<<\"a\">>},99#1F}.", "is no number"),
        ("{'=',{ident,<<\"a\">>}," + "1" * 65 + "}.", "more than 64 digits"),
        ('{\'=\',{ident,<<"a">>},<<"\\101">>}.', "written as numbers"),
        ("{'not'," * 65 + "true" + "}" * 65, "nested more than 64 deep"),
        ("{'in',{ident,<<\"a\">>},[" + ",".join(["1"] * 1025) + "]}", "more than 1024 values"),
        (" " * 16_385, "it has 16385 characters"),
        ('{\'like\',{ident,<<"a">>},<<"' + "a" * 513 + '">>,no_escape}', "more than 512 characters"),
    ],
)
def test_what_is_no_selector_is_refused(text: str, why: str) -> None:
    with pytest.raises(PreconditionFailed, match=why):
        compile_term(text)


@given(st.text("{}[],.'<\">abcnot_=1 #\\-", max_size=40))
def test_no_text_breaks_the_parser(text: str) -> None:
    with suppress(PreconditionFailed):
        compile_term(text).matches(fake_message(headers=VALUES))


# The exchange type.


def test_a_jms_topic_asks_the_selector_and_nothing_else() -> None:
    bench = CoreBench(types={**STANDARD, "x-jms-topic": JmsTopic, "x-delayed-message": DelayedMessage})
    exchange = bench.host.declare_exchange("x", "x-jms-topic", arguments={"rjms_version": "1"})
    assert bench.host.declare_exchange("x", "x-jms-topic", arguments={"rjms_version": "2"}) is exchange
    queue, without = bench.queue("q"), bench.queue("without")
    arguments = {"rjms_erlang_selector": "{'=',{'ident',<<\"n\">>},1}.", "rjms_version": "2"}
    bound = bench.host.bind(exchange, queue, "any.key", arguments)
    silent = bench.host.bind(exchange, without, "k", {})
    outcomes = [bench.broker.publish(exchange, headed({"n": n}, key="other")) for n in (1, 2)]
    assert outcomes == [TAKEN, UNROUTABLE]
    assert (queue.ready, without.ready) == (1, 0)
    assert (bound.warnings(), exchange.warnings()) == ([], [])
    assert silent.warnings() == [NO_SELECTOR]
    bench.host.bind(exchange, without, "k", {**arguments, "x-filter-jms-selector": "m = 2"})
    for m in (1, 2):
        bench.broker.publish(exchange, headed({"n": 1, "m": m}))
    assert (queue.ready, without.ready) == (3, 1)
    with pytest.raises(PreconditionFailed, match="rjms_erlang_selector is of type"):
        bench.host.bind(exchange, queue, "k", {"rjms_erlang_selector": 5})


def test_a_delayed_exchange_may_be_a_jms_topic() -> None:
    bench = CoreBench(types={**STANDARD, "x-jms-topic": JmsTopic, "x-delayed-message": DelayedMessage})
    exchange = bench.host.declare_exchange(
        "x", "x-delayed-message", arguments={"x-delayed-type": "x-jms-topic"}
    )
    queue = bench.queue("q")
    bench.host.bind(exchange, queue, "", {"rjms_erlang_selector": "{'=',{'ident',<<\"n\">>},1}."})
    for n in (1, 2):
        bench.broker.publish(exchange, headed({"n": n, "x-delay": 100}))
    bench.advance(1)
    assert queue.ready == 1

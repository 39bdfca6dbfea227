"""Expressions that are looked for: the same answer as Python's, in a time that none of them makes long."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.policy import may_take_long
from leveret.selectors.expressions import REMEMBERED_MAX, Expression

NAME_MAX = 255
PARTS = st.sampled_from(
    [
        "a",
        "b",
        "c",
        ".",
        "[ab]",
        "[^a]",
        r"\.",
        r"\w",
        "[]a]",
        r"[\]b]",
        "^",
        "$",
        r"\x62",
        r"\n",
        "{",
        "}",
        "x{,",
        r"\Z",
    ]
)
REPETITIONS = st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "{2,}", "*?", "+?", "{0}", "??"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = inner.map("(?:{})".format) | inner.map("({})".format) | inner.map("(?P<n>{})".format)
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("({})".format),
        st.tuples(inner, inner).map("|".join),
        st.tuples(groups, REPETITIONS).map("".join),
    )


@given(
    st.recursive(PARTS, grown, max_leaves=8),
    st.lists(st.text("abcX.\n{", max_size=6), max_size=6),
    st.booleans(),
)
def test_the_answer_is_that_of_python(text: str, names: list[str], ignore_case: bool) -> None:
    flags = re.IGNORECASE if ignore_case else re.NOFLAG
    try:
        python = re.compile(text.replace(r"\Z", "$"), flags | re.ASCII)
    except re.error:
        with pytest.raises(ValueError, match="no regular expression"):
            Expression(text, ignore_case)
        return
    ours = Expression(text, ignore_case)
    for name in ("", *names):
        assert ours.found_in(name) == (python.search(name) is not None), (text, name)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (".*a.*a.*b", "a" * NAME_MAX),
        ("(a+)+$", "a" * (NAME_MAX - 1) + "!"),
        ("(a|aa)*b", "a" * NAME_MAX),
        ("(?:a?){60}a{60}b", "a" * NAME_MAX),
        ("([a-z]|.)*([a-z]|.)*([a-z]|.)*!", "a" * NAME_MAX),
    ],
)
def test_no_expression_takes_long(text: str, name: str) -> None:
    """With `re` these take seconds to years."""
    expression = Expression(text)
    began = time.thread_time()
    assert not expression.found_in(name)
    assert time.thread_time() - began < 1


@pytest.mark.parametrize(
    "text",
    [
        *("(?=a)", "(?!a)", "(?<=a)b", r"(a)\1", "(?P<n>a)(?P=n)", r"\bq", "a++"),
        *("(?:a{1,99}){1,99}", "(?:(?:){999}){999}", "a" * 1001, "(" * 400 + "a" + ")" * 400),
    ],
)
def test_what_is_beyond_us_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^(it|look-around)"):
        Expression(text)


def test_a_flag_in_front_has_capitals_not_matter() -> None:
    assert Expression("(?i)^Orders").found_in("oRDERS.eu")
    assert not Expression("^Orders").found_in("oRDERS.eu")


def test_what_is_remembered_is_bounded() -> None:
    expression = Expression("a.{20}b")
    for number in range(3 * REMEMBERED_MAX):
        expression.found_in(f"a{number:b}")
    assert len(expression._following) <= REMEMBERED_MAX


@pytest.mark.parametrize("text", [r"^(?!amq\.).*", "(?=a)b", "(a+)+$", r"^(?!amq\.|mqtt-)[a-z]+"])
def test_a_policy_that_people_write_cannot_take_long(text: str) -> None:
    assert not may_take_long(text)


@pytest.mark.parametrize("text", ["(?=a)(a+)+$", "(?!x)(a|aa)*b", r"(a)\1*b*", "(?!x)a?a?b"])
def test_a_policy_that_is_beyond_us_may_take_long(text: str) -> None:
    assert may_take_long(text)

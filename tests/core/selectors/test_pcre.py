"""Expressions of permissions and policies: what they mean in PCRE, and why others are refused."""

from __future__ import annotations

import pytest

from leveret.selectors.expressions import Expression
from leveret.selectors.pcre_translation import ExpressionError, compiled, refusal_of, translated

from .pcre_answers import FOUND, NAMES


@pytest.mark.parametrize("expression", FOUND, ids=repr)
def test_an_expression_is_found_in_the_names_that_pcre_finds_it_in(expression: str) -> None:
    found = [name for name in NAMES if compiled(expression).search(name)]
    assert found == FOUND[expression]


@pytest.mark.parametrize("expression", FOUND, ids=repr)
def test_linear_time_gives_the_same_answer(expression: str) -> None:
    try:
        linear = Expression(expression)
    except ValueError as refusal:
        assert str(refusal).startswith("look-around")  # noqa: PT017 - it is left to `re`
        return
    assert [name for name in NAMES if linear.found_in(name)] == FOUND[expression]


@pytest.mark.parametrize(
    ("expression", "name", "is_found"),
    [
        ("^abc$", "abc\n", True),
        (r"^abc\Z", "abc\n", True),
        (r"^abc\z", "abc\n", False),
        (r"^\w+$", "größe", False),
        (r"^\d$", "٣", False),
        ("(?i)É", "é", False),
        ("^.$", "é", True),
        (r"^\p{Lu}$", "É", True),
        (r"^\x{e9}$", "é", True),
        (r"^\N$", "\n", False),
    ],
)
def test_names_are_characters_and_classes_are_those_of_ascii(
    expression: str, name: str, is_found: bool
) -> None:
    assert (compiled(expression).search(name) is not None) is is_found
    assert Expression(expression).found_in(name) is is_found


REFUSED = {
    "[:alnum:]": "within brackets",
    "[[:letter:]]": "no POSIX class",
    "[[.a.]]": "collating",
    "[z-a]": "out of order",
    "[a": "a class is not closed",
    "(a": "a group is not closed",
    "a)": "closed that is not open",
    "*a": "nothing that",
    "a**": "nothing that",
    "^*": "nothing that",
    "a{2}{3}": "nothing that",
    "a{70000}": "more than 65535",
    r"\y": r"\\y is not supported",
    r"\X": "characters that are made of several",
    r"\u0041": r"\\u is not supported",
    "a\\": "ends with a backslash",
    r"\p{Greek}": "the property 'Greek'",
    r"\p{": "malformed",
    r"\x{110000}": "no character",
    "(?R)": "the option 'R'",
    "(?&n)": "the group",
    "(?|a|b)": "the group",
    "(*UTF8)a": "verbs",
    r"(a)\g<1>": "references to groups as expressions",
    "(?#a": "a comment",
    "(?q)a": "the option 'q'",
    "(?<=a+)b": "look-behind requires fixed-width",
    r"\1": "invalid group reference",
    "(?<n>a)(?<n>b)": "redefinition",
}


@pytest.mark.parametrize(("expression", "why"), REFUSED.items())
def test_what_cannot_mean_the_same_is_refused_with_its_reason(expression: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=why):
        compiled(expression)
    assert refusal_of(expression)


def test_a_translation_has_no_options() -> None:
    assert translated(r"(?i)a(?-i)b[[:digit:]]\z") == r"[Aa]b[0-9]\Z"

"""Selectors: any condition means what a reference says, spelled with no more parentheses than it needs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.selectors.parser import compile_selector
from leveret.testing.fakes import fake_message
from leveret.values import Value

LEVELS = {"or": 1, "and": 2, "not": 3, "=": 4, "<>": 4, "<": 4, ">=": 4, "null": 4, "in": 4, "between": 4}
LEVELS |= {"+": 5, "-": 5, "*": 6, "name": 8, "literal": 8}
VALUES: dict[str, Value] = {"i": 2, "j": 0.5, "s": "a", "t": "b", "y": True, "n": False, "o": b"x", "u": None}
Tree = tuple  # an operator and its operands

names = st.sampled_from(sorted(VALUES)).map(lambda name: ("name", name))
literals = st.sampled_from([0, 1, 2, 0.5, "a", "b", True, False]).map(lambda value: ("literal", value))
numbers = st.recursive(
    st.one_of(names, literals.filter(lambda tree: type(tree[1]) in (int, float))),
    lambda inner: st.tuples(st.sampled_from("+-*"), inner, inner),
    max_leaves=4,
)
values = st.one_of(numbers, literals)
conditions = st.recursive(
    st.one_of(
        names,
        st.tuples(st.sampled_from(["=", "<>", "<", ">="]), values, values),
        st.tuples(st.just("between"), values, values, values),
        st.tuples(st.just("in"), values, st.lists(literals, min_size=1, max_size=3)),
        st.tuples(st.just("null"), names),
    ),
    lambda inner: st.one_of(
        st.tuples(st.sampled_from(["and", "or"]), inner, inner), st.tuples(st.just("not"), inner)
    ),
    max_leaves=8,
)


def said(tree: Tree, least: int = 0) -> str:
    """The tree as a selector, with no more parentheses than it needs."""
    head, *rest = tree
    level = LEVELS[head]
    if head == "name":
        text = rest[0]
    elif head == "literal":
        text = f"'{rest[0]}'" if isinstance(rest[0], str) else str(rest[0])
    elif head == "not":
        text = f"NOT {said(rest[0], level)}"
    elif head == "null":
        text = f"{said(rest[0], 8)} IS NULL"
    elif head == "in":
        text = f"{said(rest[0], 5)} IN ({', '.join(map(said, rest[1]))})"
    elif head == "between":
        text = "{} BETWEEN {} AND {}".format(*(said(each, 5) for each in rest))
    else:
        left = level + (level == 4)
        text = f"{said(rest[0], left)} {head} {said(rest[1], level + 1)}"
    return f"({text})" if level < least else text


def meant(tree: Tree) -> Value:
    """What the tree says of VALUES: conditions as 0 (false), 1 (unknown), 2 (true), so that AND is the less of two."""
    head, *rest = tree
    if head == "name":
        return VALUES[rest[0]]
    if head == "literal":
        return rest[0]
    if head in "+-*":
        left, right = map(meant, rest)
        if type(left) not in (int, float) or type(right) not in (int, float):
            return None
        return {"+": left + right, "-": left - right, "*": left * right}[head]  # type: ignore[operator]
    return {0: False, 1: None, 2: True}[degree(tree)]


def degree(tree: Tree) -> int:
    head, *rest = tree
    if head == "and":
        return min(map(degree, rest))
    if head == "or":
        return max(map(degree, rest))
    if head == "not":
        return 2 - degree(rest[0])
    if head == "name":
        return {True: 2, False: 0}.get(meant(tree), 1) if type(meant(tree)) is bool else 1  # type: ignore[arg-type]
    first = meant(rest[0])
    if head == "null":
        return 2 * (first is None)
    if head == "in":
        return 1 if first is None else max(compared("=", first, meant(each)) for each in rest[1])
    if head == "between":
        return min(compared(">=", first, meant(rest[1])), compared(">=", meant(rest[2]), first))
    return compared(head, first, meant(rest[1]))


def compared(sign: str, left: Value, right: Value) -> int:
    if left is None or right is None:
        return 1
    sorts = [{int: "n", float: "n", str: "s", bool: "b"}.get(type(each)) for each in (left, right)]
    if sorts[0] is None or sorts[0] != sorts[1] or (sorts[0] == "b" and sign in ("<", ">=")):
        return 0
    less, same = left < right, left == right  # type: ignore[operator]
    return 2 * {"=": same, "<>": not same, "<": less, ">=": not less}[sign]


@given(conditions)
def test_a_condition_means_what_it_says(tree: Tree) -> None:
    message = fake_message(headers=VALUES)
    assert compile_selector(said(tree)).matches(message) is (degree(tree) == 2)
    assert compile_selector(f"NOT ({said(tree)})").matches(message) is (degree(tree) == 0)

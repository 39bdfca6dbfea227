"""Evaluate a selector's condition for many rows at once, by calls of Arrow.

    country = 'FI' AND n > 100      country │ FI SE FI        n │ 7041 998 3        true, false, false

A node of a condition (broker_core/selectors/conditions.py) has a value for one message. Here it has a column of values
for all rows of one shape: booleans, int64, doubles or texts, in which null is unknown; a literal is a scalar. Arrow is
asked only where it answers exactly as the nodes do. Python compares whole numbers with doubles exactly, and calculates
without bounds: what 53 bits, or 64, do not hold is left to the nodes, as are other values, such as decimals and bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial, reduce
from typing import Final, TypeAlias

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.pipeline.arrow import Array, Kind, array_of, repeated
from leveret.selectors.conditions import (
    COMPARABLE,
    NUMBER,
    TEXT,
    TRUTH,
    AllOf,
    AnyOf,
    Arithmetic,
    Between,
    Comparison,
    ConditionNode,
    HeaderField,
    In,
    IsNull,
    Known,
    Like,
    Literal,
    Negative,
    Not,
)

Header: TypeAlias = Callable[[str], Array]  # returns the column of a header, given by its name

KINDS: Final = {
    pa.bool_(): TRUTH,
    pa.int64(): NUMBER,
    pa.float64(): NUMBER,
    pa.string(): TEXT,
    pa.null(): None,
}
COLUMNS: Final[Mapping[type, Kind]] = {
    bool: pa.bool_(),
    int: pa.int64(),
    float: pa.float64(),
    str: pa.string(),
    type(None): pa.null(),
}
UNKNOWN: Final = pa.nulls(1, pa.bool_())[0]  # `pa.scalar` would import pandas, as in pipeline/arrow.py
FALSE: Final = pc.is_valid(UNKNOWN)


class InexactError(Exception):
    """Raised where Arrow has no answer, or one that may not be the condition's."""


def truths(condition: ConditionNode, header: Header, count: int) -> Array | None:
    """Return for each of `count` rows whether the condition is true; None if Arrow cannot tell.

    `header` returns what `column` or `constant` does, or raises InexactError.
    """
    try:
        found = truth(condition, header)
    except (InexactError, pa.ArrowInvalid, UnicodeEncodeError):  # it is no number of 64 bits, or no text
        return None
    if isinstance(found, pa.Scalar):
        return repeated(found.as_py() is True, count, pa.bool_())
    known: Array = pc.fill_null(found, FALSE)
    return known


def column(values: Array | None) -> Array:
    """Return the values of a header as a column. Raises InexactError, ArrowInvalid."""
    if values is None:
        raise InexactError
    return pc.cast(values, pa.int64()) if values.type == pa.uint64() else values


def constant(value: Known) -> Array:
    """Return a value that all rows have. Raises InexactError, UnicodeEncodeError."""
    kind = COLUMNS.get(type(value))
    if kind is None:
        raise InexactError
    try:
        found: Array = pa.scalar(value, kind)
    except OverflowError:
        raise InexactError from None
    return found


def evaluated(node: ConditionNode, header: Header) -> Array:
    evaluate = NODES.get(type(node))
    if evaluate is None:
        raise InexactError
    return evaluate(node, header)


def truth(node: ConditionNode, header: Header) -> Array:
    """Return the value of a part that has to be a boolean; any other counts as unknown."""
    found = evaluated(node, header)
    return found if found.type == pa.bool_() else UNKNOWN


def number(node: ConditionNode, header: Header) -> Array:
    """Return the value of a part that has to be a number; any other counts as unknown."""
    found = evaluated(node, header)
    return found if KINDS[found.type] == NUMBER else pa.scalar(None, pa.int64())


def never(*values: Array) -> Array:
    """Return false, or unknown where one of these values is."""
    found: Array = pc.if_else(reduce(pc.and_, map(pc.is_valid, values)), FALSE, UNKNOWN)
    return found


def alike(left: Array, right: Array) -> tuple[Array, Array]:
    """Return numbers of one type. Raises ArrowInvalid for whole numbers that have to be doubles, and cannot be."""
    if left.type == right.type:
        return left, right
    return pc.cast(left, pa.float64()), pc.cast(right, pa.float64())


def compared(sign: str, left: Array, right: Array) -> Array:
    kind = KINDS[left.type]
    if kind != KINDS[right.type] or kind not in COMPARABLE[sign]:
        return never(left, right)
    return COMPARISONS[sign](*alike(left, right))


COMPARISONS: Final[Mapping[str, Callable[[Array, Array], Array]]] = {
    "=": pc.equal,
    "<>": pc.not_equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def _joined(join: Callable[[Array, Array], Array], node: AnyOf, header: Header) -> Array:
    return reduce(join, [truth(part, header) for part in node.parts])


def _negated(node: Not, header: Header) -> Array:
    found: Array = pc.invert(truth(node.part, header))
    return found


def _comparison(node: Comparison, header: Header) -> Array:
    return compared(node.sign, evaluated(node.left, header), evaluated(node.right, header))


def _between(node: Between, header: Header) -> Array:
    value = evaluated(node.part, header)
    above = compared(">=", value, evaluated(node.low, header))
    found: Array = pc.and_kleene(above, compared("<=", value, evaluated(node.high, header)))
    return found


def _in(node: In, header: Header) -> Array:
    value = evaluated(node.part, header)
    kind = KINDS[value.type]
    items = [item for each, item in node.items if each == kind]
    if kind == TEXT:  # of which none is unknown
        found: Array = pc.is_in(value, value_set=array_of(items, pa.string()))
        return found
    return reduce(pc.or_kleene, [compared("=", value, constant(item)) for item in items], never(value))


def _like(node: Like, header: Header) -> Array:
    value = evaluated(node.part, header)
    if KINDS[value.type] != TEXT:
        return never(value)
    found: Array = pc.match_substring_regex(value, rf"(?s)\A{node.pattern.regex()}\z")
    return found


def _is_null(node: IsNull, header: Header) -> Array:
    found: Array = pc.is_null(evaluated(node.part, header))
    return found


def _minus(node: Negative, header: Header) -> Array:
    found: Array = pc.negate_checked(number(node.part, header))
    return found


def _calculated(node: Arithmetic, header: Header) -> Array:
    result = number(node.first, header)
    for sign, part in node.steps:
        result = OPERATIONS[sign](*alike(result, number(part, header)))
    return result


def _quotient(left: Array, right: Array) -> Array:
    """Return the quotient; unknown for a divisor of 0. That of whole numbers is truncated towards zero."""
    divisor = pc.if_else(pc.equal(right, 0), pa.scalar(None, right.type), right)
    found: Array = pc.divide_checked(left, divisor)
    return found


def _remainder(left: Array, right: Array) -> Array:
    if left.type != pa.int64():
        raise InexactError
    found: Array = pc.subtract_checked(left, pc.multiply_checked(right, _quotient(left, right)))
    return found


OPERATIONS: Final[Mapping[str, Callable[[Array, Array], Array]]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
    "/": _quotient,
    "%": _remainder,
}
NODES: Final[Mapping[type, Callable[..., Array]]] = {
    Literal: lambda node, header: constant(node.said),
    HeaderField: lambda node, header: header(node.name),
    AnyOf: partial(_joined, pc.or_kleene),
    AllOf: partial(_joined, pc.and_kleene),
    Not: _negated,
    Comparison: _comparison,
    Between: _between,
    In: _in,
    Like: _like,
    IsNull: _is_null,
    Negative: _minus,
    Arithmetic: _calculated,
}

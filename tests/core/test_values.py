"""Values as error texts name and print them, and as keys compare them."""

from __future__ import annotations

from decimal import Decimal
from uuid import UUID

import pytest

from leveret.values import (
    Float32,
    Int8,
    Int16,
    Int64,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Value,
    described,
    frozen,
    printed,
    type_name,
)

SAMPLES: list[tuple[Value, str, str]] = [
    (True, "bool", "true"),
    (False, "bool", "false"),
    (0, "signedint", "0"),
    (2**31 - 1, "signedint", "2147483647"),
    (-(2**31), "signedint", "-2147483648"),
    (2**31, "long", "2147483648"),
    (Timestamp(5), "timestamp", "5"),
    (Int8(-5), "byte", "-5"),
    (UInt8(5), "unsignedbyte", "5"),
    (Int16(-5), "short", "-5"),
    (UInt16(5), "unsignedshort", "5"),
    (UInt32(5), "unsignedint", "5"),
    (Int64(5), "long", "5"),
    (UInt64(2**63), "long", "9223372036854775808"),
    (Float32(1.5), "float", "1.5"),
    (UUID(int=5), "uuid", "00000000-0000-0000-0000-000000000005"),
    (1.5, "double", "1.5"),
    (Decimal("1.50"), "decimal", "1.50"),
    ("text", "longstr", "text"),
    (b"text", "longstr", "text"),
    (b"\xff", "longstr", "\\xff"),
    (bytearray(b"a"), "binary", "a"),
    ({"a": 1}, "table", "{'a': 1}"),
    ([1], "array", "[1]"),
    (None, "void", "None"),
]


@pytest.mark.parametrize(("value", "name", "text"), SAMPLES)
def test_s065_a_value_has_a_type_and_a_text(value: Value, name: str, text: str) -> None:
    assert (type_name(value), printed(value)) == (name, text)


def test_s065_an_argument_is_described_with_its_type_or_as_none() -> None:
    assert described(5) == "the value '5' of type 'signedint'"
    assert described(None) == "none"


EQUAL: list[tuple[Value, Value, bool]] = [
    ({"a": [1, {"b": 2}]}, {"a": [1, {"b": 2}]}, True),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}, True),
    ([1, 2], [2, 1], False),
    (True, 1, False),
    ([True], [1], False),
    (b"a", bytearray(b"a"), True),
    (b"a", "a", False),
    (Timestamp(1), 1, True),
    (UInt16(1), Int64(1), True),
    ({"a": [Float32(1.5)]}, {"a": [1.5]}, True),
]


@pytest.mark.parametrize(("one", "other", "same"), EQUAL)
def test_s056_arguments_are_equal_by_value(one: Value, other: Value, same: bool) -> None:
    assert (frozen(one) == frozen(other)) is same
    assert not same or hash(frozen(one)) == hash(frozen(other))

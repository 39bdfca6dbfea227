"""Values as JSON: everything comes back as it was, with its type."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.durable.store.records import json_in, key_of, names_in, text_of
from leveret.durable.store.typed_json import Unreadable, read, read_table, read_text, written
from leveret.values import (
    Float32,
    Int8,
    Int16,
    Int64,
    Json,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Value,
)
from tests.durable.site import typed

HALVES = st.text(st.characters(min_codepoint=0xD7F0, max_codepoint=0xE010), max_size=4)
TEXTS = (
    st.text(max_size=6) | HALVES | st.sampled_from(["", "$int8", "$", "\udcff", "\ud83d\ude00", "\U0001f600"])
)
WHOLE = st.integers(-(2**63), 2**64 - 1)


def single_precision(value: float) -> Float32:
    return Float32(struct.unpack("<f", struct.pack("<f", value))[0])


SINGLES = (
    st.none()
    | st.booleans()
    | WHOLE
    | st.builds(
        lambda kind, n: kind(n),
        st.sampled_from([Timestamp, Int8, UInt8, Int16, UInt16, UInt32, Int64, UInt64]),
        WHOLE,
    )
    | st.floats()
    | st.floats(width=32).map(single_precision)
    | st.decimals()
    | st.builds(Decimal, st.sampled_from(["0E-20", "-0", "sNaN12", "1.10", "Infinity"]))
    | st.uuids()
    | TEXTS
    | st.binary(max_size=8)
    | st.binary(max_size=8).map(bytearray)
)
VALUES: st.SearchStrategy[Value] = st.recursive(
    SINGLES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_a_value_comes_back_with_its_type(value: Value) -> None:
    text = text_of(written(value))
    assert text.isascii()
    assert typed(read(json_in(text))) == typed(value)


@given(st.lists(TEXTS, min_size=1, max_size=4), st.lists(TEXTS, min_size=1, max_size=4))
def test_names_come_back_and_no_two_have_one_key(one: list[str], other: list[str]) -> None:
    assert names_in(key_of(*one)) == tuple(one)
    assert (key_of(*one) == key_of(*other)) is (one == other)


def test_values_can_be_read_by_people() -> None:
    table: dict[str, Value] = {
        "x-max-length": 5,
        "since": Timestamp(1_700_000_000),
        "raw": b"\xff",
        "deep": {"a": [1.5]},
    }
    assert text_of(written(table)) == (
        '{"x-max-length":5,"since":{"$timestamp":1700000000},"raw":{"$octets":"/w=="},"deep":{"a":[1.5]}}'
    )


@pytest.mark.parametrize(
    "value",
    [
        {"$int8": 5},
        {"$table": []},
        {"$text": "x", "other": 1},
        {"\ud83d\ude00": 1, "\U0001f600": 2},
        [{"$": None}],
        float("-inf"),
        -0.0,
        single_precision(0.1),
        UUID(int=1),
        {"a": {"$uuid": UUID(int=2)}},
    ],
)
def test_what_looks_like_a_type_is_none(value: Value) -> None:
    assert typed(read(json.loads(text_of(written(value))))) == typed(value)


def test_nesting_as_deep_as_clients_may_nest_comes_back() -> None:
    value: Value = 1
    for depth in range(65):
        value = [value] if depth % 2 else {"$": value}
    assert typed(read(json_in(text_of(written(value))))) == typed(value)


@pytest.mark.parametrize(
    "json_",
    [
        {"$int8": "5"},
        {"$int8": True},
        {"$later": 1},
        {"$uuid": "no"},
        {"$uuid": 5},
        {"$decimal": "x"},
        {"$octets": "*"},
        {"$binary": "é"},
        {"$float": "x"},
        {"$double": None},
        {"$table": [["a"]]},
        {"$table": [[1, 2]]},
        {"$table": "ab"},
        {"$text": [1]},
        {"$text": "ab"},
        {"a": [{"$timestamp": 1.5}]},
    ],
)
def test_what_nobody_has_written_is_not_read(json_: Json) -> None:
    with pytest.raises(Unreadable):
        read(json_)


def test_a_table_and_a_text_are_asked_for_as_such() -> None:
    assert read_table({"a": 1}) == {"a": 1}
    for other in ([], "a", None, {"$uuid": str(UUID(int=1))}):
        with pytest.raises(Unreadable):
            read_table(other)
    assert read_text({"$text": ["a", "b"]}) == "ab"
    for none in (1, None, {"a": "b"}, ["a"]):
        with pytest.raises(Unreadable):
            read_text(none)


@pytest.mark.parametrize("text", ["", "{", "[" * 100_000, "{'a': 1}", '"\\ud'])
def test_what_is_not_json_is_said(text: str) -> None:
    with pytest.raises(Unreadable):
        json_in(text)


@pytest.mark.parametrize("key", ["1", "[]", '{"a":1}', "[1]", '["a",null]'])
def test_what_is_no_key_is_said(key: str) -> None:
    with pytest.raises(Unreadable):
        names_in(key)

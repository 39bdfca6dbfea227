"""What is looked through without building values is what would have been read, and can be decoded."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.broker.encoding import _texts_at
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.section_scan import NAMES_MAX, is_plain_map, texts_at
from leveret.protocols.amqp10.codec.sections import value_of
from leveret.protocols.amqp10.codec.types import (
    Byte,
    Char,
    Described,
    Float32,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
    value_at,
)
from tests.amqp10.parts import application_properties, section

PLAIN: list[Value] = [
    *(
        None,
        True,
        False,
        "",
        "text",
        "x" * 300,
        b"",
        b"\xff" * 3,
        Symbol("name"),
        Timestamp(1),
        1.5,
        Float32(0.5),
    ),
    *(
        Byte(-1),
        Short(-1),
        Int(-1),
        Int(1 << 30),
        Long(-1),
        Long(1 << 60),
        UByte(200),
        UShort(1),
        UInt(0),
        UInt(7),
    ),
    *(UInt(1 << 30), ULong(0), ULong(7), ULong(1 << 60), UUID(int=7)),
]
UNUSUAL: list[Value] = ["é", [1], {"a": 1}, Char("x"), Described(Symbol("d"), 1)]


def decoded(octets: bytes) -> dict[Value, Value] | None:
    """The application-properties of a section, or None if they cannot be decoded."""
    try:
        pairs, after = value_at(octets, value_of(octets, 0), len(octets))
    except AmqpError:
        return None
    assert isinstance(pairs, dict)
    return pairs if after == len(octets) and all(type(name) is str for name in pairs) else None


@pytest.mark.parametrize("value", PLAIN)
def test_simple_values_are_plain(value: Value) -> None:
    octets = application_properties({"a": value, "bb": 1})
    assert is_plain_map(octets, 0, len(octets)) is (len(octets) < 256)
    assert is_plain_map(b"front" + octets + b"tail", 5, 5 + len(octets)) is (len(octets) < 256)


@pytest.mark.parametrize("value", UNUSUAL)
def test_other_values_are_left_to_the_reader(value: Value) -> None:
    octets = application_properties({"a": value})
    assert not is_plain_map(octets, 0, len(octets))


def test_a_name_twice_too_many_names_and_names_that_are_no_text_are_not_plain() -> None:
    assert not is_plain_map(b"\0\x53\x74\xc1\x09\x04\xa1\x01a\x40\xa1\x01a\x40", 0, 13)
    assert not is_plain_map(b"\0\x53\x74\xc1\x05\x02\xa3\x01a\x40", 0, 10)
    many = application_properties({f"{number}": None for number in range(NAMES_MAX + 1)})
    assert not is_plain_map(many, 0, len(many))


VALUES = st.sampled_from(PLAIN + UNUSUAL)


@given(st.dictionaries(st.text(max_size=4), VALUES, max_size=6), st.data())
def test_what_is_plain_can_be_decoded_however_it_was_damaged(
    pairs: dict[str, Value], draw: st.DataObject
) -> None:
    octets = bytearray(application_properties(pairs))
    for _ in range(draw.draw(st.integers(0, 3))):
        octets[draw.draw(st.integers(3, len(octets) - 1))] = draw.draw(st.integers(0, 255))
    damaged = bytes(octets[: draw.draw(st.integers(4, len(octets)))])
    if is_plain_map(damaged, 0, len(damaged)):
        assert decoded(damaged) is not None


def properties_of(texts: list[str | None], ids: list[Value], rest: list[Value]) -> bytes:
    user, to, subject, reply_to = texts
    user_id = None if user is None else user.encode()
    return section(0x73, [ids[0], user_id, to, subject, reply_to, ids[1], *rest])


TEXTS = st.lists(st.none() | st.text(max_size=6), min_size=4, max_size=4)
IDS = st.lists(
    st.sampled_from([None, "id", "é", b"\xff", ULong(0), ULong(9), ULong(1 << 60), UUID(int=1)]),
    min_size=2,
    max_size=2,
)
REST = st.lists(st.sampled_from([None, Symbol("type"), Timestamp(5), "group", UInt(3)]), max_size=8)


def read(octets: bytes) -> tuple[str | None, ...] | None:
    try:
        return _texts_at(octets, 0, len(octets))
    except AmqpError:
        return None


@given(TEXTS, IDS, REST, st.data())
def test_texts_are_those_that_are_read_field_by_field(
    texts: list[str | None], ids: list[Value], rest: list[Value], draw: st.DataObject
) -> None:
    octets = bytearray(properties_of(texts, ids, rest))
    for _ in range(draw.draw(st.integers(0, 2))):
        octets[draw.draw(st.integers(3, len(octets) - 1))] = draw.draw(st.integers(0, 255))
    damaged = bytes(octets)
    found = texts_at(damaged, 0, len(damaged))
    assert found is None or found == read(damaged)


def test_usual_properties_are_plain() -> None:
    octets = p.Properties(
        message_id="m1",
        user_id=b"guest",
        to="/queues/q",
        subject="s",
        reply_to="r",
        correlation_id=UUID(int=3),
        content_type="text/plain",
        creation_time=Timestamp(1_700_000_000_000),
        group_sequence=UInt(7),
    ).encode()
    assert texts_at(octets, 0, len(octets)) == ("guest", "/queues/q", "s", "r") == read(octets)

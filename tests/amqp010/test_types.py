"""The types of AMQP 0-10: octets to values and back, and how strict."""

from __future__ import annotations

import tracemalloc
from decimal import Decimal

import pytest
from hypothesis import given

from leveret.protocols.amqp010.codec import types as t

from . import samples

EVERY_VALUE = [*samples.VALUES, *samples.OPAQUES]


@pytest.mark.parametrize(("value", "octets"), EVERY_VALUE, ids=repr)
def test_a_value_is_encoded_and_decoded_as_the_sample_says(value: t.Value, octets: bytes) -> None:
    assert t.encode(value) == octets
    for front, tail in ((b"", b""), (b"front", b"tail")):
        data = front + octets + tail
        decoded, at = t.value_at(data, len(front), len(data))
        assert decoded == value
        assert type(decoded) is type(value)
        assert at == len(front) + len(octets)


@pytest.mark.parametrize(("value", "octets"), EVERY_VALUE, ids=repr)
def test_a_value_that_is_cut_anywhere_is_malformed(value: t.Value, octets: bytes) -> None:
    for end in range(len(octets)):
        with pytest.raises(t.MalformedError):
            t.value_at(octets, 0, end)


@given(samples.values)
def test_a_value_comes_back_from_its_octets_and_its_octets_from_it(value: t.Value) -> None:
    octets = t.encode(value)
    decoded, at = t.value_at(octets, 0, len(octets))
    assert (decoded, at) == (value, len(octets))
    assert t.encode(decoded) == octets


@given(samples.maps)
def test_a_map_and_a_list_are_a_value_without_its_code(pairs: dict[str, t.Value]) -> None:
    octets = t.encode_map(pairs)
    assert t.map_at(octets, 0, len(octets)) == (pairs, len(octets))
    items = t.encode_list(pairs.values())
    assert t.list_at(items, 0, len(items)) == ([*pairs.values()], len(items))


def test_every_type_code_is_read_forwarded_or_refused() -> None:
    """Whoever invents a type, we know how long it is; two nibbles have no width at all."""
    refused = set()
    for code in range(256):
        octets = bytes((code,)) + bytes(200)
        try:
            value, at = t.value_at(octets, 0, len(octets))
        except t.MalformedError:
            refused.add(code)
        else:
            assert t.encode(value) == octets[:at] or code in (0xA8, 0xA9, 0xAA, 0xC8)
    assert refused == {*range(0xB0, 0xC0), *range(0xE0, 0xF0), 0xAB}  # a struct of size 0 has no code


def test_a_map_of_size_zero_is_empty_and_so_are_a_list_and_an_array() -> None:
    assert t.map_at(bytes(4), 0, 4) == ({}, 4)
    assert t.list_at(bytes(4), 0, 4) == ([], 4)
    assert t.array_at(bytes(4), 0, 4)[0] == t.Array(0xF0)


@pytest.mark.parametrize(
    "octets",
    [
        pytest.param(bytes.fromhex("00000005 00000001 01"), id="a key without a value"),
        pytest.param(bytes.fromhex("00000004 00000001"), id="an entry and no octets"),
        pytest.param(bytes.fromhex("00000006 00000000 01 61"), id="octets and no entry"),
        pytest.param(bytes.fromhex("00000003 000000"), id="half a count"),
        pytest.param(bytes.fromhex("00000007 ffffffff 0161f0"), id="entries without end"),
        pytest.param(bytes.fromhex("ffffffff 00000001 0161f0"), id="octets without end"),
        pytest.param(bytes.fromhex("00000008 00000001 02 61 31 00"), id="a key beyond the end"),
        pytest.param(bytes.fromhex("00000008 00000001 01 61 95 ff"), id="a value beyond the end"),
        pytest.param(bytes.fromhex("00000007 00000001 01 61 b0"), id="a type that has no width"),
    ],
)
def test_a_map_that_is_not_what_its_sizes_say_is_malformed(octets: bytes) -> None:
    with pytest.raises(t.MalformedError):
        t.map_at(octets + bytes(300), 0, len(octets))


@pytest.mark.parametrize(
    "octets",
    [
        pytest.param(bytes.fromhex("00000004 95 000000"), id="half a count"),
        pytest.param(bytes.fromhex("00000006 02 00000002 00"), id="an element too few"),
        pytest.param(bytes.fromhex("00000007 02 00000001 0000"), id="an octet too many"),
        pytest.param(bytes.fromhex("00000005 f0 ffffffff"), id="void ones without end"),
        pytest.param(bytes.fromhex("00000005 f1 00000001"), id="a bit"),
    ],
)
def test_an_array_that_is_not_what_its_sizes_say_is_malformed(octets: bytes) -> None:
    with pytest.raises(t.MalformedError):
        t.array_at(octets + bytes(300), 0, len(octets))


def test_a_struct_without_a_code_is_malformed() -> None:
    with pytest.raises(t.MalformedError):
        t.struct32_at(bytes.fromhex("00000001 06 04"), 0, 6)


def nested(kind: int, depth: int) -> bytes:
    """Maps, lists or arrays, one within the other."""
    octets = {
        0xA8: bytes.fromhex("00000000"),
        0xA9: bytes.fromhex("00000000"),
        0xAA: bytes.fromhex("00000000"),
    }[kind]
    for _ in range(depth):
        code = bytes((kind,))
        inner = {
            0xA8: b"\0\0\0\1" + b"\1k" + code + octets,
            0xA9: b"\0\0\0\1" + code + octets,
            0xAA: code + b"\0\0\0\1" + octets,
        }[kind]
        octets = len(inner).to_bytes(4, "big") + inner
    return bytes((kind,)) + octets


@pytest.mark.parametrize("kind", [0xA8, 0xA9, 0xAA])
def test_nesting_has_an_end(kind: int) -> None:
    octets = nested(kind, t.DEPTH_MAX)
    t.value_at(octets, 0, len(octets))
    for depth in (t.DEPTH_MAX + 1, 5000):
        octets = nested(kind, depth)
        with pytest.raises(t.MalformedError, match="too deep"):
            t.value_at(octets, 0, len(octets))


@pytest.mark.parametrize("kind", [0xA8, 0xA9, 0xAA])
def test_a_count_costs_no_memory_before_it_is_true(kind: int) -> None:
    octets = bytes((kind,)) + bytes.fromhex("00010000 f0 ffffffff") + bytes(0x10000)
    tracemalloc.start()
    try:
        with pytest.raises(t.MalformedError):
            t.value_at(octets, 0, len(octets))
        assert tracemalloc.get_traced_memory()[1] < 10_000
    finally:
        tracemalloc.stop()


def test_of_two_entries_with_one_key_the_later_counts() -> None:
    octets = bytes.fromhex("0000000c 00000002 0161 0801 0161 0800")
    assert t.map_at(octets, 0, len(octets))[0] == {"a": False}


def test_numbers_and_long_text_go_out_as_the_type_that_has_room() -> None:
    assert t.encode(2**63)[0] == 0x32
    assert t.encode(Decimal(2**31))[0] == 0xD8
    assert t.encode(Decimal(2**31 - 1))[0] == t.encode(Decimal(-(2**31)))[0] == 0xC8
    assert t.encode(Decimal("1E3")) == bytes.fromhex("c8 00 000003e8")
    assert t.encode("x" * 65_535)[:3] == b"\x95\xff\xff"
    assert t.encode("x" * 65_536) == b"\xa0\x00\x01\x00\x00" + b"x" * 65_536
    assert t.encode(bytes(65_535))[:3] == b"\x90\xff\xff"
    assert t.encode(bytes(65_536)) == t.encode(t.Vbin32(bytes(65_536)))


@pytest.mark.parametrize(
    "value",
    [
        2**64,
        -(2**63) - 1,
        t.UInt8(256),
        t.Int8(-129),
        t.UInt64(-1),
        t.Str8("x" * 256),
        t.Str8Latin("兎"),
        t.Char("兎"),
        Decimal("NaN"),
        Decimal("1E-256"),
        Decimal("1E19"),
        Decimal("1E999999"),
        t.Dec64(2**63),
        {"x" * 256: 1},
        t.Array(0x95, [1]),
        [{1, 2}],
    ],
    ids=lambda value: repr(value)[:30],
)
def test_what_the_wire_cannot_say_is_a_value_error(value: t.Value) -> None:
    with pytest.raises(ValueError, match=r"."):
        t.encode(value)


def test_a_value_says_what_it_is() -> None:
    assert repr(t.UInt8(1)) == "UInt8(1)"
    assert str(t.UInt8(1)) == "1"
    assert repr(t.Opaque(0x10, b"ab")) == "Opaque(0x10, b'ab')"
    assert t.Opaque(1, b"a") != t.Struct32(1, b"a")
    assert {t.Opaque(1, b"a"), t.Opaque(1, b"a")} == {t.Opaque(1, b"a")}
    assert t.Array(0x95) != t.Array(0x90)
    assert repr(t.Array(0x95, ["a"])) == "Array(0x95, ['a'])"
    octets = t.encode_array(t.Array(0x95, ["a"]))
    assert t.array_at(octets, 0, len(octets)) == (t.Array(0x95, ["a"]), len(octets))

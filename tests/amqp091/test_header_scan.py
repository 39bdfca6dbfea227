"""A header table that is looked through without building values: it accepts what can be decoded, and nothing else."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec.fields import (
    DEPTH_MAX,
    FieldTable,
    MalformedError,
    encode_table,
    table_at,
)
from leveret.protocols.amqp091.codec.header_scan import (
    ABSENT,
    MALFORMED,
    octets_of,
    plain_table_after,
    value_of,
)
from tests.amqp091.samples import tables

HEADERS = b"\x20\x00"
TYPE, ENCODING = 0x80, 0x40


def sized(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


def decoded(octets: bytes) -> tuple[FieldTable, int] | None:
    with suppress(MalformedError):
        return table_at(octets, 0, len(octets))
    return None


MALFORMED_TABLES = {
    "a size that is cut off": b"\x00\x00",
    "a size beyond the end": sized(b"\x01at\x01")[:-1],
    "a name without a value": sized(b"\x01a"),
    "a name beyond the end": sized(b"\x09a"),
    "a type that is none": sized(b"\x01aQ"),
    "a text without its size": sized(b"\x01aS\x00\x00"),
    "a text beyond the end": sized(b"\x01aS\x00\x00\x00\x09x"),
    "a number beyond the end": sized(b"\x01al\x00"),
    "an array beyond the end": sized(b"\x01aA\x00\x00\x00\x09t\x01"),
    "a bad value in an array": sized(b"\x01aA" + sized(b"Q")),
    "a bad value in a table": sized(b"\x01aF" + sized(b"\x01bl\x00")),
}


@pytest.mark.parametrize("octets", MALFORMED_TABLES.values(), ids=MALFORMED_TABLES)
def test_what_cannot_be_decoded_is_malformed(octets: bytes) -> None:
    assert decoded(octets) is None
    assert plain_table_after(octets, 0, len(octets)) == -1
    assert value_of(HEADERS + octets, b"none") in (MALFORMED, ABSENT)  # it does not look into values


def test_tables_are_nested_so_deep_and_no_deeper() -> None:
    octets = sized(b"")
    for depth in range(DEPTH_MAX + 2):
        assert (plain_table_after(octets, 0, len(octets)) < 0) is (depth > DEPTH_MAX)
        assert (decoded(octets) is None) is (depth > DEPTH_MAX)
        octets = sized(b"\x01aF" + octets)


@pytest.mark.parametrize("name", ["CC", "BCC"])
def test_further_routing_keys_are_not_passed_over_in_front_and_are_inside(name: str) -> None:
    plain = encode_table({"a": {name: ["k"]}})
    assert plain_table_after(plain, 0, len(plain)) == len(plain)
    routing = encode_table({"a": 1, name: ["k"]})
    assert plain_table_after(routing, 0, len(routing)) == -1


@given(tables, st.data())
def test_bytes_are_accepted_if_they_can_be_decoded(table: FieldTable, chance: st.DataObject) -> None:
    octets = bytearray(encode_table(table))
    for _ in range(chance.draw(st.integers(0, 3))):
        octets[chance.draw(st.integers(0, len(octets) - 1))] = chance.draw(st.integers(0, 255))
    found = decoded(bytes(octets))
    after = plain_table_after(bytes(octets), 0, len(octets))
    if found is None:
        assert after == -1
    elif not {"CC", "BCC"} & found[0].keys():
        assert after == found[1]


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        (b"", MALFORMED),
        (b"\x00\x00", ABSENT),
        (bytes([0x20 | TYPE, 0]), MALFORMED),
        (bytes([0x20 | TYPE | ENCODING, 0]) + b"\x01t", MALFORMED),
        (HEADERS + b"\x00", MALFORMED),
        (HEADERS + sized(b"\x01at\x01")[:-1], MALFORMED),
        (HEADERS + sized(b"\x01a"), MALFORMED),
        (HEADERS + sized(b"\x01aQ"), MALFORMED),
        (HEADERS + sized(b"\x01aS\x00"), MALFORMED),
        (HEADERS + sized(b"\x01aS\x00\x00\x00\x09"), MALFORMED),
        (HEADERS + sized(b"\x01at\x01"), 8),
        (bytes([0x20 | TYPE | ENCODING, 0]) + b"\x01t\x01e" + sized(b"\x01at\x01\x01at\x00"), 16),
    ],
)
def test_a_header_is_found_or_the_table_is_malformed(properties: bytes, found: int) -> None:
    assert value_of(properties, b"a") == found


@given(tables, st.sets(st.sampled_from(["a", "b", "CC", "x" * 255])), st.integers(0, 300))
def test_the_octets_of_headers_are_those_of_a_table_with_these_only(
    table: FieldTable, names: set[str], size_max: int
) -> None:
    wanted = encode_table({name: value for name, value in table.items() if name in names})[4:]
    found = octets_of(HEADERS + encode_table(table), {name.encode(): 1 for name in names}, size_max)
    assert found == (wanted if len(wanted) <= size_max else None)


@pytest.mark.parametrize(
    "properties", [b"", HEADERS + b"\x00", HEADERS + sized(b"\x01aQ"), HEADERS + sized(b"\x01a")]
)
def test_malformed_headers_have_no_octets(properties: bytes) -> None:
    assert octets_of(properties, {b"a": 1}, 100) is None
    assert octets_of(b"\x00\x00", {b"a": 1}, 100) == b""

"""AMQP 1.0 values: octets to Python and back, whatever the type; and what is no value."""

import sys
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from enum import IntEnum

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import types as t
from leveret.protocols.amqp10.codec.errors import Ends

from . import oracle, samples


def whole(octets: bytes) -> t.Value:
    value, after = t.value_at(octets, 0, len(octets))
    assert after == len(octets)
    return value


def identical(one: t.Value, other: t.Value) -> bool:
    """Equal, and of the same types all the way down: UInt(1) == Int(1) to Python."""
    return one == other and repr(one) == repr(other)


@pytest.mark.parametrize(("value", "octets"), samples.VALUES, ids=lambda sample: repr(sample)[:40])
def test_a_value_is_encoded_and_decoded_as_the_sample_says(value: t.Value, octets: bytes) -> None:
    assert t.encode(value) == octets
    assert identical(whole(octets), value)
    assert identical(t.value_at(b"front" + octets + b"tail", 5, 5 + len(octets))[0], value)


@pytest.mark.parametrize(("value", "octets"), samples.LONGER)
def test_a_longer_encoding_is_read_and_goes_out_shorter(value: t.Value, octets: bytes) -> None:
    assert identical(whole(octets), value)
    assert len(t.encode(value)) < len(octets)


@pytest.mark.parametrize("octets", samples.ARRAYS)
def test_an_array_goes_out_as_the_octets_it_came_as(octets: bytes) -> None:
    array = whole(b"\xc0" + bytes((len(octets) + 2, 2)) + octets + b"\x40")
    assert t.encode(array) == b"\xc0" + bytes((len(octets) + 2, 2)) + octets + b"\x40"
    assert t.encode(whole(octets)) == octets


def test_an_array_in_an_array_may_be_taken_out_and_sent_alone() -> None:
    outer = whole(b"\xe0\x06\x01\xe0\x03\x01\x50\x01")
    assert isinstance(outer, t.Array)
    assert t.encode(outer.items[0]) == b"\xe0\x03\x01\x50\x01"


@pytest.mark.parametrize("octets", samples.MALFORMED.values(), ids=samples.MALFORMED.keys())
def test_what_is_no_value_is_a_decode_error_that_ends_the_connection(octets: bytes) -> None:
    with pytest.raises(t.DecodeError) as raised:
        t.value_at(octets, 0, len(octets))
    assert (raised.value.condition, raised.value.ends) == ("amqp:decode-error", Ends.CONNECTION)


@pytest.mark.parametrize("octets", [octets for _, octets in samples.VALUES + samples.LONGER])
def test_a_value_that_is_cut_anywhere_is_a_decode_error(octets: bytes) -> None:
    for end in range(len(octets)):
        with pytest.raises(t.DecodeError):
            t.value_at(octets, 0, end)
        with pytest.raises(t.DecodeError):
            t.skip_at(octets, 0, end)
        with pytest.raises(t.DecodeError):
            t.value_at(octets[:end], 0, end)


@pytest.mark.parametrize("octets", [octets for _, octets in samples.VALUES + samples.LONGER])
def test_skipping_a_value_leads_to_where_reading_it_does(octets: bytes) -> None:
    assert t.skip_at(octets, 0, len(octets)) == len(octets)
    assert t.skip_at(b"front" + octets + b"tail", 5, 9 + len(octets)) == 5 + len(octets)


@pytest.mark.parametrize(
    "octets", [b"\x3f", b"\x00\x40", b"\x00", b"\xa1", b"\xb1\0\0\0", b"\xb1\0\0\0\1", b""]
)
def test_what_has_no_end_cannot_be_skipped(octets: bytes) -> None:
    with pytest.raises(t.DecodeError):
        t.skip_at(octets, 0, len(octets))


@given(samples.values)
def test_any_value_comes_back_from_its_octets(value: t.Value) -> None:
    octets = t.encode(value)
    found = whole(octets)
    assert identical(found, value)
    assert t.encode(found) == octets
    assert t.skip_at(octets, 0, len(octets)) == len(octets)


@given(samples.values.filter(samples.understood_by_proton))
def test_another_implementation_reads_what_we_write(value: t.Value) -> None:
    assert identical(oracle.read(t.encode(value)), value)


@given(samples.values.filter(samples.understood_by_proton))
def test_we_read_what_another_implementation_writes(value: t.Value) -> None:
    octets = oracle.written(value)
    found = whole(octets)
    assert identical(oracle.read(t.encode(found)), oracle.read(octets))
    assert t.skip_at(octets, 0, len(octets)) == len(octets)


@given(samples.values, st.data())
@settings(max_examples=200)
def test_changed_octets_are_a_value_or_a_decode_error_and_nothing_else(
    value: t.Value, data: st.DataObject
) -> None:
    octets = bytearray(t.encode(value))
    for _ in range(data.draw(st.integers(1, 4))):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    try:
        found, after = t.value_at(bytes(octets), 0, len(octets))
    except t.DecodeError:
        return
    assert after <= len(octets)
    assert repr(t.value_at(t.encode(found), 0, len(t.encode(found)))[0]) == repr(found)
    assert t.skip_at(bytes(octets), 0, len(octets)) == after


@given(st.binary(max_size=60))
def test_any_octets_are_a_value_or_a_decode_error_and_nothing_else(octets: bytes) -> None:
    for read in (t.value_at, t.skip_at, t.list_at):
        with suppress(t.DecodeError):
            read(octets, 0, len(octets))


def test_an_integer_without_a_width_takes_32_bits_if_it_fits_and_64_if_not() -> None:
    assert identical(whole(t.encode(2**31 - 1)), t.Int(2**31 - 1))
    assert identical(whole(t.encode(-(2**31))), t.Int(-(2**31)))
    assert identical(whole(t.encode(2**31)), t.Long(2**31))
    assert identical(whole(t.encode([5, True])), [t.Int(5), True])


def test_what_inherits_from_a_type_goes_out_as_it() -> None:
    class Name(str):
        __slots__ = ()

    class Port(IntEnum):
        AMQP = 5672

    assert t.encode([Name("n"), Port.AMQP]) == t.encode(["n", 5672])


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        t.UByte(256),
        t.UInt(-1),
        t.UInt(2**32),
        t.ULong(2**64),
        t.Int(2**31),
        t.Long(-(2**63) - 1),
        t.Timestamp(2**63),
        t.Float32(1e300),
        t.Char("ab"),
        t.Char("\ud800"),
        "\ud800",
        t.Symbol("ä"),
        t.Array(b"\x70", [t.UByte(1)]),
        t.Array(b"\x70", [1]),
        t.Array(b"\x52", [t.UInt(256)]),
        t.Array(b"\x43", [t.UInt(1)]),
        t.Array(b"\xa1", ["x" * 256]),
        t.Array(b"\xa1", [t.Symbol("x")]),
        t.Array(b"\xc0", [[None] * 256]),
        t.Array(b"\x00\x53\x01\x50", [t.UByte(1)]),
        t.Array(b"\x00\x53\x01\x50", [t.Described(t.ULong(2), t.UByte(1))]),
        t.Array(b"\x50", [t.Described(t.ULong(2), t.UByte(1))]),
        object(),
    ],
)
def test_what_the_wire_cannot_say_is_a_value_error(value: t.Value) -> None:
    with pytest.raises(ValueError, match=r"."):
        t.encode(value)


def test_a_value_may_be_nested_64_deep() -> None:
    octets = samples.nested(64)
    value = whole(octets)
    for _ in range(64):
        assert isinstance(value, list)
        (value,) = value
    assert value is None
    deep: t.Value = None
    for _ in range(200):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        t.encode(deep)


def test_an_array_of_one_type_finds_its_constructor() -> None:
    assert t.array_of([t.Symbol("a")]) == t.Array(b"\xb3", [t.Symbol("a")])
    assert t.array_of([1, 2**40]) == t.Array(b"\x81", [1, 2**40])
    assert t.array_of([t.array_of([True])]) == t.Array(b"\xf0", [t.Array(b"\x56", [True])])
    for items in ([], [1, "a"], [t.Described(None, None)]):
        with pytest.raises(ValueError, match="array"):
            t.array_of(items)


def test_keys_of_different_types_stay_apart() -> None:
    numbers: list[t.Value] = [t.UByte(1), t.Int(1), t.Long(1), 1.0, True]
    octets = b"".join(t.encode(number) + b"\x40" for number in numbers)
    found = whole(b"\xc1" + bytes((len(octets) + 1, 10)) + octets)
    assert isinstance(found, dict)
    assert [key.value for key in found if isinstance(key, t.Key)] == numbers
    assert t.encode(found) == b"\xc1" + bytes((len(octets) + 1, 10)) + octets


def test_a_map_of_text_is_looked_up_by_text_whatever_its_type() -> None:
    found = whole(t.encode({t.Symbol("product"): "Leveret", "count": t.UInt(3)}))
    assert isinstance(found, dict)
    assert (found["product"], found["count"]) == ("Leveret", 3)


def test_numbers_print_as_numbers_and_show_their_type() -> None:
    assert f"{t.UInt(5)} {t.Symbol('s')} {t.Float32(0.5)} {t.Char('c')}" == "5 s 0.5 c"
    assert repr([t.UInt(5), t.Symbol("s"), t.Float32(0.5), t.Char("c")]) == (
        "[UInt(5), Symbol('s'), Float32(0.5), Char('c')]"
    )


# What a peer makes us do stays in proportion to what it sends. Counted in calls and octets, as times would not be the
# same each time.


def calls(work: Callable[[], object]) -> int:
    """How many functions are called meanwhile."""
    counted = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal counted
        counted += 1

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return counted


def colliding(count: int) -> bytes:
    """A map of UUIDs that Python hashes alike: their numbers are multiples of 2^61 - 1."""
    pairs = [b"\x98" + (number * ((1 << 61) - 1)).to_bytes(16) + b"\x40" for number in range(count)]
    octets = b"".join(pairs)
    return b"\xd1" + (len(octets) + 4).to_bytes(4) + (2 * count).to_bytes(4) + octets


def test_keys_chosen_to_collide_cost_no_more_than_others() -> None:
    small, large = colliding(500), colliding(5000)
    assert calls(lambda: whole(large)) < 11 * calls(lambda: whole(small))
    assert t.encode(whole(large)) == large


def peak(octets: bytes) -> int:
    """The memory that reading takes at most, in octets."""
    tracemalloc.start()
    try:
        whole(octets)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_large_values_take_memory_in_proportion() -> None:
    text = t.encode("x" * 10_000_000)
    assert peak(text) < 25_000_000
    assert t.encode(whole(text)) == text
    items = t.encode([t.UInt(7)] * 200_000)
    assert peak(items) < 100 * len(items)
    assert t.encode(whole(items)) == items


def test_arrays_in_arrays_are_kept_once() -> None:
    array: t.Value = t.Array(b"\xb0", [b"x" * 100_000])
    for _ in range(50):
        array = t.Array(b"\xf0", [array])
    octets = t.encode(array)
    assert peak(octets) < 3 * len(octets)
    assert t.encode(whole(octets)) == octets


def test_maps_as_keys_of_maps_are_kept_once() -> None:
    key: t.Value = b"x" * 100_000
    for _ in range(50):
        octets = t.encode(key) + b"\x40"
        key = whole(b"\xd1" + (len(octets) + 4).to_bytes(4) + (2).to_bytes(4) + octets)
    assert peak(t.encode({t.Key(key, b""): None})) < 10 * 100_000


def test_many_elements_without_octets_are_refused() -> None:
    def of(count: int) -> bytes:
        return b"\xf0\x00\x00\x00\x05" + count.to_bytes(4) + b"\x41"

    array = whole(of(64))
    assert isinstance(array, t.Array)
    assert len(array.items) == 64
    with pytest.raises(t.DecodeError):
        whole(of(65))
    with pytest.raises(t.DecodeError):
        whole(of(2**32 - 1))

"""Decoding of AMQP 1.0 bytes to values. Pure functions, no state.

`x_at(data, at, end)` reads an x and returns it with the offset after it. It trusts no size or count that leads beyond
`end`, nests no deeper than DEPTH_MAX, and raises DecodeError. A reader in the table reads the bytes after the format
code, so that it also reads the elements of an array, which share one format code.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Final, TypeAlias
from uuid import UUID

from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.values import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Int,
    Key,
    Long,
    Short,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from leveret.protocols.amqp10.codec.writing import encode
from leveret.protocols.shared.codec.integers import Float32

DEPTH_MAX: Final = 64  # lists in maps in described values ...; two Python frames each
ZERO_WIDTH_MAX: Final = 64  # elements of an array that have no bytes of their own
DESCRIPTORS_MAX: Final = 2  # of the elements of an array: each element gets an object for each
UNSALTED_MAX: Final = 32  # pairs of a map whose keys may have the predictable hashes of numbers
TOO_DEEP: Final = f"a value is nested more than {DEPTH_MAX} deep"
CUT: Final = "a value is cut short"
TWO_LONGS: Final = Struct(">II")

Reader: TypeAlias = Callable[[bytes, int, int, int], tuple[Value, int]]

# The number of bytes that follow a format code, or how it is encoded.
SIZE_OCTET: Final = -1
SIZE_LONG: Final = -2
DESCRIBED: Final = -3
UNKNOWN: Final = -4


class DecodeError(AmqpError):
    """Raised for bytes that are no value."""

    def __init__(self, description: str) -> None:
        super().__init__("amqp:decode-error", description, Ends.CONNECTION)


def value_at(data: bytes, at: int, end: int, depth: int = 0) -> tuple[Value, int]:
    """Read a value with its constructor in front."""
    if at >= end:
        raise DecodeError("a value is missing")
    return READERS[data[at]](data, at + 1, end, depth)


def skip_at(data: bytes, at: int, end: int) -> int:
    """Return the offset after a value, without reading its content, which may be invalid."""
    values = 1
    while values:
        if at >= end:
            raise DecodeError("a value is missing")
        code = data[at]
        width = WIDTHS[code]
        at += 1
        if width >= 0:
            at += width
            values -= 1
        elif width == SIZE_OCTET and at < end:
            at += 1 + data[at]
            values -= 1
        elif width == SIZE_LONG and at + 4 <= end:
            at += 4 + int.from_bytes(data[at : at + 4])
            values -= 1
        elif width == DESCRIBED:
            values += 1
        elif width == UNKNOWN:
            raise DecodeError(f"unknown format code 0x{code:02x}")
        else:
            at = end + 1
        if at > end:
            raise DecodeError(CUT)
    return at


def list_at(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    """Read the head of a list; return the number of its values, the offset of the first and the end of the last."""
    if at >= end:
        raise DecodeError("a value is missing")
    code = data[at]
    if code == 0x45:
        return 0, at + 1, at + 1
    if code == 0xC0:
        return _compound8_at(data, at + 1, end)
    if code == 0xD0:
        return _compound32_at(data, at + 1, end)
    raise DecodeError(f"a list has format code 0x{code:02x}")


def _compound8_at(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    if at + 2 > end:
        raise DecodeError("a list, map or array is cut short")
    after = at + 1 + data[at]
    return _believed(data[at + 1], at + 2, after, end)


def _compound32_at(data: bytes, at: int, end: int) -> tuple[int, int, int]:
    if at + 8 > end:
        raise DecodeError("a list, map or array is cut short")
    size, count = TWO_LONGS.unpack_from(data, at)
    return _believed(count, at + 8, at + 4 + size, end)


def _believed(count: int, at: int, after: int, end: int) -> tuple[int, int, int]:
    if not at <= after <= end:
        raise DecodeError("a list, map or array is cut short")
    return count, at, after


def _list(count: int, data: bytes, at: int, after: int, depth: int) -> tuple[list[Value], int]:
    _expect_room(count, at, after, depth)
    items: list[Value] = []
    for _ in range(count):
        if at >= after:
            raise DecodeError("a value is missing")
        item, at = READERS[data[at]](data, at + 1, after, depth + 1)
        items.append(item)
    _expect_end(at, after)
    return items, after


def _map(count: int, data: bytes, at: int, after: int, depth: int) -> tuple[dict[Value, Value], int]:
    items, after = _list(count, data, at, after, depth)
    if count % 2:
        raise DecodeError("a map has a key without a value")
    keys = items[::2]
    if len(keys) > UNSALTED_MAX and not all(isinstance(key, str | bytes) for key in keys):
        return _told_apart(keys, items[1::2]), after
    try:
        found = dict(zip(keys, items[1::2], strict=True))
    except TypeError:  # a list is no key to Python
        return _told_apart(keys, items[1::2]), after
    if len(found) < len(keys):
        return _told_apart(keys, items[1::2]), after
    return found, after


def _told_apart(keys: list[Value], values: list[Value]) -> dict[Value, Value]:
    """Build the map of keys that Python would confuse. The hashes of numbers are predictable, so that a large map of
    chosen numbers would cost the square of its size: such keys are wrapped, and hashed by their bytes."""
    found: dict[Value, Value] = {}
    seen: set[bytes] = set()
    for key, value in zip(keys, values, strict=True):
        wrapped = Key(key, encode(key))
        if wrapped.octets in seen:
            raise DecodeError("a map has a key twice")
        seen.add(wrapped.octets)
        plain = type(key) in (str, bytes, Symbol) and key not in found
        found[key if plain else wrapped] = value
    return found


def _array(count: int, data: bytes, at: int, after: int, depth: int) -> tuple[list[Value], bytes]:
    """Return the elements of an array whose constructor is at `at`, and that constructor."""
    descriptors, elements = _descriptors_at(data, at, after, depth)
    code = data[elements]
    constructor = data[at : elements + 1]
    at = elements + 1
    if count > (after - at if WIDTHS[code] else ZERO_WIDTH_MAX):
        raise DecodeError(f"an array says that it has {count} elements")
    read = READERS[code]
    depth += len(descriptors) + 1
    items: list[Value] = []
    for _ in range(count):
        item, at = read(data, at, after, depth)
        items.append(item)
    _expect_end(at, after)
    for descriptor in reversed(descriptors):
        items = [Described(descriptor, item) for item in items]
    return items, constructor


def _descriptors_at(data: bytes, at: int, after: int, depth: int) -> tuple[list[Value], int]:
    """Return the descriptors of the elements of an array, and the offset of their format code."""
    if depth >= DEPTH_MAX:
        raise DecodeError(TOO_DEEP)
    descriptors: list[Value] = []
    while at < after and data[at] == 0:
        if len(descriptors) == DESCRIPTORS_MAX:
            raise DecodeError(f"the elements of an array have more than {DESCRIPTORS_MAX} descriptors")
        descriptor, at = value_at(data, at + 1, after, depth + 1)
        descriptors.append(descriptor)
    if at >= after:
        raise DecodeError("an array has no constructor")
    if WIDTHS[data[at]] == UNKNOWN:
        raise DecodeError(f"unknown format code 0x{data[at]:02x}")
    return descriptors, at


def _expect_room(count: int, at: int, after: int, depth: int) -> None:
    if depth >= DEPTH_MAX:
        raise DecodeError(TOO_DEEP)
    if count > after - at:
        raise DecodeError(f"a list or map says that it has {count} values")


def _expect_end(at: int, after: int) -> None:
    if at != after:
        raise DecodeError(f"{after - at} octets follow the last value of a list, map or array")


def _described_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    if depth >= DEPTH_MAX:
        raise DecodeError(TOO_DEEP)
    descriptor, at = value_at(data, at, end, depth + 1)
    value, at = value_at(data, at, end, depth + 1)
    return Described(descriptor, value), at


def _list8_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    count, at, after = _compound8_at(data, at, end)
    return _list(count, data, at, after, depth)


def _list32_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    count, at, after = _compound32_at(data, at, end)
    return _list(count, data, at, after, depth)


def _map8_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    count, at, after = _compound8_at(data, at, end)
    return _map(count, data, at, after, depth)


def _map32_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    count, at, after = _compound32_at(data, at, end)
    return _map(count, data, at, after, depth)


def _array8_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    begin = at
    count, at, after = _compound8_at(data, at, end)
    items, constructor = _array(count, data, at, after, depth)
    return Array(constructor, items, (0xE0, data, begin, after)), after


def _array32_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    begin = at
    count, at, after = _compound32_at(data, at, end)
    items, constructor = _array(count, data, at, after, depth)
    return Array(constructor, items, (0xF0, data, begin, after)), after


def _unknown(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    raise DecodeError(f"unknown format code 0x{data[at - 1]:02x}")


def _constant(value: Value) -> Reader:
    def constant(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        return value, at

    return constant


def _empty_list(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    return [], at


def _boolean_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
    if at >= end:
        raise DecodeError(CUT)
    if data[at] > 1:
        raise DecodeError(f"a boolean is {data[at]}")
    return data[at] == 1, at + 1


def _octet(of: type[int]) -> Reader:
    def octet_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at >= end:
            raise DecodeError(CUT)
        return of(data[at]), at + 1

    return octet_at


def _number(of: type[int] | type[float], layout: str) -> Reader:
    struct = Struct(">" + layout)
    size = struct.size
    unpack = struct.unpack_from

    def number_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at + size > end:
            raise DecodeError(CUT)
        return of(unpack(data, at)[0]), at + size

    return number_at


def _octets(of: Callable[[bytes], Value], size: int) -> Reader:
    def octets_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        after = at + size
        if after > end:
            raise DecodeError(CUT)
        return of(data[at:after]), after

    return octets_at


def _character(octets: bytes) -> Value:
    code = int.from_bytes(octets)
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:
        raise DecodeError(f"0x{code:x} is no Unicode character")
    return Char(chr(code))


def _uuid(octets: bytes) -> Value:
    return UUID(bytes=octets)


def _short_at(of: Callable[[bytes], Value]) -> Reader:
    def short_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at >= end:
            raise DecodeError(CUT)
        after = at + 1 + data[at]
        if after > end:
            raise DecodeError(CUT)
        return of(data[at + 1 : after]), after

    return short_at


def _long_at(of: Callable[[bytes], Value]) -> Reader:
    def long_at(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        begin = at + 4
        after = begin + int.from_bytes(data[at:begin])
        if begin > end or after > end:
            raise DecodeError(CUT)
        return of(data[begin:after]), after

    return long_at


def _binary(octets: bytes) -> Value:
    return octets


def _string(octets: bytes) -> Value:
    try:
        return octets.decode()
    except UnicodeDecodeError:
        raise DecodeError("a string is not UTF-8") from None


def _symbol(octets: bytes) -> Value:
    try:
        return Symbol(octets.decode("ascii"))
    except UnicodeDecodeError:
        raise DecodeError("a symbol is not ASCII") from None


ROWS: Final[tuple[tuple[int, int, Reader], ...]] = (  # format code, bytes that follow, reader
    (0x00, DESCRIBED, _described_at),
    (0x40, 0, _constant(None)),
    (0x41, 0, _constant(True)),
    (0x42, 0, _constant(False)),
    (0x43, 0, _constant(UInt(0))),
    (0x44, 0, _constant(ULong(0))),
    (0x45, 0, _empty_list),
    (0x50, 1, _octet(UByte)),
    (0x51, 1, _number(Byte, "b")),
    (0x52, 1, _octet(UInt)),
    (0x53, 1, _octet(ULong)),
    (0x54, 1, _number(Int, "b")),
    (0x55, 1, _number(Long, "b")),
    (0x56, 1, _boolean_at),
    (0x60, 2, _number(UShort, "H")),
    (0x61, 2, _number(Short, "h")),
    (0x70, 4, _number(UInt, "I")),
    (0x71, 4, _number(Int, "i")),
    (0x72, 4, _number(Float32, "f")),
    (0x73, 4, _octets(_character, 4)),
    (0x74, 4, _octets(Decimal32, 4)),
    (0x80, 8, _number(ULong, "Q")),
    (0x81, 8, _number(Long, "q")),
    (0x82, 8, _number(float, "d")),
    (0x83, 8, _number(Timestamp, "q")),
    (0x84, 8, _octets(Decimal64, 8)),
    (0x94, 16, _octets(Decimal128, 16)),
    (0x98, 16, _octets(_uuid, 16)),
    (0xA0, SIZE_OCTET, _short_at(_binary)),
    (0xA1, SIZE_OCTET, _short_at(_string)),
    (0xA3, SIZE_OCTET, _short_at(_symbol)),
    (0xB0, SIZE_LONG, _long_at(_binary)),
    (0xB1, SIZE_LONG, _long_at(_string)),
    (0xB3, SIZE_LONG, _long_at(_symbol)),
    (0xC0, SIZE_OCTET, _list8_at),
    (0xC1, SIZE_OCTET, _map8_at),
    (0xD0, SIZE_LONG, _list32_at),
    (0xD1, SIZE_LONG, _map32_at),
    (0xE0, SIZE_OCTET, _array8_at),
    (0xF0, SIZE_LONG, _array32_at),
)
READERS: Final[list[Reader]] = [_unknown] * 256
WIDTHS: Final[list[int]] = [UNKNOWN] * 256
for _code, _width, _reader in ROWS:
    READERS[_code] = _reader
    WIDTHS[_code] = _width

"""Encoding of AMQP 1.0 values to bytes. Pure functions, no state.

Every value gets its shortest encoding, except that the elements of an array share the encoding of its constructor.
ValueError is raised for a value that the wire format cannot express.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final
from uuid import UUID

from leveret.protocols.amqp10.codec.values import (
    Array,
    Byte,
    Char,
    Composite,
    Decimal,
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
from leveret.protocols.shared.codec.integers import Float32

DEPTH_MAX: Final = 128  # lists in lists ...: no decoded value is as deep
TOO_DEEP: Final = f"a value is nested more than {DEPTH_MAX} deep"

LONG: Final = struct.Struct(">I")


def encode(value: Value, depth: int = 0) -> bytes:
    """Encode a value with its constructor in front. Raises ValueError."""
    write = WRITERS.get(type(value)) or _inherited(type(value))
    return write(value, depth)


def encode_null(value: None = None, depth: int = 0) -> bytes:
    return b"\x40"


def encode_boolean(value: bool, depth: int = 0) -> bytes:
    return b"\x41" if value else b"\x42"


def encode_ubyte(value: int, depth: int = 0) -> bytes:
    return b"\x50" + _packed(0x50, value)


def encode_ushort(value: int, depth: int = 0) -> bytes:
    return b"\x60" + _packed(0x60, value)


def encode_uint(value: int, depth: int = 0) -> bytes:
    if value == 0:
        return b"\x43"
    if 0 < value < 256:
        return bytes((0x52, value))
    return b"\x70" + _packed(0x70, value)


def encode_ulong(value: int, depth: int = 0) -> bytes:
    if value == 0:
        return b"\x44"
    if 0 < value < 256:
        return bytes((0x53, value))
    return b"\x80" + _packed(0x80, value)


def encode_byte(value: int, depth: int = 0) -> bytes:
    return b"\x51" + _packed(0x51, value)


def encode_short(value: int, depth: int = 0) -> bytes:
    return b"\x61" + _packed(0x61, value)


def encode_int(value: int, depth: int = 0) -> bytes:
    if -128 <= value < 128:
        return bytes((0x54, value & 255))
    return b"\x71" + _packed(0x71, value)


def encode_long(value: int, depth: int = 0) -> bytes:
    if -128 <= value < 128:
        return bytes((0x55, value & 255))
    return b"\x81" + _packed(0x81, value)


def encode_integer(value: int, depth: int = 0) -> bytes:
    """Encode a number without a given width."""
    return encode_int(value) if -(1 << 31) <= value < 1 << 31 else encode_long(value)


def encode_timestamp(value: int, depth: int = 0) -> bytes:
    return b"\x83" + _packed(0x83, value)


def encode_float(value: float, depth: int = 0) -> bytes:
    return b"\x72" + _packed(0x72, value)


def encode_double(value: float, depth: int = 0) -> bytes:
    return b"\x82" + _packed(0x82, value)


def _packed(code: int, value: float) -> bytes:
    layout, _ = NUMBERS[code]
    try:
        return layout.pack(value)
    except (struct.error, OverflowError):
        raise ValueError(f"{value} does not fit {layout.size} octets") from None


def encode_char(value: str, depth: int = 0) -> bytes:
    return b"\x73" + _character(value)


def _character(value: str) -> bytes:
    if len(value) != 1:
        raise ValueError(f"{value!r} is not one character")
    return value.encode("utf-32-be")


def encode_decimal(value: Decimal, depth: int = 0) -> bytes:
    code, size = DECIMALS[type(value)]
    if len(value.octets) != size:
        raise ValueError(f"{value} does not have {size} octets")
    return bytes((code,)) + value.octets


def encode_uuid(value: UUID, depth: int = 0) -> bytes:
    return b"\x98" + value.bytes


def encode_binary(value: bytes, depth: int = 0) -> bytes:
    size = len(value)
    return bytes((0xA0, size)) + value if size < 256 else b"\xb0" + LONG.pack(size) + value


def encode_string(value: str, depth: int = 0) -> bytes:
    octets = value.encode()
    size = len(octets)
    return bytes((0xA1, size)) + octets if size < 256 else b"\xb1" + LONG.pack(size) + octets


def encode_symbol(value: str, depth: int = 0) -> bytes:
    octets = value.encode("ascii")
    size = len(octets)
    return bytes((0xA3, size)) + octets if size < 256 else b"\xb3" + LONG.pack(size) + octets


def encode_symbols(names: list[str], depth: int = 0) -> bytes:
    """Encode names as an array of symbols, as in fields that are `multiple`, or as null if there are none."""
    if not names:
        return b"\x40"
    short = all(len(name) < 256 for name in names)
    return encode_array(Array(b"\xa3" if short else b"\xb3", [Symbol(name) for name in names]))


def encode_list(items: list[Value], depth: int = 0) -> bytes:
    return compound(0xC0, _each(items, depth))


def encode_map(pairs: dict[Value, Value], depth: int = 0) -> bytes:
    return compound(0xC1, _each([each for pair in pairs.items() for each in pair], depth))


def encode_described(value: Described, depth: int = 0) -> bytes:
    return b"\x00" + b"".join(_each([value.descriptor, value.value], depth))


def _each(items: Iterable[Value], depth: int) -> list[bytes]:
    if depth >= DEPTH_MAX:
        raise ValueError(TOO_DEEP)
    return [encode(item, depth + 1) for item in items]


def compound(code: int, items: list[bytes]) -> bytes:
    """Join encoded values to a list (0xC0) or map (0xC1)."""
    if not items and code == 0xC0:
        return b"\x45"
    content = b"".join(items)
    if len(content) < 255 and len(items) < 256:
        return bytes((code, len(content) + 1, len(items))) + content
    return bytes((code + 0x10,)) + LONG.pack(len(content) + 4) + LONG.pack(len(items)) + content


def encode_key(value: Key, depth: int = 0) -> bytes:
    return encode(value.value, depth)


def encode_composite(value: Composite, depth: int = 0) -> bytes:
    return value.encode()


def array_of(items: list[Value]) -> Array:
    """Return an array of values of one type. Raises ValueError if there are none, or several types."""
    types = {type(item) for item in items}
    if len(types) != 1:
        raise ValueError("an array needs values of one type")
    of = types.pop()
    if of not in WIDEST:
        raise ValueError(f"no array is made of {of.__name__}")
    return Array(bytes((WIDEST[of],)), items)


def encode_array(array: Array, depth: int = 0) -> bytes:
    if array.octets is not None:
        return array.octets
    content = _elements(array, depth)
    if len(content) < 255 and len(array.items) < 256:
        return bytes((0xE0, len(content) + 1, len(array.items))) + content
    return b"\xf0" + LONG.pack(len(content) + 4) + LONG.pack(len(array.items)) + content


def _elements(array: Array, depth: int) -> bytes:
    """Return the constructor, and each element without it."""
    if depth >= DEPTH_MAX:
        raise ValueError(TOO_DEEP)
    code = array.constructor[-1]
    parts = [array.constructor]
    for item in array.items:
        descriptors = b""
        while isinstance(item, Described):
            descriptors += b"\x00" + encode(item.descriptor, depth + 1)
            item = item.value
        if descriptors != array.constructor[:-1]:
            raise ValueError("an element is not described as its array says")
        parts.append(_element(code, item, depth + 1))
    return b"".join(parts)


def _element(code: int, item: Value, depth: int) -> bytes:
    if code in NUMBERS:
        return _packed(code, _number(code, item))
    if code == 0x56 and isinstance(item, bool):
        return bytes((item,))
    octets = encode(item, depth)
    if octets[0] == code:
        return octets[1:]
    if octets == b"\x45" and code in EMPTY_LISTS:
        return EMPTY_LISTS[code]
    if octets[0] + 0x10 != code or code < 0xB0:
        raise ValueError(f"{type(item).__name__} is no element for format code 0x{code:02x}")
    if code < 0xD0:
        return LONG.pack(octets[1]) + octets[2:]
    return LONG.pack(octets[1] + 3) + LONG.pack(octets[2]) + octets[3:]


def _number(code: int, item: Value) -> float:
    of = NUMBERS[code][1]
    if type(item) is of or (type(item) is int and of in (Int, Long)):
        assert isinstance(item, int | float)
        return item
    raise ValueError(f"{type(item).__name__} is no element for format code 0x{code:02x}")


def _inherited(of: type) -> Callable[..., bytes]:
    """Return the writer of the nearest base class that has one. Raises ValueError if none has."""
    for base in of.__mro__:
        if base in WRITERS:
            return WRITERS[base]
    raise ValueError(f"{of.__name__} is no AMQP type")


NUMBERS: Final[dict[int, tuple[struct.Struct, type]]] = {
    0x50: (struct.Struct(">B"), UByte),
    0x51: (struct.Struct(">b"), Byte),
    0x52: (struct.Struct(">B"), UInt),
    0x53: (struct.Struct(">B"), ULong),
    0x54: (struct.Struct(">b"), Int),
    0x55: (struct.Struct(">b"), Long),
    0x60: (struct.Struct(">H"), UShort),
    0x61: (struct.Struct(">h"), Short),
    0x70: (struct.Struct(">I"), UInt),
    0x71: (struct.Struct(">i"), Int),
    0x72: (struct.Struct(">f"), Float32),
    0x80: (struct.Struct(">Q"), ULong),
    0x81: (struct.Struct(">q"), Long),
    0x82: (struct.Struct(">d"), float),
    0x83: (struct.Struct(">q"), Timestamp),
}
DECIMALS: Final[dict[type, tuple[int, int]]] = {
    Decimal32: (0x74, 4),
    Decimal64: (0x84, 8),
    Decimal128: (0x94, 16),
}
EMPTY_LISTS: Final = {0xC0: b"\x01\x00", 0xD0: b"\x00\x00\x00\x04\x00\x00\x00\x00"}

# A writer is called with a value of its own type, and its depth.
WRITERS: Final[dict[type, Callable[..., bytes]]] = {
    type(None): encode_null,
    bool: encode_boolean,
    UByte: encode_ubyte,
    UShort: encode_ushort,
    UInt: encode_uint,
    ULong: encode_ulong,
    Byte: encode_byte,
    Short: encode_short,
    Int: encode_int,
    Long: encode_long,
    int: encode_integer,
    Timestamp: encode_timestamp,
    Float32: encode_float,
    float: encode_double,
    Decimal32: encode_decimal,
    Decimal64: encode_decimal,
    Decimal128: encode_decimal,
    Char: encode_char,
    UUID: encode_uuid,
    bytes: encode_binary,
    str: encode_string,
    Symbol: encode_symbol,
    list: encode_list,
    dict: encode_map,
    Described: encode_described,
    Array: encode_array,
    Key: encode_key,
    Composite: encode_composite,
}
# The format code that encodes every value of a type, for arrays.
WIDEST: Final[dict[type, int]] = {
    type(None): 0x40,
    bool: 0x56,
    UByte: 0x50,
    UShort: 0x60,
    UInt: 0x70,
    ULong: 0x80,
    Byte: 0x51,
    Short: 0x61,
    Int: 0x71,
    Long: 0x81,
    int: 0x81,
    Timestamp: 0x83,
    Float32: 0x72,
    float: 0x82,
    Decimal32: 0x74,
    Decimal64: 0x84,
    Decimal128: 0x94,
    Char: 0x73,
    UUID: 0x98,
    bytes: 0xB0,
    str: 0xB1,
    Symbol: 0xB3,
    list: 0xD0,
    dict: 0xD1,
    Array: 0xF0,
}

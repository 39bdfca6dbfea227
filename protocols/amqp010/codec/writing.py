"""AMQP 0-10 values: encode Python objects as bytes. Pure functions, no state.

`encode_x` writes an x as a field holds it; `encode` writes a value with its type code in front, as maps and lists hold
it. All of them raise ValueError for what the wire cannot represent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from struct import Struct
from struct import error as struct_error
from typing import Final, TypeAlias
from uuid import UUID

from leveret.protocols.amqp010.codec.values import (
    Array,
    Char,
    CharUtf32,
    Datetime,
    Dec64,
    Opaque,
    Str8,
    Str8Latin,
    Str8Utf16,
    Str16Latin,
    Str16Utf16,
    Struct32,
    Value,
    Vbin8,
    Vbin32,
)
from leveret.protocols.shared.codec.integers import Float32, Int8, Int16, Int32, UInt8, UInt16, UInt32, UInt64

Writer: TypeAlias = Callable[..., bytes]  # encodes a value of one class, its code in front

SIZE_AND_COUNT: Final = Struct(">II")
ARRAY_START: Final = Struct(">IBI")  # size in bytes, code of the elements, their number
INT64_MAX: Final = 2**63 - 1
UINT16_MAX: Final = 2**16 - 1


def encode(value: Value) -> bytes:
    """Return a value with its type code in front. Raises ValueError if it is no AMQP value, or does not fit its
    type."""
    for of in type(value).__mro__:  # nearly always the first
        if of in WRITERS:
            return WRITERS[of](value)
    raise ValueError(f"a {type(value).__name__} is no AMQP value")


def encode_map(pairs: Mapping[str, Value]) -> bytes:
    parts: list[bytes] = []
    for key, value in pairs.items():
        parts += (encode_str8(key), encode(value))
    return _counted(len(pairs), parts)


def encode_list(values: Iterable[Value]) -> bytes:
    parts = [encode(value) for value in values]
    return _counted(len(parts), parts)


def encode_array(array: Array) -> bytes:
    """Return an array with its size. Raises ValueError also for an element that is not of the array's type."""
    parts = [encode(value) for value in array]
    if any(part[0] != array.code for part in parts):
        raise ValueError(f"an element of {array!r} is of another type")
    return encode_elements(array.code, [part[1:] for part in parts])


def encode_elements(code: int, parts: list[bytes]) -> bytes:
    """Return an array whose elements are encoded already."""
    octets = b"".join(parts)
    return ARRAY_START.pack(len(octets) + 5, code, len(parts)) + octets


def encode_str8(text: str) -> bytes:
    return encode_vbin8(_utf8(text))


def encode_str16(text: str) -> bytes:
    return encode_vbin16(_utf8(text))


def encode_vbin8(octets: bytes) -> bytes:
    return _sized(1, octets)


def encode_vbin16(octets: bytes) -> bytes:
    return _sized(2, octets)


def encode_vbin32(octets: bytes) -> bytes:
    return _sized(4, octets)


def _sized(width: int, octets: bytes) -> bytes:
    if len(octets) >= 1 << 8 * width:
        raise ValueError(f"{len(octets)} octets do not fit a size of {width}")
    return len(octets).to_bytes(width, "big") + octets


def _utf8(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _counted(count: int, parts: list[bytes]) -> bytes:
    octets = b"".join(parts)
    return SIZE_AND_COUNT.pack(len(octets) + 4, count) + octets


def _fixed(code: int, layout: str) -> Writer:
    packed = Struct(">B" + layout)

    def write(value: int | float) -> bytes:
        try:
            return packed.pack(code, value)
        except (struct_error, OverflowError):
            raise ValueError(f"{value!r} does not fit type 0x{code:02x}") from None

    return write


_int64: Final = _fixed(0x31, "q")
_uint64: Final = _fixed(0x32, "Q")


def _integer(value: int) -> bytes:
    return _int64(value) if value <= INT64_MAX else _uint64(value)


def _text(code: int, width: int, alphabet: str) -> Writer:
    """Return a writer of text behind a size of `width` bytes, or without a size if that is 0. The writer raises
    ValueError for characters that the alphabet lacks."""

    def write(text: str) -> bytes:
        octets = text.encode(alphabet)
        return bytes((code,)) + (_sized(width, octets) if width else octets)

    return write


def _string(text: str) -> bytes:
    return _binary_of(0x95, _utf8(text))


def _binary(octets: bytes) -> bytes:
    return _binary_of(0x90, octets)


def _binary_of(code: int, octets: bytes) -> bytes:
    """Return a value with its type code. There is no text type longer than str16, so longer text becomes a vbin32."""
    if len(octets) > UINT16_MAX:
        return b"\xa0" + encode_vbin32(octets)
    return bytes((code,)) + encode_vbin16(octets)


def _decimal(value: Decimal, wide: bool = False) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -255 <= exponent <= 18:
        raise ValueError(f"{value} is no decimal of AMQP")
    number: int = int("".join(map(str, digits))) * 10 ** max(exponent, 0) * (-1 if sign else 1)
    scale = bytes((max(-exponent, 0),))
    for code, width in ((0xC8, 4), (0xD8, 8))[wide:]:
        if -1 << 8 * width - 1 <= number < 1 << 8 * width - 1:
            return bytes((code,)) + scale + number.to_bytes(width, "big", signed=True)
    raise ValueError(f"{value} does not fit 64 bits")


WRITERS: Final[dict[type, Writer]] = {
    type(None): lambda value: b"\xf0",
    bool: lambda value: b"\x08\x01" if value else b"\x08\x00",
    int: _integer,
    float: _fixed(0x33, "d"),
    str: _string,
    bytes: _binary,
    UUID: lambda value: b"\x48" + value.bytes,
    list: lambda value: b"\xa9" + encode_list(value),
    dict: lambda value: b"\xa8" + encode_map(value),
    Int8: _fixed(0x01, "b"),
    UInt8: _fixed(0x02, "B"),
    Char: _text(0x04, 0, "latin-1"),
    Int16: _fixed(0x11, "h"),
    UInt16: _fixed(0x12, "H"),
    Int32: _fixed(0x21, "i"),
    UInt32: _fixed(0x22, "I"),
    Float32: _fixed(0x23, "f"),
    CharUtf32: _text(0x27, 0, "utf-32-be"),
    UInt64: _uint64,
    Datetime: _fixed(0x38, "Q"),
    Vbin8: lambda value: b"\x80" + encode_vbin8(value),
    Str8Latin: _text(0x84, 1, "iso8859-15"),
    Str8: lambda value: b"\x85" + encode_str8(value),
    Str8Utf16: _text(0x86, 1, "utf-16-be"),
    Str16Latin: _text(0x94, 2, "iso8859-15"),
    Str16Utf16: _text(0x96, 2, "utf-16-be"),
    Vbin32: lambda value: b"\xa0" + encode_vbin32(value),
    Array: lambda value: b"\xaa" + encode_array(value),
    Struct32: lambda value: b"\xab" + value.encode(),
    Decimal: _decimal,
    Dec64: lambda value: _decimal(value, wide=True),
    Opaque: lambda value: bytes((value.code,)) + value.octets,
}

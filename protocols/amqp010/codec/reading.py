"""AMQP 0-10 values: decode bytes as Python objects. Pure functions, no state.

A function `x_at(data, at, end)` reads an x and returns it with the offset after it. It accepts no size and no count
that leads beyond `end`, and raises MalformedError.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from struct import Struct
from typing import Final, TypeAlias
from uuid import UUID

from leveret.protocols.amqp010.codec.values import (
    Array,
    Char,
    CharUtf32,
    Datetime,
    Dec64,
    MalformedError,
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

Reader: TypeAlias = Callable[[bytes, int, int, int], tuple[Value, int]]  # data, at, end, depth

DEPTH_MAX: Final = 64  # maps in lists in maps ...; 128 Python frames at most

# Bytes of a value, or of the size in front of it, by the high nibble of its code.
WIDTHS: Final = {0x0: 1, 0x1: 2, 0x2: 4, 0x3: 8, 0x4: 16, 0x5: 32, 0x6: 64, 0x7: 128, 0xC: 5, 0xD: 9, 0xF: 0}
SIZE_WIDTHS: Final = {0x8: 1, 0x9: 2, 0xA: 4}

VOID: Final = 0xF0
ARRAY_HEAD: Final = Struct(">BI")  # code of the elements, their number


def map_at(data: bytes, at: int, end: int, depth: int = 0) -> tuple[dict[str, Value], int]:
    """Read a map with its size; one of size zero is empty. The later of two entries with one key counts."""
    count, at, after = _counted_at(data, at, end, depth)
    found: dict[str, Value] = {}
    for _ in range(count):
        key, at = str8_at(data, at, after)
        found[key], at = value_at(data, at, after, depth + 1)
    _expect_end(at, after)
    return found, after


def list_at(data: bytes, at: int, end: int, depth: int = 0) -> tuple[list[Value], int]:
    count, at, after = _counted_at(data, at, end, depth)
    found: list[Value] = []
    for _ in range(count):
        value, at = value_at(data, at, after, depth + 1)
        found.append(value)
    _expect_end(at, after)
    return found, after


def array_at(data: bytes, at: int, end: int, depth: int = 0) -> tuple[Array, int]:
    """Read an array with its size; one of size zero has void's code."""
    size, at = uint32_at(data, at, end)
    after = _after(at, size, end, depth)
    if not size:
        return Array(VOID), after
    if size < 5:
        raise MalformedError("an array is cut short")
    code, count = ARRAY_HEAD.unpack_from(data, at)
    at += 5
    # An element has at least one byte: void elements would cost us memory and the peer nothing.
    if count > after - at:
        raise MalformedError(f"an array of {count} elements in {after - at} octets")
    found = Array(code)
    read = READERS[code]
    for _ in range(count):
        value, at = read(data, at, after, depth + 1)
        found.append(value)
    _expect_end(at, after)
    return found, after


def struct32_at(data: bytes, at: int, end: int, depth: int = 0) -> tuple[Struct32, int]:
    """Read a struct with its size and code."""
    size, at = uint32_at(data, at, end)
    after = _after(at, size, end, depth)
    if size < 2:
        raise MalformedError("a struct has no code")
    return Struct32(data[at] << 8 | data[at + 1], data[at + 2 : after]), after


def value_at(data: bytes, at: int, end: int, depth: int = 0) -> tuple[Value, int]:
    """Read a value with its type code in front."""
    if at >= end:
        raise MalformedError("a value is missing")
    return READERS[data[at]](data, at + 1, end, depth)


def uint32_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 4 > end:
        raise MalformedError("a number is cut short")
    return int.from_bytes(data[at : at + 4], "big"), at + 4


def str8_at(data: bytes, at: int, end: int) -> tuple[str, int]:
    """Read a short string. Bytes that are not UTF-8 are kept by surrogateescape: names are sent as they came."""
    if at >= end or at + 1 + data[at] > end:
        raise MalformedError("a string is cut short")
    after = at + 1 + data[at]
    return data[at + 1 : after].decode("utf-8", "surrogateescape"), after


def _counted_at(data: bytes, at: int, end: int, depth: int) -> tuple[int, int, int]:
    """Return how many entries a map or list has, where the first begins, and where the last ends."""
    size, at = uint32_at(data, at, end)
    after = _after(at, size, end, depth)
    if not size:
        return 0, at, after
    count, at = uint32_at(data, at, after)
    if count > after - at:
        raise MalformedError(f"{count} entries in {after - at} octets")
    return count, at, after


def _after(at: int, size: int, end: int, depth: int) -> int:
    if depth > DEPTH_MAX:
        raise MalformedError("values are nested too deep")
    if at + size > end:
        raise MalformedError("a size leads beyond the end")
    return at + size


def _expect_end(at: int, end: int) -> None:
    if at != end:
        raise MalformedError(f"{end - at} octets follow the last entry")


def _fixed(layout: str, of: Callable[..., Value]) -> Reader:
    packed = Struct(layout)

    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at + packed.size > end:
            raise MalformedError("a number is cut short")
        return of(*packed.unpack_from(data, at)), at + packed.size

    return read


def _sized(width: int, of: Callable[[bytes], Value]) -> Reader:
    """Return a reader of values that have a size of `width` bytes in front."""

    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at + width > end:
            raise MalformedError("a size is cut short")
        begin = at + width
        after = _after(begin, int.from_bytes(data[at:begin], "big"), end, 0)
        return of(data[begin:after]), after

    return read


def _kept(code: int) -> Reader:
    """Return a reader that keeps a value undecoded, as long as the high nibble of its code says."""
    kind = code >> 4
    if kind in WIDTHS:
        size = WIDTHS[kind]

        def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
            after = _after(at, size, end, 0)
            return Opaque(code, data[at:after]), after

        return read
    if kind in SIZE_WIDTHS:
        width = SIZE_WIDTHS[kind]

        def read_sized(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
            begin = _after(at, width, end, 0)
            after = _after(begin, int.from_bytes(data[at:begin], "big"), end, 0)
            return Opaque(code, data[at:after]), after

        return read_sized

    def refuse(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        raise MalformedError(f"type code 0x{code:02x} has no width")

    return refuse


def _text(code: int, of: type[str], width: int, alphabet: str) -> Reader:
    """Return a reader of text in another alphabet, which keeps the bytes as `Opaque` if they do not decode."""
    keep = _kept(code)

    def read(data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        value, after = keep(data, at, end, depth)
        try:
            return of(data[at + width : after].decode(alphabet)), after
        except UnicodeDecodeError:
            return value, after

    return read


def _utf8(octets: bytes) -> str:
    return octets.decode("utf-8", "surrogateescape")


def _decimal(scale: int, number: int) -> Decimal:
    return Decimal(f"{number}E-{scale}")


READERS: Final[list[Reader]] = [_kept(code) for code in range(256)]  # by type code
for _code, _reader in {
    0x01: _fixed(">b", Int8),
    0x02: _fixed(">B", UInt8),
    0x04: _text(0x04, Char, 0, "latin-1"),
    0x08: _fixed(">B", bool),
    0x11: _fixed(">h", Int16),
    0x12: _fixed(">H", UInt16),
    0x21: _fixed(">i", Int32),
    0x22: _fixed(">I", UInt32),
    0x23: _fixed(">f", Float32),
    0x27: _text(0x27, CharUtf32, 0, "utf-32-be"),
    0x31: _fixed(">q", int),
    0x32: _fixed(">Q", UInt64),
    0x33: _fixed(">d", float),
    0x38: _fixed(">Q", Datetime),
    0x48: _fixed(">16s", lambda octets: UUID(bytes=octets)),
    0x80: _sized(1, Vbin8),
    0x84: _text(0x84, Str8Latin, 1, "iso8859-15"),
    0x85: _sized(1, lambda octets: Str8(_utf8(octets))),
    0x86: _text(0x86, Str8Utf16, 1, "utf-16-be"),
    0x90: _sized(2, bytes),
    0x94: _text(0x94, Str16Latin, 2, "iso8859-15"),
    0x95: _sized(2, _utf8),
    0x96: _text(0x96, Str16Utf16, 2, "utf-16-be"),
    0xA0: _sized(4, Vbin32),
    0xA8: map_at,
    0xA9: list_at,
    0xAA: array_at,
    0xAB: struct32_at,
    0xC8: _fixed(">Bi", _decimal),
    0xD8: _fixed(">Bq", lambda scale, number: Dec64(_decimal(scale, number))),
    VOID: _fixed("", lambda: None),
}.items():
    READERS[_code] = _reader

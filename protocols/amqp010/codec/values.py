"""AMQP 0-10 values as Python objects, with a class for every wire type that Python has no name for.

    None  bool  int (int64)  float (double)  str (str16)  bytes (vbin16)  UUID  Decimal (dec32)  list  dict (map)

stand for themselves. Every other type is a subclass of the nearest Python type and so remembers its wire type. All of
them are values: they must not be changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import TypeAlias
from uuid import UUID

from leveret.protocols.shared.codec.integers import Number


class MalformedError(ValueError):
    """Bytes that cannot be decoded. `class_code` and `code` name the command that they spoil, if it is known."""

    class_code = 0
    code = 0


Int64: TypeAlias = int  # the type that clients send integers with


class Datetime(Number):
    """Seconds since 1970."""

    __slots__ = ()


class Dec64(Decimal):
    """A decimal that is sent with 64 bits, however small it is."""

    __slots__ = ()


class Char(str):
    """One character in one byte."""

    __slots__ = ()


class CharUtf32(str):
    """One Unicode character in four bytes."""

    __slots__ = ()


class Str8(str):
    __slots__ = ()


class Str8Latin(str):
    __slots__ = ()


class Str16Latin(str):
    __slots__ = ()


class Str8Utf16(str):
    __slots__ = ()


class Str16Utf16(str):
    __slots__ = ()


class Vbin8(bytes):
    __slots__ = ()


class Vbin32(bytes):
    __slots__ = ()


class Array(list["Value"]):
    """Values that all have the type with this code."""

    __slots__ = ("code",)

    def __init__(self, code: int, items: Iterable[Value] = ()) -> None:
        super().__init__(items)
        self.code = code

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and self.code == other.code and list.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None

    def __repr__(self) -> str:
        return f"Array(0x{self.code:02x}, {list.__repr__(self)})"


class _Kept:
    """Bytes that are kept undecoded, and the code in front of them."""

    __slots__ = ("code", "octets")

    def __init__(self, code: int, octets: bytes) -> None:
        self.code = code
        self.octets = octets

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Kept) or type(self) is not type(other):
            return False
        return self.code == other.code and self.octets == other.octets

    def __hash__(self) -> int:
        return hash((self.code, self.octets))

    def __repr__(self) -> str:
        return f"{type(self).__name__}(0x{self.code:02x}, {self.octets!r})"


class Opaque(_Kept):
    """A value as it was on the wire behind its type code, with its size if it has one."""

    __slots__ = ()


class Struct32(_Kept):
    """A struct as its code (class << 8 | struct) and its bytes, which are flags and fields."""

    __slots__ = ()

    def encode(self) -> bytes:
        """Return the struct as it stands in a header segment: size, code, flags and fields."""
        size, code = len(self.octets) + 2, self.code
        return size.to_bytes(4, "big") + code.to_bytes(2, "big") + self.octets


# The numbers are ints, Float32 is a float, the strings are strs and an Array is a list, so the alias holds them.
Value: TypeAlias = (
    bool
    | int
    | float
    | Decimal
    | str
    | bytes
    | UUID
    | list["Value"]
    | dict[str, "Value"]
    | Opaque
    | Struct32
    | None
)

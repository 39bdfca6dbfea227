"""AMQP 1.0 values as Python objects: a class for every type of part 1 that Python has no type for.

    None  bool  str (string)  bytes (binary)  float (double)  UUID  list  dict (map)

represent themselves. Every other type is a subclass of the nearest of these, and so remembers the wire type; decimals,
arrays and described values are classes of their own. All of them are to be treated as values and never changed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from hashlib import sha256
from typing import TypeAlias
from uuid import UUID

from leveret.protocols.shared.codec.integers import Number


class UByte(Number):
    __slots__ = ()


class UShort(Number):
    __slots__ = ()


class UInt(Number):
    __slots__ = ()


class ULong(Number):
    __slots__ = ()


class Byte(Number):
    __slots__ = ()


class Short(Number):
    __slots__ = ()


class Int(Number):
    __slots__ = ()


class Long(Number):
    __slots__ = ()


class Timestamp(Number):
    """Milliseconds since 1970, negative before that."""

    __slots__ = ()


class Symbol(str):
    """ASCII text from a set of agreed names."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Symbol({str(self)!r})"


class Char(str):
    """A single Unicode character."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Char({str(self)!r})"


class Decimal:
    """An IEEE 754 decimal floating point number as its bytes, because nothing here computes with it."""

    __slots__ = ("octets",)

    def __init__(self, octets: bytes) -> None:
        self.octets = octets

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Decimal) and type(self) is type(other) and self.octets == other.octets

    def __hash__(self) -> int:
        return hash(self.octets)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.octets!r})"


class Decimal32(Decimal):
    __slots__ = ()


class Decimal64(Decimal):
    __slots__ = ()


class Decimal128(Decimal):
    __slots__ = ()


class Described:
    """A value with the descriptor of its meaning."""

    __slots__ = ("descriptor", "value")

    def __init__(self, descriptor: Value, value: Value) -> None:
        self.descriptor = descriptor
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Described) and (self.descriptor, self.value) == (
            other.descriptor,
            other.value,
        )

    def __hash__(self) -> int:
        return hash((self.descriptor, self.value))

    def __repr__(self) -> str:
        return f"Described({self.descriptor!r}, {self.value!r})"


class Array:
    """Values of one type in one encoding. `constructor` is the format code, with descriptors in front if they are
    described.

    A decoded array is encoded as the bytes that it was decoded from, and keeps alive the input that they are part of: a
    copy would mean a copy for each level of arrays in arrays.
    """

    __slots__ = ("_octets", "constructor", "items")

    def __init__(
        self, constructor: bytes, items: Iterable[Value], octets: tuple[int, bytes, int, int] | None = None
    ) -> None:
        self.constructor = constructor
        self.items: tuple[Value, ...] = tuple(items)
        self._octets = octets  # format code, and where the rest of it is

    @property
    def octets(self) -> bytes | None:
        """The bytes that the whole array was decoded from, or None if it was not decoded."""
        if self._octets is None:
            return None
        code, data, at, end = self._octets
        return bytes((code,)) + data[at:end]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and (self.constructor, self.items) == (other.constructor, other.items)

    def __hash__(self) -> int:
        return hash((self.constructor, self.items))

    def __repr__(self) -> str:
        return f"Array({self.constructor!r}, {list(self.items)!r})"


class Key:
    """A key that no dict accepts or tells from another: a list, UInt(1) beside Int(1), a number in a large map.

    `octets` is the encoded value, or a digest of that: keys are equal if their encodings are.
    """

    __slots__ = ("octets", "value")

    def __init__(self, value: Value, octets: bytes) -> None:
        self.value = value
        self.octets = octets if len(octets) <= 32 else sha256(octets).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and self.octets == other.octets

    def __hash__(self) -> int:
        return hash(self.octets)

    def __repr__(self) -> str:
        return f"Key({self.value!r})"


class Composite(ABC):
    """The base of the classes of performatives.py, which are encoded as values but never returned by value_at."""

    __slots__ = ()

    @abstractmethod
    def encode(self) -> bytes:
        """Encode the whole described value."""


# The alias covers the subclasses too: the numbers are ints, Float32 is a float, Symbol and Char are strs.
Value: TypeAlias = (
    bool
    | int
    | float
    | str
    | bytes
    | UUID
    | list["Value"]
    | dict["Value", "Value"]
    | dict[str, "Value"]
    | Decimal
    | Array
    | Described
    | Key
    | Composite
    | None
)

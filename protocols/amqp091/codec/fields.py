"""AMQP 0-9-1 field values and tables: bytes to values and back. Pure functions, no state.

The types are read as every client in use means them, which is not always what 0-9-1 section 4.2.5.5 says:

    t bool      b int8    B uint8    U s int16   u uint16    I int32   i uint32   L l int64
    f float     d double  D decimal (scale byte, signed int32)         T Timestamp, seconds since 1970
    S longstr   x byte array          A array     F table     V None

A long string becomes `str` if it is UTF-8 and `bytes` if not; a byte array becomes `ByteArray`, so that it is encoded
as `x` again; numbers that are neither `I` nor `d` become subclasses that are encoded with their original type. Plain
integers are encoded as `I` if they fit and as `l` if not, floats as `d`. A short string is a `str` that keeps invalid
bytes by surrogateescape, so that names are sent as they were received. Of two fields with one name the later counts.

`x_at(data, at, end)` reads an x and returns it with the offset after it; it trusts no size that leads beyond `end`, and
raises MalformedError. `encode_x` raises ValueError for a value that the wire format cannot express.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from decimal import Decimal
from struct import Struct
from struct import error as struct_error
from typing import ClassVar, Final, TypeAlias

from leveret.protocols.shared.codec.integers import Float32, Int8, Int16, Number, UInt8, UInt16, UInt32


class AmqpError(Exception):
    """A violation of the protocol by the peer, with the reply code and the explanation that the peer gets.

    The code decides whether the channel or the connection is closed (methods.SOFT_ERRORS and HARD_ERRORS). `class_id`
    and `method_id` name the failing method; the connection fills them in if they are 0.
    """

    def __init__(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        super().__init__(code, text)
        self.code = code
        self.text = text
        self.class_id = class_id
        self.method_id = method_id


class MalformedError(AmqpError):
    """Raised for bytes that do not parse: 502 SYNTAX_ERROR."""

    def __init__(self, text: str) -> None:
        super().__init__(502, text)


class Timestamp(Number):
    """Seconds since 1970, distinct from other integers."""

    __slots__ = ()


class LongLong(Number):
    """An integer that is encoded as `l` however small it is, for fields of which clients expect 64 bits."""

    __slots__ = ()


class ByteArray(bytes):
    """A field value of type `x`, distinct from long strings."""

    __slots__ = ()


# The alias covers the subclasses too: Timestamp and its like are ints, Float32 is a float and ByteArray a bytes.
FieldTable: TypeAlias = dict[str, "FieldValue"]
FieldValue: TypeAlias = bool | int | float | Decimal | str | bytes | list["FieldValue"] | FieldTable | None

DEPTH_MAX: Final = 64  # tables in arrays in tables ...; 128 Python frames at most

OCTET: Final = Struct(">B")
SHORT: Final = Struct(">H")
LONG: Final = Struct(">I")
LONGLONG: Final = Struct(">Q")
DECIMAL: Final = Struct(">Bi")


class Method(ABC):
    """The base of the generated method classes. `fields` is in the order of the constructor's arguments."""

    __slots__ = ()

    class_id: ClassVar[int]
    method_id: ClassVar[int]
    name: ClassVar[str]  # 'basic.publish'
    to_server: ClassVar[bool]  # whether a client may send it
    secret: ClassVar[str] = ""  # the field that must not be printed

    @staticmethod
    @abstractmethod
    def decode(data: bytes, at: int, end: int) -> "Method":
        """Read the arguments, which are exactly `data[at:end]`. Raises MalformedError."""

    @abstractmethod
    def encode(self) -> bytes:
        """Return the payload of the method frame: class id, method id, arguments."""

    @abstractmethod
    def fields(self) -> FieldTable:
        """Return every argument by its name."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Method) and type(self) is type(other) and self.fields() == other.fields()

    def __repr__(self) -> str:
        fields = {**self.fields(), self.secret: "***"} if self.secret else self.fields()
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


def octet_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at >= end:
        raise MalformedError("an octet is missing")
    return data[at], at + 1


def short_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    return _number_at(SHORT, data, at, end)


def long_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    return _number_at(LONG, data, at, end)


def longlong_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    return _number_at(LONGLONG, data, at, end)


def _number_at(struct: Struct, data: bytes, at: int, end: int) -> tuple[int, int]:
    after = at + struct.size
    if after > end:
        raise MalformedError("a number is cut short")
    number: int = struct.unpack_from(data, at)[0]
    return number, after


def shortstr_at(data: bytes, at: int, end: int) -> tuple[str, int]:
    size, at = octet_at(data, at, end)
    after = at + size
    if after > end:
        raise MalformedError("a short string is cut short")
    return data[at:after].decode("utf-8", "surrogateescape"), after


def longstr_at(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    size, at = long_at(data, at, end)
    after = at + size
    if after > end:
        raise MalformedError("a long string is cut short")
    return data[at:after], after


def table_at(data: bytes, at: int, end: int, depth: int = 0) -> tuple[FieldTable, int]:
    at, after = _span_at(data, at, end, depth)
    table: FieldTable = {}
    while at < after:
        name, at = shortstr_at(data, at, after)
        table[name], at = value_at(data, at, after, depth + 1)
    return table, after


def array_at(data: bytes, at: int, end: int, depth: int = 0) -> tuple[list[FieldValue], int]:
    at, after = _span_at(data, at, end, depth)
    array: list[FieldValue] = []
    while at < after:
        value, at = value_at(data, at, after, depth + 1)
        array.append(value)
    return array, after


def _span_at(data: bytes, at: int, end: int, depth: int) -> tuple[int, int]:
    """Return the offsets where the content of a table or array begins and ends."""
    if depth > DEPTH_MAX:
        raise MalformedError(f"a table is nested more than {DEPTH_MAX} deep")
    size, at = long_at(data, at, end)
    if at + size > end:
        raise MalformedError("a table or array is cut short")
    return at, at + size


def value_at(data: bytes, at: int, end: int, depth: int = 0) -> tuple[FieldValue, int]:
    """Read a field value with its type byte in front."""
    kind, at = octet_at(data, at, end)
    struct = NUMBERS.get(kind)
    if struct is not None:
        number, at = _number_at(struct, data, at, end)
        typed = TYPED.get(kind)
        return (number if typed is None else typed(number)), at
    read = READERS.get(kind)
    if read is None:
        raise MalformedError(f"unknown field type {chr(kind)!r}")
    return read(data, at, end, depth)


def _text_at(data: bytes, at: int, end: int, depth: int) -> tuple[FieldValue, int]:
    text, after = longstr_at(data, at, end)
    try:
        return text.decode(), after
    except UnicodeDecodeError:
        return text, after


def _byte_array_at(data: bytes, at: int, end: int, depth: int) -> tuple[FieldValue, int]:
    octets, after = longstr_at(data, at, end)
    return ByteArray(octets), after


def _timestamp_at(data: bytes, at: int, end: int, depth: int) -> tuple[FieldValue, int]:
    seconds, after = longlong_at(data, at, end)
    return Timestamp(seconds), after


def _decimal_at(data: bytes, at: int, end: int, depth: int) -> tuple[FieldValue, int]:
    after = at + DECIMAL.size
    if after > end:
        raise MalformedError("a decimal is cut short")
    scale, unscaled = DECIMAL.unpack_from(data, at)
    return Decimal(f"{unscaled}E-{scale}"), after


def _void_at(data: bytes, at: int, end: int, depth: int) -> tuple[FieldValue, int]:
    return None, at


NUMBERS: Final[dict[int, Struct]] = {
    kind: Struct(">" + code) for kind, code in zip(b"tbBUsuIiLlfd", "?bBhhHiIqqfd", strict=True)
}
TYPED: Final[dict[int, type[int] | type[float]]] = dict(
    zip(b"bBsUuiLlf", (Int8, UInt8, Int16, Int16, UInt16, UInt32, LongLong, LongLong, Float32), strict=True)
)
LETTERS: Final[dict[type, int]] = {typed: kind for kind, typed in TYPED.items() if kind not in b"UL"}
READERS: Final[dict[int, Callable[[bytes, int, int, int], tuple[FieldValue, int]]]] = {
    ord("S"): _text_at,
    ord("x"): _byte_array_at,
    ord("T"): _timestamp_at,
    ord("D"): _decimal_at,
    ord("A"): array_at,
    ord("F"): table_at,
    ord("V"): _void_at,
}


def expect_end(at: int, end: int) -> None:
    if at != end:
        raise MalformedError(f"{end - at} octets follow the last argument")


def decode_table(data: bytes) -> FieldTable:
    """Read a table with its size in front and nothing behind it. Raises MalformedError."""
    table, after = table_at(data, 0, len(data))
    expect_end(after, len(data))
    return table


def values_in(value: FieldValue) -> int:
    """Count a value and all values inside it; its depth is bounded."""
    if isinstance(value, dict):
        return 1 + sum(map(values_in, value.values()))
    return 1 + sum(map(values_in, value)) if isinstance(value, list) else 1


def encode_octet(value: int) -> bytes:
    return _checked(OCTET, value)


def encode_short(value: int) -> bytes:
    return _checked(SHORT, value)


def encode_long(value: int) -> bytes:
    return _checked(LONG, value)


def encode_longlong(value: int) -> bytes:
    return _checked(LONGLONG, value)


def _checked(struct: Struct, value: int) -> bytes:
    if not 0 <= value < 1 << 8 * struct.size:
        raise ValueError(f"{value} does not fit {struct.size} octets")
    return struct.pack(value)


def encode_shortstr(text: str) -> bytes:
    octets = text.encode("utf-8", "surrogateescape")
    if len(octets) > 255:
        raise ValueError(f"a short string of {len(octets)} octets")
    return OCTET.pack(len(octets)) + octets


def encode_longstr(octets: bytes) -> bytes:
    return LONG.pack(len(octets)) + octets


def encode_table(table: FieldTable, depth: int = 0) -> bytes:
    """Encode a table with its size in front. Raises ValueError for a value that has no field type."""
    parts = [encode_field(name, value, depth) for name, value in table.items()]
    return encode_longstr(b"".join(parts))


def encode_field(name: str, value: FieldValue, depth: int = 0) -> bytes:
    return encode_shortstr(name) + encode_value(value, depth + 1)


def encode_value(value: FieldValue, depth: int = 0) -> bytes:
    """Encode a value with its type byte in front."""
    if isinstance(value, str):
        return b"S" + encode_longstr(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes):
        return (b"x" if isinstance(value, ByteArray) else b"S") + encode_longstr(value)
    if isinstance(value, (dict, list)):
        return _encode_nested(value, depth)
    if value is None:
        return b"V"
    return _encode_number(value)


def _encode_nested(value: FieldTable | list[FieldValue], depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise ValueError(f"a table is nested more than {DEPTH_MAX} deep")
    if isinstance(value, dict):
        return b"F" + encode_table(value, depth)
    return b"A" + encode_longstr(b"".join([encode_value(item, depth + 1) for item in value]))


def _encode_number(value: bool | int | float | Decimal) -> bytes:
    if isinstance(value, bool):
        return b"t\x01" if value else b"t\x00"
    if isinstance(value, Timestamp):
        return b"T" + encode_longlong(value)
    letter = LETTERS.get(type(value))
    if letter is not None:
        return _packed(letter, value)
    if isinstance(value, int):
        return _packed(ord("I") if -(1 << 31) <= value < 1 << 31 else ord("l"), value)
    if isinstance(value, float):
        return _packed(ord("d"), value)
    return b"D" + _encode_decimal(value)


def _packed(letter: int, value: float | Decimal) -> bytes:
    try:
        return OCTET.pack(letter) + NUMBERS[letter].pack(value)
    except (struct_error, OverflowError):
        raise ValueError(f"{value} does not fit the field type {chr(letter)!r}") from None


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or not -255 <= exponent <= 9:
        raise ValueError(f"{value} is no AMQP decimal")
    unscaled = int(Decimal((sign, digits, max(exponent, 0))))
    if not -(1 << 31) <= unscaled < 1 << 31:
        raise ValueError(f"{value} has too many digits for an AMQP decimal")
    return DECIMAL.pack(max(-exponent, 0), unscaled)


FIXED_SIZES: Final[dict[int, int]] = {kind: struct.size for kind, struct in NUMBERS.items()} | {
    ord("T"): 8,
    ord("D"): 5,
    ord("V"): 0,
}
SIZED: Final = frozenset(b"SxAF")


def value_after(data: bytes, at: int, end: int) -> int:
    """Return the offset after the value at `at`, without reading what is inside the value."""
    kind, at = octet_at(data, at, end)
    if kind in SIZED:
        size, at = long_at(data, at, end)
    elif kind in FIXED_SIZES:
        size = FIXED_SIZES[kind]
    else:
        raise MalformedError(f"unknown field type {chr(kind)!r}")
    if at + size > end:
        raise MalformedError("a field value is cut short")
    return at + size


def table_fields(table: bytes) -> list[tuple[str, bytes]]:
    """Split a table (with its size in front) into its fields: the name, and the bytes of name, type and value."""
    at, end = _span_at(table, 0, len(table), 0)
    expect_end(end, len(table))
    fields: list[tuple[str, bytes]] = []
    while at < end:
        name, value = shortstr_at(table, at, end)
        after = value_after(table, value, end)
        fields.append((name, table[at:after]))
        at = after
    return fields

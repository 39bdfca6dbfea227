"""Composite types of AMQP 1.0: a list of fields behind a descriptor, to and from bytes.

The generated classes of performatives.py list their fields in a table; this module reads and writes by such tables. A
field that was not sent, or null, has its default, and a field that has its default is sent as null. A value that can be
decoded but is not what the specification asks for (a field of another type, a missing or surplus field) is
amqp:invalid-field.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final
from uuid import UUID

from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.reading import READERS, DecodeError, list_at, value_at
from leveret.protocols.amqp10.codec.values import (
    Array,
    Composite,
    Long,
    Symbol,
    Timestamp,
    UByte,
    UInt,
    ULong,
    UShort,
    Value,
)
from leveret.protocols.amqp10.codec.writing import (
    compound,
    encode,
    encode_binary,
    encode_boolean,
    encode_map,
    encode_string,
    encode_symbol,
    encode_symbols,
    encode_timestamp,
    encode_ubyte,
    encode_uint,
    encode_ulong,
    encode_ushort,
)

NULL: Final = b"\x40"


class InvalidFieldError(AmqpError):
    """Raised for bytes that decode, but not to the type that they claim to be."""

    def __init__(self, description: str) -> None:
        super().__init__("amqp:invalid-field", description, Ends.CONNECTION)


class Kind:
    """The values that a field may hold: those of `classes`, encoded by `write`; or those that provide `provides`."""

    __slots__ = ("classes", "provides", "write")

    def __init__(self, classes: tuple[type, ...], write: Callable[..., bytes], provides: str = "") -> None:
        self.classes = classes
        self.write = write
        self.provides = provides


class Field:
    """A row of a composite type's table. If `choices` is empty, every value of the kind is valid."""

    __slots__ = ("choices", "default", "kind", "mandatory", "multiple", "name")

    def __init__(
        self,
        name: str,
        kind: Kind,
        mandatory: bool = False,
        default: bool | int | str | None = None,
        multiple: bool = False,
        choices: tuple[bool | int | str, ...] = (),
    ) -> None:
        self.name = name
        self.kind = kind
        self.mandatory = mandatory
        self.default = default
        self.multiple = multiple
        self.choices = choices

    def absent(self) -> Value:
        """Return the value of a field that is not there. Raises InvalidFieldError if it is mandatory."""
        if self.mandatory:
            raise InvalidFieldError(f"{self} is missing")
        return [] if self.multiple else self.default

    def read(self, data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if at >= end:
            raise DecodeError("a value is missing")
        code = data[at]
        if code == 0x40:
            return self.absent(), at + 1
        if self.kind.provides:
            return self._composite_at(data, at, end, depth)
        value, at = READERS[code](data, at + 1, end, depth)
        if self.multiple:
            return self._several(value), at
        if type(value) not in self.kind.classes and self.kind is not ANYTHING:
            raise InvalidFieldError(f"{self} is a {type(value).__name__}")
        if self.choices and value not in self.choices:
            raise InvalidFieldError(f"{self} is {value!r}")
        if self.kind is FIELD_MAP:
            self._expect_names(value)
        return value, at

    def _composite_at(self, data: bytes, at: int, end: int, depth: int) -> tuple[Value, int]:
        if data[at]:
            raise InvalidFieldError(f"{self} is not described")
        of, begin = described_at(data, at, end)
        if of is None:
            return value_at(data, at, end, depth)
        if self.kind.provides not in of.PROVIDES:
            raise InvalidFieldError(f"{self} is {of.NAME}")
        return record_at(of, data, begin, end, depth + 1)

    def _several(self, value: Value) -> Value:
        if type(value) in self.kind.classes:
            return [value]
        if not isinstance(value, Array) or not all(type(item) in self.kind.classes for item in value.items):
            raise InvalidFieldError(f"{self} is a {type(value).__name__}, or holds something else")
        return [*value.items]

    def _expect_names(self, value: Value) -> None:
        assert isinstance(value, dict)
        if not all(isinstance(key, str) for key in value):
            raise InvalidFieldError(f"{self} has a key that is no symbol")

    def encode(self, value: Value) -> bytes:
        if self.multiple:
            assert isinstance(value, list)
            return encode_symbols([str(each) for each in value])
        if not self.mandatory and (value is None or value == self.default):
            return NULL
        if value is None:
            raise ValueError(f"{self} is missing")
        return self.kind.write(value)

    def __str__(self) -> str:
        return self.name.replace("_", "-")


class Record(Composite):
    """A composite type. Records are equal if their classes and fields are."""

    __slots__ = ()

    CODE: ClassVar[int]  # 0x10
    NAME: ClassVar[str]  # 'amqp:open:list'
    PROVIDES: ClassVar[tuple[str, ...]] = ()  # the roles in which it may be used
    FIELDS: ClassVar[tuple[Field, ...]] = ()  # in the order of the wire
    SECRET: ClassVar[str] = ""  # the field that must not be printed

    def __init_subclass__(cls) -> None:
        KNOWN[cls.CODE] = KNOWN[cls.NAME] = cls

    def encode(self) -> bytes:
        """Encode the record. Raises ValueError for a value that its field cannot have."""
        parts = [field.encode(getattr(self, field.name)) for field in self.FIELDS]
        while parts and parts[-1] == NULL and self.CODE not in WHOLE:
            parts.pop()
        return bytes((0, 0x53, self.CODE)) + compound(0xC0, parts)

    def fields(self) -> dict[str, Value]:
        """Return every field by its name."""
        return {field.name: getattr(self, field.name) for field in self.FIELDS}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Record) and type(self) is type(other) and self.fields() == other.fields()

    def __repr__(self) -> str:
        fields = {
            field.name: "***" if field.name == self.SECRET else value
            for field, value in zip(self.FIELDS, self.fields().values(), strict=True)
            if value not in (None, field.default, [])
        }
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields.items())})"


KNOWN: Final[dict[int | str, type[Record]]] = {}  # by descriptor, both spellings
# The codes of types that are written with all of their fields, also where the last ones are null: open, begin, attach,
# detach, end, close and error. Azure's clients for Python read these by place, and fail or wait where one is missing.
WHOLE: Final = frozenset({0x10, 0x11, 0x12, 0x16, 0x17, 0x18, 0x1D})


def decode(data: bytes, at: int, end: int) -> tuple[Record, int]:
    """Decode a composite type with its descriptor in front; return it and the offset after it.

    Raises AmqpError: amqp:decode-error or amqp:invalid-field.
    """
    of, begin = described_at(data, at, end)
    if of is None:
        raise DecodeError(f"unknown descriptor {value_at(data, at + 1, end)[0]!r}")
    return record_at(of, data, begin, end, 1)


def described_at(data: bytes, at: int, end: int) -> tuple[type[Record] | None, int]:
    """Return the type for a descriptor, or None if it is unknown, and the offset of the value."""
    if at + 3 > end or data[at]:
        raise DecodeError("a composite type has no descriptor")
    if data[at + 1] == 0x53:
        return KNOWN.get(data[at + 2]), at + 3
    descriptor, at = value_at(data, at + 1, end)
    return KNOWN.get(descriptor) if isinstance(descriptor, ULong | Symbol) else None, at


def record_at(of: type[Record], data: bytes, at: int, end: int, depth: int) -> tuple[Record, int]:
    """Read the fields of a composite type, which are a list."""
    count, at, after = list_at(data, at, end)
    if count > len(of.FIELDS):
        raise InvalidFieldError(f"{of.NAME} has {len(of.FIELDS)} fields, not {count}")
    record = of.__new__(of)
    for place, field in enumerate(of.FIELDS):
        if place < count:
            value, at = field.read(data, at, after, depth)
        else:
            value = field.absent()
        setattr(record, field.name, value)
    if at != after:
        raise DecodeError(f"{after - at} octets follow the last field of {of.NAME}")
    return record, after


def encode_fields(pairs: Mapping[str, Value]) -> bytes:
    """Encode a map whose keys are encoded as symbols."""
    return encode_map({Symbol(name): value for name, value in pairs.items()})


def encode_message_id(value: int | str | bytes | UUID) -> bytes:
    """Encode an id. Clients send ids of the type long, too, which the specification does not have; they stay so."""
    return encode_ulong(value) if isinstance(value, int) and not isinstance(value, Long) else encode(value)


BOOLEAN: Final = Kind((bool,), encode_boolean)
UBYTE: Final = Kind((UByte,), encode_ubyte)
USHORT: Final = Kind((UShort,), encode_ushort)
UINT: Final = Kind((UInt,), encode_uint)
ULONG: Final = Kind((ULong,), encode_ulong)
TIMESTAMP: Final = Kind((Timestamp,), encode_timestamp)
BINARY: Final = Kind((bytes,), encode_binary)
STRING: Final = Kind((str,), encode_string)
SYMBOL: Final = Kind((Symbol,), encode_symbol)
MAP: Final = Kind((dict,), encode_map)
FIELD_MAP: Final = Kind((dict,), encode_fields)
MESSAGE_ID: Final = Kind((ULong, UUID, bytes, str, Long), encode_message_id)
ANYTHING: Final = Kind((), encode)
SOURCE: Final = Kind((), encode, "source")
TARGET: Final = Kind((), encode, "target")
DELIVERY_STATE: Final = Kind((), encode, "delivery-state")
OUTCOME: Final = Kind((), encode, "outcome")
ERROR: Final = Kind((), encode, "error")

"""AMQP 1.0 types: bytes to values and back. It re-exports `values` (the classes), `reading` and `writing`.

A decoded value is encoded to an equal value of the same wire type, in the shortest encoding; only an `Array` keeps its
exact bytes. A plain int is encoded as int if it fits 32 bits and as long if not.

`value_at`, `skip_at` and `list_at` take `(data, at, end)` and raise DecodeError; `encode` raises ValueError.
"""

from leveret.protocols.amqp10.codec.reading import DecodeError, list_at, skip_at, value_at
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
from leveret.protocols.amqp10.codec.writing import array_of, encode
from leveret.protocols.shared.codec.integers import Float32

__all__ = [
    "value_at",
    "skip_at",
    "list_at",
    "encode",
    "array_of",
    "DecodeError",
    "Value",
    "UByte",
    "UShort",
    "UInt",
    "ULong",
    "Byte",
    "Short",
    "Int",
    "Long",
    "Float32",
    "Decimal",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Char",
    "Timestamp",
    "Symbol",
    "Array",
    "Described",
    "Key",
    "Composite",
]

"""AMQP 0-10 types: decode bytes as values and encode values. The one import for `values` (the classes), `reading` and
`writing`.

A decoded value is encoded to the same bytes, except for repeated keys of a map and booleans other than 0 and 1. A plain
int is sent as uint64 if it is too large for int64, a str or bytes of more than 65535 bytes as vbin32, a Decimal as
dec64 if it needs that. The high nibble of an unknown type code tells how long its value is (0-10 final, 3.2): such a
value becomes `Opaque`, as do the bin types, bit, and text that its alphabet cannot decode, and is sent as it came.
Bytes that are not UTF-8 are kept by surrogateescape.

`value_at`, `map_at`, `list_at`, `array_at` and `struct32_at` take `(data, at, end)`, return the value and the offset
after it, and raise MalformedError. The encoders raise ValueError.
"""

from leveret.protocols.amqp010.codec.reading import (
    DEPTH_MAX,
    array_at,
    list_at,
    map_at,
    struct32_at,
    value_at,
)
from leveret.protocols.amqp010.codec.values import (
    Array,
    Char,
    CharUtf32,
    Datetime,
    Dec64,
    Int64,
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
from leveret.protocols.amqp010.codec.writing import encode, encode_array, encode_list, encode_map
from leveret.protocols.shared.codec.integers import Float32, Int8, Int16, Int32, UInt8, UInt16, UInt32, UInt64

__all__ = [
    "value_at",
    "map_at",
    "list_at",
    "array_at",
    "struct32_at",
    "encode",
    "encode_map",
    "encode_list",
    "encode_array",
    "DEPTH_MAX",
    "MalformedError",
    "Value",
    "UInt8",
    "Int8",
    "UInt16",
    "Int16",
    "UInt32",
    "Int32",
    "UInt64",
    "Int64",
    "Float32",
    "Dec64",
    "Datetime",
    "Char",
    "CharUtf32",
    "Str8",
    "Str8Latin",
    "Str16Latin",
    "Str8Utf16",
    "Str16Utf16",
    "Vbin8",
    "Vbin32",
    "Array",
    "Struct32",
    "Opaque",
]

"""Encode typed values, such as arguments and policies, as JSON without losing their types, and decode them.

    {"x-max-length": 5, "since": {"$timestamp": 1700000000}, "raw": {"$octets": "/w=="}}

What JSON can express is written plainly; anything else is an object with one key, which begins with `$`. A table whose
own keys begin so is written as a list of pairs. The text is all ASCII, and different values have different texts.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from math import isfinite
from typing import Final
from uuid import UUID

from leveret.values import (
    Float32,
    Int8,
    Int16,
    Int64,
    Json,
    Table,
    Timestamp,
    UInt8,
    UInt16,
    UInt32,
    UInt64,
    Value,
)

SIGN: Final = "$"
TABLE: Final = "$table"
TEXT: Final = "$text"
DOUBLE: Final = "$double"
WHOLE: Final[dict[type[int], str]] = {
    Timestamp: "$timestamp",
    Int8: "$int8",
    UInt8: "$uint8",
    Int16: "$int16",
    UInt16: "$uint16",
    UInt32: "$uint32",
    Int64: "$int64",
    UInt64: "$uint64",
}
# Between two surrogates that stand alone: JSON would join them.
HALVES: Final = re.compile("(?<=[\ud800-\udbff])(?=[\udc00-\udfff])")


class Unreadable(ValueError):  # noqa: N818 - reads well as `raise Unreadable`
    """A text that is not that of any value. The message says why."""


# Writing.


def written(value: Value) -> Json:
    """Return a value as JSON."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return written_text(value)
    if isinstance(value, int):
        sign = WHOLE.get(type(value))
        return int(value) if sign is None else {sign: int(value)}
    if isinstance(value, float):
        return _float(value)
    if isinstance(value, Mapping):
        return written_table(value)
    return _other(value)


def written_table(table: Table) -> Json:
    """Return a table as JSON, in its order."""
    pairs = [(written_text(name), written(item)) for name, item in table.items()]
    if all(isinstance(name, str) and not name.startswith(SIGN) for name, _ in pairs):
        return {str(name): item for name, item in pairs}
    return {TABLE: [list(pair) for pair in pairs]}


def written_text(text: str) -> Json:
    """Return a string as JSON. Bytes that are not text stand in it as lone surrogates."""
    parts = HALVES.split(text)
    return text if len(parts) == 1 else {TEXT: parts}


def _float(value: float) -> Json:
    if isinstance(value, Float32):
        return {"$float": repr(float(value))}
    return value if isfinite(value) else {DOUBLE: repr(value)}


def _other(value: Decimal | UUID | bytes | bytearray | Sequence[Value]) -> Json:
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, UUID):
        return {"$uuid": str(value)}
    if isinstance(value, bytearray):
        return {"$binary": b64encode(value).decode()}
    if isinstance(value, bytes):
        return {"$octets": b64encode(value).decode()}
    return [written(item) for item in value]


# Reading.


def read(json: Json) -> Value:
    """Decode a value. Raises Unreadable."""
    if isinstance(json, dict):  # checked before abstract classes, which are slow
        if len(json) == 1:
            [(sign, value)] = json.items()
            if sign.startswith(SIGN):
                return _signed(sign, value)
        return {name: read(item) for name, item in json.items()}
    if isinstance(json, list):
        return [read(item) for item in json]
    assert json is None or isinstance(json, bool | int | float | str), "JSON was loaded from text"
    return json


def read_table(json: Json) -> Table:
    """Decode a value that must be a table. Raises Unreadable."""
    table = read(json)
    if isinstance(table, dict):
        return table
    raise Unreadable("there is no table where one should be")


def read_text(json: Json) -> str:
    """Decode a value that must be a string. Raises Unreadable."""
    if isinstance(json, str):
        return json
    text = read(json)
    if isinstance(text, str):
        return text
    raise Unreadable("there is no text where some should be")


def _signed(sign: str, value: Json) -> Value:
    reader = READERS.get(sign)
    if reader is None:
        raise Unreadable(f"the type {sign} is unknown")
    try:
        return reader(value)
    except (ValueError, TypeError, InvalidOperation):
        raise Unreadable(f"this is no {sign}") from None


def _whole(kind: type[int]) -> Callable[[Json], Value]:
    def reader(value: Json) -> Value:
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unreadable("no whole number")
        return kind(value)

    return reader


def _pairs(value: Json) -> Value:
    table: dict[str, Value] = {}
    for pair in _list(value):
        name, item = _list(pair)
        table[read_text(name)] = read(item)
    return table


def _list(value: Json) -> Sequence[Json]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return value
    raise Unreadable("no list")


def _string(value: Json) -> str:
    if isinstance(value, str):
        return value
    raise Unreadable("no string")


READERS: Final[Mapping[str, Callable[[Json], Value]]] = {
    **{sign: _whole(kind) for kind, sign in WHOLE.items()},
    TABLE: _pairs,
    TEXT: lambda said: "".join(_string(part) for part in _list(said)),
    DOUBLE: lambda said: float(_string(said)),
    "$float": lambda said: Float32(_string(said)),
    "$decimal": lambda said: Decimal(_string(said)),
    "$uuid": lambda said: UUID(_string(said)),
    "$binary": lambda said: bytearray(b64decode(_string(said), validate=True)),
    "$octets": lambda said: b64decode(_string(said), validate=True),
}

"""Convert neutral values to AMQP 0-10 types, and back, so that numbers keep their width, and texts and binaries their
bytes.

Arrays become lists; characters and texts of other alphabets become strings. A value that the other side has no type for
raises ValueError, or is left out where it is nested: unknown types of 0-10, structs, names of more than 255 bytes, and
values nested too deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

from leveret import values
from leveret.protocols.amqp010.codec import types
from leveret.protocols.amqp010.codec.types import encode
from leveret.protocols.shared.broker.conversion import each_that_can
from leveret.values import Table

DEPTH_MAX: Final = 62  # lists in maps ...: a header nested deeper could not be decoded again
NAME_SIZE_MAX: Final = 255  # bytes


def neutral(value: types.Value) -> values.Value:
    """Return the neutral value. Raises ValueError for a type that other protocols do not have."""
    convert = NEUTRAL.get(type(value))
    if convert is None:
        raise ValueError(f"no other protocol has a {type(value).__name__}")
    return convert(value)


def table(pairs: Mapping[str, types.Value]) -> dict[str, values.Value]:
    """Return a map as a table, without the values that other protocols cannot represent."""
    found: dict[str, values.Value] = {}
    for name, value in pairs.items():
        try:
            found[name] = neutral(value)
        except ValueError:
            continue
    return found


def _list(items: Iterable[types.Value]) -> list[values.Value]:
    return each_that_can(neutral, items)


def _string(text: str) -> str | bytes:
    """Return a text, or bytes if it contains bytes that are not UTF-8, as other protocols do."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")
    return str(text)


NEUTRAL: Final[dict[type, Callable[..., values.Value]]] = {
    type(None): lambda void: void,
    bool: bool,
    int: values.Int64,
    float: float,
    str: _string,
    UUID: lambda uuid: uuid,
    Decimal: lambda decimal: decimal,
    types.Dec64: Decimal,
    types.UInt8: values.UInt8,
    types.Int8: values.Int8,
    types.UInt16: values.UInt16,
    types.Int16: values.Int16,
    types.UInt32: values.UInt32,
    types.Int32: int,
    types.UInt64: values.UInt64,
    types.Float32: values.Float32,
    types.Datetime: values.Timestamp,
    types.Char: str,
    types.CharUtf32: str,
    types.Str8: _string,
    types.Str8Latin: str,
    types.Str16Latin: str,
    types.Str8Utf16: _string,
    types.Str16Utf16: _string,
    bytes: bytearray,
    types.Vbin8: bytearray,
    types.Vbin32: bytearray,
    list: _list,
    types.Array: _list,
    dict: table,
}


def wire(value: values.Value, depth: int = 0) -> types.Value:
    """Return the value as a 0-10 type. Raises ValueError if 0-10 has none for it."""
    if depth > DEPTH_MAX:
        raise ValueError(f"a value is nested more than {DEPTH_MAX} deep")
    if isinstance(value, Mapping):
        return _map(value, depth + 1)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return each_that_can(lambda item: wire(item, depth + 1), value)
    found = _scalar(value)
    encode(found)  # raises if it does not fit
    return found


def _map(pairs: Table, depth: int) -> dict[str, types.Value]:
    found: dict[str, types.Value] = {}
    for name, value in pairs.items():
        if is_name(name):
            try:
                found[name] = wire(value, depth)
            except ValueError:
                continue
    return found


def is_name(text: str) -> bool:
    """Return whether a map can have such a name."""
    return len(text) <= NAME_SIZE_MAX // 4 or len(text.encode("utf-8", "surrogateescape")) <= NAME_SIZE_MAX


def _scalar(value: bool | int | float | Decimal | UUID | str | None) -> types.Value:
    if type(value) is int:
        return types.Int32(value) if -(2**31) <= value < 2**31 else value
    of = WIRE.get(type(value))
    return value if of is None or not isinstance(value, int | float) else of(value)


WIRE: Final[dict[type, type[int] | type[float]]] = {
    values.Timestamp: types.Datetime,
    values.Int8: types.Int8,
    values.UInt8: types.UInt8,
    values.Int16: types.Int16,
    values.UInt16: types.UInt16,
    values.UInt32: types.UInt32,
    values.Int64: int,
    values.UInt64: types.UInt64,
    values.Float32: types.Float32,
}

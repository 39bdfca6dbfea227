"""Conversion of neutral values to AMQP 1.0 types and back: numbers keep their width, texts and binaries their bytes.

A value without a type on the other side raises ValueError, or is left out where it is nested: decimals and described
values of 1.0, and values that do not fit. Arrays become lists, symbols and characters strings, times lose their
milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final, TypeAlias
from uuid import UUID

from leveret import values
from leveret.protocols.amqp10.codec import types
from leveret.protocols.amqp10.codec.types import Array, Symbol, encode
from leveret.protocols.shared.broker.conversion import each_that_can
from leveret.values import Table

Pairs: TypeAlias = Mapping[types.Value, types.Value] | Mapping[str, types.Value]

DEPTH_MAX: Final = 62  # lists in maps ...: an annotation that is nested deeper could not be read again


def neutral(value: types.Value) -> values.Value:
    """Convert a value to a neutral value. Raises ValueError if other protocols cannot express it."""
    convert = NEUTRAL.get(type(value))
    if convert is None:
        raise ValueError(f"no other protocol has a {type(value).__name__}")
    return convert(value)


def table(pairs: Pairs) -> dict[str, values.Value]:
    """Convert a map to a table, without keys that are no strings and values that other protocols cannot express."""
    found: dict[str, values.Value] = {}
    for name, value in pairs.items():
        if isinstance(name, str):
            try:
                found[str(name)] = neutral(value)
            except ValueError:
                continue
    return found


def _list(items: Iterable[types.Value]) -> list[values.Value]:
    return each_that_can(neutral, items)


NEUTRAL: Final[dict[type, Callable[..., values.Value]]] = {
    type(None): lambda null: null,
    bool: bool,
    int: int,
    float: float,
    str: str,
    UUID: lambda uuid: uuid,
    types.Byte: values.Int8,
    types.UByte: values.UInt8,
    types.Short: values.Int16,
    types.UShort: values.UInt16,
    types.Int: int,
    types.UInt: values.UInt32,
    types.Long: values.Int64,
    types.ULong: values.UInt64,
    types.Float32: values.Float32,
    types.Timestamp: lambda milliseconds: values.Timestamp(milliseconds // 1000),
    types.Char: str,
    Symbol: str,
    bytes: bytearray,
    list: _list,
    Array: lambda array: _list(array.items),
    dict: table,
}


def wire(value: values.Value, depth: int = 0) -> types.Value:
    """Convert a neutral value to a value of 1.0. Raises ValueError if 1.0 cannot express it."""
    if depth > DEPTH_MAX:
        raise ValueError(f"a value is nested more than {DEPTH_MAX} deep")
    if isinstance(value, Mapping):
        return _map(value, depth + 1)
    if isinstance(value, bytes | bytearray):
        return bytes(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return each_that_can(lambda item: wire(item, depth + 1), value)
    found = _scalar(value)
    encode(found)  # raises ValueError for a value that does not fit
    return found


def _map(pairs: Table, depth: int) -> dict[types.Value, types.Value]:
    found: dict[types.Value, types.Value] = {}
    for name, value in pairs.items():
        try:
            key = Symbol(name) if name.isascii() else name
            encode(key)
            found[key] = wire(value, depth)
        except ValueError:
            continue
    return found


def _scalar(value: bool | int | float | Decimal | UUID | str | None) -> types.Value:
    if isinstance(value, Decimal):
        raise ValueError("decimals are not converted")
    if isinstance(value, values.Timestamp):
        return types.Timestamp(value * 1000)
    of = WIRE.get(type(value))
    return value if of is None or not isinstance(value, int | float) else of(value)


WIRE: Final[dict[type, type[int] | type[float]]] = {
    values.Int8: types.Byte,
    values.UInt8: types.UByte,
    values.Int16: types.Short,
    values.UInt16: types.UShort,
    values.UInt32: types.UInt,
    values.Int64: types.Long,
    values.UInt64: types.ULong,
    values.Float32: types.Float32,
}


def printed(value: types.Value) -> str:
    """Return a value as RabbitMQ's error texts show it, with its type."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    if isinstance(value, list):
        return f"{{list,[{','.join(map(printed, value))}]}}"
    if isinstance(value, dict):
        return f"{{map,[{','.join(f'{{{printed(key)},{printed(item)}}}' for key, item in value.items())}]}}"
    name = NAMES.get(type(value), type(value).__name__.lower())
    if isinstance(value, str):
        return f'{{{name},<<"{value}">>}}'
    if isinstance(value, bytes):
        return f'{{{name},<<"{value.decode("utf-8", "backslashreplace")}">>}}'
    return f"{{{name},{value}}}"


NAMES: Final[dict[type, str]] = {str: "utf8", bytes: "binary", float: "double", types.Float32: "float"}

"""Conversion of neutral values to field values of AMQP 0-9-1 and back: numbers keep their width, texts their bytes.

Of the values that 0-9-1 has no type for, a UUID becomes its text; the rest (a number of more than 63 bits, a name of
more than 255 bytes, nesting without end) is left out, alone or where it is nested.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Final
from uuid import UUID

from leveret import values
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import FieldTable, FieldValue
from leveret.protocols.shared.broker.conversion import each_that_can
from leveret.values import Table, Value


def field_table(table: Table, depth: int = 0) -> FieldTable:
    """Convert neutral values to field values; those that 0-9-1 cannot express are left out at every level."""
    fields: FieldTable = {}
    for name, value in table.items():
        try:
            wire.encode_shortstr(name)
            fields[name] = _field(value, depth + 1)
        except ValueError:
            continue
    return fields


def _array(items: Iterable[Value], depth: int) -> list[FieldValue]:
    return each_that_can(lambda value: _field(value, depth + 1), items)


def _field(value: Value, depth: int) -> FieldValue:
    """Convert a neutral value to a field value. Raises ValueError if 0-9-1 cannot express it."""
    if depth > wire.DEPTH_MAX:
        raise ValueError(f"a table is nested more than {wire.DEPTH_MAX} deep")
    if isinstance(value, Mapping):
        return field_table(value, depth)
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return _array(value, depth)
    field = _scalar(value)
    wire.encode_value(field)  # raises ValueError for a value that does not fit
    return field


def _scalar(value: bool | int | float | Decimal | UUID | str | bytes | bytearray | None) -> FieldValue:
    if isinstance(value, UUID):
        return f"urn:uuid:{value}"
    if isinstance(value, bytearray):
        return wire.ByteArray(value)
    typed = FIELD_TYPES.get(type(value))
    return value if typed is None or not isinstance(value, int | float) else typed(value)


def table(fields: FieldTable) -> Table:
    """Convert field values to neutral values: the reverse of `field_table`."""
    return {name: field if type(field) in PLAIN else core_value(field) for name, field in fields.items()}


def core_value(field: FieldValue) -> Value:
    """Convert a field value to a neutral value."""
    if isinstance(field, dict):
        return table(field)
    if isinstance(field, list):
        return [core_value(item) for item in field]
    if isinstance(field, wire.ByteArray):
        return bytearray(field)
    typed = NEUTRAL_TYPES.get(type(field))
    return field if typed is None or not isinstance(field, int | float) else typed(field)


NEUTRAL_TYPES: Final[dict[type, type[int] | type[float]]] = {
    wire.Timestamp: values.Timestamp,
    wire.Int8: values.Int8,
    wire.UInt8: values.UInt8,
    wire.Int16: values.Int16,
    wire.UInt16: values.UInt16,
    wire.UInt32: values.UInt32,
    wire.LongLong: values.Int64,
    wire.Float32: values.Float32,
}
FIELD_TYPES: Final[dict[type, type[int] | type[float]]] = {
    neutral: typed for typed, neutral in NEUTRAL_TYPES.items()
} | {values.UInt64: wire.LongLong}
PLAIN: Final = frozenset({bool, int, float, str, bytes, type(None)})

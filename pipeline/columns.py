"""Map the columns of a table to the parts of a message. Mistakes are found here, before any task runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Final

import attrs
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from leveret.pipeline.errors import BadRow
from leveret.pipeline.schema import NAMED, PROPERTIES, RAW, SCHEMAS
from leveret.pipeline.sink_options import SinkOptions


@attrs.frozen
class Columns:
    """The names of the columns that hold each part of a message; None if there is no such column."""

    body: str
    exchange: str | None
    routing_key: str | None
    properties: str | None
    headers: str | None
    fields: tuple[str, ...] = ()  # of the column of properties
    has_variants: bool = False  # headers are variants, not maps
    raw_properties: str | None = None
    encoding: str | None = None
    raw_body: str | None = None


def is_octets(kind: DataType) -> bool:
    return isinstance(kind, BinaryType | StringType)


def is_binary(kind: DataType) -> bool:
    return isinstance(kind, BinaryType)


def is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)


def are_headers(kind: DataType) -> bool:
    """Return whether a type can hold headers: a map of strings, a variant, or the type of Kafka's sink."""
    if isinstance(kind, VariantType):
        return True
    if isinstance(kind, MapType):
        return is_text(kind.keyType) and is_octets(kind.valueType)
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return list(fields) == ["key", "value"] and is_text(fields["key"]) and is_octets(fields["value"])


def are_properties(kind: DataType) -> bool:
    return isinstance(kind, StructType) and bool(kind.fields)


# For each part: the columns that may hold it, a test of their type, and a description of the types allowed.
PARTS: Final[Mapping[str, tuple[tuple[str, ...], Callable[[DataType], bool], str]]] = {
    "body": (("body", "value"), is_octets, "binary or string"),
    "exchange": (("exchange",), is_text, "string"),
    "routing_key": (("routing_key", "key"), is_octets, "string or binary"),
    "properties": (("properties",), are_properties, f"a struct of some of {', '.join(PROPERTIES.names)}"),
    "headers": (
        ("headers",),
        are_headers,
        "map<string,string>, variant, or array<struct<key:string,value:binary>>",
    ),
    **{
        field.name: (
            (field.name,),
            is_text if isinstance(field.dataType, StringType) else is_binary,
            field.dataType.simpleString(),
        )
        for field in RAW.fields
        if field.name != "body_json"
    },
}
KNOWN: Final = tuple(name for names, _, _ in PARTS.values() for name in names)
# Columns of our own source that are ignored, so that its rows may be written as they are.
PASSED_OVER: Final = {
    *(field.name for field in NAMED),
    *(name for each in SCHEMAS.values() for name in each.names),
} - {
    *KNOWN,
    "topic",
}
NO_TOPICS: Final = (
    "column 'topic' is no part of a message, as there are no topics: withColumnRenamed('topic', 'exchange') writes to"
    " exchanges of these names, withColumnRenamed('topic', 'routing_key') with the option exchange='' to queues, and"
    " drop('topic') leaves it to the option exchange"
)


def columns_of(schema: StructType, options: SinkOptions) -> Columns:
    """Return the columns of the parts of a message. Raises BadRow, naming the column."""
    kinds: dict[str, DataType] = {}
    for field in schema.fields:
        if field.name in kinds:
            raise BadRow(f"there are two columns '{field.name}'")
        if field.name in KNOWN:
            kinds[field.name] = field.dataType
        elif field.name not in PASSED_OVER:
            raise BadRow(_unknown(field.name))
    columns = Columns(**{part: _column(part, kinds) for part in PARTS})  # type: ignore[arg-type]
    if columns.body is None:
        raise BadRow("there is no column 'body' (or 'value'), which is what a message holds")
    if (columns.raw_properties is None) != (columns.encoding is None):
        raise BadRow(
            "columns 'raw_properties' and 'encoding' say together how a message was: select both or neither"
        )
    if columns.raw_body is not None and columns.encoding is None:
        raise BadRow("column 'raw_body' needs columns 'raw_properties' and 'encoding'")
    if columns.properties is not None:
        columns = attrs.evolve(columns, fields=_fields(kinds[columns.properties]))
    if columns.headers is not None and isinstance(kinds[columns.headers], VariantType):
        columns = attrs.evolve(columns, has_variants=True)
    if options.exchange is not None:  # an option overrides the column, as `topic` does in Kafka's sink
        columns = attrs.evolve(columns, exchange=None)
    if options.routing_key is not None:
        columns = attrs.evolve(columns, routing_key=None)
    _check_address(columns, options)
    return columns


def _unknown(name: str) -> str:
    if name == "topic":
        return NO_TOPICS
    near = get_close_matches(name.lower(), KNOWN, 1, 0.6)
    hint = f"did you mean {near[0]}?" if near else "to_json(struct(*)) makes one body of several columns"
    return f"column '{name}' is no part of a message: those are {', '.join(KNOWN)}; {hint}"


def _column(part: str, kinds: Mapping[str, DataType]) -> str | None:
    names, fits, wanted = PARTS[part]
    found = [name for name in names if name in kinds]
    if not found:
        return None
    if len(found) > 1:
        raise BadRow(f"columns '{found[0]}' and '{found[1]}' are for the same thing; select one of them")
    if not fits(kinds[found[0]]):
        raise BadRow(f"column '{found[0]}' is {kinds[found[0]].simpleString()}; it must be {wanted}")
    return found[0]


def _fields(given: DataType) -> tuple[str, ...]:
    assert isinstance(given, StructType)
    known = {field.name: field.dataType for field in PROPERTIES.fields}
    for field in given.fields:
        kind = known.get(field.name)
        if kind is None:
            raise BadRow(f"column 'properties' has a field '{field.name}'; known are {', '.join(known)}")
        if isinstance(kind, IntegralType):
            fits = isinstance(field.dataType, IntegralType)
        else:
            fits = isinstance(field.dataType, type(kind))
        if not fits:
            raise BadRow(
                f"column 'properties.{field.name}' is {field.dataType.simpleString()};"
                f" it must be {kind.simpleString()}"
            )
    return tuple(given.names)


def _check_address(columns: Columns, options: SinkOptions) -> None:
    if columns.exchange is None and options.exchange is None:
        raise BadRow(
            "nothing says to which exchange rows go: give the option exchange (the empty one is the default exchange,"
            " which routes by queue name) or a column 'exchange'"
        )
    is_default = columns.exchange is None and not options.exchange
    if is_default and columns.routing_key is None and not options.routing_key:
        raise BadRow(
            "the default exchange routes by queue name: give the queue's as option routingKey,"
            " or a column 'routing_key'"
        )

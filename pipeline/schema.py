"""The columns of the source: all of them, or those that a query's own schema names.

Spark gives a Python source the whole schema even if a query uses two of its columns. The option `columns`, or
`spark.read.schema("body binary, offset bigint")`, tells us what is needed, and nothing else is decoded.
"""

from __future__ import annotations

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from leveret.pipeline.errors import BadOption
from leveret.pipeline.options import Options


def record(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


PROPERTIES: Final = record(
    content_type=StringType(),
    content_encoding=StringType(),
    durable=BooleanType(),
    priority=IntegerType(),
    correlation_id=StringType(),
    reply_to=StringType(),
    ttl_ms=LongType(),
    message_id=StringType(),
    timestamp=TimestampType(),
    type=StringType(),
    user_id=StringType(),
    app_id=StringType(),
)
SCHEMAS: Final = {
    "amqp": record(
        body=BinaryType(),
        exchange=StringType(),
        routing_key=StringType(),
        stream=StringType(),
        partition=IntegerType(),
        offset=LongType(),
        timestamp=TimestampType(),
        redelivered=BooleanType(),
        properties=PROPERTIES,
        headers=MapType(StringType(), StringType()),
    ),
    "kafka": record(
        key=BinaryType(),
        value=BinaryType(),
        topic=StringType(),
        partition=IntegerType(),
        offset=LongType(),
        timestamp=TimestampType(),
        timestampType=IntegerType(),
        headers=ArrayType(record(key=StringType(), value=BinaryType())),
    ),
}
ANNOTATIONS: Final = StructField("annotations", MapType(StringType(), StringType()))
VARIANT: Final = StructField("headers", VariantType())
# Columns that a query has if it names them, with which a message can be published as it was.
RAW: Final = record(
    raw_properties=BinaryType(), encoding=StringType(), raw_body=BinaryType(), body_json=StringType()
)
NAMED: Final = (ANNOTATIONS, *RAW.fields)


def full(options: Options) -> StructType:
    """Return all columns, or those that the option `columns` names, unless the query has a schema of its own. Raises
    BadOption.
    """
    if options.chosen is None:
        return every(options)
    known = {field.name: field for field in every(options).fields}
    if options.columns == "amqp":
        known |= {field.name: field for field in NAMED if field.name not in known}
    for name in options.chosen:
        if name not in known:
            raise BadOption(f"option columns names '{name}'; known are {', '.join(known)}")
    return StructType([known[name] for name in options.chosen])


def every(options: Options) -> StructType:
    """Return all columns, but for `annotations` unless an option asks for it."""
    fields = list(SCHEMAS[options.columns].fields)
    if options.headers == "none":
        fields = [field for field in fields if field.name != "headers"]
    elif options.headers == "variant":
        fields = [VARIANT if field.name == "headers" else field for field in fields]
    return StructType([*fields, ANNOTATIONS] if options.include_annotations else fields)


def check(wanted: StructType, options: Options) -> None:
    """Raise BadOption for a column that does not exist or has another type."""
    known = {field.name: field.dataType for field in every(options).fields}
    if options.columns == "amqp":
        known |= {field.name: field.dataType for field in NAMED if field.name not in known}
    if not wanted.fields:
        raise BadOption("the schema given has no columns; `offset bigint` is the cheapest")
    for field in wanted.fields:
        kind = known.get(field.name)
        if kind is None:
            raise BadOption(f"the schema given has a column '{field.name}'; known are {', '.join(known)}")
        if not fits(field.dataType, kind):
            raise BadOption(
                f"column '{field.name}' of the schema given is {field.dataType.simpleString()};"
                f" it must be {kind.simpleString()}"
            )


def fits(wanted: DataType, known: DataType) -> bool:
    """Return whether a column can be read as this type: its own; for `properties`, a struct of some of its fields."""
    if isinstance(wanted, StructType) and isinstance(known, StructType):
        kinds = {field.name: field.dataType for field in known.fields}
        return bool(wanted.fields) and all(kinds.get(each.name) == each.dataType for each in wanted.fields)
    return wanted.simpleString() == known.simpleString()

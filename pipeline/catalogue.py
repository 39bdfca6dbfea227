"""Tables of Spark's catalogue: where their options are.

    CREATE TABLE orders USING amqp OPTIONS (endpoints '...', subscribe 'orders')
    CREATE TABLE priced USING amqp OPTIONS (endpoints '...', exchange 'priced')

Of a table of its catalogue, Spark gives a source in Python the options only when the table is created, together with
facts of its own; reads and writes get none. So the schema that the table is created with has the options with it, as
metadata of its first column. They hold no password.

A write sees the schema of its rows. That has the metadata of the target, unless rows with the same names and types come
from another table. Therefore a table is either for reading or for writing, and the first column of one that is for
writing is not null, which makes Spark convert it: rows never take the options of the table that they come from.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import BinaryType, StringType, StructField, StructType

from leveret.pipeline import schema as schemas
from leveret.pipeline.errors import BadOption
from leveret.pipeline.options import CHOICES, Use, read_options
from leveret.pipeline.sink_options import read_sink_options

READ, WRITE = "amqp.read", "amqp.write"  # keys of the metadata of a column
# Of what was given with OPTIONS, beside owner, provider, path, comment and the like.
PREFIX: Final = "option."
NO_OPTIONS: Final = (
    "Spark has handed over no options. Of a table, it does so only if that was made by CREATE TABLE ... USING amqp"
    " OPTIONS (...) without a list of columns (the option columns chooses them) and without AS SELECT; one with"
    " subscribe is for reading, one with exchange for writing. Any query may name options: t WITH (endpoints = '...')"
)
ONE_OF_BOTH: Final = (
    "a table is for reading (option subscribe) or for writing (option exchange): make two of them"
)


def given_at_creation(options: Mapping[str, str]) -> dict[str, str] | None:
    """Return the options of a table that is being created; None if these are not its catalogue's."""
    lower = {name.lower(): str(value) for name, value in options.items()}
    if "provider" not in lower:
        return None
    return {name.removeprefix(PREFIX): value for name, value in lower.items() if name.startswith(PREFIX)}


def schema_of_table(given: Mapping[str, str]) -> StructType:
    """Return the schema of a table with these options, for the catalogue to keep. Raises BadOption."""
    is_read = any(name.lower() in given for name in CHOICES[0])
    if is_read and "exchange" in given:
        raise BadOption(ONE_OF_BOTH)
    if "exchange" in given:
        return _with(WRITE, given, _written(given))
    return _with(READ, given, schemas.full(read_options(given, Use.ALWAYS)))


def _written(given: Mapping[str, str]) -> StructType:
    fields = [StructField("body", BinaryType(), nullable=False)]
    if read_sink_options(given).routing_key is None:
        fields.append(StructField("routing_key", StringType()))
    known = schemas.SCHEMAS["amqp"]
    return StructType([*fields, known["properties"], known["headers"]])


def _with(key: str, given: Mapping[str, str], schema: StructType) -> StructType:
    first, *rest = schema.fields
    kept = StructField(first.name, first.dataType, first.nullable, {key: json.dumps(dict(given))})
    return StructType([kept, *rest])


def options_of(key: str, schema: StructType, options: Mapping[str, str]) -> Mapping[str, str]:
    """Return the options of a query: its own, or those of its table, which `schema` has, and its own on top. Raises
    BadOption if there are none.
    """
    own = {name.lower(): str(value) for name, value in options.items()}
    if "endpoints" in own:
        return options
    for field in schema.fields:
        if key in (field.metadata or {}):
            return {**json.loads(field.metadata[key]), **own}
    if not own:
        raise BadOption(NO_OPTIONS)
    return options

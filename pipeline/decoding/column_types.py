"""The types of decoded columns: which of them a table can have, and how those of two schemas become those of both.

Integers of a schema are bigint and its floating-point numbers double, unless they are named otherwise, so that a schema
that widens them later needs no other column. A table keeps the type that a column has: a later schema may add columns,
and fields of structs, and may be narrower, but not wider or other.

Source: the Delta transaction log protocol, "Schema Serialization Format".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

TIME: Final = pa.timestamp("us", "UTC")
JSON_TEXT: Final = pa.string()  # of an object whose fields no schema names
DEPTH_MAX: Final = 32
COLUMNS_MAX: Final = 1000  # with fields of structs
DIGITS_MAX: Final = 38  # of a decimal
FORBIDDEN: Final = re.compile(r"[ ,;{}()\n\t=]")  # in names of columns, without Delta's mapping of columns
INTEGERS: Final = (pa.int8(), pa.int16(), pa.int32(), pa.int64())


class Conflict(Exception):  # noqa: N818 - a state of affairs
    """Raised where a table cannot have the columns of a schema. Its text says why."""


def merged(table: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table, with those that a schema has besides. Raises Conflict."""
    return pa.schema(_fields(list(table), list(schema), ""))


def _fields(ours: list[pa.Field], theirs: list[pa.Field], before: str) -> list[pa.Field]:
    found = {field.name: field.type for field in ours}
    names = {name.lower(): name for name in found}
    for field in theirs:
        path = before + field.name
        same = names.setdefault(field.name.lower(), field.name)
        if same != field.name:
            raise Conflict(f"the columns {before}{same} and {path} differ in upper and lower case only")
        known = found.get(field.name)
        found[field.name] = field.type if known is None else _kind(known, field.type, path)
    return [pa.field(name, kind) for name, kind in found.items()]


def _kind(ours: pa.DataType, theirs: pa.DataType, path: str) -> pa.DataType:
    if pa.types.is_struct(ours) and pa.types.is_struct(theirs):
        return pa.struct(_fields(list(ours), list(theirs), path + "."))
    if pa.types.is_list(ours) and pa.types.is_list(theirs):
        return pa.list_(_kind(ours.value_type, theirs.value_type, path + "[]"))
    if pa.types.is_map(ours) and pa.types.is_map(theirs):
        return pa.map_(pa.string(), _kind(ours.item_type, theirs.item_type, path + ".*"))
    if not _fits(theirs, ours):
        raise Conflict(
            f"the column {path} is {sql_name(theirs)} in the schema, and {sql_name(ours)} in the table"
        )
    return ours


def _fits(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Return whether each value of one type is one of the other."""
    if narrow == wide:
        return True
    if narrow in INTEGERS and wide in INTEGERS:
        return INTEGERS.index(narrow) < INTEGERS.index(wide)
    if pa.types.is_decimal(narrow) and pa.types.is_decimal(wide):
        return bool(narrow.scale == wide.scale and narrow.precision < wide.precision)
    return bool(narrow == pa.float32() and wide == pa.float64())


def require_storable(columns: pa.Schema, taken: Collection[str]) -> None:
    """Check that a table can have these columns beside those that are `taken`. Raises Conflict."""
    lower = {name.lower() for name in taken}
    for field in columns:
        if field.name.lower() in lower:
            raise Conflict(
                f"the column {field.name} is one of the message itself: give the decoded ones a prefix"
            )
    for many, (path, depth) in enumerate(_paths(list(columns), "", 1), 1):
        name = path.rpartition(".")[2]
        if not name or FORBIDDEN.search(path):
            raise Conflict(
                f"a table can have no column {path!r}: of names, Delta forbids spaces and ,;{{}}()="
            )
        if depth > DEPTH_MAX or many > COLUMNS_MAX:
            raise Conflict(f"more than {COLUMNS_MAX} columns, or {DEPTH_MAX} in each other")


def _paths(fields: list[pa.Field], before: str, depth: int) -> Iterator[tuple[str, int]]:
    for field in fields:
        path, kind = before + field.name, field.type
        yield path, depth
        while pa.types.is_list(kind) or pa.types.is_map(kind):
            kind = kind.value_type if pa.types.is_list(kind) else kind.item_type
        if pa.types.is_struct(kind) and not kind.num_fields:
            raise Conflict(f"the column {path} would have no fields")
        if pa.types.is_struct(kind) and depth <= DEPTH_MAX:
            yield from _paths(list(kind), path + ".", depth + 1)


NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.date32(): "date",
    TIME: "timestamp",
}


def sql_name(kind: pa.DataType) -> str:
    """Return the name of a type as Spark's SQL has it."""
    if kind in NAMES:
        return NAMES[kind]
    if pa.types.is_list(kind):
        return f"array<{sql_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<string,{sql_name(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{field.name}:{sql_name(field.type)}' for field in kind)}>"
    return f"decimal({kind.precision},{kind.scale})" if pa.types.is_decimal(kind) else str(kind)

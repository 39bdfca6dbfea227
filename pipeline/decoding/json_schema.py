"""JSON Schema to columns: objects, arrays, strings with a format, numbers, and what may be null.

Keywords that narrow a value without changing its type (`minimum`, `pattern`) are not checked; those for which there is
no column (alternatives of several types, a schema that contains itself) are refused.

Source: JSON Schema, draft 2020-12; `format` by its section 7.3, `contentEncoding` by 8.3.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.decoding.column_types import DEPTH_MAX, JSON_TEXT, TIME
from leveret.pipeline.errors import BadOption

NULL: Final = "null"
PLAIN: Final = {"integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}
FORMATS: Final = {"date-time": TIME, "date": pa.date32()}
ALTERNATIVES: Final = ("anyOf", "oneOf")
TYPES: Final = {bool: "boolean", int: "integer", float: "number", str: "string"}  # of the values of an enum


def columns_of(schema: object) -> pa.Schema:
    """Return the columns of objects by their JSON Schema; a required field may not be null. Raises BadOption."""
    reading = JsonSchema(schema)
    kind, _ = reading.kind_of(schema, "$", 0)
    if not pa.types.is_struct(kind):
        raise BadOption("the JSON Schema is not one of objects with properties")
    return pa.schema(list(kind))


class JsonSchema:
    """One schema, with the definitions to which its references lead."""

    def __init__(self, root: object) -> None:
        self._root = root

    def kind_of(self, schema: object, path: str, depth: int) -> tuple[pa.DataType, bool]:
        """Return the type of a value, and whether it may be null. Raises BadOption."""
        if depth > DEPTH_MAX:
            raise BadOption(f"the JSON Schema is more than {DEPTH_MAX} deep at {path}, or contains itself")
        if not isinstance(schema, Mapping):
            raise BadOption(f"the JSON Schema has no type at {path}")
        if "$ref" in schema:
            return self.kind_of(self._referred(schema["$ref"], path), path, depth + 1)
        for keyword in ALTERNATIVES:
            if keyword in schema:
                return self._alternative(schema[keyword], path, depth)
        types, is_nullable = _types(schema, path)
        if len(types) != 1:
            raise BadOption(
                f"the JSON Schema has {' or '.join(types) or 'no type'} at {path}: a column has one type"
            )
        return self._kind(types[0], schema, path, depth), is_nullable

    def _kind(self, name: str, schema: Mapping[str, object], path: str, depth: int) -> pa.DataType:
        if name in PLAIN:
            return PLAIN[name]
        if name == "string":
            if schema.get("contentEncoding") == "base64":
                return pa.binary()
            return FORMATS.get(str(schema.get("format")), pa.string())
        if name == "array":
            kind, _ = self.kind_of(schema.get("items"), f"{path}[]", depth + 1)
            return pa.list_(kind)
        if name == "object":
            return self._object(schema, path, depth)
        raise BadOption(f"the JSON Schema has an unknown type {name!r} at {path}")

    def _object(self, schema: Mapping[str, object], path: str, depth: int) -> pa.DataType:
        properties, more = schema.get("properties"), schema.get("additionalProperties")
        if isinstance(properties, Mapping) and properties:
            return pa.struct(list(self._fields(properties, schema.get("required"), path, depth)))
        if isinstance(more, Mapping) and more:
            kind, _ = self.kind_of(more, f"{path}.*", depth + 1)
            return pa.map_(pa.string(), kind)
        return JSON_TEXT

    def _fields(
        self, properties: Mapping[str, object], required: object, path: str, depth: int
    ) -> Iterator[pa.Field]:
        needed = required if isinstance(required, list) else []
        for name, each in properties.items():
            kind, is_nullable = self.kind_of(each, f"{path}.{name}", depth + 1)
            yield pa.field(name, kind, nullable=is_nullable or name not in needed)

    def _alternative(self, found: object, path: str, depth: int) -> tuple[pa.DataType, bool]:
        """Return the type of the one alternative that is not null."""
        each = found if isinstance(found, list) else []
        others = [one for one in each if not (isinstance(one, Mapping) and one.get("type") == NULL)]
        if len(others) != 1:
            raise BadOption(f"the JSON Schema has several alternatives at {path}: a column has one type")
        kind, is_nullable = self.kind_of(others[0], path, depth + 1)
        return kind, is_nullable or len(others) < len(each)

    def _referred(self, reference: object, path: str) -> object:
        """Return the definition that a local reference such as `#/$defs/money` leads to. Raises BadOption."""
        at, parts = self._root, str(reference).split("/")
        for part in parts[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(at, Mapping) or name not in at:
                at = None
                break
            at = at[name]
        if parts[0] != "#" or at is None:
            raise BadOption(f"the JSON Schema refers to {reference!r} at {path}, which it does not have")
        return at


def _types(schema: Mapping[str, object], path: str) -> tuple[list[str], bool]:
    """Return the names of types other than null, and whether null is one."""
    found = schema.get("type")
    if found is None:
        found = _implied(schema)
    names = [found] if isinstance(found, str) else found
    if not isinstance(names, list) or not all(isinstance(each, str) for each in names):
        raise BadOption(f"the JSON Schema has no type at {path}")
    return [each for each in names if each != NULL], NULL in names


def _implied(schema: Mapping[str, object]) -> list[str]:
    """Return the types of a schema that does not name any: those of its values, or of what it has else."""
    values = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if isinstance(values, list):
        return list(
            dict.fromkeys(TYPES.get(type(each), NULL if each is None else "object") for each in values)
        )
    return ["object"] if "properties" in schema else ["array"] if "items" in schema else []

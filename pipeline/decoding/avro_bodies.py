"""Bodies of Avro by the schema that they were written with.

Source: Apache Avro specification 1.12, "Schema Declaration", "Logical Types" and "Binary Encoding".
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time
from decimal import Decimal
from importlib.util import find_spec
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.decoding.body_schema import BodySchema, Undecodable, Values
from leveret.pipeline.decoding.column_types import DEPTH_MAX, DIGITS_MAX, TIME
from leveret.pipeline.errors import BadOption, PipelineError

Convert = Callable[[object], object]
Found = tuple[pa.DataType, Convert | None]  # None: values are right as fastavro gives them
NULL: Final = "null"
PRIMITIVES: Final = {
    "boolean": pa.bool_(),
    "int": pa.int64(),
    "long": pa.int64(),
    "float": pa.float64(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}


def _text(value: object) -> object:
    """Return a UUID as text, and a time of day or without a zone in the form of ISO 8601."""
    return value.isoformat() if isinstance(value, time | datetime | date) else str(value)


LOGICAL: Final[Mapping[str, Found]] = {
    "date": (pa.date32(), None),
    "timestamp-millis": (TIME, None),
    "timestamp-micros": (TIME, None),
    "time-millis": (pa.string(), _text),
    "time-micros": (pa.string(), _text),
    "local-timestamp-millis": (pa.string(), _text),
    "local-timestamp-micros": (pa.string(), _text),
    "uuid": (pa.string(), _text),
}


def require() -> None:
    """Check that fastavro is installed. Raises PipelineError."""
    if find_spec("fastavro") is None:
        raise PipelineError("fastavro is not installed: `pip install 'leveret[decode]'`")


def schema_of(text: str, name: str, referred: Mapping[str, str] | None = None) -> BodySchema:
    """Return a schema from its JSON. `referred` has those of named types that it refers to, in order; Raises BadOption.

    A body that ends early, or goes on behind its last field, is undecodable.
    """
    require()
    from fastavro import parse_schema, schemaless_reader
    from fastavro.schema import SchemaParseException, UnknownType

    named: dict[str, object] = {}
    try:
        for each in (referred or {}).values():
            parse_schema(json.loads(each), named_schemas=named)  # type: ignore[arg-type]
        content = json.loads(text)
        parsed = parse_schema(content, named_schemas=named)  # type: ignore[arg-type]
    except UnknownType as error:
        raise BadOption(f"{name} names a type {error.name} that it does not have") from None
    except (SchemaParseException, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise BadOption(f"{name} is no Avro schema: {error}") from None
    kind, convert = AvroSchema(named).kind_of(parsed, "$", 0)
    if not pa.types.is_struct(kind) or not kind.num_fields:
        raise BadOption(f"{name} is no record with fields, and only these can be columns")

    def decode(body: bytes) -> Values:
        stream = io.BytesIO(body)
        try:
            found = schemaless_reader(stream, parsed, None)
        except (EOFError, IndexError):
            raise Undecodable(f"the body ends within a value of {name}, or is not of it") from None
        except Exception as error:  # fastavro raises what its steps happen to
            raise Undecodable(f"the body is not of {name}: {type(error).__name__}: {error}") from None
        if stream.tell() != len(body):
            raise Undecodable(f"the body has {len(body) - stream.tell()} bytes more than a value of {name}")
        values = found if convert is None else convert(found)
        assert isinstance(values, dict)
        return values

    return BodySchema(name, pa.schema(list(kind)), decode)


class AvroSchema:
    """One schema, as fastavro has parsed it, with its named types."""

    def __init__(self, named: Mapping[str, object]) -> None:
        self._named = named

    def kind_of(self, schema: object, path: str, depth: int) -> Found:
        """Return the type of a value, and what makes it of fastavro's. Raises BadOption."""
        if depth > DEPTH_MAX:
            raise BadOption(f"the Avro schema is more than {DEPTH_MAX} deep at {path}, or contains itself")
        if isinstance(schema, list):
            return self._union(schema, path, depth)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return PRIMITIVES[schema], None
            if schema not in self._named:
                raise BadOption(f"the Avro schema has {schema} at {path}, for which there is no column")
            return self.kind_of(self._named[schema], path, depth + 1)
        assert isinstance(schema, dict)
        name, logical = schema["type"], str(schema.get("logicalType"))
        if logical == "decimal" and (found := _decimal(schema, path)):
            return found
        if logical in LOGICAL:
            return LOGICAL[logical]
        if name in ("record", "error"):
            return self._record(schema["fields"], path, depth)
        if name == "array":
            return self._array(schema["items"], path, depth)
        if name == "map":
            kind, convert = self.kind_of(schema["values"], f"{path}.*", depth + 1)
            return pa.map_(pa.string(), kind), None if convert is None else _mapping(convert)
        if name == "enum":
            return pa.string(), None
        return (pa.binary(), None) if name == "fixed" else self.kind_of(name, path, depth + 1)

    def _union(self, schemas: list[object], path: str, depth: int) -> Found:
        others = [each for each in schemas if each != NULL]
        if len(others) != 1:
            raise BadOption(f"the Avro schema has a union of several types at {path}: a column has one type")
        kind, convert = self.kind_of(others[0], path, depth + 1)
        return kind, None if convert is None else _nullable(convert)

    def _record(self, fields: list[dict[str, object]], path: str, depth: int) -> Found:
        found = {
            str(field["name"]): self.kind_of(field["type"], f"{path}.{field['name']}", depth + 1)
            for field in fields
        }
        converts = {name: convert for name, (_, convert) in found.items() if convert is not None}
        kind = pa.struct([pa.field(name, kind) for name, (kind, _) in found.items()])
        return kind, _converted(converts) if converts else None

    def _array(self, items: object, path: str, depth: int) -> Found:
        kind, convert = self.kind_of(items, f"{path}[]", depth + 1)
        if not self._octets_least(items, depth):
            # A body of a few bytes could say that there are 2^60 of them.
            raise BadOption(f"the Avro schema has an array at {path} whose items may take no bytes")
        return pa.list_(kind), None if convert is None else _array(_nullable(convert))

    def _octets_least(self, schema: object, depth: int) -> int:
        """Return how many bytes a value takes at least, up to 1: none is what counts."""
        while isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if not isinstance(schema, dict):
            return 0 if schema == NULL else 1
        if schema["type"] in ("record", "error"):
            return max(
                (self._octets_least(field["type"], depth + 1) for field in schema["fields"]), default=0
            )
        if schema["type"] == "fixed":
            return min(1, int(schema["size"]))
        return 0 if schema["type"] == NULL else 1


def _decimal(schema: Mapping[str, object], path: str) -> Found | None:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        return None  # as the specification has it: the type below is what counts
    if precision > DIGITS_MAX:
        raise BadOption(f"the Avro schema has {precision} digits at {path}: up to {DIGITS_MAX} are possible")
    most = Decimal(10) ** (precision - scale)

    def convert(value: object) -> object:
        assert isinstance(value, Decimal)
        if not -most < value < most:
            raise Undecodable(f"{path}: the decimal has more than {precision} digits")
        return value

    return pa.decimal128(precision, scale), convert


def _nullable(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _array(convert: Convert) -> Convert:
    return lambda value: [convert(each) for each in value]  # type: ignore[attr-defined]


def _mapping(convert: Convert) -> Convert:
    of = _nullable(convert)
    return lambda value: {name: of(each) for name, each in value.items()}  # type: ignore[attr-defined]


def _converted(converts: Mapping[str, Convert]) -> Convert:
    """Return what converts some fields of a record in place."""

    def convert(value: object) -> object:
        assert isinstance(value, dict)
        for name, of in converts.items():
            value[name] = of(value[name])
        return value

    return convert

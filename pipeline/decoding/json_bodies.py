"""Bodies of JSON by the columns of a schema: each value is checked, and what no column has is passed over."""

from __future__ import annotations

import base64
import binascii
import json
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.decoding import ddl, json_schema
from leveret.pipeline.decoding.body_schema import BodySchema, Undecodable, Values, shown
from leveret.pipeline.decoding.column_types import NAMES, TIME, sql_name
from leveret.pipeline.errors import BadOption

Convert = Callable[[object], object]  # raises Undecodable
EXACT_MAX: Final = 1 << 53  # up to which a floating-point number is a certain whole one
BITS: Final = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}


def schema_of(text: str, name: str) -> BodySchema:
    """Return a schema: a JSON Schema, or columns as Spark declares them. Raises BadOption."""
    if not text.lstrip().startswith("{"):
        return by_columns(ddl.columns_of(text), name)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadOption(f"{name} is no JSON: {error}") from None
    return by_columns(json_schema.columns_of(content), name)


def by_columns(columns: pa.Schema, name: str) -> BodySchema:
    convert = struct(list(columns), "$")
    floats = Decimal if _has_decimals(pa.struct(list(columns))) else float
    decoder = json.JSONDecoder(parse_float=floats, parse_constant=_no_constant)

    def decode(body: bytes) -> Values:
        try:
            text = body.decode()
            found = decoder.decode(text)
        except UnicodeDecodeError as error:
            raise Undecodable(f"the body is no UTF-8 at byte {error.start}") from None
        except RecursionError:
            raise Undecodable("the body is nested too deeply") from None
        except (ValueError, InvalidOperation) as error:
            raise Undecodable(f"the body is no JSON: {error}") from None
        values = convert(found)
        assert isinstance(values, dict)
        return values

    return BodySchema(name, pa.schema([pa.field(each.name, each.type) for each in columns]), decode)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no value of JSON")


def _has_decimals(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_decimals(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_map(kind):
        return _has_decimals(kind.value_type if pa.types.is_list(kind) else kind.item_type)
    return bool(pa.types.is_decimal(kind))


def converter(kind: pa.DataType, path: str) -> Convert:
    """Return the function that makes a value of a column of what JSON has, null excepted."""
    if pa.types.is_struct(kind):
        return struct(list(kind), path)
    if pa.types.is_list(kind):
        return array(converter(kind.value_type, f"{path}[]"), path)
    if pa.types.is_map(kind):
        return mapping(converter(kind.item_type, f"{path}.*"), path)
    if pa.types.is_decimal(kind):
        return decimal(kind, path)
    if kind in BITS:
        return integer(BITS[kind], path, NAMES[kind])
    return SIMPLE[kind](path)


def wrong(path: str, value: object, kind: str) -> Undecodable:
    return Undecodable(f"{path}: {shown(value)} is no {kind}")


def struct(fields: list[pa.Field], path: str) -> Convert:
    parts = [
        (field.name, converter(field.type, f"{path}.{field.name}"), not field.nullable) for field in fields
    ]

    def convert(value: object) -> object:
        if type(value) is not dict:
            raise wrong(path, value, "object")
        found = {}
        for name, of, is_required in parts:
            each = value.get(name)
            if each is not None:
                found[name] = of(each)
            elif is_required:
                raise Undecodable(f"{path}.{name} is {'null' if name in value else 'missing'}")
        return found

    return convert


def array(of: Convert, path: str) -> Convert:
    def convert(value: object) -> object:
        if type(value) is not list:
            raise wrong(path, value, "array")
        return [None if each is None else of(each) for each in value]

    return convert


def mapping(of: Convert, path: str) -> Convert:
    def convert(value: object) -> object:
        if type(value) is not dict:
            raise wrong(path, value, "object")
        return [(_encodable(name, path), None if each is None else of(each)) for name, each in value.items()]

    return convert


def integer(bits: int, path: str, kind: str) -> Convert:
    least, most = -(1 << bits), (1 << bits) - 1

    def convert(value: object) -> object:
        if type(value) is not int:
            value = _whole(value, path, kind)
        if not least <= value <= most:
            raise wrong(path, value, kind)
        return value

    return convert


def _whole(value: object, path: str, kind: str) -> int:
    """Return a number such as 1.0 as an integer, which it is to JSON Schema."""
    if isinstance(value, float | Decimal) and -EXACT_MAX <= value <= EXACT_MAX and value == int(value):
        return int(value)
    raise wrong(path, value, kind)


def decimal(kind: pa.DataType, path: str) -> Convert:
    name, step = sql_name(kind), Decimal(1).scaleb(-kind.scale)
    most = Decimal(10) ** (kind.precision - kind.scale)

    def convert(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | str | Decimal):
            raise wrong(path, value, name)
        try:
            found = Decimal(value)
            if -most < found < most and (exact := found.quantize(step)) == found:
                return exact
        except InvalidOperation:
            pass
        raise wrong(path, value, name)

    return convert


def number(path: str) -> Convert:
    def convert(value: object) -> object:
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
            raise wrong(path, value, "number")
        try:
            found = float(value)
        except OverflowError:
            found = math.inf
        if not math.isfinite(found):
            raise wrong(path, value, "double")
        return found

    return convert


def boolean(path: str) -> Convert:
    def convert(value: object) -> object:
        if type(value) is not bool:
            raise wrong(path, value, "boolean")
        return value

    return convert


def string(path: str) -> Convert:
    """Return the function for texts; an object or array becomes its JSON, as where a schema names no fields of it."""

    def convert(value: object) -> object:
        if type(value) is str:
            return _encodable(value, path)
        if isinstance(value, dict | list):
            return _encodable(json.dumps(value, ensure_ascii=False, default=float), path)
        raise wrong(path, value, "string")

    return convert


def _encodable(value: str, path: str) -> str:
    """Return a text unless it has half of a surrogate pair, which JSON can escape and UTF-8 cannot hold."""
    try:
        value.encode()
    except UnicodeEncodeError:
        raise Undecodable(f"{path}: half of a surrogate pair is no text") from None
    return value


def octets(path: str) -> Convert:
    def convert(value: object) -> object:
        try:
            return base64.b64decode(value if type(value) is str else b"?", validate=True)
        except (binascii.Error, ValueError):
            raise wrong(path, value, "text in base64") from None

    return convert


def day(path: str) -> Convert:
    def convert(value: object) -> object:
        try:
            return date.fromisoformat(value if type(value) is str else "?")
        except ValueError:
            raise wrong(path, value, "date such as 2026-11-29") from None

    return convert


def moment(path: str) -> Convert:
    """Return the function for times; one without an offset is in UTC."""

    def convert(value: object) -> object:
        try:
            found = datetime.fromisoformat(value if type(value) is str else "?")
            return found.astimezone(UTC) if found.tzinfo else found.replace(tzinfo=UTC)
        except (ValueError, OverflowError):
            raise wrong(path, value, "time such as 2026-11-29T08:30:00Z") from None

    return convert


SIMPLE: Final[dict[pa.DataType, Callable[[str], Convert]]] = {
    pa.bool_(): boolean,
    pa.float32(): number,
    pa.float64(): number,
    pa.string(): string,
    pa.binary(): octets,
    pa.date32(): day,
    TIME: moment,
}

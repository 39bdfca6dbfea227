"""The part of pyarrow that is used here, with types, because pyarrow has none."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.durable.store.block import Column

if TYPE_CHECKING:
    from pyspark.sql.types import StructType, VariantVal


class Kind(Protocol):
    """A data type."""


class Field(Protocol):
    name: str
    type: Kind


class Schema(Protocol):
    def __iter__(self) -> Iterator[Field]: ...


class Array(Protocol):
    @property
    def type(self) -> Kind: ...
    def __len__(self) -> int: ...
    def slice(self, offset: int, length: int) -> Array: ...
    def take(self, indices: Array) -> Array: ...
    def to_pylist(self) -> list[object]: ...


class Batch(Protocol):
    num_rows: int
    nbytes: int
    schema: Schema

    def column(self, name: str) -> Array: ...
    def to_pylist(self) -> list[dict[str, object]]: ...


def schema_of(columns: StructType) -> Schema:
    """Return the Arrow schema of these columns, with which Spark compares the first batch."""
    from pyspark.sql.pandas.types import to_arrow_schema

    schema: Schema = to_arrow_schema(columns, timezone="UTC")
    return schema


def fields_of(kind: Kind) -> Sequence[Field]:
    """Return the fields of a struct type."""
    fields: Sequence[Field] = list(kind)  # type: ignore[call-overload]
    return fields


def item_of(kind: Kind) -> Kind:
    """Return the type of the items of a list type."""
    item: Kind = kind.value_type  # type: ignore[attr-defined]
    return item


def array_of(values: Sequence[object], kind: Kind) -> Array:
    array: Array = pa.array(values, type=kind)
    return array


def repeated(value: object, count: int, kind: Kind) -> Array:
    array: Array = pa.repeat(pa.scalar(value, type=kind), count)
    return array


def numbers_of(column: Column, kind: Kind) -> Array:
    """Return whole numbers as an array without copying them."""
    array: Array = pa.Array.from_buffers(kind, len(column), [None, pa.py_buffer(column)])
    return array


def flags_of(column: Column) -> Array:
    """Return bytes that are 0 or 1 as booleans."""
    array: Array = pc.cast(numbers_of(column, pa.uint8()), pa.bool_())
    return array


def places_of(column: Column) -> Array:
    """Return indices for `take`."""
    return numbers_of(column, pa.uint32())


def binary_of(ends: Column, octets: memoryview[int]) -> Array:
    """Return binaries without copying them. Raises ValueError if `ends` do not rise, or leave the bytes."""
    buffers = [None, pa.py_buffer(ends), pa.py_buffer(octets)]
    array = pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)
    array.validate(full=True)
    found: Array = array
    return found


def counted(first: int, count: int) -> Array:
    """Return first, first + 1, ..."""
    global upwards
    if len(upwards) < count:
        upwards = pa.array(range(max(count, 1 << 16)), type=pa.int64())
    array: Array = pc.add(upwards.slice(0, count), pa.scalar(first, type=pa.int64()))
    return array


upwards: Array = pa.nulls(0, pa.int64())  # `pa.array` would import pandas, 0.4 s in each of Spark's processes


def joined(arrays: Sequence[Array]) -> Array:
    """Return the arrays concatenated."""
    array: Array = arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)
    return array


def struct_of(arrays: Sequence[Array], kind: Kind) -> Array:
    array: Array = pa.StructArray.from_arrays(arrays, fields=list(kind))  # type: ignore[call-overload]
    return array


def with_field(structs: Array, kind: Kind, name: str, value: object, rows: Collection[int]) -> Array:
    """Return structs of which a field has a value in these rows, given by their indices."""
    is_one = pc.is_in(counted(0, len(structs)), array_of(sorted(rows), pa.int64()))
    columns: Sequence[Array] = structs.flatten()  # type: ignore[attr-defined]
    fields = [
        pc.if_else(is_one, pa.scalar(value, field.type), column) if field.name == name else column
        for field, column in zip(fields_of(kind), columns, strict=True)
    ]
    return struct_of(fields, kind)


def maps_of(
    ends: Column, names: Sequence[str], values: Sequence[str | None], missing: Sequence[bool], kind: Kind
) -> Array:
    """Return maps of texts; `ends` begins with a 0, and `missing` says which maps are null."""
    arrays = (numbers_of(ends, pa.int32()), pa.array(names, pa.string()), pa.array(values, pa.string()))
    array: Array = pa.MapArray.from_arrays(*arrays, type=kind, mask=pa.array(missing))
    return array


def is_struct(kind: Kind) -> bool:
    return bool(pa.types.is_struct(kind))


def variants_of(values: Sequence[VariantVal | None], kind: Kind) -> Array:
    """Return variants as an array; `kind` is Spark's struct of a value and its names."""
    parts = [
        [b"" if each is None else getattr(each, field.name) for each in values] for field in fields_of(kind)
    ]
    array: Array = pa.StructArray.from_arrays(
        [pa.array(part, type=pa.binary()) for part in parts],
        fields=list(kind),  # type: ignore[call-overload]
        mask=pa.array([each is None for each in values]),
    )
    return array


def filtered(batch: Batch, flags: Array) -> Batch:
    """Return the rows whose flag is set."""
    found: Batch = pc.filter(batch, flags)
    return found


def batch_of(columns: Sequence[Array], schema: Schema) -> Batch:
    batch: Batch = pa.RecordBatch.from_arrays(columns, schema=schema)
    return batch

"""Rows, schemas and bodies for tests of decoding, in all formats."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from leveret.pipeline.decoding.body_schema import BodySchema, OneSchema
from leveret.pipeline.decoding.row_decoder import DecodedRows, RowDecoder

NO_COLUMNS = pa.schema([])


def rows(*bodies: bytes | None) -> pa.RecordBatch:
    """Return rows of messages as an archive reads them, with fewer columns."""
    offsets = pa.array(range(len(bodies)), pa.int64())
    return pa.RecordBatch.from_arrays([pa.array(bodies, pa.binary()), offsets], ["body", "offset"])


def decoded(schema: BodySchema, *bodies: bytes | None) -> DecodedRows:
    return RowDecoder(OneSchema(schema), NO_COLUMNS, ("body", "offset")).decode(rows(*bodies))


def values(schema: BodySchema, *bodies: bytes) -> list[dict[str, object]]:
    """Return the decoded values of bodies that all have some."""
    found = decoded(schema, *bodies)
    assert found.undecoded is None, found.undecoded.to_pylist()
    kept: list[dict[str, object]] = found.rows.drop_columns(["body", "offset"]).to_pylist()
    return kept


def reason(schema: BodySchema, body: bytes | None) -> str:
    """Return why a body is not decoded."""
    found = decoded(schema, body)
    assert found.rows.num_rows == 0
    assert found.undecoded is not None
    return str(found.undecoded["reason"][0].as_py())


def avro_body(schema: Any, value: Mapping[str, object]) -> bytes:
    import fastavro

    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), dict(value))
    return stream.getvalue()


def record(name: str, /, **fields: object) -> dict[str, object]:
    """Return the schema of an Avro record; fields that may be null have that as default."""
    return {
        "type": "record",
        "name": name,
        "fields": [
            {
                "name": field,
                "type": kind,
                **({"default": None} if isinstance(kind, list) and kind[0] == "null" else {}),
            }
            for field, kind in fields.items()
        ],
    }


def descriptor_file(name: str, /, **messages: Sequence[tuple[Any, ...]]) -> Any:
    """Return the descriptor of a file of proto3; a field is (name, type, and perhaps changes as a dictionary)."""
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

    found = FileDescriptorProto(name=name, package="shop", syntax="proto3")
    for message, fields in messages.items():
        made = found.message_type.add(name=message)
        for number, (field, kind, *more) in enumerate(fields, 1):
            entry = made.field.add(name=field, number=number, label=FieldDescriptorProto.LABEL_OPTIONAL)
            entry.type = getattr(FieldDescriptorProto, f"TYPE_{kind.upper()}")
            for key, value in (more[0] if more else {}).items():
                setattr(entry, key, value)
    return found


def optional(field: Any, message: Any) -> None:
    """Have a field of proto3 be there or not, as the word `optional` does."""
    message.oneof_decl.add(name=f"_{field.name}")
    field.oneof_index, field.proto3_optional = len(message.oneof_decl) - 1, True


def made(files: Sequence[Any], message: str, /, **fields: Any) -> bytes:
    """Return a message of some files, encoded."""
    from google.protobuf import message_factory

    from leveret.pipeline.decoding.protobuf_bodies import pool_of

    descriptor = pool_of(files, "a sample").FindMessageTypeByName(message)
    octets: bytes = message_factory.GetMessageClass(descriptor)(**fields).SerializeToString()
    return octets


def json_body(**fields: object) -> bytes:
    return json.dumps(fields).encode()

"""The columns of an archive as Arrow has them, for programs without Spark; `pipeline.schema` has Spark's."""

from __future__ import annotations

from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

from pipeline.errors import BadOption
from pipeline.options import Options

TIME: Final = pa.timestamp("us", "UTC")
TEXTS: Final = pa.map_(pa.string(), pa.string())
PROPERTIES: Final = pa.struct(
    {
        "content_type": pa.string(),
        "content_encoding": pa.string(),
        "durable": pa.bool_(),
        "priority": pa.int32(),
        "correlation_id": pa.string(),
        "reply_to": pa.string(),
        "ttl_ms": pa.int64(),
        "message_id": pa.string(),
        "timestamp": TIME,
        "type": pa.string(),
        "user_id": pa.string(),
        "app_id": pa.string(),
    }
)
COLUMNS: Final = {
    "body": pa.binary(),
    "exchange": pa.string(),
    "routing_key": pa.string(),
    "stream": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": TIME,
    "redelivered": pa.bool_(),
    "properties": PROPERTIES,
    "headers": TEXTS,
}


def columns(options: Options) -> pa.Schema:
    """Return the columns of an archive that is read with these options. Raises BadOption."""
    if options.columns != "amqp":
        raise BadOption("an archive has the columns of the source, not those of the option schema=kafka")
    if options.headers == "variant":
        raise BadOption("an archive has headers as a map of texts: the option headersFormat is map or none")
    found = {name: kind for name, kind in COLUMNS.items() if name != "headers" or options.headers == "map"}
    if options.include_annotations:
        found["annotations"] = TEXTS
    return pa.schema(list(found.items()))

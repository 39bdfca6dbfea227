"""The columns of an archive as Arrow has them, for programs without Spark; `leveret.pipeline.schema` has Spark's."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.errors import BadOption
from leveret.pipeline.jobs.data_files import column_for
from leveret.pipeline.options import Options

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
    "raw_properties": pa.binary(),
    "encoding": pa.string(),
    "raw_body": pa.binary(),
    "body_json": pa.string(),
}
# Columns that archives of 0.1.0 do not have.
LATER: Final = ("raw_properties", "encoding", "raw_body", "body_json")


def columns(options: Options, by: Sequence[str], table: Collection[str] | None = None) -> pa.Schema:
    """Return the columns of an archive that is read with these options, and partitioned by some. Raises BadOption.

    `table` has the columns of an archive that is there: one of an earlier version goes on without those that are later.
    """
    if options.columns != "amqp":
        raise BadOption("an archive has the columns of the source, not those of the option schema=kafka")
    if options.headers == "variant":
        raise BadOption("an archive has headers as a map of texts: the option headersFormat is map or none")
    found = {name: kind for name, kind in COLUMNS.items() if name != "headers" or options.headers == "map"}
    if options.include_annotations:
        found["annotations"] = TEXTS
    if table is not None:
        found = {name: kind for name, kind in found.items() if name in table or name not in LATER}
    if options.chosen is not None:
        found = chosen(found, options.chosen, by)
    elif "headers" not in found and (without := [name for name in by if column_for(name) == "headers"]):
        raise BadOption(
            f"an archive by {without[0]} needs the column headers, which headersFormat=none leaves out"
        )
    return pa.schema(list(found.items()))


def chosen(
    known: Mapping[str, pa.DataType], names: Sequence[str], by: Sequence[str]
) -> dict[str, pa.DataType]:
    """Return the columns that the option `columns` names. Raises BadOption if one is unknown, or one more is needed."""
    if unknown := [name for name in names if name not in known]:
        raise BadOption(f"option columns names '{unknown[0]}'; an archive can have {', '.join(known)}")
    for name in by:
        needed = column_for(name)
        if needed not in names:
            raise BadOption(
                f"an archive by {name} needs the column {needed}: add it to the option columns, or say"
                " --partition-by none"
            )
    return {name: known[name] for name in names}

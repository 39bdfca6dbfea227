"""Rows of messages to rows with the columns of their bodies, and those that cannot be decoded.

    batch ── each body by its schema ──> values ──> columns beside those of the message
                     │
                     └── not what its schema says, or not what the table has ──> rows with a reason

The columns are those that the table has already, and grow with the schemas of bodies.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Final

import attrs
import pyarrow as pa  # type: ignore[import-untyped]

from leveret.pipeline.arrow import Batch
from leveret.pipeline.decoding.body_schema import BodySchema, BodySchemas, Undecodable, Values
from leveret.pipeline.decoding.column_types import Conflict, merged, require_storable
from leveret.pipeline.errors import BadOption

REASON: Final = "reason"  # the column of a row that cannot be decoded
BODY, BODY_JSON = "body", "body_json"
ADMITTED_MAX: Final = 1000  # schemas of which is remembered whether the table can have their columns


@attrs.frozen
class DecodedRows:
    """The rows of one batch."""

    rows: pa.RecordBatch  # with the decoder's columns behind those of the message
    undecoded: pa.RecordBatch | None  # with a reason behind those of the message; None: there are none


class RowDecoder:
    """Decodes the rows of one table. Not to be shared by threads."""

    def __init__(
        self,
        schemas: BodySchemas,
        table: pa.Schema,
        taken: Collection[str] = (),
        prefix: str = "",
        reads_json: bool = False,
        stored: Callable[[pa.Schema], pa.Schema] = lambda columns: columns,
    ) -> None:
        """Make a decoder. `table` has the decoded columns of the table, `taken` the names of its others; `reads_json`
        has the column `body_json` read where it is not null, and `stored` returns columns as the table would have them.
        Raises BadOption.
        """
        self.columns = table
        self._schemas = schemas
        self._taken = frozenset(taken)
        self._prefix = prefix
        self._reads_json = reads_json
        self._stored = stored
        self._admitted: dict[BodySchema, str | None] = {}  # why not
        if schemas.known is not None and (reason := self._admit(schemas.known)):
            raise BadOption(f"{schemas.known.name}: {reason}")

    def decode(self, batch: Batch) -> DecodedRows:
        """Decode the bodies of a batch. Raises PipelineError if the registry cannot be asked."""
        assert isinstance(batch, pa.RecordBatch)
        values: list[Values] = []
        reasons: list[str | None] = []
        for body in self._bodies(batch):
            try:
                values.append(self._values(body))
                reasons.append(None)
            except Undecodable as error:
                reasons.append(str(error))
        arrays = self._arrays(values)
        if arrays is None:  # Arrow refuses a value: look for it
            values, reasons = self._sifted(values, reasons)
            arrays = self._arrays(values)
            assert arrays is not None
        good, bad = parted(batch, reasons)
        schema = pa.schema([*good.schema, *self.columns])
        return DecodedRows(pa.RecordBatch.from_arrays([*good.columns, *arrays], schema=schema), bad)

    def _bodies(self, batch: pa.RecordBatch) -> Sequence[object]:
        bodies: list[object] = batch.column(BODY).to_pylist()
        if not self._reads_json or BODY_JSON not in batch.schema.names:
            return bodies
        texts = batch.column(BODY_JSON)
        if texts.null_count == len(texts):
            return bodies
        return [
            body if text is None else text.encode()
            for body, text in zip(bodies, texts.to_pylist(), strict=True)
        ]

    def _values(self, body: object) -> Values:
        if not isinstance(body, bytes):
            raise Undecodable("the message has no body")
        schema, at = self._schemas.schema_for(body)
        if (reason := self._admit(schema)) is not None:
            raise Undecodable(f"{schema.name}: {reason}")
        return schema.decode(body[at:] if at else body)

    def _admit(self, schema: BodySchema) -> str | None:
        """Have the columns of a schema; return why the table cannot."""
        if schema in self._admitted:
            return self._admitted[schema]
        reason = None
        try:
            found = pa.schema([pa.field(self._prefix + each.name, each.type) for each in schema.columns])
            require_storable(found, self._taken)
            found = self._stored(found)
            columns = merged(self.columns, found)
            require_storable(columns, self._taken)
            self.columns = columns
        except Conflict as conflict:
            reason = str(conflict)
        if len(self._admitted) >= ADMITTED_MAX:
            self._admitted.clear()
        self._admitted[schema] = reason
        return reason

    def _arrays(self, values: Sequence[Values]) -> list[pa.Array] | None:
        """Return the columns of some bodies; None if a value does not fit."""
        skip = len(self._prefix)
        try:
            return [
                pa.array([each.get(field.name[skip:]) for each in values], field.type)
                for field in self.columns
            ]
        except (pa.ArrowException, ValueError, TypeError, OverflowError):
            return None

    def _sifted(
        self, values: Sequence[Values], reasons: Sequence[str | None]
    ) -> tuple[list[Values], list[str | None]]:
        """Return the values that Arrow takes, and reasons for the others, too."""
        kept: list[Values] = []
        found: list[str | None] = []
        left = iter(values)
        skip = len(self._prefix)
        for reason in reasons:
            if reason is None:
                each = next(left)
                for field in self.columns:
                    try:
                        pa.array([each.get(field.name[skip:])], field.type)
                    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
                        reason = str(Undecodable(f"the value of column {field.name} does not fit: {error}"))
                        break
                else:
                    kept.append(each)
            found.append(reason)
        return kept, found


def parted(
    batch: pa.RecordBatch, reasons: Sequence[str | None]
) -> tuple[pa.RecordBatch, pa.RecordBatch | None]:
    """Return the rows without a reason, and those with one, which is a column of theirs."""
    column = pa.array(reasons, pa.string())
    if column.null_count == len(column):
        return batch, None
    bad = batch.append_column(REASON, column).filter(column.is_valid())
    return batch.filter(column.is_null()), bad

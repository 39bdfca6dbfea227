"""Encode Arrow record batches as blocks of messages for the broker (durable/store/block.py has the format).

    batch ── equal addresses, equal properties ──> groups ── pieces of about 1 MiB ──> blocks

Bodies are not touched: the block has the column's bytes and ends. Exchanges, routing keys and properties are encoded
once for each distinct value; only properties that differ in every row cost Python time for every row.

An origin in these blocks holds exchange and routing key. The broker reads the facts from the properties itself.
"""

from __future__ import annotations

import json
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias, cast

import attrs
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from leveret.durable.store.block import BLOCK_MESSAGES, SAME, WHICH, sealed
from leveret.durable.store.chunk import BIG_ENDIAN, octets_of
from leveret.pipeline.arrays import (
    Groups,
    Octets,
    as_octets,
    as_places,
    grouped,
    grouped_pairs,
    grouped_structs,
    lengths_of,
    nulls_in,
    paired,
    running_sum,
    taken,
)
from leveret.pipeline.arrow import Array, Batch, array_of
from leveret.pipeline.columns import Columns
from leveret.pipeline.errors import BadRow
from leveret.pipeline.row_properties import Fields, Pairs, from_pairs, from_variant, written
from leveret.pipeline.sink_options import SHORT_MAX, SinkOptions
from leveret.protocols.amqp010.broker.encoding import ENCODING as AMQP010
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.mqtt.broker.encoding import ENCODING as MQTT

ENCODINGS: Final = (AMQP010.name, ENCODING.name, AMQP10.name, MQTT.name)
REQUEST_OCTETS: Final = 1 << 20  # bytes of blocks in a request, unless one row has more
ORIGINS_OCTETS: Final = 64 << 10  # bytes of origins; if there are more, they are counted for each row
BLOCK_OCTETS: Final = REQUEST_OCTETS - 1024  # bytes of rows, with the extra of each, and of shared values
ROW_OCTETS: Final = 12  # extra of a row: its origin, the end of its properties, the end of its body
VARIANT: Final = ("value", "metadata")  # the fields of a variant in Arrow
REMEMBERED_MAX: Final = 4096  # distinct properties whose bytes are kept
REMEMBERED_SIZE_MAX: Final = 1024  # bytes; longer ones rarely come twice
# What an origin holds between encoding and exchange; the broker reads the facts from the properties itself.
FACTS: Final = json.dumps([False, 0, None, None, None, [], [], False, None], separators=(",", ":"))[1:-1]
KEY_LISTS: Final = frozenset(("CC", "BCC"))  # headers with further routing keys, which must be lists

Seen: TypeAlias = "tuple[Fields, Pairs | None]"  # properties and headers of a row as the columns have them


@attrs.frozen
class Made:
    """One or more blocks, and the number of their rows."""

    octets: bytes
    rows: int


def together(blocks: Iterable[Made]) -> Iterator[Made]:
    """Join as many blocks as fit a request: small batches become one request, and one commit of the broker."""
    held: list[bytes] = []
    octets = rows = 0
    for block in blocks:
        if held and octets + len(block.octets) > REQUEST_OCTETS:
            yield Made(b"".join(held), rows)
            held, octets, rows = [], 0, 0
        held.append(block.octets)
        octets += len(block.octets)
        rows += block.rows
    if held:
        yield Made(b"".join(held), rows)


class Encoder:
    """Encodes the rows of a query as blocks."""

    def __init__(self, columns: Columns, options: SinkOptions) -> None:
        self._columns = columns
        self._options = options
        self._remembered: dict[Seen, bytes] = {}

    def blocks(self, batch: Batch) -> Iterator[Made]:
        """Yield all rows in order. Raises BadRow."""
        if self._columns.encoding is None or self._columns.raw_properties is None:
            yield from self._blocks(batch, None)
            return
        raw = raw_encodings(batch.column(self._columns.encoding), batch.column(self._columns.raw_properties))
        for name, first, count in runs_of(raw):
            yield from self._blocks(cast(Batch, cast(Array, batch).slice(first, count)), name)

    def _blocks(self, batch: Batch, encoding: str | None) -> Iterator[Made]:
        """Yield rows that are all to be as they were in an encoding, or all made of their columns."""
        if not batch.num_rows:
            return
        bodies = self._bodies(batch) if encoding is None else self._raw_bodies(batch, encoding)
        origins = self._origins(batch, encoding or ENCODING.name)
        properties = self._properties(batch) if encoding is None else self._raw_properties(batch)
        for low, high in _cut(bodies, origins, properties):
            made = _block(origins.within(low, high), properties.within(low, high), bodies, low, high)
            yield Made(made, high - low)

    def _bodies(self, batch: Batch) -> Octets:
        name = self._columns.body
        column = batch.column(name)
        if nulls_in(column):
            raise BadRow(
                f"column '{name}' is null in a row; coalesce({name}, '') would make that an empty message"
            )
        return Octets(as_octets(column))

    def _raw_bodies(self, batch: Batch, encoding: str) -> Octets:
        """Return the bodies as they were: sections of AMQP 1.0 are made again of their contents, or are there."""
        if encoding != AMQP10.name:
            return self._bodies(batch)
        contents = cast("list[bytes]", as_octets(batch.column(self._columns.body)).to_pylist())
        raw = (
            [None] * len(contents)
            if self._columns.raw_body is None
            else (batch.column(self._columns.raw_body).to_pylist())
        )
        made = [
            AMQP10.body(content) if each is None else each
            for content, each in zip(contents, raw, strict=True)
        ]
        return Octets(array_of(made, pa.binary()))

    # Addresses.

    def _origins(self, batch: Batch, encoding: str) -> Groups[bytes]:
        addresses = paired(self._exchanges(batch), self._keys(batch))
        return Groups(addresses.which, [_origin(encoding, *each) for each in addresses.distinct])

    def _exchanges(self, batch: Batch) -> Groups[str]:
        name = self._columns.exchange
        if name is None:
            assert self._options.exchange is not None
            return Groups(None, [self._options.exchange])
        found = grouped(batch.column(name))
        if None in found.distinct:
            raise BadRow(f"column '{name}' is null in a row; the option exchange says where all rows go")
        return Groups(found.which, [_name(name, each) for each in found.distinct])

    def _keys(self, batch: Batch) -> Groups[str]:
        name = self._columns.routing_key
        if name is None:
            return Groups(None, [self._options.routing_key or ""])
        found = grouped(batch.column(name))
        return Groups(found.which, [_name(name, each) for each in found.distinct])

    # Properties.

    def _properties(self, batch: Batch) -> Groups[bytes]:
        fields: Groups[Fields] = Groups(None, [()])
        pairs: Groups[Pairs | None] = Groups(None, [None])
        if self._columns.properties is not None:
            fields = grouped_structs(batch.column(self._columns.properties), self._columns.fields)
        if self._columns.headers is not None:
            column = batch.column(self._columns.headers)
            pairs = grouped_structs(column, VARIANT) if self._columns.has_variants else grouped_pairs(column)
        found = paired(fields, pairs)
        return Groups(found.which, list(map(self._written, found.distinct)))

    def _raw_properties(self, batch: Batch) -> Groups[bytes]:
        assert self._columns.raw_properties is not None
        return cast("Groups[bytes]", grouped(batch.column(self._columns.raw_properties)))

    def _written(self, given: Seen) -> bytes:
        octets = self._remembered.get(given)
        if octets is None:
            fields, pairs = given
            read = from_variant if self._columns.has_variants else from_pairs
            octets = written(fields, None if pairs is None else read(pairs), self._options.persistent)
            if len(self._remembered) >= REMEMBERED_MAX:
                self._remembered.clear()
            if len(octets) <= REMEMBERED_SIZE_MAX:
                self._remembered[given] = octets
        return octets


def _name(column: str, given: object) -> str:
    """Return an exchange or a routing key. Bytes that are not UTF-8 become surrogates."""
    if given is None:
        return ""
    octets = given if isinstance(given, bytes) else str(given).encode()
    if len(octets) > SHORT_MAX:
        raise BadRow(
            f"column '{column}' has more than {SHORT_MAX} bytes in a row: it begins with {octets[:50]!r}"
        )
    return octets.decode("utf-8", "surrogateescape")


def _origin(encoding: str, exchange: str, key: str) -> bytes:
    return f'["{encoding}",{FACTS},{json.dumps(exchange)},{json.dumps(key)}]'.encode()


def raw_encodings(encodings: Array, properties: Array) -> Array:
    """Return the encoding of each row that is to be as it was; null for rows to be made of their columns.

    Raises BadRow for an encoding that is not known.
    """
    found = pc.if_else(pc.is_valid(properties), encodings, pa.scalar(None, pa.string()))
    for name in pc.unique(found).to_pylist():
        if name is not None and name not in ENCODINGS:
            raise BadRow(f"column 'encoding' is {name[:50]!r} in a row; known are {', '.join(ENCODINGS)}")
    return cast(Array, found)


def runs_of(values: Array) -> Iterator[tuple[str | None, int, int]]:
    """Yield the equal neighbours among some values: the value, the first index, the count."""
    encoded = pc.run_end_encode(values)
    first = 0
    for value, end in zip(encoded.values.to_pylist(), encoded.run_ends.to_pylist(), strict=True):
        yield value, first, end - first
        first = end


def _cut(bodies: Octets, origins: Groups[bytes], properties: Groups[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the rows [low, high) of each block."""
    lengths = [bodies.lengths()]
    shared = sum(map(len, origins.distinct))
    if shared > ORIGINS_OCTETS:
        lengths.append(lengths_of(origins))
        shared = 0
    if properties.which is None:
        shared += len(properties.distinct[0])
    else:
        lengths.append(lengths_of(properties))
    sums = running_sum(lengths, ROW_OCTETS)
    low = 0
    while low < len(sums):
        most = min(low + BLOCK_MESSAGES, len(sums))
        before = sums[low - 1] if low else 0
        high = max(bisect_right(sums, before + BLOCK_OCTETS - shared, low, most), low + 1)
        yield low, high
        low = high


def _block(origins: Groups[bytes], properties: Groups[bytes], bodies: Octets, low: int, high: int) -> bytes:
    """Return the block of the rows [low, high), with groups of just these rows."""
    kinds = b"[" + b",".join(origins.distinct) + b"]"
    flags = 0
    parts: list[bytes | memoryview[int]] = [kinds]
    if origins.which is not None:
        flags |= WHICH
        parts.append(_listed(as_places(origins.which)))
    if properties.which is None:
        flags |= SAME
        parts.append(properties.distinct[0])
    else:
        all_of_them = taken(properties.distinct, properties.which)
        parts += (_listed(all_of_them.ends(0, high - low)), all_of_them.octets(0, high - low))
    properties_octets = len(parts[-1])
    parts += (_listed(bodies.ends(low, high)), bodies.octets(low, high))
    sizes = len(origins.distinct), len(kinds), properties_octets, len(parts[-1])
    return sealed(flags, high - low, 0, 0, sizes, parts)


def _listed(numbers: memoryview[int]) -> bytes | memoryview[int]:
    """Return numbers as a block stores them, little-endian."""
    return octets_of(array("I", numbers)) if BIG_ENDIAN else numbers.cast("B")

"""Convert blocks of a stream to an Arrow IPC stream, a batch for each block. pyarrow is loaded when it is first
needed."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final

from leveret.durable.store.block import Block, Column, pieces
from leveret.durable.store.origin import EncodingOf
from leveret.message import Encoding

if TYPE_CHECKING:
    import pyarrow  # type: ignore[import-untyped]

ROW_OCTETS: Final = 48  # bytes of a row besides texts, properties and body, roughly
COLUMNS: Final = ("offset", "timestamp", "exchange", "routing_key", "body", "properties", "encoding")
PLACES: Final = {"exchange": -2, "routing_key": -1, "encoding": 0}  # in an origin of a block


def is_there() -> bool:
    """Return whether pyarrow is installed."""
    return find_spec("pyarrow") is not None


def made(
    octets: bytes,
    offset: int,
    until: int | None,
    octets_max: int,
    encoding_of: EncodingOf,
    columns: Sequence[str] = COLUMNS,
) -> tuple[bytes, int]:
    """Return an Arrow IPC stream of the messages from `offset` on, and the offset to go on at. It has those of
    `COLUMNS` that are asked for, in that order.

    A block may say in a few bytes what becomes a long column. Messages that would exceed `octets_max`, not counting
    bodies and other data that the block has for each message, are left for the next request; the first is always
    included. Raises DamagedError if a block cannot be read.
    """
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    at, room = 0, octets_max
    with pa.ipc.new_stream(sink, schema(columns)) as writer:
        while at < len(octets) and room > 0:
            block = Block(octets, at)
            head = block.header
            at += head.octets
            begin = max(offset, head.first)
            end = head.next if until is None else min(head.next, until)
            if begin >= end:
                continue
            each = row_octets(block, columns)
            rows = min(end - begin, max(1, room // each))
            writer.write_batch(batch(block, begin - head.first, rows, encoding_of, columns))
            room = room - rows * each if rows == end - begin else 0
            offset = begin + rows
    return sink.getvalue().to_pybytes(), offset


def row_octets(block: Block, columns: Sequence[str]) -> int:
    """Return how many bytes a message takes up of data that the block has once for several messages."""
    places = [place for name, place in PLACES.items() if name in columns]
    texts = max(sum(len(str(origin[place])) for place in places) for origin in block.origins)
    shared = len(block.properties) if block.property_ends is None and "properties" in columns else 0
    return ROW_OCTETS + 4 * texts + shared


def schema(columns: Sequence[str] = COLUMNS) -> pyarrow.Schema:
    import pyarrow as pa

    kinds = {
        "offset": pa.int64(),
        "timestamp": pa.timestamp("ms", "UTC"),
        "body": pa.binary(),
        "properties": pa.binary(),
    }
    return pa.schema([(name, kinds.get(name, pa.string())) for name in columns])


def batch(
    block: Block, begin: int, rows: int, encoding_of: EncodingOf, columns: Sequence[str]
) -> pyarrow.RecordBatch:
    """Return some messages of a block as a batch. Columns that the block has for each message are not copied."""
    import pyarrow as pa

    made = [_column(name, block, begin, rows, encoding_of) for name in columns]
    return pa.RecordBatch.from_arrays(made, schema=schema(columns))


def _column(name: str, block: Block, begin: int, rows: int, encoding_of: EncodingOf) -> pyarrow.Array:
    import pyarrow as pa

    if name in PLACES:
        return _texts(block, PLACES[name], begin, rows)
    if name == "body":
        return _bodies(block, begin, rows, encoding_of)
    if name == "properties":
        return _properties(block, begin, rows)
    if name == "timestamp" and block.arrivals is not None:
        times = pa.py_buffer(block.arrivals)
        return pa.Array.from_buffers(pa.timestamp("ms", "UTC"), rows, [None, times], offset=begin)
    if name == "timestamp":
        return pa.repeat(pa.scalar(block.header.arrived, pa.timestamp("ms", "UTC")), rows)
    first = block.header.first + begin
    offsets = pa.py_buffer(array("q", range(first, first + rows)))
    return pa.Array.from_buffers(pa.int64(), rows, [None, offsets])


def _texts(block: Block, place: int, begin: int, rows: int) -> pyarrow.Array:
    """Return a field of each message's origin as a column. What is not UTF-8 becomes replacement characters."""
    import pyarrow as pa

    texts = [
        str(origin[place]).encode("utf-8", "surrogatepass").decode("utf-8", "replace")
        for origin in block.origins
    ]
    if block.which is None or len(set(texts)) == 1:
        return pa.repeat(pa.scalar(texts[0], pa.string()), rows)
    which = pa.Array.from_buffers(pa.uint32(), rows, [None, pa.py_buffer(block.which)], offset=begin)
    return pa.array(texts, pa.string()).take(which)


def _properties(block: Block, begin: int, rows: int) -> pyarrow.Array:
    import pyarrow as pa

    if block.property_ends is None:
        return pa.repeat(pa.scalar(bytes(block.properties), pa.binary()), rows)
    return _octets(block.properties, block.property_ends, begin, rows)


def _bodies(block: Block, begin: int, rows: int, encoding_of: EncodingOf) -> pyarrow.Array:
    """Return the plain bodies, also of a protocol that wraps them, if its encoding is installed."""
    import pyarrow as pa

    plain = [unwrapping(encoding_of(str(origin[0]))) for origin in block.origins]
    if not any(plain):
        return _octets(block.bodies, block.body_ends, begin, rows)
    bodies = pieces(block.bodies, block.body_ends)[begin : begin + rows]
    which = [0] * rows if block.which is None else block.which[begin : begin + rows].tolist()
    found = [
        body if (unwrapped := plain[kind]) is None else unwrapped(body)
        for body, kind in zip(bodies, which, strict=True)
    ]
    return pa.array(found, pa.binary())


def unwrapping(encoding: Encoding | None) -> Callable[[bytes], bytes] | None:
    """Return the function that unwraps a body, or None if bodies are plain."""
    if encoding is None or type(encoding).octets is Encoding.octets:
        return None
    return encoding.octets


def _octets(octets: memoryview[int], ends: Column, begin: int, rows: int) -> pyarrow.Array:
    import pyarrow as pa

    buffers = [None, pa.py_buffer(ends), pa.py_buffer(octets)]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, offset=begin)

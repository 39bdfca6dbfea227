"""Read a range of a stream or lease as record batches, which is one task. Missing messages are reported."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Protocol

from leveret.durable.store.contract import DamagedError
from leveret.pipeline.arrow import Batch, Schema
from leveret.pipeline.client import Client, Fetched
from leveret.pipeline.decode import Decoder
from leveret.pipeline.errors import Ahead, Expired, Missing, PipelineError, Remade
from leveret.pipeline.leases import LeasedBlocks
from leveret.pipeline.offsets import Range
from leveret.pipeline.options import Options
from leveret.pipeline.planner import lost
from leveret.pipeline.row_filter import row_filter

if TYPE_CHECKING:
    from leveret.pipeline.filters import Filters


class Blocks(Protocol):
    """The source of blocks: a `Client`, or `LeasedBlocks`."""

    def blocks(self, name: str, incarnation: str, first: int, until: int) -> Fetched: ...


def rows_of(
    options: Options, columns: Schema, wanted: Range, conditions: Filters | None = None
) -> Iterator[Batch]:
    """Yield the rows of a range, which are fetched from the broker. Raises PipelineError."""
    client = Client(options)
    try:
        source: Blocks = client
        if wanted.fence is not None:
            source, conditions = LeasedBlocks(client, wanted.fence), None
        chosen = row_filter(options)
        decoder = Decoder(columns, options.columns, wanted.stream, wanted.partition, conditions, chosen)
        yield from read(options, source, decoder, wanted)
    finally:
        client.close()


def read(options: Options, source: Blocks, decoder: Decoder, wanted: Range) -> Iterator[Batch]:
    """Yield every message of the range once, in order, but for what the decoder leaves out. Raises PipelineError."""
    at = wanted.first
    while at < wanted.until:
        try:
            fetched = source.blocks(wanted.name, wanted.incarnation, at, wanted.until)
        except Expired as expired:
            following = min(max(expired.first, at + 1), wanted.until)
            _gap(options, wanted, at, following, str(expired))
            at = following
            continue
        except (Remade, Ahead, Missing) as gone:
            _gap(options, wanted, at, wanted.until, str(gone))
            return
        following = min(fetched.next, wanted.until)
        if following <= at:
            raise PipelineError(f"{_where(wanted)}: the broker gives no message at offset {at}")
        try:
            for batch, begin, end in decoder.batches(fetched.octets, at, following):
                _gap(options, wanted, at, begin, "they are not among the blocks the broker gives")
                if batch is not None:
                    yield batch
                at = end
        except DamagedError as damaged:
            raise PipelineError(f"{_where(wanted)}, after offset {at}: {damaged}") from None
        _gap(options, wanted, at, following, "they are not among the blocks the broker gives")
        if decoder.is_over:
            return
        at = following


def _gap(options: Options, wanted: Range, begin: int, end: int, why: str) -> None:
    if begin < end:
        lost(options, f"{_where(wanted)}: offsets {begin} to {end - 1} are gone: {why}")


def _where(wanted: Range) -> str:
    if wanted.fence is not None:
        return f"the lease of queue '{wanted.stream}'"
    return f"partition {wanted.partition} of stream '{wanted.stream}'"

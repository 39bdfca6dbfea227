"""Measure stream filters: what a block's filter costs, and what a reader of one value in a hundred saves, in process.

python -m benchmarks filters
"""

from __future__ import annotations

import statistics
import time
from typing import Final

from leveret.durable.store import block
from leveret.durable.store.contract import Append, Span
from leveret.durable.store.segment import SegmentReader
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.selectors.bloom import FILTER_OCTETS, BloomQuery

BLOCKS: Final = 1000
VALUES: Final = 100  # of the stream; a block has messages of one
LOADS: Final = ((1, 100), (100, 100), (1000, 100), (100, 4096))  # messages of a block, bytes of a body


def filters(rounds: int) -> None:
    """Print a line for each kind of block."""
    print(f"\n## Stream filters: {BLOCKS:,} blocks, of which {BLOCKS // VALUES} have a wanted message\n")
    print(
        "| block | bytes | of the filter | packed, us a message | without, us | bytes read | all blocks | search, ms |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for count, size in LOADS:
        print(_line(count, size, rounds))


def _line(count: int, size: int, rounds: int) -> str:
    batches = [_messages(number % VALUES, count, size) for number in range(BLOCKS)]
    blocks = _packed(batches, FILTER_OCTETS)
    plain = _packed(batches[:1], 0)[0]
    with_filter = statistics.median(_seconds(batches, FILTER_OCTETS) for _ in range(rounds))
    without = statistics.median(_seconds(batches, 0) for _ in range(rounds))
    octets, read, seconds = _read(b"".join(blocks), count)
    each = BLOCKS * count / 1e6
    return (
        f"| {count:,} of {size:,} B | {len(blocks[0]):,} | {len(blocks[0]) - len(plain)} | {with_filter / each:.2f} | "
        f"{without / each:.2f} | {read:,} | {octets:,} | {seconds * 1000:.1f} |"
    )


def _messages(value: int, count: int, size: int) -> list[Message]:
    facts = Facts(durable=True, has_headers=True)
    return [
        Message(
            ENCODING,
            "",
            "s",
            BasicProperties(headers={"x-stream-filter-value": str(value), "n": number}).encode(),
            bytes(size),
            facts,
        )
        for number in range(count)
    ]


def _packed(batches: list[list[Message]], filter_octets: int) -> list[bytes]:
    packed, first = [], 0
    for messages in batches:
        append = Append(1, 0, first, 0, messages)
        append.filter_octets = filter_octets
        packed.append(block.pack(append))
        first = append.next
    return packed


def _seconds(batches: list[list[Message]], filter_octets: int) -> float:
    began = time.perf_counter()
    _packed(batches, filter_octets)
    return time.perf_counter() - began


def _read(octets: bytes, count: int) -> tuple[int, int, float]:
    """Return the bytes of all blocks, those that a filtered reader reads of them, and the time that takes."""
    span, looks, wanted = Span(1, 0, BLOCKS * count, len(octets), 0, 0, 0), SegmentReader(), BloomQuery(["7"])
    read = offset = 0

    def pread(at: int, length: int) -> bytes:
        nonlocal read
        read += len(found := octets[at : at + length])
        return found

    began = time.perf_counter()
    while offset < span.next:
        place = looks.wanted(span, pread, offset, span.next, wanted)
        if place.octets:
            looks.blocks(span, pread, place.first, place.next, place.octets)
        offset = place.next
    return len(octets), read, time.perf_counter() - began

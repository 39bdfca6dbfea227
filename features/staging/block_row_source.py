"""Draw the rows of a staging from its log on disk: a thread reads blocks, which are decoded as rows are wanted.

A block whose rows are all routed alike need not be decoded at all.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from leveret.durable.store import block
from leveret.durable.store.contract import DamagedError, Packed
from leveret.features.staging.row_source import RowSource, Whole
from leveret.message import Message

if TYPE_CHECKING:
    from leveret.durable.segment_log import SegmentLog
    from leveret.durable.store.origin import EncodingOf
    from leveret.message import Facts
    from leveret.queues.stream_log import Found

READ_OCTETS: Final = 1 << 20  # bytes of blocks that are read at once, and one block
KINDS_MAX: Final = 256  # kinds of messages in a block that is returned whole: 1 ms


class BlockRowSource(RowSource):
    """A source of rows from a log in segments."""

    __slots__ = ("_asked", "_at", "_current", "_encoding_of", "_hole", "_log", "_octets")

    def __init__(self, log: SegmentLog, encoding_of: EncodingOf) -> None:
        self._log = log
        self._encoding_of = encoding_of
        self._octets = b""  # blocks that were read
        self._at = 0  # where the next of them begins
        self._current: OpenedBlock | None = None
        self._hole = range(0)  # offsets that cannot be read
        self._asked: int | None = None  # the offset that is being fetched

    def read(self, offset: int, until: int, quota: int, room: int) -> Found | None:
        offset = self._readable(offset)
        if offset >= min(until, self._log.committed):
            return (), []
        try:
            opened = self._find(offset)
        except DamagedError as damage:
            self._hole = range(offset, self._log.add_hole(offset, damage))
            return self.read(offset, until, quota, room)
        return None if opened is None else opened.read(offset, until, quota, room)

    def _readable(self, offset: int) -> int:
        return self._hole.stop if offset in self._hole else offset

    def _find(self, offset: int) -> OpenedBlock | None:
        """Return the block that has an offset, if it was read. Raises DamagedError."""
        while self._current is None or not self._current.first <= offset < self._current.next:
            self._current = None
            if self._at >= len(self._octets):
                self._octets, self._at = b"", 0
                return None
            opened = block.Block(self._octets, self._at)
            begin, self._at = self._at, self._at + opened.header.octets
            if opened.header.first <= offset < opened.header.next:
                self._current = OpenedBlock(
                    opened, memoryview(self._octets)[begin : self._at], self._encoding_of
                )
        return self._current

    def fetch(self, offset: int, until: int, then: Callable[[], None]) -> None:
        if self._asked != offset:
            self._asked = offset
            self._log.raw(offset, until, READ_OCTETS, lambda found: self._arrived(offset, found, then))

    def _arrived(self, offset: int, result: bytes | Exception, then: Callable[[], None]) -> None:
        if self._asked != offset:
            return
        self._asked = None
        if isinstance(result, DamagedError):
            self._hole = range(offset, result.next or offset + 1)
        elif isinstance(result, Exception) or not result:
            return  # the log has ended, or the node is ending
        else:
            self._octets, self._at, self._current = result, 0, None
        then()

    def whole(self, offset: int, until: int) -> Whole | None:
        try:
            opened = self._find(offset)
        except DamagedError:
            return None  # `read` notes the hole
        if opened is None or opened.first != offset or opened.next > until:
            return None
        samples = opened.samples()
        return None if samples is None else (opened.packed(), samples)


class OpenedBlock:
    """A block with the messages decoded from it on demand."""

    __slots__ = ("_block", "_bodies", "_kinds", "_known", "_octets", "_properties", "first", "next")

    def __init__(self, opened: block.Block, octets: memoryview[int], encoding_of: EncodingOf) -> None:
        """Open a block. Raises DamagedError if the protocol of a message is not installed."""
        self.first, self.next = opened.header.first, opened.header.next
        self._block = opened
        self._octets = octets
        self._kinds = block.kinds_of(opened.origins, encoding_of)
        self._bodies = b""  # copied when they are wanted
        self._properties = bytes(opened.properties)
        self._known: dict[tuple[int, bytes], Facts] = {}

    def read(self, offset: int, until: int, quota: int, room: int) -> Found:
        """Return some messages from an offset on, at least one."""
        opened, start = self._block, offset - self.first
        end = min(start + quota, opened.header.count, until - self.first)
        for ends in (opened.body_ends, opened.property_ends):
            if ends is not None:
                end = bisect_left(ends, ends[start] + room, start + 1, end)
        return range(offset, self.first + end), self._messages(start, end)

    def _messages(self, start: int, end: int) -> list[Message]:
        opened = self._block
        if not self._bodies:
            self._bodies = bytes(opened.bodies)
        bodies, ends = self._bodies, opened.body_ends[start : end + 1].tolist()
        if opened.which is None and opened.property_ends is None:
            encoding, exchange, key, _, notes = self._kinds[0]
            raw, facts = self._properties, self._facts(0, self._properties)
            return [
                Message(encoding, exchange, key, raw, bodies[low:high], facts, notes)
                for low, high in pairwise(ends)
            ]
        places = [0] * (end - start) if opened.which is None else opened.which[start:end].tolist()
        messages = []
        for place, raw, (low, high) in zip(places, self._raws(start, end), pairwise(ends), strict=True):
            encoding, exchange, key, _, notes = self._kinds[place]
            facts = self._known.get((place, raw)) or self._facts(place, raw)
            messages.append(Message(encoding, exchange, key, raw, bodies[low:high], facts, notes))
        return messages

    def _raws(self, start: int, end: int) -> list[bytes]:
        ends, properties = self._block.property_ends, self._properties
        if ends is None:
            return [properties] * (end - start)
        return [properties[low:high] for low, high in pairwise(ends[start : end + 1].tolist())]

    def _facts(self, place: int, raw: bytes) -> Facts:
        """Return the facts of a kind's encoded properties, one shared object for the same properties."""
        known = self._known.get((place, raw))
        if known is None:
            encoding, _, _, facts, _ = self._kinds[place]
            known = self._known[place, raw] = encoding.restored(facts, raw)
        return known

    def samples(self) -> list[Message] | None:
        """Return one message of each kind, without body; None if there are many kinds, or messages of a kind differ."""
        opened = self._block
        if (
            opened.property_ends is not None
            or opened.positions is not None
            or opened.arrivals is not None
            or len(self._kinds) > KINDS_MAX
        ):
            return None
        raw = self._properties
        return [
            Message(encoding, exchange, key, raw, b"", self._facts(place, raw), notes)
            for place, (encoding, exchange, key, _, notes) in enumerate(self._kinds)
        ]

    def packed(self) -> Packed:
        head = self._block.header
        return Packed(bytes(self._octets), head.count, head.bodies_octets)

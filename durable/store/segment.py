"""Find and read the blocks of a segment by offset or time, however damaged it is.

    blocks, one after the other ──> index: an entry each 64 KiB or more, made on demand by skipping over blocks

Where a header is damaged, the place of the next block is unknown: it is searched for, and what lies between counts as
lost. A block is returned only if its checksums match and its messages are those that should be there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, TypeAlias
from zlib import crc32

import attrs

from leveret.durable.store.block import HEADER_OCTETS, MAGIC, BlockHeader, filter_at, header
from leveret.durable.store.contract import Append, BlockRange, DamagedError, Span
from leveret.selectors.bloom import FILTER_MAX, BloomQuery

ENTRY_OCTETS: Final = 1 << 16  # between two entries of an index
WINDOW_OCTETS: Final = 1 << 16  # read at a time, to skip from header to header,
SEARCH_OCTETS: Final = 1 << 20  # and to search for a block
PEEK_OCTETS: Final = 1 << 9  # read at a time, to look at the filter of a large block
READ_OCTETS: Final = 1 << 18  # of blocks that a search by filters returns, plus one block
BLOCKS: Final = 2000  # that it looks at: 5 ms if they are small
INDEXES: Final = 256  # cached: 24 KiB for a segment of 64 MiB
ALIGNED: Final = 8  # blocks begin at multiples of that
FOREVER: Final = 1 << 64

# Reads bytes of a segment's file: at, length. Fewer if it ends, none if there is no file. Raises StoreError.
Read: TypeAlias = Callable[[int, int], bytes]


# The valid part.


def begun_by(append: Append) -> Span:
    """Return the span of the segment that begins with an append, before anything is written."""
    return Span(append.stream, append.first, append.first, 0, 0, append.arrived, append.arrived)


def longer(span: Span, append: Append, octets: int) -> Span:
    """Return the span with an append at its end; `octets` is the file's new size in bytes."""
    return attrs.evolve(
        span, next=append.next, octets=octets, bodies=span.bodies + append.bodies, last=append.arrived
    )


def found_in(stream: int, first: int, octets: int, until: int, read: Read) -> Span:
    """Return the span that a file without a row must have: its blocks, as long as they are consecutive.

    `octets` is the size of the file, `until` the first offset of the next segment. Raises StoreError.
    """
    span = Span(stream, first, first, 0, 0, 0, 0)
    with suppress(DamagedError):  # it ends there
        for at, head in SegmentFile(attrs.evolve(span, next=until, octets=octets), read).hop(0, first):
            span = attrs.evolve(
                span,
                next=head.next,
                octets=at + head.octets,
                bodies=span.bodies + head.bodies_octets,
                begun=span.begun or head.arrived,
                last=head.arrived,
            )
    return span


# Reading.


class SegmentReader:
    """Reads segments, and caches the indexes of their blocks. For one thread."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[tuple[int, int], Index] = OrderedDict()

    def blocks(self, span: Span, read: Read, offset: int, until: int, octets: int) -> bytes:
        """See `Reader.blocks`."""
        if offset >= min(until, span.next):
            return b""
        look = SegmentFile(span, read)
        at, head = self._index(span).find(look, offset)
        found = read(at, max(head.octets, min(octets, span.octets - at)))
        if not is_whole(found, 0, head):
            raise _lost(span, offset, head.next, "the checksum of a block does not fit")
        end, next_first = head.octets, head.next
        while next_first < until and end + HEADER_OCTETS <= len(found):
            try:
                head = look.header(found, at, end, next_first)
            except DamagedError:
                break
            if end + head.octets > len(found) or not is_whole(found, end, head):
                break
            end, next_first = end + head.octets, head.next
        return found[:end]

    def wanted(self, span: Span, read: Read, offset: int, until: int, wanted: BloomQuery) -> BlockRange:
        """See `Reader.wanted`. Look at no more than BLOCKS blocks, and find READ_OCTETS bytes and a block at most."""
        if offset >= until:
            return BlockRange(until, until, 0)
        look = SegmentFile(span, read)
        at, head = self._index(span).find(look, offset)
        first = after = offset
        octets = 0
        try:
            for number, (each, bits) in enumerate(look.filters(at, head.first)):
                if each.first >= until or number >= BLOCKS or octets >= READ_OCTETS:
                    break
                if wanted.may_be_in(bits):
                    first = first if octets else max(offset, each.first)
                    octets += each.octets
                elif octets:
                    break
                after = each.next
        except DamagedError as error:
            if after == offset:
                raise _lost(span, offset, head.next, str(error)) from None
        after = min(after, until)
        return BlockRange(first if octets else after, after, octets)

    def offset_since(self, span: Span, read: Read, until: int, arrived: int) -> int:
        """See `Reader.offset_since`."""
        return self._index(span).since(SegmentFile(span, read), until, arrived)

    def _index(self, span: Span) -> Index:
        key = span.stream, span.first
        index = self._indexes.get(key)
        if index is None:
            index = self._indexes[key] = Index(span.first)
            if len(self._indexes) > INDEXES:
                self._indexes.popitem(last=False)
        else:
            self._indexes.move_to_end(key)
        return index


class SegmentFile:
    """A segment, and the function that reads its file."""

    __slots__ = ("read", "span")

    def __init__(self, span: Span, read: Read) -> None:
        self.span = span
        self.read = read

    def hop(self, at: int, first: int) -> Iterator[tuple[int, BlockHeader]]:
        """Yield headers and their places, from a block whose first offset is known. Raises DamagedError, StoreError."""
        for place, head, _, _ in self._walk(at, first, 0):
            yield place, head

    def filters(self, at: int, first: int) -> Iterator[tuple[BlockHeader, bytes]]:
        """Yield headers and Bloom filters like `hop`."""
        for _, head, window, begin in self._walk(at, first, FILTER_MAX):
            yield head, filter_at(window, begin, head)

    def _walk(self, at: int, first: int, more: int) -> Iterator[tuple[int, BlockHeader, bytes, int]]:
        """Yield places and headers, and bytes that have a header and `more` bytes behind it, from where on.

        Small blocks are read many at a time, of large ones little more than that.
        """
        window, begin, end = b"", at, at
        octets = self.span.octets
        while at < octets:
            if end < min(at + HEADER_OCTETS + more, octets):
                reach = WINDOW_OCTETS if begin < at <= end else PEEK_OCTETS
                window, begin = self.read(at, min(reach, octets - at)), at
                end = at + len(window)
            head = self.header(window, begin, at - begin, first)
            yield at, head, window, at - begin
            at, first = at + head.octets, head.next

    def header(self, octets: bytes, begin: int, at: int, first: int) -> BlockHeader:
        """Decode a header in bytes read from `begin` on. Raises DamagedError if it is not that of `first`."""
        head = header(octets, at)
        if head.first != first:
            raise DamagedError(f"there is a block of {head.first} where that of {first} should be")
        self._fit(begin + at, head)
        return head

    def _fit(self, at: int, head: BlockHeader) -> None:
        if at + head.octets > self.span.octets or head.next > self.span.next:
            raise DamagedError("a block goes on behind the end of its segment")

    def search(self, at: int, first: int) -> tuple[int, int]:
        """Return the place and first offset of the next block after damage; another must follow, or it is the last.

        Returns the end if there is none. Raises StoreError.
        """
        span = self.span
        at += ALIGNED
        while at < span.octets:
            window = self.read(at, min(SEARCH_OCTETS, span.octets - at))
            place = window.find(MAGIC)
            while place >= 0:
                if place % ALIGNED == 0 and (found := self._block_at(at + place, first)) is not None:
                    return at + place, found
                place = window.find(MAGIC, place + 1)
            at += len(window) or span.octets
        return span.octets, span.next

    def _block_at(self, at: int, first: int) -> int | None:
        """Return the first offset of the block there, or None: a message's body may look like a header."""
        try:
            head = header(self.read(at, HEADER_OCTETS))
            self._fit(at, head)
            if at + head.octets < self.span.octets:
                self.header(self.read(at + head.octets, HEADER_OCTETS), at + head.octets, 0, head.next)
            elif head.next != self.span.next:
                return None
        except DamagedError:
            return None
        return head.first if head.first >= first else None


class Index:
    """The places of a segment's blocks, as far as they were needed."""

    __slots__ = ("_ats", "_behind_damage", "_firsts", "_latest", "_latest_before", "_next", "_to")

    def __init__(self, first: int) -> None:
        self._firsts = array("Q")  # offset of the first message of a block
        self._ats = array("Q")  # where that block is
        self._latest_before = array("q")  # the latest arrival in any block before it: clocks may go back
        self._to, self._next = 0, first  # how far the segment is known, in bytes and offsets
        self._latest = -1
        self._behind_damage = False  # the next block needs an entry: skipping does not reach it

    def find(self, look: SegmentFile, offset: int) -> tuple[int, BlockHeader]:
        """Return the place and header of the block that has an offset. Raises DamagedError, StoreError."""
        self._extend(look, offset + 1)
        place = bisect_right(self._firsts, offset) - 1
        why = "the block before them is damaged"
        if place >= 0:
            try:
                for at, head in look.hop(self._ats[place], self._firsts[place]):
                    if head.next > offset:
                        return at, head
            except DamagedError as error:
                why = str(error)
        place += 1
        next_first = self._firsts[place] if place < len(self._firsts) else self._next
        raise _lost(look.span, offset, next_first, why)

    def since(self, look: SegmentFile, until: int, arrived: int) -> int:
        """Return the first offset of the first block that arrived at `arrived` or later, or `until` if that is less."""
        self._extend(look, until, arrived)
        reached = 0
        for place in range(max(bisect_left(self._latest_before, arrived) - 1, 0), len(self._firsts)):
            if self._firsts[place] < reached:
                continue
            try:
                for _, head in look.hop(self._ats[place], self._firsts[place]):
                    if head.arrived >= arrived or head.first >= until:
                        return min(head.first, until)
                    reached = head.next
            except DamagedError:
                continue  # after the damage there is another entry, if anything is readable there
        return until

    def _extend(self, look: SegmentFile, until: int, arrived: int = FOREVER) -> None:
        """Index the segment up to an offset, or to a block that arrived at `arrived` or later. Raises StoreError."""
        while self._to < look.span.octets and self._next < until and self._latest < arrived:
            try:
                for at, head in look.hop(self._to, self._next):
                    self._take(at, head)
                    if self._next >= until or self._latest >= arrived:
                        return
            except DamagedError:
                self._to, self._next = look.search(self._to, self._next)
                self._behind_damage = True

    def _take(self, at: int, head: BlockHeader) -> None:
        if not self._ats or self._behind_damage or at - self._ats[-1] >= ENTRY_OCTETS:
            self._firsts.append(head.first)
            self._ats.append(at)
            self._latest_before.append(self._latest)
            self._behind_damage = False
        self._to, self._next = at + head.octets, head.next
        self._latest = max(self._latest, head.arrived)


def gaps(span: Span, read: Read) -> Iterator[tuple[int, int, str]]:
    """Read all of a segment and yield what is unreadable: offsets from, up to, and why. Raises StoreError."""
    looks, offset = SegmentReader(), span.first
    while offset < span.next:
        try:
            octets = looks.blocks(span, read, offset, span.next, SEARCH_OCTETS)
        except DamagedError as error:
            next_offset = error.next or span.next
            yield offset, next_offset, str(error)
            offset = next_offset
        else:
            offset = end_of(octets)


def end_of(octets: bytes) -> int:
    """Return the offset after whole blocks, at least one."""
    at = 0
    while at < len(octets):
        head = header(octets, at)
        at += head.octets
    return head.next


def is_whole(octets: bytes, at: int, head: BlockHeader) -> bool:
    """Return whether all of a block is there, as it was written."""
    end = at + head.octets
    return end <= len(octets) and crc32(memoryview(octets)[at + HEADER_OCTETS : end]) == head.checksum


def not_there(stream: int, first: int, until: int) -> DamagedError:
    """Return the error for a segment that the store does not know: it was deleted, or its row is damaged."""
    return DamagedError(f"stream {stream}: there is no segment of {first}", until)


def _lost(span: Span, offset: int, next_offset: int, why: str) -> DamagedError:
    text = f"stream {span.stream}: messages from {offset} to {next_offset - 1} cannot be read: {why}"
    return DamagedError(text, next_offset)

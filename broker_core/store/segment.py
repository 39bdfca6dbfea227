"""A segment looked into: offsets and times to blocks, however damaged it is.

    blocks, one after the other ──> index: an entry each 64 KiB or more, made by hopping over headers when it is needed

Where a header is damaged, nobody knows where the next block begins: it is searched for, and what lies between counts as
lost. A block is given out only if its checksums fit and its messages are those that should be there.
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

from broker_core.store.block import HEADER_OCTETS, MAGIC, BlockHeader, header
from broker_core.store.contract import Append, DamagedError, Span

ENTRY_OCTETS: Final = 1 << 16  # between two entries of an index
WINDOW_OCTETS: Final = 1 << 16  # read at a time, to hop over headers,
SEARCH_OCTETS: Final = 1 << 20  # and to search for one
INDEXES: Final = 256  # remembered: 24 KiB for a segment of 64 MiB
ALIGNED: Final = 8  # blocks begin at multiples of that
FOREVER: Final = 1 << 64

# Octets of a segment's file: at, length. Fewer if there are no more, none if there is no file. Raises StoreError.
Read: TypeAlias = Callable[[int, int], bytes]


# What is valid.


def begun_by(append: Append) -> Span:
    """The segment that begins with it, with nothing in it yet."""
    return Span(append.stream, append.first, append.first, 0, 0, append.arrived, append.arrived)


def longer(span: Span, append: Append, octets: int) -> Span:
    """The segment with that at its end; `octets`: of its file then."""
    return attrs.evolve(
        span, next=append.next, octets=octets, bodies=span.bodies + append.bodies, last=append.arrived
    )


def found_in(stream: int, first: int, octets: int, until: int, read: Read) -> Span:
    """What a file must have, of which nothing is said: its blocks, as long as they follow each other.

    `octets`: of the file. `until`: the next segment begins there. Raises StoreError.
    """
    span = Span(stream, first, first, 0, 0, 0, 0)
    with suppress(DamagedError):  # there it ends
        for at, head in Look(attrs.evolve(span, next=until, octets=octets), read).hop(0, first):
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


class Looks:
    """Looks into segments, and remembers where their blocks are. For one thread."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[tuple[int, int], Index] = OrderedDict()

    def blocks(self, span: Span, read: Read, offset: int, until: int, octets: int) -> bytes:
        """As `Reader.blocks`."""
        if offset >= min(until, span.next):
            return b""
        look = Look(span, read)
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

    def offset_since(self, span: Span, read: Read, until: int, arrived: int) -> int:
        """As `Reader.offset_since`."""
        return self._index(span).since(Look(span, read), until, arrived)

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


class Look:
    """A segment, and how to read it."""

    __slots__ = ("read", "span")

    def __init__(self, span: Span, read: Read) -> None:
        self.span = span
        self.read = read

    def hop(self, at: int, first: int) -> Iterator[tuple[int, BlockHeader]]:
        """Headers and where they are, from a block on whose first offset is known. Raises DamagedError, StoreError."""
        window, begin = b"", at
        while at < self.span.octets:
            if at + HEADER_OCTETS > begin + len(window):
                window, begin = self.read(at, min(WINDOW_OCTETS, self.span.octets - at)), at
            head = self.header(window, begin, at - begin, first)
            yield at, head
            at, first = at + head.octets, head.next

    def header(self, octets: bytes, begin: int, at: int, first: int) -> BlockHeader:
        """A header within octets that begin somewhere in the segment. Raises DamagedError: it cannot be this one."""
        head = header(octets, at)
        if head.first != first:
            raise DamagedError(f"there is a block of {head.first} where that of {first} should be")
        self._fit(begin + at, head)
        return head

    def _fit(self, at: int, head: BlockHeader) -> None:
        if at + head.octets > self.span.octets or head.next > self.span.next:
            raise DamagedError("a block goes on behind the end of its segment")

    def search(self, at: int, first: int) -> tuple[int, int]:
        """The next block behind damage, which must be followed by another or be the last: where, its first offset.

        The end if there is none. Raises StoreError.
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
        """The first offset of the block there, if there is one: what says so may as well be the body of a message."""
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
    """Where the blocks of a segment are, as far as somebody asked."""

    __slots__ = ("_ats", "_behind_damage", "_firsts", "_latest", "_latest_before", "_next", "_to")

    def __init__(self, first: int) -> None:
        self._firsts = array("Q")  # offset of the first message of a block
        self._ats = array("Q")  # where that block is
        self._latest_before = array("q")  # when a block before it arrived, at the latest: clocks may go back
        self._to, self._next = 0, first  # how far the segment is known, and its offsets
        self._latest = -1
        self._behind_damage = False  # what comes now needs an entry: nobody comes by it hopping

    def find(self, look: Look, offset: int) -> tuple[int, BlockHeader]:
        """Where the block of an offset is. Raises DamagedError, StoreError."""
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

    def since(self, look: Look, until: int, arrived: int) -> int:
        """The first offset of the first block that arrived then or later; `until`: none before that."""
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
                continue  # behind the damage there is another entry, if anything can be read there
        return until

    def _extend(self, look: Look, until: int, arrived: int = FOREVER) -> None:
        """Know the segment up to an offset, or a block that arrived then or later. Raises StoreError."""
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
    """What of a segment cannot be read, having tried it all: offsets from, up to, and why. Raises StoreError."""
    looks, offset = Looks(), span.first
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
    """The offset behind whole blocks, at least one."""
    at = 0
    while at < len(octets):
        head = header(octets, at)
        at += head.octets
    return head.next


def is_whole(octets: bytes, at: int, head: BlockHeader) -> bool:
    """Whether all of a block is there, as it was written."""
    end = at + head.octets
    return end <= len(octets) and crc32(memoryview(octets)[at + HEADER_OCTETS : end]) == head.checksum


def not_there(stream: int, first: int, until: int) -> DamagedError:
    """For a segment that the store does not know: it went meanwhile, or what was said of it is damaged."""
    return DamagedError(f"stream {stream}: there is no segment of {first}", until)


def _lost(span: Span, offset: int, next_offset: int, why: str) -> DamagedError:
    text = f"stream {span.stream}: messages from {offset} to {next_offset - 1} cannot be read: {why}"
    return DamagedError(text, next_offset)

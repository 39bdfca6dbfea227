"""Keep a store in memory: for tests, and for programs whose node need not outlive them.

    append ── durable at once ──> soon(durable)            by default
    append ── in flight, until a test calls `land` or `fail` ──> soon(durable or failed)      if `held`

`reopened` simulates the next start: what was durable is there, and nothing else.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TypeVar

from leveret.durable.store import block, chunk
from leveret.durable.store.contract import (
    Append,
    BlockRange,
    Chunk,
    Commit,
    DamagedError,
    NoSpaceError,
    Reader,
    Span,
    Stats,
    Store,
    StoredChunk,
    StoreError,
)
from leveret.durable.store.segment import SegmentReader, begun_by, longer, not_there
from leveret.selectors.bloom import BloomQuery

T = TypeVar("T")


class MemoryStore(Store):
    """A store that keeps its chunks encoded, as they would be on disk. It has no threads."""

    def __init__(self, held: bool = False, prompt: bool = False) -> None:
        """With `held`, a commit becomes durable only when a test calls `land`; with `prompt` at once, if it may."""
        self.was_clean = True
        self.damage: list[str] = []
        self.held = held
        self.prompt = prompt
        self.damaged: set[int] = set()  # chunks that are reported as damaged; set by tests
        self.given: list[Commit] = []  # neither durable nor failed yet, in order
        self.content = MemoryContent()
        self._looks = SegmentReader()
        self._started = self._closed_properly = self._ended = False
        self._commits = 0

    # Recovery; before `start` only.

    def objects(self) -> Iterator[tuple[str, str]]:
        return iter(list(self.content.objects.items()))

    def chunks(self) -> Iterator[StoredChunk]:
        content = self.content
        for first in content.firsts:
            kept = content.chunks[first]
            entries = None if first in self.damaged else kept.entries
            yield StoredChunk(first, entries, len(kept.messages), content.settled.get(first, b""))

    def marks(self) -> Iterator[tuple[int, int]]:
        return iter(sorted(self.content.marks.items()))

    def spans(self) -> Iterator[Span]:
        return iter([self.content.segments[key].span for key in sorted(self.content.segments)])

    def producers(self) -> Iterator[tuple[int, str, int]]:
        return iter([(*key, last) for key, last in sorted(self.content.producers.items())])

    # Running.

    def start(
        self,
        soon: Callable[[Callable[[], None]], None],
        durable: Callable[[int], None],
        failed: Callable[[Exception], None],
        stalled: Callable[[str | None], None] = lambda cause: None,
    ) -> None:
        self._soon, self._durable, self._failed = soon, durable, failed
        self._started = True

    def append(self, commit: Commit, at_once: bool = False) -> bool:
        assert self._started, "a store takes commits once it is started"
        assert len(self.given) < self.commits_max, "the commits before have not been reported"
        if not self._ended:  # else the failure was reported already
            if at_once and self.prompt:
                self.content.take(commit)
                self._commits += 1
                return True
            self.given.append(commit)
            if not self.held:
                self.land()
        return False

    @property
    def flying(self) -> Commit | None:
        """Return the next commit to become durable, if there is one."""
        return self.given[0] if self.given else None

    def land(self) -> None:
        """Make the next commit durable."""
        assert self.given, "nothing is in flight"
        commit = self.given.pop(0)
        self.content.take(commit)
        self._commits += 1
        durable = self._durable
        self._soon(lambda: durable(commit.number))

    def fail(self, error: NoSpaceError | StoreError) -> None:
        """Fail the next commit, and with it what was to follow; after a StoreError no more commits are taken."""
        assert self.given, "nothing is in flight"
        self.given.clear()
        self._ended = isinstance(error, StoreError)
        failed = self._failed
        self._soon(lambda: failed(error))

    def reader(self) -> AbstractContextManager[Reader]:
        return nullcontext(ContentReader(self.content, self.damaged, self._looks))

    def read_soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        found: T | Exception
        try:
            found = job(ContentReader(self.content, self.damaged, self._looks))
        except Exception as error:
            found = error
        self._soon(lambda: then(found))

    # Maintenance.

    def stats(self) -> Stats:
        content = self.content
        octets = sum(len(kept.messages) for kept in content.chunks.values())
        return Stats(
            chunks=len(content.chunks),
            messages_octets=octets,
            objects=len(content.objects),
            file_octets=0,
            free_octets=0,
            commits=self._commits,
            format=chunk.VERSION,
            streams=len({stream for stream, _ in content.segments}),
            segments=len(content.segments),
            segment_octets=sum(each.span.octets for each in content.segments.values()),
        )

    def backup(self, folder: Path) -> None:
        raise OSError("a store in memory has no files to copy")

    def close(self, last: Commit | None) -> None:
        if last is not None:
            if self._ended:
                raise StoreError("the store has failed")
            while self.given:
                self.land()
            self.content.take(last)
        self._closed_properly = last is not None
        self._ended = True

    def reopened(self, held: bool = False) -> MemoryStore:
        """Return what the next start finds: everything durable. Without a proper `close` it is as after a crash."""
        store = MemoryStore(held)
        store.content = self.content.copy()
        store.damaged = set(self.damaged)
        store.was_clean = self._closed_properly or not self._started
        return store


class MemoryContent:
    """The sum of all durable commits."""

    def __init__(self) -> None:
        self.objects: dict[str, str] = {}
        self.chunks: dict[int, Chunk] = {}
        self.firsts: list[int] = []  # of the chunks, ascending
        self.settled: dict[int, bytes] = {}
        self.marks: dict[int, int] = {}
        self.segments: dict[tuple[int, int], MemorySegment] = {}  # by stream and first offset
        self.producers: dict[tuple[int, str], int] = {}

    def copy(self) -> MemoryContent:
        copy = MemoryContent()
        copy.objects, copy.chunks, copy.firsts = dict(self.objects), dict(self.chunks), list(self.firsts)
        copy.settled, copy.marks = dict(self.settled), dict(self.marks)
        copy.segments = {key: MemorySegment(each.span, each.octets) for key, each in self.segments.items()}
        copy.producers = dict(self.producers)
        return copy

    def take(self, commit: Commit) -> None:
        """Apply a commit, in this order: deletions, replacements, new chunks, then changes to what is there."""
        self._change(commit.objects)
        for first in commit.dropped:
            self._drop(first)
        for gone, made in commit.replaced:
            for first in gone:
                self._remove(first)
            self._add(made)
        for entries in commit.chunks:
            self._add(chunk.pack(entries))
        self.settled.update(commit.settled)
        self.marks.update(commit.marks)
        self._take_streams(commit)

    def _take_streams(self, commit: Commit) -> None:
        """Apply appends, then deletions; a deleted stream takes all that it has with it."""
        for append in commit.appends:
            self._append(append)
        for key in commit.cut:
            self.segments.pop(key, None)
        for (stream, producer), last in commit.producers.items():
            if last < 0:
                self.producers.pop((stream, producer), None)
            else:
                self.producers[stream, producer] = last
        ended = set(commit.ended)
        if ended:
            self.segments = {key: each for key, each in self.segments.items() if key[0] not in ended}
            self.producers = {key: last for key, last in self.producers.items() if key[0] not in ended}

    def _append(self, append: Append) -> None:
        key = append.stream, append.segment
        segment = self.segments.get(key)
        if segment is None:
            assert append.segment == append.first, "a segment that begins has the first offset that is in it"
            segment = self.segments[key] = MemorySegment(begun_by(append))
        assert segment.span.next == append.first, "what is appended follows what is there"
        for octets in block.written(append):
            segment.octets += octets
        segment.span = longer(segment.span, append, len(segment.octets))

    def _change(self, objects: Mapping[str, str | None]) -> None:
        for key, value in objects.items():
            if value is None:
                self.objects.pop(key, None)
            else:
                self.objects[key] = value

    def _add(self, added: Chunk) -> None:
        assert added.first not in self.chunks, "the number of an entry is never used again"
        self.chunks[added.first] = added
        insort(self.firsts, added.first)

    def _drop(self, first: int) -> None:
        """Delete a chunk, and the marks of its entries: those up to the next chunk."""
        at = bisect_right(self.firsts, first)
        end = self.firsts[at] if at < len(self.firsts) else None
        for entry in [n for n in self.marks if n >= first and (end is None or n < end)]:
            del self.marks[entry]
        self._remove(first)

    def _remove(self, first: int) -> None:
        if self.chunks.pop(first, None) is not None:
            self.firsts.remove(first)
        self.settled.pop(first, None)


class MemorySegment:
    """A segment of a stream, with the bytes that would be in its file."""

    __slots__ = ("octets", "span")

    def __init__(self, span: Span, octets: bytes | bytearray = b"") -> None:
        self.span = span
        self.octets = bytearray(octets)

    def read(self, at: int, length: int) -> bytes:
        return bytes(self.octets[at : at + length])


class ContentReader(Reader):
    """Reads durable content."""

    def __init__(self, content: MemoryContent, damaged: set[int], looks: SegmentReader) -> None:
        self.content = content
        self._damaged = damaged
        self._looks = looks

    def find(self, number: int) -> tuple[int, bytes]:
        firsts = self.content.firsts
        at = bisect_right(firsts, number) - 1
        if at < 0:
            raise DamagedError(f"no chunk has entry {number}")
        first = firsts[at]
        if first in self._damaged:
            raise DamagedError(f"chunk {first} is damaged")
        return first, self.content.chunks[first].entries

    def messages(self, first: int, start: int, length: int) -> bytes:
        found = self.content.chunks.get(first)
        if found is None or first in self._damaged or start + length > len(found.messages):
            raise DamagedError(f"chunk {first} is damaged, or is not there")
        return found.messages[start : start + length]

    def again(self, number: int) -> Chunk:
        first, _ = self.find(number)
        return self.content.chunks[first]

    def blocks(self, stream: int, segment: int, offset: int, until: int, octets: int) -> bytes:
        found = self._segment(stream, segment, until)
        return self._looks.blocks(found.span, found.read, offset, until, octets)

    def wanted(self, stream: int, segment: int, offset: int, until: int, wanted: BloomQuery) -> BlockRange:
        found = self._segment(stream, segment, until)
        return self._looks.wanted(found.span, found.read, offset, until, wanted)

    def offset_since(self, stream: int, segment: int, until: int, arrived: int) -> int:
        found = self._segment(stream, segment, until)
        return self._looks.offset_since(found.span, found.read, until, arrived)

    def _segment(self, stream: int, first: int, until: int) -> MemorySegment:
        found = self.content.segments.get((stream, first))
        if found is None:
            raise not_there(stream, first, until)
        return found

"""What a store is asked for: keep commits, in order and whole, and say when each is safe.

    Journal ── Commit ──> Store: writer thread, one transaction, sync ── durable(number) ──> Journal

A commit is all or nothing. There is one in flight at a time; whoever commits gathers the next one meanwhile. What a
store keeps is told apart by numbers that the journal gives: every copy of a message in a queue is an *entry*, and has
the next number; entries that were committed together are a *chunk*, known by the number of its first entry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final, TypeVar

import attrs
from mypy_extensions import mypyc_attr

from broker_core.clock import NEVER
from broker_core.message import Message

T = TypeVar("T")

UNKNOWN: Final = float("-inf")


class StoreError(Exception):
    """The store cannot be trusted any more: nothing may be confirmed from here on. The text says why."""


class NoSpaceError(Exception):
    """There was no room for a commit. Nothing of it is kept; the same commit may be tried again."""


class DamagedError(Exception):
    """What was read is not what was written. The text says where."""

    def __init__(self, text: str, next_offset: int | None = None) -> None:
        super().__init__(text)
        self.next = next_offset  # of a stream: where to go on, behind the damage


class Entries:
    """Copies of messages in queues, on their way into a chunk: columns, one row an entry."""

    __slots__ = (
        "arrived",
        "expiries",
        "first",
        "messages",
        "positions",
        "priorities",
        "queues",
        "records",
        "volatile",
    )

    def __init__(self, first: int, volatile: bool = False, arrived: int = 0) -> None:
        self.first = first  # the number of the first; the others follow
        self.arrived = arrived  # when, in ms since 1970-01-01 UTC
        self.queues = array("I")  # numbers of queues
        self.positions = array("Q")  # order of arrival in the queue
        self.priorities = array("B")
        self.expiries = array("Q")  # ms since 1970-01-01 UTC; 0: never
        self.records: Sequence[int] = array("H")  # which of `messages` it is a copy of
        self.messages: list[Message] = []  # each once, however many queues have it
        self.volatile = volatile  # not to outlive the node: paged out for want of memory only

    def __len__(self) -> int:
        return len(self.queues)


class Chunk:
    """Entries as they are kept: `chunk.py` knows what the octets mean."""

    __slots__ = ("entries", "first", "messages")

    def __init__(self, first: int, entries: bytes, messages: bytes) -> None:
        self.first = first
        self.entries = entries  # columns; has its own checksum
        self.messages = messages  # one record after the other; their checksums are in `entries`


class Packed:
    """Messages that are a block already. It gets its place and its time when it is written (`block.addressed`)."""

    __slots__ = ("bodies", "count", "octets")

    def __init__(self, octets: bytes, count: int, bodies: int) -> None:
        self.octets = octets
        self.count = count  # of messages
        self.bodies = bodies  # octets of theirs


class Append:
    """New messages of one stream, on their way into a block: `block.py` knows what the octets mean."""

    __slots__ = ("arrived", "first", "messages", "packed", "positions", "segment", "stream")

    def __init__(
        self,
        stream: int,
        segment: int,
        first: int,
        arrived: int,
        messages: list[Message],
        packed: Packed | None = None,
    ) -> None:
        self.stream = stream  # its number
        self.segment = segment  # the first offset of the segment it goes to; its own, if that begins with it
        self.first = first  # offset of the first message; the others follow without gaps
        self.arrived = arrived  # ms since 1970-01-01 UTC
        self.messages = messages
        self.packed = packed  # the block that they are, instead of them
        self.positions: array[int] | None = None  # where they stood in a queue, if they came from one

    @property
    def next(self) -> int:
        """Offset behind the last message."""
        return self.first + (len(self.messages) if self.packed is None else self.packed.count)

    @property
    def bodies(self) -> int:
        """Octets of the messages' bodies."""
        return self.packed.bodies if self.packed is not None else sum([each.size for each in self.messages])


@attrs.frozen
class Span:
    """A segment of a stream as the store vouches for it: what its file has beyond was never committed."""

    stream: int
    first: int  # offsets from here
    next: int  # up to here, exclusive
    octets: int  # of the file
    bodies: int  # octets of the messages' bodies
    begun: int  # ms since 1970-01-01 UTC: when the first message arrived
    last: int  # and the last one


class Commit:
    """What is to be kept, or to go, together."""

    __slots__ = (
        "appends",
        "chunks",
        "cut",
        "dropped",
        "ended",
        "marks",
        "number",
        "objects",
        "producers",
        "replaced",
        "settled",
    )

    def __init__(self, number: int) -> None:
        self.number = number  # 1, 2, ... since the store was opened
        self.objects: dict[str, str | None] = {}  # key to JSON; None: it goes. In order of first change
        self.chunks: list[Entries] = []  # to be packed by the store (`chunk.pack`), in its own thread
        self.settled: dict[
            int, bytes
        ] = {}  # chunk to the bits of its settled entries; takes the place of earlier ones
        self.marks: dict[int, int] = {}  # entry to how often a consumer had it and failed
        self.dropped: list[int] = []  # chunks, with their bits and marks
        self.replaced: list[
            tuple[list[int], Chunk]
        ] = []  # chunks that go, and one that has what was left in them
        self.appends: list[Append] = []  # to streams; several to one stream are in order
        self.cut: list[tuple[int, int]] = []  # streams, and first offsets of their segments that go
        self.ended: list[int] = []  # streams that go, with all they have
        # Stream and producer, to the last sequence number that was taken of it; -1: it is forgotten.
        self.producers: dict[tuple[int, str], int] = {}

    def __bool__(self) -> bool:
        return bool(
            self.objects
            or self.chunks
            or self.settled
            or self.marks
            or self.dropped
            or self.replaced
            or self.appends
            or self.cut
            or self.ended
            or self.producers
        )


class StoredChunk:
    """One chunk as it is found at start. `entries` is None if it is damaged."""

    __slots__ = ("entries", "first", "octets", "settled")

    def __init__(self, first: int, entries: bytes | None, octets: int, settled: bytes | None) -> None:
        self.first = first
        self.entries = entries
        self.octets = octets  # of its messages
        self.settled = settled  # bits, by place in the chunk; empty: none; None: they are damaged


@attrs.frozen
class Stats:
    """What a store holds. Sizes are octets."""

    chunks: int
    messages_octets: int  # of the chunks' messages, live or not
    objects: int
    file_octets: int  # on disk, all files
    free_octets: int  # of those: not used, to be used again or given back
    commits: int  # since it was opened
    format: int
    streams: int = 0  # that have something
    segments: int = 0
    segment_octets: int = 0  # of their files


@mypyc_attr(allow_interpreted_subclasses=True)
class Reader(ABC):
    """Reads chunks, in one thread. What it reads within one job is of one moment."""

    @abstractmethod
    def find(self, number: int) -> tuple[int, bytes]:
        """The chunk that has an entry: its first number and its entries. Raises DamagedError, StoreError."""

    @abstractmethod
    def messages(self, first: int, start: int, length: int) -> bytes:
        """Some octets of a chunk's messages. Raises DamagedError, StoreError."""

    @abstractmethod
    def blocks(self, stream: int, segment: int, offset: int, until: int, octets: int) -> bytes:
        """Whole blocks of a segment, in order: from the one that has `offset` on, none that begins at `until` or later,
        of no more than `octets` and one block. Raises DamagedError, whose `next` is behind the damage, and StoreError.
        """

    @abstractmethod
    def offset_since(self, stream: int, segment: int, until: int, arrived: int) -> int:
        """The first offset of the first block of a segment that arrived at `arrived` (ms since 1970) or later;
        `until` if there is none before that. Raises DamagedError, StoreError.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class Store(ABC):
    """Where commits are kept. Opened when it is made, which raises `BadFolder`s as its own kind says."""

    was_clean: bool  # whether it was closed properly before, or is new; False once damage is found
    damage: list[str]  # what was found wrong while it was opened and gone through, in words

    # Finding what is there; before `start` only.

    @abstractmethod
    def objects(self) -> Iterable[tuple[str, str]]:
        """Keys and values, in the order in which the keys first came."""

    @abstractmethod
    def chunks(self) -> Iterable[StoredChunk]:
        """Every chunk, in order; those whose columns are damaged, too."""

    @abstractmethod
    def marks(self) -> Iterable[tuple[int, int]]:
        """Entries and how often each was tried, in order. Those never tried may be there, with 0: redelivered."""

    @abstractmethod
    def spans(self) -> Iterable[Span]:
        """Every segment, by stream and first offset."""

    @abstractmethod
    def producers(self) -> Iterable[tuple[int, str, int]]:
        """Streams, producers, and the last sequence number that was taken of each."""

    # Running.

    @abstractmethod
    def start(
        self,
        soon: Callable[[Callable[[], None]], None],
        durable: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Take commits from now on. `soon(f)` has `f` called in the journal's thread, where `durable(number)` and
        `failed(NoSpaceError or StoreError)` are called, too. From here on the store counts as not properly closed.
        """

    @abstractmethod
    def append(self, commit: Commit) -> None:
        """Keep a commit. Not before the one before it was reported; one that had no space may be given again."""

    @abstractmethod
    def reader(self) -> AbstractContextManager[Reader]:
        """For the journal's own thread, when it cannot wait; what is read within one `with` is of one moment."""

    @abstractmethod
    def read_soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        """Run `job` in a thread for reading, and `then` in the journal's with what it returned or raised."""

    # Looking after it.

    @abstractmethod
    def stats(self) -> Stats: ...

    @abstractmethod
    def backup(self, folder: Path) -> None:
        """A copy as of one moment, which can be opened as a store. May take long; any thread. Raises OSError."""

    @abstractmethod
    def close(self, last: Commit | None) -> None:
        """Keep a last commit, note that the store was closed properly, and wait until that is done.

        None: it is given up, and counts as not properly closed. Raises StoreError.
        """


class Page:
    """Waiting messages of one queue and one priority that are on disk only, oldest first."""

    __slots__ = ("due", "expiring", "last", "marks", "numbers", "octets", "position", "redelivered")

    def __init__(
        self,
        numbers: Sequence[int],
        position: int,
        last: int,
        octets: int,
        expiring: int = 0,
        redelivered: bool = False,
        marks: dict[int, int] | None = None,
        due: float | None = None,
    ) -> None:
        self.numbers = numbers  # of entries, rising; a range where they follow each other
        self.position = position  # of the first, in the queue
        self.last = last  # position of the last
        self.octets = octets  # of their bodies
        self.expiring = expiring  # how many will expire
        self.redelivered = redelivered  # all of them may have been delivered before
        self.marks = marks or {}  # of those that were: how often that failed
        # When the first expires, in monotonic seconds; if nobody says it, to be found out if any of them will.
        self.due = due if due is not None else UNKNOWN if expiring else NEVER

    def __len__(self) -> int:
        return len(self.numbers)

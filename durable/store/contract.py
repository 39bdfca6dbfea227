"""Define what a store has to do: keep commits, in order and whole, and report when each is durable.

    Journal ── Commit ──> Store: writer thread, one transaction, sync ── durable(number) ──> Journal

A commit is all or nothing. One is in flight at a time; the journal gathers the next one meanwhile, and may give it to a
store that encodes one commit while it waits for the answer to another. What a store keeps is identified by numbers that
the journal assigns: every copy of a message in a queue is an *entry*, and has the next number; entries that were
committed together are a *chunk*, identified by the number of its first entry.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import ClassVar, Final, TypeVar

import attrs
from mypy_extensions import mypyc_attr

from leveret.message import Message
from leveret.observability.metric import Metric
from leveret.selectors.bloom import BloomQuery

T = TypeVar("T")

BEHIND_OCTETS: Final = 32 << 20
UNLIMITED: Final = 1 << 62  # bytes


class StoreError(Exception):
    """The store cannot be trusted any more: nothing may be confirmed from here on. The text says why."""


class FencedError(StoreError):
    """Another node has taken the store over: this one may confirm and deliver nothing more, and need not end."""


class NoSpaceError(Exception):
    """There was no room for a commit. Nothing of it is kept; the same commit may be tried again."""


class FullDatabaseError(NoSpaceError):
    """The disk of a database is full. What needs no room, or makes some, can still be done."""


class DamagedError(Exception):
    """The bytes that were read are not those that were written. The text says where."""

    def __init__(self, text: str, next_offset: int | None = None) -> None:
        super().__init__(text)
        self.next = next_offset  # of a stream: the offset after the damage, to continue from


class MissingProtocolError(DamagedError):
    """A message is intact, and its protocol is not installed: it can be delivered once that is there again."""

    def __init__(self, protocol: str, next_offset: int | None = None) -> None:
        super().__init__(f"a message is of the protocol '{protocol}', which is not installed", next_offset)
        self.protocol = protocol


class Entries:
    """Copies of messages in queues, not yet encoded as a chunk: columns with a row for each entry."""

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
        self.first = first  # the number of the first entry; the others follow
        self.arrived = arrived  # when, in ms since 1970-01-01 UTC
        self.queues = array("I")  # numbers of queues
        self.positions = array("Q")  # order of arrival in the queue
        self.priorities = array("B")  # of type "h" if any is below 0
        self.expiries = array("Q")  # ms since 1970-01-01 UTC; 0: never
        self.records: Sequence[int] = array("H")  # the index in `messages` of which each is a copy
        self.messages: list[Message] = []  # each once, however many queues have it
        self.volatile = volatile  # not recovered by the next start: paged out only to save memory

    def __len__(self) -> int:
        return len(self.queues)


class Chunk:
    """Encoded entries; `chunk.py` has the format."""

    __slots__ = ("entries", "first", "messages")

    def __init__(self, first: int, entries: bytes, messages: bytes) -> None:
        self.first = first
        self.entries = entries  # columns; has its own checksum
        self.messages = messages  # one record after the other; their checksums are in `entries`

    @property
    def octets(self) -> int:
        """Return the bytes of both."""
        return len(self.entries) + len(self.messages)


class Packed:
    """Messages that are encoded as a block already. Offset and time are set when it is written (`block.addressed`)."""

    __slots__ = ("bodies", "count", "octets")

    def __init__(self, octets: bytes, count: int, bodies: int) -> None:
        self.octets = octets
        self.count = count  # of messages
        self.bodies = bodies  # bytes of their bodies


class Append:
    """New messages of one stream, not yet encoded as blocks; `block.py` has the format."""

    __slots__ = (
        "arrivals",
        "arrived",
        "filter_octets",
        "first",
        "messages",
        "packed",
        "positions",
        "segment",
        "stream",
    )

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
        self.segment = segment  # the first offset of its segment; equal to `first` if it begins that
        self.first = first  # offset of the first message; the others follow without gaps
        self.arrived = arrived  # ms since 1970-01-01 UTC
        self.messages = messages
        self.packed = packed  # the block, instead of `messages`
        self.positions: array[int] | None = None  # their positions in a queue, if they come from one
        self.arrivals: array[int] | None = None  # when they came into that queue, in ms since 1970-01-01 UTC
        # Bytes of a block's Bloom filter, if a message has a filter value; 0: no filter.
        self.filter_octets = 0

    @property
    def next(self) -> int:
        """Return the offset after the last message."""
        return self.first + (len(self.messages) if self.packed is None else self.packed.count)

    @property
    def bodies(self) -> int:
        """Return the size of the messages' bodies, in bytes."""
        return self.packed.bodies if self.packed is not None else sum([each.size for each in self.messages])


@attrs.frozen
class Span:
    """The valid part of a segment of a stream: what its file has beyond was never committed."""

    stream: int
    first: int  # the first offset
    next: int  # the offset after the last
    octets: int  # of the file
    bodies: int  # bytes of the messages' bodies
    begun: int  # ms since 1970-01-01 UTC: when the first message arrived
    last: int  # and the last one


class Commit:
    """Changes that become durable together."""

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
        "renewed",
        "replaced",
        "settled",
    )

    def __init__(self, number: int) -> None:
        self.number = number  # 1, 2, ... since the store was opened
        self.objects: dict[str, str | None] = {}  # key to JSON, in the order of first change; None: deleted
        self.renewed: set[str] = set()  # keys of objects in the place of others, which this commit removes
        self.chunks: list[Entries] = []  # to be encoded by the store's thread (`chunk.pack`)
        # chunk to the bits of its settled entries, replacing earlier ones
        self.settled: dict[int, bytes] = {}
        self.marks: dict[int, int] = {}  # entry to its number of failed deliveries
        self.dropped: list[int] = []  # deleted chunks, with their bits and marks
        # deleted chunks, and one with what was left in them
        self.replaced: list[tuple[list[int], Chunk]] = []
        self.appends: list[Append] = []  # to streams; those of one stream are in order
        self.cut: list[tuple[int, int]] = []  # stream and first offset of deleted segments
        self.ended: list[int] = []  # deleted streams, with all that they have
        # Stream and producer, to the last sequence number that was accepted; -1: the producer is forgotten.
        self.producers: dict[tuple[int, str], int] = {}

    def __bool__(self) -> bool:
        return bool(self.objects) or self.changes_messages

    @property
    def changes_messages(self) -> bool:
        """Return whether there is anything but objects."""
        return (
            bool(self.chunks or self.settled or self.marks or self.dropped or self.replaced)
            or self.changes_segments
        )

    @property
    def changes_segments(self) -> bool:
        """Return whether there is something for the files of streams."""
        return bool(self.appends or self.cut or self.ended or self.producers)


class StoredChunk:
    """A chunk found at start. `entries` is None if it is damaged."""

    __slots__ = ("entries", "first", "octets", "settled")

    def __init__(self, first: int, entries: bytes | None, octets: int, settled: bytes | None) -> None:
        self.first = first
        self.entries = entries
        self.octets = octets  # of its messages
        self.settled = settled  # bits by place in the chunk; empty: none is settled; None: damaged


@attrs.frozen
class BlockRange:
    """The place of blocks that are worth reading: `octets` bytes, from the block that begins at `first` on.

    0 bytes: no block before `first` is, and the search is to go on there.
    """

    first: int
    next: int  # the offset after the last of their messages
    octets: int


@attrs.frozen
class Stats:
    """The contents of a store. Sizes are in bytes."""

    chunks: int
    messages_octets: int  # of the chunks' messages, live or not
    objects: int
    file_octets: int  # on disk, of all files
    free_octets: int  # unused bytes of those, to be reused or given back
    commits: int  # since it was opened
    format: int
    streams: int = 0  # that have messages
    segments: int = 0
    segment_octets: int = 0  # of their files


@mypyc_attr(allow_interpreted_subclasses=True)
class Reader(ABC):
    """Reads chunks and blocks, in one thread. All reads of one job see the same moment, but for `again`."""

    @abstractmethod
    def find(self, number: int) -> tuple[int, bytes]:
        """Return the chunk that has an entry: its first number and its entries. Raises DamagedError, StoreError."""

    @abstractmethod
    def messages(self, first: int, start: int, length: int) -> bytes:
        """Return some bytes of a chunk's messages. Raises DamagedError, StoreError."""

    @abstractmethod
    def again(self, number: int) -> Chunk:
        """Read the chunk of an entry once more, at a new moment, and from where it was written first.

        Called for what seems to be damaged. What is read after it is of that moment, too. Raises DamagedError,
        StoreError.
        """

    @abstractmethod
    def blocks(self, stream: int, segment: int, offset: int, until: int, octets: int) -> bytes:
        """Return whole blocks of a segment, from the one that has `offset` on; none begins at `until` or later.

        They have at most `octets` bytes, but at least one block is returned. Raises DamagedError, whose `next` is the
        offset after the damage, and StoreError.
        """

    @abstractmethod
    def wanted(self, stream: int, segment: int, offset: int, until: int, wanted: BloomQuery) -> BlockRange:
        """Find blocks with wanted messages by their filters, from the block that has `offset` on.

        Raises DamagedError, whose `next` is the offset after the damage, and StoreError.
        """

    @abstractmethod
    def offset_since(self, stream: int, segment: int, until: int, arrived: int) -> int:
        """Return the first offset of the first block that arrived at `arrived` (ms since 1970) or later.

        Returns `until` if there is none before that. Raises DamagedError, StoreError.
        """


@mypyc_attr(allow_interpreted_subclasses=True)
class Store(ABC):
    """Keeps commits. It is open once constructed; that may raise BadFolder."""

    # Bytes gathered and not on disk, beyond which publishers wait; commits are hardly larger.
    behind_octets: ClassVar[int] = BEHIND_OCTETS
    commits_max: ClassVar[int] = 1  # that it takes before the first of them is reported

    was_clean: bool  # whether it is new, or was closed properly; False once damage is found
    damage: list[str]  # descriptions of the damage found while it was opened and read

    # Recovery; before `start` only.

    @abstractmethod
    def objects(self) -> Iterable[tuple[str, str]]:
        """Return keys and values, in the order in which the keys were first written."""

    @abstractmethod
    def chunks(self) -> Iterable[StoredChunk]:
        """Return every chunk, in order; those with damaged columns, too."""

    @abstractmethod
    def marks(self) -> Iterable[tuple[int, int]]:
        """Return entries and their failed deliveries, in order; an entry with 0 was only redelivered."""

    @abstractmethod
    def spans(self) -> Iterable[Span]:
        """Return every segment, by stream and first offset."""

    @abstractmethod
    def producers(self) -> Iterable[tuple[int, str, int]]:
        """Return streams, producers, and the last sequence number accepted of each."""

    # Running.

    @property
    def room(self) -> int:
        """The bytes that can still be written, roughly and as of a moment ago."""
        return UNLIMITED

    def measure_room(self) -> int:
        """Return the bytes that can still be written, by asking the disk now."""
        return self.room

    @property
    def ahead_max(self) -> int:
        """The most bytes that may wait to be written, so that they fit even if others fill the disk meanwhile."""
        return UNLIMITED

    @property
    def is_short(self) -> bool:
        """Return whether there is room only for commits that make room, so that publishers have to wait."""
        return False

    @property
    def has_lost(self) -> bool:
        """Return whether commits that were reported as durable are gone. Looked at when commits go on after a stall."""
        return False

    @abstractmethod
    def start(
        self,
        soon: Callable[[Callable[[], None]], None],
        durable: Callable[[int], None],
        failed: Callable[[Exception], None],
        stalled: Callable[[str | None], None],
    ) -> None:
        """Take commits from now on, and count as not properly closed.

        `soon(f)` has `f` called in the journal's thread, where `durable(number)` and `failed(NoSpaceError or
        StoreError)` are called, too; and `stalled(cause)` while a commit waits for something that may come back by
        itself, such as a database that cannot be reached, with None once it goes on.
        """

    @abstractmethod
    def append(self, commit: Commit, at_once: bool = False) -> bool:
        """Write a commit, after those before it; at most `commits_max` are not reported yet.

        One that had no space may be given again, and then all after it are given again, too: none of them is written
        before it.

        `at_once`: the caller has nothing else to do. Where that takes little time, the commit is written before this
        returns: then True is returned, and the commit is durable and not reported.
        """

    @abstractmethod
    def reader(self) -> AbstractContextManager[Reader]:
        """Return a reader for the journal's own thread, when it cannot wait; one `with` block sees one moment."""

    def lacks(self, numbers: Sequence[int]) -> bool:
        """Return whether messages of some of these entries, which ascend, have to come from another machine."""
        return False

    def brings(self, numbers: Sequence[int]) -> bool:
        """Return whether `lacks` is true, and have these messages brought then, so that a later call returns False."""
        return False

    @abstractmethod
    def read_soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        """Run `job` in a reading thread, then `then` in the journal's with what it returned or raised."""

    # Maintenance.

    def metrics(self) -> Sequence[Metric]:
        """Return metrics that a store of this kind alone has."""
        return ()

    @abstractmethod
    def stats(self) -> Stats: ...

    @abstractmethod
    def backup(self, folder: Path) -> None:
        """Write a copy as of one moment, which can be opened as a store. May take long; any thread. Raises OSError."""

    @abstractmethod
    def close(self, last: Commit | None) -> None:
        """Write a last commit, note that the store was closed properly, and wait until that is done.

        With None it is abandoned, and counts as not properly closed. Raises StoreError.
        """

"""The log of a stream holds its messages by offset and time, and knows nothing of readers or limits.

    append ──> not committed ──> committed ──retain──> gone
                                  │  read: messages at hand; fetch, and read again: messages on disk only

Offsets are consecutive from 0 on, and none is assigned twice. Readers see committed messages: with a store, those on
disk (`durable/segment_log.py`); without one, all of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.message import Message, Notes
from leveret.outbox import OVERHEAD

if TYPE_CHECKING:
    from leveret.durable.store.contract import Packed
    from leveret.limits import QueueLimits
    from leveret.selectors.bloom import BloomQuery

PRODUCERS_MAX: Final = 10_000  # of a stream whose sequence numbers are kept; the least recent are forgotten
FORGOTTEN: Final = -1  # stands for a sequence number that is forgotten
TOGETHER_S: Final = 0.1  # messages in memory that arrived within it share one time in blocks

Found: TypeAlias = tuple[Sequence[int], list[Message]]
"""Offsets, and the messages at these."""

Raw: TypeAlias = Callable[[bytes | Exception], None]


class Log(ABC):
    """The contract of a log: messages by offset."""

    __slots__ = ("committed", "first", "messages", "next", "octets", "sequences")

    def __init__(self) -> None:
        self.first = 0  # offset of the oldest message that is left; `next` if there is none
        self.next = 0  # offset of the next message to arrive
        self.committed = 0  # readers see messages below this offset
        self.messages = 0  # number of messages that are left
        self.octets = 0  # bytes of their bodies
        self.sequences: dict[str, int] = {}  # the last number of each producer; the least recent first

    def begin_at(self, offset: int) -> None:
        """Let the first message have this offset. Called before any message is appended or restored."""
        self.first = self.next = self.committed = offset

    def is_repeated(self, producer: str, sequence: int) -> bool:
        """Return whether this or a later number of a producer was taken before; else take it now."""
        last = self.sequences.pop(producer, FORGOTTEN)
        self.sequences[producer] = max(last, sequence)
        # The confirm of a repetition, too, has to wait until the message is on disk.
        if sequence > last or self.committed < self.next:
            self.keep_sequence(producer, max(last, sequence))
        if len(self.sequences) > PRODUCERS_MAX:
            oldest = next(iter(self.sequences))
            del self.sequences[oldest]
            self.keep_sequence(oldest, FORGOTTEN)
        return sequence <= last

    def keep_sequence(self, producer: str, sequence: int) -> None:
        """Write a number to disk before the next confirm. Called if it has changed, or may not be there yet."""

    def note(self, name: str, number: int) -> None:
        """Keep a number (0 or more) under a name in `sequences`, in one commit with all that is done in this batch.

        This serves the broker's own logs, which have no producers.
        """
        self.sequences[name] = number
        self.keep_sequence(name, number)

    def unnote(self, name: str) -> None:
        """Remove a number that `note` has kept."""
        if self.sequences.pop(name, None) is not None:
            self.keep_sequence(name, FORGOTTEN)

    @property
    @abstractmethod
    def oldest_at(self) -> float | None:
        """Return when the next messages to expire by age arrived (seconds since 1970-01-01 UTC); None if none will."""

    def obey(self, limits: QueueLimits) -> None:
        """Take note of the limits by which `retain` will be called."""

    @abstractmethod
    def append(
        self, message: Message, wall: float, position: int | None = None, arrived: int | None = None
    ) -> None:
        """Append a message that arrived at `wall` (seconds since 1970-01-01 UTC; times never fall within a log).

        `position`: its place in a queue (64 bits); `arrived`: when it came into that queue (ms since 1970). Both are
        kept in blocks. A log has either of all its messages, or of none.
        """

    def takes(self, packed: Packed) -> bool:
        """Return whether the log would keep a block as it is."""
        return False

    def append_block(self, packed: Packed) -> None:
        """Append all messages of a block that the log `takes`. They have no positions in a queue."""
        raise NotImplementedError

    @abstractmethod
    def read(self, offset: int, quota: int, room: int, noted: bool = True) -> Found | None:
        """Return up to `quota` committed messages from `offset` on, of no more than `room` bytes and one message.

        Unreadable messages are passed over. None: call `fetch` first. `noted`: with their offsets noted on them.
        """

    @abstractmethod
    def fetch(self, offset: int, then: Callable[[], None]) -> None:
        """Load messages at `offset` for `read`; then, maybe at once, call `then`, unless the log ends before."""

    @abstractmethod
    def seek(self, offset: int, wanted: BloomQuery, then: Callable[[int], None]) -> None:
        """Load messages like `fetch`, but those that are wanted, or some more.

        Pass over blocks on disk, from `offset` on, that have none by their filters. Then, maybe at once, call `then`
        with the offset to go on from, unless the log ends before. If nothing is loaded there, seek on.
        """

    @abstractmethod
    def offset_since(self, wall: float, then: Callable[[int], None]) -> None:
        """Find the first offset that arrived at `wall` or later, or a few before it; the next one if there is none.

        `then`, which may be called at once, is always called.
        """

    @abstractmethod
    def retain(self, max_octets: int | None, latest: float | None) -> None:
        """Drop the oldest messages: those beyond `max_octets` bytes, and those that came at `latest` or before."""

    @abstractmethod
    def drop_until(self, offset: int) -> None:
        """Drop messages below `offset`. On disk, a segment goes when all of it does; the last one stays a while."""

    @abstractmethod
    def raw(self, offset: int, until: int, octets: int, then: Raw) -> None:
        """Read whole blocks (`store/block.py`) in order from the one with `offset`; none begins at `until` or later.

        `then`, which may be called at once and is always called, gets no more than `octets` bytes and one block, none
        if nothing is there now; or a DamagedError, whose `next` is the offset to go on from; or a StoreError.
        """

    @abstractmethod
    def look(self) -> Iterator[tuple[int, Message]]:
        """Yield all committed messages with their offsets, read at once from wherever they are."""

    @abstractmethod
    def end(self) -> list[Message]:
        """End the log of a deleted stream. Return the messages that were in memory, for the caller to free."""


class MemoryLog(Log):
    """A log in memory: lists, whose dropped front is cut off when it is an eighth of them."""

    __slots__ = ("_arrivals", "_gone", "_messages", "_positions", "_times")

    def __init__(self) -> None:
        super().__init__()
        self._gone = 0  # elements at the front of the lists that are dropped
        self._messages: list[Message] = []
        self._times = array("d")  # of arrival, seconds since 1970-01-01 UTC; never falling
        self._positions = array("Q")  # of all messages, or none
        self._arrivals = array("Q")  # in the queue they come from; of all messages, or none

    @property
    def oldest_at(self) -> float | None:
        return self._times[self._gone] if self.messages else None

    def append(
        self, message: Message, wall: float, position: int | None = None, arrived: int | None = None
    ) -> None:
        self._messages.append(numbered(message, self.next))
        if position is not None:
            self._positions.append(position)
        if arrived is not None:
            self._arrivals.append(arrived)
        self._times.append(max(wall, self._times[-1]) if self._times else wall)
        self.next += 1
        self.committed = self.next
        self.messages += 1
        self.octets += message.size

    def read(self, offset: int, quota: int, room: int, noted: bool = True) -> Found:
        base = self.first - self._gone  # the offset of the lists' first element
        start = end = max(offset - base, self._gone)
        messages = self._messages
        stop = min(start + quota, len(messages))
        while end < stop and room > 0:
            room -= messages[end].size + len(messages[end].properties) + OVERHEAD
            end += 1
        found = messages[start:end]
        return range(base + start, base + end), found if noted else list(map(unnumbered, found))

    def fetch(self, offset: int, then: Callable[[], None]) -> None:
        then()

    def seek(self, offset: int, wanted: BloomQuery, then: Callable[[int], None]) -> None:
        then(offset)

    def offset_since(self, wall: float, then: Callable[[int], None]) -> None:
        then(self.first + bisect_left(self._times, wall, self._gone) - self._gone)

    def retain(self, max_octets: int | None, latest: float | None) -> None:
        """Drop the oldest, message by message. The newest stays however large it is, but not however old."""
        while (max_octets is not None and self.octets > max_octets and self.messages > 1) or (
            latest is not None and self.messages and self._times[self._gone] <= latest
        ):
            self._drop()

    def drop_until(self, offset: int) -> None:
        while self.first < min(offset, self.next):
            self._drop()

    def _drop(self) -> None:
        self.messages -= 1
        self.octets -= self._messages[self._gone].size
        self.first += 1
        self._gone = gone = self._gone + 1
        if gone * 8 > len(self._messages):
            del self._messages[:gone], self._times[:gone], self._positions[:gone], self._arrivals[:gone]
            self._gone = 0

    def raw(self, offset: int, until: int, octets: int, then: Raw) -> None:
        from leveret.durable.store import block  # a node without a store loads it only if it is needed
        from leveret.durable.store.contract import Append

        _, messages = self.read(offset, max(0, until - max(offset, self.first)), octets)
        blocks: list[bytes] = []
        begin, first = 0, max(offset, self.first)
        while begin < len(messages):
            at = first - self.first + self._gone
            end = bisect_left(self._times, self._times[at] + TOGETHER_S, at) - at + begin
            piece = messages[begin : min(end, begin + block.BLOCK_MESSAGES)]
            append = Append(0, first, first, int(self._times[at] * 1000), piece)
            if self._positions:
                append.positions = self._positions[at : at + len(piece)]
            if self._arrivals:
                append.arrivals = self._arrivals[at : at + len(piece)]
            blocks.append(block.pack(append))
            begin += len(piece)
            first += len(piece)
        then(b"".join(blocks))

    def look(self) -> Iterator[tuple[int, Message]]:
        return enumerate(self._messages[self._gone :], self.first)

    def end(self) -> list[Message]:
        return self._messages


def numbered(message: Message, offset: int | None) -> Message:
    """Return a message with its offset noted on it, so that it is rendered once for all readers."""
    notes, before = Notes(), message.notes
    if before is not None:
        notes.deaths, notes.first_death, notes.last_death = (
            before.deaths,
            before.first_death,
            before.last_death,
        )
    notes.offset = offset
    return _with_notes(message, notes)


def unnumbered(message: Message) -> Message:
    """Return a message without the offset of a log."""
    notes = message.notes
    if notes is None or notes.offset is None:
        return message
    if notes.deaths or notes.first_death is not None or notes.last_death is not None:
        return numbered(message, None)
    return _with_notes(message, None)


def _with_notes(message: Message, notes: Notes | None) -> Message:
    return Message(
        message.encoding,
        message.exchange,
        message.key,
        message.properties,
        message.body,
        message.facts,
        notes,
    )

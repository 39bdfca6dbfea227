"""What a stream's messages lie in: a log, which knows offsets, times and messages, and nothing of readers or limits.

    append ──> not committed ──> committed ──retain──> gone
                                  │  read: what is at hand; fetch, and come back: what is on disk only

Offsets follow each other from 0 on, and none is given twice. Readers see what is committed: with a store, what is on
disk (`store/segment_log.py`); in memory, everything at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from broker_core.message import Message, Notes
from broker_core.outbox import OVERHEAD

if TYPE_CHECKING:
    from broker_core.limits import QueueLimits
    from broker_core.store.contract import Packed

PRODUCERS_MAX: Final = (
    10_000  # of a stream whose sequence numbers are remembered; the least recent are forgotten
)
FORGOTTEN: Final = -1  # in the place of a sequence number
TOGETHER_S: Final = (
    0.1  # messages in memory that arrived within it are of one time, when blocks are made of them
)

Found: TypeAlias = tuple[Sequence[int], list[Message]]
"""Offsets, and the messages that have them."""

Raw: TypeAlias = Callable[[bytes | Exception], None]


class Log(ABC):
    """Messages by offset."""

    __slots__ = ("committed", "first", "messages", "next", "octets", "sequences")

    def __init__(self) -> None:
        self.first = 0  # offset of the oldest message that is left; the next one if there is none
        self.next = 0  # offset of the next message to arrive
        self.committed = 0  # readers see what is below
        self.messages = 0  # that are left
        self.octets = 0  # of their bodies
        self.sequences: dict[str, int] = {}  # the last number taken of each producer; the least recent first

    def is_repeated(self, producer: str, sequence: int) -> bool:
        """Whether this has been taken of a producer before, or something later. If not, it is taken now."""
        last = self.sequences.pop(producer, FORGOTTEN)
        self.sequences[producer] = max(last, sequence)
        if (
            sequence > last or self.committed < self.next
        ):  # who repeats what is not on disk yet has to wait for it, too
            self.keep_sequence(producer, max(last, sequence))
        if len(self.sequences) > PRODUCERS_MAX:
            oldest = next(iter(self.sequences))
            del self.sequences[oldest]
            self.keep_sequence(oldest, FORGOTTEN)
        return sequence <= last

    def keep_sequence(self, producer: str, sequence: int) -> None:
        """It has changed, or is to be on disk before the next confirm."""

    def note(self, name: str, number: int) -> None:
        """Keep a number (0 or more) under a name, in one commit with what else is done now. It stands in `sequences`.

        For logs of the broker's own, which have no producers.
        """
        self.sequences[name] = number
        self.keep_sequence(name, number)

    def unnote(self, name: str) -> None:
        """Keep it no more."""
        if self.sequences.pop(name, None) is not None:
            self.keep_sequence(name, FORGOTTEN)

    @property
    @abstractmethod
    def oldest_at(self) -> float | None:
        """When those arrived that are the next to grow too old, in seconds since 1970-01-01 UTC; None: none will."""

    def obey(self, limits: QueueLimits) -> None:
        """These will be kept to, with `retain`."""

    @abstractmethod
    def append(self, message: Message, wall: float, position: int | None = None) -> None:
        """`wall`: seconds since 1970-01-01 UTC. A clock that was set back does not count. `position`: its place in a
        queue (64 bits), to be found in blocks; a log has one of every message, or of none.
        """

    def takes(self, packed: Packed) -> bool:
        """Whether it would keep a block as it is."""
        return False

    def append_block(self, packed: Packed) -> None:
        """As `append`, of all that is in a block which it `takes`. They come from no queue."""
        raise NotImplementedError

    @abstractmethod
    def read(self, offset: int, quota: int, room: int, noted: bool = True) -> Found | None:
        """Up to `quota` committed messages from `offset` on, of no more than `room` octets and one message. What cannot
        be read any more is passed over. None: they have to be fetched. `noted`: with their offsets noted on them.
        """

    @abstractmethod
    def fetch(self, offset: int, then: Callable[[], None]) -> None:
        """Get what is at `offset`: when `then` is called, maybe at once, `read` has it. Not called if the log ends."""

    @abstractmethod
    def offset_since(self, wall: float, then: Callable[[int], None]) -> None:
        """Find the first offset that arrived at `wall` or later, or some before it; the next one if there is none.

        `then`, which may be called at once, is always called.
        """

    @abstractmethod
    def retain(self, max_octets: int | None, latest: float | None) -> None:
        """Let the oldest go: what is more than so many octets, and what arrived at `latest` or before."""

    @abstractmethod
    def drop_until(self, offset: int) -> None:
        """What is below is needed no more. It goes when all of its segment does; the last one on disk stays a while."""

    @abstractmethod
    def raw(self, offset: int, until: int, octets: int, then: Raw) -> None:
        """Whole blocks (`store/block.py`), in order, from the one with `offset` on; none begins at `until` or later.

        `then`, which may be called at once, gets no more than `octets` octets and one block, and no octets if nothing
        is there now; or a DamagedError, whose `next` is where to go on; or a StoreError. It is always called.
        """

    @abstractmethod
    def look(self) -> Iterator[tuple[int, Message]]:
        """All that is committed, read at once from wherever it is. For looking only."""

    @abstractmethod
    def end(self) -> list[Message]:
        """The stream is deleted. Returns what was in memory, for whoever frees it."""


class MemoryLog(Log):
    """In memory: lists, whose dropped front is cut off when it is an eighth of them."""

    __slots__ = ("_gone", "_messages", "_positions", "_times")

    def __init__(self) -> None:
        super().__init__()
        self._gone = 0  # elements of the lists that are dropped
        self._messages: list[Message] = []
        self._times = array("d")  # of arrival, seconds since 1970-01-01 UTC; never falling
        self._positions = array("Q")  # of all messages, or none

    @property
    def oldest_at(self) -> float | None:
        return self._times[self._gone] if self.messages else None

    def append(self, message: Message, wall: float, position: int | None = None) -> None:
        self._messages.append(numbered(message, self.next))
        if position is not None:
            self._positions.append(position)
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

    def offset_since(self, wall: float, then: Callable[[int], None]) -> None:
        then(self.first + bisect_left(self._times, wall, self._gone) - self._gone)

    def retain(self, max_octets: int | None, latest: float | None) -> None:
        """Message by message. The newest one stays however large it is, but not however old."""
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
            del self._messages[:gone], self._times[:gone], self._positions[:gone]
            self._gone = 0

    def raw(self, offset: int, until: int, octets: int, then: Raw) -> None:
        from broker_core.store import block  # a node in memory need not load it unless it is asked for
        from broker_core.store.contract import Append

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
            blocks.append(block.pack(append))
            begin += len(piece)
            first += len(piece)
        then(b"".join(blocks))

    def look(self) -> Iterator[tuple[int, Message]]:
        return enumerate(self._messages[self._gone :], self.first)

    def end(self) -> list[Message]:
        return self._messages


def numbered(message: Message, offset: int | None) -> Message:
    """The message with its offset noted on it, so that it is rendered once for all readers."""
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
    """The message as it was before it came into a log."""
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

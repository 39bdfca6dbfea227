"""The log of a stream in a store keeps its messages in segments on disk, which consist of blocks.

    append ──> open ──closed──> in flight ──landed──> committed: in the cache, and on disk
                                                         read <── cache <── a reading thread: blocks

Open messages go into the commit that the journal closes next, in one or several blocks; blocks that were appended as
such are kept. A segment ends when it is full, or too old if ages are limited; retention drops whole segments, never the
last. Readers see committed messages only, so that no offset that a reader saw is ever given to another message.

Unreadable messages are a hole, which is logged once, and which readers pass over.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from leveret.delivery import UNLIMITED
from leveret.durable.block_cache import Run
from leveret.durable.store import block
from leveret.durable.store.contract import Append, DamagedError, MissingProtocolError, Packed, Span
from leveret.durable.store.segment_reader import Part, read_part, read_wanted, some_blocks
from leveret.outbox import OVERHEAD
from leveret.queues.stream_log import Found, Log, Raw
from leveret.selectors.bloom import FILTER_OCTETS

if TYPE_CHECKING:
    from leveret.durable.journal import Journal
    from leveret.durable.store.contract import Reader
    from leveret.limits import QueueLimits
    from leveret.message import Message
    from leveret.selectors.bloom import BloomQuery

log: Final = logging.getLogger("leveret.store")

SEGMENT_OCTETS: Final = 64 << 20  # size of a segment, roughly, unless the stream's limits name another
SEGMENT_OCTETS_MIN: Final = 64 << 10  # however little the stream retains
SHARE: Final = 16  # a segment is at most this fraction of the size and the age that are retained
AGE_MS_MIN: Final = 1000  # least age at which a segment ends
RUN_OCTETS: Final = 256 << 10  # bytes of a run in the cache, above which new messages begin another

FIRST: Final = attrgetter("first")


class Segment:
    """The metadata of one segment."""

    __slots__ = ("begun", "bodies", "first", "last", "next", "octets")

    def __init__(self, first: int, begun: int) -> None:
        self.first = first
        self.next = first
        self.octets = 0  # bytes on disk, roughly
        self.bodies = 0  # bytes of the messages' bodies
        self.begun = self.last = begun  # when the first and the last message arrived, ms since 1970


class SegmentLog(Log):
    """The log of one stream. `described`: its name in error texts; `changed` is called when more is committed."""

    __slots__ = (
        "_arrivals",
        "_asked",
        "_before",
        "_changed",
        "_closed_to",
        "_counted",
        "_ended",
        "_filter_octets",
        "_flying",
        "_holes",
        "_journal",
        "_new_segment",
        "_open",
        "_positions",
        "_runs",
        "_segment_ms",
        "_segment_octets",
        "_segments",
        "_unmeasured",
        "described",
        "noted",
        "number",
        "remembers",
    )

    def __init__(self, journal: Journal, number: int, described: str, changed: Callable[[], None]) -> None:
        super().__init__()
        self.number = number
        self.described = described
        self.remembers = True  # committed messages are cached; False: bulk readers take them from disk
        self.noted = True  # messages read from disk have their offsets noted on them, as most readers want
        self._journal = journal
        self._changed = changed
        self._segments: list[Segment] = []  # by offset; there may be gaps where the store lost some
        self._closed_to = 0  # messages below this offset have been given to a commit
        self._before: list[list[Message] | Packed] = []  # messages and blocks appended since then, except
        self._open: list[Message] = []  # those after the last block
        self._positions = array("Q")  # of the messages in `_open`, or empty
        self._arrivals = array("Q")  # of the same
        self._counted = 0  # how many messages in `_open` have been reported by `measured`
        self._unmeasured = 0  # bytes of `_before` that have not been reported
        self._flying: list[Append] = []  # in the commit that is in flight
        self._runs: list[Run] = []  # its runs in the cache, by offset
        self._holes: list[tuple[int, int]] = []  # by offset: begin, and end (exclusive)
        self._asked: dict[int, list[Callable[[], None]]] = {}  # offsets being read, and callbacks
        self._segment_octets = SEGMENT_OCTETS
        self._segment_ms: int | None = None
        self._filter_octets = 0  # bytes of the Bloom filters of blocks; 0: there are none
        self._new_segment = False  # the next message begins a new segment
        self._ended = False

    def begin_at(self, offset: int) -> None:
        super().begin_at(offset)
        self._closed_to = offset

    # Arrival.

    def append(
        self, message: Message, wall: float, position: int | None = None, arrived: int | None = None
    ) -> None:
        """Append a message. Its time of arrival is when its commit is closed, so that `offset_since` misses none."""
        if not self._open:
            self._journal.appends[self] = None
        self._open.append(message)
        if position is not None:
            self._positions.append(position)
        if arrived is not None:
            self._arrivals.append(arrived)
        self.next += 1
        self.messages += 1
        self.octets += message.size

    def takes(self, packed: Packed) -> bool:
        return len(packed.octets) <= self._segment_octets

    def append_block(self, packed: Packed) -> None:
        assert not self._positions, "a log has a position of every message, or of none"
        self._journal.appends[self] = None
        self._unmeasured = self.measured() + len(packed.octets)
        if self._open:
            self._before.append(self._open)
            self._open, self._counted = [], 0
        self._before.append(packed)
        self.next += packed.count
        self.messages += packed.count
        self.octets += packed.bodies

    @property
    def gathered(self) -> int:
        """Return how many messages wait for the next commit."""
        return self.next - self._closed_to

    def measured(self) -> int:
        """Return the bytes of messages that were appended since the last call."""
        new = self._open[self._counted :]
        self._counted += len(new)
        octets, self._unmeasured = self._unmeasured, 0
        return octets + sum([each.size + len(each.properties) + OVERHEAD for each in new])

    def closed(self, wall: float) -> tuple[list[Append], int]:
        """Close the open messages. Return them in pieces, for the commit that is closed now, and their bytes."""
        arrived = max(int(wall * 1000), self._segments[-1].last if self._segments else 0)
        self._flying, octets = [], 0
        for run in (*self._before, self._open):
            octets += (
                self._close_block(run, arrived) if isinstance(run, Packed) else self._close(run, arrived)
            )
        self._before, self._open, self._counted, self._unmeasured = [], [], 0, 0
        self._positions, self._arrivals = array("Q"), array("Q")
        return self._flying, octets

    def _close(self, messages: list[Message], arrived: int) -> int:
        ends = list(accumulate([each.size + len(each.properties) + OVERHEAD for each in messages]))
        piece_octets = min(block.BLOCK_OCTETS, self._segment_octets)
        begin = before = 0
        while begin < len(messages):
            end = min(
                bisect_left(ends, before + piece_octets, begin) + 1, begin + block.BLOCK_MESSAGES, len(ends)
            )
            append = Append(self.number, 0, self._closed_to, arrived, messages[begin:end])
            append.filter_octets = self._filter_octets
            if self._positions:
                append.positions = self._positions[begin:end]
            if self._arrivals:
                append.arrivals = self._arrivals[begin:end]
            self._place(append, ends[end - 1] - before)
            begin, before = end, ends[end - 1]
        return before

    def _close_block(self, packed: Packed, arrived: int) -> int:
        self._place(Append(self.number, 0, self._closed_to, arrived, [], packed), len(packed.octets))
        return len(packed.octets)

    def _place(self, append: Append, octets: int) -> None:
        """Assign a piece to its segment, and add it to those in flight."""
        segment = self._segment_for(append.first, octets, append.arrived)
        append.segment = segment.first
        self._closed_to = segment.next = append.next
        segment.octets += octets
        segment.bodies += append.bodies
        segment.last = append.arrived
        self._flying.append(append)

    def _segment_for(self, first: int, octets: int, arrived: int) -> Segment:
        """Return the last segment, or a new one if the last has to end."""
        last = self._segments[-1] if self._segments else None
        if last is not None and not self._new_segment:
            is_full = last.octets and last.octets + octets > self._segment_octets
            is_old = self._segment_ms is not None and arrived - last.begun >= self._segment_ms
            if not (is_full or is_old):
                return last
        self._new_segment = False
        self._segments.append(made := Segment(first, arrived))
        return made

    def landed(self) -> None:
        """Commit the messages in flight, which are on disk now, unless the log has ended."""
        flying, self._flying = self._flying, []
        if self._ended:
            return
        for each in flying:
            if self.remembers and each.packed is None:
                self._remember(each.first, each.messages)
            self.committed = each.next
        self._changed()

    def _remember(self, first: int, messages: list[Message]) -> None:
        cache, run = self._journal.cache, self._runs[-1] if self._runs else None
        if run is not None and run.next == first and run.octets < RUN_OCTETS:
            cache.extend(run, messages)
        else:
            run = Run(self, first, messages.copy(), noted=False)  # a copy, as the run grows
            self._runs.append(run)
            cache.hold(run)

    def keep_sequence(self, producer: str, sequence: int) -> None:
        self._journal.producers[self.number, producer] = sequence

    # Restoring.

    def take_back(self, span: Span) -> None:
        """Restore the metadata of a segment. Called in order of offsets, before any message is appended."""
        self._segments.append(segment := Segment(span.first, span.begun))
        segment.next, segment.octets, segment.bodies, segment.last = (
            span.next,
            span.octets,
            span.bodies,
            span.last,
        )
        self.first = self._segments[0].first
        self.next = self.committed = self._closed_to = span.next
        self.messages += span.next - span.first
        self.octets += span.bodies

    def taken_back(self, was_clean: bool) -> None:
        """End the restoration. After an unclean end, a new segment begins, as the last may have a torn end on disk."""
        self._new_segment = not was_clean
        self._changed()

    # Retention.

    @property
    def oldest_at(self) -> float | None:
        segments = self._segments
        return segments[0].last / 1000 if len(segments) > 1 else None

    def obey(self, limits: QueueLimits) -> None:
        octets = limits.max_segment_bytes or SEGMENT_OCTETS
        if limits.max_bytes is not None:
            octets = min(octets, limits.max_bytes // SHARE)
        self._segment_octets = max(octets, SEGMENT_OCTETS_MIN)
        self._filter_octets = limits.filter_bytes or FILTER_OCTETS
        age_ms = limits.max_age_ms
        self._segment_ms = None if age_ms is None else max(AGE_MS_MIN, age_ms // SHARE)

    def retain(self, max_octets: int | None, latest: float | None) -> None:
        """Drop the oldest segments; the last one stays."""

        def is_too_much(oldest: Segment) -> bool:
            is_surplus = max_octets is not None and self.octets > max_octets
            return is_surplus or (latest is not None and oldest.last / 1000 <= latest)

        self._drop_while(is_too_much)

    def drop_until(self, offset: int) -> None:
        """Drop segments below `offset`. If all are, the next message begins a segment, so that the last can go."""
        self._drop_while(lambda oldest: oldest.next <= offset)
        last = self._segments[-1] if self._segments else None
        self._new_segment |= last is not None and last.next <= min(offset, self.committed)

    def _drop_while(self, is_too_much: Callable[[Segment], bool]) -> None:
        """Drop the oldest segments as long as they are committed, and others follow."""
        segments, gone = self._segments, 0
        while gone + 1 < len(segments) and segments[gone].next <= self.committed:
            oldest = segments[gone]
            if not is_too_much(oldest):
                break
            self.messages -= oldest.next - oldest.first
            self.octets -= oldest.bodies
            self._journal.cut(self.number, oldest.first)
            gone += 1
        if gone:
            del segments[:gone]
            self.first = segments[0].first
            self._forget_dropped()

    def _forget_dropped(self) -> None:
        runs, gone = self._runs, 0
        while gone < len(runs) and runs[gone].next <= self.first:
            self._journal.cache.forget(runs[gone])
            gone += 1
        del runs[:gone]
        self._holes = [hole for hole in self._holes if hole[1] > self.first]

    # Reading.

    def read(self, offset: int, quota: int, room: int, noted: bool = True) -> Found | None:
        offset = max(offset, self.first)
        begin = offset
        found: list[Message] = []
        while offset < self.committed and len(found) < quota and room > 0:
            run = self._run_at(offset)
            if run is None:
                if found:
                    break
                if (behind := self._behind_hole(offset)) == offset:
                    return None
                begin = offset = behind
                continue
            start = end = offset - run.first
            messages = run.messages
            stop = min(start + quota - len(found), len(messages))
            while end < stop and room > 0:
                room -= messages[end].size + len(messages[end].properties) + OVERHEAD
                end += 1
            self._journal.cache.use(run)
            found += run.shown(start, end) if noted else run.unnoted(start, end)
            offset += end - start
        return range(begin, begin + len(found)), found

    def _run_at(self, offset: int) -> Run | None:
        runs = self._runs
        if runs and runs[-1].first <= offset:  # usual, as most readers keep up
            return runs[-1] if offset < runs[-1].next else None
        at = bisect_right(runs, offset, key=FIRST) - 1
        return runs[at] if at >= 0 and offset < runs[at].next else None

    def _behind_hole(self, offset: int) -> int:
        """Return the first offset from this one on that is not in a hole or gap."""
        while offset < self.committed:
            segment = self._segment_at(offset)
            at = bisect_right(self._holes, offset, key=lambda hole: hole[0]) - 1
            behind = max(offset, segment.first, self._holes[at][1] if at >= 0 else 0)
            if behind == offset:
                break
            offset = behind
        return offset

    def _segment_at(self, offset: int) -> Segment:
        """Return the segment of a committed offset, or the one that follows if the offset is in a gap."""
        segments = self._segments
        at = bisect_right(segments, offset, key=FIRST) - 1
        return segments[at] if at >= 0 and offset < segments[at].next else segments[at + 1]

    def fetch(self, offset: int, then: Callable[[], None]) -> None:
        offset = self._behind_hole(max(offset, self.first))
        if offset >= self.committed or self._run_at(offset) is not None:
            then()
        elif (waiting := self._asked.get(offset)) is not None:
            waiting.append(then)
        else:
            self._asked[offset] = [then]
            self._journal.readings.soon(self._job(offset), partial(self._arrived, offset))

    def _job(self, offset: int) -> Callable[[Reader], Part]:
        number, (segment, until) = self.number, self._bounds(offset)
        encoding_of, noted = self._journal.encoding, self.noted
        return lambda reader: read_part(reader, number, segment, offset, until, encoding_of, noted)

    def _bounds(self, offset: int) -> tuple[int, int]:
        """Return the segment that has an offset on disk, and the offset up to which it is to be read."""
        segment = self._segment_at(offset)
        at = bisect_right(self._runs, offset, key=FIRST)
        cached = self._runs[at].first if at < len(self._runs) else UNLIMITED
        return segment.first, min(segment.next, self.committed, cached)

    def _arrived(self, offset: int, result: Part | Exception) -> None:
        waiting = self._asked.pop(offset, [])
        if self._ended:
            return
        if offset >= self.first:  # else it was dropped meanwhile, which may be why reading failed
            if isinstance(result, DamagedError):
                self.add_hole(offset, result)
            elif isinstance(result, Exception):
                self._journal.reading_failed(result)
                return
            else:
                self._take_in(offset, result)
        for then in waiting:
            then()

    def seek(self, offset: int, wanted: BloomQuery, then: Callable[[int], None]) -> None:
        offset = self._behind_hole(max(offset, self.first))
        if offset >= self.committed or self._run_at(offset) is not None:
            then(offset)
            return
        number, (segment, until) = self.number, self._bounds(offset)
        encoding_of, noted = self._journal.encoding, self.noted

        def found(sought: tuple[int, Part] | Exception) -> None:
            if self._ended:
                return
            if isinstance(sought, DamagedError):
                then(self.add_hole(offset, sought) if offset >= self.first else self.first)
            elif isinstance(sought, Exception):
                self._journal.reading_failed(sought)
            else:
                at, part = sought
                if part[1] and at >= self.first:
                    self._take_in(at, part)
                then(at)

        self._journal.readings.soon(
            lambda reader: read_wanted(reader, number, segment, offset, until, wanted, encoding_of, noted),
            found,
        )

    def _take_in(self, offset: int, part: Part) -> None:
        """Cache the messages read, without those that are cached already; the one at `offset` was wanted."""
        first, messages = part
        at = bisect_right(self._runs, offset, key=FIRST)
        begin = max(first, self.first)
        if at:
            if self._runs[at - 1].next > offset:
                return  # it was read twice
            begin = max(begin, self._runs[at - 1].next)
        end = first + len(messages)
        if at < len(self._runs):
            end = min(end, self._runs[at].first)
        run = Run(self, begin, messages[begin - first : end - first], self.noted)
        self._runs.insert(at, run)
        self._journal.cache.hold(run)

    def let_go(self, run: Run) -> None:
        """Forget a run that the cache has dropped."""
        at = bisect_left(self._runs, run.first, key=FIRST)
        del self._runs[at]

    def add_hole(self, offset: int, damage: DamagedError) -> int:
        """Note and log that messages from `offset` on cannot be read. Return where the hole ends."""
        segment = self._segment_at(offset)
        most = min(segment.next, self.committed)
        end = min(max(damage.next or most, offset + 1), most)
        at = bisect_right(self._holes, (offset, UNLIMITED))
        if at and self._holes[at - 1][1] >= end:
            return end  # it is known already
        self._holes.insert(at, (offset, end))
        if isinstance(damage, MissingProtocolError):
            self._journal.tell_missing(self.described, [damage.protocol])
        else:
            log.error(
                "messages %d to %d of %s cannot be read; readers pass over them: %s",
                offset,
                end - 1,
                self.described,
                damage,
            )
        return end

    def look(self) -> Iterator[tuple[int, Message]]:
        offset = self.first
        while (found := self.read(offset, UNLIMITED, UNLIMITED)) is None or found[1]:
            if found is not None:
                yield from zip(*found, strict=True)
                offset = found[0][-1] + 1
                continue
            offset = self._behind_hole(offset)
            with self._journal.store.reader() as reader:
                try:
                    self._take_in(offset, self._job(offset)(reader))
                except DamagedError as damage:
                    self.add_hole(offset, damage)

    def offset_since(self, wall: float, then: Callable[[int], None]) -> None:
        """Choose a segment by its times, and have a thread search it, which may take a second."""
        arrived = int(wall * 1000)
        at = bisect_left(self._segments, arrived, key=attrgetter("last"))
        if at == len(self._segments):
            then(self._closed_to)  # open messages may have arrived before or after
            return
        segment = self._segments[at]
        until = min(segment.next, self.committed)
        if segment.begun >= arrived or segment.first >= until:
            then(segment.first)
            return

        def found(offset: int | Exception) -> None:
            if isinstance(offset, Exception):
                if not isinstance(offset, DamagedError):
                    self._journal.reading_failed(offset)
                offset = segment.first
            then(offset)

        self._journal.readings.soon(
            lambda reader: reader.offset_since(self.number, segment.first, until, arrived), found
        )

    # In bulk.

    def raw(self, offset: int, until: int, octets: int, then: Raw) -> None:
        offset, until = max(offset, self.first), min(until, self.committed)
        if offset >= until:
            then(b"")
            return
        if (behind := self._behind_hole(offset)) > offset:
            then(DamagedError("these messages cannot be read", behind))
            return
        segment = self._segment_at(offset)
        until = min(until, segment.next)

        def arrived(result: bytes | Exception) -> None:
            if self._ended or offset < self.first:
                result = b""
            elif isinstance(result, DamagedError):
                result.next = self.add_hole(offset, result)
            elif isinstance(result, Exception):
                self._journal.reading_failed(result)
            then(result)

        self._journal.readings.soon(
            lambda reader: some_blocks(reader, self.number, segment.first, offset, until, octets), arrived
        )

    # The end.

    def end(self) -> list[Message]:
        self._ended = True
        self._journal.end_stream(self.number)
        messages: list[Message] = []
        for run in self._runs:
            self._journal.cache.forget(run)
            messages += run.messages
        self._runs, self._asked, self._before, self._open = [], {}, [], []
        return messages

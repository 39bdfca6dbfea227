"""The journal gathers the changes of the broker, commits them to the store together, and then reports to publishers.

    queues ── arrivals, settled ─┐
    topology ── put, remove ─────┴─> the open commit ── settle ──> store ── durable ──> publishers, held replies
                                        (one in flight; meanwhile the next is gathered, and may be
                                         encoded by a store that waits for an answer)

Nothing here blocks. All changes between two calls of `settle` are in one commit, so that the changes of a transaction
or a dead letter to several queues are on disk together, or not at all. A message that is settled before its commit is
closed is never written.

A stored message is an `Entry` of a `Holder`, such as a queue.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from leveret.delivery import Delivery
from leveret.durability import (
    LITTLE_OCTETS,
    PENDING,
    Entry,
)
from leveret.durable.block_cache import BlockCache, Readings
from leveret.durable.chunk_state import ChunkState
from leveret.durable.compaction import Compaction
from leveret.durable.entry_reader import EntryReader
from leveret.durable.one_by_one import OneByOne
from leveret.durable.pending_commit import GatheringMoment, gathered, given_up, octets_of
from leveret.durable.recovery import ALL_UP_TO, owners_of
from leveret.durable.segment_log import SegmentLog
from leveret.durable.store.contract import Commit, NoSpaceError, Store, StoreError
from leveret.durable.wall_offsets import JUMP_MS

if TYPE_CHECKING:
    from leveret.broker import Broker, Publisher
    from leveret.clock import Timer
    from leveret.message import Encoding

log: Final = logging.getLogger("leveret.store")

CHUNK_OCTETS: Final = 1 << 20  # bytes of messages; the last message may exceed it
CHUNK_ENTRIES: Final = 1 << 16
RETRY_S: Final = 1.0  # between attempts to commit when there is no space

QUICK_MESSAGES: Final = 8  # messages with consumers: a commit waits for these to be settled unwritten,
DOUBTS: Final = 100  # unless one of so many commits before waited in vain, or of more if several did in a row
DOUBLED_MAX: Final = 6  # times that the number of commits is doubled: at most one of 6400 waits in vain
AHEAD_ENTRIES: Final = 64  # in a commit that is encoded while the one before is in flight, at least
LOW_ON_DISK: Final = "low on disk"
STALLED: Final = "the store does not answer"
LOST: Final = "the store has lost what was confirmed"


class FlyingCommit:
    """A commit that the store has, and has not reported as durable, and what is to be done then."""

    __slots__ = ("commit", "entries", "last", "logs", "octets", "waiting")

    def __init__(self, commit: Commit, entries: int, last: int, octets: int) -> None:
        self.commit = commit
        self.entries = entries  # that are new
        self.last = last  # number of the last entry until then
        self.octets = octets
        self.logs: dict[SegmentLog, None] = {}  # with messages in it
        self.waiting: dict[Publisher, int] = {}  # publishers, with their marks


@mypyc_attr(allow_interpreted_subclasses=True)
class Journal(EntryReader):
    """The journal of one broker, for one store."""

    def __init__(self, store: Store, broker: Broker, encodings: Mapping[str, Callable[[], Encoding]]) -> None:
        """Create a journal. `encodings`: by protocol name, a function that returns its encoding."""
        super().__init__(store, broker, encodings)
        self.chunk_octets, self.chunk_entries = CHUNK_OCTETS, CHUNK_ENTRIES
        self.behind_octets, self.retry_s, self.doubts = store.behind_octets, RETRY_S, DOUBTS
        self.ahead_entries = AHEAD_ENTRIES
        self._commits_max = store.commits_max
        broker.journal = self
        self.arrivals = []
        self.settled = []
        self.appends: dict[SegmentLog, None] = {}  # logs with messages for the open commit
        self.producers: dict[tuple[int, str], int] = {}  # last sequence number, by stream and producer
        self.holds = False  # set by changes whose reply waits for commit `open`; the node resets it
        self.open = 1  # number of the commit that is being gathered
        self.durable = 0  # number of the last commit on disk
        self.written = 0
        self.next_queue = 1  # number of the next durable queue
        self.next_entry = 1
        self.redelivered_to = 0  # entries up to this number may have been delivered before
        self.behind = False  # publishers have to wait
        self.patience_s = 0.0  # a commit that no publisher waits for is put off so long, to gather more
        self.logs: dict[int, SegmentLog] = {}  # by the number of the stream
        self.cache = BlockCache()
        self.readings = Readings(store)
        self.on_durable: Callable[[], None] = lambda: None
        self.on_failed: Callable[[StoreError], None] = lambda error: None
        self.quick_s = 0.0  # a commit is put off so long for consumers that may settle all of it
        self._put_off: Timer | None = None  # the end of the wait of the open commit
        self._overdue = False  # that wait is over
        self._doubts = 0  # so many commits will not wait for consumers
        self._vain = 0  # commits in a row that waited for consumers in vain
        self._held = False  # a reply waits for the open commit
        self._compaction = Compaction(self)
        self._objects: dict[str, str | None] = {}
        self._renewed: set[str] = set()  # keys of objects that were removed in the open commit, and are back
        self._numbers: list[Sequence[int]] = []  # settled entries known by their numbers only
        self._tried: list[Entry] = []
        self._waits: dict[Entry, int] = {}  # marks of entries that wait for a time
        self._paged_out: list[Entry] = []
        self._cut: list[tuple[int, int]] = []
        self._ended: list[int] = []
        self._waiting: dict[Publisher, int] = {}  # publishers that wait for the open commit, with their marks
        self._flying: list[FlyingCommit] = []  # in order; at most `_commits_max`
        self._flying_octets = 0
        self._gathered = 0  # bytes of the counted arrivals
        self._counted = 0  # number of them
        self._one_by_one = OneByOne()
        self.stalled: str | None = None  # why commits wait, for something that may come back by itself
        self._short = False  # the last commit failed for lack of space, or the store is short of it
        self._look: Timer | None = None  # for room on the disk
        self._started = False
        self._failed = False

    # Changes.

    def put(self, key: str, value: str) -> None:
        """Store an object under a key."""
        if self._objects.get(key, value) is None:
            self._renewed.add(key)
        self._objects[key] = value
        self.holds = True

    def remove(self, key: str) -> None:
        """Remove an object from the store."""
        self._objects[key] = None
        self.holds = True

    def settle_numbers(self, numbers: Sequence[int]) -> None:
        self._numbers.append(numbers)

    def attempted(self, entry: Entry) -> None:
        if entry.stored:
            self._tried.append(entry)

    def waits(self, entry: Entry, mark: int) -> None:
        if entry.stored:
            self._waits[entry] = mark

    def revised(self, entry: Entry) -> None:
        if entry.stored > 0:
            self._numbers.append((entry.stored,))
            entry.stored = 0
            if entry.message.facts.durable and entry.holder().number:
                entry.stored = PENDING
                self.arrivals.append(entry)  # else it was only paged out, and is in memory again

    def page_out(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            entry.stored = PENDING
        self._paged_out.extend(entries)

    def open_log(self, number: int, described: str, changed: Callable[[], None]) -> SegmentLog:
        """Open the log of a stream, and return it."""
        log = self.logs[number] = SegmentLog(self, number, described, changed)
        return log

    def cut(self, number: int, first: int) -> None:
        """Delete the segment of a stream that begins at offset `first`."""
        self._cut.append((number, first))

    def end_stream(self, number: int) -> None:
        """Delete all that is stored of a stream."""
        if (log := self.logs.pop(number, None)) is not None:
            self.appends.pop(log, None)
        self._ended.append(number)

    @property
    def gathered(self) -> int:
        """Return how many messages are in the open commit."""
        streams = sum([log.gathered for log in self.appends]) if self.appends else 0
        return len(self.arrivals) + streams

    @property
    def dirty(self) -> bool:
        """Return whether there is something to commit."""
        return bool(
            self.arrivals
            or self.settled
            or self._objects
            or self._numbers
            or self._tried
            or self._waits
            or self._paged_out
            or self._compaction.done
            or self.appends
            or self.producers
            or self._cut
            or self._ended
        )

    # The end of a batch.

    def settle(self, publishers: Sequence[Publisher]) -> None:
        """End a batch, whose changes belong together. Publishers that need not wait are told now, others later.

        Streams keep every message: if one got any, all publishers wait, as its publisher is not known here.
        """
        dirty, has_appends = self.dirty, bool(self.appends)
        for publisher in publishers:
            waits = publisher in self._waiting or (self._flying and _is_waiting(publisher, self._flying))
            if waits or (dirty and (has_appends or publisher.persistent)):
                self._waiting[publisher] = publisher.mark()
            else:
                publisher.taken(publisher.mark())
        self._one_by_one.batches += 1
        if dirty or self._waiting:
            self._held = self._held or self.holds
            self._go_on()
            self._measure()

    def _measure(self) -> None:
        """Update `behind` by the bytes that are not on disk."""
        if self._counted < len(self.arrivals):
            self._gathered += octets_of(self.arrivals, self._counted)
            self._counted = len(self.arrivals)
        if self.appends:
            self._gathered += sum([log.measured() for log in self.appends])
        ahead = self._gathered + self._flying_octets
        self.behind = ahead > self.behind_octets or (ahead > LITTLE_OCTETS and ahead > self.store.ahead_max)

    def ahead(self) -> int:
        """Return the bytes that will be written for what is gathered: to the log, and when that is copied."""
        return 2 * (self._gathered + self._flying_octets)

    def has_room_for(self, octets: int) -> bool:
        return octets <= LITTLE_OCTETS or self.ahead() + 2 * octets <= self.store.measure_room()

    # Committing.

    def _go_on(self) -> None:
        """Close the open commit and pass it to the store, if it need not wait for the one before, or for more."""
        flying = self._flying
        while len(flying) < self._commits_max and self._started and not self._failed:
            if not (self._waiting or self.dirty) or (flying and not self._is_worth_encoding()):
                return
            if wait_s := self._can_wait():
                self._put_off_commit(wait_s)
                return
            closed = self._closed()
            flying.append(closed)
            closed.waiting, self._waiting = self._waiting, {}
            if closed.commit or len(flying) > 1:
                waiting, work = closed.waiting, self.broker.work
                alone = bool(waiting) and self._one_by_one.is_next(waiting, closed.entries, work)
                if self.store.append(closed.commit, at_once=alone and len(flying) == 1):
                    self._landed(closed.commit.number)
                    self._compaction.look()
            else:  # all changes cancelled each other
                self._vain = 0
                self._landed(closed.commit.number)

    def _is_worth_encoding(self) -> bool:
        """Return whether the store gets the open commit to encode it, while it writes the one before.

        It has as much as that one by then, so that publishers with a window have no more to send. What consumers may
        settle, and never be written, stays open for as long as possible.
        """
        arrivals = self.arrivals
        if len(arrivals) < max(self.ahead_entries, self._flying[-1].entries):
            return False
        if self._short or self.stalled is not None or self.settled or not self._has_arrivals_only():
            return False
        return not (_is_for_consumers(arrivals[0]) or _is_for_consumers(arrivals[-1]))

    def _can_wait(self) -> float:
        """Return the seconds to put off the open commit, if no publisher waits, or consumers may settle all of it."""
        if self._held or self._overdue:
            return 0.0
        if not self._waiting:
            return self.patience_s
        return self.quick_s if not self._doubts and self._is_with_consumers() else 0.0

    def _is_with_consumers(self) -> bool:
        """Return whether only a few messages are to be written, all with consumers, which may settle them before."""
        arrivals, settled = self.arrivals, self.settled
        if not 0 < len(arrivals) <= QUICK_MESSAGES or len(settled) > len(arrivals):
            return False
        if not self._has_arrivals_only():
            return False
        answered = {id(entry) for entry in settled if entry.stored == PENDING}
        left = [entry for entry in arrivals if id(entry) not in answered]
        return bool(left) and all(_has_consumer(each) for each in left)

    def _has_arrivals_only(self) -> bool:
        """Return whether the open commit has nothing but messages of queues, and their settling."""
        if self._objects or self._numbers or self._tried or self._paged_out or self._compaction.done:
            return False
        if self._waits:
            return False
        return not (self.appends or self.producers or self._cut or self._ended)

    def _put_off_commit(self, wait_s: float) -> None:
        if self._put_off is None:
            self._put_off = self.broker.timers.at(self.broker.now + wait_s, self._patience_ends)

    def _patience_ends(self, now: float) -> None:
        """Mark the open commit as overdue. The timer fires while the broker settles, whose end closes the commit."""
        self._put_off = None
        self._overdue = self.dirty
        if self._waiting:
            self._doubts = (self.doubts << min(self._vain, DOUBLED_MAX)) + 1
            self._vain += 1

    def _closed(self) -> FlyingCommit:
        """Close the open commit, and begin the next."""
        commit = Commit(self.open)
        self.open += 1
        self._held = self._overdue = False
        self._doubts -= self._doubts > 0
        if self._put_off is not None:
            self.broker.timers.cancel(self._put_off)
            self._put_off = None
        self._settle_in(commit)
        arrivals, self.arrivals = self.arrivals, []
        volatile, self._paged_out = self._paged_out, []
        before = self.next_entry
        octets = self._gather(commit, arrivals, False) if arrivals else 0
        if volatile:
            octets += self._gather(commit, volatile, True)
        flying = FlyingCommit(commit, self.next_entry - before, self.next_entry - 1, octets)
        self._gather_streams(flying)
        self._flying_octets += flying.octets
        self._gathered = self._counted = 0
        commit.objects, self._objects = self._objects, {}
        commit.renewed, self._renewed = self._renewed, set()
        tried, self._tried = self._tried, []
        commit.marks = {entry.stored: entry.attempts for entry in tried if entry.stored > 0}
        if self._waits:
            waits, self._waits = self._waits, {}
            commit.marks.update({entry.stored: mark for entry, mark in waits.items() if entry.stored > 0})
        self._compaction.replace_in(commit)
        return flying

    def _settle_in(self, commit: Commit) -> None:
        settled, self.settled = self.settled, []
        numbers = given_up(settled)
        ranges: list[range] = []  # of pages, as ranges: to go through a long queue's numbers takes long
        for more in self._numbers:
            if isinstance(more, range) and more.step == 1:
                ranges.append(more)
            else:
                numbers += more
        self._numbers.clear()
        if not (numbers or ranges):
            return
        numbers.sort()
        changed = {state.first: state for state in self.known.settle_ranges(ranges)}
        changed.update((state.first, state) for state in self.known.settle(numbers))
        gone: list[ChunkState] = []
        for state in changed.values():
            if state.live:
                commit.settled[state.first] = bytes(state.bits)
            else:
                gone.append(state)
        self.known.drop(gone)
        commit.dropped += [state.first for state in gone]

    def _gather(self, commit: Commit, arrivals: list[Entry], volatile: bool) -> int:
        """Number the arrivals that are not settled yet, and put them into chunks. Return their bytes."""
        clock, offsets = self.broker.clock, self.wall_offsets
        wall = clock.wall()
        offset_ms = (wall - clock.now()) * 1000
        if abs(offset_ms - offsets.latest_ms) > JUMP_MS:
            offsets.clock_was_set(offset_ms, self.next_entry)
        moment = GatheringMoment(wall, offsets.latest_ms)
        total = 0
        for portion in gathered(
            arrivals, self.next_entry, moment, volatile, self.chunk_octets, self.chunk_entries
        ):
            entries = portion.entries
            commit.chunks.append(entries)
            numbers = range(entries.first, entries.first + len(entries))
            self.next_entry = numbers.stop
            self.known.add(ChunkState(entries.first, numbers, portion.octets, volatile))
            self._arrival_times.note(entries.first, entries.arrived)
            total += portion.octets
        return total

    def _gather_streams(self, flying: FlyingCommit) -> None:
        commit = flying.commit
        logs, self.appends = self.appends, {}
        wall = self.broker.clock.wall() if logs else 0.0
        for each in logs:
            appends, octets = each.closed(wall)
            commit.appends += appends
            flying.octets += octets
        flying.logs = logs
        commit.cut, self._cut = self._cut, []
        commit.ended, self._ended = self._ended, []
        commit.producers, self.producers = self.producers, {}

    # Reports of the store.

    def start(self, soon: Callable[[Callable[[], None]], None]) -> None:
        """Begin to commit. `soon(f)` has `f` called in the broker's thread. Raises StoreError."""
        self.store.start(soon, self._on_durable, self._on_failure, self._on_stalled)
        self._started = True
        self._look_at_room()
        self._go_on()

    def _on_durable(self, number: int) -> None:
        self._landed(number)
        if self._short or self.store.is_short:
            self._look_at_room()
        self._compaction.look()
        self._go_on()
        self._measure()
        self.on_durable()

    def _landed(self, number: int) -> None:
        """Note that a commit is on disk, and tell the logs and publishers that wait for it."""
        flying = self._flying.pop(0)
        self.durable = number
        self.written = flying.last
        self._flying_octets -= flying.octets
        for each in flying.logs:
            each.landed()
        for publisher, mark in flying.waiting.items():
            try:
                publisher.taken(mark)
            except Exception:
                log.exception("a mistake of ours while a publisher was told of a commit")

    def reading_failed(self, error: Exception) -> None:
        self._on_failure(error)

    def _on_failure(self, error: Exception) -> None:
        if isinstance(error, NoSpaceError):
            self._run_short(str(error))
            self.broker.timers.at(self.broker.clock.now() + self.retry_s, self._try_again)
        else:
            self.fail(error if isinstance(error, StoreError) else StoreError(repr(error)))

    def _on_stalled(self, cause: str | None) -> None:
        """Hold publishers back while commits cannot be written; consumers get what is there."""
        self.stalled = cause
        if cause is None:
            log.info("the store answers again")
            self.broker.alarms.clear(STALLED)
            if self.store.has_lost:
                self.broker.alarms.warn(LOST)
            self.read_all_again()
        else:
            log.error("the store does not answer, and publishers are held back until it does: %s", cause)
            self.broker.alarms.set(STALLED)

    def _run_short(self, why: str) -> None:
        if not self._short:
            self._short = True
            log.error("no space for the store: publishers are held back until there is (%s)", why)
            self.broker.alarms.set(LOW_ON_DISK)

    def _look_at_room(self, now: float = 0.0) -> None:
        """Hold publishers back while the store is short, and let them go on when it is not."""
        if self.store.is_short:
            self._run_short("what was kept for acknowledgements is in use")
            self.broker.timers.cancel(self._look)
            self._look = self.broker.timers.at(self.broker.clock.now() + self.retry_s, self._look_at_room)
        elif self._short and not self._flying:
            self._short = False
            self.broker.alarms.clear(LOW_ON_DISK)

    def fail(self, error: StoreError) -> None:
        """Stop committing, as the store cannot be trusted any more, and report it once."""
        if not self._failed:
            self._failed = True
            self.on_failed(error)

    def _try_again(self, now: float) -> None:
        """Give the store again what it had no space for, and what was to follow that."""
        if not self._failed:
            for flying in self._flying:
                self.store.append(flying.commit)

    # The end.

    def close(self) -> None:
        """Commit what is left, and close the store properly. No publisher is told any more. Raises StoreError."""
        self._started = False
        if self._failed:
            self.give_up()
            return
        for flying in self._flying:
            flying.logs = {}  # streams have no readers any more
        last = self._closed().commit
        last.marks[ALL_UP_TO] = self.redelivered_to
        for owner in owners_of(self.broker):
            for number, mark in owner.marked():
                if mark or number > self.redelivered_to:
                    last.marks[number] = mark
        self.store.close(last)

    def give_up(self) -> None:
        """Close the store without a last commit: the next start finds that it was not closed properly."""
        self._started = False
        self.store.close(None)


def _is_waiting(publisher: Publisher, commits: list[FlyingCommit]) -> bool:
    """Return whether a publisher waits for one of these commits."""
    for flying in commits:  # noqa: SIM110 - a generator would cost more than these steps
        if publisher in flying.waiting:
            return True
    return False


def _has_consumer(entry: Entry) -> bool:
    """Return whether a consumer has an entry, and may settle it soon."""
    return isinstance(entry, Delivery) and entry.consumer is not None


def _is_for_consumers(entry: Entry) -> bool:
    """Return whether an entry is in a queue that has consumers, which may settle it before long."""
    return isinstance(entry, Delivery) and bool(entry.queue.consumers)

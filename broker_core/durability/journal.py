"""The loop's side of the store: what has changed is gathered, committed in one go, and then everybody is told.

    queues ── arrivals, settled ─┐
    topology ── put, remove ─────┴─> the open commit ── settle ──> store ── durable ──> publishers, held replies
                                        (one in flight; meanwhile the next is gathered)

Nothing here waits. All that is done between two calls of `settle` is in one commit: what a transaction or a dead letter
does to several queues is on disk whole, or not at all. A message that is settled before its commit is closed is never
written.

What can be kept is an `Entry`, of a queue or of what else is a `Holder`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from broker_core.clock import NEVER
from broker_core.delivery import Delivery
from broker_core.durability.block_cache import BlockCache, Readings
from broker_core.durability.chunk_state import ChunkState
from broker_core.durability.chunks import Chunks
from broker_core.durability.compaction import Rewriter
from broker_core.durability.contract import PENDING, Durability, Entry, Holder, Stored
from broker_core.durability.page_reader import FoundPage, read_page
from broker_core.durability.pending_commit import GatheringMoment, gathered, given_up, octets_of
from broker_core.durability.recovery import ALL_UP_TO, owners_of
from broker_core.durability.segment_log import SegmentLog
from broker_core.store.contract import Commit, NoSpaceError, Page, Store, StoreError

if TYPE_CHECKING:
    from broker_core.broker import Broker, Publisher
    from broker_core.clock import Timer
    from broker_core.message import Encoding

log: Final = logging.getLogger("leveret.store")

CHUNK_OCTETS: Final = 1 << 20  # of messages, and one message
CHUNK_ENTRIES: Final = 1 << 16
BEHIND_OCTETS: Final = 32 << 20  # gathered and not on disk: then publishers wait
RETRY_S: Final = 1.0  # between attempts to commit when there is no space
QUICK_MESSAGES: Final = 8  # that consumers have, and may settle before they are written: that is waited for,
DOUBTS: Final = 100  # unless one of so many commits before has waited in vain
LOW_ON_DISK: Final = "low on disk"


@mypyc_attr(allow_interpreted_subclasses=True)
class Journal(Durability):
    """What one broker keeps in one store."""

    def __init__(self, store: Store, broker: Broker, encodings: Mapping[str, Callable[[], Encoding]]) -> None:
        """`encodings`: by name, how messages of each protocol are read."""
        self.chunk_octets, self.chunk_entries = CHUNK_OCTETS, CHUNK_ENTRIES
        self.behind_octets, self.retry_s, self.doubts = BEHIND_OCTETS, RETRY_S, DOUBTS
        self.store = store
        self.broker = broker
        broker.journal = self
        self.arrivals = []
        self.settled = []
        self.appends: dict[
            SegmentLog, None
        ] = {}  # logs with messages for the open commit; they enter themselves
        self.producers: dict[
            tuple[int, str], int
        ] = {}  # streams tell what sequence number they took last of whom
        self.holds = (
            False  # set by what must not be answered before commit `open` is durable; others set it back
        )
        self.open = 1  # the number of the commit that is being gathered
        self.durable = 0  # the number of the last one on disk
        self.written = 0
        self.next_queue = 1  # the number of the next durable queue
        self.next_entry = 1
        self.redelivered_to = 0  # entries up to this number may have been delivered before an unclean end
        self.behind = False  # publishers had better wait
        self.patience_s = 0.0  # so long a commit is put off that nobody waits for: more will come with it
        self.known = Chunks()
        self.logs: dict[int, SegmentLog] = {}  # by the number of the stream
        self.cache = BlockCache()
        self.readings = Readings(store)
        self.on_durable: Callable[[], None] = lambda: None
        self.on_failed: Callable[[StoreError], None] = lambda error: None
        self._encodings = encodings
        self.quick_s = 0.0  # so long consumers are waited for who may settle all of it
        self._put_off: Timer | None = None  # after it, the open commit has waited long enough
        self._overdue = False  # it has
        self._doubts = 0  # commits that will not wait for consumers
        self._held = False  # an answer waits for the open commit
        self._rewriter = Rewriter(self)
        self._objects: dict[str, str | None] = {}
        self._numbers: list[Sequence[int]] = []  # settled, and known by their numbers only
        self._tried: list[Entry] = []
        self._paged_out: list[Entry] = []
        self._cut: list[tuple[int, int]] = []
        self._ended: list[int] = []
        self._waiting: dict[Publisher, int] = {}  # for the open commit; where they stood
        self._flying: Commit | None = None
        self._flying_waiting: dict[Publisher, int] = {}
        self._flying_logs: dict[SegmentLog, None] = {}
        self._flying_octets = 0
        self._flying_last = 0  # the last entry of it
        self._gathered = 0  # octets of arrivals, as far as they have been counted
        self._counted = 0  # arrivals that have been counted
        self._short = False  # of space
        self._started = False
        self._failed = False

    # What is told.

    def put(self, key: str, value: str) -> None:
        """An object has this value now."""
        self._objects[key] = value
        self.holds = True

    def remove(self, key: str) -> None:
        """There is no such object any more."""
        self._objects[key] = None
        self.holds = True

    def settle_numbers(self, numbers: Sequence[int]) -> None:
        self._numbers.append(numbers)

    def attempted(self, entry: Entry) -> None:
        if entry.stored:
            self._tried.append(entry)

    def revised(self, entry: Entry) -> None:
        if entry.stored > 0:
            self._numbers.append((entry.stored,))
            entry.stored = 0
            if entry.message.facts.durable and entry.holder().number:
                entry.stored = PENDING
                self.arrivals.append(entry)  # else it was paged out only, and is in memory again

    def page_out(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            entry.stored = PENDING
        self._paged_out.extend(entries)

    def open_log(self, number: int, described: str, changed: Callable[[], None]) -> SegmentLog:
        """The log of a stream, which is there from now on."""
        log = self.logs[number] = SegmentLog(self, number, described, changed)
        return log

    def cut(self, number: int, first: int) -> None:
        """A segment of a stream goes."""
        self._cut.append((number, first))

    def end_stream(self, number: int) -> None:
        """A stream goes, with all that it has."""
        if (log := self.logs.pop(number, None)) is not None:
            self.appends.pop(log, None)
        self._ended.append(number)

    @property
    def gathered(self) -> int:
        """How many messages are in the open commit."""
        streams = sum([log.gathered for log in self.appends]) if self.appends else 0
        return len(self.arrivals) + streams

    @property
    def dirty(self) -> bool:
        """Whether there is something to commit."""
        return bool(
            self.arrivals
            or self.settled
            or self._objects
            or self._numbers
            or self._tried
            or self._paged_out
            or self._rewriter.done
            or self.appends
            or self.producers
            or self._cut
            or self._ended
        )

    # The end of a batch.

    def settle(self, publishers: Sequence[Publisher]) -> None:
        """All that was done until now is one. Publishers who need not wait are told at once, the others later.

        Streams keep every message: if one had any, all wait, for who published it is not known here.
        """
        dirty, has_appends = self.dirty, bool(self.appends)
        for publisher in publishers:
            waits = publisher in self._waiting or publisher in self._flying_waiting
            if waits or (dirty and (has_appends or publisher.persistent)):
                self._waiting[publisher] = publisher.mark()
            else:
                publisher.taken(publisher.mark())
        if dirty or self._waiting:
            self._held = self._held or self.holds
            self._go_on()
            self._measure()

    def _measure(self) -> None:
        """How much there is that is not on disk."""
        if self._counted < len(self.arrivals):
            self._gathered += octets_of(self.arrivals, self._counted)
            self._counted = len(self.arrivals)
        if self.appends:
            self._gathered += sum([log.measured() for log in self.appends])
        self.behind = self._gathered + self._flying_octets > self.behind_octets

    # Committing.

    def _go_on(self) -> None:
        """Close the open commit and hand it to the store, if nothing is in flight."""
        while self._flying is None and self._started and not self._failed and (self.dirty or self._waiting):
            if wait_s := self._can_wait():
                self._put_off_commit(wait_s)
                return
            commit = self._flying = self._closed()
            self._flying_waiting, self._waiting = self._waiting, {}
            if commit:
                self.store.append(commit)
            else:  # what there was has gone again before it was written
                self._landed(commit.number)

    def _can_wait(self) -> float:
        """For how many seconds to put the open commit off: nobody waits for it, or consumers may settle it."""
        if self._held or self._overdue:
            return 0.0
        if not self._waiting:
            return self.patience_s
        return self.quick_s if not self._doubts and self._is_with_consumers() else 0.0

    def _is_with_consumers(self) -> bool:
        """Whether consumers have all there is to write. What they settle before it is written need not be."""
        arrivals, settled = self.arrivals, self.settled
        if not 0 < len(arrivals) <= QUICK_MESSAGES or len(settled) > len(arrivals):
            return False
        if self._objects or self._numbers or self._tried or self._paged_out or self._rewriter.done:
            return False
        if self.appends or self.producers or self._cut or self._ended:
            return False
        answered = {id(entry) for entry in settled if entry.stored == PENDING}
        left = [entry for entry in arrivals if id(entry) not in answered]
        return bool(left) and all(isinstance(each, Delivery) and each.consumer is not None for each in left)

    def _put_off_commit(self, wait_s: float) -> None:
        if self._put_off is None:
            self._put_off = self.broker.timers.at(self.broker.now + wait_s, self._patience_ends)

    def _patience_ends(self, now: float) -> None:
        """The broker is settling, and will tell of that at its end: until then a commit must not be closed."""
        self._put_off = None
        self._overdue = self.dirty
        if self._waiting:
            self._doubts = self.doubts + 1

    def _closed(self) -> Commit:
        commit = Commit(self.open)
        self.open += 1
        self._held = self._overdue = False
        self._doubts -= self._doubts > 0
        self.broker.timers.cancel(self._put_off)
        self._put_off = None
        self._settle_in(commit)
        arrivals, self.arrivals = self.arrivals, []
        volatile, self._paged_out = self._paged_out, []
        self._flying_octets = self._gather(commit, arrivals, False) + self._gather(commit, volatile, True)
        self._gather_streams(commit)
        self._gathered = self._counted = 0
        self._flying_last = self.next_entry - 1
        commit.objects, self._objects = self._objects, {}
        tried, self._tried = self._tried, []
        commit.marks = {entry.stored: entry.attempts for entry in tried if entry.stored > 0}
        self._rewriter.replace_in(commit)
        return commit

    def _settle_in(self, commit: Commit) -> None:
        settled, self.settled = self.settled, []
        numbers = given_up(settled)
        ranges: list[range] = []  # of pages: to go through the numbers of a long queue takes its time
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
        """Number the arrivals that are still there, and put them into chunks. Returns their octets."""
        if not arrivals:
            return 0
        clock = self.broker.clock
        moment = GatheringMoment(clock.wall(), clock.now())
        total = 0
        for portion in gathered(
            arrivals, self.next_entry, moment, volatile, self.chunk_octets, self.chunk_entries
        ):
            entries = portion.entries
            commit.chunks.append(entries)
            numbers = range(entries.first, entries.first + len(entries))
            self.next_entry = numbers.stop
            self.known.add(ChunkState(entries.first, numbers, portion.octets, volatile))
            total += portion.octets
        return total

    def _gather_streams(self, commit: Commit) -> None:
        logs, self.appends = self.appends, {}
        wall = self.broker.clock.wall()
        for each in logs:
            appends, octets = each.closed(wall)
            commit.appends += appends
            self._flying_octets += octets
        self._flying_logs = logs
        commit.cut, self._cut = self._cut, []
        commit.ended, self._ended = self._ended, []
        commit.producers, self.producers = self.producers, {}

    # What the store reports.

    def start(self, soon: Callable[[Callable[[], None]], None]) -> None:
        """Commit from now on. `soon(f)` has `f` called in this thread. Raises StoreError."""
        self.store.start(soon, self._on_durable, self._on_failure)
        self._started = True
        self._go_on()

    def _on_durable(self, number: int) -> None:
        if self._short:
            self._short = False
            self.broker.alarms.clear(LOW_ON_DISK)
        self._landed(number)
        self._rewriter.look()
        self._go_on()
        self._measure()
        self.on_durable()

    def _landed(self, number: int) -> None:
        """A commit is on disk."""
        self._flying = None
        self.durable = number
        self.written = self._flying_last
        self._flying_octets = 0
        logs, self._flying_logs = self._flying_logs, {}
        for each in logs:
            each.landed()
        waiting, self._flying_waiting = self._flying_waiting, {}
        for publisher, mark in waiting.items():
            try:
                publisher.taken(mark)
            except Exception:
                log.exception("a mistake of ours: a publisher could not be told")

    def _on_failure(self, error: Exception) -> None:
        if isinstance(error, NoSpaceError):
            if not self._short:
                self._short = True
                log.error("no space for the store: publishers are held back until there is (%s)", error)
                self.broker.alarms.set(LOW_ON_DISK)
            self.broker.timers.at(self.broker.clock.now() + self.retry_s, self._try_again)
        else:
            self.fail(error if isinstance(error, StoreError) else StoreError(repr(error)))

    def reading_failed(self, error: Exception) -> None:
        """What was asked of the store could not be read, and is not damaged."""
        self._on_failure(error)

    def fail(self, error: StoreError) -> None:
        """The store cannot be trusted any more."""
        if not self._failed:
            self._failed = True
            self.on_failed(error)

    def _try_again(self, now: float) -> None:
        if self._flying is not None and not self._failed:
            self.store.append(self._flying)

    # Reading.

    def encoding(self, name: str) -> Encoding | None:
        """How messages of a protocol are read; None: it is not installed."""
        known = self._encodings.get(name)
        return None if known is None else known()

    def fetch(self, holder: Holder, page: Page) -> list[Stored]:
        with self.store.reader() as reader:
            found = read_page(reader, page, self.encoding)
        return self._stored(holder, page, found)

    def fetch_soon(self, holder: Holder, page: Page, then: Callable[[list[Stored]], None]) -> None:
        def arrived(found: FoundPage | Exception) -> None:
            if isinstance(found, Exception):
                self._on_failure(found)
            else:
                then(self._stored(holder, page, found))

        self.store.read_soon(lambda reader: read_page(reader, page, self.encoding), arrived)

    def _stored(self, holder: Holder, page: Page, found: FoundPage) -> list[Stored]:
        if found.damage:
            log.error(
                "%d messages of %s cannot be read; they are not delivered, and stay in the store: %s",
                len(page) - len(found.rows),
                holder.described,
                "; ".join(dict.fromkeys(found.damage)),
            )
        wall_ms = wall_ms_of(self.broker)
        return [
            (number, position, (expires_ms - wall_ms) / 1000 if expires_ms else NEVER, message)
            for number, position, expires_ms, _, message in found.rows
        ]

    # The end.

    def close(self) -> None:
        """Keep what there is, and close the store properly. Nobody is told any more. Raises StoreError."""
        self._started = False
        if self._failed:
            self.give_up()
            return
        last = self._closed()
        self._flying_logs = {}  # nobody reads any more
        last.marks[ALL_UP_TO] = self.redelivered_to
        for owner in owners_of(self.broker):
            for number, attempts in owner.marked():
                if attempts or number > self.redelivered_to:
                    last.marks[number] = attempts
        self.store.close(last)

    def give_up(self) -> None:
        """Close the store as it is: the next start finds that it was not closed properly."""
        self._started = False
        self.store.close(None)


def wall_ms_of(broker: Broker) -> float:
    """What to add to monotonic milliseconds for those since 1970."""
    return (broker.clock.wall() - broker.clock.now()) * 1000
